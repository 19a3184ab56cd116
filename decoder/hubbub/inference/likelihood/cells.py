"""Sums over reports for *every* string at once: one number per cohort and set of bits.

A string's score is a sum over cohorts of a number that depends on its h positions there alone. So
one table over all position tuples serves a million candidates, and its columns are the exact
distribution of the score of a string that nobody has, whose positions are uniform. Tuples that set
the same bits share a cell; sums over reports of products over bits are matrix products of half of
the bits by the other half.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray, PositionArray, RealArray
from hubbub.inference.candidates import Candidates
from hubbub.inference.likelihood.limits import require_tabulable
from hubbub.inference.likelihood.sums import (
    CohortSums,
    Components,
    ReportMixture,
    block_rows,
    by_cohort,
    densities,
    distinct_positions,
    fill,
    ratio_rows,
)
from hubbub.inference.packed import PackedReports, ReportBlock
from hubbub.protocol.params import RapporParams


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The sets of bits that a string can set in one cohort."""

    # Shape (k^h,); the cell of positions (J_1 ... J_h), which have the number J_1 k^(h-1) + ... +
    # J_h.
    of_tuple: IntArray
    # Shape (l, h // 2) and (r, h - h // 2); different first and second halves of the cells' bits.
    left: PositionArray
    right: PositionArray
    half_left: IntArray  # shape (cells,); each cell's halves
    half_right: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CellTables:
    """Sums over each cohort's reports, for a string that sets a cell's bits."""

    cells: Cells
    score: FloatArray  # shape (m, cells); sum_i w_i (L_i / mix_i (1 - shift_i) - 1)
    information: FloatArray  # shape (m, cells); sum_i w_i L_i^2 / mix_i^2
    # Shape (m, cells); sum_i w_i L_i L_i0 / mix_i^2, component 0 being the unknown string.
    unknown: FloatArray


def make_cells(params: RapporParams) -> Cells:
    """Return the sets of bits that h positions can set, numbered."""
    require_tabulable(params)
    tuples = np.array(list(itertools.product(range(params.k), repeat=params.h)), dtype=np.int16)
    sets, of_tuple = np.unique(distinct_positions(tuples, params), axis=0, return_inverse=True)
    half = params.h // 2
    left, half_left = np.unique(sets[:, :half], axis=0, return_inverse=True)
    right, half_right = np.unique(sets[:, half:], axis=0, return_inverse=True)
    return Cells(of_tuple.ravel(), left, right, half_left.ravel(), half_right.ravel())


def tabulate(mixture: ReportMixture, shares: FloatArray, shift: FloatArray) -> CellTables:
    """Sum over all reports.

    `mixture`: the reports, and the strings of which they may be. `shares`, shape (1 + a,): mix_i =
    sum_s shares_s L_is. `shift`, shape (1 + a,): a small change of the shares; shift_i = sum_s
    shift_s L_is / mix_i. To first order the scores are those at `shares + shift`.
    """
    cells = make_cells(mixture.reports.params)
    tables = np.zeros((3, mixture.reports.params.m, len(cells.half_left)))
    asked = (mixture.components, cells, shares, shift)
    fill(tuple(tables), mixture.reports.map(_tabulate, asked, mixture.threads))
    return CellTables(cells, tables[0], tables[1], tables[2])


def _tabulate(
    asked: tuple[Components, Cells, FloatArray, FloatArray], reports: PackedReports, threads: int
) -> CohortSums:
    """Return the tables of the cohorts of a part."""
    components, cells, shares, shift = asked
    params, precision = components.params, components.precision
    at, by = shares.astype(precision), shift.astype(precision)

    def work(block: ReportBlock) -> tuple[RealArray, RealArray, RealArray]:
        density = components.densities(block, precision)
        mixed = at @ density
        weights = block.weights.astype(precision)
        once = weights / mixed * (1 - by @ density / mixed)
        twice = weights / mixed**2
        rows = ratio_rows(block.bits, params, precision)
        left, right = _products(rows, cells.left), _products(rows, cells.right)
        score = _table(cells, left * once, right) - block.weights.sum()
        unknown = _table(cells, left * (twice * density[0]), right)
        return score, _table(cells, left * left * twice, right * right), unknown

    size = len(shares) + len(cells.left) + len(cells.right)
    return by_cohort(reports, block_rows(size), work, threads)


def totals(cells: Cells, tables: Sequence[FloatArray], candidates: Candidates) -> FloatArray:
    """Return the sum over cohorts of each candidate's entries in some tables.

    `cells`: the cells, and which of them each string belongs to. `tables` has shape (m, cells).
    Returns an array of shape (len(tables), n).
    """
    params = candidates.params
    first = np.arange(params.m) * tables[0].shape[1]
    # Bits have numbers in all cohorts, of which each hash brings the cohort's first.
    added = np.arange(params.m) * params.k * sum(params.k**hash_ for hash_ in range(params.h))
    sums = np.empty((len(tables), len(candidates)))
    for rows in candidates.pieces(slice(0, len(candidates))):
        numbers = candidates.numbers(rows)
        tuples = numbers[:, 0].astype(np.intp)
        for later in range(1, params.h):
            tuples *= params.k
            tuples += numbers[:, later]
        tuples -= added
        # Entries are in range: "clip" only spares numpy the looking.
        entries = np.take(cells.of_tuple, tuples, mode="clip")
        entries += first
        for table, out in zip(tables, sums, strict=True):
            np.add.reduce(np.take(table, entries, mode="clip"), axis=1, out=out[rows])
    return sums


def _products(rows: RealArray, positions: PositionArray) -> RealArray:
    if not positions.shape[1]:
        return np.ones((1, rows.shape[1]), dtype=rows.dtype)
    return densities(rows, positions)


def _table(cells: Cells, left: RealArray, right: RealArray) -> RealArray:
    return np.asarray((left @ right.T)[cells.half_left, cells.half_right])
