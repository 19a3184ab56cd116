"""Sets of bits, block by block -> those that may matter, and how many the others are.

Both tests are tasks, pure functions of a block and of what all blocks share. A block returns the
few candidates that stand out with what is known of them, and of all others nothing but numbers that
add: how many there are, how many have p-values in which range, the sum of their information, and
how their errors are distributed.

Invariant: what a candidate's test says is what the same test says of it in a list that is in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.decoder.screening.distinct import Block
from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.candidates import unnamed
from hubbub.inference.regression.estimates import (
    CandidateSums,
    drawing,
    information_of_many,
    is_determined,
    shares_outside,
    without_drawing,
)
from hubbub.inference.regression.model import Fit
from hubbub.inference.scanning import scan
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import LOG_HALF, p_value_counts
from hubbub.protocol.params import RapporParams

RANGES = 256
"""Ranges of p-values between the limit and 1/2 that are counted."""
_ERROR_STEPS = 4_096  # the median is exact to 1/4096 of its range, far below any effect of it


@dataclass(frozen=True, slots=True, eq=False)
class MarginalTest:
    """What blocks share where candidates are tested without a model.

    Attributes
    ----------
    scores : float64 array, shape (m, k)
    null : HashNull
        Distribution of an absent candidate's score.
    most : int
        How many candidates are wanted.
    """

    params: RapporParams
    scores: FloatArray
    null: HashNull
    most: int


class Strongest(NamedTuple):
    """Candidates and ln of their p-values, in the list's order."""

    sets: IntArray
    log_p: FloatArray

    def best(self, most: int) -> Strongest:
        """Return those of the smallest p-values; of equal ones those that come first."""
        if len(self.sets) <= most:
            return self
        last = np.partition(self.log_p, most - 1)[most - 1]
        below = np.flatnonzero(self.log_p < last)
        equal = np.flatnonzero(self.log_p == last)[: most - len(below)]
        rows = np.sort(np.concatenate([below, equal]))
        return Strongest(self.sets[rows], self.log_p[rows])


def strongest_of(test: MarginalTest, block: Block) -> Strongest:
    """Return a block's strongest candidates (a task)."""
    totals, _ = scan(unnamed(block.words, test.params), [test.scores], [], threads=1)
    log_p = test.null.log_tails(totals[:, 0])
    return Strongest(block.first + np.arange(len(log_p)), log_p).best(test.most)


class ErrorRange(NamedTuple):
    """Where the median error is looked for.

    A candidate's variance is d (v - w / d), d being the dispersion, v its variance without it and w
    what drawing adds; v - w / d is counted for two values of 1 / d near the true one, which isn't
    known before all blocks are tested.

    Attributes
    ----------
    inverse : tuple of float
        The two values of 1 / d.
    low, high : float
        Between which v - w / d of the median candidate is sure to lie.
    """

    inverse: tuple[float, float]
    low: float
    high: float

    def tally(self, undispersed: FloatArray) -> IntArray:
        """Return how many are below the range, in each of its steps, and above."""
        steps = (undispersed - self.low) * (_ERROR_STEPS / (self.high - self.low))
        places = np.clip(np.floor(steps), -1, _ERROR_STEPS).astype(np.int64) + 1
        return np.bincount(places, minlength=_ERROR_STEPS + 2)

    def median(self, counts: IntArray) -> float:
        """Return the median of what was counted, from within its step."""
        reached = np.cumsum(counts[:-1])
        ends = np.linspace(self.low, self.high, _ERROR_STEPS + 1)
        return float(np.interp(counts.sum() / 2, reached, ends))


@dataclass(frozen=True, slots=True, eq=False)
class ListTest:
    """What blocks share where candidates are tested in a model.

    Attributes
    ----------
    fit : Fit
        Its `selected` are numbers of sets.
    bounded : float64 array, shape (m, k)
        Scores of the test.
    null : HashNull
        Distribution of an absent candidate's sum of these.
    quotient : float
        By which information without the model is multiplied (`left_over`).
    collected : float
        Reports that shares are about.
    near : int64 array
        Sets that are returned in any case, in ascending order; the fit's are among them.
    log_limit : float
        ln of the largest p-value of the others that are returned.
    """

    params: RapporParams
    fit: Fit
    bounded: FloatArray
    null: HashNull
    quotient: float
    collected: float
    near: IntArray
    log_limit: float
    errors: ErrorRange

    @property
    def ranges(self) -> FloatArray:
        """Where counted ranges of ln p begin, and the last one ends."""
        return np.linspace(min(self.log_limit, LOG_HALF), LOG_HALF, RANGES + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """Those of some candidates that may matter, and how many the others are.

    Attributes
    ----------
    sets : int64 array, shape (r,)
        Those near, and those of small p-values, in ascending order.
    sums : CandidateSums
        Of these.
    known : int
        Candidates outside the fit whose shares the data determine.
    information : float
        The sum of theirs.
    above_half : int
        Candidates outside the fit whose p-value is above 1/2.
    ranges : int64 array, shape (RANGES,)
        How many outside have p-values in each range.
    p_values : int64 array, shape (20,)
        ... in each twentieth of 0 to 1, of those known.
    errors : int64 array, shape (2, _)
        As `ErrorRange.tally`, of those known.
    """

    sets: IntArray
    sums: CandidateSums
    known: int
    information: float
    above_half: int
    ranges: IntArray
    p_values: IntArray
    errors: IntArray

    def __add__(self, later: Tested) -> Tested:
        """Return what is known of both, `later` being of later candidates."""
        return Tested(
            np.concatenate([self.sets, later.sets]),
            CandidateSums(*map(np.concatenate, zip(self.sums, later.sums, strict=True))),
            self.known + later.known,
            self.information + later.information,
            self.above_half + later.above_half,
            self.ranges + later.ranges,
            self.p_values + later.p_values,
            self.errors + later.errors,
        )


def tested_of(test: ListTest, block: Block) -> Tested:
    """Test a block's candidates (a task)."""
    candidates, fit = unnamed(block.words, test.params), test.fit
    shape = test.bounded.shape
    tables = [fit.scores.reshape(shape), fit.weights.reshape(shape)]
    by_hash, by_bit = scan(candidates, [test.bounded], tables, threads=1)
    score, weight, total = by_bit[:, 0].copy(), by_bit[:, 1].copy(), by_hash[:, 0]
    information = information_of_many(fit, candidates, score, weight, test.quotient)
    determined = is_determined(information, weight)
    log_p = test.null.log_tails(total)
    log_p[~determined] = 0.0

    outside = np.ones(len(log_p), dtype=np.bool_)
    outside[_within(block, fit.selected)] = False
    chosen = outside & (log_p <= test.log_limit)
    chosen[_within(block, test.near)] = True
    rows, known = np.flatnonzero(chosen), outside & determined
    information, share = information[known], shares_outside(score[known], information[known])
    variance, drawn = 1.0 / information, drawing(share, test.collected)
    return Tested(
        sets=block.first + rows,
        sums=CandidateSums(score[rows], weight[rows], total[rows]),
        known=len(information),
        information=float(information.sum()),
        above_half=int(np.count_nonzero(log_p[outside] > LOG_HALF)),
        ranges=_counted(log_p[outside], test.ranges),
        p_values=p_value_counts(np.exp(log_p[known]))[0],
        errors=np.stack([
            test.errors.tally(without_drawing(variance, inverse * drawn))
            for inverse in test.errors.inverse
        ]),
    )  # fmt: skip


def _within(block: Block, sets: IntArray) -> IntArray:
    """Return which rows of a block some sets, in ascending order, are."""
    first, end = np.searchsorted(sets, [block.first, block.first + len(block.words)])
    return np.asarray(sets[first:end] - block.first)


def _counted(log_p: FloatArray, bounds: FloatArray) -> IntArray:
    """Return how many lie above each bound up to the next one."""
    between = log_p[(log_p > bounds[0]) & (log_p <= bounds[-1])]
    places = np.searchsorted(bounds, between, side="left") - 1
    return np.bincount(places, minlength=len(bounds) - 1)
