"""The types that all of storage shares, and `Reader`, which reads stored reports.

Reports are distinguished by metric, version, slice and UTC day, and by nothing else. The decoder
reads any `Reader`: a store, or an exported directory. Invariant: the width in a definition
is the records' own.
"""

from __future__ import annotations

import abc
import datetime as dt
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

from hubbub.protocol import (
    MIN_REPORTS,
    Dimension,
    KeptCounts,
    Metric,
    RapporParams,
    Records,
    Response,
    record_width,
    response_of,
)
from hubbub.storage.slices import SliceSizes, Where


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


class Reader(abc.ABC):
    """Stored reports for the decoder, from a database or an exported directory.

    Days are those from `since` to `until`, both included.
    """

    where: Where | None = None  # which slices are read; None: all

    @abc.abstractmethod
    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""

    @abc.abstractmethod
    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports, or counts of them, are stored."""

    @abc.abstractmethod
    async def slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""

    @abc.abstractmethod
    async def counted_slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> set[tuple[dt.date, str]]:
        """Return the days and slices with counts of forgotten reports, whichever this reads."""

    @abc.abstractmethod
    def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield segments, and counts of forgotten reports.

        All as of one moment: each report is in one of them, though upkeep may count it meanwhile.
        Close it if it isn't read to its end.
        """

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the days for which reports, or counts of them, are stored."""
        sizes = await self.slices(key)
        if self.where:
            chosen = self.where.chosen(sizes)
            return sorted({day for day, text in chosen if text in sizes[day]})
        return sorted(sizes)

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, stored or counted."""
        sizes = await self.slices(key, since, until)
        if self.where:
            return self.where.reports(sizes)
        return sum(sum(reports.values()) for reports in sizes.values())

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days with counts of forgotten reports."""
        counted = await self.counted_slices(key, since, until)
        if self.where:
            counted &= self.where.chosen(await self.slices(key, since, until))
        return max((day for day, _ in counted), default=None)
