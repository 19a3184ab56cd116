"""Publish numbers of requests at full ten minutes only, and rounded.

Whoever reads the admin listener may look every second and keep for years what is there, send
batches too, and know when somebody's request came from elsewhere. So nothing shows within
`publish_seconds` when a batch came, and reports by metric are in hundreds that are rounded at
random: what a batch adds shows at the next step with a probability of its reports of that metric
over a hundred, whatever else was sent. Invariants: all collectors publish at the same moments of
the clock, and counters begin with the first of them after the start, so that neither restarts nor
differences show less than a whole step; and an unreachable store gives a status with a fault and
with what was last known, never an error, because that is when people look.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import importlib.metadata
import json
import logging
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import FAMILIES, PREFIX, Metrics, MetricValues
from hubbub.protocol import Registry
from hubbub.reporting import END_CODES, registry_ends
from hubbub.storage import (
    SCHEMA_VERSION,
    STEPS,
    DayCount,
    Declared,
    MetricVersion,
    Store,
    StoreError,
)

HUNDRED = 100
"""Reports by metric are published in multiples of this."""

_LIVE = "reload_failing"
"""Published exactly, as no request moves it. Requests do move how long an upkeep takes."""

_SINCE_START = "upkeep_runs"
"""Counted from the start on, since they reveal nothing of requests."""
_COUNTED = {name for name, it in FAMILIES.items() if it.type in {"counter", "histogram"}}
_COUNTED -= {_SINCE_START}

_STARTED = "upkeep_last_success_timestamp_seconds"
"""Times that begin with that of the start instead of 0."""

_OF_CONNECTIONS = "process_open_fds"
"""Each connection is an open file, so this would reveal the moment."""

_PATIENCE_SECONDS = 15.0  # more than a store's own limit of a statement, so its error comes first
_MIB = 2**20
"""Sizes are shown in whole ones: a batch moves them by some kilobytes."""

_DAYS_SHOWN = 14  # two weeks: this week and the last
_DAY = dt.timedelta(days=1)  # what is valid through a day ends when the next begins

_DIGEST_DIGITS = 12  # 48 bits: two registries of one service differ in them
_VERSION = importlib.metadata.version("hubbub")
_log = logging.getLogger("hubbub.collector.operations.admin")
_Key = TypeVar("_Key", bound=Hashable)


class RoundedCounter:
    """Rounds numbers of reports to hundreds, at random, so that they are right on average.

    A number is shown as it was, plus the hundreds that it lacks, plus one more with the
    probability of what is left, over a hundred. So r reports move what is shown with a probability
    of at most r/100 at a step; otherwise it doesn't show that they were there, nor later that it
    was then. What is shown is always less than a hundred off.

    `chance`: returns random numbers in [0, 1); the operating system's if not given.
    """

    def __init__(self, chance: Callable[[], float] | None = None) -> None:
        self._chance = chance or secrets.SystemRandom().random
        self._shown: Mapping[Any, int] = {}

    def __call__(self, numbers: Mapping[_Key, float]) -> dict[_Key, int]:
        """Return what is to be shown of these numbers from now on; others are forgotten."""
        shown = {key: self._move(self._shown.get(key, 0), int(n)) for key, n in numbers.items()}
        self._shown = shown
        return shown

    def _move(self, shown: int, number: int) -> int:
        if number < shown:  # some were deleted, or more are shown than there are
            return shown - (shown - number) // HUNDRED * HUNDRED
        hundreds, rest = divmod(number - shown, HUNDRED)
        return shown + HUNDRED * (hundreds + (self._chance() < rest / HUNDRED))


class Publisher:
    """Publishes the numbers of all processes of a collector; one process does it for all.

    `facts`: numbers that aren't counted, such as the size of the store; set them at a step.
    `exact`: the numbers of the last step before reports by metric were rounded, for sums over
    metrics. `recent`: by how much these moved at the last step.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.facts: Mapping[tuple[str, ...], float] = {}
        self._metrics = metrics
        self._coarse = RoundedCounter()
        self._base: MetricValues | None = None
        self._processes: list[Metric] = []
        self.recent = MetricValues()
        self._published = self.exact = MetricValues(
            (name, number if name[0] == _STARTED else 0.0)
            for name, number in metrics.snapshot().items()
            if len(name) == 1 or name in metrics.begun
        )

    def step(self) -> None:
        """Publish what was counted since the first step."""
        numbers = self._metrics.snapshot()
        if self._base is None:
            self._base = numbers
        before = self.exact
        self.exact = MetricValues(
            (name, number - self._base.of(*name) if name[0] in _COUNTED else number)
            for name, number in numbers.items()
        )
        self.recent = MetricValues((name, n - before.of(*name)) for name, n in self.exact.items())
        by_metric = {name: n for name, n in self.exact.items() if name[0] == "reports"}
        # That there is a number of a metric, or of a reason, would show that there was one, unless
        # there always is.
        self._published = MetricValues(
            (name, number)
            for name, number in {**self.exact, **self._coarse(by_metric)}.items()
            if number or len(name) == 1 or name in self._metrics.begun
        )
        of_process = ProcessCollector(registry=CollectorRegistry(auto_describe=False))
        self._processes = [it for it in of_process.collect() if it.name != _OF_CONNECTIONS]

    def values(self) -> MetricValues:
        """Return what is published now."""
        numbers = self._metrics.snapshot()
        live = {name: number for name, number in numbers.items() if name[0] == _LIVE}
        return MetricValues({**self._published, **live, **self.facts})

    def exposition(self) -> tuple[bytes, str]:
        """Return the same in Prometheus' format, and its media type."""
        return generate_latest(self), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """Yield the same in the form of prometheus_client."""
        values = self.values()
        for name, family in FAMILIES.items():
            exposed = PREFIX + name
            if family.type == "histogram":
                histogram = HistogramMetricFamily(exposed, family.help)
                histogram.add_metric([], values.buckets(name), values.of(name, "sum"))
                yield histogram
                continue
            make = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            simple = make(exposed, family.help, labels=family.labels)
            for labels, number in values.by(name):
                simple.add_metric(labels, number)
            yield simple
        yield from self._processes


class Expiry(NamedTuple):
    """The end of something that lets others in."""

    type: str  # "ingest_key" or "admin_token"
    name: str  # in the configuration
    at: dt.datetime  # the first moment at which it isn't good any more


class Watch:
    """Observes a collector while it runs; a step costs the store a sum over its segments.

    `in_force`: returns the settings and the registry that are in force. `publisher`: what
    Prometheus reads.
    """

    def __init__(
        self, in_force: Callable[[], tuple[Settings, Registry]], store: Store, metrics: Metrics
    ) -> None:
        self._in_force = in_force
        self._store = store
        self._metrics = metrics
        self._begin()
        self.publisher = Publisher(metrics)
        self._started = dt.datetime.now(dt.UTC)
        self._seconds = in_force()[0].publish_seconds
        self._coarse, self._coarse_slices = RoundedCounter(), RoundedCounter()
        self._declared: Sequence[Declared] = ()
        self._days: Sequence[DayCount] = ()  # today's in hundreds
        self._slices: Mapping[MetricVersion, int] = {}  # of today, in hundreds
        self._stored: dict[str, Any] = {
            "unmixed_days": 0,
            "store_bytes": None,
            "store_free_bytes": None,  # None: on a server, which watches its own disk
            "stored_at": None,  # when all this was read
        }
        self._published_at: dt.datetime | None = None
        self._fault: str | None = None

    async def run(self) -> None:
        """Publish at full multiples of publish_seconds of the clock, until cancelled."""
        while True:
            now = time.time()
            due = (now // self._seconds + 1) * self._seconds
            while (now := time.time()) < due:
                await asyncio.sleep(due - now)
            try:
                self.publisher.step()
                self._published_at = dt.datetime.now(dt.UTC)
                await _fault_of(self._read_store())
                self.publisher.facts = self._facts()
            except Exception as error:
                # Without its text, which may quote what is stored.
                _log.error("unexpected %s while looking into the store", type(error).__name__)

    async def status(self) -> dict[str, Any]:
        """Return how the collector is doing now: what the page and /status.json show."""
        settings, registry = self._begin()
        self._fault = await _fault_of(self._store.ping())
        publisher, values = self.publisher, self.publisher.values()
        now = dt.datetime.now(dt.UTC)
        faults = sum(n for (code, _), n in publisher.recent.by("requests") if code.startswith("5"))
        return {
            "at": now,
            "started": self._started,
            "published_at": self._published_at,  # None: nothing was published yet
            "publish_seconds": self._seconds,
            "application": registry.application,
            "software": _VERSION,
            "registry_digest": _digest(registry),  # the same for collectors with the same metrics
            "schema": SCHEMA_VERSION,
            "expiries": list(expiries(settings)),
            "findings": registry_ends(registry, now.date()),
            **self._stored,
            "store_kind": self._store.database.dialect,
            "store_fault": self._fault,  # why it can't be read; what comes from it is then older
            "processes_not_reloaded": int(values.total("reload_failing")),
            "recent": {  # in the last publish_seconds
                "requests": int(publisher.recent.total("requests")),
                "reports": int(publisher.recent.total("reports")),
                "shed": int(publisher.recent.total("shed")),
                "faults": int(faults),
            },
            # All of the following since the start.
            "requests": [(*names, int(n)) for names, n in values.by("requests") if n],
            "shed": [(reason, int(n)) for (reason,), n in values.by("shed") if n],
            "reports": int(publisher.exact.total("reports")),
            "metrics": metric_statuses(registry, self._declared, self._days, values, now.date()),
            "upkeep": task_statuses(values, publisher.recent),
        }

    def _begin(self) -> tuple[Settings, Registry]:
        """Return what is in force, whose series begin."""
        settings, registry = self._in_force()
        self._metrics.begin(registry, settings.ingest_keys, STEPS)
        return settings, registry

    def _facts(self) -> dict[tuple[str, ...], float]:
        settings, registry = self._begin()
        ends = expiries(settings)
        codes = [it.code for it in registry_ends(registry, dt.datetime.now(dt.UTC).date())]
        facts: dict[tuple[str, ...], float] = {
            ("build_info", _VERSION, SCHEMA_VERSION, _digest(registry)): 1.0,
            **{("expiry_timestamp_seconds", it.type, it.name): it.at.timestamp() for it in ends},
            **{("registry_findings", code): codes.count(code) for code in END_CODES},
        }
        stored = self._stored
        if stored["stored_at"] is None:
            return facts
        facts["unmixed_days",] = stored["unmixed_days"]
        facts["store_size_bytes",] = stored["store_bytes"]
        if stored["store_free_bytes"] is not None:
            facts["store_free_bytes",] = stored["store_free_bytes"]
        registered = [MetricVersion(it.name, it.version) for it in registry.values()]
        for key, slices in {**dict.fromkeys(registered, 0), **self._slices}.items():
            facts["slices", key.metric, str(key.version)] = slices
        return facts

    async def _read_store(self) -> None:
        store, today = self._store, dt.datetime.now(dt.UTC).date()
        declared, days = await store.declared(), await store.overview()
        folder = store.database.folder
        stored = {
            "unmixed_days": await store.unmixed_days(today),
            "store_bytes": await store.database.size_bytes() // _MIB * _MIB,
            "store_free_bytes": folder and shutil.disk_usage(folder).free // _MIB * _MIB,
            "stored_at": self._published_at,
        }
        slices = await store.count_slices(today)
        # On another day the same version is another number, which begins with 0.
        rounded = self._coarse_slices({(today, key): n for key, n in slices.items()})
        self._slices = {key: n for (_, key), n in rounded.items()}
        self._declared, self._days = declared, _in_hundreds(days, today, self._coarse)
        self._stored = stored


def _digest(registry: Registry) -> str:
    definitions = [[it.name, it.version, it.definition] for it in registry.values()]
    text = json.dumps(sorted(definitions, key=str), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


async def _fault_of(reading: Awaitable[None]) -> str | None:
    """Return why the store can't be read; None if it can."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await reading
    except TimeoutError:
        fault = f"store: no answer within {_PATIENCE_SECONDS:g} seconds"
    except OSError as error:
        fault = f"store: its folder can't be reached: {error.strerror}"
    except StoreError as error:
        fault = str(error)
    else:
        return None
    _log.warning("the store can't be read: %s", fault)
    return fault


def _in_hundreds(
    days: Sequence[DayCount], today: dt.date, coarse: RoundedCounter
) -> list[DayCount]:
    """Return what may be shown of stored days: those that are over, and today's in hundreds."""
    shown = [count for count in days if count.day < today]
    of_today = {count[:3]: count for count in days if count.day >= today}
    for key, reports in coarse({key: count.reports for key, count in of_today.items()}).items():
        if reports:
            count = of_today[key]
            size = count.bytes * reports // max(count.reports, 1)
            shown.append(count._replace(reports=reports, segments=0, bytes=size))
    return shown


def metric_statuses(
    registry: Registry,
    declared: Sequence[Declared],
    stored: Sequence[DayCount],
    values: MetricValues,
    today: dt.date,
) -> list[dict[str, Any]]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    definitions = {(it.metric, it.version): it.definition for it in declared}
    for metric in registry.values():
        definitions.setdefault((metric.name, metric.version), metric.definition)
    last_days = [today - dt.timedelta(days=ago) for ago in reversed(range(_DAYS_SHOWN))]
    statuses = []
    for name in sorted({name for name, _ in definitions}):
        registered = registry.get(name)
        of_metric = [count for count in stored if count.metric == name]
        versions: list[dict[str, Any]] = []
        for version in sorted((v for it, v in definitions if it == name), reverse=True):
            counts = [count for count in of_metric if count.version == version]
            days = [count.day for count in counts]
            versions.append(
                {
                    "version": version,
                    "definition": definitions[name, version],
                    "registered": registered is not None and registered.version == version,
                    "reports": sum(count.reports for count in counts),
                    "stored_bytes": sum(count.bytes for count in counts),
                    "first_day": min(days, default=None),
                    "last_day": max(days, default=None),
                }
            )
        by_day = [(day, sum(it.reports for it in of_metric if it.day == day)) for day in last_days]
        statuses.append(
            {
                "name": name,
                "days": by_day,  # all versions together, the oldest first
                "reports": sum(version["reports"] for version in versions),
                # Since the start, as is the next: reports with an improbable number of set bits.
                "improbable": int(values.of("improbable_reports", name)),
                "counted": int(sum(n for names, n in values.by("reports") if names[0] == name)),
                "versions": versions,
            }
        )
    return statuses


def task_statuses(values: MetricValues, recent: MetricValues) -> list[dict[str, Any]]:
    """Describe every task of the upkeep that ran since the start."""
    runs = {names: int(n) for names, n in values.by("upkeep_runs") if n}
    statuses = []
    for task in sorted({task for task, _ in runs}):
        # The timestamp of a run is set just after its count, so it may still be the start's.
        at = values.of("upkeep_last_success_timestamp_seconds", task)
        succeeded = runs.get((task, "done"), 0)
        failed = runs.get((task, "failed"), 0)
        statuses.append(
            {
                "task": task,
                "runs": succeeded + failed,
                "failures": failed,
                "recent_failures": int(recent.of("upkeep_runs", task, "failed")),
                "last_success": dt.datetime.fromtimestamp(at, dt.UTC) if succeeded else None,
            }
        )
    return statuses


def expiries(settings: Settings) -> Iterator[Expiry]:
    """Yield when keys and tokens end."""
    days = [("ingest_key", name, it.expires) for name, it in settings.ingest_keys.items()]
    days += [("admin_token", name, it.expires) for name, it in settings.admin_tokens.items()]
    for kind, name, day in days:
        if day:
            yield Expiry(kind, name, dt.datetime.combine(day + _DAY, dt.time(), dt.UTC))
