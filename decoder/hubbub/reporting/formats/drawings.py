"""Charts -> SVG.

Charts are data (`hubbub.reporting.charts`); this module is all that knows how one of each
looks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from markupsafe import Markup

from hubbub.inference.arrays import FloatArray
from hubbub.reporting.charts import (
    Chart,
    GroupedBars,
    Histogram,
    IntervalChart,
    Labels,
    ScatterPlot,
    Series,
    Stack,
    TimeSeries,
    Tree,
    TreeNode,
    XYChart,
    span_of,
)
from hubbub.reporting.formats.heat_map import draw_heat_map
from hubbub.reporting.formats.svg import (
    WIDTH,
    Scale,
    drawing,
    group,
    horizontal_axis,
    named_text,
    path_points,
    polyline,
    tag,
    vertical_axis,
)
from hubbub.reporting.text import columns, shortened

_LEFT, _RIGHT, _TOP, _HEIGHT = 70.0, WIDTH - 16.0, 12.0, 250.0
_COURSE_TOP, _COURSE_HEIGHT = 8.0, 110.0
_CELLS = 48  # each is 13 of the chart's units wide: large enough to be seen
_POINTS = 2_000  # more hide each other, and weigh a megabyte
_SHADES = 5  # of the style sheet (d1 to d5)
_COLOURS = 4  # of the style sheet: more are hard to tell apart
_LEGEND_ROW = 18.0  # a line of text of 12 units, and room
_LETTER = 7.0
"""About as wide as a letter is."""
_NAME, _LABEL = 24, 32
"""Columns that a point's name and a line's label may take."""
_TREE_LEFT, _TREE_BAR, _TREE_ROW, _TREE_LEAST = 20.0, 8.0, 15.0, 2.0
_GAP = 4.0
"""Space above the topmost tick in which names may stand."""
_MARKED = 24
"""Points of a line up to which each has a mark of its own."""
_Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


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
    parts = [horizontal_axis(scale, _TOP, bottom, chart.labels.x, "{:.4g}" + chart.unit)]
    for index, each in enumerate(chart.intervals):
        y = _TOP + row * (index + 0.5)
        parts += [
            named_text(each.label, _LABEL, left - 8, y + 4, "end"),
            tag("line", class_="bar", x1=scale(each.low), x2=scale(each.high), y1=y, y2=y),
            tag("circle", class_="dot", cx=scale(each.estimate), cy=y, r=4),
        ]
    return drawing(chart.labels, bottom + 46, parts)


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
    return drawing(chart.labels, bottom + 46, parts)


@draw.register
def _agreement(chart: ScatterPlot) -> Markup:
    """Draw points, or shaded cells where points are many."""
    x, y, bottom = chart.x, chart.y, _TOP + _HEIGHT
    ends = span_of([float(v) for v in (x.min(), x.max(), y.min(), y.max())])
    across, up = Scale(*ends, _LEFT, _RIGHT), Scale(*ends, bottom, _TOP)
    marks = _cloud(x, y, across, up)
    diagonal = [(across(end), up(end)) for end in ends]
    parts = [*_axes(chart.labels, across, up), group(marks), polyline(diagonal, "expected")]
    return drawing(chart.labels, bottom + 46, parts)


def _cloud(x: FloatArray, y: FloatArray, across: Scale, up: Scale) -> list[Markup]:
    """Draw points; of many, cells in steps of the logarithm of how many points they hold."""
    if len(x) <= _POINTS:
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        return [tag("circle", class_="point", cx=across(a), cy=up(b), r=2) for a, b in pairs]
    edges = [
        (np.geomspace if scale.log else np.linspace)(scale.low, scale.high, _CELLS + 1)
        for scale in (across, up)
    ]
    counts, columns, rows = np.histogram2d(x, y, bins=edges)
    top = np.log1p(counts.max())
    marks: list[Markup] = []
    for i, j in np.argwhere(counts > 0).tolist():
        shade = int(np.ceil(_SHADES * np.log1p(counts[i, j]) / top - 1e-9))
        left, right = across(float(columns[i])), across(float(columns[i + 1]))
        low, high = up(float(rows[j])), up(float(rows[j + 1]))
        marks.append(
            tag("rect", class_=f"shade{shade}", x=left, y=high, width=right - left,
                height=low - high)
        )  # fmt: skip
    return marks


@draw.register
def _xy(chart: XYChart) -> Markup:
    series = [_drawable(each, chart) for each in chart.series]
    top = _TOP + _LEGEND_ROW * len(series)
    bottom, right = top + _HEIGHT, _RIGHT - 24.0  # room for half a tick's label
    zero = () if chart.log_x else (0.0,)
    xs = [value for each in series for value in each.x.tolist()]
    ends = [end for each in series for end in (each.y, each.low, each.high) if end is not None]
    ys = [value for end in ends for value in end.tolist() if value > 0 or not chart.log_y]
    across = Scale(*_span(xs, zero, chart.log_x), _LEFT, right, chart.log_x)
    up = Scale(*_span(ys, () if chart.log_y else (0.0,), chart.log_y), bottom, top, chart.log_y)
    parts = [
        horizontal_axis(across, top, bottom, chart.labels.x, "{:,.10g}"),
        vertical_axis(up, _LEFT, right, chart.labels.y, "{:,.4g}"),
    ]
    numbers = itertools.count()
    named: list[tuple[tuple[float, float], str]] = []
    for row, each in enumerate(series):
        y = _TOP + _LEGEND_ROW * row
        sample: Sequence[tuple[float, float]] = [(_LEFT + 2, y), (_LEFT + 26, y)]
        points = [(across(a), up(b)) for a, b in zip(each.x.tolist(), each.y.tolist(), strict=True)]
        if each.style == "cloud":
            parts.append(group(_cloud(each.x, each.y, across, up)))
            parts.append(tag("circle", class_="point", cx=_LEFT + 14, cy=y, r=2))
        elif each.style == "reference":
            parts += [polyline(line, "expected") for line in (points, sample)]
        else:
            number = next(numbers) % _COLOURS
            parts += _marked(each, number, points, up)
            named += zip(points, each.names, strict=False)
            if each.style == "line":
                parts += [polyline(line, f"line line{number}") for line in (points, sample)]
            if each.style == "points" or len(points) <= _MARKED:
                parts.append(_mark(number, _LEFT + 14, y))
        parts.append(tag("text", each.label, x=_LEFT + 34, y=y + 4))
    area = (_LEFT, top - _GAP, WIDTH, bottom)
    drawn = [box for each in series for box in _boxes(each, across, up)]
    parts += _beside(named, area, drawn)
    return drawing(chart.labels, bottom + 46, parts)


def _span(values: Sequence[float], around: Sequence[float], log: bool) -> tuple[float, float]:
    """Return the ends of an axis; a logarithmic one that has but one value spans a decade."""
    low, high = span_of(values or [1.0], around=around)
    return (low, high) if low > 0 or not log else (high / 10, high)


def _drawable(series: Series, chart: XYChart) -> Series:
    """Leave out what has no place on the axes."""
    there = np.isfinite(series.x) & np.isfinite(series.y)
    there &= (series.x > 0) if chart.log_x else True
    there &= (series.y > 0) if chart.log_y else True
    low, high = (None if each is None else each[there] for each in (series.low, series.high))
    names = tuple(name for name, drawn in zip(series.names, there, strict=False) if drawn)
    return Series(series.label, series.x[there], series.y[there], series.style, low, high, names)


def _marked(
    series: Series, number: int, points: Sequence[tuple[float, float]], up: Scale
) -> list[Markup]:
    """Draw error bars and marks."""
    parts: list[Markup] = []
    if series.low is not None and series.high is not None:
        ends = zip(points, series.low.tolist(), series.high.tolist(), strict=True)
        parts += [
            tag("line", class_=f"bar bar{number}", x1=x, x2=x, y1=up(low), y2=up(high))
            for (x, _), low, high in ends
            if high > low
        ]
    if series.style == "points" or len(points) <= _MARKED:
        parts += [_mark(number, x, y) for x, y in points]
    return parts


def _boxes(series: Series, across: Scale, up: Scale) -> list[_Box]:
    """Return what a series covers: its points, error bars and lines; not a cloud, which is pale."""
    if series.style == "cloud":
        return []
    xs, ys = map(across, series.x.tolist()), map(up, series.y.tolist())
    points = list(zip(xs, ys, strict=True))
    boxes = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    if series.low is not None and series.high is not None:
        ends = zip(points, series.low.tolist(), series.high.tolist(), strict=True)
        boxes += [(x - 1, up(high), x + 1, up(low)) for (x, _), low, high in ends]
    if series.style != "points":
        steps = np.linspace(0, 1, 101)[:, None]
        for start, stop in itertools.pairwise(np.array(points)):
            line = (start + steps * (stop - start)).tolist()
            boxes += [(x - 1, y - 1, x + 1, y + 1) for x, y in line]
    return boxes


def _beside(
    named: Sequence[tuple[tuple[float, float], str]], area: _Box, drawn: Sequence[_Box]
) -> list[Markup]:
    """Write names beside their points where they cover nothing, and no name where none fits."""
    parts: list[Markup] = []
    taken = np.array(drawn).reshape(-1, 4)
    for (x, y), name in sorted(named, key=lambda each: each[0][1]):
        if not name:
            continue
        width = _LETTER * (columns(shortened(name, _NAME)) + 1)
        for below, side in itertools.product((14.0, -5.0, 4.0, 22.0, -15.0), (1, -1)):
            left = x + 7 if side > 0 else x - 7 - width
            box = (left, y + below - 10, left + width, y + below + 3)
            inside = box[0] >= area[0] and box[1] >= area[1]
            inside &= box[2] <= area[2] and box[3] <= area[3]
            apart = (taken[:, 0] >= box[2]) | (taken[:, 2] <= box[0])
            apart |= (taken[:, 1] >= box[3]) | (taken[:, 3] <= box[1])
            if inside and apart.all():
                taken = np.vstack([taken, box])
                anchor = "start" if side > 0 else "end"
                parts.append(named_text(name, _NAME, x + 7 * side, y + below, anchor))
                break
    return parts


def _mark(number: int, x: float, y: float) -> Markup:
    """Return a point whose shape, not only its colour, tells its series."""
    fill = f"fill{number}"
    if number == 0:
        return tag("circle", class_=fill, cx=x, cy=y, r=3.5)
    if number == 1:
        return tag("rect", class_=fill, x=x - 3.5, y=y - 3.5, width=7, height=7)
    corners = [(x, y - 4.5), (x + 4.5, y + 3.5), (x - 4.5, y + 3.5)]
    if number == 3:
        corners = [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)]
    return tag("polygon", class_=fill, points=path_points(corners))


@draw.register
def _grouped_bars(chart: GroupedBars) -> Markup:
    top = _TOP + _LEGEND_ROW * len(chart.groups)
    bottom = top + _HEIGHT
    tallest = [float(value) for _, heights in chart.groups for value in heights]
    up = Scale(*span_of(tallest, around=(0.0,)), bottom, top)
    across = Scale(0.0, float(len(chart.categories)), _LEFT, _RIGHT)
    wide = 0.8 * (across(1) - across(0)) / len(chart.groups)
    parts = [vertical_axis(up, _LEFT, _RIGHT, chart.labels.y, "{:,.4g}")]
    for place, category in enumerate(chart.categories):
        x = across(place + 0.5)
        parts.append(tag("text", category, x=x, y=bottom + 16, text_anchor="middle"))
    middle = (_LEFT + _RIGHT) / 2
    parts.append(tag("text", chart.labels.x, x=middle, y=bottom + 36, text_anchor="middle"))
    for number, (label, heights) in enumerate(chart.groups):
        fill, y = f"fill{number % _COLOURS}", _TOP + _LEGEND_ROW * number
        parts.append(tag("rect", class_=fill, x=_LEFT + 2, y=y - 5, width=24, height=10))
        parts.append(tag("text", label, x=_LEFT + 34, y=y + 4))
        parts += [
            tag("rect", class_=fill, x=across(place + 0.1) + number * wide, y=up(height),
                width=wide, height=bottom - up(height))
            for place, height in enumerate(heights.tolist())
            if height > 0
        ]  # fmt: skip
    return drawing(chart.labels, bottom + 46, parts)


@draw.register
def _tree(chart: Tree) -> Markup:
    """Draw one column per step; a node stands as near to its beginning as there is room."""
    wide = (_RIGHT - _TREE_LEFT) / len(chart.columns)
    tallest = max((sum(node.share for node in nodes) for nodes in chart.nodes), default=0.0)
    most = max((len(nodes) for nodes in chart.nodes), default=0)
    height = max(_HEIGHT, _TREE_ROW * most)
    scale = (height - _TREE_ROW * most / 2) / max(tallest, 1e-300)
    parts: list[str] = []
    before: list[tuple[bytes, float, float]] = []
    lowest = _TOP
    for column, (head, nodes) in enumerate(zip(chart.columns, chart.nodes, strict=True)):
        x = _TREE_LEFT + wide * column
        parts.append(tag("text", head, x=x, y=_TOP + 4))
        placed, y = [], _TOP + _LEGEND_ROW
        for node, parent in _by_parent(nodes, before):
            high = max(scale * node.share, _TREE_LEAST)
            y = max(y, parent[1]) if parent else y
            parts.append(tag("rect", class_="mark", x=x, y=y, width=_TREE_BAR, height=high))
            if parent:
                start = x - wide + _TREE_BAR
                line = [(start, parent[1] + parent[2] / 2), (x, y + high / 2)]
                parts.append(polyline(line, "grid branch"))
            label = shortened(node.label, max(int((wide - 2 * _TREE_BAR) / _LETTER), 4))
            label_y = y + min(high / 2, _TREE_ROW / 2) + 4
            parts.append(named_text(label, _LABEL, x + _TREE_BAR + 4, label_y, "start"))
            placed.append((node.text, y, high))
            y += max(high + 1, _TREE_ROW)
        before, lowest = placed, max(lowest, y)
    return drawing(chart.labels, lowest + 12, parts)


def _by_parent(
    nodes: Sequence[TreeNode], before: Sequence[tuple[bytes, float, float]]
) -> list[tuple[TreeNode, tuple[bytes, float, float] | None]]:
    """Return nodes from the top down, in the order of what they begin with, and that."""
    found = []
    for node in nodes:
        beginnings = [each for each in before if node.text.startswith(each[0])]
        found.append((node, max(beginnings, key=lambda each: len(each[0]), default=None)))
    return sorted(found, key=lambda pair: pair[1][1] if pair[1] else float("inf"))


draw.register(draw_heat_map)


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
    return drawing(chart.labels, bottom + 46, parts)


@draw.register
def _course(chart: TimeSeries) -> Markup:
    top, bottom = _COURSE_TOP, _COURSE_TOP + _COURSE_HEIGHT
    last = len(chart.days) - 1
    across = Scale(0.0, max(last, 1.0), _LEFT + 8, _RIGHT)
    around = (0.0,) if chart.unit == "%" else ()
    up = Scale(*span_of([*chart.low, *chart.high], around=around), bottom, top)
    parts = [vertical_axis(up, _LEFT, _RIGHT, chart.labels.y, "{:.4g}" + chart.unit)]
    for gap in np.flatnonzero(np.isnan(chart.share)):
        left, right = across(gap - 0.5), across(gap + 0.5)
        parts.append(
            tag("rect", class_="gap", x=left, y=top, width=right - left, height=_COURSE_HEIGHT)
        )
    parts += _bands(chart, across, up)
    steps = [(i + half, y) for i, y in enumerate(chart.expected) for half in (-0.5, 0.5)]
    line = [(across(x), up(float(y))) for x, y in steps if not np.isnan(y)]
    parts += [polyline(line, "expected")] if line else []
    for day in chart.changes:
        x = across(day - 0.5)
        parts.append(tag("line", class_="change", x1=x, x2=x, y1=top, y2=bottom))
    for place, anchor in ((0, "start"), (last, "end")):
        x = across(place)
        parts.append(tag("text", chart.days[place], x=x, y=bottom + 18, text_anchor=anchor))
    return drawing(chart.labels, bottom + 26, parts)


def _bands(course: TimeSeries, across: Scale, up: Scale) -> list[Markup]:
    """Draw each stretch of days without a gap: its band, its line, and one dot per day."""
    share, low, high = course.share, course.low, course.high
    parts: list[Markup] = []
    for known, places in itertools.groupby(range(len(share)), key=lambda i: not np.isnan(share[i])):
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
