"""The distribution of a blended share given the true one, and 95% intervals by it.

Of n users Bin(n, s) hold a string that a share s of the population holds; the release adds noise Z.
Blended with weight w to a local share, whose error is nearly normal, that is

    T = w (Bin(n, s) + Z) / n + (1 - w) s + d e,      e standard normal.

Where few are expected to hold it, T's chances are summed up over all outcomes of Bin and Z: near 0
neither is close to normal. Where many are, Bin is taken as normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.blending.noise import CountNoise
from hubbub.inference.testing.intervals import CONFIDENCE

_MISSED = (1 - CONFIDENCE) / 2
_FEW = 100  # holders, up to which the binomial distribution is summed up
_REACH = 30.0  # scales of the noise
_COARSE = 20  # steps a scale where Bin is normal
# Up to this scale the noise is summed up over all integers; beyond that its steps are wider.
_MOST_STEPS = 50.0
# Rows at once: bounds memory; speed alone depends on it.
_ROWS = 256
# An end is then known to 2^-18 of the range in which it is looked for.
_HALVINGS = 18
_LEAST = 1e-6  # of a count: deviation below which nothing but whole counts is seen


@dataclass(frozen=True, slots=True)
class BlendedShares:
    """Blended shares of r strings as random variables.

    Attributes
    ----------
    weight : float64 array, shape (r,)
        w, above 0.
    deviation : float64 array, shape (r,)
        d, of all that is nearly normal and doesn't depend much on s.
    users : int
        n.
    noise : CountNoise
    """

    weight: FloatArray
    deviation: FloatArray
    users: int
    noise: CountNoise

    def chance(self, share: FloatArray, at: FloatArray, *, above: bool) -> FloatArray:
        """Return P(T >= at), or P(T <= at), if the true shares are these; shape (r,).

        Parameters
        ----------
        share, at : float64 array, shape (r,)
        above : bool
            Which of both tails: at and above, or at and below.
        """
        found = np.empty(len(share))
        few = self.users * share <= _FEW
        if self.noise.laplace and self.noise.scale > _MOST_STEPS:
            few[:] = False
        order = np.argsort(share, kind="stable")
        for chosen, chances in ((few, self._of_few), (~few, self._of_many)):
            rows = order[chosen[order]]
            for start in range(0, len(rows), _ROWS):
                part = rows[start : start + _ROWS]
                found[part] = chances(part, share[part], at[part], above)
        return found

    def _of_few(self, rows: IntArray, share: FloatArray, at: FloatArray, above: bool) -> FloatArray:
        n, mean = self.users, self.users * float(share.max())
        holders = np.arange(min(n, math.ceil(mean + 9 * math.sqrt(mean) + 12)) + 1)
        log_choices = special.gammaln(n + 1) - special.gammaln(holders + 1)
        log_choices -= special.gammaln(n - holders + 1)
        log_chances = log_choices + special.xlogy(holders, share[:, None])
        chances = np.exp(log_chances + special.xlog1py(n - holders, -share[:, None]))
        counts: FloatArray = holders.astype(np.float64)
        variance = 0.0
        if self.noise.laplace:
            reach = math.ceil(_REACH * self.noise.scale)
            counts = np.arange(-reach, len(holders) + reach, dtype=np.float64)
            chances = _with_laplace(np.pad(chances, ((0, 0), (reach, reach))), self.noise)
        else:
            variance = self.noise.variance
        return self._summed(rows, share, at, above, counts, chances, variance)

    def _of_many(
        self, rows: IntArray, share: FloatArray, at: FloatArray, above: bool
    ) -> FloatArray:
        variance: FloatArray = self.users * share * (1 - share)
        counts: FloatArray = np.zeros(1)
        chances: FloatArray = np.ones((1, 1))
        if self.noise.laplace:
            scale, step = self.noise.scale, self.noise.step(_COARSE)
            last = math.ceil(_REACH * scale / step)
            counts = step * np.arange(-last, last + 1, dtype=np.float64)
            chances = math.tanh(step / scale / 2) * np.exp(-np.abs(counts) / scale)[None, :]
        else:
            variance = variance + self.noise.variance
        centred = counts + (self.users * share)[:, None]
        return self._summed(rows, share, at, above, centred, chances, variance)

    def _summed(
        self,
        rows: IntArray,
        share: FloatArray,
        at: FloatArray,
        above: bool,
        counts: FloatArray,
        chances: FloatArray,
        variance: FloatArray | float,
    ) -> FloatArray:
        """Add up over counts; `variance` is what they lack."""
        weight = self.weight[rows]
        unit = weight / self.users
        deviation = np.sqrt(self.deviation[rows] ** 2 + unit**2 * variance + (_LEAST * unit) ** 2)
        # An outcome that is just `at` counts on either side.
        limit = at + (-10 if above else 10) * _LEAST * unit - (1 - weight) * share
        off = (unit[:, None] * counts - limit[:, None]) / deviation[:, None]
        return np.asarray((chances * special.ndtr(off if above else -off)).sum(axis=1))


def _with_laplace(chances: FloatArray, noise: CountNoise) -> FloatArray:
    """Return the chances of whole numbers after discrete Laplace noise, along each row."""
    from scipy.signal import lfilter  # noqa: PLC0415 - takes long to import

    a = math.exp(-1 / noise.scale)
    up = lfilter([1.0], [1.0, -a], chances, axis=1)
    down = lfilter([1.0], [1.0, -a], chances[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((up + down - chances) * (1 - a) / (1 + a))


def intervals(
    shares: BlendedShares, estimate: FloatArray, std_error: FloatArray, threshold: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return 95% intervals within [0, 1].

    Parameters
    ----------
    shares : BlendedShares
        The distribution of blended estimates, given true shares.
    estimate, std_error : float64 array, shape (r,)
    threshold : float64 array, shape (r,)
        Which a detected string's estimate had to reach; -inf of others.

    Notes
    -----
    The lower end is the least share under which an estimate that reaches its threshold is as high
    as this one with probability above .025; the upper end is the largest one under which an
    estimate, whether it is detected or not, is as low with probability above .025. Given detection,
    an estimate is that low with probability .025 at most: (.025 - P(T < c)) / (1 - P(T < c)) <=
    .025. So intervals hold 95% of the times given detection. Those of all strings do, too: a
    string misses above with probability .025 at most, and below either when it is detected, of
    which .025 miss, or when it isn't and is among the highest .025, which are the detected first.

    Estimates below 0 count as 0 for the upper end, so that no interval is empty.
    """
    held = np.maximum(estimate, 0.0)
    top = np.minimum(held + 8 * std_error + 20 * shares.weight / shares.users, 1.0)
    at = np.minimum(np.maximum(threshold, -1.0), estimate)
    selected = np.isfinite(threshold)

    def low_enough(share: FloatArray) -> BoolArray:
        return shares.chance(share, held, above=False) > _MISSED

    def high_enough(share: FloatArray) -> BoolArray:
        reaching = np.ones(len(share))
        reaching[selected] = shares.chance(share, at, above=True)[selected]
        return shares.chance(share, estimate, above=True) > _MISSED * reaching

    _, high = _between(lambda share: ~low_enough(share), top)
    low, _ = _between(high_enough, top)
    return np.where(high_enough(np.zeros(len(top))), 0.0, low), high


def _between(
    reached: Callable[[FloatArray], BoolArray], top: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return two shares close to each other, between which something becomes true."""
    low, high = np.zeros(len(top)), top.copy()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = reached(middle)
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return low, high


def two_sided_p_values(shares: BlendedShares, true: FloatArray, at: FloatArray) -> FloatArray:
    """Return how likely T is as far from the true shares as `at`, on the side where it is."""
    above, below = (shares.chance(true, at, above=side) for side in (True, False))
    return np.asarray(np.minimum(2 * np.minimum(above, below), 1.0))
