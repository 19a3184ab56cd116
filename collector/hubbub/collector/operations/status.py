"""What an operator wants to know of a collector, from its store and its counters.

Pure functions from what was counted and stored to one frozen `ServiceStatus`, which both the page
and /status.json show, so that the two always agree. Rates come from a ring buffer of the totals
that were published: the difference of two by their distance. Invariant: of today's reports of a
metric there are hundreds alone, as `publishing` rounds them.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import MetricValues
from hubbub.collector.operations.publishing import Coarse
from hubbub.protocol import Registry
from hubbub.reporting import Finding
from hubbub.storage import DayCount, Declared, MetricVersion

DAYS_SHOWN = 14  # two weeks: this week beside the last
STEPS_SHOWN = 144
"""A day of steps of ten minutes."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DAY = dt.timedelta(days=1)  # what is valid through a day ends when the next begins
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
"""Tags of DER."""


class Expiry(NamedTuple):
    """The end of something that lets others in."""

    type: str  # "certificate", "ingest_key" or "admin_token"
    name: str  # in the configuration; of a certificate, its file's
    at: dt.datetime  # the first moment at which it isn't good any more


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
    """Events a second."""

    seconds: float  # over how long they were taken: the last step; 0 before there were two
    requests: float  # duplicates are batches; faults are requests that were answered 5xx
    reports: float
    duplicates: float
    shed: float
    faults: float
    recent_reports: tuple[float, ...]  # reports a second in each of the last steps, the latest last


class History:
    """The totals of the last steps; the clock is the caller's."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, Totals]] = deque(maxlen=STEPS_SHOWN + 1)

    def add(self, now: float, totals: Totals) -> None:
        """Remember the totals of a step."""
        self._steps.append((now, totals))

    def rates(self) -> Rates:
        """Return the rates of the last step; all zero as long as there weren't two."""
        rates = [
            (
                end - start,
                Totals(*((n - m) / (end - start) for n, m in zip(later, earlier, strict=True))),
            )
            for (start, earlier), (end, later) in pairwise(self._steps)
        ]
        seconds, last = rates[-1] if rates else (0.0, Totals())
        return Rates(seconds, *last, tuple(step.reports for _, step in rates))


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """What is stored of one metric's version."""

    version: int
    definition: Mapping[str, Any]  # the parameters under which reports were stored
    registered: bool  # whether the registry names this version now
    reports: int
    stored_bytes: int
    first_day: dt.date | None  # of the reports that are stored; None if there are none
    last_day: dt.date | None


@dataclass(frozen=True, slots=True)
class MetricStatus:
    """One metric."""

    name: str
    description: str  # empty if the registry doesn't name the metric any more
    owner: str
    # Reports of each of the last 14 days (UTC), all versions together, the oldest first.
    days: tuple[tuple[dt.date, int], ...]
    reports: int  # all that are stored
    # Reports since the start whose number of set bits is improbable under the mechanism.
    improbable: int
    counted: int  # reports stored since the start
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
class ServiceStatus:
    """The status of a collector."""

    at: dt.datetime
    started: dt.datetime
    # As of when all numbers of requests and reports are; None: none was published yet.
    published_at: dt.datetime | None
    publish_seconds: float  # between two such moments
    application: str
    software: str
    registry_digest: str  # the same for collectors with the same metrics
    schema: str | None  # the version of the store's schema; None: never read yet
    expiries: tuple[Expiry, ...]  # of certificate, keys and tokens
    findings: tuple[Finding, ...]  # what ends in the registry (`hubbub.reporting.findings`)
    unmixed_days: int  # closed days whose reports aren't mixed yet
    store_kind: str
    store_bytes: int | None
    store_free_bytes: int | None  # free on its disk; None: on a server, which watches its own
    store_fault: str | None  # why the store can't be read; what comes from it is then older
    stored_at: dt.datetime | None  # when the store was last read; None: never yet
    processes: int
    # Processes whose last attempt to read registry, keys and certificate again failed.
    processes_not_reloaded: int
    connections: int  # the most of late
    queue_depth: int
    rates: Rates
    # Status, reason and number of all answers since the start.
    requests: tuple[tuple[str, str, int], ...]
    shed: tuple[tuple[str, int], ...]  # reason and number of what was turned away since the start
    duplicates: int  # since the start
    reports: int
    # Upper bounds in seconds, since the start; infinite above the largest bucket.
    commit_p50: float | None
    commit_p99: float | None
    answer_p50: float | None  # the same of answers to reports
    answer_p99: float | None
    metrics: tuple[MetricStatus, ...]
    upkeep: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds, or held when it was last read."""

    declared: Sequence[Declared] = ()  # days as `hundreds` returns them
    days: Sequence[DayCount] = ()
    size: int | None = None  # bytes on disk
    free: int | None = None  # bytes that are free there, if it is a disk of this machine
    unmixed_days: int = 0
    # How many are stored today, in hundreds.
    slices: Mapping[MetricVersion, int] = field(default_factory=dict)
    schema: str | None = None
    at: dt.datetime | None = None  # when all this was read; None: never yet


def metric_statuses(
    registry: Registry, stored: Stored, values: MetricValues, today: dt.date
) -> tuple[MetricStatus, ...]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    versions: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for name, metric in registry.items():
        versions[name][metric.version] = metric.definition
    for declared in stored.declared:
        versions[declared.metric][declared.version] = declared.definition
    statuses = []
    for name in sorted(versions):
        registered = registry.get(name)
        counts = [count for count in stored.days if count.metric == name]
        by_day: dict[dt.date, int] = defaultdict(int)
        for count in counts:
            by_day[count.day] += count.reports
        last_days = (today - dt.timedelta(days=ago) for ago in reversed(range(DAYS_SHOWN)))
        status = MetricStatus(
            name=name,
            description=registered.description if registered else "",
            owner=registered.owner if registered else "",
            days=tuple((day, by_day[day]) for day in last_days),
            reports=sum(count.reports for count in counts),
            improbable=int(values.of("improbable", name)),
            counted=int(sum(n for labels, n in values.by("reports") if labels[0] == name)),
            versions=tuple(
                _version_status(
                    MetricVersion(name, version),
                    definition,
                    registered is not None and registered.version == version,
                    [count for count in counts if count.version == version],
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
) -> VersionStatus:
    days = [count.day for count in counts]
    return VersionStatus(
        version=key.version,
        definition=definition,
        registered=registered,
        reports=sum(count.reports for count in counts),
        stored_bytes=sum(count.bytes for count in counts),
        first_day=min(days, default=None),
        last_day=max(days, default=None),
    )


def hundreds(days: Sequence[DayCount], today: dt.date, coarse: Coarse) -> list[DayCount]:
    """Return what may be shown of stored days: those that are over, and today's in hundreds."""
    of_today = {count[:3]: count.reports for count in days if count.day >= today}
    rounded = coarse(of_today)
    found = []
    for count in days:
        if count.day < today:
            found.append(count)
        elif reports := rounded[count[:3]]:
            size = count.bytes * reports // max(count.reports, 1)
            found.append(count._replace(reports=reports, segments=0, bytes=size))
    return found


def task_statuses(values: MetricValues) -> tuple[TaskStatus, ...]:
    """Describe every task that ever ran."""
    runs = {labels: int(n) for labels, n in values.by("upkeep") if n}
    # The timestamp of a run is set just after its count, so it may still be 0 or the start's.
    succeeded, failed = (
        {
            labels[0]: dt.datetime.fromtimestamp(when, dt.UTC)
            for labels, when in values.by(name)
            if when and (labels[0], result) in runs
        }
        for name, result in (("upkeep_success", "done"), ("upkeep_failure", "failed"))
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


def expiries(settings: Settings) -> list[Expiry]:
    """Return all that ends, the first of each chain of certificates."""
    found = [
        *_last_days("ingest_key", {n: it.expires for n, it in settings.ingest_keys.items()}),
        *_last_days("admin_token", {n: it.expires for n, it in settings.admin_tokens.items()}),
    ]
    if settings.tls_certificate and (ends := certificate_ends(settings.tls_certificate)):
        found.append(Expiry("certificate", settings.tls_certificate.name, min(ends)))
    return found


def _last_days(type_: str, days: dict[str, dt.date | None]) -> Iterator[Expiry]:
    for name, day in days.items():
        if day is not None:
            yield Expiry(type_, name, dt.datetime.combine(day + _DAY, dt.time(), dt.UTC))


def certificate_ends(file: Path) -> list[dt.datetime]:
    """Return when the certificates of a PEM file end; nothing of what can't be read."""
    try:
        text = file.read_text(encoding="ascii")
        return [_not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(text)]
    except (OSError, ValueError, IndexError):
        return []


def _not_after(der: bytes) -> dt.datetime:
    """Return the end of a certificate's validity (RFC 5280, section 4.1).

    Python's ssl tells it of a peer's certificate alone, and that's all of X.509 that is needed.
    """
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)
    tag, _, rest = _element(fields)
    # The serial number, the algorithm and the issuer come before; the version may.
    for _ in range(3 if tag == _VERSION else 2):
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, _, rest = _element(validity)
    tag, moment, _ = _element(rest)
    text = moment.decode("ascii")
    if tag == _UTC_TIME:  # with two digits of the year, of which those up to 49 are after 2000
        text = f"{'20' if text < '5' else '19'}{text}"
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    return tag, data[start : start + length], data[start + length :]
