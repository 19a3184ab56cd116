"""Group commit: many wait, one writes, and an answer means that the batch is on disk."""

import asyncio
import contextlib
import datetime as dt
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hubbub.collector import MOST_ENOUGH, Commit, GroupCommit, running_group_commit
from hubbub.collector.ingest import commit as commit_module
from hubbub.storage import Store, StoreError, open_store
from unit.collector.batches import HOMEPAGE, make_new_batch, stored_segments
from unit.collector.event_loop import in_event_loop


@pytest.fixture
def long_wait(monkeypatch):
    """Let slots last longer than a test may take."""
    monkeypatch.setattr(commit_module, "SLOT", 3600.0)


@contextlib.asynccontextmanager
async def _committing(
    url: str, observe: Callable[[Commit], None] = lambda _commit: None
) -> AsyncIterator[tuple[Store, GroupCommit]]:
    async with (
        open_store(url, create=True) as store,
        running_group_commit(store, observe) as commit,
    ):
        yield store, commit


@in_event_loop
async def test_batches_that_wait_together_become_one_segment(store_url):
    batches = [make_new_batch([2 * i, 2 * i + 1]) for i in range(50)]
    async with _committing(store_url) as (store, commit):
        assert await asyncio.gather(*map(commit.submit, batches)) == [True] * 50
        (segment,) = await stored_segments(store)
        assert segment != list(range(100))
        assert sorted(segment) == list(range(100))


@in_event_loop
async def test_no_batch_is_acknowledged_while_the_store_cannot_commit(store_url, database):
    batches = [make_new_batch() for _ in range(5)]
    async with _committing(store_url) as (store, commit):
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = [asyncio.create_task(commit.submit(batch)) for batch in batches]
            answered, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not answered
            other.execute("ROLLBACK")
        assert await asyncio.gather(*waiting) == [True] * 5
        assert await store.count(HOMEPAGE) == 15


@in_event_loop
async def test_nothing_is_stored_under_a_clock_that_is_far_behind_the_last_upkeep(store_url):
    """Or it would be forgotten for its age as soon as the clock is right."""
    today = dt.datetime.now(dt.UTC).date()
    async with _committing(store_url) as (store, commit):
        await store.set_upkeep_day(today + dt.timedelta(days=9))
        with pytest.raises(StoreError, match="the store refused the batch"):
            await commit.submit(make_new_batch())
        await store.set_upkeep_day(today + dt.timedelta(days=6))
        assert await commit.submit(make_new_batch())
        assert await store.count(HOMEPAGE) == 3


@in_event_loop
async def test_all_waiting_requests_get_the_stores_failure_and_may_retry(
    store_url, database, caplog
):
    batches = [make_new_batch() for _ in range(5)]
    async with _committing(store_url) as (store, commit):
        _execute(database, "ALTER TABLE segments RENAME TO elsewhere")
        failed = await asyncio.gather(*map(commit.submit, batches), return_exceptions=True)
        assert [type(failure) for failure in failed] == [StoreError] * 5
        assert "could not store 5 batches: store: no such table: segments" in caplog.text
        _execute(database, "ALTER TABLE elsewhere RENAME TO segments")
        assert await asyncio.gather(*map(commit.submit, batches)) == [True] * 5
        assert await store.count(HOMEPAGE) == 15


@in_event_loop
async def test_store_that_is_away_fills_no_log(store_url, database, caplog):
    async with _committing(store_url) as (_store, commit):
        _execute(database, "ALTER TABLE segments RENAME TO elsewhere")
        for _ in range(20):
            with pytest.raises(StoreError):
                await commit.submit(make_new_batch())
        assert len(caplog.records) == 1
        _execute(database, "ALTER TABLE elsewhere RENAME TO segments")
        assert await commit.submit(make_new_batch())
    assert caplog.messages[1:] == ["could not store 19 more batches, but can store again"]


@in_event_loop
async def test_the_observer_gets_what_each_transaction_stored(store_url):
    batches = [make_new_batch() for _ in range(5)]
    told: list[Commit] = []
    async with _committing(store_url, told.append) as (_store, commit):
        await asyncio.gather(*map(commit.submit, [*batches, *batches[:2]]))
        await commit.submit(batches[0])
        await asyncio.sleep(0)
    assert [len(one.batches) for one in told] == [5, 0]
    assert all(one.seconds > 0 for one in told)


@in_event_loop
async def test_a_failing_observer_blocks_no_request(store_url, caplog):
    def fail(_commit: Commit):
        raise ZeroDivisionError

    async with _committing(store_url, fail) as (store, commit):
        for _ in range(3):
            assert await commit.submit(make_new_batch())
        assert await store.count(HOMEPAGE) == 9
    assert "unexpected ZeroDivisionError while counting" in caplog.text


@in_event_loop
async def test_a_cancelled_request_does_not_disturb_others(store_url):
    batches = [make_new_batch() for _ in range(3)]
    async with _committing(store_url) as (_store, commit):
        waiting = [asyncio.create_task(commit.submit(batch)) for batch in batches]
        await asyncio.sleep(0)  # now they wait
        waiting[1].cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [outcomes[0], type(outcomes[1]), outcomes[2]] == [
            True,
            asyncio.CancelledError,
            True,
        ]
        assert await commit.submit(make_new_batch())


@in_event_loop
async def test_batch_is_answered_after_the_end_of_its_slot_whoever_else_sends(
    store_url, monkeypatch
):
    slot = 0.5
    monkeypatch.setattr(commit_module, "SLOT", slot)
    monkeypatch.setattr(commit_module, "MOST_ENOUGH", 10**12)  # so that few are never enough
    loop = asyncio.get_running_loop()
    async with _committing(store_url) as (_store, commit):
        begun = loop.time()
        for others in (0, 3, 0):
            sent = loop.time() - begun
            await asyncio.gather(*[commit.submit(make_new_batch()) for _ in range(1 + others)])
            answered = loop.time() - begun
            assert answered // slot == sent // slot + 1
            await asyncio.sleep(slot / 3)


@in_event_loop
async def test_how_many_begin_a_transaction_before_its_time_cannot_be_foreseen(
    store_url,
    long_wait,  # noqa: ARG001
):
    """Each number up to the most is as likely, whatever was before; false alarms: 1e-6."""
    async with _committing(store_url) as (_store, commit):
        needed = []
        for _ in range(201):
            waiting: list[asyncio.Task[bool]] = []
            while len(commit._waiting) == len(waiting):
                waiting.append(asyncio.create_task(commit.submit(make_new_batch())))
                await asyncio.sleep(0)  # it waits
                await asyncio.sleep(0)  # they are taken
            needed.append(len(waiting))
            assert await asyncio.gather(*waiting) == [True] * len(waiting)
    assert needed[0] == MOST_ENOUGH
    assert 1 <= min(needed) <= max(needed) <= MOST_ENOUGH
    found, uniform = np.array(needed[1:]), stats.randint(1, MOST_ENOUGH + 1)
    # The largest distance is stochastically smaller for a discrete distribution than for this one.
    distance = np.abs(
        [np.mean(found <= number) - uniform.cdf(number) for number in range(MOST_ENOUGH)]
    ).max()
    assert stats.kstwo(len(found)).sf(distance) > 1e-6


@in_event_loop
async def test_answers_do_not_wait_when_the_service_ends(
    store_url,
    long_wait,  # noqa: ARG001
):
    async with _committing(store_url) as (store, commit):
        waiting = [asyncio.create_task(commit.submit(make_new_batch())) for _ in range(2)]
        await store.ping()
        commit.end_waiting()
        assert await asyncio.gather(*waiting) == [True] * 2
        assert await commit.submit(make_new_batch())


def _committed(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (reports,) = connection.execute("SELECT sum(reports) FROM segments").fetchone()
        return int(reports)


def _execute(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
