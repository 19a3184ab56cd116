"""decode.toml -> `WatchOptions`: the reports, how each is decoded, and the webhooks.

Names of files in it are relative to its own folder. What `decode_metric` checks isn't checked here
again; keys are, so that a mistyped one isn't passed over.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubbub.decoder.options import CORRECTIONS, ESTIMANDS, METHODS, STORE
from hubbub.protocol import JointType, MetricError, Registry, StringType, checks as check
from hubbub.reporting import Level

MOST_DAYS = 366
"""Days of a window: a year, beyond which clients' answers and releases are others."""
STORE_VARIABLE = "HUBBUB_COLLECTOR_STORE"
"""The collector's own setting, where the file names no store."""
LEVELS = {"warning": Level.WARNING, "alarm": Level.ALARM}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # also a folder's name
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_ADDRESS = re.compile(r"[!-~]+")  # ASCII without blanks, as HTTP wants it
_FILES = ("candidates", "corpus")
_OPTIONS = (
    *_FILES, "where", "alpha", "correction", "method", "estimand", "extend", "alphabet",
    "min_reports", "reports_per_client", "rows", "detected_only",
)  # fmt: skip
_KEYS = ("metric", "days", "split", *_OPTIONS)
_TOP = (
    "metrics", "store", "output", "url", "at", "days", "catch_up", "looks", "level", "webhooks",
    "leave_out", "reports",
)  # fmt: skip
_FILE = "decode.toml"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """One report that is made again and again."""

    name: str
    metric: str
    days: int  # UTC days that a result is about, its own day the last
    split: str | None = None  # the dimension of which each value has a report of its own
    options: Mapping[str, Any] = field(default_factory=dict)  # other arguments of `decode_metric`


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The settings of a decode.toml."""

    metrics: Path  # the registry's file
    registry: Registry
    store: str  # the store's address
    output: Path  # the folder of results; is made where there is none
    url: str  # where people reach the folder; empty: links in webhooks' messages are relative
    at: dt.timedelta  # when a day's result is due, after the day's end
    catch_up: int  # days that are made up for if nothing ran
    looks: int  # results among which at most alpha is the chance of one false announcement
    level: Level  # from which on webhooks and the exit code report
    webhooks: tuple[str, ...]  # addresses that get it
    reports: tuple[ReportOptions, ...]

    @property
    def names(self) -> list[str]:
        """The reports' names."""
        return [report.name for report in self.reports]


def load_watch(path: str | Path) -> WatchOptions:
    """Read a decode.toml.

    Raises `MetricError` if it can't be read, or entries are wrong: the message says where, and
    `faults` has each.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise MetricError(f"{path}: can't be read as TOML: {error}") from error
    folder, faults = Path(path).parent, check.Faults()
    with faults.collected():
        check.refuse_unknown(_FILE, document, _TOP)
    with faults.collected():
        check.require(_FILE, document, ["metrics"])
    faults.raise_found()
    metrics = folder / check.text("metrics", document["metrics"])
    registry = Registry.load(metrics)
    values: dict[str, Any] = {}
    for key, read in _READERS.items():
        with faults.collected():
            values[key] = read(key, document.get(key))
    with faults.collected():
        values["output"] = folder / _folder("output", document.get("output", "results"))
    days = values.pop("days", 1)
    reports = _reports(document, registry, days, folder, faults)
    faults.raise_found()
    return WatchOptions(metrics=metrics, registry=registry, reports=reports, **values)


def _count(default: int, most: int) -> Any:
    return lambda where, value: check.integer(where, default if value is None else value, 1, most)


def _folder(where: str, value: object) -> str:
    text = check.text(where, value)
    if "://" in text:
        raise MetricError.of(where, value, "a folder of this machine")
    return text


def _store(where: str, value: object) -> str:
    if value is None:
        return os.environ.get(STORE_VARIABLE, STORE)
    return check.text(where, value)


def _url(where: str, value: object) -> str:
    return "" if value is None else check.text(where, value).rstrip("/") + "/"


def _at(where: str, value: object) -> dt.timedelta:
    text = "01:00" if value is None else value
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise MetricError.of(where, value, 'a time of day (UTC), such as "01:00"')
    return dt.timedelta(hours=int(text[:2]), minutes=int(text[3:]))


def _level(where: str, value: object) -> Level:
    return LEVELS[check.choice(where, "warning" if value is None else value, tuple(LEVELS))]


def _webhooks(where: str, value: object) -> tuple[str, ...]:
    urls = () if value is None else check.different_texts(where, value, 1, 20)
    for number, url in enumerate(urls):
        if not _is_webhook(url):  # which may be a secret: it isn't shown
            message = (
                f"{where}[{number}]: must be an address that begins with https://, or with "
                "http://localhost"
            )
            raise MetricError.about(where, message)
    return urls


def _is_webhook(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    local = parts.scheme == "http" and host in _LOCAL
    return bool(_ADDRESS.fullmatch(url) and (local or (parts.scheme == "https" and host)))


_READERS = {
    "store": _store,
    "url": _url,
    "at": _at,
    "days": _count(28, MOST_DAYS),
    "catch_up": _count(7, MOST_DAYS),
    "looks": _count(30, 10_000),
    "level": _level,
    "webhooks": _webhooks,
}


def _reports(
    document: Mapping[str, Any], registry: Registry, days: int, folder: Path, faults: check.Faults
) -> tuple[ReportOptions, ...]:
    """Return the reports that are named, and one of each other metric that needs no more words."""
    tables = document.get("reports", {})
    found = []
    with faults.collected():
        if not isinstance(tables, dict):
            raise MetricError.of("reports", tables, "tables, such as [reports.homepage]")
        for name, table in tables.items():
            with faults.collected():
                found.append(_report(f"reports.{name}", name, table, registry, days, folder))
    named = {report.metric for report in found}
    names = set(tables if isinstance(tables, dict) else ())
    with faults.collected():
        left_out = document.get("leave_out", [])
        if left_out:
            check.different_texts("leave_out", left_out, 1, len(registry))
        for name in left_out:
            check.choice("leave_out", name, tuple(registry))
        named |= set(left_out)
    for name in sorted(set(registry) - named):
        if name in names:  # of another metric, or faulty
            message = (
                f"reports.{name}: is of another metric; metrics.{name} needs a report of another "
                f'name, or leave_out = ["{name}"]'
            )
            if not faults.found:
                faults.found.append(MetricError.about(f"reports.{name}", message))
        elif _needs_candidates(registry, name):
            message = (
                f"reports.{name}: is missing: metrics.{name} needs candidates. Add "
                f'[reports.{name}] with candidates = "FILE", or leave_out = ["{name}"]'
            )
            faults.found.append(MetricError.about(f"reports.{name}", message))
        else:
            found.append(ReportOptions(name, name, days))
    return tuple(sorted(found, key=lambda report: report.name))


def _needs_candidates(registry: Registry, name: str) -> bool:
    of = registry[name].type
    fields = [each.type for each in of.fields] if isinstance(of, JointType) else [of]
    return any(type(each) is StringType for each in fields)


def _report(
    where: str, name: str, table: object, registry: Registry, days: int, folder: Path
) -> ReportOptions:
    """Read one table of `reports`."""
    if not _NAME.fullmatch(name):
        raise MetricError.about(where, f"{where}: must be 1 to 64 letters, digits, _ and -")
    if not isinstance(table, dict):
        raise MetricError.of(where, table, "a table")
    faults = check.Faults()
    with faults.collected():
        check.refuse_unknown(where, table, _KEYS)
    metric = table.get("metric", name)
    with faults.collected():
        check.choice(f"{where}.metric", metric, tuple(registry))
    with faults.collected():
        days = check.integer(f"{where}.days", table.get("days", days), 1, MOST_DAYS)
    split = table.get("split")
    with faults.collected():
        if split is not None and metric in registry:
            known = tuple(each.name for each in registry[metric].dimensions)
            _one_of(f"{where}.split", split, known, f"dimensions of metrics.{metric}")
    for key, read in _CHECKS.items():
        if key in table:
            with faults.collected():
                read(f"{where}.{key}", table[key])
    faults.raise_found()
    options = {key: table[key] for key in _OPTIONS if key in table}
    for key in _FILES:
        if key in options:
            options[key] = _beside(folder, f"{where}.{key}", options[key])
    return ReportOptions(name, metric, days, split, options)


def _where(where: str, value: object) -> None:
    if not isinstance(value, dict):
        raise MetricError.of(where, value, 'a table, such as { platform = "mac" }')
    for name, one in value.items():
        for each in one if isinstance(one, list) else [one]:
            check.text(f"{where}.{name}", each)


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "where": _where,
    "alpha": check.probability,
    "correction": partial(check.choice, choices=CORRECTIONS),
    "method": partial(check.choice, choices=METHODS),
    "estimand": partial(check.choice, choices=ESTIMANDS),
    "extend": check.text,
    "alphabet": check.text,
    "min_reports": partial(check.integer, low=1, high=10**12),
    "reports_per_client": check.positive,
    "rows": partial(check.integer, low=1, high=10**6),
    "detected_only": check.boolean,
}


def _one_of(where: str, value: object, known: Collection[str], what: str) -> None:
    if value not in known:
        raise MetricError.of(where, value, f"one of the {what}: {', '.join(known) or 'none'}")


def _beside(folder: Path, where: str, value: object) -> object:
    if isinstance(value, dict):
        return {name: _beside(folder, f"{where}.{name}", each) for name, each in value.items()}
    text = check.text(where, value)
    return text if "://" in text else str(folder / text)
