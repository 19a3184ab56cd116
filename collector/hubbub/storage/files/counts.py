"""Counts of forgotten reports <-> a Parquet file: one row per cohort that has reports.

The columns are `cohort` (uint16), `reports` (int64) and `bits` (k int64: how many of the cohort's
reports have bit 0, bit 1, ...). The schema's metadata has m and, in `set_bits`, how many reports
have 0, 1, ... k set bits. Invariant: the file's name keeps it from being read as reports, by
Hive's readers, which pass over what begins with `_`, and by patterns that end in `.parquet`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.counts import CohortCounts, KeptCounts, check_counts
from hubbub.protocol.errors import RecordsError
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.locations import Address, Location, resolve, storage_errors
from hubbub.storage.files.parquet import open_parquet, reading_error, require_pyarrow

_MOST_COHORTS = 2**16
_COLUMNS = ("cohort", "reports", "bits")


def write_counts(location: Location, kept: KeptCounts) -> None:
    """Write counts in place of what is there."""
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
    metadata = {"m": str(m), "set_bits": json.dumps(kept.set_bits.tolist())}
    table = pa.table(columns, names=list(_COLUMNS)).replace_schema_metadata(metadata)
    with location.create() as file:
        pa.parquet.write_table(table, file, compression="zstd")


def read_counts_file(address: Address, m: int | None = None, k: int | None = None) -> KeptCounts:
    """Return the counts of a file.

    Parameters
    ----------
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
