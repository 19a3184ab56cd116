"""Sums over the bits of every candidate, in one pass over all of them.

Screening, testing and comparing candidates ask the same of each: add up the entries of a table at
its bits. Chunks stay in the processor's cache and all cores work on them; each writes its own rows,
so the result doesn't depend on how many cores there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, WordArray
from hubbub.inference.candidates import Candidates, distinct_positions
from hubbub.inference.parallel import each

_SPAN = 16_384
"""Candidates that a core takes at once."""

_SEED = 20140814  # any fixed number
_SURE_BITS = 64  # few sets of bits are compared that aren't the same


def scan(
    candidates: Candidates,
    hash_tables: Sequence[FloatArray],
    bit_tables: Sequence[FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Sum tables over the bits of each candidate.

    `candidates`: the strings that are looked for. `hash_tables` and `bit_tables` have shape (m, k).
    Returns `by_hash`, shape (n, len(hash_tables), ): sums over all m * h hashes: a position that
    two hashes of a cohort share counts twice. `by_bit`, shape (n, len(bit_tables), ): sums over the
    distinct bits: such a position counts once. Raises `ValueError` if a table isn't of shape (m,
    k).
    """
    shape = (candidates.params.m, candidates.params.k)
    for table in (*hash_tables, *bit_tables):
        if table.shape != shape:
            raise ValueError(f"table of shape {table.shape}: must be (m, k) = {shape}")
    by_hash = np.empty((len(candidates), len(hash_tables)))
    by_bit = np.empty((len(candidates), len(bit_tables)))
    sums = [
        *(_Sum(table.ravel(), by_hash[:, i], False) for i, table in enumerate(hash_tables)),
        *(_Sum(table.ravel(), by_bit[:, i], True) for i, table in enumerate(bit_tables)),
    ]
    _add_up(candidates, sums)
    return by_hash, by_bit


class CollisionGroups(NamedTuple):
    """Candidates that set the very same bits as an earlier one."""

    rows: IntArray  # shape (r,); in ascending order
    first: IntArray  # shape (r,); the first candidate with these bits, which isn't among the rows

    @property
    def candidates(self) -> int:
        """Number of candidates that set the same bits as another one."""
        return len(self.rows) + len(np.unique(self.first))

    def others(self, n_candidates: int) -> IntArray:
        """Return the candidates that aren't among the rows: one for each set of bits."""
        kept = np.ones(n_candidates, dtype=np.bool_)
        kept[self.rows] = False
        return np.flatnonzero(kept)


NO_GROUPS = CollisionGroups(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""All candidates set different bits."""


def indistinguishable(candidates: Candidates, has_reports: BoolArray) -> CollisionGroups:
    """Find candidates that set the very same bits as another one, wherever there are reports.

    `candidates`: the strings that are looked for. `has_reports` has shape (m,).

    Notes
    -----
    Each of the m * k bits has a random number of 64 bits; equal sets of bits have equal sums of
    theirs modulo 2^64 (Zobrist 1970). They are added up in so many cohorts only that two strings
    set the same bits there with probability 2^-64, or in all where k < h^2, because hashes collide
    in fewer bits. Where sums are equal, the bits themselves are compared.
    """
    params, numbers = candidates.params, np.empty(len(candidates), dtype=np.uint64)
    cohorts = np.flatnonzero(has_reports)
    if params.k >= params.h**2:
        of_each = params.h * math.log2(params.k) - math.log2(math.factorial(params.h))
        cohorts = cohorts[: math.ceil(_SURE_BITS / of_each)]
    first = candidates.of_cohorts(1 + int(cohorts.max(initial=0)))
    weights = np.random.default_rng(_SEED).integers(
        0, 2**64 - 1, (first.params.m, params.k), dtype=np.uint64, endpoint=True
    )
    weights[~has_reports[: first.params.m]] = 0
    _add_up(first, [_Sum(weights.ravel(), numbers, True)])
    ordered = np.sort(numbers)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return NO_GROUPS
    rows = np.flatnonzero(np.isin(numbers, shared))
    bits = [
        distinct_positions(candidates.positions(rows[some])[:, has_reports], params)
        for some in candidates.pieces(slice(0, len(rows)))
    ]
    sets = np.concatenate(bits).reshape(len(rows), -1)
    _, places, group = np.unique(sets, axis=0, return_index=True, return_inverse=True)
    begins = rows[places[group.ravel()]]
    again = begins != rows
    return CollisionGroups(rows[again], begins[again])


class _Sum(NamedTuple):
    """A flat table of m * k entries, where the sums over it go, and what is summed."""

    table: npt.NDArray[Any]
    out: npt.NDArray[Any]
    distinct: bool


def _add_up(candidates: Candidates, sums: Sequence[_Sum]) -> None:
    """Fill the sums over all candidates."""
    count = len(candidates)

    def add_span(start: int) -> None:
        for rows in candidates.pieces(slice(start, min(start + _SPAN, count))):
            numbers = candidates.numbers(rows).transpose(1, 2, 0)
            entries = numbers.reshape(-1, numbers.shape[2]).astype(np.intp)
            repeats = None
            for table, out, distinct in sums:
                # Numbers are in range: "clip" only spares numpy the looking.
                np.add.reduce(table.take(entries, mode="clip"), axis=0, out=out[rows])
                if distinct:
                    repeats = repeats or _repeats(numbers)
                    row, number = repeats
                    np.subtract.at(out[rows], row, table[number])

    each(add_span, range(0, count, _SPAN))


def _repeats(numbers: WordArray) -> tuple[IntArray, WordArray]:
    """Return the rows and numbers of the hashes whose bit an earlier hash of the cohort sets.

    `numbers`, shape (h, m, n): with the rows last, as they lie in memory.
    """
    rows, found = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.uint32)]
    for later in range(1, len(numbers)):
        again = numbers[later] == numbers[0]
        for earlier in range(1, later):
            again |= numbers[later] == numbers[earlier]
        cohort, row = np.divmod(np.flatnonzero(again), numbers.shape[2])
        rows.append(row)
        found.append(numbers[later, cohort, row])
    return np.concatenate(rows), np.concatenate(found)
