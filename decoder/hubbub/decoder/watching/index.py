"""All results that were kept -> one page of tiles.

Pure functions of the results: if the page is lost, the next run makes it again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from hubbub.decoder.watching.news import (
    CHANGED,
    NEW,
    name_of,
    newly_changed,
    same_change,
    series_of,
)
from hubbub.decoder.watching.options import WatchOptions
from hubbub.decoder.watching.results import (
    BY_DAY,
    INDEX,
    Result,
    WatchError,
    days_of,
    read_days,
    read_result,
    reports_in,
)
from hubbub.decoder.watching.running import Fault
from hubbub.inference import Z_CONFIDENCE, share_interval
from hubbub.protocol import counted
from hubbub.reporting import (
    BOOLEAN,
    SOON_DAYS,
    Chart,
    Estimates,
    Finding,
    Labels,
    Level,
    Page,
    Section,
    Table,
    TimeSeries,
    atomic_write,
    days_text,
    headings,
    shortened,
    visible,
    write_html,
)

_ROWS: Final = 5
"""Largest rows of a tile."""
_NEWS: Final = 6
"""New findings of a tile; the reports have them all."""
_STALE: Final = dt.timedelta(days=7)
"""After which what is made once a week should have come."""
_LATELY: Final = dt.timedelta(days=14)
"""In which a person looks at the page at least once, though it be after a holiday."""
_WIDTH: Final = 36
"""Columns of a name, so that tiles stay narrow."""
_EARLIER: Final = 7
"""Days, or weeks, that are linked besides the newest."""


class Tile(NamedTuple):
    """A report's tile on the page."""

    results: Sequence[Result]  # those of the last days, the newest last; at least one
    days: Result | None  # the newest one's days one by one; None: it has none
    until: dt.date  # the last day that is due

    @property
    def newest(self) -> Result:
        """The newest result."""
        return self.results[-1]

    def lately(self, level: Level) -> list[tuple[dt.date, Finding]]:
        """Return the last days' new findings at a level or above, the newest first."""
        since = self.until - _LATELY
        return [
            (result.day, finding)
            for result in reversed(self.results)
            if result.day > since
            for finding in result.news
            if finding.level >= level
        ]


def index_page(
    application: str,
    tiles: Iterable[Tile],
    faults: Mapping[str, str],
    level: Level,
    descriptions: Mapping[str, str],
) -> Estimates:
    """Return the page of all reports: those with news first, then by name."""
    order = sorted(tiles, key=lambda each: (not each.lately(level), each.newest.report))
    loud = sum(bool(each.lately(level)) for each in order)
    last = max((each.newest.day for each in order), default=None)
    said = (
        "Nothing was estimated so far."
        if last is None
        else f"{counted(len(order), 'report')} up to {last:%-d %B %Y}; {loud or 'none'} with news "
        f"of the last {_LATELY.days} days."
    )
    sections = tuple(
        _section(number, each, level, descriptions) for number, each in enumerate(order)
    )
    warnings = [f"{name} could not be made: {why}" for name, why in faults.items()]
    title = f"What {visible(application)} sees"
    return Estimates(page=Page(title, said, sections, warnings, tiles=True))


def _section(number: int, tile: Tile, level: Level, descriptions: Mapping[str, str]) -> Section:
    """Return what a person sees first of a report: what changed, the shares now, their course."""
    result, lately = tile.newest, tile.lately(level)
    watch = result.watch
    series = [] if tile.days is None else series_of(tile.days.document)
    loud = [_said(day, finding, series) for day, finding in lately]
    if len(loud) > _NEWS:
        loud = [*loud[:_NEWS], f"And {len(loud) - _NEWS} more."]
    quiet = [] if loud else ["No news."]
    if result.day <= tile.until - _STALE:
        quiet = [f"No result since {result.day:%-d %B %Y}."]
    left = (dt.date.fromisoformat(watch["expires"]) - result.day).days
    reports = next((each.value for each in result.findings if each.code == "reports"), None)
    first = result.day - dt.timedelta(days=watch["days"] - 1)
    facts = {
        "days": days_text(first, result.day),
        "reports": f"{reports:,}" if isinstance(reports, int) else "too few",
    }
    if left <= SOON_DAYS:
        facts["asked until"] = watch["expires"] if left >= 0 else "not any more"
    links = {"report": f"{result.report}/{result.day}.html"}
    if tile.days is not None:
        links = {"day by day": f"{result.report}/{result.day}{BY_DAY}.html"} | links
    links["Parquet"] = f"{result.report}/{result.day}.parquet"
    earlier = tile.results[-2::-1][:_EARLIER]
    links |= {f"{each.day:%-d %B}": f"{each.report}/{each.day}.html" for each in earlier}
    chart = None
    if tile.days is not None:
        chart = _course(number, tile.days.rows, series, _followed(lately))
    table = _largest(result, series, _followed(lately))
    description = visible(descriptions.get(watch["metric"], ""))
    return Section(
        result.title,
        (*([description] if description else []), *quiet),
        facts,
        () if chart is None else (chart,),
        () if table is None else (table,),
        tuple(loud),
        links,
    )


def _said(day: dt.date, finding: Finding, series: Sequence[Any]) -> str:
    """Return news with the day of its result; a change as the newest result has it, if it does."""
    if finding.code != CHANGED:
        return f"{day:%-d %B}: {finding.labelled}."
    for each in newly_changed(series, []):
        old: Any = finding.value
        new: Any = each.value
        if new["name"] == old["name"] and same_change(new["day"], old["day"]):
            return f"{each.text}."
    return f"{finding.text}. Announced on {day:%-d %B}; later days don't confirm it."


def _followed(lately: Sequence[tuple[dt.date, Finding]]) -> str | None:
    named: list[Any] = [each.value for _, each in lately if each.code in {NEW, CHANGED}]
    named.sort(key=lambda value: not value.get("rose", True))
    return str(named[0]["name"]) if named else None


def _course(
    number: int, rows: Mapping[str, Any], series: Sequence[Any], name: str | None
) -> Chart | None:
    """Return the course of one series."""
    key = next(each for each in ("string", "category", "statistic") if each in rows)
    kinds = rows.get("kind", [key] * len(rows[key]))
    names: list[str] = [own or kind for own, kind in zip(rows[key], kinds, strict=True)]
    is_share = "proportion" in rows
    columns = ("proportion", "prop_low", "prop_high") if is_share else ("estimate", "low", "high")
    share, low, high = (np.array(rows[column], dtype=np.float64) for column in columns)
    if is_share:
        share, low, high = (100 * np.clip(each, 0.0, 1.0) for each in (share, low, high))
    if name is None or name not in names:
        means = {
            each: float(np.nansum(share[[own == each for own in names]]))
            for each, kind in dict(zip(names, kinds, strict=True)).items()
            if kind != "unknown"
        }
        if not means:
            return None
        # The value of nearly all mirrors all the others, which show more.
        order = sorted(means, key=lambda each: -means[each])
        most = sum(means.values()) / 2
        name = order[1] if is_share and len(order) > 1 and means[order[0]] > most else order[0]
    own = np.array([each == name for each in names])
    days = [day for day, there in zip(rows["day"], own, strict=True) if there]
    places = {day: place for place, day in enumerate(days)}
    changes: Sequence[Any] = next((each["changes"] for each in series if name_of(each) == name), [])
    sure = [each for each in changes if each["sure"]]
    unit, word = ("%", "share") if is_share else ("", "estimate")
    form = "{:.3g}" + unit

    def cells(*values: float) -> list[str]:
        return ["" if np.isnan(value) else form.format(value) for value in values]

    course = share[own], low[own], high[own]
    said = "; ".join(each["text"] for each in sure) or "No change beyond what chance makes"
    title = f"{shortened(visible(name), _WIDTH)}, day by day"
    if set(names) == set(BOOLEAN):
        title = "Share of true, day by day"
    return TimeSeries(
        Labels(f"tile-{number}", title, f"{said}.", "", word),
        tuple(days),
        *course,
        np.full(len(days), np.nan),
        tuple(places[each["day"]] for each in sure),
        ("day", word, "interval from", "to"),
        tuple((day, *cells(*each)) for day, *each in zip(days, *course, strict=True)),
        unit,
    )


def _largest(result: Result, series: Sequence[Any], followed: str | None) -> Table | None:
    """Return the largest rows of what was detected, as they are now; of a number all there is.

    The one of which there is news is among them. What surely changed has the level since then, all
    else the average over the result's days.
    """
    rows = result.rows
    if not rows:
        return None
    names = result.names()
    labels = [shortened(visible(name), _WIDTH) for name in names]
    is_share = "proportion" in rows
    columns = ("proportion", "prop_low", "prop_high") if is_share else ("estimate", "low", "high")
    now = dict(zip(names, zip(*(rows[each] for each in columns), strict=True), strict=True))
    for each in series:
        shifts = [each for each in each["changes"] if each["sure"] and each["last"] is None]
        if shifts and name_of(each) in now:
            level, error = shifts[-1]["after"], shifts[-1]["after_std_error"]
            if is_share:
                low, high = share_interval(np.array([level]), np.array([error]))
                now[name_of(each)] = (level, float(low[0]), float(high[0]))
            else:
                half = Z_CONFIDENCE * error
                now[name_of(each)] = (level, level - half, level + half)
    form, shown = ("{:.2%}", "share now") if is_share else ("{:.4g}", "now")
    places = list(range(len(names)))
    if is_share:
        places = [place for place in places if rows["detected"][place]]
        places.sort(key=lambda place: -now[names[place]][0])
        if tuple(names) == BOOLEAN:
            places = [1]
    rest, places = places[_ROWS:], places[:_ROWS]
    places += [place for place in rest if names[place] == followed]
    cells = tuple(
        (labels[place], form.format(level), f"{form.format(low)} … {form.format(high)}")
        for place in places
        for level, low, high in [now[names[place]]]
    )
    title = f"The largest of {_ROWS + len(rest):,} detected" if rest else "Estimates"
    heads = headings(result.watch["keys"][-1], shown, "95% interval")
    return Table(title, heads, cells)


_RECENT = dt.timedelta(days=30)
"""Days whose results the page shows or links."""


def write_overview(watch: WatchOptions, until: dt.date, faults: Sequence[Fault]) -> list[str]:
    """Write index.html; return results that can't be read, in words."""
    folder, application = watch.output, watch.registry.application
    why, tiles, unread = {each.report: f"{each.error}" for each in faults}, [], []
    for report in reports_in(folder, watch.names):
        kept = days_of(folder, report, until)
        try:
            results = [read_result(folder, report, day) for day in kept if day > kept[-1] - _RECENT]
            days = read_days(folder, report, kept[-1]) if kept else None
            if results:
                # Read all that the page needs, so that damage is found here.
                _ = results[-1].rows, days and days.rows
                tiles.append(Tile(results, days, until))
        except WatchError as error:
            why[report] = f"{error}"
            unread.append(f"{error}")
    descriptions = {metric.name: metric.description for metric in watch.registry.values()}
    page = index_page(application, tiles, why, watch.level, descriptions)
    atomic_write(folder / INDEX, partial(write_html, page))
    return unread
