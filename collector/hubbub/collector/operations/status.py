"""What an operator wants to know of a collector, from its store and its counters.

Pure functions from what was counted and stored to one frozen `Status`, which both the page and
/status.json show, so that the two always agree.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.collector.operations.history import Rates
from hubbub.collector.operations.metric_families import MetricValues
from hubbub.collector.operations.sampling import Sample
from hubbub.collector.store import DayCount, Declared, MetricVersion
from hubbub.protocol.registry import Registry

DAYS_SHOWN = 14


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
    store_fault : str, optional
        Why the store can't be read; what comes from it is then older.
    stored_at : datetime.datetime, optional
        When the store was last read; None: never yet.
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
    store_fault: str | None
    stored_at: dt.datetime | None
    processes: int
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
    upkeep: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds, or held before it failed.

    Attributes
    ----------
    declared, days, samples
    size : int, optional
        Bytes on disk.
    at : datetime.datetime, optional
        When all this was read; None: never yet.
    fault : str, optional
        Why it couldn't be read after that.
    """

    declared: Sequence[Declared] = ()
    days: Sequence[DayCount] = ()
    samples: Mapping[MetricVersion, Sample] = field(default_factory=dict)
    size: int | None = None
    at: dt.datetime | None = None
    fault: str | None = None


def metric_statuses(
    registry: Registry, stored: Stored, values: MetricValues, today: dt.date
) -> tuple[MetricStatus, ...]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    versions: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for name, metric in registry.items():
        versions[name][metric.version] = metric.definition
    for declared in stored.declared:
        versions[declared.metric][declared.version] = declared.definition
    return tuple(
        _metric_status(name, versions[name], registry, stored, values, today)
        for name in sorted(versions)
    )


def _metric_status(
    name: str,
    definitions: Mapping[int, Mapping[str, Any]],
    registry: Registry,
    stored: Stored,
    values: MetricValues,
    today: dt.date,
) -> MetricStatus:
    registered = registry.get(name)
    counts = [count for count in stored.days if count.metric == name]
    improbable = _of_metric(values, "improbable", name)
    by_day: dict[dt.date, int] = defaultdict(int)
    for count in counts:
        by_day[count.day] += count.reports
    last_days = (today - dt.timedelta(days=ago) for ago in reversed(range(DAYS_SHOWN)))
    return MetricStatus(
        name=name,
        description=registered.description if registered else "",
        owner=registered.owner if registered else "",
        days=tuple((day, by_day[day]) for day in last_days),
        reports=sum(count.reports for count in counts),
        improbable=sum(improbable.values()),
        improbable_cohorts=tuple(
            (int(cohort), n)
            for cohort, n in sorted(improbable.items(), key=lambda item: -item[1])[:3]
            if cohort.isdigit()
        ),
        counted=sum(_of_metric(values, "reports", name).values()),
        versions=tuple(
            _version_status(
                MetricVersion(name, version),
                definitions[version],
                registered is not None and registered.version == version,
                [count for count in counts if count.version == version],
                stored.samples.get(MetricVersion(name, version)),
            )
            for version in sorted(definitions, reverse=True)
        ),
    )


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
