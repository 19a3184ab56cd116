"""A collector's state for its operator, and the page that shows it.

Pure functions from what was counted and stored to one frozen `ServiceStatus`, which both the page
and /status.json show, so that the two always agree. The page is HTML and inline SVG, without
scripts or anything from other servers. Invariants: of today's reports of a metric there are
hundreds alone, as `publishing` rounds them; every value on the page is escaped (by the template
engine), and the content security policy allows one style sheet by its hash and nothing else.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import importlib.resources
import math
import re
import ssl
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import MetricValues
from hubbub.protocol import Registry, counted
from hubbub.reporting import Finding
from hubbub.storage import DayCount, Declared, MetricVersion

_DAYS_SHOWN = 14  # two weeks: this week and the last
_STEPS_SHOWN = 144
"""A day of steps of ten minutes."""
_TOLD_BEFORE = dt.timedelta(days=14)
"""Time to get a new certificate or key and to bring it to those who need it."""
_DAY = dt.timedelta(days=1)  # what is valid through a day ends when the next begins


class Expiry(NamedTuple):
    """The end of something that lets others in."""

    type: str  # "certificate", "ingest_key" or "admin_token"
    name: str  # in the configuration; of a certificate, its file's
    at: dt.datetime  # the first moment at which it isn't good any more


@dataclass(frozen=True, slots=True)
class Rates:
    """Events a second."""

    seconds: float = 0.0  # over how long they were taken: the last step; 0 before there were two
    requests: float = 0.0
    reports: float = 0.0
    duplicates: float = 0.0  # batches
    shed: float = 0.0
    faults: float = 0.0  # requests that were answered 5xx
    recent_reports: tuple[float, ...] = ()  # reports a second in each of the last steps


class History:
    """The totals of the last steps; the clock is the caller's."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, ...]] = deque(maxlen=_STEPS_SHOWN + 1)

    def add(self, now: float, values: MetricValues) -> None:
        """Remember the totals of a step."""
        faults = sum(n for (status, _), n in values.by("requests") if status.startswith("5"))
        totals = map(values.total, ("requests", "reports", "duplicate_batches", "shed"))
        self._steps.append((now, *totals, faults))

    def rates(self) -> Rates:
        """Return the rates of the last step; all zero as long as there weren't two."""
        rates = []
        for earlier, later in pairwise(self._steps):
            seconds, *more = (n - m for n, m in zip(later, earlier, strict=True))
            requests, reports, duplicates, shed, faults = (n / seconds for n in more)
            rates.append(Rates(seconds, requests, reports, duplicates, shed, faults))
        last = rates[-1] if rates else Rates()
        return replace(last, recent_reports=tuple(step.reports for step in rates))


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The stored reports of one metric's version."""

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
    # Time of all numbers of requests and reports; None: none was published yet.
    published_at: dt.datetime | None
    publish_seconds: float  # between two such moments
    application: str
    software: str
    registry_digest: str  # the same for collectors with the same metrics
    schema: str  # the version of the store's schema
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
    """The store's contents, now or when it was last read."""

    declared: Sequence[Declared] = ()
    days: Sequence[DayCount] = ()  # today's in hundreds
    size: int | None = None  # bytes on disk
    free: int | None = None  # bytes that are free there, if it is a disk of this machine
    unmixed_days: int = 0
    # How many are stored today, in hundreds.
    slices: Mapping[MetricVersion, int] = field(default_factory=dict)
    at: dt.datetime | None = None  # when all this was read; None: never yet


def metric_statuses(
    registry: Registry, stored: Stored, values: MetricValues, today: dt.date
) -> tuple[MetricStatus, ...]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    definitions = {(it.metric, it.version): it.definition for it in stored.declared}
    for metric in registry.values():
        definitions.setdefault((metric.name, metric.version), metric.definition)
    last_days = [today - dt.timedelta(days=ago) for ago in reversed(range(_DAYS_SHOWN))]
    statuses = []
    for name in sorted({name for name, _ in definitions}):
        registered = registry.get(name)
        of_metric = [count for count in stored.days if count.metric == name]
        versions = []
        for version in sorted((v for it, v in definitions if it == name), reverse=True):
            counts = [count for count in of_metric if count.version == version]
            days = [count.day for count in counts]
            versions.append(
                VersionStatus(
                    version=version,
                    definition=definitions[name, version],
                    registered=registered is not None and registered.version == version,
                    reports=sum(count.reports for count in counts),
                    stored_bytes=sum(count.bytes for count in counts),
                    first_day=min(days, default=None),
                    last_day=max(days, default=None),
                )
            )
        statuses.append(
            MetricStatus(
                name=name,
                description=registered.description if registered else "",
                owner=registered.owner if registered else "",
                days=tuple(
                    (day, sum(it.reports for it in of_metric if it.day == day)) for day in last_days
                ),
                reports=sum(version.reports for version in versions),
                improbable=int(values.of("improbable_reports", name)),
                counted=int(sum(n for labels, n in values.by("reports") if labels[0] == name)),
                versions=tuple(versions),
            )
        )
    return tuple(statuses)


def task_statuses(values: MetricValues) -> tuple[TaskStatus, ...]:
    """Describe every task that ever ran."""
    runs = {labels: int(n) for labels, n in values.by("upkeep_runs") if n}

    def last(task: str, result: str, outcome: str) -> dt.datetime | None:
        # The timestamp of a run is set just after its count, so it may still be 0 or the start's.
        at = values.of(f"upkeep_last_{outcome}_timestamp_seconds", task)
        return dt.datetime.fromtimestamp(at, dt.UTC) if at and (task, result) in runs else None

    return tuple(
        TaskStatus(
            task,
            runs.get((task, "done"), 0) + runs.get((task, "failed"), 0),
            runs.get((task, "failed"), 0),
            last(task, "done", "success"),
            last(task, "failed", "failure"),
        )
        for task in sorted({task for task, _ in runs})
    )


def expiries(settings: Settings) -> Iterator[Expiry]:
    """Yield all that ends, the first of each chain of certificates."""
    days = [("ingest_key", name, it.expires) for name, it in settings.ingest_keys.items()]
    days += [("admin_token", name, it.expires) for name, it in settings.admin_tokens.items()]
    for kind, name, day in days:
        if day:
            yield Expiry(kind, name, dt.datetime.combine(day + _DAY, dt.time(), dt.UTC))
    file = settings.tls_certificate
    if file and (ends := certificate_ends(file)):
        yield Expiry("certificate", file.name, min(ends))


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VALIDITY = re.compile(
    rb"\x30.(?:\x17\x0d\d{12}|\x18\x0f\d{14})Z(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z", re.DOTALL
)
"""The dates of a certificate in DER (RFC 5280, section 4.1.2.5): a sequence of two times."""


def certificate_ends(file: Path) -> list[dt.datetime]:
    """Return when the certificates of a PEM file end; nothing if it can't be read.

    Python's ssl gives the dates of a peer's certificate only.
    """
    ends = []
    try:
        for pem in _PEM.findall(file.read_text(encoding="ascii")):
            if not (found := _VALIDITY.search(ssl.PEM_cert_to_DER_cert(pem))):
                return []
            # With two digits of the year, those up to 49 are after 2000.
            short, long = (digits.decode() for digits in found.groups(b""))
            text = long or f"{'20' if short < '5' else '19'}{short}"
            ends.append(dt.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC))
    except (OSError, ValueError):
        return []
    return ends


def render(status: ServiceStatus, refresh: int | None = None) -> str:
    """Return the page.

    `refresh`: seconds after which the browser reloads it; None: never.
    """
    return _PAGE.render(
        status=status,
        refresh=refresh,
        style=_STYLE,
        concerns=list(_concerns(status)),
        steps=_STEPS_SHOWN,
    )


def _concerns(status: ServiceStatus) -> Iterator[str]:
    """Describe in sentences what an operator should look at; nothing if all is well."""
    if status.store_fault:
        yield f"The store can't be read: {status.store_fault}."
    if failing := status.processes_not_reloaded:
        yield (
            f"The registry, the keys or the certificate are wrong: {number(failing)} "
            f"process{'es' if failing > 1 else ''} couldn't read them again and went on with what "
            "was in force. The log says why."
        )
    if status.rates.faults:
        yield f"Requests are answered with a fault (5xx): {rate(status.rates.faults)} a second."
    if status.rates.shed:
        yield f"Requests are being turned away: {rate(status.rates.shed)} a second."
    for expiry in status.expiries:
        if expiry.at < status.at + _TOLD_BEFORE:
            yield (
                f"The {expiry.type.replace('_', ' ')} {expiry.name} "
                f"{'ends' if expiry.at > status.at else 'ended'} on {expiry.at:%Y-%m-%d %H:%M} UTC."
            )
    for finding in status.findings:
        yield f"{finding.label}: {finding.text}."
    for task in status.upkeep:
        if task.fails:
            yield f"The task “{task.task}” failed when it last ran."
    if refused := sum(n for _, reason, n in status.requests if reason == "unregistered"):
        yield (
            f"{counted(refused, 'request')} since the start had metrics or versions that "
            "the registry doesn’t know. Clients keep these reports and try again for 13 days."
        )
    for metric in status.metrics:
        if metric.improbable:
            yield (
                f"{metric.name}: {counted(metric.improbable, 'report')} since the start with an "
                "improbable number of set bits."
            )


def number(value: float) -> str:
    """Write a count: 12,345."""
    return f"{round(value):,}"


def rate(value: float) -> str:
    """Write events a second with two or three digits that mean something."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else "< 0.01"


def size(value: float | None) -> str:
    """Write bytes: 1.2 MB."""
    if value is None:
        return "unknown"
    if value < 1000:
        return f"{value:.0f} B"
    prefixes = ("", "k", "M", "G", "T", "P")
    exponent = min(int(math.log10(value) // 3), len(prefixes) - 1)
    return f"{value / 1000**exponent:.3g} {prefixes[exponent]}B"


def seconds(value: float | None) -> str:
    """Write an upper bound of a duration."""
    if value is None:
        return "none yet"
    if math.isinf(value):
        return "> 10 s"
    return f"≤ {value * 1000:g} ms" if value < 1 else f"≤ {value:g} s"


def duration(seconds: float) -> str:
    """Write a time in the largest unit that it has one of: 10 minutes."""
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds >= length:
            n = seconds / length
            return f"{n:.3g} {unit}{'s' if n != 1 else ''}"
    return f"{seconds:.3g} seconds"


def moment(value: dt.datetime | None) -> str:
    """Write a time in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC") if value else "never"


def parameters(definition: Mapping[str, Any]) -> str:
    """Write what reports were made with, without what the type brings: k = 128, h = 2."""
    names = ["k", "h", "m", "f", "f0", "f1", "p", "q"]
    if "response" in definition:
        names += ["response", "size", "cells", "window", "chance", "low", "high"]
    values = {name: definition[name] for name in names if name in definition}
    return ", ".join(
        f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in values.items()
    )


def bars(values: Sequence[float], highest: float) -> str:
    """Return an SVG path of bars, each one wide, on a picture that is 1 high."""
    scale = 1 / highest if highest > 0 else 0.0
    return "".join(
        f"M{i + 0.08:g} 1V{1 - min(value * scale, 1):.3f}H{i + 0.92:g}V1Z"
        for i, value in enumerate(values)
        if value > 0
    )


_STYLE = (
    importlib.resources.files("hubbub.collector.operations")
    .joinpath("templates/page.css")
    .read_text(encoding="utf-8")
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's content security policy; a header of its answer."""

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("hubbub.collector.operations"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_WRITERS = (number, rate, size, seconds, duration, moment, parameters, bars)
_ENVIRONMENT.globals.update({write.__name__: write for write in _WRITERS})
_PAGE = _ENVIRONMENT.get_template("page.html")
