"""The types that all of storage shares, and the choice of stored reports.

Reports are distinguished by metric, version, slice and UTC day, and by nothing else. The decoder
reads any `Reader`: a store, or an exported directory; `Where` chooses the slices whose dimensions
have some values. Invariants: the width in a definition is the records' own; and no slice is read by
itself that has fewer reports in a day than its metric's `min_reports`, not even what is left of all
others. It is read as what it is pooled into, whether upkeep has moved its reports there yet, or is
just doing so, or not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from hubbub.protocol import (
    MIN_REPORTS,
    OTHER,
    Dimension,
    KeptCounts,
    Metric,
    RapporParams,
    Records,
    Response,
    parse_slice,
    pooled,
    record_width,
    response_of,
)


class MetricVersion(NamedTuple):
    """The key of reports that are stored together."""

    metric: str
    version: int
    # The app's dimensions (see `hubbub.protocol.dimensions`). A reader asks for a metric and
    # version, and gets all slices unless it chooses some.
    slice: str = ""

    @property
    def whole(self) -> MetricVersion:
        """The metric and version alone."""
        return MetricVersion(self.metric, self.version) if self.slice else self


class NewBatch(NamedTuple):
    """A batch to be stored."""

    batch_id: bytes  # 128 bits, by the protocol
    records: Mapping[MetricVersion, Records]


class Declared(NamedTuple):
    """A version of a metric that was ever declared, with all that its reports depend on."""

    metric: str
    version: int
    definition: dict[str, Any]
    # The app's facts in its reports, by the last declaration.
    dimensions: tuple[Dimension, ...] = ()
    min_reports: int = MIN_REPORTS  # slices with fewer reports on a day are pooled

    @classmethod
    def of(cls, metric: Metric) -> Declared:
        """Return what a registry declares."""
        return cls(
            metric.name, metric.version, metric.definition, metric.dimensions, metric.min_reports
        )

    @property
    def params(self) -> RapporParams:
        """The parameters of the definition."""
        return RapporParams.from_definition(self.definition)

    @property
    def response(self) -> Response:
        """The response of the definition."""
        return response_of(self.definition)

    @property
    def width(self) -> int:
        """The bytes of a record."""
        return record_width(self.definition["k"])


SliceSizes: TypeAlias = dict[dt.date, dict[str, int]]
"""The number of reports of each slice, by day."""
Cell: TypeAlias = tuple[dt.date | None, str]
"""The other dimensions of reports than those asked for, on a day; None: on any."""


class Where(NamedTuple):
    """The choice of a metric's reports to read."""

    metric: Metric | Declared
    values: Mapping[str, Collection[str]]  # by dimension; a report must have one of them in each
    # Only reports whose other dimensions, and day, are among these; None: all.
    cells: frozenset[Cell] | None = None

    def admits(self, text: str) -> bool:
        """Return whether a slice, as it is pooled, has these values."""
        named = parse_slice(text)
        return all(named.get(name, OTHER) in some for name, some in self.values.items())

    def chosen(self, sizes: SliceSizes) -> set[tuple[dt.date, str]]:
        """Return the days and stored slices that are read.

        With those into which they go: upkeep may move them before they are read.
        """
        return {
            (day, text)
            for day, found in self._pooled(sizes)
            for source, into in found.items()
            for text in (source, into)
        }

    def read_cells(self, sizes: SliceSizes, *, by_day: bool) -> set[Cell]:
        """Return the other dimensions and the day of the reports that are read.

        `by_day`: whether days are kept apart.
        """
        return {
            self._cell(day if by_day else None, into)
            for day, found in self._pooled(sizes)
            for into in found.values()
        }

    def reports(self, sizes: SliceSizes) -> int:
        """Return how many reports are read."""
        return sum(sizes[day].get(text, 0) for day, found in self._pooled(sizes) for text in found)

    def reports_that_tell(self, sizes: SliceSizes, names: Collection[str]) -> int:
        """Return how many of the reports have all of some dimensions."""
        return sum(
            sizes[day].get(text, 0)
            for day, found in self._pooled(sizes)
            for text, into in found.items()
            if parse_slice(into).keys() >= set(names)
        )

    def _pooled(self, sizes: SliceSizes) -> Iterator[tuple[dt.date, dict[str, str]]]:
        for day, reports in sizes.items():
            goes = pools(self.metric, reports)
            least = sum(reports[text] for text, into in goes.items() if not into)
            yield (
                day,
                {
                    text: into
                    for text, into in goes.items()
                    if self.admits(into)
                    and (into or not self.values or least >= self.metric.min_reports)
                    and self._is_matched(day, into)
                },
            )

    def _is_matched(self, day: dt.date, text: str) -> bool:
        cells = self.cells
        return cells is None or not cells.isdisjoint(
            {self._cell(day, text), self._cell(None, text)}
        )

    def _cell(self, day: dt.date | None, text: str) -> Cell:
        others = ",".join(
            f"{name}={value}"
            for name, value in parse_slice(text).items()
            if name not in self.values
        )
        return day, others


def pools(metric: Metric | Declared, reports: Mapping[str, int]) -> dict[str, str]:
    """Return into which slice each of a metric's slices of a day goes (see `pooled`)."""
    return pooled(reports, metric.dimensions, metric.min_reports)


def values_of(metric: Metric | Declared, dimension: str, sizes: SliceSizes) -> list[str]:
    """Return the values of a dimension that can be read by themselves on some day, and "other"."""
    found = {
        parse_slice(into).get(dimension, OTHER)
        for reports in sizes.values()
        for into in pools(metric, reports).values()
    }
    return sorted(found - {OTHER}) + [OTHER] * (OTHER in found)


class DayCount(NamedTuple):
    """The stored reports of a metric's version and UTC day."""

    metric: str
    version: int
    day: dt.date
    reports: int  # those that are kept and those that were counted and forgotten
    segments: int  # 0 if only counts are kept
    bytes: int  # those of the records and of the counts


class StoredRecords(NamedTuple):
    """Reports of a day and slice: their records, end to end."""

    day: dt.date
    records: bytes
    slice: str = ""


class StoredCounts(NamedTuple):
    """Counts kept of forgotten reports of a day and slice."""

    day: dt.date
    kept: KeptCounts
    slice: str = ""
