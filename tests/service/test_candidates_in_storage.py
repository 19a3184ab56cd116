"""Lists, maps and counts in object storage give what the same files on a disk give."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, registry_toml
from hubbub.decoder.candidates import read_list
from hubbub.decoder.cli import main
from hubbub.inference import CandidateError
from hubbub.storage import resolve
from service.s3_server import BUCKET, Fault
from unit.decoder.stores import filled_store, plausible_records

NAMES = [f"https://example.com/{number}" for number in range(3_000)]
PLACE = f"s3://{BUCKET}/lists"


@pytest.fixture
def lists(tmp_path, s3) -> Path:
    """Make the same lists on the disk and in storage."""
    del s3
    folder = tmp_path / "lists"
    folder.mkdir()
    for number in range(2):
        text = "\n".join(NAMES[number * 1_000 : (number + 1) * 1_000]).encode()
        (folder / f"a-{number}.txt").write_bytes(text)
        (folder / f"b-{number}.txt.gz").write_bytes(gzip.compress(text))
    rows = pa.table({"string": NAMES[1_500:]})
    pq.write_table(rows, folder / "c.parquet", row_group_size=400)
    for file in folder.iterdir():
        resolve(f"{PLACE}/{file.name}").write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("which", ["a-0.txt", "b-1.txt.gz", "c.parquet"])
def test_lists_are_read_as_from_a_disk(lists, which):
    found, expected = read_list(f"{PLACE}/{which}"), read_list(f"{lists}/{which}")
    assert list(found.strings) == list(expected.strings)
    assert (found.words == expected.words).all()


def test_lists_are_decoded_as_from_a_disk(lists, tmp_path):
    (tmp_path / "metrics.toml").write_text(registry_toml(make_metric()), encoding="utf-8")
    store = filled_store(tmp_path, plausible_records())
    decode = ["decode", "homepage", f"--metrics={tmp_path}/metrics.toml", f"--store={store}"]
    found: list[object] = []
    for place in (PLACE, str(lists)):
        output = tmp_path / f"{len(found)}.json"
        files = [f"--candidates={place}/c.parquet", f"--output={output}", "--output=-"]
        result = CliRunner().invoke(main, [*decode, "--method=regression", *files])
        assert result.exit_code == 0, result.stderr
        found.append((result.stdout, json.loads(output.read_text(encoding="utf-8"))))
    assert found[0] == found[1]


def test_googles_files_are_read_from_storage(tmp_path, s3):
    del s3
    params = make_params(k=8, h=1, m=2)
    texts = {
        "params.csv": f"k,h,m,p,q,f\n8,1,2,{params.p},{params.q},{params.f}\n",
        "counts.csv": "600," + ",".join(["300"] * 8) + "\n600," + ",".join(["320"] * 8) + "\n",
        "map.csv": "a,1,9\nb,2,11\nc,8,16\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        resolve(f"{PLACE}/google/{name}").write_bytes(text.encode())
    found = []
    for place in (f"{PLACE}/google", tmp_path):
        files = [f"--{kind}={place}/{kind}.csv" for kind in ("params", "counts", "map")]
        result = CliRunner().invoke(main, ["decode", *files, "--output=-"])
        assert result.exit_code == 0, result.stderr
        found.append(result.stdout)
    assert found[0] == found[1]


def test_a_list_that_cannot_be_read_is_reported(lists, through_proxy):
    del lists
    with pytest.raises(CandidateError, match="no such object; expected a file or pipe"):
        read_list(f"{PLACE}/none.txt")
    resolve(f"{PLACE}/wrong/x.gz").write_bytes(b"no gzip")
    with pytest.raises(CandidateError, match=r"Not a gzipped file.*expected gzip"):
        read_list(f"{PLACE}/wrong/x.gz")
    resolve(f"{PLACE}/wrong/x.parquet").write_bytes(b"no Parquet")
    with pytest.raises(CandidateError, match="expected a Parquet file"):
        read_list(f"{PLACE}/wrong/x.parquet")

    through_proxy.trouble = lambda method, _path: Fault.CUT_ANSWER if method == "GET" else None
    with pytest.raises(CandidateError, match=r"a-0.txt: the server can't be reached"):
        read_list(f"{PLACE}/a-0.txt")
    through_proxy.trouble = lambda _method, _path: (400, "ExpiredToken")
    with pytest.raises(CandidateError, match="credentials have probably expired"):
        read_list(f"{PLACE}/a-0.txt")
