"""Charts as data: what is drawn, the words that say the same, and the numbers as rows.

Nothing in a report is told by a picture alone, so every chart has a description and a table of its
numbers. How it is drawn is up to the format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import FloatArray, IntArray

Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """The words of a chart.

    Attributes
    ----------
    name : str
        Unique in the page.
    title, description : str
    x, y : str
        What the axes measure.
    """

    name: str
    title: str
    description: str
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """One line of an interval chart: shares in percent."""

    label: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A dot and a bar an estimate, from the top down."""

    labels: Labels
    intervals: Sequence[Interval]

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return ("string", "estimate", "interval from", "to")

    @property
    def rows(self) -> Rows:
        """The numbers."""
        return tuple(
            (each.label, f"{each.estimate:.4g}%", f"{each.low:.4g}%", f"{each.high:.4g}%")
            for each in self.intervals
        )


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars between edges, and a line of the heights that are expected.

    Attributes
    ----------
    labels : Labels
    heights, expected : float64 array, shape (n,)
    edges : float64 array, shape (n + 1,)
    """

    labels: Labels
    heights: FloatArray
    edges: FloatArray
    expected: FloatArray

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return (self.labels.x, self.labels.y, "expected")

    @property
    def rows(self) -> Rows:
        """The numbers."""
        return tuple(
            (f"{low:.4g} to {high:.4g}", f"{height:.6g}", f"{expected:.6g}")
            for height, expected, low, high in zip(
                self.heights, self.expected, self.edges[:-1], self.edges[1:], strict=True
            )
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """Points of y against x beside the diagonal.

    Attributes
    ----------
    labels : Labels
    x, y : float64 array, shape (n,)
    """

    labels: Labels
    x: FloatArray
    y: FloatArray

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        x, y = self.labels.x, self.labels.y
        return (x, "points", f"mean {x}", f"mean {y}")

    @property
    def rows(self) -> Rows:
        """The points summed up by tenths of x."""
        x, y = self.x, self.y
        order = np.argsort(x, kind="stable")
        return tuple(
            (
                f"{x[part].min():.4g} to {x[part].max():.4g}",
                f"{len(part)}",
                f"{x[part].mean():.4g}",
                f"{y[part].mean():.4g}",
            )
            for part in np.array_split(order, 10)
            if len(part)
        )


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts of one whole side by side, in percent, each with its label."""

    labels: Labels
    pieces: Sequence[tuple[str, float]]

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the numbers."""
        return ("part", self.labels.x)

    @property
    def rows(self) -> Rows:
        """The numbers."""
        return tuple((label, f"{part:.4g}%") for label, part in self.pieces)


@dataclass(frozen=True, slots=True)
class Course:
    """Shares day by day with their intervals, gaps, and days from which on they are another.

    Attributes
    ----------
    labels : Labels
    days : tuple of str, length d
    share, low, high : float64 array, shape (d,)
        In percent; nan on days without an estimate.
    changes : tuple of int
        Indices of days.
    header : tuple of str
    rows : tuple of tuple of str
        The numbers.
    """

    labels: Labels
    days: tuple[str, ...]
    share: FloatArray
    low: FloatArray
    high: FloatArray
    changes: tuple[int, ...]
    header: tuple[str, ...]
    rows: Rows


Chart = IntervalChart | Histogram | Agreement | Stack | Course
"""What a report may hold."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over one axis, both axes logarithmic, and a point that stands out.

    Attributes
    ----------
    title, x, y : str
        The title, and what the axes measure.
    lines : tuple of (str, sequence of (float, float))
        A label and points.
    point : (float, float)
        On the first curve.
    """

    title: str
    x: str
    y: str
    lines: tuple[tuple[str, Sequence[tuple[float, float]]], ...]
    point: tuple[float, float]


def balance_chart(labels: Labels, reports: IntArray) -> Histogram:
    """Return how many reports each cohort has, or how many cohorts have so many."""
    if len(reports) <= 128:
        edges = np.arange(len(reports) + 1, dtype=np.float64)
        mean = np.full(len(reports), reports.mean())
        return Histogram(labels, reports.astype(float), edges, mean)
    low, high = span_of([float(reports.min()), float(reports.max())])
    heights, edges = np.histogram(reports, bins=32, range=(low, high))
    words = Labels(labels.name, labels.title, labels.description, labels.y, "cohorts")
    return Histogram(words, heights.astype(float), edges, np.zeros(len(heights)))


def span_of(values: Iterable[float], *, around: Sequence[float] = ()) -> tuple[float, float]:
    """Return the least and largest of finite values and of `around`, never the same twice."""
    finite = [value for value in (*values, *around) if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if low == high:
        margin = abs(low) / 2 or 0.5
        return low - margin, high + margin
    return low, high
