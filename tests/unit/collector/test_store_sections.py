"""Sections of a day's ids in PostgreSQL: ids go to the last one, and are known from all of them."""

import asyncio
import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa

from databases import PostgresqlServer
from hubbub.storage import NewBatch, Store, open_store
from hubbub.storage.errors import StoreError
from hubbub.storage.id_tables import (
    closing_trigger,
    id_section,
    id_table,
    parse_id_table,
    parse_names,
    sorted_section,
)
from hubbub.storage.maintenance import Maintenance
from hubbub.storage.postgresql import batch_ids as postgresql_module
from hubbub.storage.postgresql.segments import SHARE_DAYS
from unit.collector.appends import (
    FINDS_SUSPECTS,
    STORES_IDS,
    explaining_appends,
    listening,
    listening_to_appends,
)
from unit.collector.batches import HOMEPAGE, make_new_batch, two_stores
from unit.collector.event_loop import in_event_loop

_DAY = dt.date(2026, 3, 14)
_TOMORROW = _DAY + dt.timedelta(days=1)
_FULL = 150
"""Batches that fill the smallest section of these tests: its second page is begun."""


@pytest.fixture(autouse=True)
def _small_sections(monkeypatch):
    monkeypatch.setattr(postgresql_module, "SECTION_BYTES", 2 * 8192)


def _batches(number: int) -> list[NewBatch]:
    return [make_new_batch([each]) for each in range(number)]


@in_event_loop
async def test_full_section_is_closed_and_its_ids_are_known(postgresql, postgresql_url):
    """To old and new collectors, before its filter was made, after that, and once it is loaded."""
    batches = _batches(3 * _FULL)
    async with two_stores(postgresql_url) as (store, other):
        for start in range(0, len(batches), _FULL):
            some = batches[start : start + _FULL]
            assert await other.append(some, _DAY) == [True] * _FULL
            # None of the day itself, which isn't over, but of the section that is closed.
            assert await store.ids.filter_closed(_DAY)
            assert not await store.ids.filter_closed(_DAY)
            for each in (store, other, store):
                known = await each.append([*batches[: start + _FULL], make_new_batch()], _DAY)
                assert known == [False] * (start + _FULL) + [True]
                await each.ids.filters.load()
        assert _sections(postgresql, postgresql_url) == [0, 1, 2, 3]
        new = make_new_batch()
        assert await _searched(store, new, _DAY) == []
        assert await _searched(other, make_new_batch(), _TOMORROW) == ["batch_ids_20260314_3_pkey"]
        assert await other.append([*batches, new], _TOMORROW) == [False] * len([*batches, new])
        assert await other.ids.has(batches[0].batch_id)


@in_event_loop
async def test_section_without_a_filter_is_searched(postgresql, postgresql_url):
    batches = _batches(2 * _FULL)
    async with open_store(postgresql_url, create=True) as store:
        await _fill_sections(store, batches)
        postgresql.execute("DELETE FROM id_filters", url=postgresql_url)
        async with open_store(postgresql_url, create=True) as other:
            searched = await _searched(other, make_new_batch(), _DAY)
            assert searched == ["batch_ids_20260314_0_pkey", "batch_ids_20260314_1_pkey"]
            assert await other.append(batches, _DAY) == [False] * len(batches)


@in_event_loop
async def test_day_that_is_over_gets_one_filter_and_is_forgotten_whole(postgresql, postgresql_url):
    batches = _batches(3 * _FULL)
    async with open_store(postgresql_url, create=True) as store:
        await _fill_sections(store, batches)
        assert await store.append([make_new_batch()], _TOMORROW) == [True]
        assert await store.ids.filter_closed(_TOMORROW)
        assert not await store.ids.filter_closed(_TOMORROW)
        count = "SELECT count(DISTINCT digest) FROM id_filters"
        assert postgresql.execute(count, url=postgresql_url) == "1"
        await store.ids.filters.load()
        assert await _searched(store, make_new_batch(), _TOMORROW) == []
        assert await store.append(batches, _TOMORROW) == [False] * len(batches)
        # A clock that is behind.
        assert await store.append([*batches, make_new_batch()], _DAY) == [False] * 450 + [True]
        done = await Maintenance(store, 1, None, 0).run_once(_TOMORROW + dt.timedelta(days=1))
        assert (done.forgotten, done.faults) == (1, {})
        assert await store.append(batches[:9], _TOMORROW) == [True] * 9
        left = "SELECT count(*) FROM pg_class WHERE relname ~ '^batch_ids_20260314'"
        assert postgresql.execute(left, url=postgresql_url) == "0"


@in_event_loop
async def test_ids_of_a_day_that_is_over_lie_in_their_own_order(postgresql, postgresql_url):
    """In one section, marked with one transaction, though no batch has come since."""
    batches = _batches(3 * _FULL)
    rows = "SELECT encode(batch_id, 'hex'), xmin, tableoid::regclass FROM batch_ids ORDER BY ctid"
    async with open_store(postgresql_url, create=True) as store:
        await _fill_sections(store, batches)
        assert await store.ids.filter_closed(_TOMORROW)
    found = [row.split("|") for row in postgresql.execute(rows, url=postgresql_url).split()]
    assert [bytes.fromhex(row[0]) for row in found] == sorted(it.batch_id for it in batches)
    assert {row[2] for row in found} == {"batch_ids_20260314_sorted"}
    assert len({row[1] for row in found}) == 1


@in_event_loop
async def test_sections_stay_while_somebody_relies_on_those_without_a_filter(
    postgresql, postgresql_url
):
    """Who has read their names looks for an id in them, and in no section that is made since."""
    held = make_new_batch()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    dropping: list[asyncio.Task[bool]] = []

    async def drop(_connection: object, sql: str, _values: object):
        if STORES_IDS in sql and not dropping:
            dropping.append(asyncio.create_task(other.ids.filter_closed(_TOMORROW)))
            while postgresql.execute(waiting) != "1":
                await asyncio.sleep(0.01)

    async with two_stores(postgresql_url) as (one, other):
        await _fill_sections(one, _batches(2 * _FULL))
        await one.append([held], _DAY)
        await one.ids.filters.load()
        await one.append([make_new_batch()], _TOMORROW)
        with listening_to_appends(before=drop):
            assert await one.append([held, make_new_batch()], _TOMORROW) == [False, True]
        assert await dropping[0]
        assert await one.append([held, make_new_batch()], _TOMORROW) == [False, True]


@pytest.mark.long
@in_event_loop
async def test_batches_that_come_while_sections_begin_count_once(postgresql, postgresql_url):
    """The same ones to two collectors, both of which do the upkeep; and some on the next day."""
    rounds = 12

    async def send(store: Store, batches: list[NewBatch], day: dt.date) -> int:
        known = [await store.append(batches[i : i + 30], day) for i in range(0, len(batches), 30)]
        return sum(map(sum, known))

    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        for number in range(rounds):
            batches = _batches(_FULL)
            day = _TOMORROW if number % 4 == 3 else _DAY
            *new, _, _ = await asyncio.gather(
                send(one, batches, _DAY),
                send(other, batches[::-1], day),
                send(one, batches, day),
                one.ids.filter_closed(_DAY),
                other.ids.filter_closed(_DAY),
            )
            assert sum(new) == _FULL
        assert await one.count(HOMEPAGE) == rounds * _FULL + 3
    assert len(_sections(postgresql, postgresql_url)) > 4


@in_event_loop
async def test_section_is_closed_only_when_all_transactions_are_done(
    postgresql, postgresql_url, monkeypatch
):
    """One that has inserted an id, which can't be read before its commit."""
    held = make_new_batch()
    # Closing waits for half a second, and this for a quarter and whatever a busy machine adds.
    monkeypatch.setattr(
        postgresql_module, "WAIT_BRIEFLY", sa.text("SET LOCAL lock_timeout = '60s'")
    )
    async with two_stores(postgresql_url) as (one, other):
        await one.append(_batches(_FULL), _DAY)
        collector = await asyncpg.connect(postgresql_url)
        await collector.execute(f"BEGIN; {SHARE_DAYS}")
        await collector.execute("INSERT INTO batch_ids VALUES ($1, $2, 0)", held.batch_id, _DAY)
        closing = asyncio.create_task(other.ids.filter_closed(_DAY))
        done, _ = await asyncio.wait([closing], timeout=0.25)
        assert not done
        await collector.execute("COMMIT")
        await collector.close()
        assert await closing
        assert _sections(postgresql, postgresql_url) == [0, 1]
        await one.ids.filters.load()
        assert await one.append([held, make_new_batch()], _DAY) == [False, True]


@in_event_loop
async def test_section_is_not_begun_while_a_transaction_takes_long(postgresql, postgresql_url):
    """It is told, those who insert wait for as long and no longer, and the next run begins it."""
    async with open_store(postgresql_url, create=True) as store:
        await store.append(_batches(_FULL), _DAY)
        other = await asyncpg.connect(postgresql_url)
        await other.execute("BEGIN; LOCK TABLE batch_ids_20260314_0 IN ROW EXCLUSIVE MODE")
        done = await Maintenance(store, 14, None, 0).run_once(_DAY)
        assert done.faults == {"filter": "store: canceling statement due to lock timeout"}
        assert await store.append([make_new_batch()], _DAY) == [True]
        await other.close()
        assert (await Maintenance(store, 14, None, 0).run_once(_DAY)).faults == {}
    assert _sections(postgresql, postgresql_url) == [0, 1]


@pytest.mark.long
@in_event_loop
async def test_beginning_a_section_may_be_cut_off_at_any_statement(postgresql, postgresql_url):
    batches = _batches(_FULL)
    statements = cut_at = 0

    def cut_off(*_: object):
        nonlocal statements
        statements += 1
        if statements == cut_at:
            raise OSError("cut off")

    async with two_stores(postgresql_url) as (store, other):
        await store.append(batches, _DAY)
        while True:
            cut_at += 1
            statements = 0
            with listening("before_cursor_execute", cut_off):
                try:
                    await store.ids.filter_closed(_DAY)
                except StoreError:
                    pass
                else:
                    break
            assert cut_at < 100
            await other.ids.filters.load()
            new = make_new_batch()
            assert await other.append([*batches, new], _DAY) == [False] * _FULL + [True]
            assert await other.append([new], _DAY) == [False]
        assert cut_at > 10
        assert _sections(postgresql, postgresql_url) == [0, 1]
        assert not await store.ids.filter_closed(_DAY)


@in_event_loop
async def test_later_sections_are_larger(postgresql, postgresql_url, monkeypatch):
    monkeypatch.setattr(postgresql_module, "SECTIONS_OF_A_SIZE", 2)
    async with open_store(postgresql_url, create=True) as store:
        begun = []
        for _ in range(12):
            await store.append(_batches(_FULL), _DAY)
            await store.ids.filter_closed(_DAY)
            begun.append(_sections(postgresql, postgresql_url)[-1])
    assert begun == [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4]


@in_event_loop
async def test_size_includes_sections(postgresql_url):
    async with open_store(postgresql_url, create=True) as store:
        empty = await store.database.size_bytes()
        await store.append([NewBatch(batch.batch_id, {}) for batch in _batches(3000)], _DAY)
        assert await store.database.size_bytes() - empty > 3000 * 50


def test_sections_are_told_from_days():
    day, *sections = id_table(_DAY), id_section(_DAY, 7), sorted_section(_DAY)
    assert [it.name for it in sections] == ["batch_ids_20260314_7", "batch_ids_20260314_sorted"]
    assert [it.holds(_DAY) for it in (day, *sections)] == [True, False, False]
    for table in (day, *sections):
        assert parse_id_table(table.name) == table
        assert parse_names([closing_trigger(table)]).closed == {table}


@in_event_loop
async def test_suspect_is_looked_for_in_its_own_section_alone(postgresql_url):
    """In a plan that has others, they would all be locked: some hundreds with large days."""
    batches = _batches(3 * _FULL)
    plans: list[list[str]] = []

    async def look(connection: asyncpg.Connection, sql: str, values: Any):
        if FINDS_SUSPECTS in sql and not re.search("EXPLAIN|INSERT", sql):
            plan = [row[0] for row in await connection.fetch(f"EXPLAIN {sql}", *values)]
            plans.append(re.findall(r"using (batch_ids_\w+_pkey)", "\n".join(plan)))

    async with open_store(postgresql_url, create=True) as store:
        await _fill_sections(store, batches)
        await store.ids.filters.load()
        with listening_to_appends(before=look):
            assert await store.append([batches[_FULL]], _DAY) == [False]
    assert ["batch_ids_20260314_1_pkey"] in plans
    assert all(len(keys) == 1 for keys in plans)


@in_event_loop
async def test_transactions_read_the_triggers_of_days_and_of_no_section_of_those_with_filters(
    postgresql, postgresql_url
):
    """Whatever the planner knows of the catalogue, which has many others here."""
    async with open_store(postgresql_url, create=True) as store:
        for day in (_DAY, _TOMORROW):
            for _ in range(3):
                await store.append(_batches(_FULL), day)
                await store.ids.filter_closed(day)
        while await store.ids.filter_closed(_TOMORROW):
            pass
    postgresql.execute(
        "CREATE TABLE other (id int)",
        "DO $$BEGIN FOR each IN 1..3000 LOOP EXECUTE format('CREATE TRIGGER t%s BEFORE INSERT "
        "ON other FOR EACH ROW EXECUTE FUNCTION refuse_batch_ids()', each); END LOOP; END$$",
        url=postgresql_url,
    )
    connection = await asyncpg.connect(postgresql_url)
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_sys_tables WHERE relid = $1::oid"
    of_triggers = await connection.fetchval("SELECT 'pg_trigger'::regclass::oid")
    for catalogue in ("pg_class", "pg_trigger", "pg_inherits"):
        async with connection.transaction():
            before = await connection.fetchval(read, of_triggers)
            row = await connection.fetchrow(postgresql_module._DAYS_THERE)
            assert len(row["triggers"]) == 8
            assert await connection.fetchval(read, of_triggers) - before == len(row["triggers"])
        await connection.execute(f"ANALYZE {catalogue}")
    await connection.close()


@in_event_loop
async def test_dump_is_restored_by_several_at_once(postgresql, postgresql_url, tmp_path):
    """Which may make triggers on a day before its sections are loaded, so these have their own."""
    batches = _batches(3 * _FULL)
    async with open_store(postgresql_url, create=True) as store:
        await _fill_sections(store, batches)
        await store.append([make_new_batch()], _TOMORROW)
        assert await store.ids.filter_closed(_TOMORROW)
    clones = "SELECT count(*) FROM pg_trigger WHERE tgparentid <> 0"
    assert postgresql.execute(clones, url=postgresql_url) == "0"
    dump = tmp_path / "dump"
    with postgresql.new_database() as url:
        postgresql.run("pg_dump", "--format=custom", f"--file={dump}", postgresql_url)
        postgresql.run("pg_restore", "--jobs=2", f"--dbname={url}", dump)
        async with open_store(url, create=True) as store:
            for _ in range(2):
                assert await store.append(batches, _TOMORROW) == [False] * len(batches)
                await store.ids.filters.load()
            assert await store.append([*batches, make_new_batch()], _DAY) == [False] * 450 + [True]


@in_event_loop
async def test_closed_day_refuses_ids_in_all_sections(postgresql_url):
    async with open_store(postgresql_url, create=True) as store:
        await store.append(_batches(_FULL), _DAY)
        await store.ids.filter_closed(_DAY)
        await store.append([make_new_batch()], _TOMORROW)
        assert await store.ids.filter_closed(_TOMORROW)
    connection = await asyncpg.connect(postgresql_url)
    for section, fault in ((0, "no partition"), (1, "no partition"), (-1, "takes no more ids")):
        with pytest.raises(asyncpg.PostgresError, match=fault):
            await connection.execute("INSERT INTO batch_ids VALUES ('1', $1, $2)", _DAY, section)
    await connection.close()


async def _fill_sections(store: Store, batches: list[NewBatch]) -> None:
    """Append as many as fill a section, let the upkeep begin the next one, and so on."""
    for start in range(0, len(batches), _FULL):
        await store.append(batches[start : start + _FULL], _DAY)
        await store.ids.filter_closed(_DAY)


def _sections(server: PostgresqlServer, url: str, day: dt.date = _DAY) -> list[int]:
    query = f"SELECT relid FROM pg_partition_tree('{id_table(day).name}') WHERE isleaf"  # noqa: S608
    return sorted(int(name.rsplit("_", 1)[1]) for name in server.execute(query, url=url).split())


async def _searched(store: Store, batch: NewBatch, day: dt.date) -> list[str]:
    """Append a new batch, and return the keys in which it was looked for."""
    found: list[str] = []

    def note(plan: Iterable[str]) -> None:
        found.extend(re.findall(r"using (batch_ids_\w+_pkey)", "\n".join(plan)))

    with explaining_appends(note):
        assert await store.append([batch], day) == [True]
    return sorted(found)
