"""Files of reports -> a store: each file whole or not at all, and each once.

A file is read and checked to its end, into a nameless file of bare records, before the first report
is stored. It is then stored in chunks, each under an id that follows from the file's bytes, the
chunk's number and its destination, so that importing again completes what a crash interrupted and
counts nothing twice. Invariant: the ids, and so the size of a chunk, never change from
release to release.

Files are exports' or other Parquet files, or CSVs of github.com/google/rappor's simulated clients,
which have a header and the columns client, cohort, bloom, prr and irr. Of these the cohort and one
column of bits are read, not the client's name and its true value. The k characters begin with the
highest bit, so the first one is bit k-1 and the last one bit 0.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import hashlib
import io
import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

from hubbub.protocol import COHORT_BYTES, Metric, RapporParams, Records, Registry, record_width
from hubbub.storage.errors import MissingFileError, ReportFileError
from hubbub.storage.exports import (
    DEFINITION,
    Partition,
    ReportFile,
    check_made_so,
    export_of,
    has_definition,
    report_file,
    report_files,
)
from hubbub.storage.locations import Address, Location, open_unpacked, resolve, storage_errors
from hubbub.storage.parquet import read_counts_file, read_records
from hubbub.storage.reports import MetricVersion, NewBatch

if TYPE_CHECKING:
    from hubbub.storage import Store

CHUNK_BYTES = 2**22  # of records, a transaction each: some tens of milliseconds
_IN_MEMORY = 2**22  # as much as a transaction holds; more is spooled to a file
_PIECE_BYTES = 2**20  # hashing is as quick with larger ones
_ROWS = 50_000  # of a CSV at a time: some megabytes


class ImportSource(NamedTuple):
    """A file to import: its metric and UTC day, and a CSV's column of bits."""

    path: Location
    metric: Metric
    day: dt.date
    column: str | None = None
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
    column: str = "irr",
) -> list[ImportSource]:
    """Determine what files, and those in exported directories, hold; otherwise `metric` and `day`.

    Raises `ReportFileError` if that isn't known, or contradicts the registry.
    """
    sources = []
    for path in map(resolve, addresses):
        if path.is_local and not path.exists():
            raise MissingFileError(f"{path}: no such file or folder")
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
            raise ReportFileError(f"{path}: holds no exported days of {wanted}")
        for file in chosen:
            if file.partition:
                sources.append(_source_in_export(file, file.partition, registry))
            elif metric is None or day is None:
                raise ReportFileError(
                    f"{path}: doesn't say what it holds; --metric and --day are needed"
                )
            elif path.name.endswith((".parquet", ".csv", ".csv.gz")):
                bits = None if path.name.endswith(".parquet") else column
                sources.append(ImportSource(path, registry[metric], day, bits))
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
    key = MetricVersion(metric.name, metric.version)
    directory = export_of(file.path)
    if not has_definition(directory, key, metric.definition, "registry") and not file.definition:
        raise ReportFileError(
            f"{file.path}: nothing says how its reports were made; expected a "
            f"{DEFINITION} next to its days"
        )
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
        digest = _check(source, spool)
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
    place = [*source.key.whole[:2], source.day.isoformat(), source.column]
    place += [source.slice] if source.slice else []
    text = json.dumps(["hubbub import", digest, number, *place])
    return hashlib.sha256(text.encode()).digest()[:16]


def _check(source: ImportSource, spool: IO[bytes]) -> str:
    """Write a file's records to `spool` and return the digest of the file."""
    digest, params = _digest(source.path), source.metric.params
    if source.column is None:
        chunks = read_records(source.path, params.k, params.m)
    else:
        chunks = read_report_csv(source.path, params, source.column)
    for records in chunks:
        spool.write(records.data)
    return digest


def _digest(path: Location) -> str:
    digest = hashlib.sha256()
    with _unpacked(path) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


@contextmanager
def _unpacked(path: Location) -> Iterator[BinaryIO]:
    try:
        with storage_errors(path), open_unpacked(path) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ReportFileError(f"{path}: {error}; expected gzip") from error


def read_report_csv(
    address: Address, params: RapporParams, column: str = "irr"
) -> Iterator[Records]:
    """Yield the records of a report CSV, or .csv.gz, some thousands at a time.

    Raises `ReportFileError` at the first row that isn't a report of these parameters; the records
    before are worthless then.
    """
    path = resolve(address)
    with _unpacked(path) as file:
        # Letters outside ASCII may stand in columns that aren't read.
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        reader = csv.reader(text, skipinitialspace=True)
        try:
            yield from _records(path, reader, params, column)
        except csv.Error as error:
            raise ReportFileError(f"{path}: line {reader.line_num}: {error}") from error


def _records(path: Location, rows: Any, params: RapporParams, column: str) -> Iterator[Records]:
    def refused(fault: str) -> ReportFileError:
        return ReportFileError(f"{path}: line {rows.line_num}, {fault}")

    header = [name.strip() for name in next(rows, [])]
    for name in ("cohort", column):
        if header.count(name) != 1:
            raise ReportFileError(
                f"{path}: line 1: expected a header with one column {name!r}, "
                f"found {','.join(header)[:200]!r}"
            )
    at_cohort, at_bits = header.index("cohort"), header.index(column)
    k, m, width = params.k, params.m, record_width(params.k)
    cohorts = {str(c): c.to_bytes(COHORT_BYTES, "little") for c in range(m)}
    data = bytearray()
    for row in rows:
        if not row:
            continue  # a blank line
        if len(row) != len(header):
            raise refused(f"{len(row)} fields; expected {len(header)} as in the header")
        bits = row[at_bits]
        wrong = bits.strip("01")
        if wrong or len(bits) != k:
            found = f"holds {wrong[0]!r}" if wrong else f"{len(bits)} characters"
            hint = ""
            if not wrong and len(bits) % 8:
                hint = "; reports whose k is no multiple of 8 can't be imported"
            expected = f"expected k = {k} characters, each 0 or 1{hint}"
            raise refused(f"column {column}: {found}; {expected}")
        cohort = cohorts.get(row[at_cohort])
        if cohort is None:
            expected = f"expected 0 to {m - 1} (m = {m})"
            raise refused(f"column cohort: {row[at_cohort][:20]!r}; {expected}")
        data += cohort
        # Base 2 puts the first character highest, and so do they.
        data += int(bits, 2).to_bytes(k // 8, "little")
        if len(data) >= _ROWS * width:
            yield Records(width, bytes(data))
            data.clear()
    if data:
        yield Records(width, bytes(data))
