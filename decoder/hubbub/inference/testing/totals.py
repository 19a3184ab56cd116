"""The detected strings' total: their sum less what it owes to their having been selected.

Of strings near the limit those are detected whose noise was upward, so the sum of the detected
estimates is too high. By how much follows without any assumption about the shares: for a normal
estimate X of theta with variance sigma^2 and a threshold c,

    E[(X - theta) 1{X > c}] = sigma^2 f(c),

f being the density of X (Stein, Annals of Statistics 9, 1981). Summed over all candidates it is
the density of their z-scores at the threshold, which can be seen on both sides of it. This holds
however the estimates depend on each other. Shares that have to add up give it back, each its part.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.testing.multiple_testing import z_scores

# Candidates within half a standard error of their cutoff show how dense they are there: narrower
# has too few of them, wider isn't there.
_HALF_WIDTH = 0.5
# The correction is known to about 40%: its error is added to the total's.
_RELATIVE_ERROR = 0.4


def selection_bias(
    share: FloatArray,
    std_error: FloatArray,
    log_p: FloatArray,
    detected: BoolArray,
    log_cutoff: FloatArray | float,
    n_absent: float,
    typical: float | None = None,
) -> tuple[float, float]:
    """Return by how much the sum of the detected is expected to be too high, and its variance.

    `share` and `std_error` and `log_p`, shape (n,): of all candidates; nan where they aren't
    determined. `detected` has shape (n,). `log_cutoff` has shape (n,). `n_absent`: about how many
    candidates are absent. `typical`: the median standard error of all candidates, if these are some
    of them: at least those within half a standard error of the limit of detection.

    Notes
    -----
    The density at the threshold is that of the absent candidates, which is normal and steep there,
    and a kernel estimate of what is seen within half a standard error beyond that. The variance is
    that of what is counted and, because errors are only nearly normal and the density isn't
    straight, the square of 0.4 times the bias, with which intervals held in simulated populations
    (docs/understand/statistics.md).
    """
    known = ~np.isnan(share)
    if not detected.any():
        return 0.0, 0.0
    z = z_scores(log_p[known])
    cutoffs = z_scores(np.asarray(log_cutoff))
    if cutoffs.ndim:
        cutoffs = cutoffs[known]
    near = np.abs(z - cutoffs) < _HALF_WIDTH
    scale = std_error[known][near]
    within = special.ndtr(cutoffs + _HALF_WIDTH) - special.ndtr(cutoffs - _HALF_WIDTH)
    at_cutoffs = np.exp(-(cutoffs**2) / 2) / np.sqrt(2 * np.pi)
    of_absent = float(np.mean(at_cutoffs - within / (2 * _HALF_WIDTH)))
    if typical is None:
        typical = float(np.median(std_error[known]))
    bias = float(scale.sum()) / (2 * _HALF_WIDTH) + n_absent * of_absent * typical
    counted = float(scale @ scale) / (2 * _HALF_WIDTH) ** 2
    return bias, counted + (_RELATIVE_ERROR * bias) ** 2


def without_bias(
    constrained: FloatArray,
    share: FloatArray,
    std_error: FloatArray,
    threshold: FloatArray,
    bias: float,
) -> FloatArray:
    """Return shares of the detected that owe nothing to their having been selected; shape (d,).

    `constrained`, shape (d,): shares of the detected that add up, at least 0. `share` and
    `std_error` and `threshold`, shape (d,): their estimates, and the shares above which they were
    detected. `bias`: of their total, as `selection_bias` returns it.

    Notes
    -----
    By how much a normal estimate is too high on average given that it passed its threshold,
    sigma f(z) / F(z) at z standard errors above it, says which part of the bias is whose: hardly
    any of those far above.
    """
    above = (share - threshold) / std_error
    parts = std_error * np.exp(-(above**2) / 2 - special.log_ndtr(above))
    if bias <= 0 or not parts.sum() > 0:
        return constrained
    return np.asarray(np.maximum(constrained - bias * parts / parts.sum(), 0.0))
