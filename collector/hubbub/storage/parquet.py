"""Records, and counts of forgotten reports <-> Parquet files, by pyarrow.

Records have the columns `cohort` (uint16) and `bits` (k/8 bytes), and a bounded number of rows a
row group, so that files of any size are written and read in little memory. Counts are one value of
the column `counts`, as `hubbub.protocol.records` packs them. Invariant: bits are the bytes of the
record unchanged, bit j of a report in bit j%8 of byte j//8.

Files are read by ParquetFile: `pyarrow.dataset` takes .35 s of CPU and 53 MB more to import, and
fetches ahead of what is asked for.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol import (
    COHORT_BYTES,
    Columns,
    KeptCounts,
    Records,
    columns,
    interleaved,
    pack_counts,
    unpack_counts,
)
from hubbub.storage.errors import MissingFileError, ReportFileError
from hubbub.storage.locations import Address, Location, require, resolve, storage_errors

_BATCH_BYTES = 2**20  # of records at a time: fits a processor's cache
_REQUEST_BYTES = 2**23
"""How much is fetched from other storage at a time: an export's row group in a request a column."""


def require_pyarrow() -> Any:
    """Return pyarrow with its `parquet`, or raise StoreError if it isn't installed."""
    require("pyarrow.parquet", "Parquet")
    return require("pyarrow")


def _schema(width: int, metadata: Mapping[str, str] | None = None) -> Any:
    pa = require_pyarrow()
    bits = pa.field("bits", pa.binary(width - COHORT_BYTES), nullable=False)
    return pa.schema([pa.field("cohort", pa.uint16(), nullable=False), bits], metadata)


def write_records(
    address: Address,
    width: int,
    blocks: Iterable[Records],
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write blocks of records as one file, a row group each; return the number of records."""
    pa = require_pyarrow()
    schema, written = _schema(width, metadata), 0
    # Bits are noise: no two alike for a dictionary, no order for the statistics.
    options = {"use_dictionary": ["cohort"], "write_statistics": ["cohort"]}
    with (
        resolve(address).create() as file,
        pa.parquet.ParquetWriter(file, schema, compression="zstd", **options) as writer,
    ):
        for records in blocks:
            reports = columns(records)
            data = pa.py_buffer(reports.bits.tobytes())
            bits = pa.FixedSizeBinaryArray.from_buffers(
                schema.field("bits").type, records.reports, [None, data]
            )
            group = pa.Table.from_arrays([pa.array(reports.cohorts), bits], schema=schema)
            writer.write_table(group, row_group_size=max(1, records.reports))
            written += records.reports
    return written


def open_parquet(location: Location) -> Any:
    """Return pyarrow's ParquetFile of a file, which fetches what is asked for and nothing ahead."""
    filesystem, path = location.arrow()
    parquet = require_pyarrow().parquet
    size = _BATCH_BYTES if location.is_local else _REQUEST_BYTES
    with storage_errors(location):
        return parquet.ParquetFile(path, filesystem=filesystem, pre_buffer=False, buffer_size=size)


@contextmanager
def _reading(location: Location, expected: str = "a Parquet file") -> Iterator[None]:
    """Turn errors of reading a file into ReportFileError or StorageError."""
    pa = require_pyarrow()
    try:
        with storage_errors(location):
            yield
    except FileNotFoundError as error:
        # pyarrow's own words repeat the path, as an absolute one.
        reason = os.strerror(errno.ENOENT)
        raise MissingFileError(f"{location}: {reason}; expected {expected}") from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ReportFileError(f"{location}: {reason}; expected {expected}") from error


def row_groups(address: Address) -> tuple[int, ...]:
    """Return the number of rows of each row group of a Parquet file, as it states them."""
    location = resolve(address)
    with _reading(location), open_parquet(location) as file:
        groups = range(file.num_row_groups)
        return tuple(file.metadata.row_group(group).num_rows for group in groups)


def read_metadata(address: Address) -> dict[str, str]:
    """Return a Parquet file's own metadata."""
    location = resolve(address)
    with _reading(location), open_parquet(location) as file:
        found = (file.metadata.metadata or {}).items()
    return {key.decode(errors="replace"): text.decode(errors="replace") for key, text in found}


def read_records(address: Address, k: int | None = None, m: int | None = None) -> Iterator[Records]:
    """Yield the records of a Parquet file, a few megabytes at a time; see `read_columns`."""
    for reports in read_columns(address, k, m):
        yield interleaved(reports)


def read_columns(
    address: Address,
    k: int | None = None,
    m: int | None = None,
    groups: range | None = None,
) -> Iterator[Columns]:
    """Yield the reports of a Parquet file as they lie in Arrow's memory, some megabytes at a time.

    The columns may stand in any order, among others, and be of other types than an export's. If k
    or m is given, reports must have these parameters (raises `ReportFileError` otherwise).
    """
    path, rows = resolve(address), 0
    with _reading(path), open_parquet(path) as file:
        schema = _schema(_bits_width(path, file.schema_arrow, k) + COHORT_BYTES)
        width = schema.field("bits").type.byte_width
        if groups:
            rows = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
        for batch in file.iter_batches(
            max(1, _BATCH_BYTES // width),
            row_groups=groups,
            columns=["cohort", "bits"],
            use_threads=False,
        ):
            yield _to_columns(path, batch, schema, m, rows)
            rows += batch.num_rows


def _bits_width(path: Location, schema: Any, k: int | None) -> int:
    """Return the bytes of a report's bits, if the columns can be reports at all."""
    types = require_pyarrow().types
    names = ", ".join(schema.names) or "none"
    for column, fits, expected in (
        ("cohort", types.is_integer, "integers"),
        ("bits", lambda kind: "binary" in str(kind), "binary"),
    ):
        if schema.names.count(column) != 1:
            raise ReportFileError(
                f"{path}: column {column}: expected once, but the columns are {names}"
            )
        if not fits(kind := schema.field(column).type):
            raise ReportFileError(f"{path}: column {column}: {kind}; expected {expected}")
    fixed = int(kind.byte_width) if types.is_fixed_size_binary(kind) else None
    width = fixed if k is None else k // 8
    if width is None:
        raise ReportFileError(f"{path}: column bits: {kind}; expected binary of a fixed size")
    if fixed not in {None, width}:
        raise ReportFileError(
            f"{path}: column bits: {fixed} bytes; expected {width} for k = {k} bits"
        )
    return width


def _to_columns(path: Location, batch: Any, schema: Any, m: int | None, rows: int) -> Columns:
    """View a batch of reports, of which the first is the file's row `rows` + 1."""
    where, columns = f"{path}: rows {rows + 1} to {rows + batch.num_rows}", []
    for field in schema:
        column = batch.column(field.name)
        if column.null_count:
            raise ReportFileError(f"{where}, column {field.name}: has a null; expected none")
        if column.type != field.type:  # casting imports pyarrow.compute
            try:
                column = column.cast(field.type)
            except require_pyarrow().ArrowInvalid as error:
                raise ReportFileError(
                    f"{where}, column {field.name}: {error}; expected {field.type}"
                ) from error
        columns.append(column)
    cohort, bits = columns
    # pyarrow's own way imports pandas, which takes long
    numbers = cast("NDArray[np.uint16]", np.from_dlpack(cohort))
    if m is not None and numbers.max(initial=0) >= m:
        wrong = int(np.argmax(numbers >= m))
        raise ReportFileError(
            f"{path}: row {rows + 1 + wrong}, column cohort: {numbers[wrong]}; "
            f"expected 0 to {m - 1}"
        )
    width = bits.type.byte_width
    values = np.frombuffer(bits.buffers()[1], np.uint8, len(bits) * width, bits.offset * width)
    return Columns(numbers, values.reshape(-1, width))


def write_counts(location: Location, kept: KeptCounts, about: Mapping[str, str]) -> None:
    """Write counts, and the file's metadata, in place of what is there."""
    pa = require_pyarrow()
    found = pa.table({"counts": pa.array([pack_counts(kept)], pa.binary())}, metadata=about)
    with location.create() as file:
        pa.parquet.write_table(found, file, compression=None)


def read_counts_file(address: Address, m: int | None = None, k: int | None = None) -> KeptCounts:
    """Return the counts of a file, of m cohorts and k bits if given."""
    path = resolve(address)
    with _reading(path, "a Parquet file of counts"), open_parquet(path) as file:
        found = file.read()
    try:
        [packed] = found["counts"].to_pylist()
        kept = unpack_counts(packed)
    except (LookupError, TypeError, ValueError) as error:
        raise ReportFileError(f"{path}: isn't a file of counts: {error}") from error
    shape = kept.counts.bits.shape
    if shape != (m or shape[0], k or shape[1]):
        raise ReportFileError(
            f"{path}: counts of m = {shape[0]}, k = {shape[1]}; expected m = {m}, k = {k}"
        )
    return kept
