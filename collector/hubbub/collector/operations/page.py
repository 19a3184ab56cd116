"""A `ServiceStatus` as a web page: HTML and inline SVG, no script, nothing from other servers.

Pure functions. Invariants: every value on the page is escaped (by the template engine), and the
content security policy allows one style sheet by its hash and nothing else.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import importlib.resources
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from hubbub.collector.operations.status import STEPS_SHOWN, ServiceStatus
from hubbub.protocol import counted

_TEMPLATES = importlib.resources.files("hubbub.collector.operations") / "templates"
_STYLE = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do; a header of its answer."""

_PREFIXES = ("", "k", "M", "G", "T", "P")
_PARAMETERS = ("k", "h", "m", "f", "f0", "f1", "p", "q")
_DRAWN = ("response", "size", "cells", "window", "chance", "low", "high")
_TOLD_BEFORE = dt.timedelta(days=14)
"""Time to get a new certificate or key and to bring it to those who need it."""


def render(status: ServiceStatus, refresh: int | None = None) -> str:
    """Return the page.

    `refresh`: seconds after which the browser loads it anew; None: never.
    """
    return _PAGE.render(
        status=status,
        refresh=refresh,
        style=_STYLE,
        concerns=concerns(status),
        steps=STEPS_SHOWN,
    )


def concerns(status: ServiceStatus) -> list[str]:
    """Describe in sentences what an operator should look at; nothing if all is well."""
    found = []
    if status.store_fault:
        found.append(f"The store can't be read: {status.store_fault}.")
    if failing := status.processes_not_reloaded:
        found.append(
            f"The registry, the keys or the certificate are wrong: {number(failing)} "
            f"process{'es' if failing > 1 else ''} couldn't read them again and went on with what "
            "was in force. The log says why."
        )
    if status.rates.faults:
        found.append(
            f"Requests are answered with a fault (5xx): {rate(status.rates.faults)} a second."
        )
    if status.rates.shed:
        found.append(f"Requests are being turned away: {rate(status.rates.shed)} a second.")
    found += [
        f"The {it.type.replace('_', ' ')} {it.name} "
        f"{'ends' if it.at > status.at else 'ended'} on {it.at:%Y-%m-%d %H:%M} UTC."
        for it in status.expiries
        if it.at < status.at + _TOLD_BEFORE
    ]
    found += [f"{it.label}: {it.text}." for it in status.findings]
    found += [
        f"The task “{task.task}” failed when it last ran." for task in status.upkeep if task.fails
    ]
    if refused := sum(n for _, reason, n in status.requests if reason == "unregistered"):
        found.append(
            f"{counted(refused, 'request')} since the start had metrics or versions that "
            "the registry doesn’t know. Clients keep these reports and try again for 13 days."
        )
    for metric in status.metrics:
        if metric.improbable:
            found.append(
                f"{metric.name}: {counted(metric.improbable, 'report')} since the start with an "
                "improbable number of set bits."
            )
    return found


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
    exponent = min(int(math.log10(value) // 3), len(_PREFIXES) - 1)
    return f"{value / 1000**exponent:.3g} {_PREFIXES[exponent]}B"


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


def percent(part: float, whole: float) -> str:
    """Write a share; of nothing, 0 %."""
    return f"{100 * part / whole if whole else 0:.3g} %"


def moment(value: dt.datetime | None) -> str:
    """Write a time in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC") if value else "never"


def parameters(definition: Mapping[str, Any]) -> str:
    """Write what reports were made with, without what the type brings: k = 128, h = 2."""
    names = (*_PARAMETERS, *(_DRAWN if "response" in definition else ()))
    return ", ".join(f"{name} = {_short(definition[name])}" for name in names if name in definition)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def bars(values: Sequence[float], highest: float) -> str:
    """Return an SVG path of bars, each one wide, on a picture that is 1 high."""
    scale = 1 / highest if highest > 0 else 0.0
    return "".join(
        f"M{i + 0.08:g} 1V{1 - min(value * scale, 1):.3f}H{i + 0.92:g}V1Z"
        for i, value in enumerate(values)
        if value > 0
    )


def own_refusals(status: ServiceStatus) -> list[tuple[str, int]]:
    """Return what was turned away without an answer that counts as a request."""
    answered = {reason for _, reason, _ in status.requests}
    return [(reason, n) for reason, n in status.shed if reason not in answered]


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.DictLoader({"page.html": (_TEMPLATES / "page.html").read_text(encoding="utf-8")}),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    number=number,
    rate=rate,
    size=size,
    seconds=seconds,
    percent=percent,
    moment=moment,
    duration=duration,
    parameters=parameters,
    bars=bars,
    own_refusals=own_refusals,
)
_PAGE = _ENVIRONMENT.get_template("page.html")
