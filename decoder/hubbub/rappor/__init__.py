"""The files of github.com/google/rappor: parameters, counts, and maps of strings to bits.

Their tools sum reports up to one line per cohort: the number of reports, then how many of them have
bit 0 set, bit 1, and so on. A row of a map holds a string and the positions of its bits, h for each
cohort, cohorts in order; those of cohort c, from 0, are numbered c k + 1 to (c + 1) k. Whatever
hash drew them, the decoder's mathematics asks only that an absent string sets random bits.

Invariant: though they write a *report* with its highest bit first, column j of their counts,
position j of their maps and column j of `CohortCounts` are the same bit, so nothing is reversed.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hubbub.inference import (
    Candidates,
    DecodingParams,
    InputError,
    PositionArray,
    mapped,
    pack_strings,
)
from hubbub.protocol import CohortCounts, ParameterError, RapporParams
from hubbub.storage import Address, Location, open_unpacked, resolve, storage_errors

HEADER = ("k", "h", "m", "p", "q", "f")
_UNIT = re.compile(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)
# Up to here doubles, in which R writes numbers, hold every integer.
_LARGEST = 2**53
# Characters of a cell in a message, which stays one line.
_SHOWN = 40


class CsvRow(NamedTuple):
    """One row of a CSV file."""

    path: Location | Path
    line: int  # the file's line on which it ends, from 1
    cells: list[str]

    def refuse(self, column: int | None, found: str, expected: str) -> NoReturn:
        """Raise InputError about a column, counted from 1, or about the whole row."""
        place = "" if column is None else f", column {column}"
        raise InputError(f"{self.path}: line {self.line}{place}: {found}; expected {expected}")

    def require(self, columns: int, meaning: str) -> None:
        """Refuse a row that hasn't so many columns."""
        if len(self.cells) != columns:
            self.refuse(None, f"{len(self.cells)} columns", f"{columns} ({meaning})")

    def integers(self, first: int, *, blank: int | None = None) -> Sequence[int]:
        """Return the cells from `first` (from 0) on as integers of at least 0; empty ones: `blank`.

        R writes 100000 as 1e+05, which is an integer, too.
        """
        cells = self.cells[first:]
        digits = "".join(cells)
        if digits.isascii() and digits.isdigit() and all(cells) and max(map(len, cells)) < 10:
            return array("q", map(int, cells))
        return array(
            "q", [self._integer(first + at, cell, blank) for at, cell in enumerate(cells, start=1)]
        )

    def _integer(self, column: int, cell: str, blank: int | None) -> int:
        text = cell.strip()
        if not text and blank is not None:
            return blank
        number = float(text) if _UNIT.fullmatch(text) else -1.0
        if not (number.is_integer() and 0 <= number <= _LARGEST):
            self.refuse(column, shown(cell), "an integer of at least 0")
        return int(number)


def read_rows(address: Address) -> Iterator[CsvRow]:
    """Yield the rows of `read_cells`, which can say where they are."""
    path = resolve(address)
    return (CsvRow(path, line, cells) for line, cells in read_cells(path))


def read_cells(address: Address) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a UTF-8 CSV, or .csv.gz, that aren't blank lines, with their last lines.

    Cells are taken literally. Raises `InputError` if it isn't UTF-8, CSV, or gzip; `OSError,
    StorageError` if it can't be read.
    """
    path = resolve(address)
    try:
        with storage_errors(path), open_unpacked(path) as file:
            reader = csv.reader(_lines(path, file), strict=True)
            try:
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
            except csv.Error as error:
                raise InputError(
                    f"{path}: line {reader.line_num}: {error}; expected comma-separated values, "
                    'quotes within quotes doubled ("")'
                ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}; expected gzip") from error


def _lines(path: Location, file: BinaryIO) -> Iterator[str]:
    """Decode line by line, so that the line that isn't UTF-8 can be named."""
    if isinstance(file, gzip.GzipFile):  # whose own lines take three times as long
        file = io.BufferedReader(file)
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
            raise InputError(f"{path}: line {number}: {found}; expected UTF-8") from error


def read_params(path: Address) -> DecodingParams:
    """Read parameters: the header k,h,m,p,q,f and one row (raises as `read_cells`)."""
    rows = list(read_rows(path))
    expected = f"the header {','.join(HEADER)} and one row"
    if not rows:
        raise InputError(f"{path}: empty; expected {expected}")
    header, *rest = rows
    if tuple(cell.strip() for cell in header.cells) != HEADER:
        header.refuse(None, shown(",".join(header.cells)), f"the header {','.join(HEADER)}")
    if len(rest) != 1:
        raise InputError(f"{path}: {len(rest)} rows below the header; expected {expected}")
    (row,) = rest
    row.require(len(HEADER), ",".join(HEADER))
    k, h, m = CsvRow(row.path, row.line, row.cells[:3]).integers(0)
    chances = {}
    for column, name in enumerate(HEADER[3:], start=4):
        text = row.cells[column - 1].strip()
        if not _UNIT.fullmatch(text) or float(text) > 1:
            row.refuse(column, f"{name} = {shown(text)}", "a number between 0 and 1")
        chances[name] = float(text)
    try:
        return DecodingParams(k, h, m, **chances)
    except ParameterError as error:
        raise InputError(f"{path}: line {row.line}: {error}") from error


def read_counts(path: Address, params: RapporParams) -> CohortCounts:
    """Read counts: one row per cohort, its number of reports N_c and how many have each bit set.

    Raises `InputError` if there aren't m such rows, or a bit has more than N_c reports.
    """
    meaning = f"the number of reports, then k = {params.k} bits"
    table = np.empty((params.m, 1 + params.k), dtype=np.int64)
    n_rows = 0
    for row in read_rows(path):
        row.require(1 + params.k, meaning)
        if n_rows < params.m:
            table[n_rows] = row.integers(0)
            n_reports, *bits = table[n_rows].tolist()
            for column, count in enumerate(bits, start=2):
                if count > n_reports:
                    expected = f"at most the cohort's {n_reports} reports (column 1)"
                    row.refuse(column, f"{count}", expected)
        n_rows += 1
    if n_rows != params.m:
        raise InputError(f"{path}: {n_rows} rows; expected one for each of m = {params.m} cohorts")
    return CohortCounts(table[:, 0].copy(), table[:, 1:].copy())


def shown(text: str) -> str:
    """Return a cell as a message may show it."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


# The level for anomalies: a daily check of a hundred maps is wrong once in thirty years.
ALARM = 1e-6
# The usual rule: five expected in each class, or the statistic isn't yet chi-square.
_CHI_SQUARE_NEEDS = 5
# Rows at once: bounds memory; speed alone depends on it.
_BLOCK = 8_192
_NONE = -1
"""Stands for an empty cell."""


class CandidateMap(NamedTuple):
    """The contents of a map file."""

    candidates: Candidates  # distinct strings, in the order of the file
    repeats: int  # rows left out because an earlier one is the same


def read_map(
    address: Address, params: RapporParams, source: str = "the parameters"
) -> CandidateMap:
    """Read a map file, or .gz, of opaque strings; `source`: the parameters' file, for errors.

    Some maps name a bit that two hashes of a cohort share only once, and end in empty cells
    instead; then the bit, or one of the cohort's if it has several, is taken twice. Raises
    `InputError` if there is no row, the map is for another k, a position isn't one of its cohort's,
    or one string has two rows that differ.
    """
    path = resolve(address)
    width = params.m * params.h
    meaning = f"the string, then h m = {params.h} * {params.m} positions"
    strings: dict[str, int] = {}
    lines, numbers = array("q"), array("i")
    repeats = 0
    for row in read_rows(path):
        row.require(1 + width, meaning)
        given = row.integers(1, blank=_NONE)
        highest = max(given)
        if highest > params.m * params.k:
            _refuse_other_k(path, params, source)
            at = given.index(highest)
            row.refuse(2 + at, str(highest), _range(params, at // params.h))
        positions = array("i", given)
        if _NONE in given:
            positions = _with_shared_bits(row, [p for p in given if p != _NONE], params)
        string = row.cells[0]
        if string in strings:
            first = strings[string]
            if positions != numbers[first * width : (first + 1) * width]:
                row.refuse(1, shown(string), f"the positions that it has on line {lines[first]}")
            repeats += 1
            continue
        strings[string] = len(strings)
        lines.append(row.line)
        numbers.extend(positions)
    if not strings:
        raise InputError(f"{path}: empty; expected one row per candidate: {meaning}")
    table = np.frombuffer(numbers, dtype=np.int32).reshape(-1, params.m, params.h)
    within = _within_cohorts(path, table, lines, params, source)
    return CandidateMap(mapped(pack_strings(strings), within, params), repeats)


def is_uneven(positions: PositionArray, params: RapporParams) -> bool:
    """Return whether positions, shape (n, m, h), aren't equally likely (chi-square at 1e-6)."""
    found = np.zeros(params.k, dtype=np.int64)
    for rows in _blocks(len(positions)):
        found += np.bincount(positions[rows].ravel(), minlength=params.k)
    if found.sum() < _CHI_SQUARE_NEEDS * params.k:
        return False
    expected = found.mean()
    statistic = float(((found - expected) ** 2).sum() / expected)
    return bool(special.chdtrc(params.k - 1, statistic) < ALARM)


def _within_cohorts(
    path: Location, table: NDArray[np.int32], lines: array[int], params: RapporParams, source: str
) -> PositionArray:
    """Count positions from 0 in each cohort; refuse those that aren't their cohort's."""
    positions = np.empty(table.shape, dtype=np.int16)
    first = 1 + np.arange(params.m, dtype=np.int32) * params.k
    for rows in _blocks(len(table)):
        within = table[rows] - first[:, None]
        wrong = np.argwhere((within < 0) | (within >= params.k))
        if len(wrong):
            _refuse_other_k(path, params, source)
            index, cohort, hash_number = wrong[0].tolist()
            index += rows.start
            found = str(table[index, cohort, hash_number])
            column = 2 + cohort * params.h + hash_number
            CsvRow(path, lines[index], []).refuse(column, found, _range(params, cohort))
        positions[rows] = within
    return positions


def _refuse_other_k(path: Location, params: RapporParams, source: str) -> None:
    """Raise InputError if all positions of the map are their cohorts' for another k."""
    least, most = 1, math.inf
    cohorts = np.repeat(np.arange(params.m), params.h)
    for row in read_rows(path):
        given = np.asarray(row.integers(1, blank=_NONE), dtype=np.int64)
        if len(given) != len(cohorts) or given.min() < 1:
            continue
        least = max(least, int((-(-given // (cohorts + 1))).max()))
        if params.m > 1:
            later = cohorts > 0
            most = min(most, int(((given[later] - 1) // cohorts[later]).min()))
    if least > most or least <= params.k <= most:
        return
    found = f"k = {least}" if least == most else f"a k of {least} to {most}"
    if math.isinf(most):
        found = f"a k of at least {least}"
    raise InputError(f"{path}: its positions are for {found}; {source} says k = {params.k}")


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, _BLOCK):
        yield slice(start, min(start + _BLOCK, count))


def _with_shared_bits(row: CsvRow, given: list[int], params: RapporParams) -> array[int]:
    """Complete a row that names bits once that several of its hashes set."""
    complete = array("i")
    for cohort in range(params.m):
        of_cohort = [p for p in given if (p - 1) // params.k == cohort]
        if not 1 <= len(of_cohort) <= params.h:
            found = f"empty cells, and {len(of_cohort)} positions of cohort {cohort}"
            row.refuse(None, found, f"{params.h} in each, or fewer where hashes share a bit")
        while len(of_cohort) < params.h:  # any of them may be the shared one
            of_cohort.append(of_cohort[sum(of_cohort) % len(of_cohort)])
        complete.extend(of_cohort)
    return complete


def _range(params: RapporParams, cohort: int) -> str:
    first, last = cohort * params.k + 1, (cohort + 1) * params.k
    return f"a position of cohort {cohort}: {first} to {last}"
