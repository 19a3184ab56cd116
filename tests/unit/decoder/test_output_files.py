"""Estimates files are whole or not there, also as Parquet; paths are checked before the work."""

import io
import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from click import BadParameter
from pyarrow import parquet

from hubbub.decoder import Decoding
from hubbub.reporting import CHUNK, COLUMNS, atomic_write, check_output_option, strings_estimates
from unit.decoder.decodings import make_decoding, make_provenance
from unit.decoder.rendered import parquet_of


def write(path: Path, text: str) -> None:
    atomic_write(path, lambda file: file.writelines([text.encode()]))


def test_rendering_that_fails_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "result.csv"
    write(path, "old")

    def fail(file: BinaryIO):
        file.write(b"ne")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        atomic_write(path, fail)
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.csv"]


def test_reader_never_sees_half_a_file(tmp_path):
    """Whoever opened the old result goes on reading the old one: the new is another file."""
    path = tmp_path / "result.csv"
    write(path, "old")
    with path.open(encoding="utf-8") as reader:
        write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"


def test_mistyped_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder") as caught:
        check_output_option([str(tmp_path / "nosuchfolder" / "result.csv")])
    assert caught.value.filename == str(tmp_path / "nosuchfolder")
    with pytest.raises(FileNotFoundError):
        atomic_write(tmp_path / "nosuchfolder" / "result.csv", lambda file: file.writelines([]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (["result.txt"], "'result.txt' must end in .csv, .json, .parquet or .html"),
        ([""], "'' must end in"),
        (["a.csv", "a.csv"], "'a.csv' is given twice"),
        (["a.csv", "./a.csv"], "'a.csv' is given twice"),
        (["-", "-"], "'-' is given twice"),
    ],
)
def test_names_that_say_nothing_are_refused(paths, reason):
    with pytest.raises(BadParameter) as caught:
        check_output_option(paths)
    assert reason in caught.value.message


def test_places_where_no_file_can_be_are_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(IsADirectoryError):
        check_output_option([str(tmp_path / "folder.csv")])
    with pytest.raises(NotADirectoryError):
        check_output_option([str(tmp_path / "file" / "result.csv")])


def test_folder_without_permission_is_refused_to_all_but_root(tmp_path):
    tmp_path.chmod(0o500)
    may = os.geteuid() == 0
    with nullcontext() if may else pytest.raises(PermissionError):
        check_output_option([str(tmp_path / "result.csv")])


NASTY = ["", " x ", "007", "NA", "nan", "a\nb", "\0", "日本語", "\U0001f984"]


def written(decoding: Decoding, *, detected_only: bool = False) -> bytes:
    result = strings_estimates(decoding, provenance=make_provenance(), detected_only=detected_only)
    return parquet_of(result)


def table_of(data: bytes) -> pa.Table:
    return parquet.read_table(io.BytesIO(data))


def test_columns_are_the_csvs_with_types():
    schema = table_of(written(make_decoding(["a"]))).schema
    assert tuple(schema.names) == COLUMNS
    assert schema.types == [pa.string(), *[pa.float64()] * 11, pa.bool_(), pa.string()]


def test_strings_and_numbers_come_back_exactly():
    share = np.linspace(-0.1, 1, len(NASTY)) / 3
    decoding = make_decoding(NASTY, share.tolist(), [True] * 4 + [False] * 5)
    rows = table_of(written(decoding)).to_pydict()
    assert rows["string"] == NASTY
    assert rows["proportion"] == share.tolist()
    assert rows["count"] == (share * 1000).tolist()
    assert rows["detected"] == [True] * 4 + [False] * 5
    kept = table_of(written(decoding, detected_only=True)).to_pydict()
    assert kept["string"] == NASTY[:4]


@pytest.mark.parametrize("n", [0, 1, 9 * CHUNK + 1])
def test_rows_of_many_chunks_come_in_order(n):
    decoding = make_decoding([str(i) for i in range(n + 1)], detected=[i < n for i in range(n + 1)])
    data = written(decoding, detected_only=True)
    assert table_of(data).column("string").to_pylist() == [str(i) for i in range(n)]
    compression = parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    assert n == 0 or compression.column(0).compression == "ZSTD"
