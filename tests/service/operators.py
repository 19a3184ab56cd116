"""Somebody who exports to object storage and decodes from it, with the real programs."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from click.testing import CliRunner

import programs
from factories import make_metric, make_params, registry_toml
from hubbub.decoder.cli import main
from hubbub.storage import MetricVersion, ParquetReader, Reader, StoredRecords, open_store
from service.s3_server import BUCKET, Proxy
from unit.collector.exchanges import each, export_all, fill

SECONDS = 120
DAY = dt.date(2026, 3, 14)
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
KEY = MetricVersion("homepage", 1)
WIDTH = 6
_IMPATIENT = """
from hubbub.storage import locations
from hubbub.{part}.cli import main

locations.SILENT_SECONDS, locations.ATTEMPTS = 1.0, 2
main()
"""


class Operator:
    """Has a store of 1,000 reports, and a proxy before the server.

    `is_impatient`: whether programs that start give up a silent server after seconds, at the second
    attempt.
    """

    def __init__(self, folder: Path, proxy: Proxy) -> None:
        self.is_impatient = False
        self.proxy, self.store = proxy, f"sqlite:///{folder}/hubbub.db"
        self.address = f"s3://{BUCKET}/{folder.name}"
        self.metrics, self.candidates = folder / "metrics.toml", folder / "candidates.txt"
        self.metrics.write_text(registry_toml(METRIC), encoding="utf-8")
        self.candidates.write_text("example.com\nexample.org\n", encoding="utf-8")
        self.add(range(1_000))

    def add(self, numbers: range, day: dt.date = DAY) -> None:
        """Store reports."""

        async def add() -> None:
            async with open_store(self.store, create=True) as store:
                await fill(store, numbers, METRIC, day)

        asyncio.run(add())

    def start(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        command = [str(Path(sysconfig.get_path("scripts"), name))]
        if self.is_impatient:
            code = _IMPATIENT.format(part=name.removeprefix("hubbub-"))
            command = [sys.executable, "-c", code]
        return subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | self.proxy.environment,
        )

    def run(self, name: str, *arguments: object) -> tuple[int, str, str]:
        """Run one to its end; return its exit code and what it said."""
        if not self.is_impatient:
            module, environment = name.replace("-", "."), os.environ | self.proxy.environment
            done = programs.run(module, *map(str, arguments), environment=environment)
            return done.returncode, done.stdout, done.stderr
        with self.start(name, *arguments) as process:
            out, error = process.communicate(timeout=SECONDS)
        return process.returncode, out, error

    def export_here(self) -> None:
        """Export all in this process, past the proxy."""

        async def export() -> None:
            async with open_store(self.store, create=False) as store:
                await export_all(store, self.address)

        asyncio.run(export())

    def export(self) -> tuple[int, str, str]:
        return self.run("hubbub-collector", "export", "--store", self.store, "--to", self.address)

    def decoding(self, store: str, candidates: object = None) -> tuple[object, ...]:
        given = ("--metrics", self.metrics, "--candidates", candidates or self.candidates)
        wanted = ("--store", store, "--min-reports", 10, "--output", "-")
        return ("hubbub-decoder", "decode", "homepage", *given, *wanted)

    def decode(self, candidates: object = None) -> tuple[int, str, str]:
        name, *arguments = self.decoding(f"parquet:{self.address}", candidates)
        return self.run(str(name), *arguments)

    def expected(self) -> tuple[str, str]:
        """Decode the store, in this process; return what is printed, and notes on it."""
        _, *arguments = map(str, self.decoding(self.store))
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        return result.stdout, result.stderr

    def exported(self) -> list[bytes]:
        """Read all reports that count, in this process, past the proxy."""
        return asyncio.run(records_of(ParquetReader(self.address)))


async def records_of(reader: Reader) -> list[bytes]:
    """Return all reports that there are, sorted."""
    found: list[bytes] = []
    async for stored in reader.contents(KEY):
        assert isinstance(stored, StoredRecords)
        found += each(WIDTH, stored.records)
    return sorted(found)
