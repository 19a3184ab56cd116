"""decode.toml -> `Watch`: which reports there are, how each is decoded, and who is told.

Names of files in it are relative to its own folder. What `decode_metric` checks isn't checked here
again; keys are, so that a mistyped one isn't passed over.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubbub.decoder.options import STORE
from hubbub.protocol import checks as check
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types import JointType, StringType
from hubbub.protocol.registry import Registry
from hubbub.reporting.findings import Level

MOST_DAYS = 366
"""Of a window: a year, beyond which clients' answers and releases are others."""
STORE_VARIABLE = "HUBBUB_COLLECTOR_STORE"
"""The collector's own setting, where the file names no store."""
LEVELS = {"warning": Level.WARNING, "alarm": Level.ALARM}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # also a folder's name
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_FILES = ("candidates", "candidate_cache", "corpus", "blend")
_OPTIONS = (
    *_FILES, "where", "alpha", "correction", "method", "estimand", "extend", "min_reports",
    "reports_per_client", "rows", "detected_only",
)  # fmt: skip
_KEYS = ("metric", "days", "every", "split", *_OPTIONS)
_TOP = (
    "metrics", "store", "output", "url", "at", "days", "catch_up", "looks", "level", "webhooks",
    "leave_out", "reports",
)  # fmt: skip
_FILE = "decode.toml"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """One report that is made again and again.

    Attributes
    ----------
    name : str
    metric : str
    days : int
        UTC days that a result is about, its own day the last.
    weekly : bool
        Whether results are of Sundays alone.
    split : str, optional
        The dimension of which each value has a report of its own.
    options : mapping of str to object
        Other arguments of `decode_metric`.
    """

    name: str
    metric: str
    days: int
    weekly: bool = False
    split: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watch:
    """What a decode.toml asks for.

    Attributes
    ----------
    metrics : Path
        The registry's file.
    registry : Registry
    store : str
        The store's address.
    output : Path
        The folder of results; is made where there is none.
    url : str
        Where people reach the folder; empty: links in feeds are relative.
    at : datetime.timedelta
        When a day's result is due, after the day's end.
    catch_up : int
        Days that are made up for if nothing ran.
    looks : int
        Results among which at most alpha is the chance of one false announcement.
    level : Level
        Of what webhooks and the exit code tell.
    webhooks : tuple of str
        Addresses that get it.
    reports : tuple of ReportOptions
    """

    metrics: Path
    registry: Registry
    store: str
    output: Path
    url: str
    at: dt.timedelta
    catch_up: int
    looks: int
    level: Level
    webhooks: tuple[str, ...]
    reports: tuple[ReportOptions, ...]


def load_watch(path: str | Path) -> Watch:
    """Read a decode.toml.

    Raises
    ------
    MetricError
        If it can't be read, or entries are wrong: the message says where, and `faults` has each.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
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
        values["output"] = folder / check.text("output", document.get("output", "results"))
    days = values.pop("days", 1)
    reports = _reports(document, registry, days, folder, faults)
    faults.raise_found()
    return Watch(metrics=metrics, registry=registry, reports=reports, **values)


def _count(default: int, most: int) -> Any:
    return lambda where, value: check.integer(where, default if value is None else value, 1, most)


def _store(where: str, value: object) -> str:
    """Return a store's address, which may have a password, so that a file need not."""
    if value is None:
        return os.environ.get(STORE_VARIABLE, STORE)
    return check.text(where, value)


def _url(where: str, value: object) -> str:
    return "" if value is None else check.text(where, value).rstrip("/") + "/"


def _at(where: str, value: object) -> dt.timedelta:
    """Return a time of day after midnight; clients' last reports need a while to arrive."""
    try:
        time = dt.time.fromisoformat("01:00" if value is None else check.text(where, value))
    except ValueError as error:
        raise MetricError.of(where, value, 'a time of day (UTC), such as "01:00"') from error
    return dt.timedelta(hours=time.hour, minutes=time.minute)


def _level(where: str, value: object) -> Level:
    return LEVELS[check.choice(where, "warning" if value is None else value, tuple(LEVELS))]


def _webhooks(where: str, value: object) -> tuple[str, ...]:
    urls = () if value is None else check.different_texts(where, value, 1, 20)
    for url in urls:
        parts = urlsplit(url)
        local = parts.scheme == "http" and parts.hostname in _LOCAL
        if not (local or (parts.scheme == "https" and parts.hostname)):
            # The address may be a secret: it isn't shown.
            message = f"{where}: each must begin with https://, or with http://localhost"
            raise MetricError.about(where, message)
    return urls


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
    named = {report.metric for report in found} | set(tables if isinstance(tables, dict) else ())
    with faults.collected():
        left_out = document.get("leave_out", [])
        if left_out:
            check.different_texts("leave_out", left_out, 1, len(registry))
        for name in left_out:
            check.choice("leave_out", name, tuple(registry))
        named |= set(left_out)
    for name in sorted(set(registry) - named):
        if _needs_candidates(registry, name):
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
    with faults.collected():
        every = check.choice(f"{where}.every", table.get("every", "day"), ("day", "week"))
    split = table.get("split")
    with faults.collected():
        if split is not None and metric in registry:
            known = tuple(each.name for each in registry[metric].dimensions)
            _one_of(f"{where}.split", split, known, f"dimensions of metrics.{metric}")
    faults.raise_found()
    options = {key: table[key] for key in _OPTIONS if key in table}
    for key in _FILES:
        if key in options:
            options[key] = _beside(folder, f"{where}.{key}", options[key])
    return ReportOptions(name, metric, days, every == "week", split, options)


def _one_of(where: str, value: object, known: Collection[str], what: str) -> None:
    if value not in known:
        raise MetricError.of(where, value, f"one of the {what}: {', '.join(known) or 'none'}")


def _beside(folder: Path, where: str, value: object) -> object:
    """Return a file's name, or those of several fields, as seen from where the program runs."""
    if isinstance(value, dict):
        return {name: _beside(folder, f"{where}.{name}", each) for name, each in value.items()}
    text = check.text(where, value)
    return text if "://" in text else str(folder / text)
