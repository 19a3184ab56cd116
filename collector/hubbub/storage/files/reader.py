"""An exported directory, read as the decoder reads a store.

It is listed once, and a day's manifest read when the day is. Invariant: each day is read as one
export left it, or its reading ends in an error.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from hubbub.protocol.metrics import Metric
from hubbub.storage.errors import MissingFileError, ReportFileError, StoreError
from hubbub.storage.files.locations import Address, resolve
from hubbub.storage.files.parquet import count_rows, read_counts_file, read_records, require_pyarrow
from hubbub.storage.files.partitions import (
    MANIFEST,
    Folder,
    Partition,
    ReportFile,
    check_definition,
    check_made_so,
    partition_of,
    read_definition,
    report_folders,
)
from hubbub.storage.reports import MetricVersion, Reader, StoredCounts, StoredRecords
from hubbub.storage.slices import SliceSizes, Where, added

SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""

_AT_ONCE = 16
"""Manifests fetched at once: their time is that of a round trip each."""


class ParquetReader(Reader):
    """An exported directory, read as the decoder reads a store.

    It is listed once. A day that is exported again meanwhile is read as it was or as it is then; if
    it changes under the very reading, that ends in an error.

    Parameters
    ----------
    directory : Location, path or str

    Raises
    ------
    StoreError
        If there is no such directory, or no pyarrow to read it.
    """

    def __init__(self, directory: Address) -> None:
        self.where: Where | None = None
        self._directory = resolve(directory)
        self._listed: dict[str, dict[Partition, Folder]] = {}
        self._read: dict[Partition, tuple[ReportFile, ...]] = {}
        self._definitions: dict[MetricVersion, Mapping[str, object]] = {}
        require_pyarrow()
        if not self._directory.is_folder():
            raise StoreError(
                f"store '{SCHEME}{directory}': no such directory; expected one that "
                "hubbub-collector export made"
            )

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's reports were made with other parameters."""
        check_definition(self._directory, metric)
        # What manifests say must agree, even if the version's own file was lost.
        self._definitions[MetricVersion(metric.name, metric.version)] = metric.definition

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield records, end to end, and counts, days `since` to `until` included."""
        for partition in self._days(key, since, until):
            has_begun = False
            for attempt in itertools.count():
                files = self._files(partition)
                try:
                    for stored in self._contents(partition, files):
                        has_begun = True
                        yield stored
                    break
                except MissingFileError as error:
                    # Exported again since its manifest was read: if nothing of it was used, the new
                    # one is as good.
                    del self._read[partition]
                    if has_begun or attempt or self._files(partition) == files:
                        raise deleted_meanwhile(error) from error

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, kept or counted, days `since` to `until` included."""
        return sum(map(_reports, self._chosen(key, since, until)))

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days `since` to `until` with counts of forgotten reports."""
        found = self._chosen(key, since, until)
        days = (file.partition.day for file in found if file.only_counts and file.partition)
        return max(days, default=None)

    async def slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""
        return added(
            (partition.day, file.slice, _reports(file))
            for partition in self._days(key, since, until)
            for file in self._all_files(partition)
        )

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which there are reports, or counts of them."""
        return sorted({partition.version for partition in self._folders(metric)})

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the UTC days on which there are reports, or counts of them."""
        days = self._days(key, None, None)
        return [day.day for day in days if self.where is None or self._files(day)]

    def files(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> list[ReportFile]:
        """Return the files of the days `since` to `until` that count, by day.

        Raises
        ------
        ReportFileError
            If a manifest can't be understood, or tells of reports made in another way.
        """
        return self._chosen(key, since, until)

    def _folders(self, metric: str) -> dict[Partition, Folder]:
        if metric not in self._listed:
            self._listed[metric] = {
                partition: folder
                for folder in report_folders(self._directory / f"metric={metric}")
                if (partition := partition_of(folder.location / MANIFEST))
            }
        return self._listed[metric]

    def _days(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> list[Partition]:
        return sorted(
            partition
            for partition in self._folders(key.metric)
            if partition.key == key
            and (since or partition.day) <= partition.day
            and partition.day <= (until or partition.day)
        )

    def _chosen(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> list[ReportFile]:
        days = self._days(key, since, until)
        if not self._directory.is_local:
            unread = [day for day in days if day not in self._read]
            with ThreadPoolExecutor(_AT_ONCE, "manifest") as pool:
                self._read.update(zip(unread, pool.map(self._all_files, unread), strict=True))
        return [file for day in days for file in self._files(day)]

    def _files(self, partition: Partition) -> tuple[ReportFile, ...]:
        """Return the files of a day that are read."""
        files = self._all_files(partition)
        if self.where is None:
            return files
        rows = ((partition.day, file.slice, _reports(file)) for file in files)
        chosen = self.where.chosen(added(rows))
        return tuple(file for file in files if (partition.day, file.slice) in chosen)

    def _all_files(self, partition: Partition) -> tuple[ReportFile, ...]:
        if partition not in self._read:
            files = self._folders(partition.metric)[partition].read()
            definition = self._definition(partition.key)
            for file in files:
                if file.partition != partition:
                    said = file.partition and file.partition.path
                    raise ReportFileError(f"{file.path}: its reports are of {said}")
                if definition:
                    check_made_so(file, definition)
            self._read[partition] = files
        return self._read[partition]

    def _definition(self, key: MetricVersion) -> Mapping[str, object]:
        if key not in self._definitions:
            self._definitions[key] = read_definition(self._directory, key) or {}
        return self._definitions[key]

    def _contents(
        self, partition: Partition, files: Iterable[ReportFile]
    ) -> Iterator[StoredRecords | StoredCounts]:
        k = self._definition(partition.key).get("k")
        for file in files:
            found = 0
            if file.only_counts:
                kept = read_counts_file(file.path)
                found = kept.total
                yield StoredCounts(partition.day, kept, file.slice)
            else:
                for records in read_records(file.path, k if isinstance(k, int) else None):
                    found += records.reports
                    yield StoredRecords(partition.day, records.data, file.slice)
            if file.reports not in {None, found}:
                raise ReportFileError(
                    f"{file.path}: {found:,} reports; its manifest says {file.reports:,}"
                )


def _reports(file: ReportFile) -> int:
    return count_rows(file.path) if file.reports is None else file.reports


def deleted_meanwhile(error: MissingFileError) -> MissingFileError:
    """Return the error of a file that was there when its folder was listed."""
    return MissingFileError(
        f"{error}; it was deleted while it was read, as by another export of its day: run this "
        "again"
    )
