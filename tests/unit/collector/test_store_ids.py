"""Batch ids by day: known on every day in force, counted once over midnight, forgotten by day."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from hubbub.storage import Maintenance, Store, StoreError, id_table, open_store, sqlite
from unit.collector.appends import STORES_IDS, listening_to_appends
from unit.collector.batches import HOMEPAGE, make_new_batch, two_stores
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_DAY = dt.date(2026, 3, 14)
_TOMORROW = _DAY + dt.timedelta(days=1)
_TABLES = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'batch_ids'::regclass"


def _later(days: int) -> dt.date:
    return _DAY + dt.timedelta(days=days)


@in_event_loop
async def test_batch_is_known_on_whatever_day_it_came(any_store_url):
    """Also on days before: clocks differ, and may be set back."""
    batches = [make_new_batch([number]) for number in range(20)]
    async with open_store(any_store_url, create=True) as store:
        for number, batch in enumerate(batches):
            assert await store.append([batch], _later(number)) == [True]
        for day in (_later(-1), _DAY, _later(10), _later(19), _later(40)):
            assert await store.append(batches, day) == [False] * 20
        assert await store.count(HOMEPAGE) == 20


@in_event_loop
async def test_group_of_known_and_new_batches_of_several_days(any_store_url):
    """More than one statement takes."""
    batches = [make_new_batch([number]) for number in range(1300)]
    async with open_store(any_store_url, create=True) as store:
        for number in range(3):
            await store.append(batches[number::4], _later(number))
        assert await store.append(batches, _later(3)) == [False, False, False, True] * 325
        assert await store.count(HOMEPAGE) == 1300


@in_event_loop
async def test_first_batches_of_a_day_come_from_many_at_once(any_store_url):
    """Neither waits for the other to make the day's table, or makes it again."""

    async def start(store: Store, day: dt.date):
        await asyncio.gather(
            store.append(batches, day),
            store.append([make_new_batch()], day),
            store.database.prepare(day),
        )

    async with two_stores(any_store_url) as (one, other):
        for number in range(6):
            batches = [make_new_batch()]
            await asyncio.gather(start(one, _later(number)), start(other, _later(number)))
        assert await one.count(HOMEPAGE) == 6 * 9


@in_event_loop
async def test_batch_that_two_collectors_get_on_different_days_counts_once(any_store_url):
    """As at midnight, or with clocks that are apart."""
    async with two_stores(any_store_url) as (one, other):
        for _ in range(40):
            batch = make_new_batch()
            answers = await asyncio.gather(
                one.append([batch], _DAY),
                other.append([batch], _TOMORROW),
                one.append([batch], _later(-5)),
            )
            assert sorted(answers) == [[False], [False], [True]]
        assert await one.count(HOMEPAGE) == 40 * 3


@in_event_loop
async def test_batch_sent_again_after_midnight_waits_for_its_first_transaction(postgresql_url):
    """The first is held before its commit: what it inserted can't be seen yet."""
    batch = make_new_batch()
    again: list[asyncio.Task[list[bool]]] = []

    async def send_again(_connection: asyncpg.Connection, sql: str, _values: Any):
        if STORES_IDS in sql and not again:
            again.append(asyncio.create_task(other.append([batch], _TOMORROW)))
            done, _waiting = await asyncio.wait(again, timeout=0.3)
            assert not done

    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        await other.database.prepare(_TOMORROW)
        with listening_to_appends(after=send_again):
            assert await one.append([batch], _DAY) == [True]
        assert await again[0] == [False]


@in_event_loop
async def test_a_day_is_begun_again_after_its_first_process_died(postgresql, postgresql_url):
    """The connection ends after the partition was made and before anything is in it."""
    batch = make_new_batch()
    cut: list[str] = []

    async def cut_off(connection: asyncpg.Connection, statement: str, _values: Any):
        if STORES_IDS in statement and not cut:
            cut.append(statement)
            process = await connection.fetchval("SELECT pg_backend_pid()")
            postgresql.execute(f"SELECT pg_terminate_backend({process}, 5000)")

    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        with listening_to_appends(before=cut_off), pytest.raises(StoreError):
            await one.append([batch], _TOMORROW)
        assert cut
        assert postgresql.execute(_TABLES, url=postgresql_url) == "batch_ids_20260314"
        assert await other.append([batch], _TOMORROW) == [True]
        assert await one.append([batch], _TOMORROW) == [False]


@in_event_loop
async def test_transactions_of_the_same_day_run_concurrently(postgresql_url):
    begun: list[asyncio.Task[list[bool]]] = []
    finished: list[list[bool]] = []

    async def commit_another(_connection: asyncpg.Connection, sql: str, _values: Any):
        if STORES_IDS in sql and not begun:
            begun.append(asyncio.create_task(other.append([make_new_batch()], _DAY)))
            finished.append(await begun[0])

    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        with listening_to_appends(after=commit_another):
            assert await one.append([make_new_batch()], _DAY) == [True]
    assert finished == [[True]]


@in_event_loop
async def test_upkeep_makes_the_table_of_the_next_day(postgresql, postgresql_url):
    async with open_store(postgresql_url, create=True) as store:
        upkeep = Maintenance(store, 14, None, 1e9)
        await asyncio.gather(*[upkeep.run_once(_DAY) for _ in range(4)])
        assert postgresql.execute(_TABLES, url=postgresql_url) == "batch_ids_20260315"
        assert await store.append([make_new_batch()], _TOMORROW) == [True]


@in_event_loop
async def test_long_reader_delays_forgetting_but_neither_ingest_nor_merging(postgresql_url):
    """As pg_dump does, it keeps a lock on every table; at midnight, too."""
    async with open_store(postgresql_url, create=True) as store:
        upkeep = Maintenance(store, 14, None, 1e9)
        await store.append([make_new_batch()], _later(-20))
        await store.append([make_new_batch()], _DAY)
        async with _connection(postgresql_url) as reader:
            await reader.exec_driver_sql("SELECT count(*) FROM batch_ids, segments, open_day")
            await store.append([make_new_batch()], _DAY)
            upkeeping = asyncio.create_task(upkeep.run_once(_DAY))
            while not upkeeping.done():
                assert await store.append([make_new_batch()], _DAY) == [True]
            done = await upkeeping
            assert done.faults.keys() == {"forget", "mix", "sort"}
            assert "could not obtain lock on relation" in done.faults["forget"]
            assert done.faults["mix"] == "store: canceling statement due to lock timeout"
            assert done.merged >= 2
            assert await store.append([make_new_batch()], _TOMORROW) == [True]
            assert await store.append([make_new_batch()], _later(2)) == [True]
        done = await upkeep.run_once(_DAY)
        assert (done.forgotten, done.faults) == (1, {})


@in_event_loop
async def test_unused_tables_of_a_clock_that_was_ahead_are_removed(postgresql, postgresql_url):
    def tables() -> set[str]:
        names = postgresql.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '[0-9]{8}$'",
            url=postgresql_url,
        )
        return set(names.split())

    of_tomorrow = {f"{prefix}_{_TOMORROW:%Y%m%d}" for prefix in ("batch_ids", "segments")}
    async with open_store(postgresql_url, create=True) as store:
        upkeep = Maintenance(store, 14, None, 1e9)
        for day in (_DAY, _later(3650), _later(3000)):
            await upkeep.run_once(day)
        batch = make_new_batch()
        await store.append([batch], _later(3001))
        assert (await upkeep.run_once(_DAY)).faults == {}
        used = {f"{prefix}_{_later(3001):%Y%m%d}" for prefix in ("batch_ids", "segments")}
        assert tables() == of_tomorrow | used
        assert await store.append([make_new_batch(), batch], _DAY) == [True, False]
        assert await store.append([make_new_batch(), batch], _later(3001)) == [True, False]


@in_event_loop
async def test_upkeeps_that_drop_the_ids_of_the_same_day_do_not_wait_for_each_other(
    postgresql, postgresql_url
):
    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        for _ in range(5):
            await one.database.prepare(_later(9))
            await asyncio.gather(one.database.drop_empty(_DAY), other.database.drop_empty(_DAY))
            assert postgresql.execute(_TABLES, url=postgresql_url) == id_table(_DAY).name
        await asyncio.gather(one.database.forget(_TOMORROW), other.database.forget(_TOMORROW))
        assert postgresql.execute(_TABLES, url=postgresql_url) == ""


@in_event_loop
async def test_very_many_days_are_searched(sqlite_url, monkeypatch):
    monkeypatch.setattr(sqlite, "_TABLES_A_STATEMENT", 7)
    batches = [make_new_batch([number]) for number in range(30)]
    async with open_store(sqlite_url, create=True) as store:
        for number, batch in enumerate(batches):
            await store.append([batch], _later(number))
        assert await store.append([*batches, make_new_batch()], _later(30)) == [False] * 30 + [True]


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()
