"""Charts as data: the drawing, the same in words, and the numbers as rows.

Nothing in a report is shown by a picture alone, so every chart has a description and a table of its
numbers. How it is drawn is up to the format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hubbub.inference import FloatArray

Rows = tuple[tuple[str, ...], ...]
_LISTED = 200
"""Points of a series that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The words of a chart."""

    name: str  # unique in the page
    title: str
    description: str
    x: str = ""  # what the axes measure
    y: str = ""


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A dot and a bar an estimate, from the top down."""

    labels: Labels
    names: Sequence[str]  # of the lines
    estimate: FloatArray  # shape (n,); shares in percent, or in the chart's unit
    low: FloatArray
    high: FloatArray
    unit: str = "%"  # written after each number
    first: str = "string"  # what the names are of

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return (self.first, "estimate", "interval from", "to")

    @property
    def rows(self) -> Rows:
        """The numbers."""
        lines = zip(self.names, self.estimate, self.low, self.high, strict=True)
        return tuple((name, *(f"{x:.4g}{self.unit}" for x in numbers)) for name, *numbers in lines)


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A course of days with intervals, gaps, and days from which on it is another."""

    labels: Labels
    days: tuple[str, ...]
    # Shape (d,); shares in percent, or in the chart's unit; nan on days without an estimate.
    share: FloatArray
    low: FloatArray
    high: FloatArray
    # Shape (d,); by the changes and the weekly pattern that were found; nan if there are none.
    expected: FloatArray
    changes: tuple[int, ...]  # indices of days
    header: tuple[str, ...]
    rows: Rows  # the numbers
    unit: str = "%"  # written after each number of the axis, which begins at 0 if it is "%"


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together in an `XYChart`."""

    label: str  # in the legend
    x: FloatArray  # shape (n,); nan where there is no point
    y: FloatArray
    # "line" joins the points and "points" doesn't; "cloud" is for points that are many or matter
    # less; "reference" is a dashed line to compare with.
    style: Literal["line", "points", "cloud", "reference"] = "line"
    low: FloatArray | None = None  # shape (n,); ends of the error bars
    high: FloatArray | None = None
    names: tuple[str, ...] = ()  # written next to the points; empty for points without one

    @property
    def rows(self) -> Iterable[tuple[str, ...]]:
        """The numbers: label, name, x, y and error bar; of many points, how many there are."""
        if len(self.x) > _LISTED and not any(self.names):
            yield self.label, f"{len(self.x):,} points", "", "", ""
            return
        low, high = (self.y if end is None else end for end in (self.low, self.high))
        names = self.names or ("",) * len(self.x)
        for name, x, y, start, stop in zip(names, self.x, self.y, low, high, strict=True):
            bar = "" if start == stop else f"{start:.4g} to {stop:.4g}"
            yield self.label, name, f"{x:.6g}", f"{y:.4g}", bar


@dataclass(frozen=True, slots=True)
class XYChart:
    """Series of points over one pair of axes, with a legend."""

    labels: Labels
    series: Sequence[Series]
    log_x: bool = False  # whether an axis is logarithmic; points at or below 0 are then left out
    log_y: bool = False

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return ("series", "point", self.labels.x, self.labels.y, "error bar")

    @property
    def rows(self) -> Rows:
        """The numbers."""
        return tuple(row for each in self.series for row in each.rows)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A table of numbers, each cell as strong in colour as its number is high."""

    labels: Labels  # x names the columns, y the rows
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    # Shape (r, c); in percent, or factors if `diverging`; nan where nothing is known.
    values: FloatArray
    # Values are factors: neutral at 1, two hues, a logarithmic scale. Otherwise one hue, and a
    # square-root scale from 0, which shows small shares next to large ones.
    diverging: bool = False
    unit: str = "%"  # written after a number where there is room

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return ("row", *self.column_names)

    @property
    def rows(self) -> Rows:
        """The numbers."""
        return tuple(
            (name, *("" if math.isnan(each) else f"{each:.4g}{self.unit}" for each in row))
            for name, row in zip(self.row_names, self.values.tolist(), strict=True)
        )


Chart = IntervalChart | TimeSeries | XYChart | HeatMap
"""A chart of a report or a picture."""
