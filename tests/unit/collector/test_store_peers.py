"""Two that use one PostgreSQL at once: neither waits for ever, fails, or misses a report."""

import asyncio
import contextlib
import datetime as dt
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from databases import GUARDED
from hubbub.storage import Store, StoreError, open_store
from hubbub.storage.schema import segments
from unit.collector.appends import listening
from unit.collector.batches import (
    HOMEPAGE,
    make_new_batch,
    make_record,
    stored_segments,
    two_stores,
)
from unit.collector.event_loop import in_event_loop
from unit.collector.mixers import start_mixer

_DAY = dt.date(2026, 3, 14)
_TOMORROW = _DAY + dt.timedelta(days=1)
_SECONDS = 60.0


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.long
@in_event_loop
async def test_collector_that_is_frozen_while_it_mixes_keeps_no_other_from_it(
    postgresql_url,
):
    """Nor from the reports that it was mixing; when it goes on nothing is lost or doubled."""
    async with open_store(postgresql_url, create=True) as store:
        for start in range(0, 512, 8):
            await store.append([make_new_batch(range(start, start + 8))], _DAY)
        mixer = start_mixer(postgresql_url, f"{_TOMORROW}", signal.SIGSTOP)
        try:
            _, status = await asyncio.to_thread(os.waitpid, mixer.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert await store.reshuffle(_TOMORROW) == 0
            async with asyncio.timeout(_SECONDS):
                while max(await _keys(store)) >= 0:
                    await asyncio.sleep(0.1)
                    with contextlib.suppress(StoreError):  # until all that it left open was ended
                        await store.reshuffle(_TOMORROW)
            mixer.send_signal(signal.SIGCONT)
            _, told = await asyncio.to_thread(mixer.communicate, timeout=_SECONDS)
            assert mixer.returncode, "commits although it has lost its locks"
            assert b"Error: store: " in told
        finally:
            mixer.kill()
            mixer.communicate()
        found = sorted(number for segment in await stored_segments(store) for number in segment)
        assert found == list(range(512))


async def _keys(store: Store) -> list[int]:
    async with store.database.read() as connection:
        return list(await connection.scalars(sa.select(segments.c.segment_id)))


@in_event_loop
async def test_day_whose_table_is_dropped_takes_reports_of_a_late_clock(postgresql_url):
    """One of them waits for the other, and not each for the other."""
    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        await one.drop_reports(_TOMORROW)
        is_open = asyncio.Event()

        async def write():
            async with one.database.begin(_DAY) as transaction:
                is_open.set()
                await transaction.connection.exec_driver_sql("SELECT pg_sleep(0.25)")
                row = {
                    "segment_id": 1,
                    "metric": "homepage",
                    "version": 1,
                    "slice": "",
                    "day": _DAY,
                }
                values = {**row, "reports": 1, "records": make_record(7)}
                into = await one.database.merge_target(transaction.connection, _DAY)
                await transaction.connection.execute(sa.insert(into).values(values))

        late = asyncio.create_task(write())
        await is_open.wait()
        await other.database.drop_empty(_TOMORROW)
        await late
        assert await stored_segments(other) == [[7]]


@in_event_loop
async def test_table_is_dropped_while_reports_of_another_day_come(postgresql_url, postgresql):
    """Who stores reports of the open day and who drops the table of one before don't wait."""
    async with two_stores(postgresql_url) as (one, other):
        await one.append([make_new_batch()], _DAY)
        await one.drop_reports(_TOMORROW)
        await one.append([make_new_batch()], _TOMORROW)
        dropped = asyncio.Event()
        writing = asyncio.Event()

        async def write():
            async with one.database.begin(_TOMORROW):
                writing.set()
                await dropped.wait()

        storing = asyncio.create_task(write())
        await writing.wait()
        await other.database.drop_empty(_TOMORROW)
        dropped.set()
        await storing
        names = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'segments'::regclass"
        found = postgresql.execute(names, url=postgresql_url).split()
        assert set(found) == {"segments_late", "segments_20260315"}


@in_event_loop
async def test_tidying_goes_on_when_another_collector_drops_a_table_meanwhile(
    postgresql, postgresql_url
):
    vacuums: list[str] = []

    def drop_first(_connection: Any, _cursor: Any, statement: str, *_others: Any):
        if statement.startswith("VACUUM"):
            if not vacuums:
                postgresql.execute("DROP TABLE segments_20260314", url=postgresql_url)
            vacuums.append(statement.rsplit(maxsplit=1)[-1])

    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        await store.append([make_new_batch()], _TOMORROW)
        with listening("before_cursor_execute", drop_first):
            await store.database.reclaim_space()
    tables = {"counts", "segments", "segments_late", "segments_20260314", "segments_20260315"}
    assert set(vacuums) == tables


@in_event_loop
async def test_reader_whose_statement_is_planned_while_a_table_is_made_misses_nothing(
    postgresql, postgresql_url
):
    """A function that waits, and that the planner calls for its estimate, draws planning out."""
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 5"
    postgresql.execute(
        "CREATE FUNCTION waited() RETURNS bigint STABLE LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_advisory_lock_shared(5); PERFORM pg_advisory_unlock_shared(5); "
        "RETURN 9223372036854775807; END $$",
        url=postgresql_url,
    )
    async with (
        open_store(postgresql_url, create=True) as store,
        open_store(postgresql_url, create=False) as reader,
    ):
        await store.append([make_new_batch()], _DAY)
        async with store.database.writing.connect() as connection:
            gate = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await gate.execute(sa.select(sa.func.pg_advisory_lock(5)))
            is_any = segments.c.segment_id < sa.func.waited()
            reading = asyncio.create_task(reader.segments.sizes(is_any))
            await _until(lambda: postgresql.execute(waiting, url=postgresql_url) == "2")
            with contextlib.suppress(StoreError):  # the reader keeps the empty table
                await store.reshuffle(_TOMORROW)
            assert max(await _keys(store)) < 0
            await gate.execute(sa.select(sa.func.pg_advisory_unlock(5)))
            assert [size.reports for size in await reading] == [3]
        assert await reader.count(HOMEPAGE) == 3


@in_event_loop
async def test_reader_with_a_plan_of_before_a_table_was_made_misses_nothing(postgresql_url):
    """The server keeps the plan of what was asked several times, and all tables are locked."""
    begun: list[str] = []

    def begin_a_day_once_locked(_connection: Any, _cursor: Any, statement: str, *_others: Any):
        if statement.startswith("LOCK TABLE") and not begun:
            begun.append(statement)
            storing = asyncio.create_task(store.append([make_new_batch()], _TOMORROW))
            assert sa.util.await_only(storing) == [True]

    async with (
        open_store(postgresql_url, create=True) as store,
        open_store(postgresql_url, create=False) as reader,
    ):
        await store.append([make_new_batch()], _DAY)
        for _ in range(8):
            assert len(await stored_segments(reader)) == 1
        engine = reader.database.reading.sync_engine
        sa.event.listen(engine, "after_cursor_execute", begin_a_day_once_locked)
        assert len(await stored_segments(reader)) == 2
    assert begun


@in_event_loop
async def test_reader_needs_rights_on_segments_and_none_on_the_tables_of_days(
    postgresql, postgresql_url
):
    user, password = GUARDED
    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        tables = "segments, counts, parameters, hubbub_schema"
        postgresql.execute(f"GRANT SELECT ON {tables} TO {user}", url=postgresql_url)
        url = postgresql_url.replace("//postgres@", f"//{user}:{password}@")
        async with open_store(url, create=False) as reader:
            assert await reader.count(HOMEPAGE) == 3
            assert len(await stored_segments(reader)) == 1
