"""Sums over the bits of every candidate, in one pass over all of them.

Screening, testing and comparing candidates ask the same of each: add up the entries of a table at
its bits. Chunks stay in the processor's cache and all cores work on them; each writes its own rows,
so the result doesn't depend on how many cores there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, NumberArray, WordArray
from hubbub.inference.candidates import Candidates
from hubbub.inference.parallel import each
from hubbub.protocol import RapporParams

_SPAN = 16_384
"""Candidates that a core takes at once."""

# Any fixed number: two sets of bits get the same 128 bits by chance with probability 2^-128.
_FINGERPRINT_SEED = 20140814
_FINGERPRINT_BITS = 64


def scan(
    candidates: Candidates,
    hash_tables: Sequence[FloatArray],
    bit_tables: Sequence[FloatArray],
    threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Sum tables over the bits of each candidate.

    `candidates`: the strings that are looked for. `hash_tables` and `bit_tables` have shape (m, k).
    `threads`: all cores if not given; the result is the same. Returns `by_hash`, shape (n,
    len(hash_tables), ): sums over all m * h hashes: a position that two hashes of a cohort share
    counts twice. `by_bit`, shape (n, len(bit_tables), ): sums over the distinct bits: such a
    position counts once. Raises `ValueError` if a table isn't of shape (m, k).
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
    _add_up(candidates, sums, threads=threads)
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
    Each of the m * k bits has two random numbers of 64 bits; sets of bits are compared by the sums
    of theirs modulo 2^64 (Zobrist 1970). The first are added up in so many cohorts only that two
    strings set the same bits there with probability 2^-64, or in all where k < h^2; where these
    sums are equal, the second are in all. Two strings that differ have both in common with
    probability 2^-127, so that even among 10^7 candidates no two do but for a chance of 3e-25; two
    of a map that are alike in all but one cohort with 2^-64.
    """

    def numbers(which: int, rows: IntArray | None) -> NumberArray:
        found = np.empty(len(candidates) if rows is None else len(rows), dtype=np.uint64)
        where, sums = _fingerprint(candidates, has_reports, which, found)
        _add_up(where, [sums], rows)
        return found

    return same_sums(numbers(0, None), lambda rows: numbers(1, rows))


def same_sums(first: NumberArray, second: Callable[[IntArray], NumberArray]) -> CollisionGroups:
    """Find rows that have both numbers in common with an earlier one.

    `first` has shape (n,). `second`: returns the second numbers of some rows.
    """
    ordered = np.sort(first)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return NO_GROUPS
    place = np.minimum(np.searchsorted(shared, first), len(shared) - 1)
    rows = np.flatnonzero(shared[place] == first)
    others = second(rows)
    order = np.lexsort((rows, others, first[rows]))
    rows, others = rows[order], others[order]
    again = np.zeros(len(rows), dtype=np.bool_)
    again[1:] = (first[rows[1:]] == first[rows[:-1]]) & (others[1:] == others[:-1])
    begins = rows[~again][np.cumsum(~again) - 1]
    ascending = np.argsort(rows[again])
    return CollisionGroups(rows[again][ascending], begins[again][ascending])


def _fingerprint(
    candidates: Candidates, has_reports: BoolArray, which: int, out: NumberArray
) -> tuple[Candidates, _Sum]:
    """Return the cohorts that the first or the second number is of, and its sum over these."""
    params = candidates.params
    if which == 0 and params.k >= params.h**2:  # in fewer bits hashes collide
        of_each = params.h * math.log2(params.k) - math.log2(math.factorial(params.h))
        some = np.flatnonzero(has_reports)[: math.ceil(_FINGERPRINT_BITS / of_each)]
        candidates = candidates.of_cohorts(1 + int(some.max(initial=0)))
    weights = _bit_weights(params, has_reports)[which, : candidates.params.m]
    return candidates, _Sum(weights.ravel(), out, True)


def _bit_weights(params: RapporParams, has_reports: BoolArray) -> NumberArray:
    rng = np.random.default_rng(_FINGERPRINT_SEED)
    shape = (2, params.m, params.k)
    weights = rng.integers(0, 2**64 - 1, shape, dtype=np.uint64, endpoint=True)
    weights[:, ~has_reports] = 0
    return weights


class _Sum(NamedTuple):
    """A flat table of m * k entries, where the sums over it go, and what is summed."""

    table: npt.NDArray[Any]
    out: npt.NDArray[Any]
    distinct: bool


def _add_up(
    candidates: Candidates,
    sums: Sequence[_Sum],
    of: IntArray | None = None,
    threads: int | None = None,
) -> None:
    """Fill the sums over all candidates, or over those of some rows."""
    count = len(candidates) if of is None else len(of)

    def add_span(start: int) -> None:
        for rows in candidates.pieces(slice(start, min(start + _SPAN, count))):
            numbers = candidates.numbers(rows if of is None else of[rows]).transpose(1, 2, 0)
            entries = numbers.reshape(-1, numbers.shape[2]).astype(np.intp)
            repeats = None
            for table, out, distinct in sums:
                # Numbers are in range: "clip" only spares numpy the looking.
                np.add.reduce(table.take(entries, mode="clip"), axis=0, out=out[rows])
                if distinct:
                    repeats = repeats or _repeats(numbers)
                    row, number = repeats
                    np.subtract.at(out[rows], row, table[number])

    each(add_span, range(0, count, _SPAN), threads)


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
