"""Reports as the simulated clients of github.com/google/rappor write them -> records.

Their CSV has a header and the columns client, cohort, bloom, prr and irr. The cohort and one column
of bits are read; the client's name and its true value are not. Invariant: the k characters begin
with the highest bit, so the first one is bit k-1 and the last one bit 0.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, TextIO, cast

from hubbub.protocol.params import COHORT_BYTES, RapporParams
from hubbub.protocol.records import Records, record_width
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.locations import Address, Location, resolve, storage_errors

_ROWS = 50_000  # at a time: some megabytes


@contextlib.contextmanager
def open_unpacked(address: Address) -> Iterator[BinaryIO]:
    """Open a file's bytes, unpacked if its name ends in .gz."""
    location = resolve(address)
    with location.open() as file:
        if not location.name.endswith(".gz"):
            yield cast("BinaryIO", file)
            return
        with gzip.open(file) as unpacked:
            yield cast("BinaryIO", unpacked)


def read_report_csv(
    address: Address, params: RapporParams, column: str = "irr"
) -> Iterator[Records]:
    """Yield the records of a report CSV, or .csv.gz, some thousands at a time.

    Parameters
    ----------
    address : Location, path or str
    params : RapporParams
        What the reports were made with; k and m are checked on each row.
    column : str
        The column of bits.

    Raises
    ------
    ReportFileError
        At the first row that isn't a report of these parameters; what was yielded before is
        worthless then.
    """
    path = resolve(address)
    try:
        with storage_errors(path), open_unpacked(path) as file:
            # Letters outside ASCII may stand in columns that aren't read.
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            yield from _records(path, text, params, column)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ReportFileError(f"{path}: {error}; expected gzip") from error


def _rows(path: Location, text: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its line."""
    reader = csv.reader(text, skipinitialspace=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ReportFileError(f"{path}: line {reader.line_num}: {error}") from error


def _records(path: Location, text: TextIO, params: RapporParams, column: str) -> Iterator[Records]:
    def refused(line: int, fault: str) -> ReportFileError:
        return ReportFileError(f"{path}: line {line}, {fault}")

    rows = _rows(path, text)
    header = [name.strip() for name in next(rows, (1, []))[1]]
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
    for line, row in rows:
        if not row:
            continue  # a blank line
        if len(row) != len(header):
            raise refused(line, f"{len(row)} fields; expected {len(header)} as in the header")
        bits = row[at_bits]
        wrong = bits.strip("01")
        if wrong or len(bits) != k:
            found = f"holds {wrong[0]!r}" if wrong else f"{len(bits)} characters"
            hint = ""
            if not wrong and len(bits) % 8:
                hint = "; reports whose k is no multiple of 8 can't be imported"
            expected = f"expected k = {k} characters, each 0 or 1{hint}"
            raise refused(line, f"column {column}: {found}; {expected}")
        cohort = cohorts.get(row[at_cohort])
        if cohort is None:
            expected = f"expected 0 to {m - 1} (m = {m})"
            raise refused(line, f"column cohort: {row[at_cohort][:20]!r}; {expected}")
        data += cohort
        # Base 2 puts the first character highest, and so do they.
        data += int(bits, 2).to_bytes(k // 8, "little")
        if len(data) >= _ROWS * width:
            yield Records(width, bytes(data))
            data.clear()
    if data:
        yield Records(width, bytes(data))
