"""Exports in object storage, on a real S3 server, and what its faults and kills leave."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories import make_metric, make_params, registry_toml
from hubbub.collector.errors import MissingFileError, ReportFileError
from hubbub.collector.exchange.partitions import ParquetReader
from hubbub.collector.exchange.storage import resolve
from hubbub.collector.store import MetricVersion, StoredRecords, open_store
from service.s3_server import BUCKET, Proxy, proxy_before, s3_server
from unit.collector.exchanges import export_all, fill

SECONDS = 120
DAY = dt.date(2026, 3, 14)
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
KEY = MetricVersion("homepage", 1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def s3(server: str) -> Iterator[Proxy]:
    with proxy_before(server) as proxy:
        yield proxy


class Operator:
    """Somebody with a store of 1,000 reports, who runs the programs."""

    def __init__(self, folder: Path, proxy: Proxy) -> None:
        self.proxy, self.store = proxy, f"sqlite:///{folder}/hubbub.db"
        self.address = f"s3://{BUCKET}/{folder.name}"
        self.metrics, self.candidates = folder / "metrics.toml", folder / "candidates.txt"
        self.metrics.write_text(registry_toml(METRIC), encoding="utf-8")
        self.candidates.write_text("example.com\nexample.org\n", encoding="utf-8")
        self.add(range(1_000))

    def add(self, numbers: range) -> None:
        async def add() -> None:
            async with open_store(self.store, create=True) as store:
                await fill(store, numbers, METRIC, DAY)

        asyncio.run(add())

    def start(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        program = Path(sysconfig.get_path("scripts"), name)
        return subprocess.Popen(
            [str(program), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | self.proxy.environment,
        )

    def run(self, name: str, *arguments: object) -> tuple[int, str, str]:
        with self.start(name, *arguments) as process:
            out, error = process.communicate(timeout=SECONDS)
        return process.returncode, out, error

    def export(self) -> tuple[int, str, str]:
        return self.run("hubbub-collector", "export", "--store", self.store, "--to", self.address)

    def decode(self, store: str) -> str:
        given = ("--metrics", self.metrics, "--candidates", self.candidates, "--min-reports", 10)
        code, out, error = self.run(
            "hubbub-decoder", "decode", "homepage", *given, "--store", store, "--output", "-"
        )
        assert (code, error) == (0, "")
        return out

    def count_exported(self) -> int:
        """Read all that counts, in this process, past the proxy."""
        return asyncio.run(_read(ParquetReader(self.address)))


@pytest.fixture
def operator(tmp_path: Path, s3: Proxy, server: str, monkeypatch: pytest.MonkeyPatch) -> Operator:
    for name, value in (s3.environment | {"AWS_ENDPOINT_URL": server}).items():
        monkeypatch.setenv(name, value)
    return Operator(tmp_path, s3)


def test_export_to_s3_is_decoded_and_imported_like_the_store(
    operator: Operator, tmp_path: Path
) -> None:
    """Twice, with more reports: the day is replaced, and objects of the first export are gone."""
    for numbers in (range(1_000, 1_500), range(1_500, 1_700)):
        code, out, error = operator.export()
        assert (code, error) == (0, "")
        assert out.splitlines()[-1].endswith(f"to {operator.address}")
        assert operator.decode(f"parquet:{operator.address}") == operator.decode(operator.store)
        operator.add(numbers)
    puts = [line for line in operator.proxy.requests if "/part-" in line and line[:3] == "PUT"]
    deletions = [line for line in operator.proxy.requests if line.startswith("DELETE")]
    assert len(puts) == 2
    assert deletions == ["DELETE" + puts[0].partition("?")[0][3:]]
    moved = f"sqlite:///{tmp_path}/moved.db"
    code, out, error = operator.run(
        *("hubbub-collector", "import", operator.address),
        *("--metrics", operator.metrics, "--store", moved),
    )
    assert (code, error) == (0, "")
    assert out.endswith(f"imported 1,500 reports into {moved}\n")


def test_export_killed_before_its_manifest_counts_for_nothing(operator: Operator) -> None:
    """The earlier day stays; the next export is right, and removes what was left."""
    assert operator.export()[0] == 0
    operator.add(range(5_000, 6_000))
    at_manifest, let_go = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> tuple[int, str] | None:
        if method != "PUT" or not path.partition("?")[0].endswith("/_manifest.json"):
            return None
        at_manifest.set()
        let_go.wait(SECONDS)
        return 503, "SlowDown"

    operator.proxy.refuse = hold
    arguments = ("export", "--store", operator.store, "--to", operator.address)
    with operator.start("hubbub-collector", *arguments) as process:
        assert at_manifest.wait(SECONDS)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    let_go.set()
    operator.proxy.refuse = lambda _method, _path: None
    assert operator.count_exported() == 1_000
    operator.proxy.requests.clear()
    assert operator.export()[0] == 0
    assert operator.count_exported() == 2_000
    deleted = [line for line in operator.proxy.requests if line.startswith("DELETE")]
    assert len(deleted) == 2  # of the first export, and of the killed one


def test_busy_server_is_asked_again(operator: Operator) -> None:
    refusals = iter([(503, "SlowDown")] * 2)
    operator.proxy.refuse = lambda method, _path: next(refusals, None) if method == "PUT" else None
    assert operator.export()[0] == 0
    assert next(refusals, None) is None
    assert operator.count_exported() == 1_000


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (503, "SlowDown", "the server is too busy (SlowDown)"),
        (403, "ExpiredToken", "the credentials have expired"),
        (403, "AccessDenied", "access denied; the credentials need the right"),
        (404, "NoSuchBucket", "no such bucket"),
    ],
)
def test_refusals_of_the_server_are_told_in_a_line(
    operator: Operator, status: int, code: str, message: str
) -> None:
    operator.proxy.refuse = lambda method, _path: (status, code) if method == "PUT" else None
    returned, out, error = operator.export()
    assert (returned, out) == (1, "")
    assert message in error
    assert error.startswith(f"Error: {operator.address}/metric=homepage")
    assert len(error.splitlines()) == 1
    assert "not-to-be-shown" not in error


def test_credentials_do_not_belong_into_addresses(operator: Operator) -> None:
    for address in ("s3://AKIA:hush@reports/x", "s3://reports/x?access_key=hush"):
        code, _, error = operator.run(
            "hubbub-collector", "export", "--store", operator.store, "--to", address
        )
        assert code == 2
        assert "AWS_SECRET_ACCESS_KEY" in error
        assert "hush" not in error
    assert operator.proxy.requests == []


@pytest.mark.parametrize(
    ("address", "kind", "path"),
    [
        ("gs://bucket/a/b", "gcs", "bucket/a/b"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs", "box/a"),
        ("file:///a%20b/c", "local", "/a b/c"),
    ],
)
def test_other_addresses_find_their_file_system(address: str, kind: str, path: str) -> None:
    filesystem, found = resolve(address).arrow()
    assert (filesystem.type_name, found) == (kind, path)


async def _read(reader: ParquetReader) -> int:
    return sum(
        [
            len(stored.records) // 6
            async for stored in reader.contents(KEY)
            if isinstance(stored, StoredRecords)
        ]
    )


def test_day_that_is_exported_again_while_it_is_read(tmp_path: Path) -> None:
    """Between listing and reading the new day is taken; a file lost in between is an error."""
    out = tmp_path / "out"

    async def scenario() -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
            await fill(store, range(10), METRIC, DAY)
            await export_all(store, out)
            reader = ParquetReader(out)
            assert await reader.count(KEY) == 10
            await fill(store, range(10, 15), METRIC, DAY)
            await export_all(store, out)
            assert await _read(reader) == 15
        reader = ParquetReader(out)
        assert await reader.count(KEY) == 15
        [part] = out.rglob("part-*.parquet")
        part.unlink()
        with pytest.raises(MissingFileError, match="run this again"):
            await _read(reader)

    asyncio.run(scenario())


def test_manifest_says_which_files_count_and_how_many_reports(tmp_path: Path) -> None:
    out = tmp_path / "out"

    async def export() -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
            await fill(store, range(10), METRIC, DAY)
            await export_all(store, out)

    asyncio.run(export())
    [part] = out.rglob("part-*.parquet")
    part.with_name("part-" + 16 * "0" + ".parquet").write_bytes(part.read_bytes())
    assert asyncio.run(_read(ParquetReader(out))) == 10
    manifest = part.with_name("_manifest.json")
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["files"][0]["reports"] = 11
    manifest.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ReportFileError, match="10 reports; its manifest says 11"):
        asyncio.run(_read(ParquetReader(out)))
    manifest.unlink()
    assert asyncio.run(ParquetReader(out).days(KEY)) == []
