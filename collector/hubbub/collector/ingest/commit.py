"""Group commit: many waiting batches, one durable transaction, then all their answers.

A transaction costs milliseconds of the disk and some of the processor, however little it holds. So
one writer commits together what has arrived in a slot of time, when the slot ends, or before if
many wait. Invariants: `submit` returns only after the transaction that holds the batch has been
committed; and no client learns from its wait whether another has sent. For slots end at
fixed times, whoever sends; what "many" is, is drawn for each transaction, so that one batch
more makes it come early with a chance of 1/`MOST_ENOUGH` more; and answers are given at fixed times
again, so that how long a transaction takes doesn't show what else was in it. How much
may wait is bounded by `serving.app`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from hubbub.storage import JUMP, NewBatch, Store, StoreError

SLOT = 0.025
"""Seconds between two times at which what waits is committed. A client doesn't notice them, and at
some hundred batches a second a transaction has about ten.
"""

MOST_ENOUGH = 64
"""For so many batches a transaction is begun before the slot ends, or for any smaller number."""

_ANSWERS_SECONDS = 0.002
"""Between two times at which answers are given: a batch more takes a twentieth of that."""

_QUIET_SECONDS = 10.0
"""How long refusals are only counted after one was logged: a store that is away refuses quickly."""

_log = logging.getLogger("hubbub.collector")


class Commit(NamedTuple):
    """The result of one transaction."""

    batches: Sequence[NewBatch]  # those that were new, and are stored now
    seconds: float  # how long the transaction took


class _Waiting(NamedTuple):
    batch: NewBatch
    is_new: asyncio.Future[bool]


class GroupCommit:
    """The one writer of a collector process; use `running_group_commit`.

    `refused_at`: when the store refused the latest transaction (`time.monotonic`), or -inf if it
    took it.
    """

    def __init__(self, store: Store, observe: Callable[[Commit], None]) -> None:
        self._store = store
        self._observe = observe
        self._waiting: list[_Waiting] = []
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._begun_at = asyncio.get_running_loop().time()
        self._enough = MOST_ENOUGH
        self._is_ending = False
        self._clock_checked_on: dt.date | None = None
        self._logged_at = float("-inf")
        self._unlogged = 0
        self.refused_at = float("-inf")

    async def submit(self, batch: NewBatch) -> bool:
        """Store a batch durably, all of it; return whether it was new.

        Raises `StoreError` if the store refused; the batch isn't stored, or it isn't known whether
        it is. The same batch may be submitted again in either case.
        """
        waiting = _Waiting(batch, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._is_ending or len(self._waiting) >= self._enough:
            self._due.set()
        elif self._timer is None:
            self._timer = self._call_at_end(SLOT, self._due.set)
        return await waiting.is_new

    def _call_at_end(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        passed = (loop.time() - self._begun_at) // seconds
        return loop.call_at(self._begun_at + (passed + 1) * seconds, call)

    def end_waiting(self) -> None:
        """Commit at once from now on: the service is ending, so few more will come."""
        self._is_ending = True
        if self._waiting:
            self._due.set()

    async def run(self) -> None:
        """Commit group after group until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            group, self._waiting = self._waiting, []
            self._enough = 1 + secrets.randbelow(MOST_ENOUGH)
            if group:
                await self._commit(group)

    async def _check_clock(self, today: dt.date) -> None:
        """Refuse to store under a clock that is far behind; asks the store once a day.

        What it dated would be too old, and be forgotten, as soon as the clock is right.
        """
        if today == self._clock_checked_on:
            return
        last = await self._store.upkeep_day()
        if last is not None and last - today > JUMP:
            raise StoreError(f"clock: it is {today}, but the last upkeep was on {last}")
        self._clock_checked_on = today

    async def _commit(self, group: list[_Waiting]) -> None:
        today = dt.datetime.now(dt.UTC).date()
        begun = time.perf_counter()
        try:
            await self._check_clock(today)
            fresh = await self._store.append([waiting.batch for waiting in group], today)
        except Exception as error:
            self.refused_at = time.monotonic()
            reason = error if isinstance(error, StoreError) else type(error).__name__
            self._unlogged += len(group)
            if self.refused_at - self._logged_at >= _QUIET_SECONDS:
                _log.error("could not store %d batches: %s", self._unlogged, reason)
                self._logged_at, self._unlogged = self.refused_at, 0
            self._answer(group, [StoreError("the store refused the batch") for _ in group])
            return
        self.refused_at = float("-inf")
        if self._unlogged:
            _log.warning("could not store %d more batches, but can store again", self._unlogged)
            self._unlogged = 0
        seconds = time.perf_counter() - begun
        self._answer(group, fresh)
        new = [waiting.batch for waiting, is_new in zip(group, fresh, strict=True) if is_new]
        try:
            self._observe(Commit(new, seconds))
        except Exception as error:
            # A fault in counting must not stop the writer: later batches would wait for ever.
            _log.error("unexpected %s while counting a transaction", type(error).__name__)

    def _answer(self, group: Sequence[_Waiting], outcomes: Iterable[bool | Exception]) -> None:
        outcome_of = list(zip(group, outcomes, strict=True))

        def answer() -> None:
            for waiting, outcome in outcome_of:
                if waiting.is_new.done():  # nobody waits any more
                    continue
                if isinstance(outcome, Exception):
                    waiting.is_new.set_exception(outcome)
                else:
                    waiting.is_new.set_result(outcome)

        if self._is_ending:
            answer()
        else:
            self._call_at_end(_ANSWERS_SECONDS, answer)


@asynccontextmanager
async def running_group_commit(
    store: Store, observe: Callable[[Commit], None]
) -> AsyncIterator[GroupCommit]:
    """Run the writer as long as the context is open; leave it only when no batch waits any more.

    `observe`: called with each transaction.
    """
    commit = GroupCommit(store, observe)
    writer = asyncio.create_task(commit.run(), name="group commit")
    try:
        yield commit
    finally:
        writer.cancel()
        await asyncio.wait([writer])
