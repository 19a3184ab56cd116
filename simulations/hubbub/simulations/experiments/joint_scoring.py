"""How good the table of a joint metric was, where the truth is known.

The truth is that of the population, not of the clients who happened to be drawn: that is what
intervals are of, and at large epsilons who was drawn matters more than the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.decoding import Decoding
from hubbub.inference.joint.analysis import TableAnalysis
from hubbub.inference.joint.decoding import JointDecoding

COMMON = 0.002
"""Share from which on a cell counts as common."""
LEVEL = 0.05
"""At which independence is rejected."""
_ROUNDING = 1e-12
"""What products of shares differ by from an independent table, in doubles."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many 95% intervals hold the truth, of how many."""

    held: int
    intervals: int

    @property
    def share(self) -> float:
        """Share of the intervals; nan if there are none."""
        return self.held / self.intervals if self.intervals else math.nan


@dataclass(frozen=True, slots=True)
class JointScore:
    """Figures of one decoded table.

    Attributes
    ----------
    detected : int
        Cells reported.
    departures, wrong_departures : int
        Cells reported to depart from independence (as the decoder corrects for many tests); those
        of them that don't, or depart the other way.
    total_variation : float
        Half the summed distance between the true cells and the constrained shares, which are the
        nearest possible to unbiased ones; all of it counts, also what isn't estimated.
    total_variation_refit : float
        The same of the column `refit`.
    cells, common_cells, margins, conditionals, strength : Coverage
        Of the 95% intervals of all cells, of those with a true share above `COMMON`; of all fields'
        values; of shares among the clients with a value of another field; of Cramer's V of each two
        fields.
    p_value : float
        Of the test that all fields are independent; nan if no table could be made.
    """

    detected: int
    departures: int
    wrong_departures: int
    total_variation: float
    total_variation_refit: float
    cells: Coverage
    common_cells: Coverage
    margins: Coverage
    conditionals: Coverage
    strength: Coverage
    p_value: float

    @property
    def rejected(self) -> bool:
        """Whether independence was rejected at `LEVEL`."""
        return self.p_value <= LEVEL


def score_joint(decoding: JointDecoding, truth: FloatArray) -> JointScore:
    """Compare a table with the population's.

    Parameters
    ----------
    decoding : JointDecoding
    truth : float64 array, shape (n,)
        The population's share of each cell, in the order of cells.
    """
    cells, table = decoding.cells, decoding.table
    held, known = _held(truth, cells.low, cells.high), ~np.isnan(cells.share)
    common = known & (truth > COMMON)
    departures = wrong = 0
    margins: list[BoolArray] = []
    conditionals: list[BoolArray] = []
    strength: list[BoolArray] = []
    p_value = math.nan
    if table is not None:
        own = truth[decoding.rows].reshape(table.estimates.shape)
        departures, wrong = _departures(table, own, decoding.summary.alpha)
        margins = [*_margins(table, own)]
        conditionals = [*_conditionals(table, own)]
        strength = [*_strengths(table, own)]
        p_value = table.independence[-1].p_value
    return JointScore(
        detected=int(cells.detected.sum()),
        departures=departures,
        wrong_departures=wrong,
        total_variation=_variation(_constrained(decoding), truth),
        total_variation_refit=_variation(cells.refit, truth),
        cells=_coverage([held[known]]),
        common_cells=_coverage([held[common]]),
        margins=_coverage(margins),
        conditionals=_coverage(conditionals),
        strength=_coverage(strength),
        p_value=p_value,
    )


def true_strength(table: FloatArray, groups: Sequence[FloatArray]) -> float:
    """Return Cramer's V of a table of two fields, some values of which count as one.

    Parameters
    ----------
    table : float64 array, shape (rows, columns)
    groups : two float64 arrays, shapes (groups of rows, rows) and (groups of columns, columns)
        1 where a value belongs to a group.
    """
    pooled = groups[0] @ table @ groups[1].T / table.sum()
    product = np.outer(pooled.sum(axis=1), pooled.sum(axis=0))
    phi_squared = float(((pooled - product) ** 2 / product).sum())
    return math.sqrt(phi_squared / (min(pooled.shape) - 1))


def _constrained(decoding: JointDecoding) -> FloatArray:
    """Return the shares nearest to unbiased ones; nan where there is no estimate."""
    source = decoding.source
    if source is None:
        return decoding.cells.refit
    return source.constrained_share if isinstance(source, Decoding) else source.estimates.share


def _departures(table: TableAnalysis, truth: FloatArray, alpha: float) -> tuple[int, int]:
    """Return how many cells are said to depart from independence, and how many wrongly."""
    total = float(truth.sum())
    expected = reduce(
        np.multiply.outer, (_margin(truth, axis) / total for axis in range(truth.ndim))
    )
    residual = (truth - total * expected).ravel()
    residual[np.abs(residual) < _ROUNDING] = 0.0
    surely = table.residuals.q_value <= alpha
    return int(surely.sum()), int((surely & (residual * table.residuals.residual <= 0)).sum())


def _margin(truth: FloatArray, axis: int) -> FloatArray:
    return np.asarray(truth.sum(axis=tuple(a for a in range(truth.ndim) if a != axis)))


def _margins(table: TableAnalysis, truth: FloatArray) -> Iterable[BoolArray]:
    for axis, margin in enumerate(table.margins):
        yield _held(_margin(truth, axis), *margin.interval)


def _conditionals(table: TableAnalysis, truth: FloatArray) -> Iterable[BoolArray]:
    for each in table.conditionals:
        pair = _pair(truth, each.given, each.of)
        given = pair.sum(axis=1, keepdims=True)
        share = np.divide(pair, given, out=np.full(pair.shape, np.nan), where=given > 0)
        known = ~np.isnan(each.share)
        yield _held(share[known], each.low[known], each.high[known])


def _strengths(table: TableAnalysis, truth: FloatArray) -> Iterable[BoolArray]:
    axes = {margin.name: axis for axis, margin in enumerate(table.margins)}
    for each in table.independence:
        if math.isnan(each.cramers_v):
            continue
        first, second = (axes[name] for name in each.fields)
        groups = [
            _groups(table, axis, size)
            for axis, size in zip((first, second), each.v_values, strict=True)
        ]
        strength = true_strength(_pair(truth, first, second), groups)
        yield np.array([each.v_low <= strength <= each.v_high])


def _groups(table: TableAnalysis, axis: int, size: int) -> FloatArray:
    """Return which values count as one: the most frequent alone, all others together."""
    order = np.argsort(-table.margins[axis].share, kind="stable")
    groups = np.zeros((size, len(order)))
    groups[np.minimum(np.arange(len(order)), size - 1), order] = 1
    return groups


def _pair(truth: FloatArray, rows: int, columns: int) -> FloatArray:
    """Return the true table of two fields."""
    others = tuple(axis for axis in range(truth.ndim) if axis not in {rows, columns})
    pair: FloatArray = truth.sum(axis=others)
    return pair if rows < columns else pair.T


def _held(truth: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    return (low <= truth) & (truth <= high)


def _coverage(held: Iterable[BoolArray]) -> Coverage:
    every = [each.ravel() for each in held]
    return Coverage(sum(int(each.sum()) for each in every), sum(map(len, every)))


def _variation(shares: FloatArray, truth: FloatArray) -> float:
    """Return the distance of shares and of what they leave out."""
    rest = float(truth.sum() - np.nansum(shares))
    return (float(np.abs(np.nan_to_num(shares) - truth).sum()) + abs(rest)) / 2
