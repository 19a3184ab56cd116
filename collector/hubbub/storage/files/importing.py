"""Files of reports -> a store: each file whole or not at all, and each once.

A file is read and checked to its end, into a nameless file of bare records, before the first report
is stored. It is then stored in chunks, each under an id that follows from the file's bytes, the
chunk's number and its destination, so that importing again completes what a crash interrupted and
counts nothing twice. Invariant: the ids, and so the size of a chunk, never change from
release to release.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterable
from typing import IO, NamedTuple

from hubbub.protocol.metrics import Metric
from hubbub.protocol.records import Records, record_width
from hubbub.protocol.registry import Registry
from hubbub.storage import MetricVersion, NewBatch, Store
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.locations import Address, Location, resolve, storage_errors
from hubbub.storage.files.parquet import read_counts_file, read_records
from hubbub.storage.files.partitions import (
    Partition,
    ReportFile,
    check_definition,
    check_made_so,
    export_of,
    report_file,
    report_files,
)
from hubbub.storage.files.rappor_reports import open_unpacked, read_report_csv

CHUNK_BYTES = 2**22  # of records, a transaction each: some tens of milliseconds
_IN_MEMORY = 2**22  # as much as a transaction holds; more is spooled to a file
_PIECE_BYTES = 2**20  # hashing is as quick with larger ones


class ImportSource(NamedTuple):
    """A file to import, and what its reports are.

    Attributes
    ----------
    path : Location
    metric : Metric
        With the version and the parameters that the reports must have.
    day : datetime.date
        Their UTC day.
    column : str, optional
        The column of bits in a CSV; None: a Parquet file.
    only_counts : bool
        Whether it holds counts of reports that were forgotten.
    slice : str
        What the reports say of the app.
    """

    path: Location
    metric: Metric
    day: dt.date
    column: str | None = None
    only_counts: bool = False
    slice: str = ""

    @property
    def key(self) -> MetricVersion:
        """What its reports are stored together with."""
        told = self.metric.slice_as(self.slice)
        return MetricVersion(self.metric.name, self.metric.version, told)


class Imported(NamedTuple):
    """Numbers of a file's reports that were new, and that the store had already."""

    new: int
    known: int


def find_sources(
    addresses: Iterable[Address],
    registry: Registry,
    metric: str | None = None,
    day: dt.date | None = None,
    column: str = "irr",
) -> list[ImportSource]:
    """Determine what each file holds, from its directories, or else from `metric` and `day`.

    Parameters
    ----------
    addresses : iterable of Location, path or str
        Files, and exported directories or parts of them.
    registry : Registry
    metric : str, optional
    day : datetime.date, optional
        Of directories, only these partitions are taken.
    column : str
        The column of bits in CSV files.

    Raises
    ------
    ReportFileError
        If that isn't known, or contradicts the registry.
    MetricError
        If the registry doesn't have the metric.
    """
    sources = []
    for path in map(resolve, addresses):
        is_folder = path.is_folder()
        files = list(report_files(path)) if is_folder else [report_file(path)]
        chosen = [
            file
            for file in files
            if file.partition is None
            or (metric in {None, file.partition.metric} and day in {None, file.partition.day})
        ]
        if not chosen:
            wanted = f"metric={metric or 'NAME'}/version=N/day={day or 'DAY'}"
            raise ReportFileError(f"{path}: holds no Parquet files of {wanted}")
        for file in chosen:
            if file.partition:
                sources.append(_source_in_export(file, file.partition, registry))
            elif is_folder:
                raise ReportFileError(
                    f"{file.path}: expected to lie in metric=NAME/version=N/day=DAY; import it by "
                    "its own name, with --metric and --day"
                )
            elif metric is None or day is None:
                raise ReportFileError(
                    f"{path}: doesn't say what it holds; --metric and --day are needed"
                )
            elif path.name.endswith(".parquet"):
                sources.append(ImportSource(path, registry[metric], day))
            elif path.name.endswith((".csv", ".csv.gz")):
                sources.append(ImportSource(path, registry[metric], day, column))
            else:
                raise ReportFileError(f"{path}: the name must end in .parquet, .csv or .csv.gz")
    return sources


def _source_in_export(file: ReportFile, partition: Partition, registry: Registry) -> ImportSource:
    metric = registry[partition.metric]
    if metric.version != partition.version:
        raise ReportFileError(
            f"{file.path}: reports of version {partition.version}; the registry has "
            f"{metric.name} version {metric.version}: import them with a registry of that time"
        )
    check_definition(export_of(file.path), metric)
    check_made_so(file, metric.definition)
    return ImportSource(
        file.path, metric, partition.day, only_counts=file.only_counts, slice=file.slice
    )


async def import_file(
    store: Store,
    source: ImportSource,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Imported:
    """Check a file to its end, then store its reports.

    Parameters
    ----------
    store : Store
        Must have the metric declared.
    source : ImportSource
    progress : callable
        Called with the reports stored so far, and all reports of the file.

    Raises
    ------
    ReportFileError
        If anything in it isn't a report of the metric; then nothing of it is stored.
    StoreError
        If the store fails; the import can then be repeated.
    """
    if source.only_counts:
        return await _import_counts(store, source)
    width = record_width(source.metric.params.k)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        digest = _check(source, spool)
        total = spool.tell() // width
        spool.seek(0)
        known = done = 0
        chunks = iter(lambda: spool.read(CHUNK_BYTES // width * width), b"")
        for number, data in enumerate(chunks):
            chunk_id = _chunk_id(source, digest, number)
            batch = NewBatch(chunk_id, {source.key: Records(width, data)})
            # The id counts from today on, however old the reports are.
            [is_new] = await store.append([batch], source.day, dt.datetime.now(dt.UTC).date())
            done += len(data) // width
            known += 0 if is_new else len(data) // width
            progress(done, total)
    return Imported(total - known, known)


async def _import_counts(store: Store, source: ImportSource) -> Imported:
    """Add a file's counts to those of its day, all at once."""
    params = source.metric.params
    kept = read_counts_file(source.path, params.m, params.k)
    digest = _digest(source)
    chunk_id, today = _chunk_id(source, digest, 0), dt.datetime.now(dt.UTC).date()
    is_new = await store.counts.add(chunk_id, source.key, source.day, kept, today)
    return Imported(kept.total, 0) if is_new else Imported(0, kept.total)


def _chunk_id(source: ImportSource, digest: str, number: int) -> bytes:
    place = [*source.key.whole[:2], source.day.isoformat(), source.column]
    place += [source.slice] if source.slice else []
    text = json.dumps(["hubbub import", digest, number, *place])
    return hashlib.sha256(text.encode()).digest()[:16]


def _check(source: ImportSource, spool: IO[bytes]) -> str:
    """Write a file's records to `spool` and return the digest of the file."""
    digest = _digest(source)
    params = source.metric.params
    if source.column is None:
        chunks = read_records(source.path, params.k, params.m)
    else:
        chunks = read_report_csv(source.path, params, source.column)
    for records in chunks:
        spool.write(records.data)
    return digest


def _digest(source: ImportSource) -> str:
    """Return the digest of a file's bytes, unpacked."""
    digest = hashlib.sha256()
    try:
        with storage_errors(source.path), open_unpacked(source.path) as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ReportFileError(f"{source.path}: {error}; expected gzip") from error
    return digest.hexdigest()
