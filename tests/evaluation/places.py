"""Reports counted where they lie: in SQLite, in PostgreSQL, in Parquet; and what an export takes.

`python -m evaluation.places --reports 1000000 10000000` stores random reports (k = 128, m = 64, ten
days) in both databases, as large segments, exports them, and counts them in each place, in a new
process each time. CPU seconds are those of that process and of PostgreSQL's, the start of Python
included; memory is the peak of the process that counts or exports.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation.loadtest.harness import postgresql
from evaluation.machine import tree_cpu_seconds
from evaluation.measured_table import MeasuredTable
from evaluation.ways.jobs import COUNTED as METRIC, counts_digest, random_records
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.storage import MetricVersion, NewBatch, export_partitions, open_store, plan_export

_DAYS = 10
_FIRST = dt.date(2026, 11, 1)
_SEGMENT = 65_536
_KEY = MetricVersion(METRIC.name, METRIC.version)
_SERVER = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


class Took(NamedTuple):
    """What a process took, and a digest of the counts that it found, if any."""

    cpu: float
    seconds: float
    memory: float
    digest: str


async def fill(url: str, reports: int) -> None:
    """Store the same random reports in any store, as segments of the size that merging makes."""
    rng = np.random.default_rng(1)
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        for number in range(_DAYS):
            day = _FIRST + dt.timedelta(days=number)
            for records in random_records(rng, reports // _DAYS, _SEGMENT):
                await store.append([NewBatch(secrets.token_bytes(16), {_KEY: records})], day)


async def export(url: str, folder: str) -> None:
    async with open_store(url, create=False) as store:
        async for _file in export_partitions(store, folder, await plan_export(store)):
            pass


def count(address: str) -> str:
    """Count all reports of a place; return a digest of the counts."""
    return counts_digest(asyncio.run(load_reports(StoredReports(address), METRIC)).counts)


def run(what: str, *addresses: str) -> Took:
    """Count or export in a new process."""
    before, begun = tree_cpu_seconds(), time.monotonic()
    command = [sys.executable, "-m", "evaluation.places", f"--{what}", *addresses]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begun
    found = json.loads(done.stdout)
    return Took(tree_cpu_seconds() - before, seconds, found["memory"], found["digest"])


def compare(reports: int, folder: Path, postgresql: str) -> Iterator[tuple[str, ...]]:
    """Fill, count and export; yield a row for each place."""
    sqlite, parquet = f"sqlite:///{folder / 'reports.db'}", f"parquet:{folder / 'exported'}"
    for url in (sqlite, postgresql):
        asyncio.run(fill(url, reports))
    exported = {
        sqlite: run("export", sqlite, str(folder / "exported")),
        postgresql: run("export", postgresql, str(folder / "again")),
    }
    counted = {place: run("count", place) for place in (sqlite, postgresql, parquet)}
    for place, took in counted.items():
        if took.digest != counted[sqlite].digest:
            sys.exit(f"{place}: counts differ from those of {sqlite}")
        export_cpu = f"{exported[place].cpu:.1f}" if place in exported else ""
        yield (
            f"{reports:,}",
            place.partition(":")[0],
            f"{took.cpu:.1f}",
            f"{reports / took.cpu / 1e6:.1f}",
            f"{took.seconds:.1f}",
            f"{took.memory:.0f}",
            export_cpu,
        )


def main() -> None:
    """Compare all places at each number of reports."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.places", description=__doc__)
    parser.add_argument("--reports", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--count", metavar="PLACE", help=argparse.SUPPRESS)
    parser.add_argument("--export", nargs=2, metavar=("STORE", "DIR"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.count or given.export:
        digest = count(given.count) if given.count else ""
        if given.export:
            asyncio.run(export(*given.export))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"memory": memory, "digest": digest}))
        return
    rows: list[tuple[str, ...]] = []
    with postgresql(**_SERVER) as server:
        for reports in given.reports:
            with tempfile.TemporaryDirectory() as folder, server.new_database() as database:
                rows += compare(reports, Path(folder), database)
    headings = ("reports", "in", "CPU s", "M/CPU-s", "seconds", "MB", "export, CPU s")
    print(MeasuredTable("Counted where they lie; counts are equal", headings, tuple(rows)).text())


if __name__ == "__main__":
    main()
