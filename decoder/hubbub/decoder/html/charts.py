"""The charts of a report, each with the words and the table that say the same.

A chart takes arrays and gives SVG, a description of what it shows, and its numbers as rows, so that
nothing in the report is told by a picture alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.html.svg import (
    WIDTH,
    Scale,
    drawing,
    group,
    horizontal_axis,
    polyline,
    span_of,
    tag,
    vertical_axis,
)

_LEFT, _RIGHT, _TOP, _HEIGHT = 70.0, WIDTH - 16.0, 12.0, 250.0
_CELLS = 48
_POINTS = 2_000
_SHADES = 5


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and its text alternatives.

    Attributes
    ----------
    title, description : str
    svg : Markup
    header : tuple of str
    rows : tuple of tuple of str
        The picture's numbers.
    """

    title: str
    description: str
    svg: Markup
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
    x: str
    y: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """One line of an interval chart: shares."""

    label: str
    estimate: float
    low: float
    high: float


def interval_chart(labels: Labels, intervals: Sequence[Interval]) -> Chart:
    """Draw a dot and a bar an estimate, from the top down."""
    left, row = 250.0, 22.0
    bottom = _TOP + row * len(intervals)
    ends = [end for each in intervals for end in (each.low, each.high)]
    scale = Scale(*span_of(ends, around=(0.0,)), left, _RIGHT)
    parts = [horizontal_axis(scale, _TOP, bottom, labels.x, "{:.4g}%")]
    for index, each in enumerate(intervals):
        y = _TOP + row * (index + 0.5)
        name = each.label if len(each.label) <= 32 else each.label[:31] + "…"
        parts += [
            tag("text", name, x=left - 8, y=y + 4, text_anchor="end"),
            tag("line", class_="bar", x1=scale(each.low), x2=scale(each.high), y1=y, y2=y),
            tag("circle", class_="dot", cx=scale(each.estimate), cy=y, r=4),
        ]
    rows = tuple(
        (each.label, f"{each.estimate:.4g}%", f"{each.low:.4g}%", f"{each.high:.4g}%")
        for each in intervals
    )
    header = ("string", "estimate", "interval from", "to")
    return _chart(labels, bottom + 46, parts, header, rows)


def histogram(
    labels: Labels, heights: FloatArray, edges: FloatArray, expected: FloatArray
) -> Chart:
    """Draw bars between edges, and a line of the heights that are expected.

    Parameters
    ----------
    labels : Labels
    heights, expected : float64 array, shape (n,)
    edges : float64 array, shape (n + 1,)
    """
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
    parts = [*_axes(labels, across, up, "{:.4g}"), group(bars), polyline(steps, "expected")]
    rows = tuple(
        (f"{low:.4g} to {high:.4g}", f"{height:.6g}", f"{wanted:.6g}")
        for height, wanted, low, high in zip(heights, expected, edges[:-1], edges[1:], strict=True)
    )
    return _chart(labels, bottom + 46, parts, (labels.x, labels.y, "expected"), rows)


def agreement(labels: Labels, x: FloatArray, y: FloatArray) -> Chart:
    """Draw y against x and the diagonal: points, or shaded cells where points are many.

    Parameters
    ----------
    labels : Labels
    x, y : float64 array, shape (n,)
    """
    bottom = _TOP + _HEIGHT
    ends = span_of([float(v) for v in (x.min(), x.max(), y.min(), y.max())])
    across, up = Scale(*ends, _LEFT, _RIGHT), Scale(*ends, bottom, _TOP)
    counts, edges, _ = np.histogram2d(x, y, bins=_CELLS, range=[ends, ends])
    if len(x) <= _POINTS:
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        marks: list[str] = [
            tag("circle", class_="point", cx=across(a), cy=up(b), r=2) for a, b in pairs
        ]
    else:
        marks = _cells(counts, edges, across, up)
    diagonal = [(across(end), up(end)) for end in ends]
    parts = [*_axes(labels, across, up, "{:.4g}"), group(marks), polyline(diagonal, "expected")]
    return _chart(labels, bottom + 46, parts, *_binned(labels, x, y))


def _cells(counts: FloatArray, edges: FloatArray, across: Scale, up: Scale) -> list[str]:
    """Shade cells in steps of the logarithm of how many points they hold."""
    top = np.log1p(counts.max())
    marks: list[str] = []
    for i, j in np.argwhere(counts > 0).tolist():
        shade = int(np.ceil(_SHADES * np.log1p(counts[i, j]) / top - 1e-9))
        left, right = across(float(edges[i])), across(float(edges[i + 1]))
        low, high = up(float(edges[j])), up(float(edges[j + 1]))
        marks.append(
            tag("rect", class_=f"shade{shade}", x=left, y=high, width=right - left,
                height=low - high)
        )  # fmt: skip
    return marks


def _binned(
    labels: Labels, x: FloatArray, y: FloatArray
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Sum up the points by tenths of x, for the table."""
    order = np.argsort(x, kind="stable")
    parts = [part for part in np.array_split(order, 10) if len(part)]
    rows = tuple(
        (
            f"{x[part].min():.4g} to {x[part].max():.4g}",
            f"{len(part)}",
            f"{x[part].mean():.4g}",
            f"{y[part].mean():.4g}",
        )
        for part in parts
    )
    return (labels.x, "points", f"mean {labels.x}", f"mean {labels.y}"), rows


def stacked(labels: Labels, pieces: Sequence[tuple[str, float]]) -> Chart:
    """Draw parts of one whole side by side, in percent."""
    height, bottom = 44.0, _TOP + 44.0
    total = max(sum(max(part, 0.0) for _, part in pieces), 100.0)
    scale = Scale(0.0, total, 20.0, _RIGHT)
    parts = [horizontal_axis(scale, _TOP, bottom, labels.x, "{:.4g}%")]
    start = 0.0
    for index, (_, part) in enumerate(pieces):
        stop = start + max(part, 0.0)
        parts.append(
            tag("rect", class_=f"piece{index}", x=scale(start), y=_TOP,
                width=scale(stop) - scale(start), height=height)
        )  # fmt: skip
        start = stop
    rows = tuple((label, f"{part:.4g}%") for label, part in pieces)
    return _chart(labels, bottom + 46, parts, ("part", labels.x), rows)


def balance_chart(labels: Labels, reports: IntArray) -> Chart:
    """Draw how many reports each cohort has, or how many cohorts have so many."""
    if len(reports) <= 128:
        edges = np.arange(len(reports) + 1, dtype=np.float64)
        return histogram(
            labels, reports.astype(float), edges, np.full(len(reports), reports.mean())
        )
    low, high = span_of([float(reports.min()), float(reports.max())])
    heights, edges = np.histogram(reports, bins=32, range=(low, high))
    words = Labels(labels.name, labels.title, labels.description, labels.y, "cohorts")
    return histogram(words, heights.astype(float), edges, np.zeros(len(heights)))


def _axes(labels: Labels, across: Scale, up: Scale, form: str) -> list[Markup]:
    bottom = _TOP + _HEIGHT
    return [
        horizontal_axis(across, _TOP, bottom, labels.x, form),
        vertical_axis(up, _LEFT, _RIGHT, labels.y, "{:,.4g}"),
    ]


def _chart(
    labels: Labels,
    height: float,
    parts: Sequence[str],
    header: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
) -> Chart:
    svg = drawing(labels.name, labels.title, labels.description, height, Markup("").join(parts))
    return Chart(labels.title, labels.description, svg, header, rows)
