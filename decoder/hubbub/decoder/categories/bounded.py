"""Intervals for a share, from an estimate that doesn't know that shares lie between 0 and 1.

Cutting the usual interval off at 0 would leave nothing of some; the construction of Feldman and
Cousins (Physical Review D 57, 1998) holds the confidence at every share, 0 included, and never
gives an empty interval. What a maintainer must not break: the estimate that
comes in is the unbiased one, below 0 where its noise took it there.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.inference.intervals import CONFIDENCE, Z_CONFIDENCE

_FARTHEST = 1e4  # standard errors below 0; from there on the interval no longer shrinks
_STEPS = 20_001


class Interval(NamedTuple):
    """Lower and upper ends, each a float64 array of the estimates' shape."""

    low: FloatArray
    high: FloatArray


def share_interval(estimate: FloatArray, std_error: FloatArray) -> Interval:
    """Return 95% confidence intervals of shares.

    Parameters
    ----------
    estimate : float64 array
        Unbiased and about normal; may fall outside [0, 1].
    std_error : float64 array, same shape
        Above 0.

    Notes
    -----
    In standard errors from the nearer end of [0, 1], with truth mu >= 0 and estimate x: the values
    of x that are accepted at mu are those of greatest likelihood ratio against the best mu that is
    possible, max(x, 0). For mu >= z = 1.96 these are mu - z to mu + z. For mu < z they run from
    mu - u < 0 to mu + t with

        Phi(t) = 0.95 + Phi(-u),        mu = u - sqrt(u^2 - t^2),

    because exp(-t^2/2) = exp(mu (mu - u) - mu^2/2) at both ends. u >= z parametrises the curve. The
    interval is the set of mu that accept x, which beyond 2z is x - z to x + z. The other end of
    [0, 1] is taken to be far away; where standard errors are so large that it isn't, what lies
    beyond is cut off.
    """
    from_top = estimate > 0.5
    near = np.where(from_top, 1 - estimate, estimate) / std_error
    low, high = _limits(near)
    low, high = np.clip(low * std_error, 0.0, 1.0), np.clip(high * std_error, 0.0, 1.0)
    return Interval(np.where(from_top, 1 - high, low), np.where(from_top, 1 - low, high))


def _limits(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the interval for mu >= 0, in standard errors."""
    mu, lowest, highest = _accepted()
    low = np.where(x > 2 * Z_CONFIDENCE, x - Z_CONFIDENCE, np.interp(x, highest, mu, left=0.0))
    high = np.where(x >= 0, x + Z_CONFIDENCE, np.interp(x, lowest, mu))
    return low, high


@cache
def _accepted() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values of mu < z, ascending, and the lowest and highest x that each accepts."""
    u = np.geomspace(_FARTHEST, Z_CONFIDENCE, _STEPS)
    t = stats.norm.ppf(CONFIDENCE + stats.norm.cdf(-u))
    t[-1] = Z_CONFIDENCE
    root = np.sqrt(u**2 - t**2)
    mu = t**2 / (u + root)  # = u - root, without the cancellation
    return mu, -root, mu + t
