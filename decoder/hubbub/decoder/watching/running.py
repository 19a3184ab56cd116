"""Make the results that are due: each report's days without one, the oldest first.

Invariant: the same store gives the same results, whenever and however often this runs, and exactly
one for each report and day. A day that can't be decoded has a result, too, which says why.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hubbub.decoder.options import BY_DAY
from hubbub.decoder.pipeline import decode_metric
from hubbub.decoder.reports import StoredReports, slice_sizes
from hubbub.decoder.type_decoder import decoder_of
from hubbub.decoder.watching import news
from hubbub.decoder.watching.options import ReportOptions, WatchOptions
from hubbub.decoder.watching.results import (
    WATCH,
    Result,
    WatchError,
    days_of,
    names_of,
    read_result,
    reports_in,
    write_result,
)
from hubbub.inference import UndecodableError
from hubbub.protocol import HubbubError, Metric
from hubbub.reporting import Estimates, Finding, Level, Page, registry_ends
from hubbub.storage import values_of

_ONE_DAY = dt.timedelta(days=1)
_NAMED = 3  # changes on the page of all days together, which has a link to them all


class Fault(NamedTuple):
    """A result that couldn't be made, and will be tried again."""

    report: str
    day: dt.date
    error: HubbubError | OSError


def last_day(watch: WatchOptions, now: dt.datetime) -> dt.date:
    """Return the last UTC day whose results are due; `now` has a time zone."""
    return (now.astimezone(dt.UTC) - watch.at).date() - _ONE_DAY


def next_time(watch: WatchOptions, now: dt.datetime) -> dt.datetime:
    """Return when the next day's results are due; `now` has a time zone."""
    midnight = dt.datetime.combine(last_day(watch, now) + 2 * _ONE_DAY, dt.time(), dt.UTC)
    return midnight + watch.at


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Make the folder and lock it; raises `WatchError` if another process makes results in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WatchError(f"{folder}: another process is making results here") from error
        yield


def make_due(
    watch: WatchOptions, until: dt.date, made: Callable[[Result], None], note: Callable[[str], None]
) -> list[Fault]:
    """Make all results that are due by a UTC day and aren't there; `made` takes each.

    Returns what couldn't be made; later days of the same report weren't tried.
    """
    faults = []
    for report in watch.reports:
        for back in reversed(range(watch.catch_up)):
            day = until - back * _ONE_DAY
            try:
                for name, where in _parts(watch, report, day):
                    if (result := _make(watch, report, name, where, day, note)) is not None:
                        made(result)
            except (HubbubError, OSError) as error:
                faults.append(Fault(report.name, day, error))
                break
    return faults


def _parts(
    watch: WatchOptions, report: ReportOptions, day: dt.date
) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the folders of a day's results and which reports each is about."""
    where = report.options.get("where")
    if report.split is None:
        return [(report.name, where)]
    wanted = (where or {}).get(report.split)
    wanted = [wanted] if isinstance(wanted, str) else wanted
    source = StoredReports(watch.store, _first(report, day), day)
    metric = watch.registry[report.metric]
    there = values_of(metric, report.split, slice_sizes(source, metric))
    values = sorted({*there, *_silent(watch, report, day)})
    return [
        (f"{report.name}/{report.split}={value}", {**(where or {}), report.split: value})
        for value in values
        if wanted is None or value in wanted
    ]


def _silent(watch: WatchOptions, report: ReportOptions, day: dt.date) -> Iterator[str]:
    """Yield values whose last result had rows: without reports since, one result states it."""
    prefix = f"{report.name}/{report.split}="
    for name in reports_in(watch.output, [report.name]):
        earlier = [each for each in days_of(watch.output, name) if each < day]
        if name.startswith(prefix) and earlier:
            before = read_result(watch.output, name, earlier[-1])
            if before.watch["keys"]:
                yield name.removeprefix(prefix)


def _first(report: ReportOptions, day: dt.date) -> dt.date:
    return day - (report.days - 1) * _ONE_DAY


def _make(
    watch: WatchOptions,
    report: ReportOptions,
    name: str,
    where: dict[str, Any] | None,
    day: dt.date,
    note: Callable[[str], None],
) -> Result | None:
    """Make one result; None if it is there, or no report of the metric has arrived so far."""
    folder, metric = watch.output, watch.registry[report.metric]
    kept = days_of(folder, name)
    if day in kept:
        return None
    since = _first(report, day)
    options = {**report.options, "where": where, "since": since, "until": day}
    with _warnings_noted(name, note):
        window, days = _decoded(watch, metric, options)
    earlier = [each for each in kept if each < day]
    if not (window.columns or earlier):
        return None
    window = replace(window, findings=(*window.findings, *_ends(watch, metric, day)))
    if days is not None:
        window = _averaged(window, days)
    question = _question(metric, options)
    past = _past(folder, name, question, earlier, since)
    names = names_of([list(window[key]) for key in window.keys])
    found = [*news.between(past, window, names, days, watch.looks)]
    noted = {
        "report": name,
        "day": f"{day}",
        "days": report.days,
        "metric": metric.name,
        "question": question,
        "keys": list(window.keys),
        "epsilon_report": metric.epsilon_report,
        "epsilon_answer": metric.price,
        "expires": f"{metric.expires}",
        **news.remembered(past, window, names, days, found),
        "news": [each.as_json() for each in found],
    }
    window = replace(window, metadata={**window.metadata, WATCH: noted})
    write_result(folder, name, day, window, days)
    return read_result(folder, name, day)


def _decoded(
    watch: WatchOptions, metric: Metric, options: dict[str, Any]
) -> tuple[Estimates, Estimates | None]:
    """Return the estimates of a window, and of its days one by one if there are any."""
    given = {"metrics": watch.metrics, "store": watch.store, "looks": watch.looks, **options}
    try:
        window = decode_metric(metric.name, **given)
    except UndecodableError as error:
        why = " ".join(filter(None, (str(error), expected_reports(watch, metric))))
        return _undecodable(metric, why), None
    days = None
    if given["since"] < given["until"] and decoder_of(metric).follows_days:
        with suppress(UndecodableError):  # enough together, on no day by itself
            days = decode_metric(metric.name, by=BY_DAY, **given)
    return window, days


def _averaged(window: Estimates, days: Estimates) -> Estimates:
    """Say on the page of all days together that shares changed among them."""
    changes = [each.text for each in days.findings if each.code == "change"]
    if window.page is None or not changes:
        return window
    text = f"{'; '.join(changes[:_NAMED])}. Shares on this page are averages over all its days."
    return replace(window, page=replace(window.page, warnings=(*window.page.warnings, text)))


@contextmanager
def _warnings_noted(name: str, note: Callable[[str], None]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(each.message) for each in caught):
        note(f"{name}: {text}")


def _ends(watch: WatchOptions, metric: Metric, day: dt.date) -> list[Finding]:
    own = f"metrics.{metric.name}"
    return [each for each in registry_ends(watch.registry, day) if each.label == own]


def _past(
    folder: Path, name: str, question: str, earlier: Sequence[dt.date], since: dt.date
) -> news.History | None:
    """Return what a window beginning at `since` is compared with; None: with nothing so far."""
    before = read_result(folder, name, earlier[-1]) if earlier else None
    if before is None or before.watch["question"] != question:
        return None
    if not (before.watch["keys"] or before.watch["announced"]):  # nothing was estimated yet
        return None
    ends = [day for day in earlier if day < since]
    window = read_result(folder, name, ends[-1]) if ends else None
    if window is not None and window.watch["question"] != question:
        window = None
    return news.History(before, window)


def _question(metric: Metric, options: Mapping[str, Any]) -> str:
    asked = [metric.name, metric.version, options.get("where"), options.get("estimand")]
    return json.dumps(asked, sort_keys=True)


def expected_reports(watch: WatchOptions, metric: Metric) -> str:
    """Return how many reports clients send a day, of a metric with mode "once"; else nothing."""
    if metric.mode != "once":
        return ""
    group = watch.registry.groups.get(metric.group)
    divisor = metric.period_days * (len(group.metrics) if group else 1)
    return (
        f"Expect about N/{divisor:,} reports of {metric.name} a day from N clients: each reports "
        f"once in {metric.period_days} days, and a new one when its first period starts."
    )


def _undecodable(metric: Metric, why: str) -> Estimates:
    finding = Finding("undecodable", "", why, None, Level.WARNING)
    page = Page(f"{metric.name}: nothing can be estimated", why, ())
    return Estimates(findings=(finding,), page=page)


def worst_news(watch: WatchOptions, until: dt.date) -> Level:
    """Return the highest level of the news of results of a UTC day."""
    results = (
        read_result(watch.output, report, until)
        for report in reports_in(watch.output, watch.names)
        if until in days_of(watch.output, report)
    )
    return max((each.level for result in results for each in result.news), default=Level.FACT)
