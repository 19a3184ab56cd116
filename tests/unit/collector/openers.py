"""What other processes do to a store in tests; importable there, unlike the tests' own modules."""

import asyncio
import datetime as dt
import threading
from pathlib import Path

from factories import make_metric
from hubbub.storage import open_store
from unit.collector.batches import make_new_batch

_DAY = dt.date(2026, 3, 14)
_SECONDS = 60.0

_barrier: threading.Barrier


def remember_barrier(barrier: threading.Barrier) -> None:
    """Keep what a pool's processes share."""
    global _barrier  # noqa: PLW0603
    _barrier = barrier


def start_and_store(folder: Path, rounds: int) -> int:
    """Open a new store in each round, all processes at once; return how many rounds worked."""
    worked = 0
    for number in range(rounds):
        _barrier.wait(_SECONDS)
        try:
            worked += asyncio.run(_start_and_store(f"sqlite:///{folder}/{number}.db"))
        except BaseException:
            _barrier.abort()
            raise
    return worked


async def _start_and_store(url: str) -> bool:
    async with open_store(url, create=True) as store:
        await store.declare([make_metric()])
        return await store.append([make_new_batch()], _DAY) == [True]
