"""What an operator wants to know of a collector, from its store and its counters.

Pure functions from what was counted and stored to one frozen `Status`, which both the page and
/status.json show, so that the two always agree. Rates come from a ring buffer of totals, one every
ten seconds: the difference of two by their distance.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from hubbub.collector.operations.metrics import MetricValues
from hubbub.collector.operations.sampling import Sample
from hubbub.collector.store import (
    SEALED,
    DayCount,
    Declared,
    MetricVersion,
    QuarantineDay,
    QuarantineKey,
)
from hubbub.collector.store.quarantine import why_quarantined
from hubbub.protocol.records import COHORT_BYTES
from hubbub.protocol.registry import Registry

DAYS_SHOWN = 14
STEP_SECONDS = 10.0
SPAN_SECONDS = 900.0
_RATE_SECONDS = 300.0


class Totals(NamedTuple):
    """Numbers of events up to a moment."""

    requests: float = 0.0
    reports: float = 0.0
    duplicates: float = 0.0
    shed: float = 0.0
    faults: float = 0.0

    @classmethod
    def of(cls, values: MetricValues) -> Totals:
        """Read them from the counters."""
        answers = values.by("requests")
        return cls(
            requests=sum(n for _, n in answers),
            reports=values.total("reports"),
            duplicates=values.total("duplicates"),
            shed=values.total("shed"),
            faults=sum(n for (status, _), n in answers if status.startswith("5")),
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Events a second.

    Attributes
    ----------
    seconds : float
        Over how long they were taken: five minutes, or less soon after the start.
    requests, reports, duplicates, shed, faults : float
        Duplicates are batches; faults are requests that were answered 5xx.
    recent_reports : tuple of float
        Reports a second in steps of ten seconds over the last 15 minutes, the latest last.
    """

    seconds: float
    requests: float
    reports: float
    duplicates: float
    shed: float
    faults: float
    recent_reports: tuple[float, ...]


class History:
    """The totals of the last 15 minutes; the clock is the caller's."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, Totals]] = deque(maxlen=round(SPAN_SECONDS / STEP_SECONDS))

    def add(self, now: float, totals: Totals) -> None:
        """Remember the totals of a moment; to be called every ten seconds."""
        self._steps.append((now, totals))

    def rates(self, now: float, totals: Totals) -> Rates:
        """Return the rates up to now; all zero as long as nothing has been remembered."""
        steps = [*self._steps, (now, totals)]
        since, base = next(step for step in steps if step[0] >= now - _RATE_SECONDS)
        seconds = now - since
        change = (after - before for after, before in zip(totals, base, strict=True))
        rates = Totals(*(n / seconds if seconds else 0.0 for n in change))
        recent = [
            (later.reports - earlier.reports) / (end - start)
            for (start, earlier), (end, later) in pairwise(steps)
            if end - start >= STEP_SECONDS / 2
        ]
        return Rates(seconds, *rates, tuple(recent))


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """What is stored of one metric's version.

    Attributes
    ----------
    version : int
    definition : mapping
        The parameters under which reports were stored.
    registered : bool
        Whether the registry names this version now.
    reports, segments, stored_bytes : int
    first_day, last_day : datetime.date, optional
        Of the reports that are stored; None if there are none.
    sample : Sample, optional
        What the latest reports look like; None without reports.
    """

    version: int
    definition: Mapping[str, Any]
    registered: bool
    reports: int
    segments: int
    stored_bytes: int
    first_day: dt.date | None
    last_day: dt.date | None
    sample: Sample | None


@dataclass(frozen=True, slots=True)
class MetricStatus:
    """One metric.

    Attributes
    ----------
    name : str
    description, owner : str
        Empty if the registry doesn't name the metric any more.
    days : tuple of (datetime.date, int)
        Reports of each of the last 14 days (UTC), all versions together, the oldest first.
    reports : int
        All that are stored.
    improbable : int
        Reports since the start whose number of set bits is improbable under the mechanism.
    improbable_cohorts : tuple of (int, int)
        The cohorts with the most of these, and how many they had.
    counted : int
        Reports stored since the start.
    versions : tuple of VersionStatus
    """

    name: str
    description: str
    owner: str
    days: tuple[tuple[dt.date, int], ...]
    reports: int
    improbable: int
    improbable_cohorts: tuple[tuple[int, int], ...]
    counted: int
    versions: tuple[VersionStatus, ...]


@dataclass(frozen=True, slots=True)
class QuarantineStatus:
    """Reports that are kept until the registry knows them.

    Attributes
    ----------
    metric : str
    version, bits_bytes : int
        As clients sent them.
    reports : int
    first_day, last_day : datetime.date
        On which they came (UTC).
    reason : str
        What keeps them there.
    """

    metric: str
    version: int
    bits_bytes: int
    reports: int
    first_day: dt.date
    last_day: dt.date
    reason: str


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task of the upkeep since the start."""

    task: str
    runs: int
    failures: int
    last_success: dt.datetime | None
    last_failure: dt.datetime | None

    @property
    def fails(self) -> bool:
        """Whether the last run failed."""
        if self.last_failure is None:
            return False
        return self.last_success is None or self.last_failure > self.last_success


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a collector.

    Attributes
    ----------
    at : datetime.datetime
    started : datetime.datetime
        Since when the counters count.
    application, software : str
    store_kind : str
    store_bytes : int, optional
    store_free_bytes : int, optional
        Free on its disk; None: on a server, which watches its own.
    store_fault : str, optional
        Why the store can't be read; what comes from it is then older.
    stored_at : datetime.datetime, optional
        When the store was last read; None: never yet.
    processes_not_reloaded : int
        Processes whose last attempt to read registry, keys and certificate again failed.
    requests : tuple of (str, str, int)
        Status, reason and number of all answers since the start.
    shed : tuple of (str, int)
        Reason and number of what was turned away since the start.
    duplicates, reports : int
        Since the start.
    commit_p50, commit_p99 : float, optional
        Upper bounds in seconds, since the start; infinite above the largest bucket.
    """

    at: dt.datetime
    started: dt.datetime
    application: str
    software: str
    store_kind: str
    store_bytes: int | None
    store_free_bytes: int | None
    store_fault: str | None
    stored_at: dt.datetime | None
    processes: int
    processes_not_reloaded: int
    connections: int
    queue_depth: int
    rates: Rates
    requests: tuple[tuple[str, str, int], ...]
    shed: tuple[tuple[str, int], ...]
    duplicates: int
    reports: int
    commit_p50: float | None
    commit_p99: float | None
    metrics: tuple[MetricStatus, ...]
    quarantine: tuple[QuarantineStatus, ...]
    upkeep: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds, or held before it failed.

    Attributes
    ----------
    declared, days, quarantined, samples
    size : int, optional
        Bytes on disk.
    free : int, optional
        Bytes that are free there, if it is a disk of this machine.
    at : datetime.datetime, optional
        When all this was read; None: never yet.
    fault : str, optional
        Why it couldn't be read after that.
    """

    declared: Sequence[Declared] = ()
    days: Sequence[DayCount] = ()
    quarantined: Sequence[QuarantineDay] = ()
    samples: Mapping[MetricVersion, Sample] = field(default_factory=dict)
    size: int | None = None
    free: int | None = None
    at: dt.datetime | None = None
    fault: str | None = None


def metric_statuses(
    registry: Registry, stored: Stored, values: MetricValues, today: dt.date
) -> tuple[MetricStatus, ...]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    versions: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for name, metric in registry.items():
        versions[name][metric.version] = metric.definition
    sealed = {count.version for count in stored.days if count.metric == SEALED}
    for declared in stored.declared:
        if declared.metric == SEALED and declared.version not in sealed:
            continue
        versions[declared.metric][declared.version] = declared.definition
    statuses = []
    for name in sorted(versions):
        registered = registry.get(name)
        counts = [count for count in stored.days if count.metric == name]
        improbable = _of_metric(values, "improbable", name)
        by_day: dict[dt.date, int] = defaultdict(int)
        for count in counts:
            by_day[count.day] += count.reports
        last_days = (today - dt.timedelta(days=ago) for ago in reversed(range(DAYS_SHOWN)))
        most_improbable = sorted(improbable.items(), key=lambda item: -item[1])[:3]
        status = MetricStatus(
            name=name,
            description=registered.description if registered else "",
            owner=registered.owner if registered else "",
            days=tuple((day, by_day[day]) for day in last_days),
            reports=sum(count.reports for count in counts),
            improbable=sum(improbable.values()),
            improbable_cohorts=tuple(
                (int(cohort), n) for cohort, n in most_improbable if cohort.isdigit()
            ),
            counted=sum(_of_metric(values, "reports", name).values()),
            versions=tuple(
                _version_status(
                    MetricVersion(name, version),
                    definition,
                    registered is not None and registered.version == version,
                    [count for count in counts if count.version == version],
                    stored.samples.get(MetricVersion(name, version)),
                )
                for version, definition in sorted(versions[name].items(), reverse=True)
            ),
        )
        statuses.append(status)
    return tuple(statuses)


def _version_status(
    key: MetricVersion,
    definition: Mapping[str, Any],
    registered: bool,
    counts: Sequence[DayCount],
    sample: Sample | None,
) -> VersionStatus:
    days = [count.day for count in counts]
    return VersionStatus(
        version=key.version,
        definition=definition,
        registered=registered,
        reports=sum(count.reports for count in counts),
        segments=sum(count.segments for count in counts),
        stored_bytes=sum(count.bytes for count in counts),
        first_day=min(days, default=None),
        last_day=max(days, default=None),
        sample=sample,
    )


def quarantine_statuses(stored: Stored) -> tuple[QuarantineStatus, ...]:
    """Describe what is in quarantine, by metric, version and width."""
    days: dict[QuarantineKey, list[QuarantineDay]] = defaultdict(list)
    for one in stored.quarantined:
        days[one.key].append(one)
    return tuple(
        QuarantineStatus(
            key.metric,
            key.version,
            key.width - COHORT_BYTES,
            sum(one.reports for one in of_key),
            min(one.day for one in of_key),
            max(one.day for one in of_key),
            why_quarantined(key, stored.declared),
        )
        for key, of_key in sorted(days.items())
    )


def _of_metric(values: MetricValues, family: str, metric: str) -> dict[str, int]:
    """Return a metric's numbers by the other label."""
    return {labels[1]: int(n) for labels, n in values.by(family) if labels[0] == metric}


def task_statuses(values: MetricValues) -> tuple[TaskStatus, ...]:
    """Describe every task that ever ran."""
    runs = {labels: int(n) for labels, n in values.by("upkeep")}
    # The timestamp of a run is set just after its count, so it may still be 0.
    succeeded, failed = (
        {
            labels[0]: dt.datetime.fromtimestamp(when, dt.UTC)
            for labels, when in values.by(name)
            if when
        }
        for name in ("upkeep_success", "upkeep_failure")
    )
    return tuple(
        TaskStatus(
            task,
            runs.get((task, "done"), 0) + runs.get((task, "failed"), 0),
            runs.get((task, "failed"), 0),
            succeeded.get(task),
            failed.get(task),
        )
        for task in sorted({labels[0] for labels in runs})
    )
