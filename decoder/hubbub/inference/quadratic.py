"""The shares >= 0 at which a quadratic peaks: one active set method wherever shares are bounded.

Constrained shares and each step to the most likely mixture are such. It begins at a share that is
nearly right, which library solvers can't, and these take longer to import than a list to decode.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import BoolArray, FloatArray

# Added to scaled information: keeps identical components solvable. It pulls towards the
# start, so that steps of a search still end at its maximum.
_RIDGE = 1e-7
# Part of the largest score: a steeper slope outside is rounding.
_ROUNDING = 1e-14
# Sets of components that are tried for each of them; some more than there are have been needed.
_MOST_SETS = 50


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


def best_without(
    information: FloatArray, score: FloatArray, peak: FloatArray, component: int
) -> FloatArray:
    """Return where the quadratic peaks if a component is 0, from close to where it peaks with all.

    Parameters are those of `best_of_quadratic`; component 0 may be of any sign in the result.
    """
    rest = np.delete(np.arange(len(peak)), component)
    # Component 0 may go below 0: it is moved up by all there is, and back.
    floor = (rest == 0).astype(np.float64)
    pull = information[rest, component] * peak[component]
    found = np.zeros(len(peak))
    inner = information[np.ix_(rest, rest)]
    found[rest] = best_of_quadratic(inner, score[rest] + pull, peak[rest] + floor) - floor
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
