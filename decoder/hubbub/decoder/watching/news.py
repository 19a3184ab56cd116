"""Two results in a row -> what the later one says that no earlier one did.

A string is announced once. Results of many days are as many looks, and each look has its chance
findings; so what is announced as a warning must stand a test that is stricter by the number of
looks: `looks` results in a row announce something false with a chance of at most alpha. What passes
the day's own test alone is told as a fact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.protocol.metrics import Metric
from hubbub.reporting.estimates import Estimates, Finding, Level
from hubbub.reporting.text import visible

NEW, CHANGED = "newly_detected", "newly_changed"
SOON_DAYS = 30
"""Time for an app's next release to bring a new registry to most of its clients."""
_SAME_CHANGE = dt.timedelta(days=3)
"""A change's day is an estimate: as days are added, the same one may be dated so much later."""

Document = Mapping[str, Any]


def newly_detected(
    estimates: Estimates, names: Sequence[str], known: frozenset[str], looks: int
) -> Iterator[Finding]:
    """Yield what is detected and wasn't in any earlier result.

    Parameters
    ----------
    estimates : Estimates
        With the columns "detected", "p_value" and "proportion"; without them nothing is found.
    names : sequence of str
        The rows' names.
    known : frozenset of str
        Names that were detected before.
    looks : int
        See above.
    """
    if "detected" not in estimates.columns:
        return
    summary: Any = estimates.metadata["summary"]
    tested = max(int(summary.get("candidates", summary.get("categories", 0))), len(estimates), 1)
    bound = float(summary["alpha"]) / (tested * looks)  # Bonferroni over rows and looks
    columns = (estimates[name] for name in ("detected", "p_value", "proportion"))
    for name, detected, p_value, share in zip(names, *columns, strict=True):
        if detected and name not in known:
            sure = p_value <= bound
            text = f"{visible(name)} is newly detected, at {share:.2%}"
            text += "" if sure else "; so late and so close to the limit, chance may have done it"
            level = Level.WARNING if sure else Level.FACT
            yield Finding(NEW, "", text, {"name": name, "share": float(share)}, level)


def newly_changed(
    series: Sequence[Document], before: Sequence[Document], alpha: float, looks: int
) -> Iterator[Finding]:
    """Yield the changes that an earlier result of days one by one doesn't mark.

    Parameters
    ----------
    series, before : sequence of mapping
        "series" of both results' metadata (`hubbub.reporting.trends`).
    alpha : float
        Error rate of one look.
    looks : int
        See above.
    """
    marked = {
        (_series_name(each), change["form"], change["after"] > change["before"]): change["day"]
        for each in before
        for change in each["changes"]
    }
    for each in series:
        name = _series_name(each)
        for change in each["changes"]:
            up = change["after"] > change["before"]
            old = marked.get((name, change["form"], up))
            if old is not None and abs(_day(old) - _day(change["day"])) <= _SAME_CHANGE:
                continue
            # The q-values are of all series together: below alpha / looks no more is false.
            level = Level.WARNING if each["q_value"] <= alpha / looks else Level.FACT
            how = "rose" if up else "fell"
            when = {"shift": "from", "spike": "on", "stretch": "for some days from"}[change["form"]]
            text = f"{visible(name)} {how} {when} {change['day']}"
            value = {"name": name, "day": change["day"], "form": change["form"]}
            yield Finding(CHANGED, "", text, value, level)


def _series_name(series: Document) -> str:
    """Return what a series is of; the unknown mass has no name of its own."""
    kind = series["kind"]
    return str(series.get(kind) or kind)


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


def ends(metric: Metric, day: dt.date) -> Iterator[Finding]:
    """Yield that a metric ends, or has ended.

    Parameters
    ----------
    metric : Metric
    day : datetime.date
        UTC. Clients report a metric on its last day still.
    """
    left = (metric.expires - day).days
    if left < 0:
        text = f"metrics.{metric.name} expired on {metric.expires}: clients report it no more"
        yield Finding("metric_expired", "", text, left, Level.WARNING)
    elif left <= SOON_DAYS:
        text = f"metrics.{metric.name} expires on {metric.expires}, in {left} days"
        yield Finding("metric_expires_soon", "", text, left, Level.WARNING)


def newly_said(findings: Sequence[Finding], before: Sequence[Finding]) -> Iterator[Finding]:
    """Yield alarms, and warnings of a kind that the earlier result didn't have.

    An alarm is told as long as it lasts: what forged reports do isn't over because it is known.
    """
    known = {each.code for each in before}
    for each in findings:
        if each.level is Level.ALARM or (each.level is Level.WARNING and each.code not in known):
            yield each
