"""Parquet files of reports -> a store: each file whole or not at all, and each once.

A file is read and checked to its end, into a nameless file of bare records, before the first report
is stored. It is then stored in chunks, each under an id that follows from the file's bytes, the
chunk's number and its destination, so that importing again completes what a crash interrupted and
counts nothing twice. Invariant: the ids, and so the size of a chunk, never change from
release to release.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from hubbub.protocol import Metric, Records, Registry, record_width
from hubbub.storage.errors import ReportFileError
from hubbub.storage.exports import ReportFile, check_made_so, report_file, report_files
from hubbub.storage.locations import Address, Location, resolve, storage_errors
from hubbub.storage.parquet import read_counts_file, read_records, require_pyarrow
from hubbub.storage.reports import MetricVersion, NewBatch

if TYPE_CHECKING:
    from hubbub.storage import Store

CHUNK_BYTES = 2**22  # of records, a transaction each: some tens of milliseconds
_IN_MEMORY = 2**22  # as much as a transaction holds; more is spooled to a file


class ImportSource(NamedTuple):
    """A file to import: its metric and UTC day."""

    path: Location
    metric: Metric
    day: dt.date
    only_counts: bool = False
    slice: str = ""

    @property
    def key(self) -> MetricVersion:
        """The key under which its reports are stored."""
        known = self.metric.slice_as(self.slice)
        return MetricVersion(self.metric.name, self.metric.version, known)


class Imported(NamedTuple):
    """Numbers of a file's reports that were new, and that the store had already."""

    new: int
    known: int


def find_sources(
    addresses: Iterable[Address],
    registry: Registry,
    metric: str | None = None,
    day: dt.date | None = None,
) -> list[ImportSource]:
    """Determine what files, and those in exported directories, hold; otherwise `metric` and `day`.

    Raises `ReportFileError` if that isn't known, or contradicts the registry.
    """
    require_pyarrow()
    sources = []
    for path in map(resolve, addresses):
        files = list(report_files(path)) if path.is_folder() else [report_file(path)]
        chosen = [
            file
            for file in files
            if file.partition is None
            or (metric in {None, file.partition.metric} and day in {None, file.partition.day})
        ]
        if not chosen:
            wanted = f"metric={metric or 'NAME'}/version=N/day={day or 'DAY'}"
            raise ReportFileError(f"{path}: holds no exported days of {wanted}")
        sources += [_source(file, registry, metric, day) for file in chosen]
    return sources


def _source(
    file: ReportFile, registry: Registry, metric: str | None, day: dt.date | None
) -> ImportSource:
    if file.partition is None:
        if metric is None or day is None:
            raise ReportFileError(
                f"{file.path}: doesn't say what it holds; --metric and --day are needed"
            )
        return ImportSource(file.path, registry[metric], day)
    known = registry[file.partition.metric]
    if known.version != file.partition.version:
        raise ReportFileError(
            f"{file.path}: reports of version {file.partition.version}; the registry has "
            f"{known.name} version {known.version}: import them with a registry of that time"
        )
    check_made_so(file, known.definition, "registry")
    return ImportSource(file.path, known, file.partition.day, file.only_counts, file.slice)


async def import_file(
    store: Store,
    source: ImportSource,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Imported:
    """Check a file to its end, then store its reports; the store must have the metric declared.

    Raises `ReportFileError` if anything in it isn't a report of the metric; then nothing of it is
    stored. If the store fails, the import can be repeated.
    """
    params, today = source.metric.params, dt.datetime.now(dt.UTC).date()
    if source.only_counts:
        counts, digest = read_counts_file(source.path, params.m, params.k), _digest(source.path)
        chunk_id = _chunk_id(source, digest, 0)
        is_new = await store.counts.add(chunk_id, source.key, source.day, counts, today)
        return Imported(counts.total, 0) if is_new else Imported(0, counts.total)
    width = record_width(params.k)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        digest = _digest(source.path)
        for records in read_records(source.path, params.k, params.m):
            spool.write(records.data)
        total = spool.tell() // width
        spool.seek(0)
        known = done = 0
        chunks = iter(lambda: spool.read(CHUNK_BYTES // width * width), b"")
        for number, data in enumerate(chunks):
            chunk_id = _chunk_id(source, digest, number)
            batch = NewBatch(chunk_id, {source.key: Records(width, data)})
            # The id counts from today on, however old the reports are.
            [is_new] = await store.append([batch], source.day, today)
            done += len(data) // width
            known += 0 if is_new else len(data) // width
            progress(done, total)
    return Imported(total - known, known)


def _chunk_id(source: ImportSource, digest: str, number: int) -> bytes:
    place = [*source.key[:2], source.day.isoformat()]
    place += [source.slice] if source.slice else []
    text = json.dumps(["hubbub import", digest, number, *place])
    return hashlib.sha256(text.encode()).digest()[:16]


def _digest(path: Location) -> str:
    with storage_errors(path), path.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
