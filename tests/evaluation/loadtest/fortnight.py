"""Weeks of a service, in minutes, under a clock that runs fast.

A real collector takes batches at a steady rate, merges, mixes, counts, forgets and drops them day
after day. Once the longest of its times has passed, what it holds must be level: the ids of
batches, the reports, the days of counts, the disk and the memory. Fails if any of these is larger
in the second half of the days after that than in the first, by their medians and beyond some slack.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg

from evaluation.loadtest.harness import Load, Service, judge, new_stores, parser, serving, show
from hubbub.storage import Store, open_store
from service.faults import resident_bytes

_DAY = 86_400.0
_CONNECTIONS = 4
_UPKEEP_SECONDS = 0.2
_SLACK = {"ids": 1.5, "reports": 1.5, "counted_days": 1.5, "disk": 1.5, "memory": 1.05}
"""Without upkeep all but memory would grow by more; a log that will be emptied is disk, too.

Holes in the heap of the C library were 6% in seven weeks (`hubbub.storage.postgresql.driver`).
"""


class Weeks(NamedTuple):
    """What to run."""

    store: str
    days: int  # of the fast clock
    day_seconds: float  # how long a day takes
    rate: float  # batches a second of the machine's clock
    deduplication: int  # the service's times, in days
    report: int
    retention: int


class Holding(NamedTuple):
    """What a service holds at the end of a day."""

    ids: int  # batches that it would recognise
    reports: int  # single ones
    counted_days: int  # days of which only counts are kept
    disk: int  # bytes
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    options = parser("fortnight", __doc__)
    options.add_argument("--days", type=int, default=49)
    options.add_argument("--day-seconds", type=float, default=5.0)
    options.add_argument("--rate", type=float, default=100.0, help="batches a second")
    options.add_argument("--deduplication-days", dest="deduplication", type=int, default=14)
    options.add_argument("--report-days", dest="report", type=int, default=15)
    options.add_argument("--retention-days", dest="retention", type=int, default=21)
    weeks = Weeks(**vars(options.parse_args(arguments)))
    held = run(weeks)
    rows = [(str(day), *(f"{each:,}" for each in holding)) for day, holding in enumerate(held, 1)]
    show(weeks.store, ("day", *Holding._fields), rows)
    return judge(list(faults_of(held, weeks)))


def run(weeks: Weeks) -> list[Holding]:
    """Let a collector serve for so many days; return what it held at the end of each."""
    clock = str(Path(__file__).with_name("fast_clock.py"))
    options = ["--deduplication-days", str(weeks.deduplication), "--log-level", "warning"]
    options += ["--report-days", str(weeks.report), "--retention-days", str(weeks.retention)]
    options += ["--upkeep-seconds", str(_UPKEEP_SECONDS)]
    with new_stores(weeks.store) as (store,):
        program = [clock, repr(time.time()), repr(_DAY / weeks.day_seconds)]
        with serving(store, options, program=program) as service:
            return asyncio.run(_observe(service, store, weeks))


def faults_of(held: list[Holding], weeks: Weeks) -> Iterator[str]:
    """Yield what grew after all times had passed."""
    settled = max(weeks.deduplication, weeks.report, weeks.retention) + 2
    if len(held) < 2 * settled:
        raise ValueError(f"{len(held)} days: must be at least {2 * settled} to see what is level")
    middle = len(held) - (len(held) - settled) // 2
    for name, slack in _SLACK.items():
        values = [getattr(holding, name) for holding in held]
        # What the upkeep copies in another order is on the disk twice, for a moment.
        typical = min if name == "disk" else median
        before, after = typical(values[settled:middle]), typical(values[middle:])
        if after > before * slack:
            yield f"{name}: {after:,.0f} in the last days; {before:,.0f} before"
        if not after:
            yield f"{name}: none, so that nothing was measured"


async def _observe(service: Service, store: str, weeks: Weeks) -> list[Holding]:
    """Load a service, and look day by day at what it holds."""
    load = Load(weeks.days * weeks.day_seconds, weeks.rate, _CONNECTIONS)
    loading = asyncio.create_task(service.take(load), name="load")
    held = []
    begun = time.perf_counter()
    for day in range(1, weeks.days + 1):
        await asyncio.sleep(max(0.0, begun + day * weeks.day_seconds - time.perf_counter()))
        held.append(await _holding(service, store))
    await loading
    return held


async def _holding(service: Service, url: str) -> Holding:
    async with open_store(url, create=False) as store:
        overview = await store.overview()
        disk = await _disk(store, url)
    return Holding(
        ids=await _ids(url),
        reports=sum(count.reports for count in overview if count.segments),
        counted_days=sum(1 for count in overview if not count.segments),
        disk=disk,
        memory=resident_bytes(*service.pids),
    )


async def _disk(store: Store, url: str) -> int:
    if url.startswith("postgresql"):
        return await store.database.size_bytes()
    return await asyncio.to_thread(_sqlite_bytes, url.removeprefix("sqlite:///"))


async def _ids(url: str) -> int:
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval("SELECT count(*) FROM batch_ids"))
        finally:
            await connection.close()
    return await asyncio.to_thread(_sqlite_ids, url.removeprefix("sqlite:///"))


def _sqlite_bytes(path: str) -> int:
    """Return the size of all pages, whether they are in the file or still in its log.

    How long the log is depends on who reads at the moment when SQLite would begin it anew.
    """
    with closing(sqlite3.connect(path, timeout=10)) as database:
        pages, size = (database.execute(f"PRAGMA {name}") for name in ("page_count", "page_size"))
        return int(pages.fetchone()[0]) * int(size.fetchone()[0])


def _sqlite_ids(path: str) -> int:
    with closing(sqlite3.connect(path, timeout=10)) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'batch_ids_2*'"
        )
        counts = (database.execute(f"SELECT count(*) FROM {name}") for (name,) in tables.fetchall())  # noqa: S608
        return sum(int(count.fetchone()[0]) for count in counts)
