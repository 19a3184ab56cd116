"""`python -m evaluation.fortnight`: weeks of a service, in minutes, under a clock that runs fast.

A real collector takes batches at a steady rate, merges, mixes, counts, forgets and drops them day
after day. Once the longest of its times has passed, what it holds must be level: the ids of
batches, the reports, the days of counts, the disk and the memory. Fails if any of these is larger
in the second half of the days after that than in the first, by their medians and beyond some slack.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg
from rich.table import Table

from databases import running_postgresql
from evaluation.soak.generator import generate
from factories import registry_toml
from hubbub.decoder.formats.terminal import stdout_console
from hubbub.simulations.experiments.processes import Collector, running_collector
from hubbub.storage import open_store
from service.faults import resident_bytes

_DAY = 86_400.0
_REPORTS = 10
_CONNECTIONS = 4
_UPKEEP_SECONDS = 0.2
_SLACK = {"ids": 1.5, "reports": 1.5, "counted_days": 1.5, "disk": 1.5, "memory": 1.05}
"""Without upkeep all but memory would grow by more; a log that will be emptied is disk, too.

Holes in the heap of the C library were 6% in seven weeks (`hubbub.storage.postgresql.driver`).
"""


class Plan(NamedTuple):
    """What to run.

    Attributes
    ----------
    days : int
        Of the fast clock.
    day_seconds : float
        How long a day takes.
    rate : float
        Batches a second of the machine's clock.
    deduplication, report, retention : int
        The service's times, in days.
    """

    store: str
    days: int
    day_seconds: float
    rate: float
    deduplication: int
    report: int
    retention: int


class Holding(NamedTuple):
    """What a service holds at the end of a day.

    Attributes
    ----------
    ids : int
        Batches that it would recognise.
    reports : int
        Single ones.
    counted_days : int
        Days of which only counts are kept.
    disk, memory : int
        Bytes.
    """

    ids: int
    reports: int
    counted_days: int
    disk: int
    memory: int


def main(arguments: list[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.fortnight", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--days", type=int, default=49)
    parser.add_argument("--day-seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=100.0, help="batches a second")
    parser.add_argument("--deduplication-days", type=int, default=14)
    parser.add_argument("--report-days", type=int, default=15)
    parser.add_argument("--retention-days", type=int, default=21)
    given = parser.parse_args(arguments)
    plan = Plan(
        given.store,
        given.days,
        given.day_seconds,
        given.rate,
        given.deduplication_days,
        given.report_days,
        given.retention_days,
    )
    held = run(plan)
    table = Table("day", *Holding._fields)
    for number, holding in enumerate(held, start=1):
        table.add_row(str(number), *(f"{value:,}" for value in holding))
    stdout_console().print(table)
    faults = list(faults_of(held, plan))
    for fault in faults:
        print(f"FAULT: {fault}")
    return int(bool(faults))


def run(plan: Plan) -> list[Holding]:
    """Let a collector serve for so many days; return what it held at the end of each."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubbub-fortnight-")))
        (folder / "metrics.toml").write_text(registry_toml(), encoding="utf-8")
        store = f"sqlite:///{folder}/hubbub.db"
        if plan.store == "postgresql":
            server = stack.enter_context(running_postgresql())
            store = stack.enter_context(server.new_database())
        collector = stack.enter_context(_fast_collector(folder / "metrics.toml", store, plan))
        return asyncio.run(_observe(collector, store, plan))


def faults_of(held: list[Holding], plan: Plan) -> Iterator[str]:
    """Yield what grew after all times had passed."""
    settled = max(plan.deduplication, plan.report, plan.retention) + 2
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


def _fast_collector(registry: Path, store: str, plan: Plan) -> AbstractContextManager[Collector]:
    """Serve under a clock of which a day takes `day_seconds`."""
    clock = str(Path(__file__).with_name("fast_clock.py"))
    program = [clock, repr(time.time()), repr(_DAY / plan.day_seconds)]
    options = ["--deduplication-days", str(plan.deduplication), "--log-level", "warning"]
    options += ["--report-days", str(plan.report), "--retention-days", str(plan.retention)]
    options += ["--upkeep-seconds", str(_UPKEEP_SECONDS)]
    return running_collector(registry, store, options, program)


async def _observe(collector: Collector, store: str, plan: Plan) -> list[Holding]:
    """Load a collector, and look day by day at what it holds."""
    seconds = plan.days * plan.day_seconds
    load = asyncio.create_task(
        generate(collector.url, seconds, _CONNECTIONS, _REPORTS, plan.rate), name="load"
    )
    held = []
    begun = time.perf_counter()
    for day in range(1, plan.days + 1):
        await asyncio.sleep(max(0.0, begun + day * plan.day_seconds - time.perf_counter()))
        held.append(await _holding(collector, store))
    statuses = (await load)["statuses"]
    if set(statuses) != {"201"}:
        raise ValueError(f"answers: {dict(statuses)}; must all be 201")
    return held


async def _holding(collector: Collector, url: str) -> Holding:
    async with open_store(url, create=False) as store:
        overview = await store.overview()
        disk = await store.database.size_bytes()
    return Holding(
        ids=await _ids(url),
        reports=sum(count.reports for count in overview if count.segments),
        counted_days=sum(1 for count in overview if not count.segments),
        disk=disk,
        memory=resident_bytes(collector.process.pid),
    )


async def _ids(url: str) -> int:
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval("SELECT count(*) FROM batch_ids"))
        finally:
            await connection.close()
    return await asyncio.to_thread(_sqlite_ids, url.removeprefix("sqlite:///"))


def _sqlite_ids(path: str) -> int:
    with closing(sqlite3.connect(path, timeout=10)) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'batch_ids_2*'"
        )
        counts = (database.execute(f"SELECT count(*) FROM {name}") for (name,) in tables.fetchall())  # noqa: S608
        return sum(int(count.fetchone()[0]) for count in counts)


if __name__ == "__main__":
    sys.exit(main())
