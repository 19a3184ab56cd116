"""Exports in object storage, on a real S3 server, and what a kill leaves."""

import asyncio
import json
import signal
import threading

import pytest
from click.testing import CliRunner

from hubbub.collector import main
from hubbub.storage import (
    MissingFileError,
    ParquetReader,
    ReportFileError,
    StoreError,
    open_store,
    resolve,
)
from service.operators import DAY, KEY, METRIC, SECONDS, records_of
from unit.collector.exchanges import export_all, fill


def test_export_to_s3_is_decoded_and_imported_like_the_store(operator, tmp_path):
    """Twice, with more reports: the day is replaced, and objects of the first export are gone."""
    operator.export_here()
    [first] = [file for file in resolve(operator.address).files() if "part-" in file.name]
    operator.add(range(1_000, 1_500))
    code, out, error = operator.export()
    assert (code, error) == (0, "")
    assert out.splitlines()[-1].endswith(f"to {operator.address}")
    [second] = [file for file in resolve(operator.address).files() if "part-" in file.name]
    assert first != second
    assert operator.decode() == (0, *operator.expected())
    moved = f"sqlite:///{tmp_path}/moved.db"
    code, out, error = operator.run(
        *("hubbub-collector", "import", operator.address),
        *("--metrics", operator.metrics, "--store", moved),
    )
    assert (code, error) == (0, "")
    assert out.endswith(f"imported 1,500 reports into {moved}\n")


@pytest.mark.long
def test_export_killed_before_its_manifest_counts_for_nothing(operator):
    """The earlier day stays; the next export is right, and removes what was left."""
    operator.export_here()
    operator.add(range(5_000, 6_000))
    at_manifest, let_go = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> tuple[int, str] | None:
        if method != "PUT" or not path.partition("?")[0].endswith("/_manifest.json"):
            return None
        at_manifest.set()
        let_go.wait(SECONDS)
        return 503, "SlowDown"

    operator.proxy.trouble = hold
    arguments = ("export", "--store", operator.store, "--to", operator.address)
    with operator.start("hubbub-collector", *arguments) as process:
        assert at_manifest.wait(SECONDS)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    let_go.set()
    operator.proxy.trouble = lambda _method, _path: None
    assert len(operator.exported()) == 1_000
    operator.proxy.requests.clear()
    assert operator.export()[0] == 0
    assert len(operator.exported()) == 2_000
    deleted = [line for line in operator.proxy.requests if line.startswith("DELETE")]
    assert len(deleted) == 2  # of the first export, and of the killed one


def test_credentials_do_not_belong_into_addresses(operator):
    for address in ("s3://AKIA:hush@reports/x", "s3://reports/x?access_key=hush"):
        export = ["export", "--store", operator.store, "--to", address]
        result = CliRunner().invoke(main, export)
        assert result.exit_code == 1
        assert "AWS_SECRET_ACCESS_KEY" in result.stderr
        assert "hush" not in result.stderr


@pytest.mark.parametrize(
    ("address", "kind", "path"),
    [
        ("gs://bucket/a/b", "gcs", "bucket/a/b"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs", "box/a"),
        ("file:///a%20b/c", "local", "/a b/c"),
    ],
)
def test_other_addresses_find_their_file_system(address, kind, path):
    filesystem, found = resolve(address).arrow()
    assert (filesystem.type_name, found) == (kind, path)


@pytest.mark.parametrize("address", ["s3:reports/x", "S3:/secret@reports", "parquet:s3://secret"])
def test_mistyped_addresses_are_refused_and_make_no_folder(address):
    with pytest.raises(StoreError, match=r"address \w+:\.\.\.: expected a path") as refused:
        resolve(address)
    assert "secret" not in str(refused.value)
    assert resolve(f"./{address}").is_local


def test_day_that_is_exported_again_while_it_is_read(tmp_path):
    out = tmp_path / "out"

    async def scenario():
        async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
            await fill(store, range(10), METRIC, DAY)
            await export_all(store, out)
            reader = ParquetReader(out)
            assert await reader.count(KEY) == 10
            await fill(store, range(10, 15), METRIC, DAY)
            await export_all(store, out)
        with pytest.raises(MissingFileError, match="run this again"):
            await records_of(reader)
        assert len(await records_of(ParquetReader(out))) == 15

    asyncio.run(scenario())


def test_manifest_says_which_files_count_and_how_many_reports(tmp_path):
    out = tmp_path / "out"

    async def export():
        async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
            await fill(store, range(10), METRIC, DAY)
            await export_all(store, out)

    asyncio.run(export())
    [part] = out.rglob("part-*.parquet")
    part.with_name("part-" + 16 * "0" + ".parquet").write_bytes(part.read_bytes())
    assert len(asyncio.run(records_of(ParquetReader(out)))) == 10
    manifest = part.with_name("_manifest.json")
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["files"][0]["reports"] = 11
    manifest.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ReportFileError, match="10 reports; its manifest says 11"):
        asyncio.run(records_of(ParquetReader(out)))
    for text in ("{", "[]", '{"format": 2, "files": []}'):
        manifest.write_text(text, encoding="utf-8")
        with pytest.raises(ReportFileError, match="expected the manifest of an export"):
            asyncio.run(records_of(ParquetReader(out)))
    manifest.unlink()
    assert asyncio.run(ParquetReader(out).days(KEY)) == []
