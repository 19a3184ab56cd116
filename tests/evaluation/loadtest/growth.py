"""Ingest and upkeep with many batch ids, against those with few.

Two stores of one kind are filled with ids of all days in force, the one with few, the other with as
many as asked for, and those of closed days are sorted as the upkeep does; then both take batches in
turns, and are maintained. It fails if a loaded id isn't recognised.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import asyncpg

from evaluation.loadtest.harness import (
    REPORTS,
    Compared,
    Load,
    Service,
    in_turns,
    new_stores,
    parser,
    serving,
    show,
)
from hubbub.protocol import Records
from hubbub.storage import (
    DayTable,
    Maintenance,
    MetricVersion,
    NewBatch,
    Store,
    id_table,
    open_store,
)
from service.faults import cpu_seconds

_ID_BYTES, _RECORD_BYTES = 16, 18
_BATCHES, _GROUPS = 64, 100
_KEY = MetricVersion("homepage", 1)
_SERVER = {
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "6GB",
    # Or the log of loading a hundred million ids would take as much disk as they do.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "20GB",
    "checkpoint_timeout": "1h",
    "maintenance_work_mem": "1GB",
}


class Filled(NamedTuple):
    """A store, with so many ids of each day."""

    ids: int
    url: str
    store: Store
    fill_seconds: float
    sort_seconds: float
    bytes_an_id: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, measure and print."""
    options = parser("growth", __doc__, "postgresql")
    options.add_argument("--ids", type=int, default=10_000_000)
    options.add_argument("--few", type=int, default=1_400, help="what --ids is compared with")
    options.add_argument("--days", type=int, default=14, help="in force, today included")
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--seconds", type=float, default=3.0, help="of a turn over HTTP")
    given = options.parse_args(arguments)
    if given.days < 2:
        sys.exit(f"--days {given.days}: must be 2 or more, as one is forgotten")
    with new_stores(given.store, 2, _SERVER) as urls:
        ids = dict(zip(urls, (given.few, given.ids), strict=True))
        asyncio.run(_compare(ids, given.days, given.turns, given.seconds))
    return 0


async def _compare(ids: Mapping[str, int], days: int, turns: int, seconds: float) -> None:
    today = dt.datetime.now(dt.UTC).date()

    async def forget(filled: Filled) -> dict[tuple[str, str], float]:
        return {("forgetting a day", "s"): await _forget(filled.store, days, today)}

    async def store(filled: Filled) -> dict[tuple[str, str], float]:
        return await _into_store(filled, today)

    async with AsyncExitStack() as stack:
        few, many = [
            await stack.enter_async_context(_filled(url, number, days, today))
            for url, number in ids.items()
        ]
        rows = await _over_http(few, many, turns, seconds)
        for filled in (few, many):
            await _maintain(filled.store, today)  # of what came over HTTP
        rows += await in_turns(turns, (few, many), store)
        rows += await in_turns(1, (few, many), forget)
    once = {
        "disk, an id": [f"{it.bytes_an_id:.0f} bytes" for it in (few, many)],
        "sorting a closed day": [f"{it.sort_seconds:.2f} s" for it in (few, many)],
        "filling": [f"{it.fill_seconds:.0f} s" for it in (few, many)],
    }
    cells: list[tuple[str, ...]] = [row.cells() for row in rows]
    cells += [(what, *amounts, "") for what, amounts in once.items()]
    headings = ("", f"{few.ids:,} ids", f"{many.ids:,} ids", "ratio")
    show(f"{few.store.database.dialect}, {days} days in force", headings, cells)


@asynccontextmanager
async def _filled(url: str, ids: int, days: int, today: dt.date) -> AsyncIterator[Filled]:
    """Fill a new store with an equal number of ids for each of the last days."""
    begun = time.perf_counter()
    async with open_store(url, create=True) as store:
        empty = await store.database.size_bytes()
        some: list[bytes] = []
        sort_seconds = 0.0
        for age in reversed(range(days)):
            day = today - dt.timedelta(days=age)
            sort_begun = time.perf_counter()
            await store.database.sort_closed(day)
            sort_seconds = time.perf_counter() - sort_begun
            # Its first batch makes the day's table.
            await store.append([NewBatch(secrets.token_bytes(_ID_BYTES), {})], day)
            some += await _fill(url, id_table(day), ids // days, is_open=age == 0)
        await _settle(url)
        seconds = time.perf_counter() - begun
        known = await store.append([NewBatch(batch_id, {}) for batch_id in some], today)
        if any(known):
            sys.exit(f"{sum(known)} of {len(some)} loaded ids weren't recognised")
        size = await store.database.size_bytes()
        yield Filled(ids, url, store, seconds, sort_seconds, (size - empty) / ids)


async def _run_postgresql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def _run_sqlite(url: str, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def _fill(url: str, table: DayTable, ids: int, *, is_open: bool) -> list[bytes]:
    """Insert random ids into a day's table, in the order in which they are drawn; return a few.

    In PostgreSQL without its key, which is made afterwards, as full as one that grew, of the open
    day: sorting makes another for those of others.
    """
    few = f"SELECT batch_id FROM {table.name} LIMIT 10"  # noqa: S608
    if url.startswith("postgresql"):
        drawn = f"SELECT uuid_send(gen_random_uuid()) FROM generate_series(1, {ids})"  # noqa: S608
        await _run_postgresql(
            url,
            f"ALTER TABLE {table.name} DROP CONSTRAINT {table.name}_pkey",
            f"INSERT INTO {table.name} {drawn}",
        )
        if is_open:
            key = "ADD PRIMARY KEY (batch_id) WITH (fillfactor = 70)"
            await _run_postgresql(url, f"ALTER TABLE {table.name} {key}")
        connection = await asyncpg.connect(url)
        rows = await connection.fetch(few)
        await connection.close()
        return [row["batch_id"] for row in rows]
    numbers = f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {ids})"  # noqa: S608
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA cache_size=-1500000")
        connection.execute(f"INSERT INTO {table.name} {numbers} SELECT randomblob(16) FROM n")  # noqa: S608
        connection.commit()
        return [row[0] for row in connection.execute(few)]


async def _settle(url: str) -> None:
    if url.startswith("postgresql"):
        await _run_postgresql(url, "VACUUM (ANALYZE)")
    else:
        await _run_sqlite(url, "PRAGMA wal_checkpoint(TRUNCATE)")


async def _over_http(few: Filled, many: Filled, turns: int, seconds: float) -> list[Compared]:
    """Post batches to a collector of each store in turns."""
    options = ["--upkeep-seconds", "86400", "--deduplication-days", "36500"]

    async def post(service: Service) -> dict[tuple[str, str], float]:
        cost = await service.take(Load(seconds))
        return {
            ("ingest", "requests/s"): cost.rate,
            ("processor time of the collector, a request", "µs"): cost.cpu,
        }

    with serving(few.url, options) as of_few, serving(many.url, options) as of_many:
        return await in_turns(turns, (of_few, of_many), post)


async def _into_store(filled: Filled, today: dt.date) -> dict[tuple[str, str], float]:
    """Append batches to a store, without HTTP, and merge them by the upkeep."""
    before = await _server_seconds(filled)
    rate = await _ingest(filled.store, today)
    spent = await _server_seconds(filled) - before
    found = {
        ("ingest without HTTP", "batches/s"): rate,
        (f"upkeep after {_GROUPS * _BATCHES:,} batches", "s"): await _maintain(filled.store, today),
    }
    if filled.url.startswith("postgresql"):
        what = "processor time of PostgreSQL, a batch"
        found[what, "µs"] = 1e6 * spent / (_GROUPS * _BATCHES)
    return found


async def _server_seconds(filled: Filled) -> float:
    """Return the processor time of PostgreSQL's processes that serve the store; 0 of SQLite."""
    if not filled.url.startswith("postgresql"):
        return 0.0
    connection = await asyncpg.connect(filled.url)
    rows = await connection.fetch(
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'hubbub'"
    )
    await connection.close()
    return sum(cpu_seconds(row["pid"]) for row in rows)


async def _ingest(store: Store, today: dt.date) -> float:
    """Store groups of batches, one after the other; return batches a second."""
    groups = [
        [
            NewBatch(
                secrets.token_bytes(_ID_BYTES),
                {_KEY: Records(_RECORD_BYTES, secrets.token_bytes(_RECORD_BYTES * REPORTS))},
            )
            for _ in range(_BATCHES)
        ]
        for _ in range(_GROUPS)
    ]
    begun = time.perf_counter()
    for group in groups:
        await store.append(group, today)
    return _GROUPS * _BATCHES / (time.perf_counter() - begun)


async def _maintain(store: Store, today: dt.date) -> float:
    """Run the upkeep, as it is run all day; return its seconds."""
    upkeep = Maintenance(store, 1000, None, seconds=0)
    begun = time.perf_counter()
    done = await upkeep.run_once(today)
    seconds = time.perf_counter() - begun
    if done.faults:
        sys.exit(f"the upkeep went wrong: {done}")
    return seconds


async def _forget(store: Store, days: int, today: dt.date) -> float:
    begun = time.perf_counter()
    if await store.database.forget(today - dt.timedelta(days=days - 2)) != 1:
        sys.exit("not one day was forgotten")
    return time.perf_counter() - begun
