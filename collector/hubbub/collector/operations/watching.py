"""The status of a running collector, from its store, its counters and its last minutes.

A status costs the store a sum over its segments, and at most once in an upkeep a bounded sample of
the latest reports. Invariant: an unreachable store gives a status with a fault and with what was
last known, never an error, because that is when people look.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import importlib.metadata
import logging
import shutil
import time
from collections.abc import Callable

from hubbub.collector.errors import StoreError
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.sampling import Sampler
from hubbub.collector.operations.status import (
    STEP_SECONDS,
    History,
    Status,
    Stored,
    Totals,
    metric_statuses,
    quarantine_statuses,
    task_statuses,
)
from hubbub.collector.store import Store
from hubbub.protocol.registry import Registry

_FRESH_SECONDS = 1.0
_PATIENCE_SECONDS = 15.0

_log = logging.getLogger("hubbub.collector.operations.admin")


class Watch:
    """Observes a collector while it runs.

    Parameters
    ----------
    registry : callable
        Returns the registry that is in force.
    store : Store
    metrics : Metrics
    seconds : float
        Time between two samples of the latest reports.
    """

    def __init__(
        self,
        registry: Callable[[], Registry],
        store: Store,
        metrics: Metrics,
        seconds: float,
    ) -> None:
        self._registry = registry
        self._store = store
        self._metrics = metrics
        self._history = History()
        self._started = dt.datetime.now(dt.UTC)
        self._seconds = seconds
        self._sampler = Sampler(store, metrics, seconds)
        self._stored = Stored()
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._remember()

    async def watch_for_ever(self) -> None:
        """Remember totals every ten seconds, sample when that is due, until cancelled."""
        looked_at = float("-inf")
        while True:
            try:
                now = time.monotonic()
                # A store that can't be read isn't asked more often than one that can.
                if self._sampler.is_due and now >= looked_at + self._seconds:
                    looked_at = now
                    await self._ask()
            except Exception as error:
                # Without its text, which may quote what is stored.
                _log.error("unexpected %s while looking into the store", type(error).__name__)
            await asyncio.sleep(STEP_SECONDS)
            self._remember()

    def _remember(self) -> None:
        self._history.add(time.monotonic(), Totals.of(self._metrics.snapshot()))

    async def status(self) -> Status:
        """Return how the collector is doing now."""
        registry = self._registry()
        stored = await self._ask()
        values = self._metrics.snapshot()
        now = dt.datetime.now(dt.UTC)
        seconds = values.histogram("commit_seconds")
        return Status(
            at=now,
            started=self._started,
            application=registry.application,
            software=importlib.metadata.version("hubbub"),
            store_kind=self._store.dialect,
            store_bytes=stored.size,
            store_free_bytes=stored.free,
            store_fault=stored.fault,
            stored_at=stored.at,
            processes=int(values.total("processes")),
            processes_not_reloaded=int(values.total("reload_failing")),
            connections=int(values.total("connections")),
            queue_depth=int(values.total("queue_depth")),
            rates=self._history.rates(time.monotonic(), Totals.of(values)),
            requests=tuple(
                (status, reason, int(n)) for (status, reason), n in values.by("requests")
            ),
            shed=tuple((labels[0], int(n)) for labels, n in values.by("shed")),
            duplicates=int(values.total("duplicates")),
            reports=int(values.total("reports")),
            commit_p50=seconds.quantile(0.5),
            commit_p99=seconds.quantile(0.99),
            metrics=metric_statuses(registry, stored, values, now.date()),
            quarantine=quarantine_statuses(stored),
            upkeep=task_statuses(values),
        )

    async def _ask(self) -> Stored:
        """Return what the store holds, as of now, a second ago, or before it failed."""
        # One at a time: many requests at once don't read the store many times at once.
        async with self._asking:
            if time.monotonic() < self._asked_at + _FRESH_SECONDS:
                return self._stored
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    declared = await self._store.declared()
                    days = await self._store.overview()
                    quarantined = await self._store.quarantined()
                    self._metrics.quarantine(sum(one.reports for one in quarantined))
                    size = await self._store.size_bytes()
                    self._metrics.store_size(size)
                    free = None
                    if (folder := self._store.folder) is not None:
                        free = shutil.disk_usage(folder).free
                        self._metrics.store_free(free)
                    await self._sampler.sample(declared, days)
                now = dt.datetime.now(dt.UTC)
                samples = self._sampler.samples
                self._stored = Stored(declared, days, quarantined, samples, size, free, now)
            except StoreError as error:
                self._fail(str(error))
            except TimeoutError:
                self._fail(f"store: no answer within {_PATIENCE_SECONDS:g} seconds")
            except OSError as error:
                self._fail(f"store: its folder can't be reached: {error.strerror}")
            self._asked_at = time.monotonic()
        return self._stored

    def _fail(self, fault: str) -> None:
        _log.warning("the store can't be read: %s", fault)
        self._stored = dataclasses.replace(self._stored, fault=fault)
