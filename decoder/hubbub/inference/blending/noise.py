"""The noise of a release's counts, and how likely a local and a central sign are by noise alone.

Discrete Laplace noise has tails far heavier than a normal distribution's of the same variance, so
p-values are sums over its outcomes; Gaussian noise is taken as normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray

# The noise's distribution is summed in steps of a fiftieth of its scale: the error is of the order
# of the step's square.
_STEPS_A_SCALE = 50
_FAR_DOWN, _FAR_UP = 40.0, 45.0  # scales beyond which outcomes don't matter
_CERTAIN = 8.0  # standard errors


@dataclass(frozen=True, slots=True)
class CountNoise:
    """What was added to each count, independently.

    Attributes
    ----------
    variance : float
        Above 0.
    laplace : bool
        Discrete Laplace, P(Z = z) = (1 - a) / (1 + a) a^|z|; normal if not.
    """

    variance: float
    laplace: bool

    @property
    def scale(self) -> float:
        """1 / ln(1 / a): of the variance 2a / (1 - a)^2."""
        return -1 / math.log1p(-(math.sqrt(2 * self.variance + 1) - 1) / self.variance)

    def step(self, steps_a_scale: int = _STEPS_A_SCALE) -> int:
        """Return a step that is small beside the scale; 1, so exact, unless that is large."""
        return max(1, math.floor(self.scale / steps_a_scale))

    def log_tail(self, count: float) -> float:
        """Return ln P(Z >= count), for a whole number if the noise is one."""
        if not self.laplace:
            return float(special.log_ndtr(-count / math.sqrt(self.variance)))
        a = math.exp(-1 / self.scale)
        if count >= 1:
            return -count / self.scale - math.log1p(a)
        return math.log1p(-math.exp(-(1 - count) / self.scale) / (1 + a))


def log_p_value(z: float, count: float, gain: float, noise: CountNoise) -> float:
    """Return ln of the chance that noise alone gives as strong a sign that somebody has a string.

    Parameters
    ----------
    z : float
        The local estimate's z-score, of the exact p-value.
    count : float
        The central count.
    gain : float
        How much a count weighs beside z: std_error n / noise's variance, which makes z + gain count
        the blended share in units of its error if nobody has the string. inf for the count alone.
    noise : CountNoise
        The release's noise.

    Notes
    -----
    The sum over outcomes of the noise Z of P(Z = k) P(e >= z + gain (count - k)), e standard
    normal. Whatever isn't summed up counts as if it were as strong, so p isn't too small.
    """
    if math.isinf(gain):
        return noise.log_tail(count)
    reached = z + gain * count
    if not noise.laplace:
        return float(special.log_ndtr(-reached / math.sqrt(1 + gain**2 * noise.variance)))
    if math.isinf(reached):
        return -math.inf if reached > 0 else 0.0
    scale, step = noise.scale, noise.step()
    up = scale * (max(reached, 0.0) ** 2 / 2 + _FAR_UP)
    if reached + _CERTAIN < gain * up:
        up = max(reached + _CERTAIN, 0.0) / gain
    last = math.ceil(up / step)
    k = np.arange(-math.ceil(_FAR_DOWN * scale / step), last + 1)
    log_chances = math.log(math.tanh(step / scale / 2)) - np.abs(k) * (step / scale)
    logs = log_chances + special.log_ndtr(gain * step * k - reached)
    peak = float(logs.max())
    summed = peak + math.log(float(np.exp(logs - peak).sum()))
    return min(float(np.logaddexp(summed, noise.log_tail(step * last + 1))), 0.0)


def cutoff_sign(log_p: float, gain: float, noise: CountNoise) -> float:
    """Return the z + gain count (the count, if the gain is infinite) whose ln p-value is this."""

    def log_p_of(sign: float) -> float:
        if math.isinf(gain):
            return noise.log_tail(sign)
        return log_p_value(sign, 0.0, gain, noise)

    low, high = 0.0, 1.0
    while log_p_of(high) > log_p:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_p_of(middle) > log_p else (low, middle)
    return high


def log_p_values(
    z: FloatArray, count: FloatArray, gain: FloatArray, noise: CountNoise
) -> FloatArray:
    """Return `log_p_value` of many strings."""
    rows = zip(z.tolist(), count.tolist(), gain.tolist(), strict=True)
    return np.array([log_p_value(*row, noise) for row in rows], dtype=np.float64)
