"""Records, and counts of forgotten reports <-> Parquet files.

Records have the columns `cohort` (uint16) and `bits` (k/8 bytes), and a bounded number of rows a
row group, so that files of any size are written and read in little memory. Counts have one row per
cohort that has reports: `cohort`, `reports` (int64) and `bits` (k int64: how many of these have bit
0, bit 1, ...); the schema's metadata has m and, in `set_bits`, how many reports have 0, 1, ... k
set bits. An export's files also say there what they are of, wherever they are copied. Invariants:
bits are the bytes of the record unchanged, bit j of a report in bit j%8 of byte j//8; and the name
of a file of counts keeps it from being read as reports, by Hive's readers, which pass over what
begins with `_`, and by patterns that end in `.parquet`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.counts import CohortCounts, KeptCounts, check_counts
from hubbub.protocol.errors import RecordsError
from hubbub.protocol.params import COHORT_BYTES
from hubbub.protocol.records import Columns, Records, cohorts, interleaved, table
from hubbub.storage.errors import MissingFileError, ReportFileError, StoreError
from hubbub.storage.files.locations import (
    Address,
    FileStamp,
    Location,
    resolve,
    storage_errors,
)

DEFINITION = "_definition.json"
"""The file beside the days of a version that says how its reports were made."""

_BATCH_BYTES = 2**20  # of records at a time: fits a processor's cache
_REQUEST_BYTES = 2**23
"""How much is fetched from other storage at a time: an export's row group in a request a column."""


def require_pyarrow() -> Any:
    """Return pyarrow, which is imported only where Parquet is asked for.

    Raises
    ------
    StoreError
        If it isn't installed.
    """
    try:
        importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise StoreError(
            f"Parquet needs the package {error.name}: pip install 'hubbub[parquet]'"
        ) from error
    return importlib.import_module("pyarrow")


def write_records(
    address: Address,
    width: int,
    blocks: Iterable[Records],
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write blocks of records as one file, a row group each, in place of what is there.

    Parameters
    ----------
    address : Location, path or str
    width : int
        Bytes of a record.
    blocks : iterable of Records
        At most 2^31 bytes of bits each.
    metadata : mapping of str to str, optional
        What the file says of itself.

    Returns
    -------
    int
        The number of records.
    """
    pa = require_pyarrow()
    bits = pa.binary(width - COHORT_BYTES)
    schema = pa.schema(
        [pa.field("cohort", pa.uint16(), nullable=False), pa.field("bits", bits, nullable=False)],
        metadata,
    )
    written = 0
    # Bits are noise: no two alike for a dictionary, no order for the statistics.
    options = {
        "compression": "zstd",
        "use_dictionary": ["cohort"],
        "write_statistics": ["cohort"],
    }
    with (
        resolve(address).create() as file,
        pa.parquet.ParquetWriter(file, schema, **options) as writer,
    ):
        for records in blocks:
            data = pa.py_buffer(table(records)[:, COHORT_BYTES:].tobytes())
            columns = [
                pa.array(cohorts(records)),
                pa.FixedSizeBinaryArray.from_buffers(bits, records.reports, [None, data]),
            ]
            group = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(group, row_group_size=max(1, records.reports))
            written += records.reports
    return written


def open_parquet(location: Location) -> Any:
    """Return pyarrow's ParquetFile of a file, which fetches what is asked for and nothing ahead.

    Raises
    ------
    ArrowException, OSError
        Pyarrow's. `reading_error` tells them in words.
    """
    filesystem, path = location.arrow()
    parquet = require_pyarrow().parquet
    buffer_size = _BATCH_BYTES if location.is_local else _REQUEST_BYTES
    with storage_errors(location):
        return parquet.ParquetFile(
            path, filesystem=filesystem, pre_buffer=False, buffer_size=buffer_size
        )


class FileLayout(NamedTuple):
    """What is known of a file before its rows are read.

    Attributes
    ----------
    rows : tuple of int
        Those of each row group.
    """

    stamp: FileStamp
    rows: tuple[int, ...]


def read_layout(address: Address) -> FileLayout:
    """Return how the rows of a Parquet file are grouped (raises as `read_columns`)."""
    pa, location = require_pyarrow(), resolve(address)
    try:
        stamp = location.stamp()
        with storage_errors(location), open_parquet(location) as file:
            metadata = file.metadata
    except (pa.ArrowException, OSError) as error:
        raise reading_error(location, error) from error
    groups = range(metadata.num_row_groups)
    return FileLayout(stamp, tuple(metadata.row_group(group).num_rows for group in groups))


def read_records(address: Address, k: int | None = None, m: int | None = None) -> Iterator[Records]:
    """Yield the records of a Parquet file, a few megabytes at a time; see `read_columns`."""
    for reports in read_columns(address, k, m):
        yield interleaved(reports)


def read_columns(
    address: Address,
    k: int | None = None,
    m: int | None = None,
    groups: range | None = None,
    stamp: FileStamp | None = None,
) -> Iterator[Columns]:
    """Yield the reports of a Parquet file as they lie in Arrow's memory, some megabytes at a time.

    The columns may stand in any order, among others, and be of wider types than an export's, such
    as another program would write them.

    Parameters
    ----------
    address : Location, path or str
    k : int, optional
        Bits that each report must have; None: those of the column's type.
    m : int, optional
        What each cohort must be below.
    groups : range, optional
        Row groups to read; None: all.
    stamp : FileStamp, optional
        What the file had when its layout was read, and must have to the end.

    Raises
    ------
    ReportFileError
        If it isn't Parquet, or holds anything but reports of these parameters, or isn't the same
        file any more.
    StorageError
        If the storage that it lies in fails.
    """
    pa, path = require_pyarrow(), resolve(address)
    try:
        with storage_errors(path), open_parquet(path) as file:
            _require_same(path, stamp)
            width = _bits_width(pa, path, file.schema_arrow, k)
            rows = 0
            if groups:
                rows = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
            for batch in file.iter_batches(
                max(1, _BATCH_BYTES // width),
                row_groups=groups,
                columns=["cohort", "bits"],
                use_threads=False,
            ):
                yield _to_columns(pa, path, batch, width, m, rows)
                rows += batch.num_rows
        _require_same(path, stamp)
    except (pa.ArrowException, OSError) as error:
        raise reading_error(path, error) from error


def _require_same(path: Location, stamp: FileStamp | None) -> None:
    if stamp is not None and path.stamp() != stamp:
        raise ReportFileError(
            f"{path}: was written anew while it was read; expected the same file to the end: try "
            "again"
        )


def count_rows(address: Address) -> int:
    """Return the number of rows that a Parquet file says it has (raises as `read_records`)."""
    return int(_footer(resolve(address)).num_rows)


def read_metadata(address: Address) -> dict[str, str]:
    """Return what a Parquet file says of itself (raises as `read_records`)."""
    found = (_footer(resolve(address)).metadata or {}).items()
    return {key.decode(errors="replace"): text.decode(errors="replace") for key, text in found}


def _footer(location: Location) -> Any:
    pa = require_pyarrow()
    try:
        with storage_errors(location), open_parquet(location) as file:
            return file.metadata
    except (pa.ArrowException, OSError) as error:
        raise reading_error(location, error) from error


def reading_error(
    location: Location, error: Exception, expected: str = "a Parquet file"
) -> ReportFileError:
    """Return the error of a file that can't be read, from pyarrow's."""
    if isinstance(error, FileNotFoundError):
        reason = error.strerror or str(error).splitlines()[0]
        return MissingFileError(f"{location}: {reason}; expected {expected}")
    return ReportFileError(f"{location}: {str(error).splitlines()[0]}; expected {expected}")


def _bits_width(pa: Any, path: Location, schema: Any, k: int | None) -> int:
    """Return the bytes of a report's bits, if the columns can be reports at all."""
    for column, fits, expected in (
        ("cohort", pa.types.is_integer, "integers"),
        ("bits", _is_binary, "binary"),
    ):
        found = schema.names.count(column)
        if found != 1:
            names = ", ".join(schema.names)
            raise ReportFileError(
                f"{path}: column {column}: expected once, but the columns are {names or 'none'}"
            )
        if not fits(schema.field(column).type):
            kind = schema.field(column).type
            raise ReportFileError(f"{path}: column {column}: {kind}; expected {expected}")
    kind = schema.field("bits").type
    fixed = kind.byte_width if pa.types.is_fixed_size_binary(kind) else None
    if k is None and fixed is None:
        raise ReportFileError(
            f"{path}: column bits: {kind}; expected binary of a fixed size, or a {DEFINITION} "
            "that says how many bits"
        )
    width = fixed if k is None else k // 8
    if fixed not in {None, width}:
        raise ReportFileError(
            f"{path}: column bits: {fixed} bytes; expected {width} for k = {k} bits"
        )
    return int(width or 0)


def _is_binary(kind: Any) -> bool:
    return str(kind) in {"binary", "large_binary"} or str(kind).startswith("fixed_size_binary")


def _to_columns(
    pa: Any, path: Location, batch: Any, width: int, m: int | None, rows: int
) -> Columns:
    """View a batch of rows, of which the first is the file's row `rows` + 1."""
    cohort, bits = batch.column("cohort"), batch.column("bits")
    for name, column in (("cohort", cohort), ("bits", bits)):
        if column.null_count:
            row = rows + 1 + column.is_null().to_pylist().index(True)
            raise ReportFileError(f"{path}: row {row}, column {name}: is null; expected a value")
    below = 2**16 if m is None else m
    numbers = np.from_dlpack(cohort)  # pyarrow's own way imports pandas, which takes long
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= below:
        wrong = np.flatnonzero((numbers < 0) | (numbers >= below))[0]
        raise ReportFileError(
            f"{path}: row {rows + 1 + wrong}, column cohort: {numbers[wrong]}; "
            f"expected 0 to {below - 1}"
        )
    own = np.frombuffer(_bytes_of(pa, path, bits, width, rows), dtype=np.uint8)
    return Columns(numbers.astype(np.uint16, copy=False), own.reshape(-1, width))


def _bytes_of(pa: Any, path: Location, bits: Any, width: int, rows: int) -> memoryview:
    """View a column of values that all have such a width, one after the other.

    pyarrow's own functions of lengths and types are in a module that takes a twentieth of a second
    to import.
    """
    if pa.types.is_fixed_size_binary(bits.type):
        start, values = bits.offset * width, bits.buffers()[1]
    else:
        kind = np.int64 if pa.types.is_large_binary(bits.type) else np.int32
        ends = np.frombuffer(bits.buffers()[1], kind)[bits.offset : bits.offset + len(bits) + 1]
        lengths = np.diff(ends)
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            raise ReportFileError(
                f"{path}: row {rows + 1 + wrong[0]}, column bits: {lengths[wrong[0]]} bytes; "
                f"expected {width}"
            )
        start, values = int(ends[0]), bits.buffers()[2]
    return memoryview(values)[start : start + len(bits) * width]


_MOST_COHORTS = 2**16  # a cohort is two bytes
_COLUMNS = ("cohort", "reports", "bits")


def write_counts(location: Location, kept: KeptCounts, about: Mapping[str, str]) -> None:
    """Write counts, and what the file says of itself, in place of what is there."""
    pa = require_pyarrow()
    counts = kept.counts
    m, k = counts.bits.shape
    occurring = np.flatnonzero(counts.reports)
    numbers = pa.array(counts.bits[occurring].ravel())
    columns = [
        pa.array(occurring.astype(np.uint16)),
        pa.array(counts.reports[occurring]),
        pa.FixedSizeListArray.from_arrays(numbers, k),
    ]
    metadata = {**about, "m": str(m), "set_bits": json.dumps(kept.set_bits.tolist())}
    table = pa.table(columns, names=list(_COLUMNS)).replace_schema_metadata(metadata)
    with location.create() as file:
        pa.parquet.write_table(table, file, compression="zstd")


def read_counts_file(address: Address, m: int | None = None, k: int | None = None) -> KeptCounts:
    """Return the counts of a file.

    Parameters
    ----------
    address : Location, path or str
    m, k : int, optional
        What the numbers of cohorts and bits must be.

    Raises
    ------
    ReportFileError
        If it isn't Parquet, or holds anything but such counts.
    StorageError
        If the storage that it lies in fails.
    """
    pa, path = require_pyarrow(), resolve(address)
    try:
        with storage_errors(path), open_parquet(path) as file:
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise reading_error(path, error, "a Parquet file of counts") from error
    metadata = table.schema.metadata or {}
    try:
        cohorts, n_cohorts = _numbers(table, "cohort"), int(metadata[b"m"])
        set_bits = np.array(json.loads(metadata[b"set_bits"]), dtype=np.int64)
        reports, bits = _numbers(table, "reports"), table.column("bits").combine_chunks()
        n_bits = len(set_bits) - 1
        rows = np.asarray(bits.flatten(), dtype=np.int64).reshape(len(cohorts), n_bits)
    except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
        expected = f"columns {', '.join(_COLUMNS)}, and m and set_bits in the metadata"
        raise ReportFileError(f"{path}: isn't a file of counts; expected {expected}") from error
    if not (1 <= n_cohorts <= _MOST_COHORTS and n_bits >= 1):
        raise ReportFileError(
            f"{path}: counts of m = {n_cohorts}, k = {n_bits}; expected m from 1 to "
            f"{_MOST_COHORTS}, k from 1"
        )
    if (m or n_cohorts, k or n_bits) != (n_cohorts, n_bits):
        raise ReportFileError(
            f"{path}: counts of m = {n_cohorts}, k = {n_bits}; expected m = {m}, k = {k}"
        )
    is_below = (cohorts >= 0) & (cohorts < n_cohorts)
    if not is_below.all() or len(np.unique(cohorts)) < len(cohorts):
        raise ReportFileError(f"{path}: column cohort: expected 0 to {n_cohorts - 1}, each once")
    counts = CohortCounts(
        np.zeros(n_cohorts, dtype=np.int64), np.zeros((n_cohorts, n_bits), dtype=np.int64)
    )
    counts.reports[cohorts], counts.bits[cohorts] = reports, rows
    kept = KeptCounts(counts, set_bits)
    try:
        check_counts(kept)
    except RecordsError as error:
        raise ReportFileError(f"{path}: {error}") from error
    return kept


def _numbers(table: Any, name: str) -> NDArray[np.int64]:
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)
