"""What transactions cost the collector's processor, in PostgreSQL against SQLite.

It waits meanwhile for a server that has nothing else to do. Batches have ten reports; a collector
makes a transaction of one, of five or of sixteen if few clients send, several workers share them,
or it is busy.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
import time
from collections.abc import Iterator
from functools import partial

from databases import running_postgresql
from evaluation.benchmarks.timing import Comparison, compare
from hubbub.storage import Store, open_store
from unit.collector.batches import make_random_batch

_DAY = dt.date(2026, 3, 14)
_REPORTS = 10
_TRANSACTIONS = 200


def comparisons() -> Iterator[Comparison]:
    """Time groups of one, five and sixteen batches."""
    with (
        running_postgresql() as server,
        server.new_database() as url,
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner() as runner,
    ):
        opened = [open_store(it, create=True) for it in (url, f"sqlite:///{folder}/hubbub.db")]
        stores = [runner.run(it.__aenter__()) for it in opened]
        for store in stores:
            runner.run(_append(store, 1))  # opens the day
        for size in (1, 5, 16):
            yield compare(
                f"transactions of {size} batches in PostgreSQL, processor of the collector",
                partial(_run, runner, stores[0], size),
                "the same in SQLite",
                partial(_run, runner, stores[1], size),
                "transactions",
                clock=time.process_time,
            )
        for it in opened:
            runner.run(it.__aexit__(None, None, None))


def _run(runner: asyncio.Runner, store: Store, size: int) -> int:
    async def run() -> None:
        for _ in range(_TRANSACTIONS):
            await _append(store, size)

    runner.run(run())
    return _TRANSACTIONS


async def _append(store: Store, size: int) -> None:
    assert all(await store.append([make_random_batch(_REPORTS) for _ in range(size)], _DAY))
