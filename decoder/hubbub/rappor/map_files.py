"""google/rappor's map files -> candidates whose positions are given instead of hashed.

A row holds a string and the positions of its bits, h for each cohort, cohorts in order; those of
cohort c, from 0, are numbered c k + 1 to (c + 1) k. Whatever hash drew them, the decoder's
mathematics asks only that a string nobody has sets random bits.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hubbub.inference.arrays import PositionArray
from hubbub.inference.candidates import Candidates, mapped
from hubbub.inference.errors import InputError
from hubbub.inference.string_table import pack_strings
from hubbub.protocol.params import RapporParams
from hubbub.rappor.csv_files import CsvRow, read_rows, shown
from hubbub.storage.files.locations import Address, Location, resolve

# As for anomalies: a daily check of a hundred maps is wrong once in thirty years.
ALARM = 1e-6
# The usual rule: five expected in each class, or the statistic isn't yet chi-square.
_CHI_SQUARE_NEEDS = 5
# Rows at once: bounds memory; speed alone depends on it.
_BLOCK = 8_192
_NONE = -1
"""Stands for an empty cell."""


class CandidateMap(NamedTuple):
    """What a map file holds."""

    candidates: Candidates  # distinct strings, in the order of the file
    repeats: int  # rows left out because an earlier one is the same


def read_map(
    address: Address, params: RapporParams, source: str = "the parameters"
) -> CandidateMap:
    """Read a map file, or .gz.

    Strings are opaque. Some maps name a bit that two hashes of a cohort share only once, and end in
    empty cells instead; then the bit, or one of the cohort's if it has several, is taken twice.

    `address`: the file, or an object in a bucket. `source`: the file that the parameters are from,
    for errors. Raises `InputError` if there is no row, the map is for another k, a position isn't
    one of its cohort's, or one string has two rows that differ. Raises `OSError, StorageError` if
    it can't be read.
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
    """Return whether the positions aren't equally likely (chi-square, P(false alarm) = 1e-6).

    `positions` has shape (n, m, h).
    """
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
