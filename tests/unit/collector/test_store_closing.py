"""Batch ids of days that are over: closed, sorted, and counted once whoever sends them when."""

import asyncio
import contextlib
import datetime as dt
import random

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from hubbub.storage import (
    Maintenance,
    NewBatch,
    Store,
    StoreError,
    open_store,
    sqlite as sqlite_module,
)
from unit.collector.appends import listening
from unit.collector.batches import HOMEPAGE, make_new_batch, stored_segments, two_stores
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_DAY = dt.date(2026, 3, 14)


def _later(days: int) -> dt.date:
    return _DAY + dt.timedelta(days=days)


def _batches(number: int) -> list[NewBatch]:
    return [make_new_batch([each]) for each in range(number)]


@pytest.mark.parametrize("seed", range(3))
@in_event_loop
async def test_every_batch_counts_once_despite_clocks_upkeep_and_other_collectors(
    any_store_url, seed
):
    """Two collectors with clocks that differ and go back, the same batches, and upkeep in between.

    A batch may be new again only if the day under which it was first sent was forgotten.
    """
    chance = random.Random(seed)  # noqa: S311
    sent: dict[bytes, dt.date] = {}
    new, forgotten = 0, _later(-99)
    async with two_stores(any_store_url) as stores:

        async def send(store: Store, group: list[NewBatch], received: dt.date) -> None:
            nonlocal new
            for _ in range(3):
                await asyncio.sleep(chance.random() / 100)
                known = await store.append(group, _DAY, received)
                for batch, is_new in zip(group, known, strict=True):
                    if is_new:
                        assert batch.batch_id not in sent or sent[batch.batch_id] < forgotten
                        sent[batch.batch_id] = received
                        new += 1

        async def keep_up(store: Store, today: dt.date) -> None:
            with contextlib.suppress(StoreError):  # another is at the same table
                await store.database.prepare(today + dt.timedelta(days=1))
                await store.reshuffle(today)
                await store.database.sort_closed(today)

        pool: list[NewBatch] = []
        for number in range(8):
            pool += _batches(30)
            today = _later(number)
            work = [keep_up(store, today) for store in stores]
            for _ in range(6):
                group = chance.sample(pool, min(len(pool), 40))
                received = today + dt.timedelta(days=chance.choice([-2, -1, 0, 0, 0, 0, 1]))
                work.append(send(chance.choice(stores), group, received))
            await asyncio.gather(*work)
            forgotten = today - dt.timedelta(days=3)
            await stores[0].database.forget(forgotten)
        found = [number for segment in await stored_segments(stores[1]) for number in segment]
    assert len(found) == new >= len(sent) > 200


@in_event_loop
async def test_ids_of_a_day_that_is_over_lie_in_their_own_order(postgresql, postgresql_url):
    """In one table, marked with one transaction, though no batch has come since."""
    batches = _batches(400)
    rows = "SELECT encode(batch_id, 'hex'), xmin, tableoid::regclass FROM batch_ids ORDER BY ctid"
    async with open_store(postgresql_url, create=True) as store:
        for batch in batches:
            await store.append([batch], _DAY)
        await store.database.sort_closed(_later(1))
    found = [row.split("|") for row in postgresql.execute(rows, url=postgresql_url).split()]
    assert [bytes.fromhex(row[0]) for row in found] == sorted(it.batch_id for it in batches)
    assert {row[2] for row in found} == {"batch_ids_20260314_sorted"}
    assert len({row[1] for row in found}) == 1


@in_event_loop
async def test_all_days_that_are_over_are_closed_and_no_other(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        for age in range(4):
            await store.append([make_new_batch()], _later(age))
        assert (await Maintenance(store, 14, None, 0).run_once(_later(2))).faults == {}
        tables = [
            it for it in await store.database.day_tables() if it.holds_ids and it.day <= _later(3)
        ]
        assert sorted((it.day, it.is_sorted) for it in tables) == [
            (_later(age), age < 2) for age in range(4)
        ]


@in_event_loop
async def test_batches_under_a_clock_that_is_behind_are_kept_with_those_of_the_next_open_day(
    any_store_url,
):
    """Known once, at once and until that day is forgotten; their reports keep their own day."""
    late = _batches(20)
    async with open_store(any_store_url, create=True) as store:
        for age in range(5):
            await store.append([make_new_batch()], _later(age))
        await store.database.sort_closed(_later(4))
        assert await store.append(late, _later(1)) == [True] * 20
        assert await store.append(late, _later(1)) == [False] * 20
        assert await store.append(late, _later(5)) == [False] * 20
        days = [count.day for count in await store.overview() if count.reports > 3]
        assert days == [_later(1)]
        assert await store.database.forget(_later(4)) == 4
        assert await store.append(late, _later(5)) == [False] * 20
        assert await store.database.forget(_later(5)) == 1
        assert await store.append(late, _later(5)) == [True] * 20


@in_event_loop
async def test_closing_waits_for_a_transaction_that_inserts_into_the_day(postgresql_url):
    """Held before its commit, when its id can't be read yet."""
    batch = make_new_batch()
    closing: list[asyncio.Task[None]] = []

    def close(connection: sa.Connection):
        found = "SELECT 1 FROM batch_ids WHERE batch_id = $1"
        if not closing and connection.exec_driver_sql(found, (batch.batch_id,)).all():
            closing.append(asyncio.create_task(other.database.sort_closed(_later(2))))
            done, _ = await_only(asyncio.wait(closing, timeout=0.25))
            assert not done

    async with two_stores(postgresql_url) as (one, other):
        for age in (0, 3):
            await one.append([make_new_batch()], _later(age))
        with listening("commit", close):
            assert await one.append([batch], _DAY) == [True]
        await closing[0]
        assert await other.append([batch], _later(3)) == [False]
        assert await other.append([batch], _DAY) == [False]


@in_event_loop
async def test_sorting_may_be_cut_off_at_any_statement(any_store_url, monkeypatch):
    """What was begun is completed by the next, and all batches are known in between."""
    monkeypatch.setattr(sqlite_module, "_IDS_COPIED", 16)
    batches = _batches(40)
    statements = cut_at = 0

    def cut_off(*_: object):
        nonlocal statements
        statements += 1
        if statements == cut_at:
            raise OSError("cut off")

    async def sort(store: Store) -> bool:
        nonlocal statements
        statements = 0
        with listening("before_cursor_execute", cut_off):
            try:
                await store.database.sort_closed(_later(1))
            except StoreError:
                return False
        return True

    async with two_stores(any_store_url) as (store, other):
        for age in (0, 1, 4):
            await store.append(batches if age == 0 else [make_new_batch()], _later(age))
        while cut_at == 0 or not await sort(store):
            cut_at += 1
            assert cut_at < 100
            new = make_new_batch()
            assert await other.append([*batches, new], _later(4)) == [False] * 40 + [True]
            assert await other.append([new], _DAY) == [False]
        assert cut_at > 5
        assert await other.append(batches, _later(4)) == [False] * 40
        tables = await store.database.day_tables()
        assert [it.is_sorted for it in tables if it.holds_ids and it.day == _DAY] == [True]


@pytest.mark.parametrize("moment", ["INSERT INTO batch_ids_20260316_sorted", "DROP TABLE"])
@in_event_loop
async def test_ingest_and_forgetting_go_on_while_ids_are_sorted(postgresql_url, moment):
    """Another collector then leaves sorting to the first; only dropping waits."""
    begun: list[asyncio.Task[None]] = []

    async def use():
        for day in (3, 4, 1):
            assert await other.append([make_new_batch()], _later(day)) == [True]
        assert await other.database.forget(_later(1)) == 1
        await other.database.prepare(_later(5))
        await other.database.sort_closed(_later(3))

    def use_meanwhile(_connection: object, _cursor: object, statement: str, *_: object):
        if statement.startswith(moment) and not begun:
            begun.append(asyncio.create_task(use()))
            if moment != "DROP TABLE":
                await_only(begun[0])

    async with two_stores(postgresql_url) as (one, other):
        for number in range(4):
            await one.append([make_new_batch()], _later(number))
        with listening("before_cursor_execute", use_meanwhile):
            await one.database.sort_closed(_later(3))
        await begun[0]
        assert await one.count(HOMEPAGE) == 7 * 3


@in_event_loop
async def test_dump_is_restored_by_several_at_once(postgresql, postgresql_url, tmp_path):
    batches = _batches(300)
    async with open_store(postgresql_url, create=True) as store:
        await store.append(batches, _DAY)
        await store.append([make_new_batch()], _later(1))
        await store.database.sort_closed(_later(1))
    dump = tmp_path / "dump"
    with postgresql.new_database() as url:
        postgresql.run("pg_dump", "--format=custom", f"--file={dump}", postgresql_url)
        postgresql.run("pg_restore", "--jobs=2", f"--dbname={url}", dump)
        async with open_store(url, create=True) as store:
            assert await store.append(batches, _later(1)) == [False] * 300
            assert await store.append([*batches, make_new_batch()], _DAY) == [False] * 300 + [True]
