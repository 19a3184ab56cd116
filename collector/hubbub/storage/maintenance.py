"""The periodic maintenance of a store: merging, counting, forgetting, mixing, and tidying up.

The batches of a quiet minute stay apart until they are merged with others, and those of a minute
until their day is mixed, so this is part of what hides which reports came together, and not only
housekeeping; merging therefore comes first, and mixing soon lets it have its turn. Invariants:
every step may run in several processes at once, along with appends and readers, and may fail and be
repeated; a step that fails keeps no other from running; but nothing is deleted because of its age
on the word of a clock that has jumped.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from hubbub.storage.errors import StoreError
from hubbub.storage.store import Store

_LAST_SECONDS = 10
"""How long the last run may take, because the service is being stopped."""

_MIXING_SECONDS = 30
"""From then on a run begins to mix no other day: today's batches wait to be merged meanwhile."""

JUMP = dt.timedelta(days=7)
"""A clock that is further than this from the last upkeep counts as wrong until confirmed."""

_log = logging.getLogger("hubbub.collector")

_Done = TypeVar("_Done")


class MaintenanceResult(NamedTuple):
    """The results of a run."""

    merged: int = 0  # segments that were replaced by larger ones
    counted: int = 0  # reports that were replaced by their day's counts because of their age
    forgotten: int = 0  # days whose batches' ids are no longer known
    dropped: int = 0  # reports that were deleted because of their age, or whose counts were
    mixed: int = 0  # reports that were mixed with all others of their day, as it is over
    # Errors by step; the other steps were done.
    faults: Mapping[str, str] = MappingProxyType({})


STEPS = (
    *("slices", "merge", "prepare", "check", "count", "forget", "drop"),
    *("mix", "sort", "tidy"),
)
"""The names of the steps, in their order."""


class Maintenance:
    """Takes care of one store.

    `deduplication_days`: how long the id of a batch is known; until then it is counted once however
    often it comes. `retention_days`: how long reports, or their counts, are kept, or None to keep
    them for ever. `seconds`: time between two runs of `run`.
    `observe`: called with the name of each of `STEPS` that was tried and whether it succeeded.
    `report_days`: how long single reports are kept, of which then only their day's counts stay;
    None: as long as counts.
    """

    def __init__(
        self,
        store: Store,
        deduplication_days: int,
        retention_days: int | None,
        seconds: float,
        observe: Callable[[str, bool], None] = lambda _step, _succeeded: None,
        report_days: int | None = None,
    ) -> None:
        self._store = store
        self._deduplication_days = deduplication_days
        self._retention_days = retention_days
        self._report_days = report_days
        self._seconds = seconds
        self._observe = observe
        self._stopping = asyncio.Event()
        self._done_on: dict[str, dt.date] = {}  # the day on which a step was last done

    async def run_once(self, today: dt.date, *, trust_clock: bool = False) -> MaintenanceResult:
        """Run all steps; days are counted back from `today`.

        Unless the day passes the step "check", the steps that delete for age are left out, and the
        one that closes days.

        `trust_clock`: believe that it is this day, however long ago the last upkeep was.
        """
        store, faults = self._store, dict[str, str]()

        async def step(name: str, work: Awaitable[_Done]) -> _Done | None:
            try:
                done = await work
            except Exception as error:
                # The text of other errors may quote stored data.
                faults[name] = str(error) if isinstance(error, StoreError) else type(error).__name__
                self._observe(name, False)
                return None
            self._observe(name, True)
            return done

        # First: what is merged is then of the slices that stay.
        await step("slices", self._once_a_day("slices", today, store.pool_slices, 0))
        merged = await step("merge", store.segments.merge())
        await step("prepare", store.database.prepare(today + dt.timedelta(days=1)))
        await step("check", self._check_clock(today, trust_clock=trust_clock))
        counted = forgotten = dropped = None
        is_clock_right = "check" not in faults
        if is_clock_right:
            count = store.counts.count_reports
            counted = await step(
                "count", self._once_a_day("count", today, count, self._report_days)
            )
            oldest = today - dt.timedelta(days=self._deduplication_days)
            forgotten = await step("forget", store.database.forget(oldest))
            drop = self._once_a_day("drop", today, store.drop_reports, self._retention_days)
            dropped = await step("drop", drop)
        until = time.monotonic() + _MIXING_SECONDS
        mixed = await step(
            "mix",
            store.reshuffle(today, lambda: self._stopping.is_set() or time.monotonic() > until),
        )
        if is_clock_right:
            await step("sort", store.database.sort_closed(today))
        await step("tidy", store.database.reclaim_space())
        return MaintenanceResult(
            merged or 0, counted or 0, forgotten or 0, dropped or 0, mixed or 0, faults
        )

    async def _once_a_day(
        self,
        name: str,
        today: dt.date,
        work: Callable[[dt.date], Awaitable[int]],
        age: int | None,
    ) -> int:
        """Do what concerns days before a limit, unless it was done today, or there is no limit."""
        if age is None or self._done_on.get(name) == today:
            return 0
        done = await work(today - dt.timedelta(days=age))
        self._done_on[name] = today
        return done

    async def _check_clock(self, today: dt.date, *, trust_clock: bool) -> None:
        """Remember that this is a day of upkeep, unless it is far from the last one.

        A wrong clock dates whatever is stored meanwhile, so only the last upkeep can show it.

        Raises `StoreError` if it may not be this day.
        """
        if today == self._done_on.get("check") and not trust_clock:
            return
        last = await self._store.upkeep_day()
        if last is not None and abs(today - last) > JUMP and not trust_clock:
            raise StoreError(
                f"clock: it is {today}, but the last upkeep was on {last}, so nothing was deleted "
                "for its age; if the clock is right, and the service was just stopped for long, "
                "say so: hubbub-collector maintain --trust-clock"
            )
        if last is None or trust_clock or today > last:
            await self._store.set_upkeep_day(today)
        self._done_on["check"] = today

    async def run(self) -> None:
        """Run at once, every some seconds, and a last time when stopped; log what goes wrong."""
        is_last = False
        while not is_last:
            is_last = self._stopping.is_set()
            result = await self.run_once(dt.datetime.now(dt.UTC).date())
            for step, fault in result.faults.items():
                _log.error("upkeep failed to %s and will try again: %s", step, fault)
            if not is_last:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._seconds)

    def stop(self) -> None:
        """Let `run` run a last time and return."""
        self._stopping.set()


@asynccontextmanager
async def running_maintenance(maintenance: Maintenance) -> AsyncIterator[None]:
    """Run maintenance as long as the context is open, and a last time when it is left."""
    task = asyncio.create_task(maintenance.run(), name="maintenance")
    try:
        yield
    finally:
        maintenance.stop()
        try:
            await asyncio.wait_for(task, _LAST_SECONDS)
        except TimeoutError:
            _log.warning("gave up the last upkeep after %d seconds", _LAST_SECONDS)
