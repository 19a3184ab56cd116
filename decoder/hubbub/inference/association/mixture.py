"""The likelihood of reports of several values: every report's bits, given every cell of the table.

A client reports each of its values by itself, but from one cohort, so that given its values the
density of its whole report is a product over variables,
    L_i(a, b) = A_i(a) B_i(b),      mix_i = sum_ab share_ab L_i(a, b),
each factor relative to "no bit is set". The table's cells are the components of the mixture; the
last value of a string is the unknown, a random string, which stands for all that aren't listed.

Strings that set the same bits in a cohort have the same density there, so sums are made once for
each set of bits, and handed to the strings afterwards. Invariant: no array has both all reports and
all cells as its sides, and the order of the sums depends on the reports alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, PositionArray
from hubbub.inference.association.reports import AssociationReports
from hubbub.inference.likelihood.sums import (
    Evaluation,
    bit_ratios,
    densities,
    distinct_positions,
    unknown_densities,
)

# 8 MB of doubles, so that memory doesn't grow with reports; at least 128 rows, so that the work is
# done by matrices and not by Python. Speed alone depends on both.
_BLOCK_NUMBERS = 2**20
_LEAST_ROWS = 128


class _Block(NamedTuple):
    """Some rows of one cohort.

    Attributes
    ----------
    weights : float64 array, shape (n,)
    ratios : tuple of float64 arrays, shape (bits + 1, n)
        Each variable's ratio of every bit, and a row of ones.
    unknown : tuple of float64 arrays, shape (n,), or None
        Of strings, the density of the unknown.
    """

    cohort: int
    weights: FloatArray
    ratios: tuple[FloatArray, ...]
    unknown: tuple[FloatArray | None, ...]


class _BitSets(NamedTuple):
    """The sets of bits that a string's listed values set in one cohort.

    Attributes
    ----------
    sets : int16 array, shape (sets, h)
        Different ones, as from `distinct_positions`.
    groups : int64 array, shape (values,)
        Which of them each value has; the unknown, which comes last, has the number after them.
    """

    sets: PositionArray
    groups: IntArray


class Scatter(NamedTuple):
    """What random strings that nobody has would find in the reports; a mean over such strings.

    Attributes
    ----------
    scattered : float64 array, shape (r, r)
        Of a string's scores beside all r combinations of the other variables' values: the sum of
        their products over cohorts.
    expected : float64 array, shape (r, r)
        What that would be if unlisted strings set random bits in every report; also the
        information that the reports have about such a string's cells.
    """

    scattered: FloatArray
    expected: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AssociationMixture:
    """All reports, and the strings of each variable.

    Attributes
    ----------
    positions : tuple of int16 arrays, shape (a, m, h), or None
        Of strings, from `distinct_positions`; None for a boolean.
    bit_sets : tuple of tuples, one a cohort, or None
        The same, sorted by what they set: every sum needs it.
    """

    reports: AssociationReports
    positions: tuple[PositionArray | None, ...]
    bit_sets: tuple[tuple[_BitSets, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The table's shape: a boolean has 2 values, strings have one more than are listed."""
        return tuple(2 if own is None else len(own) + 1 for own in self.positions)

    def evaluate(self, shares: FloatArray) -> Evaluation:
        """Return the log-likelihood, its gradient, and the information (minus the Hessian).

        Parameters
        ----------
        shares : float64 array, shape (n,)
            Of the cells; the last variable's values change fastest. May be below 0.

        Returns
        -------
        Evaluation
            Of value -inf, and nothing else, if some report couldn't have been made.
        """
        n = len(shares)
        value, gradient, information = 0.0, np.zeros(n), np.zeros((n, n))
        strings = [v for v, own in enumerate(self.positions) if own is not None]
        flag_cells = self._flag_cells()
        for cohort in range(self.reports.params.m):
            sets, _ = self._sets(cohort)
            groups, size = self._string_groups(cohort, strings)
            for flags, blocks in self._by_flags(cohort, size):
                # Flags that are reported alike multiply a cell's density by the same factor.
                factor = flags[flag_cells]
                own_shares = np.bincount(groups, shares * factor, minlength=size)
                first, second = np.zeros(size), np.zeros((size, size))
                for block in blocks:
                    factors = self._factors(block, sets)
                    density = _product([np.ones((1, len(block.weights))),
                                        *(factors[v] for v in strings)])  # fmt: skip
                    mixed = own_shares @ density
                    if mixed.min() <= 0:
                        return Evaluation(-np.inf, gradient, information)
                    value += float(block.weights @ np.log(mixed))
                    first += density @ (block.weights / mixed)
                    density *= np.sqrt(block.weights) / mixed
                    second += density @ density.T
                gradient += factor * first[groups]
                information += np.outer(factor, factor) * second[groups][:, groups]
        return Evaluation(value, gradient, information)

    def scatter(
        self, shares: FloatArray, inverse: FloatArray, variable: int, probes: PositionArray
    ) -> Scatter:
        """Return how random strings' scores scatter over cohorts, and how they would by the model.

        Scores are those of the string less those of the unknown, which are their mean over the
        hash.

        Parameters
        ----------
        shares : float64 array, shape (n,)
            At the maximum.
        inverse : float64 array, shape (n, n)
            Of the information there.
        variable : int
            Whose values the strings are.
        probes : int16 array, shape (s, m, h)
            From `distinct_positions`.
        """
        others = [v for v in range(len(self.positions)) if v != variable]
        rest, n_probes = prod(self.shape[v] for v in others), len(probes)
        scattered, own = np.zeros((rest, rest)), np.zeros((rest, rest))
        shared = np.zeros((n_probes * rest, len(shares)))
        for cohort in range(self.reports.params.m):
            sets, groups = self._sets(cohort)
            size = int(groups.max()) + 1
            own_shares = np.bincount(groups, shares, minlength=size)
            score, common = np.zeros((n_probes, rest)), np.zeros((n_probes * rest, size))
            for block in self._blocks(cohort, size + n_probes * rest):
                factors = self._factors(block, sets)
                density = _product(factors)
                mixed = own_shares @ density
                density = density / mixed
                beside = _product([factors[v][self._groups(cohort, v)] for v in others]) / mixed
                ratio = factors[variable][-1]  # the unknown's
                ratio = densities(block.ratios[variable], probes[:, cohort]) - ratio
                weighted = ratio * block.weights
                score += weighted @ beside.T
                own += (beside * np.einsum("ij,ij->j", weighted, ratio)) @ beside.T
                common += _product([weighted, beside]) @ density.T
            scattered += score.T @ score
            shared += common[:, groups]
        explained = np.einsum(
            "pri,psi->rs",
            (shared @ inverse).reshape(n_probes, rest, -1),
            shared.reshape(n_probes, rest, -1),
            optimize=True,
        )
        return Scatter(scattered / n_probes, (own - explained) / n_probes)

    def _flag_cells(self) -> IntArray:
        """Return which combination of booleans each cell has; the last one changes fastest."""
        booleans = [v for v, own in enumerate(self.positions) if own is None]
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        cells = np.zeros(places.shape[1], dtype=np.int64)
        for v in booleans:
            cells = cells * 2 + places[v]
        return cells

    def _string_groups(self, cohort: int, strings: list[int]) -> tuple[IntArray, int]:
        """Return which combination of sets of bits each cell has, and how many there are."""
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        groups, size = np.zeros(places.shape[1], dtype=np.int64), 1
        for v in strings:
            own = self._groups(cohort, v)
            groups = groups * (int(own[-1]) + 1) + own[places[v]]
            size *= int(own[-1]) + 1
        return groups, size

    def _by_flags(self, cohort: int, size: int) -> Iterator[tuple[FloatArray, Iterator[_Block]]]:
        """Yield a cohort's rows by the booleans that they report, with the combinations' factors.

        Yields
        ------
        float64 array, shape (combinations,); blocks
        """
        reports, booleans = self.reports, [v for v, own in enumerate(self.positions) if own is None]
        rows = np.arange(int(reports.starts[cohort]), int(reports.starts[cohort + 1]))
        told = np.zeros(len(rows), dtype=np.int64)
        for v in booleans:
            told = told * 2 + (reports.bits[v][rows, 0] & 1)
        zero, one = bit_ratios(reports.params)
        for combination in np.unique(told).tolist():
            factor = np.ones(1)
            for v in range(len(booleans)):
                bit = combination >> (len(booleans) - 1 - v) & 1
                factor = np.outer(factor, [1.0, one if bit else zero]).ravel()
            yield factor, self._blocks(cohort, size, rows[told == combination])

    def _sets(self, cohort: int) -> tuple[list[PositionArray], IntArray]:
        """Return each variable's different sets of bits, and which of their product cells have."""
        sets, groups, size = [], np.zeros(1, dtype=np.int64), 1
        for variable, listed in enumerate(self.bit_sets):
            own = self._groups(cohort, variable)
            if listed is None:
                sets.append(np.array([[1], [0]], dtype=np.int16))
                size = 2
            else:
                sets.append(listed[cohort].sets)
                size = len(sets[-1]) + 1
            groups = (groups[:, None] * size + own).ravel()
        return sets, groups

    def _groups(self, cohort: int, variable: int) -> IntArray:
        """Return which set of bits each value of a variable has; the unknown comes last."""
        listed = self.bit_sets[variable]
        return np.arange(2) if listed is None else listed[cohort].groups

    def _factors(self, block: _Block, sets: list[PositionArray]) -> list[FloatArray]:
        """Return each variable's densities of its sets of bits, shapes (sets, n)."""
        factors: list[FloatArray] = []
        for ratios, own, unknown in zip(block.ratios, sets, block.unknown, strict=True):
            density = np.asarray(densities(ratios, own), dtype=np.float64)
            factors.append(density if unknown is None else np.vstack([density, unknown]))
        return factors

    def _blocks(self, cohort: int, size: int, rows: IntArray | None = None) -> Iterator[_Block]:
        """Yield a cohort's rows, or some of them, so many at a time that `size` of each fit."""
        reports, step = self.reports, max(_BLOCK_NUMBERS // size, _LEAST_ROWS)
        zero, one = bit_ratios(reports.params)
        by_ones = unknown_densities(reports.params)
        if rows is None:
            rows = np.arange(int(reports.starts[cohort]), int(reports.starts[cohort + 1]))
        for first in range(0, len(rows), step):
            few = rows[first : first + step]
            ratios: list[FloatArray] = []
            unknown: list[FloatArray | None] = []
            for variable, bits in zip(reports.variables, reports.bits, strict=True):
                width = variable.width(reports.params)
                whole = unpacked(bits[few], width)
                own = np.ones((width + 1, whole.shape[1]))
                own[:width] = np.where(whole, one, zero)
                ratios.append(own)
                listed = self.positions[len(unknown)] is not None
                unknown.append(by_ones[whole.sum(axis=0)] if listed else None)
            yield _Block(cohort, reports.copies[few], tuple(ratios), tuple(unknown))


def unpacked(bits: np.ndarray, width: int) -> BoolArray:
    """Return packed rows' bits, one row per bit; shape (width, n)."""
    columns = np.ascontiguousarray(bits.T)
    return np.unpackbits(columns, axis=0, count=width, bitorder="little").view(np.bool_)


def _product(factors: list[FloatArray]) -> FloatArray:
    """Return all products of one row of each array; the last array's rows change fastest."""
    density = factors[0]
    for factor in factors[1:]:
        density = (density[:, None] * factor).reshape(-1, density.shape[1])
    return density.copy() if len(factors) == 1 else density


def mixture_of(
    reports: AssociationReports, positions: tuple[PositionArray | None, ...]
) -> AssociationMixture:
    """Return the mixture of strings with these positions, which may repeat within a cohort."""
    distinct = tuple(
        None if own is None else distinct_positions(own, reports.params) for own in positions
    )
    return AssociationMixture(reports, distinct, tuple(map(_bit_sets, distinct)))


def _bit_sets(positions: PositionArray | None) -> tuple[_BitSets, ...] | None:
    """Return the different sets of bits of each cohort; None for a boolean."""
    if positions is None:
        return None
    found = []
    for cohort in range(positions.shape[1]):
        sets, groups = np.unique(positions[:, cohort], axis=0, return_inverse=True)
        found.append(_BitSets(sets, np.append(groups.ravel(), len(sets))))
    return tuple(found)
