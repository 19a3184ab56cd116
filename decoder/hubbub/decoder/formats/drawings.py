"""Charts -> SVG.

Charts are data (`hubbub.decoder.results.charts`); this module is all that knows how one of each
looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import groupby

import numpy as np
from markupsafe import Markup

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.formats.svg import (
    WIDTH,
    Scale,
    drawing,
    group,
    horizontal_axis,
    path_points,
    polyline,
    tag,
    vertical_axis,
)
from hubbub.decoder.results.charts import (
    Agreement,
    Chart,
    Course,
    Histogram,
    IntervalChart,
    Labels,
    Stack,
    span_of,
)

_LEFT, _RIGHT, _TOP, _HEIGHT = 70.0, WIDTH - 16.0, 12.0, 250.0
_COURSE_TOP, _COURSE_HEIGHT = 8.0, 110.0
_CELLS = 48
_POINTS = 2_000
_SHADES = 5


@singledispatch
def draw(chart: Chart) -> Markup:
    """Return a chart as an SVG element that screen readers can read, too."""
    raise NotImplementedError(f"{type(chart).__name__} can't be drawn")


@draw.register
def _intervals(chart: IntervalChart) -> Markup:
    left, row = 250.0, 22.0
    bottom = _TOP + row * len(chart.intervals)
    ends = [end for each in chart.intervals for end in (each.low, each.high)]
    scale = Scale(*span_of(ends, around=(0.0,)), left, _RIGHT)
    parts = [horizontal_axis(scale, _TOP, bottom, chart.labels.x, "{:.4g}%")]
    for index, each in enumerate(chart.intervals):
        y = _TOP + row * (index + 0.5)
        name = each.label if len(each.label) <= 32 else each.label[:31] + "…"
        parts += [
            tag("text", name, x=left - 8, y=y + 4, text_anchor="end"),
            tag("line", class_="bar", x1=scale(each.low), x2=scale(each.high), y1=y, y2=y),
            tag("circle", class_="dot", cx=scale(each.estimate), cy=y, r=4),
        ]
    return _drawn(chart.labels, bottom + 46, parts)


@draw.register
def _histogram(chart: Histogram) -> Markup:
    heights, edges, expected = chart.heights, chart.edges, chart.expected
    bottom = _TOP + _HEIGHT
    across = Scale(float(edges[0]), float(edges[-1]), _LEFT, _RIGHT)
    top = 1.05 * max(float(heights.max(initial=0)), float(expected.max(initial=0)), 1e-300)
    up = Scale(0.0, top, bottom, _TOP)
    bars = [
        tag(
            "rect",
            class_="mark",
            x=across(low) + 0.5,
            y=up(height),
            width=max(across(high) - across(low) - 1, 0.5),
            height=bottom - up(height),
        )
        for height, low, high in zip(heights, edges[:-1], edges[1:], strict=True)
    ]
    steps = [
        (across(float(x)), up(float(height)))
        for height, low, high in zip(expected, edges[:-1], edges[1:], strict=True)
        for x in (low, high)
    ]
    parts = [*_axes(chart.labels, across, up), group(bars), polyline(steps, "expected")]
    return _drawn(chart.labels, bottom + 46, parts)


@draw.register
def _agreement(chart: Agreement) -> Markup:
    """Draw points, or shaded cells where points are many."""
    x, y, bottom = chart.x, chart.y, _TOP + _HEIGHT
    ends = span_of([float(v) for v in (x.min(), x.max(), y.min(), y.max())])
    across, up = Scale(*ends, _LEFT, _RIGHT), Scale(*ends, bottom, _TOP)
    if len(x) <= _POINTS:
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        marks = [tag("circle", class_="point", cx=across(a), cy=up(b), r=2) for a, b in pairs]
    else:
        counts, edges, _ = np.histogram2d(x, y, bins=_CELLS, range=[ends, ends])
        marks = _cells(counts, edges, across, up)
    diagonal = [(across(end), up(end)) for end in ends]
    parts = [*_axes(chart.labels, across, up), group(marks), polyline(diagonal, "expected")]
    return _drawn(chart.labels, bottom + 46, parts)


def _cells(counts: FloatArray, edges: FloatArray, across: Scale, up: Scale) -> list[Markup]:
    """Shade cells in steps of the logarithm of how many points they hold."""
    top = np.log1p(counts.max())
    marks: list[Markup] = []
    for i, j in np.argwhere(counts > 0).tolist():
        shade = int(np.ceil(_SHADES * np.log1p(counts[i, j]) / top - 1e-9))
        left, right = across(float(edges[i])), across(float(edges[i + 1]))
        low, high = up(float(edges[j])), up(float(edges[j + 1]))
        marks.append(
            tag("rect", class_=f"shade{shade}", x=left, y=high, width=right - left,
                height=low - high)
        )  # fmt: skip
    return marks


@draw.register
def _stack(chart: Stack) -> Markup:
    height, bottom = 44.0, _TOP + 44.0
    total = max(sum(max(part, 0.0) for _, part in chart.pieces), 100.0)
    scale = Scale(0.0, total, 20.0, _RIGHT)
    parts = [horizontal_axis(scale, _TOP, bottom, chart.labels.x, "{:.4g}%")]
    start = 0.0
    for index, (_, part) in enumerate(chart.pieces):
        stop = start + max(part, 0.0)
        parts.append(
            tag("rect", class_=f"piece{index}", x=scale(start), y=_TOP,
                width=scale(stop) - scale(start), height=height)
        )  # fmt: skip
        start = stop
    return _drawn(chart.labels, bottom + 46, parts)


@draw.register
def _course(chart: Course) -> Markup:
    top, bottom = _COURSE_TOP, _COURSE_TOP + _COURSE_HEIGHT
    last = len(chart.days) - 1
    across = Scale(0.0, max(last, 1.0), _LEFT + 8, _RIGHT)
    up = Scale(*span_of([*chart.low, *chart.high], around=(0.0,)), bottom, top)
    parts = [vertical_axis(up, _LEFT, _RIGHT, chart.labels.y, "{:.4g}%")]
    for gap in np.flatnonzero(np.isnan(chart.share)):
        left, right = across(gap - 0.5), across(gap + 0.5)
        parts.append(
            tag("rect", class_="gap", x=left, y=top, width=right - left, height=_COURSE_HEIGHT)
        )
    parts += _bands(chart, across, up)
    for day in chart.changes:
        x = across(day - 0.5)
        parts.append(tag("line", class_="change", x1=x, x2=x, y1=top, y2=bottom))
    for place, anchor in ((0, "start"), (last, "end")):
        x = across(place)
        parts.append(tag("text", chart.days[place], x=x, y=bottom + 18, text_anchor=anchor))
    return _drawn(chart.labels, bottom + 26, parts)


def _bands(course: Course, across: Scale, up: Scale) -> list[Markup]:
    """Draw each stretch of days without a gap: its band, its line, and a dot a day."""
    share, low, high = course.share, course.low, course.high
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


def _axes(labels: Labels, across: Scale, up: Scale) -> list[Markup]:
    return [
        horizontal_axis(across, _TOP, _TOP + _HEIGHT, labels.x, "{:.4g}"),
        vertical_axis(up, _LEFT, _RIGHT, labels.y, "{:,.4g}"),
    ]


def _drawn(labels: Labels, height: float, parts: Sequence[str]) -> Markup:
    body = Markup("").join(parts)
    return drawing(labels.name, labels.title, labels.description, height, body)
