"""The status of a running collector, from its store, its counters and its last day.

At each step the numbers of requests and reports are taken from the counters and the store, and stay
until the next one; a step costs the store a sum over its segments. Invariants: what requests move
is shown as of the last step; and an unreachable store gives a status with a fault and with what was
last known, never an error, because that is when people look.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import importlib.metadata
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import CounterName, Metrics
from hubbub.collector.operations.publishing import Coarse, Publisher
from hubbub.collector.operations.status import (
    Expiry,
    History,
    ServiceStatus,
    Stored,
    Totals,
    expiries,
    hundreds,
    metric_statuses,
    task_statuses,
)
from hubbub.protocol import Registry
from hubbub.reporting import END_CODES, registry_ends
from hubbub.storage import STEPS, MetricVersion, Store, StoreError

_FRESH_SECONDS = 1.0  # probes of many come every few seconds; one of them asks the store
_PATIENCE_SECONDS = 15.0  # more than a store's own limit of a statement, so its error comes first
_MIB = 2**20
"""Sizes are shown in whole ones: a batch moves them by some kilobytes."""

_DIGEST_DIGITS = 12  # 48 bits: two registries of one service differ in them
_VERSION = importlib.metadata.version("hubbub")
_log = logging.getLogger("hubbub.collector.operations.admin")


class Watch:
    """Observes a collector while it runs.

    `in_force`: returns the settings and the registry that are in force; the same object until they
    change.
    """

    def __init__(
        self, in_force: Callable[[], tuple[Settings, Registry]], store: Store, metrics: Metrics
    ) -> None:
        self._in_force = in_force
        self._store = store
        self._metrics = metrics
        self._begin()
        self._publisher = Publisher(metrics)
        self._history = History()
        self._started = dt.datetime.now(dt.UTC)
        self._seconds = in_force()[0].publish_seconds
        self._coarse, self._coarse_slices = Coarse(), Coarse()
        self._stored = Stored()
        self._published_at: dt.datetime | None = None
        self._fault: str | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._known: tuple[object, tuple[Expiry, ...], str] = (None, (), "")

    async def run(self) -> None:
        """Publish at full multiples of publish_seconds of the clock, until cancelled."""
        while True:
            now = time.time()
            due = (now // self._seconds + 1) * self._seconds
            while (now := time.time()) < due:
                await asyncio.sleep(due - now)
            try:
                await self._publish()
            except Exception as error:
                # Without its text, which may quote what is stored.
                _log.error("unexpected %s while looking into the store", type(error).__name__)

    async def _publish(self) -> None:
        self._publisher.step()
        self._published_at = dt.datetime.now(dt.UTC)
        self._history.add(time.monotonic(), Totals.of(self._publisher.exact))
        await self._read_store()
        self._publisher.facts = self._facts()

    async def status(self) -> ServiceStatus:
        """Return how the collector is doing now."""
        _, registry = self._in_force()
        ends, digest = self._of_files()
        await self._ping()
        values, stored = self._publisher.values(), self._stored
        now = dt.datetime.now(dt.UTC)
        commits, answers = (values.histogram(f"{of}_seconds") for of in ("commit", "request"))
        return ServiceStatus(
            at=now,
            started=self._started,
            published_at=self._published_at,
            publish_seconds=self._seconds,
            application=registry.application,
            software=_VERSION,
            registry_digest=digest,
            schema=stored.schema,
            expiries=ends,
            findings=tuple(registry_ends(registry, now.date())),
            unmixed_days=stored.unmixed_days,
            store_kind=self._store.database.dialect,
            store_bytes=stored.size,
            store_free_bytes=stored.free,
            store_fault=self._fault,
            stored_at=stored.at,
            processes=int(values.total("processes")),
            processes_not_reloaded=int(values.total("reload_failing")),
            connections=int(values.total("connections")),
            queue_depth=int(values.total("queue_depth")),
            rates=self._history.rates(),
            requests=tuple(
                (status, reason, int(n)) for (status, reason), n in values.by("requests") if n
            ),
            shed=tuple((labels[0], int(n)) for labels, n in values.by("shed") if n),
            duplicates=int(values.total("duplicates")),
            reports=int(self._publisher.exact.total("reports")),
            commit_p50=commits.quantile(0.5),
            commit_p99=commits.quantile(0.99),
            answer_p50=answers.quantile(0.5),
            answer_p99=answers.quantile(0.99),
            metrics=metric_statuses(registry, stored, values, now.date()),
            upkeep=task_statuses(values),
        )

    def exposition(self) -> tuple[bytes, str]:
        """Return what Prometheus reads, and its media type."""
        return self._publisher.exposition()

    def _begin(self) -> None:
        settings, registry = self._in_force()
        self._metrics.begin(registry, settings.ingest_keys, STEPS)

    def _of_files(self) -> tuple[tuple[Expiry, ...], str]:
        """Return what ends when, and the digest of the registry; files are read once a reload."""
        in_force = self._in_force()
        if self._known[0] is not in_force:
            settings, registry = in_force
            self._begin()
            definitions = [[it.name, it.version, it.definition] for it in registry.values()]
            text = json.dumps(sorted(definitions, key=str), sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]
            self._known = in_force, tuple(expiries(settings)), digest
        return self._known[1:]

    def _facts(self) -> Mapping[CounterName, float]:
        ends, digest = self._of_files()
        stored = self._stored
        build = (_VERSION, stored.schema or "unknown", digest)
        facts = {CounterName("build", build): 1.0}
        facts |= {CounterName("expiry", (it.type, it.name)): it.at.timestamp() for it in ends}
        today = dt.datetime.now(dt.UTC).date()
        codes = [it.code for it in registry_ends(self._in_force()[1], today)]
        facts |= {
            CounterName("registry_findings", (code,)): codes.count(code) for code in END_CODES
        }
        if stored.at is None:
            return facts
        sizes = {"store_size": stored.size, "store_free": stored.free}
        facts |= {
            CounterName(name): float(size) for name, size in sizes.items() if size is not None
        }
        facts |= {CounterName("unmixed_days"): stored.unmixed_days}
        registered = [MetricVersion(it.name, it.version) for it in self._in_force()[1].values()]
        for key, slices in {**dict.fromkeys(registered, 0), **stored.slices}.items():
            facts[CounterName("slices", (key.metric, str(key.version)))] = slices
        return facts

    async def _read_store(self) -> None:
        """Read what the store holds, unless it fails."""
        today = dt.datetime.now(dt.UTC).date()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                declared = await self._store.declared()
                days = await self._store.overview()
                size = await self._store.database.size_bytes()
                unmixed = await self._store.unmixed_days(today)
                slices = await self._store.count_slices(today)
                schema = await self._store.schema()
                free = None
                if (folder := self._store.database.folder) is not None:
                    free = shutil.disk_usage(folder).free // _MIB * _MIB
        except (StoreError, TimeoutError, OSError) as error:
            _log.warning("the store can't be read: %s", _reason(error))
            return
        shown = hundreds(days, today, self._coarse)
        shown_slices = self._coarse_slices({(today, key): n for key, n in slices.items()})
        self._stored = Stored(
            declared,
            shown,
            size // _MIB * _MIB,
            free,
            unmixed,
            {key: n for (_, key), n in shown_slices.items()},
            schema,
            self._published_at,
        )

    async def _ping(self) -> None:
        """See whether the store can be read, once a second whoever asks."""
        async with self._asking:
            if time.monotonic() < self._asked_at + _FRESH_SECONDS:
                return
            self._fault = None
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._store.ping()
            except (StoreError, TimeoutError) as error:
                self._fault = _reason(error)
                _log.warning("the store can't be read: %s", self._fault)
            self._asked_at = time.monotonic()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"store: no answer within {_PATIENCE_SECONDS:g} seconds"
    if isinstance(error, OSError):
        return f"store: its folder can't be reached: {error.strerror}"
    return str(error)
