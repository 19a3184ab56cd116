"""Shares of a number's buckets -> its quantiles, with errors.

Within a bucket numbers are taken as evenly spread, so that the distribution function is linear
between the edges; of other numbers it is the quantiles of the bucketed ones that are estimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import CategoryEstimates
from hubbub.inference.testing.intervals import Z_CONFIDENCE


def quantiles(
    found: CategoryEstimates, edges: Sequence[float], levels: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Return the quantiles of some levels and their standard errors, shape (l,) each.

    Parameters
    ----------
    found : CategoryEstimates
        Shares of n + 1 buckets.
    edges : sequence of float, length n
        Ascending; the first and the last bucket have no outer edge.
    levels : sequence of float, length l
        Between 0 and 1.

    Returns
    -------
    value, std_error : float64 array, shape (l,)
        nan where the quantile is in a bucket without an end; the error also where its interval
        reaches one.

    Notes
    -----
    The interval of a quantile x is what the distribution function takes to level -+ z se, where se
    is the standard error of the function at x (Woodruff 1952). Its longer half over z is the
    standard error: half of its length would be too short beside an edge where the density changes.
    The function is that of the unbiased shares, made to rise (isotonic
    regression).
    """
    at = np.asarray(edges, dtype=np.float64)
    # At each edge: the nearest shares that are all above 0 would lean towards the rare buckets.
    below = optimize.isotonic_regression(np.cumsum(found.unbiased)[:-1]).x

    def inverse(level: FloatArray) -> FloatArray:
        # Where the function is flat the middle of what has the level, as of a median of two.
        first = np.interp(level, below, at, left=-np.inf, right=np.inf)
        last = -np.interp(-level, -below[::-1], -at[::-1], left=-np.inf, right=np.inf)
        return np.asarray((first + last) / 2)

    level = np.asarray(levels, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        value = inverse(level)
    inside = np.isfinite(value)
    error = np.zeros(len(level))
    for row in np.flatnonzero(inside).tolist():
        weights = _weights(at, float(value[row]))
        error[row] = np.sqrt(weights @ found.covariance @ weights)
    reach = Z_CONFIDENCE * error
    with np.errstate(invalid="ignore"):
        half = np.maximum(inverse(level + reach) - value, value - inverse(level - reach))
    std_error = np.where(np.isfinite(half), half / Z_CONFIDENCE, np.nan)
    return np.where(inside, value, np.nan), std_error


def _weights(edges: FloatArray, x: float) -> FloatArray:
    """Return how much of each bucket is below x, shape (n + 1,)."""
    low, high = edges[:-1], edges[1:]
    inner = np.clip((x - low) / (high - low), 0.0, 1.0)
    return np.concatenate([[1.0], inner, [0.0]])
