"""What a collector's page shows its operator, and how.

The page is HTML and inline SVG, without scripts or anything from other servers; /status.json has
the same numbers. Invariants: of today's reports of a metric there are hundreds alone, as
`publishing` rounds them; every value on the page is escaped (by the template engine), and the
content security policy allows one style sheet by its hash and nothing else.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import importlib.resources
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jinja2

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import MetricValues
from hubbub.protocol import Registry, counted
from hubbub.storage import DayCount, Declared, MetricVersion

_DAYS_SHOWN = 14  # two weeks: this week and the last
_TOLD_BEFORE = dt.timedelta(days=14)
"""Time to get a new key and to bring it to those who need it."""
_DAY = dt.timedelta(days=1)  # what is valid through a day ends when the next begins


class Expiry(NamedTuple):
    """The end of something that lets others in."""

    type: str  # "ingest_key" or "admin_token"
    name: str  # in the configuration
    at: dt.datetime  # the first moment at which it isn't good any more


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
) -> list[dict[str, Any]]:
    """Describe every metric that the registry or the store knows, in the order of their names."""
    definitions = {(it.metric, it.version): it.definition for it in stored.declared}
    for metric in registry.values():
        definitions.setdefault((metric.name, metric.version), metric.definition)
    last_days = [today - dt.timedelta(days=ago) for ago in reversed(range(_DAYS_SHOWN))]
    statuses = []
    for name in sorted({name for name, _ in definitions}):
        registered = registry.get(name)
        of_metric = [count for count in stored.days if count.metric == name]
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


def render(status: Mapping[str, Any]) -> str:
    """Return the page."""
    return _PAGE.render(status=status, style=_STYLE, concerns=list(_concerns(status)))


def _concerns(status: Mapping[str, Any]) -> Iterator[str]:
    """Describe in sentences what an operator should look at; nothing if all is well."""
    if status["store_fault"]:
        yield f"The store can't be read: {status['store_fault']}."
    if failing := status["processes_not_reloaded"]:
        yield (
            f"The registry, the keys, the certificate or the switch are wrong: {number(failing)} "
            f"process{'es' if failing > 1 else ''} couldn't read them again and went on with what "
            "was in force. The log says why."
        )
    recent, last = status["recent"], f"in the last {duration(status['publish_seconds'])}"
    if faults := recent["faults"]:
        yield f"{counted(faults, 'request')} {last} {_was(faults)} answered with a fault (5xx)."
    if shed := recent["shed"]:
        yield f"{counted(shed, 'request')} {last} {_was(shed)} turned away."
    for expiry in status["expiries"]:
        if expiry.at < status["at"] + _TOLD_BEFORE:
            yield (
                f"The {expiry.type.replace('_', ' ')} {expiry.name} "
                f"{'ends' if expiry.at > status['at'] else 'ended'} "
                f"on {expiry.at:%Y-%m-%d %H:%M} UTC."
            )
    for finding in status["findings"]:
        yield f"{finding.label}: {finding.text}."
    for task in status["upkeep"]:
        if task["recent_failures"]:
            yield f"The task “{task['task']}” failed {last}."
    if refused := sum(n for _, reason, n in status["requests"] if reason == "unregistered"):
        yield (
            f"{counted(refused, 'request')} since the start had metrics or versions that "
            "the registry doesn’t know. Clients keep these reports and try again for 13 days."
        )
    for metric in status["metrics"]:
        if metric["improbable"]:
            yield (
                f"{metric['name']}: {counted(metric['improbable'], 'report')} since the start with "
                "an improbable number of set bits."
            )


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def number(value: float) -> str:
    """Write a count: 12,345."""
    return f"{round(value):,}"


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
_WRITERS = (number, size, seconds, duration, moment, parameters, bars)
_ENVIRONMENT.globals.update({write.__name__: write for write in _WRITERS})
_PAGE = _ENVIRONMENT.get_template("page.html")
