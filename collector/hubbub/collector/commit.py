"""Group commit: many waiting batches, one durable transaction, then all their answers.

A disk takes milliseconds to make anything durable, however much it is, so one writer takes all that
has arrived meanwhile. What a maintainer must not break: `submit` returns only after the transaction
that holds the batch has been committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from hubbub.collector.errors import BusyError, StoreError
from hubbub.collector.store import NewBatch, Store

_log = logging.getLogger("hubbub.collector")


class _Waiting(NamedTuple):
    batch: NewBatch
    is_new: asyncio.Future[bool]


class GroupCommit:
    """The one writer of a collector process; use `running_group_commit`."""

    def __init__(self, store: Store, max_waiting: int) -> None:
        self._store = store
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(max_waiting)

    async def submit(self, batch: NewBatch) -> bool:
        """Store a batch durably; return whether it was new.

        Raises
        ------
        BusyError
            If too many batches are waiting.
        StoreError
            If the store refused; the batch isn't stored.
        """
        waiting = _Waiting(batch, asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(waiting)
        except asyncio.QueueFull:
            raise BusyError(f"{self._queue.maxsize} batches are waiting already") from None
        return await waiting.is_new

    async def write_for_ever(self) -> None:
        """Commit group after group until cancelled."""
        while True:
            group = [await self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get_nowait())
            await self._commit(group)

    async def _commit(self, group: list[_Waiting]) -> None:
        today = dt.datetime.now(dt.UTC).date()
        try:
            fresh = await self._store.append([waiting.batch for waiting in group], today)
        except Exception as error:
            _log.error("could not store %d batches: %s", len(group), error)
            for waiting in group:
                if not waiting.is_new.done():
                    waiting.is_new.set_exception(StoreError("the store refused the batch"))
            return
        for waiting, is_new in zip(group, fresh, strict=True):
            if not waiting.is_new.done():
                waiting.is_new.set_result(is_new)


@asynccontextmanager
async def running_group_commit(store: Store, max_waiting: int) -> AsyncIterator[GroupCommit]:
    """Run the writer as long as the context is open; leave it only when nobody waits any more."""
    commit = GroupCommit(store, max_waiting)
    writer = asyncio.create_task(commit.write_for_ever(), name="group commit")
    try:
        yield commit
    finally:
        writer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writer
