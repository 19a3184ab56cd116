"""Batches of closed days that are sent again, while collectors sort their ids, and die."""

import asyncio
import datetime as dt
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from hubbub.client import Batch
from hubbub.storage import MetricVersion, NewBatch, open_store
from programs import forked_collector
from service.faults import kill
from service.posting import make_batch, post

pytestmark = pytest.mark.long_on_postgresql

_DAYS = 6
_OFTEN = ["--upkeep-seconds", "0.1"]


@pytest.mark.long
def test_batches_of_closed_days_are_known_while_sorting_is_killed(metrics_file, any_store_url):
    """By the collector itself, by the one in its place, and by one that shares a PostgreSQL."""
    batches = [make_batch() for _ in range(2 * _DAYS)]
    asyncio.run(_store_on_days(any_store_url, batches))
    new = 0
    with ExitStack() as stack:
        others = []
        if any_store_url.startswith("postgresql"):
            seldom = ["--upkeep-seconds", "86400"]
            others.append(
                stack.enter_context(forked_collector(metrics_file, any_store_url, seldom))
            )
        for patience in (1, _DAYS - 1):
            with forked_collector(metrics_file, any_store_url, _OFTEN) as collector:
                while asyncio.run(_n_sorted(any_store_url)) < patience:
                    for each in (collector, *others):
                        new += _send(each.url, batches)
                new += _send(collector.url, batches)
                kill(collector.process.pid)
                collector.process.wait()
        with forked_collector(metrics_file, any_store_url) as collector:
            for each in (collector, *others):
                new += _send(each.url, batches)
    assert asyncio.run(_count(any_store_url)) == 3 * new


def _send(url: str, batches: Sequence[Batch]) -> int:
    assert [post(url, batch).status for batch in batches] == [200] * len(batches)
    assert post(url, make_batch()).status == 201
    return 1


async def _store_on_days(url: str, batches: Sequence[Batch]) -> None:
    today = dt.datetime.now(dt.UTC).date()
    async with open_store(url, create=True) as store:
        for number, batch in enumerate(batches):
            known = NewBatch(bytes.fromhex(batch.batch_id), {})
            await store.append([known], today - dt.timedelta(days=number % _DAYS))
        await store.append([NewBatch(bytes(16), {})], today)


async def _count(url: str) -> int:
    async with open_store(url, create=False) as store:
        return await store.count(MetricVersion("homepage", 1))


async def _n_sorted(url: str) -> int:
    async with open_store(url, create=False) as store:
        tables = [table for table in await store.database.day_tables() if table.holds_ids]
    unsorted = {table.day for table in tables if not table.is_sorted}
    return len({table.day for table in tables} - unsorted)
