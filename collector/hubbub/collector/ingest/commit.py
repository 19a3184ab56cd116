"""Group commit: many waiting batches, one durable transaction, then all their answers.

A disk takes milliseconds to make anything durable, however little, so one writer commits all that
has arrived in the meantime. Invariant: `submit` returns only after the transaction that holds the
batch has been committed. `access.admission` bounds how much may wait.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from hubbub.collector.errors import StoreError
from hubbub.collector.store import NewBatch, Store
from hubbub.collector.store.upkeep import JUMP

_QUIET_SECONDS = 10.0
"""How long refusals are only counted after one was logged: a store that is away refuses quickly."""

_log = logging.getLogger("hubbub.collector")


class Commit(NamedTuple):
    """What one transaction did.

    Attributes
    ----------
    batches : sequence of NewBatch
        Those that were new, and are stored now.
    duplicates : int
        How many others had been stored before.
    seconds : float
        How long the transaction took.
    """

    batches: Sequence[NewBatch]
    duplicates: int
    seconds: float


class _Waiting(NamedTuple):
    batch: NewBatch
    is_new: asyncio.Future[bool]


class GroupCommit:
    """The one writer of a collector process; use `running_group_commit`.

    Attributes
    ----------
    refused_at : float
        When the store refused the latest transaction (`time.monotonic`), or -inf if it took it.
    """

    def __init__(self, store: Store, observe: Callable[[Commit], None]) -> None:
        self._store = store
        self._observe = observe
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._believed: dt.date | None = None
        self._logged_at = float("-inf")
        self._unlogged = 0
        self.refused_at = float("-inf")

    @property
    def depth(self) -> int:
        """How many batches wait for the next transaction."""
        return len(self._waiting)

    async def submit(self, batch: NewBatch) -> bool:
        """Store a batch durably; return whether it was new.

        Raises
        ------
        StoreError
            If the store refused; the batch isn't stored, or it isn't known whether it is. The same
            batch may be submitted again in either case.
        """
        waiting = _Waiting(batch, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.is_new

    async def write_for_ever(self) -> None:
        """Commit group after group until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            group, self._waiting = self._waiting, []
            await self._commit(group)

    async def _check_clock(self, today: dt.date) -> None:
        """Refuse to store under a clock that is far behind; asks the store once a day.

        What it dated would be too old, and be forgotten, as soon as the clock is right.
        """
        if today == self._believed:
            return
        last = await self._store.upkeep_day()
        if last is not None and last - today > JUMP:
            raise StoreError(f"clock: it is {today}, but the last upkeep was on {last}")
        self._believed = today

    async def _commit(self, group: list[_Waiting]) -> None:
        today = dt.datetime.now(dt.UTC).date()
        begun = time.perf_counter()
        try:
            await self._check_clock(today)
            fresh = await self._store.append([waiting.batch for waiting in group], today)
        except Exception as error:
            self.refused_at = time.monotonic()
            reason = error if isinstance(error, StoreError) else type(error).__name__
            self._log_refusal(len(group), reason)
            for waiting in group:
                if not waiting.is_new.done():
                    waiting.is_new.set_exception(StoreError("the store refused the batch"))
            return
        self.refused_at = float("-inf")
        if self._unlogged:
            _log.warning("could not store %d more batches, but can store again", self._unlogged)
            self._unlogged = 0
        for waiting, is_new in zip(group, fresh, strict=True):
            if not waiting.is_new.done():
                waiting.is_new.set_result(is_new)
        new = [waiting.batch for waiting, is_new in zip(group, fresh, strict=True) if is_new]
        try:
            self._observe(Commit(new, len(group) - len(new), time.perf_counter() - begun))
        except Exception as error:
            # A fault in counting must not stop the writer: later batches would wait for ever.
            _log.error("unexpected %s while counting a transaction", type(error).__name__)

    def _log_refusal(self, batches: int, reason: object) -> None:
        self._unlogged += batches
        if self.refused_at - self._logged_at >= _QUIET_SECONDS:
            _log.error("could not store %d batches: %s", self._unlogged, reason)
            self._logged_at, self._unlogged = self.refused_at, 0


@asynccontextmanager
async def running_group_commit(
    store: Store, observe: Callable[[Commit], None]
) -> AsyncIterator[GroupCommit]:
    """Run the writer as long as the context is open; leave it only when no batch waits any more.

    Parameters
    ----------
    store : Store
    observe : callable
        Called with each transaction, after its batches have been answered.
    """
    commit = GroupCommit(store, observe)
    writer = asyncio.create_task(commit.write_for_ever(), name="group commit")
    try:
        yield commit
    finally:
        writer.cancel()
        await asyncio.wait([writer])
