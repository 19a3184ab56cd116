"""Find the findings of a result that no earlier one had.

A string is announced once. Results of many days are as many looks, and each look has its chance
findings; so what is announced must stand a test that is stricter by the number of looks: `looks`
results in a row announce something false with a chance of at most alpha.

Post new findings to webhooks, by HTTP.

A message is sent until it was taken: a file next to the results lists those taken. Invariant: an
address, which may be a secret, is in no message, log or file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import html
import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from hubbub.decoder.watching.options import WatchOptions
from hubbub.decoder.watching.results import Result, WatchError, days_of, read_result, reports_in
from hubbub.reporting import Estimates, Finding, Level, atomic_write, percent, visible

_SENT: Final = ".sent.json"
_SECONDS = 10
"""A receiver that takes longer is away; the next run tries again."""


def message_of(result: Result, level: Level, url: str) -> dict[str, Any]:
    """Return what is posted of a result: the findings of a level, and "text", which chats show."""
    findings = [each for each in result.news if each.level >= level]
    lines = "".join(f"\n- {_inert(each)}" for each in findings)
    link = urljoin(url, f"{result.report}/{result.day}.html") if url else ""
    return {
        "text": f"{result.title}, {result.day}:{lines}" + (f"\n{link}" if link else ""),
        "report": result.report,
        "day": f"{result.day}",
        "link": link,
        "findings": [each.as_json() for each in findings],
    }


def _inert(finding: Finding) -> str:
    """Return a finding as code, so that chats show no link or mention in clients' strings."""
    return f"`{html.escape(finding.labelled, quote=False).replace('`', chr(39))}`"


def post_news(watch: WatchOptions, until: dt.date) -> list[str]:
    """Post unposted results of the last `catch_up` days; return what failed, in words."""
    since = until - dt.timedelta(days=watch.catch_up - 1)
    waiting = [
        result
        for report in reports_in(watch.output, watch.names)
        for day in days_of(watch.output, report, until)
        if since <= day
        for result in [read_result(watch.output, report, day)]
        if any(each.level >= watch.level for each in result.news)
    ]
    sent = _sent(watch.output)
    faults = []
    for url in watch.webhooks:
        address = hashlib.sha256(url.encode()).hexdigest()
        for result in waiting:
            key = f"{result.report}/{result.day}"
            if key in sent.get(address, []):
                continue
            fault = _post(url, message_of(result, watch.level, watch.url))
            if fault:
                faults.append(f"{urlsplit(url).hostname}: {fault}; {key} will be sent again")
                break
            recent = [
                each for each in sent.get(address, []) if each.rsplit("/", 1)[1] >= f"{since}"
            ]
            sent[address] = [*recent, key]
            atomic_write(watch.output / _SENT, partial(_write, sent))
    return faults


def _sent(folder: Path) -> dict[str, list[str]]:
    with suppress(FileNotFoundError):
        text = (folder / _SENT).read_text(encoding="utf-8")
        try:
            found: dict[str, list[str]] = json.loads(text)
        except ValueError as error:
            raise WatchError(
                f"{folder / _SENT}: isn't JSON. Remove it; what was posted will be posted again"
            ) from error
        return found
    return {}


def _write(sent: Mapping[str, list[str]], file: BinaryIO) -> None:
    file.write(json.dumps(sent, indent=1).encode())


def _post(url: str, message: Mapping[str, Any]) -> str:
    """Post a message; return why it wasn't taken, or nothing."""
    request = urllib.request.Request(  # noqa: S310 - https, or this machine: `options` saw to it
        url,
        json.dumps(message, ensure_ascii=False).encode(),
        {"Content-Type": "application/json", "User-Agent": "hubbub"},
    )
    try:
        with _OPENER.open(request, timeout=_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"not reached ({type(error).__name__})"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could lead where the file didn't."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing: the answer's own status is the outcome."""


_OPENER = urllib.request.build_opener(_NoRedirect)


NEW, CHANGED = "newly_detected", "newly_changed"
_KEPT = 1_000
"""Announced changes that are remembered: more than a window has."""
_SAME_CHANGE = dt.timedelta(days=3)
"""A change's day is an estimate: as days are added, the same one may be dated so much later."""

Document = Mapping[str, Any]


class History(NamedTuple):
    """The earlier results that a result is compared with."""

    before: Result  # the one before it
    window: Result | None  # the newest with no report in common


def between(
    past: History | None,
    window: Estimates,
    names: Sequence[str],
    days: Estimates | None,
    looks: int,
) -> Iterator[Finding]:
    """Yield the new findings of a result; of a first one only what is wrong."""
    yield from new_findings(window.findings, past.before.findings if past else ())
    if past is None or not window.columns:
        return
    if "detected" in window.columns:
        announced = set(past.before.watch["announced"])
        yield from newly_detected(window, names, announced, past.window, looks)
    if days is not None:
        yield from newly_changed(series_of(days.metadata), past.before.watch["changed"])


def remembered(
    past: History | None,
    window: Estimates,
    names: Sequence[str],
    days: Estimates | None,
    announced: Sequence[Finding],
) -> dict[str, list[Any]]:
    """Return what later results are compared with.

    "announced": the names that were announced as detected; "changed": the changes that were
    announced, as `newly_changed` takes them.
    """
    if past is None:  # at first, all is as it has always been
        announced = [] if days is None else [*newly_changed(series_of(days.metadata), [])]
        names, changed = _detected_in(window, names), []
    else:
        new: list[Any] = [each.value for each in announced if each.code == NEW]
        names = [*past.before.watch["announced"], *(value["name"] for value in new)]
        changed = past.before.watch["changed"]
    now: list[Any] = [each.value for each in announced if each.code == CHANGED]
    changed = [*changed, *([value["name"], value["rose"], value["day"]] for value in now)]
    return {"announced": sorted({*names}), "changed": changed[-_KEPT:]}


def series_of(days: Document) -> Sequence[Document]:
    """Return the series among the metadata of days one by one that can be news."""
    found: Sequence[Document] = days["series"]
    # One of two categories is the mirror of the other: the second, of a boolean true, is enough.
    mirrored = len(found) == 2 and all(each["kind"] == "category" for each in found)
    return found[1:] if mirrored else found


def _detected_in(estimates: Estimates, names: Sequence[str]) -> list[str]:
    if "detected" not in estimates.columns:
        return []
    return [name for name, there in zip(names, estimates["detected"], strict=True) if there]


def newly_detected(
    estimates: Estimates,
    names: Sequence[str],
    announced: Collection[str],
    earlier: Result | None,
    looks: int,
) -> Iterator[Finding]:
    """Yield what is detected, wasn't announced, and is surely more than before.

    Its share is larger than in the window before, of which no report is in this one: the difference
    of two estimates, one-sided, with Bonferroni's correction over rows and looks. Without that
    test, what is just large enough to be detected would be new on some day.

    `estimates`: with the columns "detected", "proportion" and "prop_std_error", if anything is
    detected. `names`: the rows' names. `earlier`: of the window before; None: there is none so far,
    and nothing is sure.
    """
    summary: Any = estimates.metadata["summary"]
    tested = max(int(summary.get("candidates", summary.get("categories", 0))), len(estimates), 1)
    bound = -NormalDist().inv_cdf(float(summary["alpha"]) / (2 * tested * looks))
    shares = dict(zip(names, map(float, estimates["proportion"]), strict=True))
    errors = dict(zip(names, map(float, estimates["prop_std_error"]), strict=True))
    before = {} if earlier is None else earlier.shares()
    missing = _missing_share(earlier)
    for name in _detected_in(estimates, names):
        share, error = before.get(name, (missing, errors[name]))
        sure = shares[name] - share > bound * math.hypot(errors[name], error)
        if name not in announced and sure:
            text = f"{visible(name)} is new: {percent(shares[name])}"
            text += f", up from {percent(share)}" if math.inf > share > 2 * error else ""
            yield Finding(NEW, "", text, {"name": name, "share": shares[name]}, Level.WARNING)


def _missing_share(result: Result | None) -> float:
    """Return what share of a name without a row there may have been: inf where it isn't known.

    Of a list that has all its rows it is a name that wasn't asked for. Where only what was found
    has rows, a larger share than the detection limit would have been.
    """
    if result is None:
        return math.inf
    summary = result.document.get("summary", {})
    limit = summary.get("detection_limit")
    is_whole = summary.get("candidates", 0) <= len(result.names())
    return math.inf if is_whole or limit is None else float(limit)


def newly_changed(
    series: Sequence[Document], announced: Sequence[tuple[str, bool, str]]
) -> Iterator[Finding]:
    """Yield the sure changes that weren't announced.

    `series`: of the metadata of days one by one (`hubbub.reporting.trends`). A change is sure by
    its own p-value, with Bonferroni's correction over series and looks, because a rate of false
    discoveries lets more through where much changes. `announced`: a name, whether it rose, and the
    day.
    """
    for each in series:
        name = name_of(each)
        for change in each["changes"]:
            rose = change["after"] > change["before"]
            known = any(
                (name, rose) == (other, its) and same_change(then, change["day"])
                for other, its, then in announced
            )
            if change["sure"] and not known:
                text = change["text"] if len(series) == 1 else f"{visible(name)}: {change['text']}"
                value = {"name": name, "day": change["day"], "rose": rose}
                yield Finding(CHANGED, "", text, value, Level.WARNING)


def name_of(series: Document) -> str:
    """Return the name of a series among the metadata of days one by one."""
    return str(series.get(series["kind"]) or series["kind"])


def same_change(day: str, other: str) -> bool:
    """Return whether changes of one series, dated so, may be the same."""
    return abs(dt.date.fromisoformat(day) - dt.date.fromisoformat(other)) <= _SAME_CHANGE


def new_findings(findings: Sequence[Finding], before: Sequence[Finding]) -> Iterator[Finding]:
    """Yield alarms, and warnings of a kind that the earlier result didn't have.

    An alarm is shown as long as it lasts: forged reports do harm even if they are known.
    """
    known = {each.code for each in before}
    for each in findings:
        if each.level is Level.ALARM or (each.level is Level.WARNING and each.code not in known):
            yield each
