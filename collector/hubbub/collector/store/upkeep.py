"""The periodic maintenance of a store: merging, forgetting, and tidying up.

The batches of a quiet minute stay apart until they are merged with others, so this is part of what
makes reports unlinkable, and not only housekeeping. Invariants: every step may run in several
processes at once, beside appends and readers, and may fail and be repeated; and nothing is deleted
because of its age on the word of a clock that has jumped.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from hubbub.collector.errors import StoreError
from hubbub.collector.store import Store

_LAST_SECONDS = 10
"""How long the last run may take, because the service is being stopped."""

_JUMP = dt.timedelta(days=7)
"""A clock that is further than this from the last upkeep isn't believed unless somebody says so."""

_log = logging.getLogger("hubbub.collector")


class ClockError(StoreError):
    """The clock is so far from the last upkeep that it may be wrong."""


class UpkeepResult(NamedTuple):
    """What a run did.

    Attributes
    ----------
    merged : int
        Segments that were replaced by larger ones.
    forgotten : int
        Ids of batches that are no longer known.
    dropped : int
        Reports that were deleted because of their age.
    """

    merged: int
    forgotten: int
    dropped: int


class Upkeep:
    """Takes care of one store.

    Parameters
    ----------
    store : Store
    deduplication_days : int
        How long the id of a batch is known; until then it is counted once however often it comes.
    retention_days : int or None
        How long reports are kept, or None to keep them for ever.
    seconds : float
        Time between two runs of `run_for_ever`.
    observe : callable, optional
        Called with the name of each step ("age", "merge" or "tidy") and whether it succeeded.
    """

    def __init__(
        self,
        store: Store,
        deduplication_days: int,
        retention_days: int | None,
        seconds: float,
        observe: Callable[[str, bool], None] = lambda _step, _succeeded: None,
    ) -> None:
        self._store = store
        self._deduplication = dt.timedelta(days=deduplication_days)
        self._retention = None if retention_days is None else dt.timedelta(days=retention_days)
        self._seconds = seconds
        self._observe = observe
        self._stopping = asyncio.Event()
        self._aged_on: dt.date | None = None

    async def run_once(self, today: dt.date, *, trust_clock: bool = False) -> UpkeepResult:
        """Run all steps; days are counted back from `today`.

        Parameters
        ----------
        today : datetime.date
        trust_clock : bool
            Believe that it is this day, however long ago the last upkeep was.

        Raises
        ------
        ClockError
            If it may not be this day; then nothing was deleted, and the rest was done.
        StoreError
            If the store refuses; what was done until then stays done.
        """
        forgotten = dropped = 0
        doubt: ClockError | None = None
        try:
            with self._observed("age"):
                if today != self._aged_on:
                    await self._check_clock(today, trust_clock=trust_clock)
                forgotten, dropped = await self._age(today)
        except ClockError as error:
            doubt = error
        with self._observed("merge"):
            merged = await self._store.merge()
        with self._observed("tidy"):
            await self._store.tidy()
        if doubt:
            raise doubt
        return UpkeepResult(merged, forgotten, dropped)

    async def _check_clock(self, today: dt.date, *, trust_clock: bool) -> None:
        """Remember that this is a day of upkeep, unless it is far from the last one.

        A wrong clock dates whatever is stored meanwhile, so nothing but the last upkeep can tell.
        """
        last = await self._store.upkeep_day()
        if last is not None and abs(today - last) > _JUMP and not trust_clock:
            raise ClockError(
                f"clock: it is {today}, but the last upkeep was on {last}, so nothing was deleted "
                "for its age; if the clock is right, and the service was just stopped for long, "
                "say so: hubbub-collector maintain --trust-clock"
            )
        if last is None or trust_clock or today > last:
            await self._store.set_upkeep_day(today)

    async def _age(self, today: dt.date) -> tuple[int, int]:
        """Forget and drop what is too old; once a day, because finding old ids reads them all."""
        if today == self._aged_on:
            return 0, 0
        forgotten = await self._store.forget_ids(today - self._deduplication)
        dropped = 0
        if self._retention is not None:
            dropped = await self._store.drop_reports(today - self._retention)
        self._aged_on = today
        return forgotten, dropped

    @contextlib.contextmanager
    def _observed(self, step: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._observe(step, False)
            raise
        self._observe(step, True)

    async def run_for_ever(self) -> None:
        """Run at once, every some seconds, and a last time when stopped; log what goes wrong."""
        while True:
            is_last = self._stopping.is_set()
            try:
                await self.run_once(dt.datetime.now(dt.UTC).date())
            except StoreError as error:
                _log.error("upkeep failed and will be tried again: %s", error)
            except Exception as error:
                # Without its text, which may quote what is stored.
                _log.error("upkeep failed and will be tried again: %s", type(error).__name__)
            if is_last:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._seconds)

    def stop(self) -> None:
        """Let `run_for_ever` run a last time and return."""
        self._stopping.set()


@asynccontextmanager
async def running_upkeep(upkeep: Upkeep) -> AsyncIterator[None]:
    """Run the upkeep as long as the context is open, and a last time when it is left."""
    task = asyncio.create_task(upkeep.run_for_ever(), name="upkeep")
    try:
        yield
    finally:
        upkeep.stop()
        try:
            await asyncio.wait_for(task, _LAST_SECONDS)
        except TimeoutError:
            _log.warning("gave up the last upkeep after %d seconds", _LAST_SECONDS)
