"""Reports as the simulated clients of github.com/google/rappor write them -> records.

Their CSV has a header and the columns client, cohort, bloom, prr and irr. The cohort and one column
of bits are read; the client's name and its true value are not. Invariant: the k characters begin
with the highest bit, so the first one is bit k-1 and the last one bit 0.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from hubbub.collector.exchange.partitions import ReportFileError
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import COHORT_BYTES, Records, record_width

_ROWS = 50_000


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file's bytes, unpacked if its name ends in .gz."""
    return cast("BinaryIO", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def read_report_csv(path: Path, params: RapporParams, column: str = "irr") -> Iterator[Records]:
    """Yield the records of a report CSV, or .csv.gz, some thousands at a time.

    Parameters
    ----------
    path : Path
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
    try:
        with open_unpacked(path) as file:
            # Letters outside ASCII may stand in columns that aren't read.
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            yield from _Table(path, text, params, column).records()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ReportFileError(f"{path}: {error}; expected gzip") from error


class _Table:
    """One CSV, being read."""

    def __init__(
        self, path: Path, text: io.TextIOWrapper, params: RapporParams, column: str
    ) -> None:
        self._path = path
        self._reader = csv.reader(text, skipinitialspace=True)
        self._params = params
        self._column = column

    def records(self) -> Iterator[Records]:
        try:
            yield from self._records()
        except csv.Error as error:
            raise ReportFileError(f"{self._path}: line {self._reader.line_num}: {error}") from error

    def _records(self) -> Iterator[Records]:
        header = [name.strip() for name in next(self._reader, [])]
        at_cohort, at_bits = self._place(header, "cohort"), self._place(header, self._column)
        k, size = self._params.k, self._params.k // 8
        cohorts = {str(c): c.to_bytes(COHORT_BYTES, "little") for c in range(self._params.m)}
        data = bytearray()
        full = _ROWS * record_width(k)
        for row in self._reader:
            if len(row) != len(header):
                if not row:
                    continue  # a blank line
                self._refuse(f"{len(row)} fields; expected {len(header)} as in the header")
            bits = row[at_bits]
            if len(bits) != k or bits.strip("01"):
                self._refuse_bits(bits)
            cohort = cohorts.get(row[at_cohort])
            if cohort is None:
                self._refuse_cohort(row[at_cohort])
            data += cohort
            # Base 2 puts the first character highest, and so do they.
            data += int(bits, 2).to_bytes(size, "little")
            if len(data) >= full:
                yield Records(record_width(k), bytes(data))
                data.clear()
        if data:
            yield Records(record_width(k), bytes(data))

    def _place(self, header: list[str], column: str) -> int:
        if header.count(column) != 1:
            raise ReportFileError(
                f"{self._path}: line 1: expected a header with one column {column!r}, "
                f"found {','.join(header)[:200]!r}"
            )
        return header.index(column)

    def _refuse_bits(self, bits: str) -> NoReturn:
        k = self._params.k
        expected = f"expected k = {k} characters, each 0 or 1"
        if wrong := bits.strip("01"):
            self._refuse(f"column {self._column}: holds {wrong[0]!r}; {expected}")
        hint = ""
        if len(bits) % 8:
            hint = "; reports whose k is no multiple of 8 can't be imported"
        self._refuse(f"column {self._column}: {len(bits)} characters; {expected}{hint}")

    def _refuse_cohort(self, cohort: str) -> NoReturn:
        last = self._params.m - 1
        self._refuse(f"column cohort: {cohort[:20]!r}; expected 0 to {last} (m = {last + 1})")

    def _refuse(self, what: str) -> NoReturn:
        raise ReportFileError(f"{self._path}: line {self._reader.line_num}, {what}")
