"""Whether a share stayed the same over days, and where it changed.

Estimates of days are independent normals with known, unequal variances. A change is looked for by
the largest standardised difference between the means before and after a day. Its distribution under
"nothing changed" is computed, not simulated: the differences form a Markov chain, so that the
chance that none of them is large is a product of one-dimensional integrals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special

from hubbub.decoder.arrays import FloatArray

_FAR = 8.0
"""Beyond it the union bound is taken: it is below 1e-14 a day there."""
_FINEST_STEP = 0.1
_NODES_A_STEP = 4.8


@dataclass(frozen=True, slots=True)
class Change:
    """A day from which on a share is another than before.

    Attributes
    ----------
    day : int
        Index of the first day after the change.
    p_value : float
        Of "nothing changed" in the stretch of days that was cut here.
    before, after : float
        Inverse-variance weighted means of the stretch's two parts.
    std_error : float
        Of their difference.
    """

    day: int
    p_value: float
    before: float
    after: float
    std_error: float


def constancy(shares: FloatArray, variances: FloatArray, common: float = 0.0) -> Change | None:
    """Find the most conspicuous day of change, and how often chance alone shows as much.

    Parameters
    ----------
    shares : float64 array, shape (d,)
        One a day; nan where there is none.
    variances : float64 array, shape (d,)
        Of the noise, independent from day to day.
    common : float
        Variance of an error that all days before a change share, and all days after it; 0 if every
        day has the same one.

    Returns
    -------
    Change or None
        None if there are fewer than two days. The change is significant only if its p-value is
        small.

    Notes
    -----
    With W_i the sum of 1/variance over the first i of n days and W all of it, the mean of the first
    i less the mean of the others has variance 1/W_i + 1/(W - W_i). The standardised differences Z_i
    are a Gaussian Markov chain with correlations sqrt(t_i (1 - t_j) / (t_j (1 - t_i))),
    t_i = W_i / W, i < j: a Brownian bridge divided by its standard deviation, at the times t_i.
    The statistic is max |Z_i|; `exceedance` gives its distribution. With a common error the
    differences are divided by more, so that the same distribution is an upper bound.
    """
    days = np.flatnonzero(np.isfinite(shares) & (variances > 0))
    if len(days) < 2:
        return None
    values, weights = shares[days], 1.0 / variances[days]
    before, after = np.cumsum(weights)[:-1], np.cumsum(weights[::-1])[::-1][1:]
    mean_before = np.cumsum(weights * values)[:-1] / before
    mean_after = np.cumsum((weights * values)[::-1])[::-1][1:] / after
    std_error = np.sqrt(1.0 / before + 1.0 / after + 2.0 * common)
    sizes = np.abs(mean_after - mean_before) / std_error
    cut = int(np.argmax(sizes))
    return Change(
        day=int(days[cut + 1]),
        p_value=exceedance(float(sizes[cut]), before / (before + after)),
        before=float(mean_before[cut]),
        after=float(mean_after[cut]),
        std_error=float(std_error[cut]),
    )


def change_points(
    shares: FloatArray, variances: FloatArray, level: float, common: float = 0.0
) -> tuple[Change, ...]:
    """Cut the days where shares changed, then each part again (binary segmentation).

    Parameters
    ----------
    shares, variances, common
        As for `constancy`.
    level : float
        For the whole range. A part of n of all d days is tested at level (n - 1)/(d - 1), so that
        the levels of parts that don't overlap add up to no more than `level`.

    Returns
    -------
    tuple of Change
        By day.
    """
    n_days = int(np.count_nonzero(np.isfinite(shares) & (variances > 0)))
    found: list[Change] = []
    waiting = [(0, len(shares))]
    while waiting:
        start, stop = waiting.pop()
        part = slice(start, stop)
        change = constancy(shares[part], variances[part], common)
        if change is None:
            continue
        inside = int(np.count_nonzero(np.isfinite(shares[part]) & (variances[part] > 0)))
        if change.p_value > level * (inside - 1) / (n_days - 1):
            continue
        day = start + change.day
        found.append(Change(day, change.p_value, change.before, change.after, change.std_error))
        waiting += [(start, day), (day, stop)]
    return tuple(sorted(found, key=lambda each: each.day))


def exceedance(size: float, times: FloatArray) -> float:
    """Return P(max_i |Z_i| > size) for a standardised Brownian bridge at some times.

    Parameters
    ----------
    size : float
    times : float64 array, shape (n,)
        In (0, 1), ascending.

    Returns
    -------
    float
        Exact to numerical integration where times are not too close together; an upper bound where
        they are (correlation above 0.995) and above a size of 8, where it is the union bound.

    Notes
    -----
    First exits are added up, P(|Z_1| > b) + sum_i P(|Z_i| > b, none before it), so that small
    chances keep their digits. The density of "none so far" is kept at Gauss-Legendre nodes.
    """
    once = float(special.erfc(size / math.sqrt(2.0)))
    if size >= _FAR or len(times) == 1:
        return min(1.0, once * len(times))
    kept, skipped = _thinned(times)
    steps = [_step(times[i], times[j]) for i, j in pairwise(kept)]
    finest = min([spread for _, spread in steps], default=1.0)
    nodes, weights = np.polynomial.legendre.leggauss(16 + math.ceil(_NODES_A_STEP * size / finest))
    nodes, weights = size * nodes, size * weights
    total = once
    alive = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    for slope, spread in steps:
        total += float(weights @ (alive * _leaves(size, slope * nodes, spread)))
        kernel = np.exp(-(((nodes[:, None] - slope * nodes) / spread) ** 2) / 2)
        alive = kernel @ (weights * alive) / (spread * math.sqrt(2 * math.pi))
    for i, j in skipped:
        total += _leaves_once(size, *_step(times[i], times[j]))
    return min(1.0, total)


def _thinned(times: FloatArray) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the times of the chain, and those too close after one of them, with it."""
    kept, skipped = [0], []
    for index in range(1, len(times)):
        if _step(times[kept[-1]], times[index])[1] >= _FINEST_STEP:
            kept.append(index)
        else:
            skipped.append((kept[-1], index))
    return kept, skipped


def _step(earlier: float, later: float) -> tuple[float, float]:
    """Return the correlation of two times, and the standard deviation of one given the other."""
    squared = earlier * (1.0 - later) / (later * (1.0 - earlier))
    return math.sqrt(squared), math.sqrt(max(1.0 - squared, 1e-30))


def _leaves(size: float, mean: FloatArray, spread: float) -> FloatArray:
    """Return P(|X| > size) of normals."""
    scale = spread * math.sqrt(2.0)
    above = special.erfc((size - mean) / scale) + special.erfc((size + mean) / scale)
    return np.asarray(0.5 * above)


def _leaves_once(size: float, slope: float, spread: float) -> float:
    """Return P(|Z_j| > size, |Z_i| <= size); only values near the boundary count."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    reach = min(10.0 * spread, 2.0 * size)
    start = size - reach
    places = start + reach * (nodes + 1.0) / 2.0
    density = np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    inside = float(reach / 2.0 * weights @ (density * _leaves(size, slope * places, spread)))
    return inside if start <= -size else 2.0 * inside
