"""Appending to the open day in PostgreSQL: each batch is stored once, whatever fails and when."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hubbub.storage import MetricVersion, NewBatch, Store, StoreError, open_store, postgresql
from unit.collector.batches import HOMEPAGE, make_new_batch, make_records, stored_segments
from unit.collector.cut_connections import CuttingProxy, Fault, cutting_proxy
from unit.collector.event_loop import in_event_loop

_DAY = dt.date(2026, 3, 14)
_YESTERDAY = _DAY - dt.timedelta(days=1)
_ROUND_TRIPS = 7
_SECONDS = 30.0
_IN_TRANSACTION = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
_SETTINGS = MetricVersion("settings", 2)


@asynccontextmanager
async def _open_day(url: str, folder: Path) -> AsyncIterator[tuple[Store, CuttingProxy]]:
    async with cutting_proxy(url, folder) as proxy, open_store(proxy.url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        await store.append([make_new_batch()], _DAY)
        yield store, proxy


@in_event_loop
async def test_batches_of_the_open_day_take_seven_round_trips(postgresql_url, tmp_path):
    async with _open_day(postgresql_url, tmp_path) as (store, proxy):
        for number in (1, 5, 16):
            proxy.arm(0, Fault.LOSE_REQUEST)
            assert all(await store.append([make_new_batch() for _ in range(number)], _DAY))
            assert proxy.round_trips == _ROUND_TRIPS


@in_event_loop
async def test_day_that_was_opened_while_the_lock_was_awaited_is_closed_again(
    postgresql, postgresql_url
):
    """Or two transactions of different days would run beside each other."""
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        async with store.database.begin(_YESTERDAY):
            storing = asyncio.create_task(store.append([make_new_batch()], _DAY))
            async with asyncio.timeout(_SECONDS):
                while postgresql.execute(waiting, url=postgresql_url) != "1":
                    await asyncio.sleep(0.01)
        assert await storing == [True]
    opened = postgresql.execute("SELECT day FROM open_day", url=postgresql_url)
    assert opened == str(_DAY)


@pytest.mark.parametrize("fault", Fault)
@in_event_loop
async def test_batch_is_stored_once_wherever_its_connection_breaks_or_its_caller_gives_up(
    postgresql, postgresql_url, tmp_path, fault
):
    async with _open_day(postgresql_url, tmp_path) as (store, proxy):
        for number in range(1, _ROUND_TRIPS + 1):
            batch = make_new_batch()
            proxy.arm(number, fault)
            storing = asyncio.create_task(store.append([batch], _DAY))
            if fault is Fault.HOLD_ANSWER:
                await proxy.held.wait()
                storing.cancel()
                proxy.release()
            (outcome,) = await asyncio.gather(storing, return_exceptions=True)
            is_stored = number == _ROUND_TRIPS and fault is not Fault.LOSE_REQUEST
            if fault is Fault.HOLD_ANSWER:
                assert isinstance(outcome, asyncio.CancelledError)
            else:
                assert isinstance(outcome, StoreError)
            # The server notices a moment later that a connection is gone.
            async with asyncio.timeout(_SECONDS):
                while postgresql.execute(_IN_TRANSACTION, url=postgresql_url) != "0":
                    await asyncio.sleep(0.01)
            assert await store.append([batch], _DAY) == [not is_stored]
            many = [store.append([batch], _DAY) for _ in range(6)]
            assert await asyncio.gather(*many) == [[False]] * 6
        assert await store.count(HOMEPAGE) == 3 * (2 + _ROUND_TRIPS)


@in_event_loop
async def test_connection_on_which_a_statement_failed_is_used_again_without_its_transaction(
    postgresql, postgresql_url
):
    refusing = "ALTER TABLE batch_ids ADD CONSTRAINT refused CHECK (false) NOT VALID"
    connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(2):
            await store.append([make_new_batch()], _DAY)
        before = postgresql.execute(connected, url=postgresql_url)
        batch = make_new_batch()
        postgresql.execute(refusing, url=postgresql_url)
        for _ in range(3):
            with pytest.raises(StoreError, match="violates check constraint"):
                await store.append([batch], _DAY)
        postgresql.execute("ALTER TABLE batch_ids DROP CONSTRAINT refused", url=postgresql_url)
        assert postgresql.execute(_IN_TRANSACTION, url=postgresql_url) == "0"
        assert await store.append([batch], _DAY) == [True]
        # The server notices a moment later that a connection of the administrator's is gone.
        async with asyncio.timeout(_SECONDS):
            while postgresql.execute(connected, url=postgresql_url) != before:
                await asyncio.sleep(0.01)
        assert await store.count(HOMEPAGE) == 9


@in_event_loop
async def test_reports_of_batches_that_are_known_are_never_stored(postgresql_url):
    """Whether few or all of a group are known, from the same day or from another."""
    batches = [_of_two_metrics(number) for number in range(8)]
    groups: Sequence[tuple[dt.date, Sequence[int]]] = [
        (_YESTERDAY, [0, 1]),
        (_DAY, [2]),
        (_DAY, [3, 4]),
        (_DAY, [4, 5]),  # one of the same day
        (_DAY, [1, 6, 6]),  # one of another day, and one twice
        (_DAY, [0, 2, 5]),  # all
        (_DAY, [7, 0, 1, 2, 3, 4, 5, 6]),
    ]
    known: set[int] = set()
    async with open_store(postgresql_url, create=True) as store:
        for day, numbers in groups:
            expected = []
            for number in numbers:
                expected.append(number not in known)
                known.add(number)
            assert await store.append([batches[number] for number in numbers], day) == expected
        for key in (HOMEPAGE, _SETTINGS):
            segments = await stored_segments(store, key)
            assert sorted(number for segment in segments for number in segment) == list(range(8))


def _of_two_metrics(number: int) -> NewBatch:
    batch = make_new_batch([number])
    return batch._replace(records={**batch.records, _SETTINGS: make_records([number])})


@in_event_loop
async def test_connection_on_which_nothing_comes_any_more_is_given_up(
    postgresql_url, tmp_path, monkeypatch
):
    """Not even an answer to the request to cancel, as if the server's machine were gone."""
    monkeypatch.setattr(postgresql, "_STATEMENT_SECONDS", 1)
    monkeypatch.setattr(postgresql, "_GRACE_SECONDS", -0.5)
    batch = make_new_batch()
    async with _open_day(postgresql_url, tmp_path) as (store, proxy):
        proxy.arm(2, Fault.HOLD_ANSWER)
        async with asyncio.timeout(_SECONDS):
            with pytest.raises(StoreError, match="store: TimeoutError"):
                await store.append([batch], _DAY)
        assert await store.append([batch], _DAY) == [True]
        proxy.release()
