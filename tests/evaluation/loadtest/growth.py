"""Ingest and upkeep with many batch ids, against those with few.

Two stores of one kind are filled with ids of all days in force, the one with a million, the other
with as many as asked for, and get the filters that the upkeep would have made meanwhile; then both
take batches in turns, and are maintained. What a batch costs depends on how large the key is that
ids go to: in SQLite that of today, in PostgreSQL that of today's last section, which is logged page
by page when a page first changes after a checkpoint; there is none while it is measured. It fails
if a loaded id isn't recognised.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import secrets
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import asyncpg
import numpy as np

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
from hubbub.protocol.records import Records
from hubbub.storage import MetricVersion, NewBatch, Store, open_store
from hubbub.storage.id_tables import IdTable, id_section, id_table
from hubbub.storage.maintenance import Maintenance
from hubbub.storage.postgresql.batch_ids import SECTIONS_OF_A_SIZE
from service.faults import cpu_seconds

_ID_BYTES, _RECORD_BYTES = 16, 18
_SECTION_IDS = 1_250_000  # fill a small one
_BATCHES, _GROUPS = 64, 100
_SLOWLY = 20  # requests a second
_ADD_KEY = "ALTER TABLE {} ADD PRIMARY KEY (batch_id) WITH (fillfactor = 70)"
_KEY = MetricVersion("homepage", 1)
_EPOCH = dt.date(2000, 1, 1)  # of PostgreSQL's days
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
_COPIED = np.dtype(
    [
        ("fields", ">i2"),
        ("id_bytes", ">i4"),
        ("id", "V16"),
        ("day_bytes", ">i4"),
        ("day", ">i4"),
        ("section_bytes", ">i4"),
        ("section", ">i2"),
    ]
)
"""A row in the binary format of COPY."""


class Filled(NamedTuple):
    """A store, with so many ids of each day."""

    ids: int
    url: str
    store: Store
    fill_seconds: float
    filter_seconds: float
    load_seconds: float
    bytes_an_id: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, measure and print."""
    options = parser("growth", __doc__, "postgresql")
    options.add_argument("--ids", type=int, default=10_000_000)
    options.add_argument("--few", type=int, default=1_000_000, help="what --ids is compared with")
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
        "filtering a closed day": [f"{it.filter_seconds:.2f} s" for it in (few, many)],
        "loading all filters": [f"{it.load_seconds:.2f} s" for it in (few, many)],
        "filling": [f"{it.fill_seconds:.0f} s" for it in (few, many)],
    }
    cells: list[tuple[str, ...]] = [row.cells() for row in rows]
    cells += [(what, *amounts, "") for what, amounts in once.items()]
    headings = ("", f"{few.ids:,} ids", f"{many.ids:,} ids", "ratio")
    show(f"{few.store.database.dialect}, {days} days in force", headings, cells)


@asynccontextmanager
async def _filled(url: str, ids: int, days: int, today: dt.date) -> AsyncIterator[Filled]:
    """Fill a new store with an equal number of ids for each of the last days."""
    load = _fill_sections if url.startswith("postgresql") else _insert
    begun = time.perf_counter()
    async with open_store(url, create=True) as store:
        empty = await store.database.size_bytes()
        some: list[bytes] = []
        filter_seconds = 0.0
        for age in reversed(range(days)):
            day = today - dt.timedelta(days=age)
            # Its first batch makes the day's table.
            await store.append([NewBatch(secrets.token_bytes(_ID_BYTES), {})], day)
            filter_begun = time.perf_counter()
            if await store.ids.filter_closed(day):
                filter_seconds = time.perf_counter() - filter_begun
            some += await load(store, url, day, ids // days)
        await _settle(url)
        seconds = time.perf_counter() - begun
        for _ in range(2):  # before the filters are loaded, and with them
            known = await store.append([NewBatch(batch_id, {}) for batch_id in some], today)
            if any(known):
                sys.exit(f"{sum(known)} of {len(some)} loaded ids weren't recognised")
            await store.ids.filters.load()
        load_seconds = await _load_filters(url)
        size = await store.database.size_bytes()
        bytes_an_id = (size - empty) / ids
        yield Filled(ids, url, store, seconds, filter_seconds, load_seconds, bytes_an_id)


async def _load_filters(url: str) -> float:
    """Load all filters as a collector does that has just started; return the seconds."""
    async with open_store(url, create=True) as store:
        begun = time.perf_counter()
        await store.ids.filters.load()
        return time.perf_counter() - begun


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


async def _fill_sections(store: Store, url: str, day: dt.date, ids: int) -> list[bytes]:
    """Copy ids, and do what the upkeep does whenever a section is full; return a few ids."""
    some: list[bytes] = []
    while ids > 0:
        section = await _last_section(url, day)
        number = min(ids, _SECTION_IDS << section // SECTIONS_OF_A_SIZE)
        some += await _fill_section(url, id_section(day, section), number)
        await store.ids.filter_closed(day)
        ids -= number
    return some


async def _last_section(url: str, day: dt.date) -> int:
    connection = await asyncpg.connect(url)
    query = "SELECT count(*) - 1 FROM pg_inherits WHERE inhparent = $1::text::regclass"
    number = await connection.fetchval(query, id_table(day).name)
    await connection.close()
    return int(number)


async def _fill_section(url: str, section: IdTable, ids: int) -> list[bytes]:
    """Copy ids, then make the key again, as full as one that grew; return a few ids."""
    name = section.name
    await _run_postgresql(url, f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey")
    some = await _copy(url, section, ids)
    await _run_postgresql(url, _ADD_KEY.format(name))
    return some


async def _copy(url: str, section: IdTable, ids: int) -> list[bytes]:
    """Load random ids into a section without a key by COPY; return a few of them."""
    columns = ["batch_id", "day", "section"]
    rows = np.zeros(ids, _COPIED)
    rows["fields"] = len(columns)
    rows["id_bytes"], rows["day_bytes"], rows["section_bytes"] = _ID_BYTES, 4, 2
    rows["id"] = np.frombuffer(secrets.token_bytes(_ID_BYTES * ids), "V16")
    rows["day"], rows["section"] = (section.day - _EPOCH).days, section.section
    stream = b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"
    connection = await asyncpg.connect(url)
    await connection.copy_to_table(
        section.name,
        source=io.BytesIO(stream),
        columns=columns,
        format="binary",
    )
    await connection.close()
    return [bytes(row["id"]) for row in rows[:: max(1, ids // 10)]]


async def _insert(_store: Store, url: str, day: dt.date, ids: int) -> list[bytes]:
    """Insert random ids into a day's table in the order in which they come; return a few."""
    drawn = _drawn(ids)
    _insert_rows(url, f"INSERT INTO {id_table(day).name} VALUES (?)", zip(drawn))  # noqa: S608
    return drawn[:: max(1, ids // 10)]


def _drawn(ids: int) -> list[bytes]:
    drawn = secrets.token_bytes(_ID_BYTES * ids)
    return [drawn[i : i + _ID_BYTES] for i in range(0, len(drawn), _ID_BYTES)]


def _insert_rows(url: str, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA cache_size=-1500000")
        connection.executemany(statement, rows)


async def _settle(url: str) -> None:
    """Let the database do now what it would do while it is measured."""
    if url.startswith("postgresql"):
        await _run_postgresql(url, "VACUUM (ANALYZE) batch_ids")
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
        for service in (of_few, of_many):
            # It loads its filters after the first.
            await service.take(Load(max(1.0, seconds), _SLOWLY, 1))
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
    """Forget the day that is now the oldest; return the seconds."""
    begun = time.perf_counter()
    if await store.ids.forget(today - dt.timedelta(days=days - 2)) != 1:
        sys.exit("not one day was forgotten")
    return time.perf_counter() - begun
