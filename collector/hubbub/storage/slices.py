"""Which of a metric's slices are read: those whose dimensions have some values.

Invariant: no slice is read by itself that has fewer reports in a day than its metric's
`min_reports`. It is read as what it is pooled into, whether upkeep has moved its reports there yet
or not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from hubbub.protocol.dimensions import OTHER, Dimension, parse_slice, pooled

SliceSizes: TypeAlias = dict[dt.date, dict[str, int]]
"""The number of reports of each slice, by day."""


class Told(Protocol):
    """A metric, as far as its reports tell something in the clear."""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What they tell; what matters most comes first."""

    @property
    def min_reports(self) -> int:
        """How many reports a slice has at least on a day."""


class Where(NamedTuple):
    """Which of a metric's reports to read.

    Attributes
    ----------
    metric : Told
    values : mapping of str to collection of str
        By dimension; a report must have one of them in each.
    """

    metric: Told
    values: Mapping[str, Collection[str]]

    def admits(self, text: str) -> bool:
        """Return whether a slice, as it is pooled, has these values."""
        named = parse_slice(text)
        return all(named.get(name, OTHER) in some for name, some in self.values.items())

    def chosen(self, sizes: SliceSizes) -> set[tuple[dt.date, str]]:
        """Return the days and stored slices that are read."""
        return {
            (day, text)
            for day, reports in sizes.items()
            for text, into in pools(self.metric, reports).items()
            if self.admits(into)
        }


def pools(metric: Told, reports: Mapping[str, int]) -> dict[str, str]:
    """Return into which slice each of a metric's slices of a day goes (see `pooled`)."""
    return pooled(reports, metric.dimensions, metric.min_reports)


def added(rows: Iterable[tuple[dt.date, str, int]]) -> SliceSizes:
    """Return the sums of rows of a day, a slice and a number of reports."""
    sizes: SliceSizes = {}
    for day, text, reports in rows:
        of_day = sizes.setdefault(day, {})
        of_day[text] = of_day.get(text, 0) + reports
    return sizes


def values_of(metric: Told, dimension: str, sizes: SliceSizes) -> list[str]:
    """Return the values of a dimension that can be read by themselves on some day, and "other"."""
    found = {
        parse_slice(into).get(dimension, OTHER)
        for reports in sizes.values()
        for into in pools(metric, reports).values()
    }
    return sorted(found - {OTHER}) + [OTHER] * (OTHER in found)
