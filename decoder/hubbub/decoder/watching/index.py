"""All results that were kept -> one page of tiles.

Pure functions of the results: if the page is lost, the next run makes it again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from hubbub.decoder.watching.news import CHANGED, NEW
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
from hubbub.protocol import counted
from hubbub.reporting import (
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
    headings,
    shortened,
    visible,
    write_html,
)

_ROWS: Final = 5
"""The largest, of a tile."""
_NEWS: Final = 6
"""Of a tile; the reports have them all."""
_STALE: Final = dt.timedelta(days=7)
"""After which what is made once a week should have come."""
_LATELY: Final = dt.timedelta(days=14)
"""In which a person looks at the page at least once, though it be after a holiday."""
_WIDTH: Final = 36
"""Columns of a name, so that tiles stay narrow."""
_EARLIER: Final = 7
"""Days, or weeks, that are linked beside the newest."""


class Tile(NamedTuple):
    """What is shown of a report."""

    results: Sequence[Result]  # those of the last days, the newest last; at least one
    days: Mapping[str, Any] | None  # columns of the newest one's days one by one; None: it has none
    until: dt.date  # the last day that is due

    @property
    def newest(self) -> Result:
        """The newest result."""
        return self.results[-1]

    def lately(self, level: Level) -> list[tuple[dt.date, Finding]]:
        """Return what the last days newly said at a level or above, the newest first."""
        since = self.until - _LATELY
        return [
            (result.day, finding)
            for result in reversed(self.results)
            if result.day > since
            for finding in result.news
            if finding.level >= level
        ]


def index_page(
    application: str, tiles: Iterable[Tile], faults: Mapping[str, str], level: Level
) -> Estimates:
    """Return the page of all reports: those with news first, then by name."""
    order = sorted(tiles, key=lambda each: (not each.lately(level), each.newest.report))
    loud = sum(bool(each.lately(level)) for each in order)
    last = max((each.newest.day for each in order), default=None)
    said = (
        "Nothing was estimated so far."
        if last is None
        else f"{counted(len(order), 'report')} up to {last}; {loud or 'none'} with news of the "
        f"last {_LATELY.days} days."
    )
    sections = tuple(_section(number, each, level) for number, each in enumerate(order))
    warnings = [f"{name} could not be made: {why}" for name, why in faults.items()]
    title = f"What {visible(application)} sees"
    return Estimates(page=Page(title, said, sections, warnings, tiles=True))


def _section(number: int, tile: Tile, level: Level) -> Section:
    """Return what a person sees first of a report."""
    result, lately = tile.newest, tile.lately(level)
    watch, more = result.watch, sum(each.level < level for each in result.news)
    loud = [f"{day}: {finding.labelled}." for day, finding in lately]
    if len(loud) > _NEWS:
        loud = [*loud[:_NEWS], f"And {len(loud) - _NEWS} more."]
    quiet = f"{more} newly detected or changed, as chance may have done." if more else "No news."
    if result.day <= tile.until - _STALE:
        quiet = f"No result since {result.day}."
    left = (dt.date.fromisoformat(watch["expires"]) - result.day).days
    reports = next((each.value for each in result.findings if each.code == "reports"), None)
    facts = {
        "days": f"{watch['days']}, up to {result.day}",
        "reports": f"{reports:,}" if isinstance(reports, int) else "too few",
        "asked until": f"{watch['expires']}, {left:,} days" if left >= 0 else "not any more",
        "epsilon": f"{_epsilon(watch['epsilon_report'])} per report, "
        f"{_epsilon(watch['epsilon_answer'])} per answer",
    }
    links = {"report": f"{result.report}/{result.day}.html"}
    if tile.days is not None:
        links["day by day"] = f"{result.report}/{result.day}{BY_DAY}.html"
    links["Parquet"] = f"{result.report}/{result.day}.parquet"
    earlier = tile.results[-2::-1][:_EARLIER]
    links |= {f"{each.day}": f"{each.report}/{each.day}.html" for each in earlier}
    chart = None if tile.days is None else _course(number, tile.days, _followed(lately))
    table = _largest(result)
    return Section(
        result.report,
        () if loud and not more else (quiet,),
        facts,
        () if chart is None else (chart,),
        () if table is None else (table,),
        tuple(loud),
        links,
    )


def _epsilon(value: float | None) -> str:
    return "not bounded" if value is None else f"{value:.3g}"


def _followed(lately: Sequence[tuple[dt.date, Finding]]) -> str | None:
    named: list[Any] = [each.value for _, each in lately if each.code in {NEW, CHANGED}]
    named.sort(key=lambda value: not value.get("rose", True))
    return str(named[0]["name"]) if named else None


def _course(number: int, rows: Mapping[str, Any], name: str | None) -> Chart | None:
    """Return the course of one series."""
    key = next(each for each in ("string", "category", "statistic") if each in rows)
    kinds = rows.get("kind", [key] * len(rows[key]))
    names: list[str] = [own or kind for own, kind in zip(rows[key], kinds, strict=True)]
    is_share = "proportion" in rows
    columns = ("proportion", "prop_low", "prop_high") if is_share else ("estimate", "low", "high")
    share, low, high = (
        np.array(rows[column], dtype=np.float64) * (100 if is_share else 1) for column in columns
    )
    if name is None or name not in names:
        means = {
            each: float(np.nansum(share[[own == each for own in names]]))
            for each, kind in dict(zip(names, kinds, strict=True)).items()
            if kind != "unknown"
        }
        if not means:
            return None
        # What nearly all have is the mirror of all else, which shows more.
        order = sorted(means, key=lambda each: -means[each])
        most = sum(means.values()) / 2
        name = order[1] if is_share and len(order) > 1 and means[order[0]] > most else order[0]
    own = np.array([each == name for each in names])
    days = [day for day, there in zip(rows["day"], own, strict=True) if there]
    changes = [day for day, there in enumerate(np.array(rows["changed"])[own].tolist()) if there]
    unit, word = ("%", "share") if is_share else ("", "estimate")
    form = "{:.3g}" + unit

    def cells(*values: float) -> list[str]:
        return ["" if np.isnan(value) else form.format(value) for value in values]

    course = share[own], low[own], high[own]
    said = f"The {word} from {days[0]} to {days[-1]}"
    if changes:  # such as "2.4% until 2026-11-18, 7.6% since 2026-11-19"
        parts = [part[~np.isnan(part)] for part in np.split(course[0], changes)]
        shown = ["none" if not len(part) else form.format(part.mean()) for part in parts]
        until = [f"{mean} until {days[day - 1]}" for mean, day in zip(shown, changes, strict=False)]
        said += f": {', '.join(until)}, {shown[-1]} since {days[changes[-1]]}"
    title = f"{shortened(visible(name), _WIDTH)}, day by day"
    return TimeSeries(
        Labels(f"tile-{number}", title, f"{said}.", "", word),
        tuple(days),
        *course,
        np.full(len(days), np.nan),
        tuple(changes),
        ("day", word, "interval from", "to"),
        tuple((day, *cells(*each)) for day, *each in zip(days, *course, strict=True)),
        unit,
    )


def _largest(result: Result) -> Table | None:
    """Return the largest rows of what was detected; of a number all that was estimated."""
    rows = result.rows
    if not rows:
        return None
    names = [shortened(visible(name), _WIDTH) for name in result.names()]
    if "proportion" not in rows:
        numbers = zip(names, rows["estimate"], rows["low"], rows["high"], strict=True)
        cells = [(name, f"{x:.4g}", f"{low:.4g} … {high:.4g}") for name, x, low, high in numbers]
        return Table("Estimates", headings("statistic", "estimate", "95% interval"), tuple(cells))
    places = [place for place, found in enumerate(rows["detected"]) if found]
    places.sort(key=lambda place: -rows["proportion"][place])
    shares = [
        (
            names[place],
            f"{rows['proportion'][place]:.2%}",
            f"{rows['prop_low'][place]:.2%} … {rows['prop_high'][place]:.2%}",
        )
        for place in places[:_ROWS]
    ]
    left = len(places) - len(shares)
    heads = headings("detected", "share", "95% interval")
    return Table(f"{len(places):,} detected", heads, tuple(shares), f"{left:,}" if left else "")


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
                _ = results[-1].rows  # which the page needs: damage is to be found here
                tiles.append(Tile(results, None if days is None else days.rows, until))
        except WatchError as error:
            why[report] = f"{error}"
            unread.append(f"{error}")
    page = index_page(application, tiles, why, watch.level)
    atomic_write(folder / INDEX, partial(write_html, page))
    return unread
