"""Transactions of PostgreSQL's open day: asyncpg told directly, against all of it by SQLAlchemy.

What they cost the collector's processor, which waits meanwhile for a server that has nothing else
to do. Batches have ten reports; a collector makes a transaction of one, of five or of sixteen if
few clients send, several workers share them, or it is busy.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from databases import running_postgresql
from evaluation.benchmarks.timing import Comparison, compare
from hubbub.storage.batch_ids import BatchIds, OpenDatabase
from hubbub.storage.postgresql import open_database
from hubbub.storage.schema import migrate
from unit.collector.batches import make_random_batch

_DAY = dt.date(2026, 3, 14)
_REPORTS = 10
_TRANSACTIONS = 200


def comparisons() -> Iterator[Comparison]:
    """Time groups of one, five and sixteen batches."""
    with (
        running_postgresql() as server,
        server.new_database() as url,
        asyncio.Runner() as runner,
    ):
        database, _, ids = runner.run(_open(url))
        for size in (1, 5, 16):
            yield compare(
                f"transactions of {size} batches, processor of the collector",
                partial(_run, runner, ids.append, size),
                "the same by SQLAlchemy",
                partial(_run, runner, partial(BatchIds.append, ids), size),
                "transactions",
                clock=time.process_time,
            )
        runner.run(database.close())


async def _open(url: str) -> OpenDatabase:
    opened = await open_database(url, create=True)
    await migrate(opened.database, url)
    for _ in range(2):  # the first one opens the day
        await _append(opened.ids.append, 1)
    return opened


def _run(runner: asyncio.Runner, append: Callable[..., Awaitable[set[bytes]]], size: int) -> int:
    async def run() -> None:
        for _ in range(_TRANSACTIONS):
            await _append(append, size)

    runner.run(run())
    return _TRANSACTIONS


async def _append(append: Callable[..., Awaitable[set[bytes]]], size: int) -> None:
    batches = {it.batch_id: it for it in (make_random_batch(_REPORTS) for _ in range(size))}
    unseen = await append(batches, _DAY, _DAY)
    assert len(unseen) == size
