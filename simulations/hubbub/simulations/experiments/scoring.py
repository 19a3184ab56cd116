"""How good a decoding was, where the truth is known: strings as a whole and by share, tables.

The truth of a table is that of the population, not of the clients who happened to be drawn: that is
what intervals are of, and at large epsilons who was drawn matters more than the noise.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from hubbub.inference import BoolArray, Decoding, FloatArray, IntArray, JointDecoding, TableAnalysis
from hubbub.protocol import normal_form

EDGES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Edges of the bands: one per decade of shares."""
LEVELS = (0.5, 0.1, 0.05, 0.01, 0.001)
"""Levels at which p-values of absent candidates are counted."""
_COLUMNS = {
    "share": "proportion",
    "std_error": "prop_std_error",
    "low": "prop_low",
    "high": "prop_high",
    "p_value": "p_value",
}


@dataclass(frozen=True, slots=True)
class DecodedShares:
    """A decoding in the candidates' order, by this process or the command; arrays of shape (n,)."""

    share: FloatArray  # as in `Decoding`
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    detected: BoolArray
    summary: dict[str, float]

    @classmethod
    def of(cls, decoding: Decoding) -> DecodedShares:
        """Take a decoding's arrays."""
        columns = {name: getattr(decoding, name) for name in (*_COLUMNS, "detected")}
        return cls(**columns, summary=asdict(decoding.summary))

    def extended(self, n: int) -> DecodedShares:
        """Return so many rows, of which nothing is known beyond these."""
        more = n - len(self.share)
        columns = {
            name: np.concatenate([getattr(self, name), np.full(more, np.nan)]) for name in _COLUMNS
        }
        detected = np.concatenate([self.detected, np.zeros(more, dtype=np.bool_)])
        return DecodedShares(**columns, detected=detected, summary=self.summary)

    @classmethod
    def read(cls, path: Path) -> tuple[tuple[str, ...], DecodedShares]:
        """Read what `hubbub-decoder decode --output` wrote as JSON, and of which strings it is."""
        document = json.loads(path.read_text(encoding="utf-8"))
        columns = {
            name: np.array([row[column] for row in document["rows"]], dtype=np.float64)
            for name, column in _COLUMNS.items()
        }
        detected = np.array([row["detected"] for row in document["rows"]], dtype=np.bool_)
        strings = tuple(row["string"] for row in document["rows"])
        return strings, cls(**columns, detected=detected, summary=document["summary"])


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of one decoding."""

    detected: int  # candidates reported; those that some client holds; those that none does
    true_positives: int
    false_positives: int
    false_negatives: int  # candidates that some client holds and that were not reported
    # Half the summed distance between the true and the estimated shares of the detected strings and
    # of "anything else", estimated as 1 minus their sum.
    total_variation: float
    # Half the summed distance between true and estimated shares of all strings, the estimate of
    # what isn't detected being 0, as google/rappor's tests measure it.
    total_variation_all: float
    # Share of the 95% intervals that hold the truth, over all candidates that have an interval, and
    # over the detected (nan if none).
    interval_coverage: float
    interval_coverage_detected: float

    @property
    def false_share(self) -> float:
        """False names among the detected; 0 if nothing was detected."""
        return self.false_positives / max(self.detected, 1)

    @property
    def precision(self) -> float:
        """Share of the detected that somebody holds; nan if nothing was detected."""
        return self.true_positives / self.detected if self.detected else math.nan

    @property
    def recall(self) -> float:
        """Share of the candidates that somebody holds that were detected; nan if there is none."""
        present = self.true_positives + self.false_negatives
        return self.true_positives / present if present else math.nan


def score(
    truth: FloatArray,
    share: FloatArray,
    low: FloatArray,
    high: FloatArray,
    detected: BoolArray,
    refit: FloatArray | None = None,
) -> Score:
    """Compare estimates with the truth, all of shape (n,); nan where there is no estimate.

    The total variation is that of `refit`, shares that add up, if there are any.
    """
    present = truth > 0
    covered = (low <= truth) & (truth <= high)
    errors = (share if refit is None else refit)[detected] - truth[detected]
    missed = 1.0 - float(truth[detected].sum())
    return Score(
        detected=int(detected.sum()),
        true_positives=int((detected & present).sum()),
        false_positives=int((detected & ~present).sum()),
        false_negatives=int((~detected & present).sum()),
        total_variation=float(np.abs(errors).sum() + abs(errors.sum())) / 2,
        total_variation_all=(float(np.abs(errors).sum()) + missed) / 2,
        interval_coverage=_mean(covered[~np.isnan(share)]),
        interval_coverage_detected=_mean(covered[detected]),
    )


def score_decoding(truth: FloatArray, decoding: Decoding) -> Score:
    """Compare a decoding with the truth, both of shape (n,)."""
    return score(
        truth,
        decoding.share,
        decoding.low,
        decoding.high,
        decoding.detected,
        decoding.constrained_share,
    )


def held_shares(values: Sequence[str], holders: IntArray) -> dict[str, float]:
    """Return the shares of the values that somebody holds, by the normal form that is reported."""
    shares: dict[str, float] = {}
    n_reports = max(int(holders.sum()), 1)
    for value, count in zip(values, holders.tolist(), strict=True):
        if count:
            form = normal_form(value)
            shares[form] = shares.get(form, 0.0) + count / n_reports
    return shares


@dataclass(frozen=True, slots=True)
class Band:
    """Strings whose share lies above `low`, and at most at `high`."""

    low: float
    high: float
    present: int  # candidates whose *true* share is in the band; those of them that were detected
    found: int
    # Detected candidates whose *estimated* share is in the band; those that somebody holds.
    reported: int
    right: int

    @property
    def recall(self) -> float:
        """Share of the present that were found; nan if none is present."""
        return self.found / self.present if self.present else math.nan

    @property
    def precision(self) -> float:
        """Share of the reported that are right; nan if none is reported."""
        return self.right / self.reported if self.reported else math.nan


def bands(truth: FloatArray, share: FloatArray, detected: BoolArray) -> tuple[Band, ...]:
    """Count by decades; arrays of shape (n,)."""
    rows = []
    for low, high in itertools.pairwise(EDGES):
        present = (truth > low) & (truth <= high)
        reported = detected & (share > low) & ((share <= high) | (high == 1))
        rows.append(
            Band(
                low=low,
                high=high,
                present=int(present.sum()),
                found=int((present & detected).sum()),
                reported=int(reported.sum()),
                right=int((reported & (truth > 0)).sum()),
            )
        )
    return tuple(rows)


def p_values_below(p_value: FloatArray, truth: FloatArray) -> dict[str, float]:
    """Return the share of absent candidates whose p-value is at most each of some levels.

    No more than the level itself if p-values are what they should be; nan without absent ones.
    """
    absent = p_value[(truth == 0) & ~np.isnan(p_value)]
    return {
        f"{level:g}": float((absent <= level).mean()) if len(absent) else math.nan
        for level in LEVELS
    }


def _mean(values: BoolArray) -> float:
    return float(values.mean()) if len(values) else math.nan


COMMON = 0.002
"""Share from which on a cell counts as common."""
LEVEL = 0.05
"""Level at which independence is rejected."""
_ROUNDING_OF_PRODUCTS = 1e-12
"""Rounding of products of shares, against an independent table."""


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
    """Figures of one decoded table."""

    detected: int  # cells reported
    # Cells reported to depart from independence (as the decoder corrects for many tests); those of
    # them that don't, or depart the other way.
    departures: int
    wrong_departures: int
    # Half the summed distance between the true cells and the constrained shares, which are the
    # nearest possible to unbiased ones; all of it counts, also what isn't estimated.
    total_variation: float
    total_variation_refit: float  # the same of the column `refit`
    # Coverage of the 95% intervals of all cells; of those with a true share above `COMMON`; of all
    # fields' values; of shares given another field's value; of Cramer's V of each two fields.
    cells: Coverage
    common_cells: Coverage
    margins: Coverage
    conditionals: Coverage
    strength: Coverage
    p_value: float  # of the test that all fields are independent; nan if no table could be made

    @property
    def rejected(self) -> bool:
        """Whether independence was rejected at `LEVEL`."""
        return self.p_value <= LEVEL


def score_joint(decoding: JointDecoding, truth: FloatArray) -> JointScore:
    """Compare a table with the population's shares of cells, shape (n,)."""
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
        margins = [
            _held(_margin(own, axis), *each.interval) for axis, each in enumerate(table.margins)
        ]
        conditionals = [*_conditionals(table, own)]
        strength = [*_strengths(table, own)]
        p_value = table.independence[-1].p_value
    source = decoding.source
    if isinstance(source, Decoding):
        constrained = source.constrained_share
    else:
        constrained = source.estimates.share
    return JointScore(
        detected=int(cells.detected.sum()),
        departures=departures,
        wrong_departures=wrong,
        total_variation=_variation(constrained, truth),
        total_variation_refit=_variation(cells.refit, truth),
        cells=_coverage([held[known]]),
        common_cells=_coverage([held[common]]),
        margins=_coverage(margins),
        conditionals=_coverage(conditionals),
        strength=_coverage(strength),
        p_value=p_value,
    )


def true_strength(table: FloatArray, groups: Sequence[FloatArray]) -> float:
    """Return Cramer's V of a table of two fields, of which groups of values count as one.

    Groups have shapes (groups of rows, rows) and (groups of columns, columns): 1 where a value
    belongs to a group.
    """
    pooled = groups[0] @ table @ groups[1].T / table.sum()
    product = np.outer(pooled.sum(axis=1), pooled.sum(axis=0))
    phi_squared = float(((pooled - product) ** 2 / product).sum())
    return math.sqrt(phi_squared / (min(pooled.shape) - 1))


def _departures(table: TableAnalysis, truth: FloatArray, alpha: float) -> tuple[int, int]:
    """Return how many cells seem to depart from independence, and how many wrongly."""
    total = float(truth.sum())
    expected = reduce(
        np.multiply.outer, (_margin(truth, axis) / total for axis in range(truth.ndim))
    )
    residual = (truth - total * expected).ravel()
    residual[np.abs(residual) < _ROUNDING_OF_PRODUCTS] = 0.0
    surely = table.residuals.q_value <= alpha
    return int(surely.sum()), int((surely & (residual * table.residuals.residual <= 0)).sum())


def _margin(truth: FloatArray, axis: int) -> FloatArray:
    return np.asarray(truth.sum(axis=tuple(a for a in range(truth.ndim) if a != axis)))


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
    order = np.argsort(-table.margins[axis].share, kind="stable")
    groups = np.zeros((size, len(order)))
    groups[np.minimum(np.arange(len(order)), size - 1), order] = 1
    return groups


def _pair(truth: FloatArray, rows: int, columns: int) -> FloatArray:
    others = tuple(axis for axis in range(truth.ndim) if axis not in {rows, columns})
    pair: FloatArray = truth.sum(axis=others)
    return pair if rows < columns else pair.T


def _held(truth: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    return (low <= truth) & (truth <= high)


def _coverage(held: Iterable[BoolArray]) -> Coverage:
    every = [each.ravel() for each in held]
    return Coverage(sum(int(each.sum()) for each in every), sum(map(len, every)))


def _variation(shares: FloatArray, truth: FloatArray) -> float:
    rest = float(truth.sum() - np.nansum(shares))
    return (float(np.abs(np.nan_to_num(shares) - truth).sum()) + abs(rest)) / 2
