"""The store in an SQLite file: several processes, full disks, and what is left on disk."""

import asyncio
import contextlib
import datetime as dt
import gc
import multiprocessing
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import aiosqlite
import pytest
import sqlalchemy as sa

from factories import make_metric
from hubbub.storage import StoreError, id_table, open_store, sqlite
from unit.collector.appends import listening
from unit.collector.batches import HOMEPAGE, make_new_batch, make_random_batch
from unit.collector.event_loop import in_event_loop
from unit.collector.openers import remember_barrier, start_and_store

_DAY = dt.date(2026, 3, 14)


@in_event_loop
async def test_group_that_fails_leaves_no_trace(store_url, database):
    known, batch = make_new_batch(), make_new_batch()
    async with open_store(store_url, create=True) as store:
        await store.append([known], _DAY)
        _execute(database, "ALTER TABLE segments RENAME TO elsewhere")
        with pytest.raises(StoreError, match=r"^store: no such table: segments$"):
            await store.append([known, batch], _DAY)
        _execute(database, "ALTER TABLE elsewhere RENAME TO segments")
        assert await store.append([known, batch], _DAY) == [False, True]
        assert await store.count(HOMEPAGE) == 6


@in_event_loop
async def test_full_database_refuses_and_recovers(store_url):
    large = [make_new_batch(range(60_000)) for _ in range(3)]
    async with open_store(store_url, create=True) as store:
        with _largest_database(pages=400):
            assert await store.append(large[:1], _DAY) == [True]
            with pytest.raises(StoreError, match="database or disk is full"):
                await store.append(large[1:], _DAY)
            assert await store.count(HOMEPAGE) == 60_000
        with _largest_database(pages=4000):
            assert await store.append(large, _DAY) == [False, True, True]
            assert await store.count(HOMEPAGE) == 180_000


@in_event_loop
async def test_locked_database_refuses_after_a_while_and_recovers(store_url, database, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    batch = make_new_batch()
    async with open_store(store_url, create=True) as store:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError, match="database is locked"):
                await store.append([batch], _DAY)
            other.execute("ROLLBACK")
        assert await store.append([batch], _DAY) == [True]
        assert await store.count(HOMEPAGE) == 3


@in_event_loop
async def test_writing_connections_use_a_journal_that_is_synced_at_each_commit(store_url):
    checked: list[tuple[str, int]] = []

    def check(connection: sa.Connection):
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        checked.append((journal, connection.exec_driver_sql("PRAGMA synchronous").scalar_one()))

    async with open_store(store_url, create=True) as store:
        with listening("commit", check):
            await store.append([make_new_batch()], _DAY)
    assert checked == [("wal", 2)]  # 2 is FULL: fsync at each commit


@pytest.mark.long
def test_collectors_may_make_and_open_one_store_at_the_same_time(tmp_path):
    """Six processes, let go together; each opens a new store in every round."""
    rounds, processes = 12, 6
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(processes, context, remember_barrier, (barrier,)) as pool:
        done = [pool.submit(start_and_store, tmp_path, rounds) for _ in range(processes)]
        assert [each.result() for each in done] == [rounds] * processes
    for number in range(rounds):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{number}.db")) as connection:
            query = f"SELECT count(*) FROM {id_table(_DAY).name}"  # noqa: S608
            assert connection.execute(query).fetchone() == (processes,)
            assert connection.execute("SELECT sum(reports) FROM segments").fetchone() == (
                3 * processes,
            )


@in_event_loop
async def test_file_that_another_is_just_making_is_waited_for(store_url, database):
    """To choose the journal's mode doesn't wait, in SQLite, for whoever writes."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(_open_and_append(store_url))
        finished, _ = await asyncio.wait([opening], timeout=0.3)
        assert not finished
        other.execute("COMMIT")
        assert await opening == [True]


@in_event_loop
async def test_reader_that_is_cancelled_keeps_no_log(store_url, database, monkeypatch):
    """Not even until garbage is collected, which may be long, or never if nothing happens."""
    executed = asyncio.Event()

    async def fetch_never(_cursor: object) -> None:
        executed.set()
        await asyncio.sleep(60)

    async with open_store(store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        gc.disable()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(aiosqlite.Cursor, "fetchall", fetch_never)
                reader = asyncio.create_task(store.count(HOMEPAGE))
                await executed.wait()
                reader.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reader
            await store.database.reclaim_space()
        finally:
            gc.enable()
        assert database.with_name(f"{database.name}-wal").stat().st_size == 0


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_file_that_is_no_database_is_refused(store_url, database, create):
    database.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match=r"hubbub\.db': file is not a database"):
        async with open_store(store_url, create=create):
            pass
    assert database.read_bytes() == b"no database " * 1000


@in_event_loop
async def test_database_of_something_else_is_explained(store_url, database):
    _execute(database, "CREATE TABLE recipes (dish TEXT)")
    with pytest.raises(StoreError, match=r"hubbub\.db': is no store of hubbub's"):
        async with open_store(store_url, create=False):
            pass
    # Whoever wants both in one file may have both.
    async with open_store(store_url, create=True) as store:
        assert await store.append([make_new_batch()], _DAY) == [True]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite://localhost/x",
        "sqlite:///:memory:",
        "sqlite:///x?y=z",
        "sqlite:///what?/hubbub.db",
    ],
)
@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_address_names_a_file_and_nothing_else(url, create):
    with pytest.raises(StoreError, match=r"must be sqlite:///(PATH|localhost/x)"):
        async with open_store(url, create=create):
            pass


@in_event_loop
async def test_log_does_not_grow(store_url, database):
    """Twelve MB without a pause; the log stays below half of it, and is gone in the end."""
    log = database.with_name("hubbub.db-wal")
    largest = 0
    async with open_store(store_url, create=True) as store:
        for _ in range(120):
            await store.append([make_random_batch(5000)], _DAY)
            largest = max(largest, log.stat().st_size)
        assert await store.count(HOMEPAGE) == 600_000
    assert largest < 6 * 2**20
    assert not log.exists()


@in_event_loop
async def test_commits_do_not_wait_for_a_reader_that_keeps_the_log(
    store_url, database, monkeypatch
):
    monkeypatch.setattr(sqlite, "LOG_BYTES", 16 * 4096)
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.5)
    async with open_store(store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT sum(reports) FROM segments").fetchone() == (3,)
            tidying = asyncio.create_task(store.database.reclaim_space())
            for _ in range(50):
                await store.append([make_random_batch(5000)], _DAY)
            await tidying
            assert reader.execute("SELECT sum(reports) FROM segments").fetchone() == (3,)
        assert await store.count(HOMEPAGE) == 250_003


@in_event_loop
async def test_two_writers_take_turns(store_url):
    """Neither is left behind: SQLite's own waiting would let one win nearly always."""

    async def write(mine: int, counts: list[int]):
        async with open_store(store_url, create=True) as store:
            while sum(counts) < 120:
                await store.append([make_new_batch()], _DAY)
                counts[mine] += 1

    counts = [0, 0]
    await asyncio.gather(write(0, counts), write(1, counts))
    assert min(counts) >= 10


@in_event_loop
async def test_readers_do_not_wait_for_a_writer(store_url, database):
    async with open_store(store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await store.count(HOMEPAGE) == 3
            await store.ping()
            other.execute("ROLLBACK")


async def _open_and_append(url: str) -> list[bool]:
    async with open_store(url, create=True) as store:
        await store.declare([make_metric()])
        return await store.append([make_new_batch()], _DAY)


def _execute(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)


@contextlib.contextmanager
def _largest_database(pages: int) -> Iterator[None]:
    def bound(connection: sqlite3.Connection, *_others: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    with listening("checkout", bound, sa.Pool):
        yield
