"""Where exported reports lie: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-0.parquet.

Beside it, or in its place, lie the counts of reports that were forgotten: `_counts.pq`.

The layout is Hive's, which DuckDB, Spark, pandas and others read as it is. Beside the days of a
version, `_definition.json` says how its reports were made. `ParquetReader` lets the decoder read
such a directory as it reads a store.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hubbub.collector.errors import ReportFileError, StoreError
from hubbub.collector.exchange.counts import COUNTS, read_counts_file
from hubbub.collector.exchange.parquet import (
    DEFINITION,
    count_rows,
    put_in_place,
    read_records,
    require_pyarrow,
)
from hubbub.collector.store import MetricVersion, Reader, StoredCounts, StoredRecords
from hubbub.protocol.metrics import Metric

PART = "part-0.parquet"
SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""

_PARTITION = re.compile(
    r"metric=([a-z][a-z0-9_-]{0,63})/version=([1-9][0-9]{0,9})/day=(\d{4}-\d{2}-\d{2})"
)


class Partition(NamedTuple):
    """The reports of one metric, version and UTC day."""

    metric: str
    version: int
    day: dt.date

    @property
    def key(self) -> MetricVersion:
        """What its reports may be counted together with, on other days."""
        return MetricVersion(self.metric, self.version)

    @property
    def path(self) -> Path:
        """Its directory, below the export's."""
        return version_path(self.key) / f"day={self.day.isoformat()}"


class ReportFile(NamedTuple):
    """A Parquet file, and the partition that its directories name (None: they don't)."""

    path: Path
    partition: Partition | None


def version_path(key: MetricVersion) -> Path:
    """Return a version's directory, below the export's."""
    return Path(f"metric={key.metric}") / f"version={key.version}"


def partition_of(path: Path) -> Partition | None:
    """Return the partition that a file's directories name, if they name one."""
    found = _PARTITION.fullmatch("/".join(path.absolute().parent.parts[-3:]))
    if not found:
        return None
    try:
        return Partition(found[1], int(found[2]), dt.date.fromisoformat(found[3]))
    except ValueError:
        return None


def report_files(directory: Path) -> Iterator[ReportFile]:
    """Yield the Parquet files below a directory, in order, as Hive's readers see them.

    Names that begin with `_` or `.` are no data: definitions, and files still being written.
    """
    for path in sorted(directory.rglob("*.parquet")):
        if not any(part[0] in "._" for part in path.relative_to(directory).parts):
            yield ReportFile(path, partition_of(path))


def count_files(directory: Path) -> Iterator[ReportFile]:
    """Yield the files of counts below a directory, in order."""
    for path in sorted(directory.rglob(COUNTS)):
        if not any(part[0] in "._" for part in path.relative_to(directory).parts[:-1]):
            yield ReportFile(path, partition_of(path))


def check_target(directory: Path, partitions: Iterable[Partition]) -> None:
    """Refuse to export into a directory that holds anything but an export.

    Raises
    ------
    ReportFileError
        If something in it isn't an export's, or would be read along with the partitions.
    """
    if directory.exists() and not directory.is_dir():
        raise ReportFileError(f"{directory}: is a file; expected a directory")
    for entry in sorted(directory.iterdir()) if directory.exists() else ():
        if not entry.name.startswith(("metric=", "_", ".")):
            raise ReportFileError(
                f"{directory}: holds {entry.name!r}, which is no export; expected a new or empty "
                "directory, or an earlier export's"
            )
    for partition in partitions:
        for file in report_files(directory / partition.path):
            if file.path.name != PART:
                raise ReportFileError(
                    f"{file.path}: would be read along with the exported {PART}; expected no "
                    "other Parquet files in a partition"
                )


def read_definition(directory: Path, key: MetricVersion) -> dict[str, object] | None:
    """Return how a version's reports were made, or None if there is no such file.

    Raises
    ------
    ReportFileError
        If the file is there but can't be understood.
    """
    path = directory / version_path(key) / DEFINITION
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}; expected JSON") from error
    if not isinstance(found, dict):
        raise ReportFileError(f"{path}: expected a JSON object")
    return found


def write_definition(directory: Path, key: MetricVersion, definition: Mapping[str, object]) -> None:
    """Write how a version's reports were made.

    Raises
    ------
    ReportFileError
        If another definition is there: the directory is another store's export.
    """
    there = read_definition(directory, key)
    if there is not None and there != definition:
        raise _different(directory, key, there, f"the store has {_shown(definition)}")
    with put_in_place(directory / version_path(key) / DEFINITION) as temporary:
        temporary.write_text(_shown(definition) + "\n", encoding="utf-8")


def check_definition(directory: Path, metric: Metric) -> None:
    """Raise ReportFileError if a metric's reports below `directory` were made in another way."""
    key = MetricVersion(metric.name, metric.version)
    there = read_definition(directory, key)
    # Through JSON, because only then do lists and numbers compare as they were written.
    if there is not None and there != json.loads(_shown(metric.definition)):
        raise _different(directory, key, there, f"the registry has {_shown(metric.definition)}")


def _different(
    directory: Path, key: MetricVersion, there: Mapping[str, object], expected: str
) -> ReportFileError:
    path = directory / version_path(key) / DEFINITION
    return ReportFileError(f"{path}: reports were made with {_shown(there)}, but {expected}")


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)


class ParquetReader(Reader):
    """An exported directory, read as the decoder reads a store.

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
        async for stored in self.contents(key, since, until):
            if isinstance(stored, StoredRecords):
                yield stored.records

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield records, end to end, and counts, days `since` to `until` included."""
        definition = read_definition(self._directory, key) or {}
        k = definition.get("k")
        for path, day in self.files(key, since, until):
            for records in read_records(path, k if isinstance(k, int) else None):
                yield StoredRecords(day, records.data)
        for stored in self.counts(key, since, until):
            yield stored

    def files(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> list[tuple[Path, dt.date]]:
        """Return the files of reports of the days `since` to `until`, in order, and their days."""
        return [
            (file.path, file.partition.day)
            for file in report_files(self._directory / version_path(key))
            if file.partition and _is_within(file.partition.day, since, until)
        ]

    def counts(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> Iterator[StoredCounts]:
        """Yield the counts of forgotten reports, days `since` to `until` included."""
        for day, path in self._counts(key, since, until):
            yield StoredCounts(day, read_counts_file(path))

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, kept or counted, days `since` to `until` included."""
        kept = sum(count_rows(path) for path, _day in self.files(key, since, until))
        return kept + sum(stored.kept.total for stored in self.counts(key, since, until))

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days `since` to `until` with counts of forgotten reports."""
        return max((day for day, _path in self._counts(key, since, until)), default=None)

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which there are reports, or counts of them."""
        return sorted({p.version for p in self._partitions() if p.metric == metric})

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the UTC days on which there are reports, or counts of them."""
        return sorted({p.day for p in self._partitions() if p.key == key})

    def _partitions(self) -> Iterator[Partition]:
        files = (*report_files(self._directory), *count_files(self._directory))
        return (file.partition for file in files if file.partition)

    def _counts(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> Iterator[tuple[dt.date, Path]]:
        for path, partition in count_files(self._directory / version_path(key)):
            if partition and _is_within(partition.day, since, until):
                yield partition.day, path


def _is_within(day: dt.date, since: dt.date | None, until: dt.date | None) -> bool:
    return (since or day) <= day <= (until or day)
