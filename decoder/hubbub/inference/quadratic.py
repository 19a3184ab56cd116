"""The shares >= 0 at which a quadratic peaks: one active set method wherever shares are bounded.

Constrained shares, each step to the most likely mixture and the Lasso that proposes members are
all such. A library's solver of any of these takes longer to import than a short list to decode.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import BoolArray, FloatArray

# Of scaled information: keeps components solvable that explain the same. It pulls towards the
# start, so that steps of a search still end at its maximum.
_RIDGE = 1e-7
# Of the largest score: a steeper slope outside is rounding.
_ROUNDING = 1e-14
# Sets of components that are tried for each of them; some more than there are have been needed.
_MOST_SETS = 50
# Exchanges of all that are on the wrong side at once: a few suffice, but they may go round.
_MOST_EXCHANGES = 20
# Of the largest share, in its standard errors: a share so little below 0 is rounding.
_SLACK = 1e-12


def best_of_quadratic(
    information: FloatArray, score: FloatArray, start: FloatArray, *, keep_sum: bool = False
) -> FloatArray:
    """Return the x >= 0 where score' (x - start) - (x - start)' information (x - start)/2 peaks.

    `information`, shape (a, a): positive semidefinite, its diagonal positive. `score` has shape
    (a,). `start`, shape (a,): at least 0; the more of it is right, the sooner the peak is found.
    `keep_sum`: whether x has to have the sum of the start, which is positive.

    Notes
    -----
    Lawson and Hanson (1974, chapter 23) in normal equations. Not one component joins at a time but
    twice as many as before while that is a gain: with one alone it always is, so it ends.

    Examples
    --------
    The peak without bounds is (2, -1):

    >>> best_of_quadratic(np.eye(2), np.array([2.0, -1.0]), np.zeros(2)).round(3).tolist()
    [2.0, 0.0]
    """
    scale = 1.0 / np.sqrt(np.diag(information))
    matrix = information * np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
    found = start / scale
    linear = matrix @ found + score * scale
    tolerance = _ROUNDING * len(scale) * float(np.abs(linear).max(initial=0.0))
    inside, joining = found > 0, 1
    previous = inside
    for _ in range(_MOST_SETS * len(scale)):
        found, inside, pull = _climb(matrix, linear, found, inside, scale if keep_sum else None)
        if np.array_equal(inside, previous) and joining > 1:
            joining = 1
        slope = np.where(inside, -np.inf, linear - matrix @ found + pull * scale)
        steepest = np.argsort(-slope, kind="stable")[:joining]
        steepest = steepest[slope[steepest] > tolerance]
        if not len(steepest):
            break
        previous, inside = inside, inside.copy()
        inside[steepest] = True
        joining *= 2
    return np.asarray(found * scale)


class BestWithout:
    """Where the quadratic peaks if one component more is 0, from where it peaks with all.

    `information`, shape (a, a): as of `best_of_quadratic`. `score` has shape (a,). `peak`, shape
    (a,): at least 0, close to where it peaks; component 0 may be of any sign afterwards.

    Notes
    -----
    With z the multipliers of the components that were above 0 there, and the others themselves,
    w = q + M z are the former and minus the slopes of the latter; z, w >= 0 and z'w = 0 at the
    peak. Only the components that change sides are solved for, all of them exchanged at once
    (Portugal, Judice, Vicente 1994).
    """

    def __init__(self, information: FloatArray, score: FloatArray, peak: FloatArray) -> None:
        self._information, self._score, self._peak = information, score, peak
        self._scale = 1.0 / np.sqrt(np.diag(information))
        self._inside = peak > 0
        self._inside[0] = True
        inside, outside = np.flatnonzero(self._inside), np.flatnonzero(~self._inside)
        matrix = information * np.outer(self._scale, self._scale) + _RIDGE * np.eye(len(peak))
        slopes = score * self._scale
        inverse = linalg.inv(matrix[np.ix_(inside, inside)])
        crossed = inverse @ matrix[np.ix_(inside, outside)]
        self._start = np.empty(len(peak))
        self._start[inside] = (peak / self._scale)[inside] + inverse @ slopes[inside]
        self._start[outside] = crossed.T @ slopes[inside] - slopes[outside]
        self._pivoted = np.empty_like(matrix)
        self._pivoted[np.ix_(inside, inside)] = inverse
        self._pivoted[np.ix_(inside, outside)] = -crossed
        self._pivoted[np.ix_(outside, inside)] = crossed.T
        self._pivoted[np.ix_(outside, outside)] = (
            matrix[np.ix_(outside, outside)] - matrix[np.ix_(outside, inside)] @ crossed
        )

    def __call__(self, component: int) -> FloatArray:
        """Return the peak without a component that was above 0."""
        slack = _SLACK * float(np.abs(self._start).max())
        changed = np.zeros(len(self._peak), dtype=np.bool_)
        changed[component] = True
        for _ in range(_MOST_EXCHANGES):
            rows = np.flatnonzero(changed)
            moved = linalg.solve(self._pivoted[np.ix_(rows, rows)], -self._start[rows])
            kept = self._start + self._pivoted[:, rows] @ moved
            wrong = kept < -slack
            wrong[rows] = moved < -slack
            wrong[[0, component]] = False
            if not wrong.any():
                kept[rows] = np.where(self._inside[rows], 0.0, moved)
                kept[~self._inside & ~changed] = 0.0
                return np.asarray(kept * self._scale)
            changed ^= wrong
        return self._slowly(component)

    def _slowly(self, component: int) -> FloatArray:
        rest = np.delete(np.arange(len(self._peak)), component)
        # Component 0 may go below 0: it is moved up by all there is, and back.
        floor = (rest == 0).astype(np.float64)
        pull = self._information[rest, component] * self._peak[component]
        found = np.zeros(len(self._peak))
        found[rest] = (
            best_of_quadratic(
                self._information[np.ix_(rest, rest)],
                self._score[rest] + pull,
                self._peak[rest] + floor,
            )
            - floor
        )
        return found


def _climb(
    matrix: FloatArray,
    linear: FloatArray,
    found: FloatArray,
    inside: BoolArray,
    addends: FloatArray | None,
) -> tuple[FloatArray, BoolArray, float]:
    """Go to the peak among the components inside, leaving out those that would fall below 0."""
    while True:
        rows = np.flatnonzero(inside)
        aim, pull = np.zeros(len(found)), 0.0
        if len(rows):
            factor = linalg.cho_factor(matrix[np.ix_(rows, rows)], check_finite=False)
            aim[rows] = linalg.cho_solve(factor, linear[rows], check_finite=False)
            if addends is not None:
                each = linalg.cho_solve(factor, addends[rows], check_finite=False)
                pull = float(addends @ (found - aim)) / float(addends[rows] @ each)
                aim[rows] += pull * each
        falling = np.flatnonzero(inside & (aim <= 0))
        if not len(falling):
            return aim, inside, pull
        parts = found[falling] / np.maximum(found[falling] - aim[falling], np.finfo(float).tiny)
        step = float(parts.min())
        found = found + step * (aim - found)
        inside = inside.copy()
        inside[falling[parts <= step]] = False
        found = np.where(inside, np.maximum(found, 0.0), 0.0)
