"""Trends -> one HTML report: a small chart a string, its band, and the days where it changed."""

from __future__ import annotations

from itertools import groupby
from typing import BinaryIO

import numpy as np
from markupsafe import Markup

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.html.charts import Chart
from hubbub.decoder.html.page import (
    Section,
    Table,
    privacy_section,
    provenance_section,
    write_page,
)
from hubbub.decoder.html.svg import (
    WIDTH,
    Scale,
    drawing,
    path_points,
    polyline,
    span_of,
    tag,
    vertical_axis,
)
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import visible
from hubbub.decoder.output.summary import SUSPICIOUS, summary_lines
from hubbub.decoder.reports.scrutiny import Findings
from hubbub.decoder.trends.decoding import Trends
from hubbub.decoder.trends.output import changes_told, day_counts, percent, series_order

CHARTS = 40
"""Most strings that are drawn."""
_LEFT, _RIGHT, _TOP, _HEIGHT = 70.0, WIDTH - 16.0, 8.0, 110.0


def write_trends_report(
    file: BinaryIO,
    trends: Trends,
    *,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write trends as one self-contained page (see `report.write_report`)."""
    name = f" of {visible(provenance.metric)}" if provenance else ""
    lines = {"days": day_counts(trends)} | summary_lines(trends.pooled, findings)
    warnings = [f"{label}: {text}" for label, text in lines.items() if SUSPICIOUS in text]
    summary = trends.pooled.summary
    sections = [
        _changes(trends),
        _courses(trends),
        Section("Summary of all days", facts=tuple(lines.items())),
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        provenance_section(provenance),
    ]
    title = f"What the reports{name} say day by day"
    write_page(file, title, headline(trends), sections, warnings=warnings)


def headline(trends: Trends) -> str:
    """Return what was found, in a sentence."""
    columns = series_order(trends)
    changed = [column for column in columns if trends.changes[column]]
    days = f"From {trends.days[0]} to {trends.days[-1]}"
    if not columns:
        return f"{days} no string was detected, so there is nothing to follow."
    followed = f"{days} {len(trends.strings):,} detected strings were followed"
    if not changed:
        return f"{followed}; no share changed by more than chance might."
    first = changed[0]
    name = f"“{visible(trends.strings[first - 1])}”" if first else "the unknown mass"
    most = "among them" if len(changed) > 1 else "it is"
    return (
        f"{followed}; {len(changed):,} of {len(columns):,} series changed, {most} {name}: "
        f"{changes_told(trends, first)}."
    )


def _changes(trends: Trends) -> Section:
    rows = tuple(
        (
            _name(trends, column),
            f"{trends.days[change.day]}",
            percent(change.before),
            percent(change.after),
            f"{change.after - change.before:+.3%} ± {change.std_error:.3%}",
            f"{change.p_value:.1e}",
            f"{trends.q_value[column]:.1e}",
        )
        for column in series_order(trends)
        for change in trends.changes[column]
    )
    if not rows:
        return Section("What changed", ("No change that chance might not have made.",))
    header = ("string", "from", "before", "after", "difference and its error", "p", "string's q")
    return Section("What changed", tables=(Table("Changes", header, rows),))


def _courses(trends: Trends) -> Section:
    columns = series_order(trends)
    shown = [*columns[:-1][:CHARTS], *columns[-1:]]
    charts = tuple(_course(trends, column, index) for index, column in enumerate(shown))
    words = (
        f"Bands are {CONFIDENCE:.0%} intervals, each day by itself; grey days have too few "
        "reports. Dashed lines mark the first day of another share."
    )
    left_out = len(columns) - len(shown)
    more = (f"{left_out:,} more strings are in CSV, JSON and Parquet.",) if left_out else ()
    return Section("Day by day", (words, *more) if columns else (), charts=charts)


def _course(trends: Trends, column: int, index: int) -> Chart:
    share, low, high = (
        100 * values[:, column] for values in (trends.share, trends.low, trends.high)
    )
    bottom = _TOP + _HEIGHT
    across = Scale(0.0, max(len(trends.days) - 1.0, 1.0), _LEFT + 8, _RIGHT)
    up = Scale(*span_of([*low, *high], around=(0.0,)), bottom, _TOP)
    parts = [vertical_axis(up, _LEFT, _RIGHT, "share", "{:.4g}%")]
    for gap in np.flatnonzero(np.isnan(share)):
        left, right = across(gap - 0.5), across(gap + 0.5)
        parts.append(tag("rect", class_="gap", x=left, y=_TOP, width=right - left, height=_HEIGHT))
    parts += _bands(share, low, high, across, up)
    for change in trends.changes[column]:
        x = across(change.day - 0.5)
        parts.append(tag("line", class_="change", x1=x, x2=x, y1=_TOP, y2=bottom))
    for place, anchor in ((0, "start"), (len(trends.days) - 1, "end")):
        day = f"{trends.days[place]}"
        parts.append(tag("text", day, x=across(place), y=bottom + 18, text_anchor=anchor))
    name = _name(trends, column)
    described = _described(trends, column)
    svg = drawing(f"course-{index}", name, described, bottom + 26, Markup("").join(parts))
    rows = tuple(
        (f"{day}", f"{reports:,}", percent(a / 100), percent(b / 100), percent(c / 100))
        for day, reports, a, b, c in zip(trends.days, trends.reports, share, low, high, strict=True)
    )
    return Chart(name, described, svg, ("day", "reports", "share", "from", "to"), rows)


def _bands(
    share: FloatArray, low: FloatArray, high: FloatArray, across: Scale, up: Scale
) -> list[Markup]:
    """Draw each stretch of days without a gap: its band, its line, and a dot a day."""
    parts: list[Markup] = []
    for known, places in groupby(range(len(share)), key=lambda i: not np.isnan(share[i])):
        if not known:
            continue
        days = list(places)
        upper = [(across(i), up(float(high[i]))) for i in days]
        lower = [(across(i), up(float(low[i]))) for i in reversed(days)]
        line = [(across(i), up(float(share[i]))) for i in days]
        if len(days) == 1:
            (x, top), (_, end) = upper[0], lower[0]
            parts.append(tag("line", class_="bar", x1=x, x2=x, y1=top, y2=end))
        parts.append(tag("polygon", class_="band", points=path_points([*upper, *lower])))
        parts.append(polyline(line, "line"))
        parts += [tag("circle", class_="dot", cx=x, cy=y, r=2.5) for x, y in line]
    return parts


def _described(trends: Trends, column: int) -> str:
    known = trends.share[~np.isnan(trends.share[:, column]), column]
    if not len(known):
        return "Not estimated on any day."
    course = (
        f"From {percent(float(known[0]))} on the first day to {percent(float(known[-1]))} on the "
        f"last, between {percent(float(known.min()))} and {percent(float(known.max()))}. "
    )
    told = changes_told(trends, column)
    return course + (
        f"Changed on {told}." if told else "No change that chance might not have made."
    )


def _name(trends: Trends, column: int) -> str:
    return visible(trends.strings[column - 1]) if column else "unknown mass"
