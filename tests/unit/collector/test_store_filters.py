"""Closed days: they take no more ids, and filters answer for those they have, or else they do."""

import asyncio
import contextlib
import datetime as dt
import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.util import await_only

from hubbub.collector.config.settings import Settings
from hubbub.collector.serving import service
from hubbub.storage import NewBatch, Store, filters, open_store
from hubbub.storage import sqlite as sqlite_module
from hubbub.storage.bloom import WORD_BYTES
from hubbub.storage.errors import StoreError
from hubbub.storage.id_tables import (
    Catalogue,
    closing_trigger,
    filter_trigger,
    id_table,
    parse_names,
)
from hubbub.storage.maintenance import Maintenance
from hubbub.storage.postgresql import batch_ids as postgresql_module
from hubbub.storage.postgresql import sessions
from hubbub.storage.postgresql.driver import MAKE_ARRIVED
from unit.collector.appends import (
    FINDS_SUSPECTS,
    STORES_IDS,
    explaining_appends,
    listening,
    listening_to_appends,
)
from unit.collector.batches import HOMEPAGE, make_new_batch, two_stores
from unit.collector.event_loop import in_event_loop
from unit.collector.serving import serving_from

pytestmark = pytest.mark.long_on_postgresql

_DAY = dt.date(2026, 3, 14)
_TODAY = dt.date(2026, 3, 19)
_SECONDS = 30.0
_KEY = r"batch_ids_202603(\d\d)_(?:0|sorted)_pkey"


def _later(days: int) -> dt.date:
    return _DAY + dt.timedelta(days=days)


def _batches(number: int) -> list[NewBatch]:
    return [make_new_batch([each]) for each in range(number)]


@in_event_loop
async def test_batches_of_closed_days_are_known_to_old_and_new_collectors(any_store_url):
    """Before and after the filters were made, and loaded; new batches are taken in between."""
    batches = _batches(60)
    async with open_store(any_store_url, create=True) as before:
        for age in range(6):
            assert all(await before.append(batches[age::6], _later(age)))
        assert await _filter_all(before) == 5
        async with open_store(any_store_url, create=True) as after:
            for store in (before, after):
                assert await store.append([*batches, make_new_batch()], _TODAY) == _all_but_last(60)
            for store in (before, after):
                await store.ids.filters.load()
                assert await store.append([*batches, make_new_batch()], _TODAY) == _all_but_last(60)
                assert await store.append(_batches(1500), _TODAY) == [True] * 1500
            assert all([await after.ids.has(batch.batch_id) for batch in batches])
        assert await before.count(HOMEPAGE) == 60 + 4 * 3 + 3000


@in_event_loop
async def test_filters_are_loaded_by_themselves_and_then_closed_days_are_not_searched(
    any_store_url,
):
    """Of new ones too, and by another collector than the one whose upkeep made them."""
    async with open_store(any_store_url, create=True) as store:
        for age in range(6):
            await store.append([make_new_batch()], _later(age))
        searched = await _days_searched(store, any_store_url)
        assert searched == [14, 15, 16, 17, 18, 19]
        async with open_store(any_store_url, create=True) as other:
            assert await other.ids.filter_closed(_later(3))
            await _until_left_out(store, any_store_url, {16})
            await _filter_all(other)
            await _until_left_out(store, any_store_url, {14, 15, 16, 17})


@pytest.mark.parametrize(("seconds", "searched"), [(30, [17]), (0, [14, 15, 16, 17])])
@in_event_loop
async def test_collector_has_its_filters_before_it_listens_unless_that_takes_too_long(
    any_store_url, metrics_file, monkeypatch, seconds, searched
):
    monkeypatch.setattr(service, "_FILTER_SECONDS", seconds)
    settings = Settings(metrics=metrics_file, store=any_store_url)
    async with open_store(any_store_url, create=True) as store:
        for age in range(4):
            await store.append([make_new_batch()], _later(age))
        assert await _filter_all(store, today=_later(3)) == 3
    async with open_store(any_store_url, create=True) as store, serving_from(store, settings):
        assert await _days_searched(store, any_store_url, _later(3)) == searched
        await _until_left_out(store, any_store_url, {14, 15, 16}, _later(3))


@in_event_loop
async def test_days_whose_filters_have_no_room_are_searched(any_store_url, caplog):
    """The oldest, for of what is sent again most is young; a new filter makes itself room."""
    room = 2 * WORD_BYTES + 1  # a filter of one id is a word
    batches = _batches(6)
    async with open_store(any_store_url, create=True) as store:
        for age, batch in enumerate(batches):
            await store.append([batch], _later(age))
        assert await _filter_all(store) == 5
        await store.ids.filters.load(room)
        assert await _days_searched(store, any_store_url) == [14, 15, 16, 19]
        assert await store.append([*batches, make_new_batch()], _TODAY) == _all_but_last(6)
        assert await _filter_all(store, today=_later(6)) == 1
        await _until_left_out(store, any_store_url, {18, 19}, _later(6))
        assert await _days_searched(store, any_store_url, _later(6)) == [14, 15, 16, 17, 20]
        assert await store.append([*batches, make_new_batch()], _later(6)) == _all_but_last(6)
        await store.ids.filters.load(0)
        assert await _days_searched(store, any_store_url, _later(6)) == list(range(14, 21))
    assert [message for message in caplog.messages if "max_filter_bytes" in message] == [
        f"{unfit} of {all_} filters of batch ids don't fit into max_filter_bytes = {room}, so that "
        "their days are searched"
        for unfit, all_ in ((3, 5), (4, 6))
    ]


@in_event_loop
async def test_the_few_suspects_are_looked_for_on_closed_days_alone(any_store_url):
    """Of 3,400 new ones about 14 are suspected of each day."""
    batches = _batches(8000)
    async with open_store(any_store_url, create=True) as store:
        for age in range(4):
            await store.append(batches[age::4], _later(age))
        await _filter_all(store, today=_later(5))
        await store.ids.filters.load()
        new = _batches(3400)
        assert (
            await store.append([*new, *batches[::50]], _later(5)) == [True] * 3400 + [False] * 160
        )
        assert await store.append(new, _later(5)) == [False] * 3400


@in_event_loop
async def test_closed_day_takes_no_ids_from_whoever_would_insert_them(any_store_url):
    """Such as a collector that read before the day was closed that it was open."""
    async with open_store(any_store_url, create=True) as store:
        for age in range(3):
            await store.append([make_new_batch()], _later(age))
        assert await store.ids.filter_closed(_later(2))
        with pytest.raises(sa.exc.DBAPIError, match=r"takes no more ids|no partition"):
            await _insert(any_store_url, secrets.token_bytes(16), _later(1))
        await _insert(any_store_url, secrets.token_bytes(16), _later(0))


@in_event_loop
async def test_batches_under_a_clock_that_is_behind_are_kept_with_those_of_the_next_open_day(
    any_store_url,
):
    """Known once, at once and until that day is forgotten; their reports keep their own day."""
    late = _batches(20)
    async with open_store(any_store_url, create=True) as store:
        for age in range(5):
            await store.append([make_new_batch()], _later(age))
        await _filter_all(store, today=_later(4))
        await store.ids.filters.load()
        assert await store.append(late, _later(1)) == [True] * 20
        assert await store.append(late, _later(1)) == [False] * 20
        assert await store.append(late, _TODAY) == [False] * 20
        days = [count.day for count in await store.overview() if count.reports > 3]
        assert days == [_later(1)]
        assert await store.ids.forget(_later(4)) == 4
        assert await store.append(late, _TODAY) == [False] * 20
        assert await store.ids.forget(_later(5)) == 1
        assert await store.append(late, _TODAY) == [True] * 20


@in_event_loop
async def test_closing_waits_for_a_transaction_that_inserts_into_the_day(postgresql_url):
    """Held before its commit, when its id can't be read yet."""
    batch = make_new_batch()
    closing: list[asyncio.Task[bool]] = []

    def close(connection: sa.Connection):
        found = "SELECT day FROM batch_ids WHERE batch_id = $1"
        if not closing and connection.exec_driver_sql(found, (batch.batch_id,)).all():
            closing.append(asyncio.create_task(other.ids.filter_closed(_later(2))))
            done, _ = await_only(asyncio.wait(closing, timeout=0.25))
            assert not done

    async with two_stores(postgresql_url) as (one, other):
        for age in (0, 3):
            await one.append([make_new_batch()], _later(age))
        with listening("commit", close):
            assert await one.append([batch], _DAY) == [True]
        assert await closing[0]
        await other.ids.filters.load()
        assert await other.append([batch], _later(3)) == [False]


@in_event_loop
async def test_day_that_was_forgotten_and_begun_again_is_not_answered_for_by_its_old_filter(
    any_store_url,
):
    """Dropped by somebody who knows nothing of filters."""
    batch = make_new_batch()
    async with open_store(any_store_url, create=True) as store:
        for age in (0, 3):
            await store.append([make_new_batch()], _later(age))
        await _filter_all(store, today=_later(3))
        await store.ids.filters.load()
        assert 14 not in await _days_searched(store, any_store_url, _later(3))
        await _execute(any_store_url, f"DROP TABLE {id_table(_DAY).name}")
        async with open_store(any_store_url, create=True) as other:
            assert await other.append([batch], _DAY) == [True]
        assert await store.append([batch], _later(3)) == [False]
        await _filter_all(store)
        assert await store.append([batch], _later(3)) == [False]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE id_filters SET words = (SELECT words FROM id_filters WHERE part = 1)",
        "DELETE FROM id_filters WHERE part = 0",
        "DELETE FROM id_filters WHERE part = (SELECT max(part) FROM id_filters)",
        "UPDATE id_filters SET words = substr(words, 1, 9) WHERE part = 1",
        "DELETE FROM id_filters",
    ],
)
@in_event_loop
async def test_damaged_filter_is_told_of_and_its_day_searched(
    any_store_url, damage, monkeypatch, caplog
):
    monkeypatch.setattr(filters, "PART_BYTES", 64)
    batches = _batches(100)
    async with open_store(any_store_url, create=True) as store:
        await store.append(batches, _DAY)
        await store.append([make_new_batch()], _later(3))
        await _filter_all(store, today=_later(3))
        await _execute(any_store_url, damage)
        with caplog.at_level(logging.WARNING, logger="hubbub.collector"):
            for _ in range(2):
                await store.ids.filters.load()
                assert await store.append(batches, _later(3)) == [False] * 100
    assert caplog.messages == ["a filter of batch ids is damaged, so their day is searched"]


@in_event_loop
async def test_filters_that_can_not_be_read_are_told_of_and_read_later(
    any_store_url, monkeypatch, caplog
):
    monkeypatch.setattr(filters, "_RETRY_SECONDS", 0.2)
    batch = make_new_batch()
    async with open_store(any_store_url, create=True) as store:
        await store.append([batch], _DAY)
        await store.append([make_new_batch()], _later(3))
        await _filter_all(store, today=_later(3))
        await _execute(any_store_url, "ALTER TABLE id_filters RENAME TO elsewhere")
        with caplog.at_level(logging.WARNING, logger="hubbub.collector"):
            for _ in range(3):
                await store.ids.filters.load()
                assert await store.append([batch], _later(3)) == [False]
        (message,) = set(caplog.messages)
        assert message.startswith("could not load a filter of batch ids and will try again: store:")
        assert (await Maintenance(store, 14, None, 0).run_once(_TODAY)).faults["filter"]
        await _execute(any_store_url, "ALTER TABLE elsewhere RENAME TO id_filters")
        await _until_left_out(store, any_store_url, {14})


@in_event_loop
async def test_making_a_filter_may_be_cut_off_at_any_statement(any_store_url, monkeypatch):
    """What was begun is completed by the next, and all batches are known in between."""
    monkeypatch.setattr(filters, "PART_BYTES", 64)
    monkeypatch.setattr(sqlite_module, "_IDS_READ", 16)
    batches = _batches(80)
    statements = 0
    cut_at = 0

    def cut_off(*_: object):
        nonlocal statements
        statements += 1
        if statements == cut_at:
            raise OSError("cut off")

    async with two_stores(any_store_url) as (store, other):
        for age in (0, 1, 4):
            await store.append(batches[:40] if age == 0 else [make_new_batch()], _later(age))
        while True:
            cut_at += 1
            statements = 0
            with listening("before_cursor_execute", cut_off):
                try:
                    # None is left to be made if the last statement was cut off, a heartbeat.
                    await store.ids.filter_closed(_later(1))
                except StoreError:
                    pass
                else:
                    break
            assert cut_at < 100
            await other.ids.filters.load()
            new = make_new_batch()
            assert await other.append([*batches[:40], new], _later(4)) == _all_but_last(40)
            assert await other.append([new], _later(4)) == [False]
        assert cut_at > 10
        await other.ids.filters.load()
        assert await other.append(batches[:40], _later(4)) == [False] * 40
        assert await _days_searched(other, any_store_url, _later(4)) == [15, 18]


@in_event_loop
async def test_filter_that_another_process_completes_meanwhile_is_not_made_again(
    sqlite_url, caplog
):
    """Nor deleted, as when `maintain` runs beside a service."""
    made: list[asyncio.Task[bool]] = []

    def complete(_connection: object, _cursor: object, statement: str, *_: object):
        if "SELECT DISTINCT id_filters.digest" in statement and not made:
            made.append(asyncio.create_task(other.ids.filter_closed(_later(1))))
            await_only(made[0])

    async with two_stores(sqlite_url) as (store, other):
        await store.append(_batches(10), _DAY)
        with listening("before_cursor_execute", complete):
            assert not await store.ids.filter_closed(_later(1))
        assert made[0].result()
        await store.ids.filters.load()
        assert await _days_searched(store, sqlite_url) == [_TODAY.day]
    assert caplog.messages == []


@in_event_loop
async def test_filters_of_days_that_were_forgotten_are_deleted(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        for age in range(6):
            await store.append([make_new_batch()], _later(age))
        await _filter_all(store)
        assert await _stored_filters(any_store_url) == 5
        upkeep = Maintenance(store, 3, None, 0)
        done = await upkeep.run_once(_later(5))
        assert (done.forgotten, done.faults) == (2, {})
        assert await _stored_filters(any_store_url) == 3


@in_event_loop
async def test_batches_that_come_while_their_day_is_closed_and_sorted_count_once(any_store_url):
    """The same ones to two collectors on two days, whose upkeep closes the first meanwhile."""
    sent: list[NewBatch] = []

    async def send(store: Store, batches: list[NewBatch], day: dt.date) -> int:
        known = [await store.append(batches[i : i + 20], day) for i in range(0, len(batches), 20)]
        return sum(map(sum, known))

    async def maintain(store: Store, day: dt.date):
        for _ in range(3):
            with contextlib.suppress(StoreError):  # another has a lock
                await store.ids.filter_closed(day)

    async with two_stores(any_store_url) as (one, other):
        for number in range(5):
            day, following = _later(number), _later(number + 1)
            batches = _batches(120)
            sent += batches
            *new, _, _ = await asyncio.gather(
                send(one, batches, day),
                send(other, batches[::-1], day),
                send(one, batches, following),
                maintain(one, following),
                maintain(other, following),
            )
            assert sum(new) == 120
        assert await other.append(sent, _later(6)) == [False] * len(sent)
        assert await one.count(HOMEPAGE) == len(sent)


@in_event_loop
async def test_all_days_that_are_over_are_closed_and_no_other(any_store_url):
    """The one that was written last, too, though nothing has come since."""
    async with open_store(any_store_url, create=True) as store:
        for age in range(3):
            await store.append([make_new_batch()], _later(age))
        done = await Maintenance(store, 14, None, 0).run_once(_later(2))
        assert done.faults == {}
        await _until_left_out(store, any_store_url, {15}, _later(2))
        assert {14, 16} <= set(await _days_searched(store, any_store_url, _later(2)))
        await _filter_all(store, today=_later(9))
        new = make_new_batch()
        assert await store.append([new], _later(2)) == [True]
        assert await store.append([new], _later(2)) == [False]
        # A clock that is behind: it is kept with the ids of the next day.
        await store.ids.forget(_later(3))
        assert await store.append([new], _later(2)) == [False]


@in_event_loop
async def test_day_with_ids_that_are_none_gets_no_filter(any_store_url):
    """Read end to end, those after one that is too short would be others."""
    batches = _batches(20)
    async with open_store(any_store_url, create=True) as store:
        await store.append(batches, _DAY)
        await _insert(any_store_url, bytes(15), _DAY)
        await store.append([make_new_batch()], _later(3))
        faults = (await Maintenance(store, 14, None, 0).run_once(_later(3))).faults
        assert faults.keys() == {"filter"}
        assert re.fullmatch(r"batch_ids_20260314\w*: 1 ids don't have 16 bytes", faults["filter"])
        assert await store.append(batches, _later(3)) == [False] * 20


@in_event_loop
async def test_ingest_and_forgetting_wait_for_no_filter(postgresql_url):
    """While its ids are read; another collector then leaves making it to the first."""
    begun: list[asyncio.Task[None]] = []

    async def use():
        assert await other.append([make_new_batch()], _later(3)) == [True]
        assert await other.append([make_new_batch()], _later(4)) == [True]
        assert await other.append([make_new_batch()], _later(1)) == [True]
        assert await other.ids.forget(_later(1)) == 1
        await other.prepare_day(_later(5))
        assert not await other.ids.filter_closed(_later(3))

    def use_meanwhile(_connection: object, _cursor: object, statement: str, *_: object):
        if "string_agg" in statement and not begun:
            begun.append(asyncio.create_task(use()))
            await_only(begun[0])

    async with two_stores(postgresql_url) as (one, other):
        for number in range(4):
            await one.append([make_new_batch()], _later(number))
        with listening("before_cursor_execute", use_meanwhile):
            assert await one.ids.filter_closed(_later(2))
    assert begun


@in_event_loop
async def test_reader_of_all_days_delays_no_filter(postgresql, postgresql_url):
    """As pg_dump is, which holds a lock on every table; ids as they came stay until it is done."""
    left = "SELECT relid FROM pg_partition_tree('batch_ids_20260314') WHERE isleaf"
    async with open_store(postgresql_url, create=True) as store:
        for age in (0, 3):
            await store.append([make_new_batch()], _later(age))
        async with _connection(postgresql_url) as reader:
            await reader.exec_driver_sql("SELECT count(*) FROM batch_ids, id_filters")
            for _ in range(2):
                with pytest.raises(StoreError, match="lock timeout"):
                    await store.ids.filter_closed(_later(2))
            await _until_left_out(store, postgresql_url, {14}, _later(3))
            assert "batch_ids_20260314_0" in postgresql.execute(left, url=postgresql_url)
        assert not await store.ids.filter_closed(_later(2))
        assert postgresql.execute(left, url=postgresql_url) == "batch_ids_20260314_sorted"


@in_event_loop
async def test_loss_of_the_lock_is_told(postgresql, postgresql_url):
    """As when the server is restarted, or this process was frozen."""
    which = f"locktype = 'advisory' AND objid = {sessions.TASKS['filter']}"
    ending = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE {which}"  # noqa: S608
    ended: list[str] = []

    def end(_connection: object, _cursor: object, statement: str, *_: object):
        if "string_agg" in statement:
            ended.append(postgresql.execute(ending))

    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        await store.append([make_new_batch()], _later(3))
        with (
            listening("before_cursor_execute", end),
            pytest.raises(StoreError, match="store: lost its lock, which others may have"),
        ):
            await store.ids.filter_closed(_later(2))
    assert ended == ["t"]


@in_event_loop
async def test_table_that_is_rewritten_while_it_is_read_gets_no_filter_of_less(
    postgresql, postgresql_url, monkeypatch
):
    """VACUUM FULL moves rows from pages that aren't read yet to those that are."""
    monkeypatch.setattr(postgresql_module, "_PAGES_READ", 2)
    monkeypatch.setattr(postgresql_module, "SECTION_BYTES", 8192)
    rewritten: list[str] = []

    def rewrite(_connection: object, _cursor: object, statement: str, *_: object):
        if "string_agg" in statement:
            rewritten.append(statement)
            if len(rewritten) == 6:
                postgresql.execute("VACUUM FULL batch_ids_20260314_0", url=postgresql_url)

    batches = _batches(1000)
    async with open_store(postgresql_url, create=True) as store:
        # Transactions that were rolled back have left room before these ids.
        await store.append([make_new_batch()], _DAY)
        ids = "SELECT sha256(n::text::bytea), '2026-03-14' FROM generate_series(1, 2000) n"
        insert = f"INSERT INTO batch_ids {ids}"
        postgresql.execute(f"BEGIN; {insert}; ROLLBACK", url=postgresql_url)
        await store.append(batches, _DAY)
        with listening("before_cursor_execute", rewrite):
            with pytest.raises(StoreError, match="batch_ids_20260314_0: was rewritten while it"):
                await store.ids.filter_closed(_DAY)
            await store.ids.filters.load()
            assert await store.append(batches, _DAY) == [False] * 1000
            assert await store.ids.filter_closed(_DAY)
        await store.ids.filters.load()
        assert await store.append(batches, _DAY) == [False] * 1000


@in_event_loop
async def test_ids_are_searched_by_keys_and_closed_days_left_out_of_plans(
    postgresql, postgresql_url
):
    """Whether or not the planner knows the partitions."""
    statements: dict[str, str] = {}

    async def remember(_connection: object, sql: str, _values: object):
        for part in (STORES_IDS, FINDS_SUSPECTS):
            if part in sql:
                statements[part] = re.sub(r"\$\d", "'{}'", sql)

    async with open_store(postgresql_url, create=True) as store:
        known = make_new_batch()
        for number in range(5):
            some = [make_new_batch() for _ in range(1000)]
            await store.append([known, *some] if number == 0 else some, _later(number))
        await _filter_all(store, today=_later(3))
        await store.ids.filters.load()
        with listening_to_appends(before=remember):
            await store.append([known, make_new_batch()], _later(4))
    for _ in range(2):
        plans = {
            part: postgresql.execute(MAKE_ARRIVED, f"EXPLAIN {sql}", url=postgresql_url)
            for part, sql in statements.items()
        }
        of_new, of_suspects = plans[STORES_IDS], plans[FINDS_SUSPECTS]
        assert re.findall(rf"Index Scan using {_KEY}", of_new) == ["17"]
        assert len(re.findall(rf"Index Scan using {_KEY}", of_suspects)) == 1
        assert "Seq Scan on batch_ids" not in of_new + of_suspects
        postgresql.execute("VACUUM (ANALYZE) batch_ids", url=postgresql_url)


def test_names_tell_tables_and_what_became_of_them():
    one, other = id_table(_DAY), id_table(_later(1))
    digest = bytes(range(16))
    names = [one.name, other.name, closing_trigger(one), filter_trigger(one, digest)]
    names += [closing_trigger(other), f"{one.name}_of_mine", f"{one.name}_filter_00", "x"]
    found = parse_names(names)
    assert found == Catalogue((one, other), frozenset({one, other}), {one: digest})
    assert len(filter_trigger(one, digest)) < 64  # PostgreSQL would cut it off
    days = [_later(-1), _DAY, _later(1), _later(2)]
    assert [found.taking(day) for day in days] == [_later(-1), _later(2), _later(2), _later(2)]


async def _filter_all(store: Store, today: dt.date = _TODAY) -> int:
    """Do what the upkeep does until nothing is left; return how many filters were made."""
    made = 0
    while await store.ids.filter_closed(today):
        made += 1
    return made


def _all_but_last(known: int) -> list[bool]:
    return [False] * known + [True]


async def _days_searched(store: Store, url: str, day: dt.date = _TODAY) -> list[int]:
    """Append a new batch, and return in which days of March it was looked for."""
    seen: set[int] = set()

    def note(plan: Iterable[str]) -> None:
        keys = re.findall(_KEY, "\n".join(plan))
        seen.update(map(int, keys), [day.day])

    def look(_connection: object, _cursor: object, sql: str, *_: object) -> None:
        if "EXISTS" in sql:
            seen.update(map(int, re.findall(r"FROM batch_ids_202603(\d\d)", sql)))

    on_sqlite = url.startswith("sqlite")
    looking = listening("before_cursor_execute", look) if on_sqlite else explaining_appends(note)
    with looking:
        assert await store.append([make_new_batch()], day) == [True]
    return sorted(seen)


async def _until_left_out(store: Store, url: str, days: set[int], day: dt.date = _TODAY) -> None:
    async with asyncio.timeout(_SECONDS):
        while days & set(await _days_searched(store, url, day)):
            await asyncio.sleep(0.01)


async def _stored_filters(url: str) -> int:
    async with _connection(url) as connection:
        query = sa.text("SELECT count(DISTINCT digest) FROM id_filters")
        return int((await connection.execute(query)).scalar_one())


async def _insert(url: str, batch_id: bytes, day: dt.date) -> None:
    async with _connection(url) as connection:
        if url.startswith("sqlite"):
            statement = f"INSERT INTO {id_table(day).name} VALUES (?)"  # noqa: S608
            await connection.exec_driver_sql(statement, (batch_id,))
        else:
            statement = "INSERT INTO batch_ids VALUES ($1, $2)"
            await connection.exec_driver_sql(statement, (batch_id, day))


async def _execute(url: str, statement: str) -> None:
    async with _connection(url) as connection:
        await connection.exec_driver_sql(statement)


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[AsyncConnection]:
    """Connect as another program would, with one transaction."""
    driver = url.replace("postgresql:", "postgresql+asyncpg:")
    engine = create_async_engine(driver.replace("sqlite:", "sqlite+aiosqlite:"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@pytest.mark.long
@in_event_loop
async def test_ids_are_not_counted_on_a_standby(postgresql, postgresql_url):
    """It may be behind, and what is read there would make a filter that lacks ids."""
    standby = postgresql.data / "standby.signal"
    async with open_store(postgresql_url, create=True) as store:
        await store.append(_batches(3), _DAY)
        assert await store.ids.count(id_table(_DAY)) == (3, 0)
        postgresql.stop()
        standby.touch()
        try:
            postgresql.start()
            with pytest.raises(StoreError, match="a standby has answered"):
                await store.ids.count(id_table(_DAY))
        finally:
            postgresql.stop()
            standby.unlink()
            postgresql.start()
