"""How a table of shares or factors looks: cells, their margins, and what the colours stand for.

Both hues at their strongest are still pale enough (or in dark themes dark enough) for a number in
the colour of all texts, so that depth alone carries the value and no number changes its colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from hubbub.inference.arrays import FloatArray
from hubbub.reporting.charts import HeatMap
from hubbub.reporting.formats.svg import WIDTH, Scale, drawing, named_text, tag, upright
from hubbub.reporting.text import columns

_TOP, _RIGHT, _EDGE = 16.0, WIDTH - 16.0, 16.0
_LETTER, _LINE, _NAME = 7.0, 12.0, 24
"""About how wide a letter and how high a line is, and the columns that a name may take."""
_WIDEST, _HIGHEST, _LOWEST, _TALLEST = 64.0, 20.0, 3.0, 800.0
"""A cell's largest width and height and least height; many rows share so much height."""
_NUMBERED = (26.0, 12.0)
"""Width and height of a cell from which on its number is in it."""
_MARGIN, _APART = 40.0, 6.0
"""How wide the margin of the rows is, and how far margins are from the cells."""
_SEPARATE = 16.0
"""Cells at least so wide and high have a gap between them."""
_LEGEND, _STEPS = 200.0, 40
_FACTORS = (2.0, 16.0)
"""The strongest colour stands for the largest factor if that is between these."""


class _Layout(NamedTuple):
    """Where the cells are, in pixels."""

    left: float
    top: float
    wide: float
    high: float

    @property
    def numbered(self) -> tuple[bool, bool]:
        """Whether numbers fit across and down."""
        return self.wide >= _NUMBERED[0], self.high >= _NUMBERED[1]

    def at(self, row: float, column: float) -> tuple[float, float]:
        """Return the left and the top of a cell."""
        return self.left + self.wide * column, self.top + self.high * row


def draw_heat_map(chart: HeatMap) -> Markup:
    """Draw cells with their margins beside and below them, and the legend."""
    rows, places = chart.values.shape
    layout = _layout(chart)
    right, bottom = layout.at(rows, places)
    largest, depths = _depths(chart)
    parts = [*_names(chart, layout)]
    for (i, j), value in np.ndenumerate(chart.values):
        x, y = layout.at(i, j)
        parts.append(_cell(x, y, layout.wide, layout.high, float(depths[i, j])))
        if all(layout.numbered):
            parts.append(_number(float(value), x + layout.wide / 2, y + layout.high / 2))
    if chart.row_margin is not None:
        parts += _row_margin(chart.row_margin, layout, right + _APART)
    if chart.column_margin is not None:
        parts += _column_margin(chart.column_margin, layout, bottom + _APART)
        bottom += _APART + _HIGHEST
    parts += _legend(chart, largest, layout.left, bottom + 12)
    return drawing(chart.labels, bottom + 48, parts)


def _layout(chart: HeatMap) -> _Layout:
    """Return as large cells as the width and many rows allow."""
    rows, places = (max(size, 1) for size in chart.values.shape)
    left = _EDGE + _LETTER * _longest((*chart.row_names, chart.labels.y, "all")) + 8
    beside = 0.0 if chart.row_margin is None else _APART + _MARGIN
    wide = min((_RIGHT - left - beside) / places, _WIDEST)
    high = min(max(_TALLEST / rows, _LOWEST), _HIGHEST)
    longest = _LETTER * _longest(chart.column_names)
    heading = longest + 4 if longest > wide - 4 else _LINE
    return _Layout(left, _TOP + heading + 10, wide, high)


def _longest(names: tuple[str, ...]) -> int:
    return min(max(map(columns, names), default=0), _NAME)


def _names(chart: HeatMap, layout: _Layout) -> Iterator[Markup]:
    """Write what rows and columns are and their names, upright if one is too long for its column.

    Of rows or columns that are closer than a line, every second has its name, or fewer.
    """
    left, top, wide, high = layout
    yield named_text(chart.labels.y, _NAME, left - 8, top - 6, "end")
    yield tag("text", chart.labels.x, x=left, y=_TOP)
    rows, places = chart.values.shape
    for i in range(0, rows, math.ceil(_LINE / high)):
        y = layout.at(i + 0.5, 0)[1] + 4
        yield named_text(chart.row_names[i], _NAME, left - 8, y, "end")
    turned = _LETTER * _longest(chart.column_names) > wide - 4
    for j in range(0, places, math.ceil(_LINE / wide)):
        x, name = layout.at(0, j + 0.5)[0], chart.column_names[j]
        if turned:
            transform = upright(x + 4, top - 6)
            yield named_text(name, _NAME, x + 4, top - 6, "start", transform=transform)
        else:
            yield named_text(name, _NAME, x, top - 6, "middle")


def _row_margin(margin: FloatArray, layout: _Layout, x: float) -> Iterator[Markup]:
    """Draw a bar beside each row, the largest as wide as the margin."""
    yield tag("text", "all", x=x + _MARGIN / 2, y=layout.top - 6, text_anchor="middle")
    height = max(layout.high - 1, 1.0)
    for i, part in enumerate(_parts_of_largest(margin)):
        y = layout.at(i, 0)[1]
        yield tag("rect", class_="band", x=x, y=y, width=_MARGIN * part, height=height)
        if layout.numbered[1]:
            yield _number(float(margin[i]), x + _MARGIN / 2, y + layout.high / 2)


def _column_margin(margin: FloatArray, layout: _Layout, top: float) -> Iterator[Markup]:
    """Draw a bar below each column, the largest as high as a row is at most."""
    yield tag("text", "all", x=layout.left - 8, y=top + _HIGHEST / 2 + 4, text_anchor="end")
    width = max(layout.wide - 1, 1.0)
    for j, part in enumerate(_parts_of_largest(margin)):
        x, height = layout.at(0, j)[0], _HIGHEST * part
        y = top + _HIGHEST - height
        yield tag("rect", class_="band", x=x, y=y, width=width, height=height)
        if layout.numbered[0]:
            yield _number(float(margin[j]), x + layout.wide / 2, top + _HIGHEST / 2)


def _legend(chart: HeatMap, largest: float, left: float, top: float) -> Iterator[Markup]:
    """Draw the colours from the lowest to the strongest, and write what they stand for."""
    lowest = -1.0 if chart.diverging else 0.0
    across = Scale(lowest, 1.0, left, left + _LEGEND)
    step = _LEGEND / _STEPS
    for i in range(_STEPS):
        depth = lowest + (1 - lowest) * (i + 0.5) / _STEPS
        yield _cell(left + step * i, top, step, 10.0, depth)
    for depth in (-1.0, -0.5, 0.0, 0.5, 1.0) if chart.diverging else (0.0, 0.5, 1.0):
        value = largest**depth if chart.diverging else largest * depth**2
        text = f"{value:.2g}{chart.unit}"
        yield tag("text", text, x=across(depth), y=top + 24, text_anchor="middle")


def _depths(chart: HeatMap) -> tuple[float, FloatArray]:
    """Return what the strongest colour stands for, and how deep each cell is.

    Depths are within [-1, 1], below 0 for factors below 1, and nan where nothing is known.
    """
    values = np.maximum(chart.values, 0.0)
    if not chart.diverging:
        largest = float(values[np.isfinite(values)].max(initial=0.0)) or 1.0
        return largest, np.sqrt(values / largest)
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    farthest = float(np.abs(logs[np.isfinite(logs)]).max(initial=0.0))
    least, most = map(math.log, _FACTORS)
    farthest = min(max(farthest, least), most)
    return math.exp(farthest), np.clip(logs / farthest, -1.0, 1.0)


def _parts_of_largest(margin: FloatArray) -> list[float]:
    """Return shares as parts of the largest one; those unknown or below 0 as 0."""
    shares = np.maximum(np.nan_to_num(margin), 0.0)
    parts: list[float] = (shares / (float(shares.max(initial=0.0)) or 1.0)).tolist()
    return parts


def _cell(x: float, y: float, width: float, height: float, depth: float) -> Markup:
    gap = 1.0 if min(width, height) >= _SEPARATE else 0.0
    width, height = width - gap, height - gap
    if math.isnan(depth):
        return tag("rect", class_="gap", x=x, y=y, width=width, height=height)
    hue, depth = "cool" if depth < 0 else "heat", abs(depth)
    return tag("rect", class_=hue, fill_opacity=depth, x=x, y=y, width=width, height=height)


def _number(value: float, x: float, y: float) -> Markup:
    """Write a number with two digits that count, but at most two decimals."""
    if math.isnan(value):
        return Markup("")
    decimals = sum(abs(value) < limit for limit in (9.95, 0.995))
    text = f"{value:.{decimals}f}"
    return tag(
        "text", text if float(text) else "0", class_="cell", x=x, y=y + 4, text_anchor="middle"
    )
