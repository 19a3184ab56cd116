"""E[(X_1 + ... + X_N)_+] of independent draws of a variable with few values, from above.

The values move to a lattice, each split between its two neighbours so that the mean stays: that
makes the sum more spread out in the convex order, and so its positive part larger, never smaller.
The distribution of the sum follows by one Fourier transform; what that could lose is bounded and
added.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft, optimize

from hubbub.decoder.arrays import FloatArray, IntArray

_CELLS_OF_A_DEVIATION = 24
_FEWEST_CELLS, _MOST_CELLS = 2**12, 2**19
_HALF_WIDTHS = (12.0, 24.0, 48.0, 96.0, 192.0)  # of the window, in standard deviations
_SMALL = 1e-3  # of the resolution: what may fall outside the window
_UNIT = 2.0**-52
_TINY = 1e-300
_NEVER = 1e-12
_ROUNDING = 1e-9  # relative: of sums of doubles, and of means that the lattice keeps but for those


def mean_positive_part(
    values: FloatArray, chance: FloatArray, n_draws: int, resolution: float
) -> float:
    """Return an upper bound on E[(X_1 + ... + X_n)_+].

    Parameters
    ----------
    values : float64 array, shape (a,)
    chance : float64 array, shape (a,)
        Of each value; what is missing to 1 is the probability of 0.
    n_draws : int
    resolution : float
        The window grows until what it may leave out is far below this.
    """
    at_most = n_draws * float(chance @ np.maximum(values, 0.0))
    if values.max() <= _NEVER * np.abs(values).max():
        return at_most  # no draw is positive, but for rounding
    tilt = _tilt(values, chance)
    lifted, _ = _tilted(values, chance, tilt)
    spread = math.sqrt(n_draws * max(float(lifted @ values**2 - (lifted @ values) ** 2), _TINY))
    for half_width in _HALF_WIDTHS:
        cells, step = _lattice(half_width * spread, values, chance)
        places, weights = _on_lattice(values / step, chance)
        top = cells // 2
        lost = _beyond(places, weights, n_draws, top)
        if lost * step <= _SMALL * resolution:
            break
    inside = _inside(places, weights, n_draws, top, tilt * step)
    bound = step * (inside + lost) * (1 + _ROUNDING + 16 * _UNIT * n_draws)
    return min(bound, at_most)


def _tilt(values: FloatArray, chance: FloatArray) -> float:
    """Return the t >= 0 at which draws weighted by e^(tX) have mean 0 (or 0, if it's there)."""
    if chance @ values >= 0:
        return 0.0

    def mean(tilt: float) -> float:
        return float(_tilted(values, chance, tilt)[0] @ values)

    highest = 1 / float(values.max())
    while mean(highest) < 0:
        highest *= 2
    return float(optimize.brentq(mean, 0, highest, rtol=1e-6))


def _tilted(values: FloatArray, chance: FloatArray, tilt: float) -> tuple[FloatArray, float]:
    """Return probabilities in proportion to e^(tX), and the log of what they add up to.

    What is missing of `chance` to 1 counts as X = 0.
    """
    exponents = tilt * values
    highest = max(float(exponents.max()), 0.0)
    weights = chance * np.exp(exponents - highest)
    none = max(1.0 - float(chance.sum()), 0.0) * math.exp(-highest)
    total = float(weights.sum()) + none
    return weights / total, highest + math.log(total)


def _lattice(half_width: float, values: FloatArray, chance: FloatArray) -> tuple[int, float]:
    """Return the number of cells (a power of two) and their width."""
    deviation = math.sqrt(float(chance @ values**2) / float(chance.sum()))
    wanted = 2 * half_width / deviation * _CELLS_OF_A_DEVIATION
    cells = min(max(2 ** math.ceil(math.log2(max(wanted, 1.0))), _FEWEST_CELLS), _MOST_CELLS)
    return cells, 2 * half_width / cells


def _on_lattice(scaled: FloatArray, chance: FloatArray) -> tuple[IntArray, FloatArray]:
    """Split each value between the whole numbers around it, keeping the mean."""
    below = np.floor(scaled)
    upper = (scaled - below) * chance
    places = np.concatenate([below, below + 1, [0.0]]).astype(np.int64)
    return places, np.concatenate([chance - upper, upper, [max(1.0 - chance.sum(), 0.0)]])


def _beyond(places: IntArray, weights: FloatArray, n_draws: int, top: int) -> float:
    """Bound E[S; S >= top] by Chernoff: top e^(n K(t) - t top) for any t >= 1/top."""
    deviation = math.sqrt(n_draws * float(weights @ places.astype(np.float64) ** 2))
    slopes = np.maximum(np.geomspace(0.5, 200, 60) / deviation, 1 / top)
    cumulants = np.array([_log_mean_exp(t * places, weights) for t in slopes])
    return top * math.exp(min(float(np.min(n_draws * cumulants - slopes * top)), 700.0))


def _log_mean_exp(exponents: FloatArray, weights: FloatArray) -> float:
    highest = float(exponents.max())
    return highest + math.log(float(weights @ np.exp(exponents - highest)))


def _inside(
    places: IntArray, weights: FloatArray, n_draws: int, cells_above: int, tilt: float
) -> float:
    """Return E[S_+; S < top] plus a bound on the transforms' error; the window has 2 top cells.

    The distribution is tilted by e^(tS), so that what matters isn't in its tail, and tilted back
    afterwards: errors are then small against the result. Mass from outside of the window is folded
    into it, which can only add.
    """
    cells = 2 * cells_above
    tilted, log_total = _tilted(places.astype(np.float64), weights, tilt)
    distribution = np.zeros(cells)
    np.add.at(distribution, places % cells, tilted)
    transform = fft.rfft(distribution)
    law_of_sum = fft.irfft(transform**n_draws, cells)
    sums = np.arange(1, cells_above)
    worth = sums * np.exp(n_draws * log_total - tilt * sums)
    # A transform of a probability vector is off by at most this; a power of it by n |.|^(n-1) times
    # that, and the inverse transform averages over the frequencies.
    error = 4 * _UNIT * math.log2(cells)
    slopes = np.abs(transform) ** (n_draws - 1)
    each = error * (n_draws + 1) * float(slopes.mean()) * 2
    return float(worth @ (np.maximum(law_of_sum[sums], 0.0) + each))
