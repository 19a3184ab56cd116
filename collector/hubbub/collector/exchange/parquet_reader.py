"""An exported directory, read as the decoder reads a store.

It implements `Reader` on the names of the directories and the files in them, so that code that
counts reports need not know where they come from.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from hubbub.collector.errors import StoreError
from hubbub.collector.exchange.parquet import count_rows, read_records, require_pyarrow
from hubbub.collector.exchange.partitions import (
    Partition,
    ReportFile,
    check_definition,
    read_definition,
    report_files,
    version_path,
)
from hubbub.collector.store import MetricVersion, Reader
from hubbub.protocol.metrics import Metric

SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""


class ParquetReader(Reader):
    """An exported directory, read as the decoder reads a store.

    Parameters
    ----------
    directory : str or Path

    Raises
    ------
    StoreError
        If there is no such directory, or no pyarrow to read it.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        require_pyarrow()
        if not self._directory.is_dir():
            raise StoreError(
                f"store '{SCHEME}{directory}': no such directory; expected one that "
                "hubbub-collector export made"
            )

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's reports were made with other parameters."""
        check_definition(self._directory, metric)

    async def segments(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncIterator[bytes]:
        """Yield records, end to end, days `since` to `until` included."""
        definition = read_definition(self._directory, key) or {}
        k = definition.get("k")
        for file in self._files(key, since, until):
            for records in read_records(file.path, k if isinstance(k, int) else None):
                yield records.data

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, days `since` to `until` included."""
        return sum(count_rows(file.path) for file in self._files(key, since, until))

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which there are reports."""
        return sorted({p.version for p in self._partitions() if p.metric == metric})

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the UTC days on which there are reports."""
        return sorted({p.day for p in self._partitions() if p.key == key})

    def _partitions(self) -> Iterator[Partition]:
        return (file.partition for file in report_files(self._directory) if file.partition)

    def _files(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> Iterator[ReportFile]:
        for file in report_files(self._directory / version_path(key)):
            day = file.partition and file.partition.day
            if day and (since or day) <= day <= (until or day):
                yield file
