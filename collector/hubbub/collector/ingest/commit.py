"""Group commit: many waiting batches, one durable transaction, then all their answers.

A transaction costs milliseconds of the disk and some of the processor, however little it holds. So
one writer commits all that has arrived in the meantime, and waits for more while others are likely
to send and few have. Invariants: `submit` returns only after the transaction that holds the batch
has been committed; and nobody waits for others for longer than `LONGEST_WAIT`. `access.admission`
bounds how much may wait.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from hubbub.collector.errors import QuarantineFullError, StoreError
from hubbub.collector.store import NewBatch, Store
from hubbub.collector.store.upkeep import JUMP

ENOUGH = 16
"""Batches for which a transaction is worth its cost: it is begun without waiting for more."""

LONGEST_WAIT = 0.05
"""Seconds for which a batch waits for others at most, before the transaction that stores it."""

_QUIET_SECONDS = 10.0
"""How long refusals are only counted after one was logged: a store that is away refuses quickly."""

_log = logging.getLogger("hubbub.collector")


def is_due(waiting: int, connections: int, *, is_alone: bool) -> bool:
    """Return whether to commit what waits now, instead of waiting for more.

    A client that sends one batch after the other never waits, nor do few who fill all connections.

    Parameters
    ----------
    waiting : int
        Batches that have arrived.
    connections : int
        How many are open. If a batch of each waits, no more can come over them.
    is_alone : bool
        Whether all that came of late has come over the connection of the latest batch (`Senders`).
    """
    return is_alone or waiting >= min(ENOUGH, connections)


class Senders:
    """Tells whether anybody else has sent of late; remembers two moments and one connection."""

    def __init__(self) -> None:
        self._latest = 0
        self._latest_at = self._other_at = float("-inf")

    def is_alone(self, connection: int, now: float) -> bool:
        """Return whether no other connection has sent within `LONGEST_WAIT`.

        Parameters
        ----------
        connection : int
            A number that stands for the one over which a batch came.
        now : float
            Seconds, by a clock that doesn't go back.
        """
        if connection != self._latest:
            self._latest, self._other_at = connection, self._latest_at
        self._latest_at = now
        return now - self._other_at > LONGEST_WAIT


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

    def __init__(
        self,
        store: Store,
        observe: Callable[[Commit], None],
        most_quarantined: int,
        connections: Callable[[], int],
    ) -> None:
        self._store = store
        self._most_quarantined = most_quarantined
        self._observe = observe
        self._waiting: list[_Waiting] = []
        self._connections = connections
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._senders = Senders()
        self._is_ending = False
        self._believed: dt.date | None = None
        self._logged_at = float("-inf")
        self._unlogged = 0
        self.refused_at = float("-inf")

    @property
    def depth(self) -> int:
        """How many batches wait for the next transaction."""
        return len(self._waiting)

    async def submit(self, batch: NewBatch, connection: int = 0) -> bool:
        """Store a batch durably, all of it; return whether it was new.

        Parameters
        ----------
        batch : NewBatch
        connection : int
            A number that stands for the one over which it came; nothing is done with it but to see
            whether others send, too.

        Raises
        ------
        QuarantineFullError
            If there is no room for what is to be kept apart; nothing of the batch is stored.
        StoreError
            If the store refused; the batch isn't stored, or it isn't known whether it is. The same
            batch may be submitted again in either case.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(batch, loop.create_future())
        self._waiting.append(waiting)
        is_alone = self._senders.is_alone(connection, loop.time())
        is_now = is_due(len(self._waiting), self._connections(), is_alone=is_alone)
        if self._is_ending or is_now:
            self._due.set()
        elif self._timer is None:
            self._timer = loop.call_later(LONGEST_WAIT, self._due.set)
        return await waiting.is_new

    def end_waiting(self) -> None:
        """Commit at once from now on: the service is ending, so few more will come."""
        self._is_ending = True
        if self._waiting:
            self._due.set()

    async def write_for_ever(self) -> None:
        """Commit group after group until cancelled."""
        while True:
            group = await self._next_group()
            # Apart, so that those of the registry never wait for a bound on those of strangers.
            if apart := [waiting for waiting in group if waiting.batch.quarantined]:
                group = [waiting for waiting in group if not waiting.batch.quarantined]
            for some in (group, apart):
                if some:
                    await self._commit(some)

    async def _next_group(self) -> list[_Waiting]:
        """Wait until what has arrived is due, and take it."""
        await self._due.wait()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting, []
        return group

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

    async def _append(self, batches: list[NewBatch], today: dt.date) -> Sequence[bool | None]:
        """Store batches that all have something to be kept apart, or that all have nothing."""
        if not batches[0].quarantined:
            return await self._store.append(batches, today)
        return await self._store.append_quarantined(batches, today, self._most_quarantined)

    async def _commit(self, group: list[_Waiting]) -> None:
        today = dt.datetime.now(dt.UTC).date()
        begun = time.perf_counter()
        try:
            await self._check_clock(today)
            fresh = await self._append([waiting.batch for waiting in group], today)
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
            if waiting.is_new.done():
                continue
            if is_new is None:
                waiting.is_new.set_exception(QuarantineFullError("the quarantine is full"))
            else:
                waiting.is_new.set_result(is_new)
        new = [waiting.batch for waiting, is_new in zip(group, fresh, strict=True) if is_new]
        try:
            self._observe(Commit(new, fresh.count(False), time.perf_counter() - begun))
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
    store: Store,
    observe: Callable[[Commit], None],
    most_quarantined: int = 0,
    connections: Callable[[], int] = lambda: 0,
) -> AsyncIterator[GroupCommit]:
    """Run the writer as long as the context is open; leave it only when no batch waits any more.

    Parameters
    ----------
    store : Store
    observe : callable
        Called with each transaction, after its batches have been answered.
    most_quarantined : int
        Bytes that may be kept of what no registry knows yet.
    connections : callable
        Returns how many connections are open that batches may come over.
    """
    commit = GroupCommit(store, observe, most_quarantined, connections)
    writer = asyncio.create_task(commit.write_for_ever(), name="group commit")
    try:
        yield commit
    finally:
        writer.cancel()
        await asyncio.wait([writer])
