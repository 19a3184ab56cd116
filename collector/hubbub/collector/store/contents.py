"""What stores hold, and the interface through which the decoder reads them.

Reports are distinguished by metric, version and UTC day, and by nothing else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from hubbub.protocol.metrics import Metric
from hubbub.protocol.records import Records


class MetricVersion(NamedTuple):
    """What reports must share to be counted together."""

    metric: str
    version: int


class NewBatch(NamedTuple):
    """A batch to be stored: its 16-byte id and its records by metric and version."""

    batch_id: bytes
    records: Mapping[MetricVersion, Records]


class Declared(NamedTuple):
    """A version of a metric that was ever declared, with all that its reports depend on."""

    metric: str
    version: int
    definition: dict[str, object]


class DayCount(NamedTuple):
    """What is stored of a metric's version and UTC day; `bytes` are those of the records."""

    metric: str
    version: int
    day: dt.date
    reports: int
    segments: int
    bytes: int


class Reader(Protocol):
    """What the decoder reads, from a database or an exported directory."""

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports are stored."""

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the days for which reports are stored."""

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of stored reports, days `since` to `until` included."""

    def segments(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the concatenated records of each segment, days `since` to `until` included."""
