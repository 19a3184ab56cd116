"""From p-values to q-values: what may be called detected when many candidates are tested.

Benjamini and Hochberg's procedure holds alpha times the share of absent candidates, so where most
of a list is there it is too strict by far. That share is estimated upwards and made use of (Storey,
Taylor and Siegmund, Journal of the Royal Statistical Society B 66, 2004): candidates that are there
hardly ever have p-values above 1/2, of the absent ones half do. No p-value above 1/2 counts as a
detection, however many others are there.
"""

from __future__ import annotations

import enum

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray

# Storey's lambda: above it nearly all p-values are of absent candidates.
_HALF = 0.5
LOG_HALF = float(np.log(_HALF))
"""ln of the largest p-value that can count as a detection."""
# p = 1 would be z = -infinity; that is 6 standard deviations below 0.
_LARGEST_LOG_P = -1e-9
# Keeps a quotient finite where p-values are alike.
_TINY = 1e-300


class Correction(enum.StrEnum):
    """The error rate that is held at alpha.

    BH holds the expected share of false names among those detected (the false discovery rate);
    BONFERRONI the chance of even one false name (the family-wise error rate).
    """

    BH = "bh"
    BONFERRONI = "bonferroni"


def z_scores(log_p: FloatArray) -> FloatArray:
    """Return the z-scores whose one-sided p-values these are.

    `log_p`: natural logarithms.
    """
    return np.asarray(-special.ndtri_exp(np.minimum(log_p, _LARGEST_LOG_P)))


def p_value_counts(p_values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return how many p-values lie in each twentieth of 0 to 1, and where these begin and end."""
    return np.histogram(p_values, bins=20, range=(0.0, 1.0))


def counted_tests(
    log_p: FloatArray,
    correction: Correction,
    n_candidates: int | None = None,
    log_weights: FloatArray | None = None,
) -> float:
    """Return by how many tests p-values have to be corrected: for BH those of absent candidates.

    `log_p` has shape (n,). `correction`: which error rate is bounded: false discoveries, or the
    chance of any false detection. `n_candidates`: of how many candidates these are the p-values;
    all others count as absent. `log_weights`, shape (n,): ln of the weights that divide
    p-values; their mean over all candidates is 1.

    Notes
    -----
    2 (1 + #{p > 1/2}), at most n (Storey et al. 2004, equation 2.4 and theorem 3). With weights
    each candidate counts by its own, and the largest takes the place of the 1 (Ramdas, Barber,
    Wainwright, Jordan 2019, section 3).
    """
    total = n_candidates or len(log_p)
    if correction is Correction.BONFERRONI:
        return float(total)
    if log_weights is None:
        largest, above = 1.0, float(np.count_nonzero(log_p > LOG_HALF)) + total - len(log_p)
    else:
        weights = np.exp(log_weights)
        largest = float(weights.max())
        above = float(weights[log_p > LOG_HALF].sum()) + max(total - float(weights.sum()), 0.0)
    return min((largest + above) / _HALF, float(total))


def log_q_values(
    log_p: FloatArray, correction: Correction, n_tests: float | None = None, elsewhere: int = 0
) -> FloatArray:
    """Return ln of the smallest alpha at which each candidate is detected.

    `log_p`, shape (n,): natural logarithms, because a strong candidate's p-value underflows.
    `correction`: Benjamini and Hochberg 1995, or Bonferroni. `n_tests`: by how many tests to
    correct (`counted_tests`): n if not given. `elsewhere`: how many others are detected at the same
    error rate; any share of them may be false.

    Examples
    --------
    >>> log_p = np.log([0.001, 0.02, 0.5])
    >>> np.exp(log_q_values(log_p, Correction.BONFERRONI)).round(3).tolist()
    [0.003, 0.06, 1.0]
    >>> np.exp(log_q_values(log_p, Correction.BH)).round(3).tolist()
    [0.003, 0.03, 0.5]
    """
    order = np.argsort(log_p)  # equal ones are adjusted alike, whatever their order
    stepped = log_p[order]
    stepped += np.log(n_tests or max(len(log_p), 1))
    if correction is Correction.BH:
        stepped -= np.log(np.arange(1, len(log_p) + 1) + elsewhere)
        np.minimum.accumulate(stepped[::-1], out=stepped[::-1])
    adjusted = np.empty(len(log_p))
    adjusted[order] = np.minimum(stepped, 0.0, out=stepped)
    if n_tests is not None:
        adjusted[log_p > LOG_HALF] = 0.0
    return adjusted


def log_cutoff(detected: int, n_tests: float, log_alpha: float, correction: Correction) -> float:
    """Return ln of the largest p-value that counts as a detection.

    For Benjamini-Hochberg it follows from how many are detected and how many have p-values above
    1/2, and is what a detected candidate had to stay below whatever its own p-value.
    """
    steps = max(detected, 1) if correction is Correction.BH else 1
    return float(min(log_alpha + np.log(steps / n_tests), LOG_HALF))


def local_false_rates(weighted: FloatArray, n_tests: float) -> FloatArray:
    """Return how likely each hypothesis is to be true, given about how small its p-value is.

    Of n true ones, n du have weighted p-values in du; the density of all of them falls with u, and
    is estimated with nothing else supposed (Grenander 1956; Efron et al. 2001; Strimmer 2008).

    `weighted`, shape (n,): p-values, divided by weights whose mean is 1 over all that were tested.
    `n_tests`: how many were, those included of which the largest p-values were left out.
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow, and seldom needed

    values, where, n_each = np.unique(
        np.minimum(weighted, 1.0), return_inverse=True, return_counts=True
    )
    widths = np.maximum(np.diff(values, prepend=0.0), _TINY)
    density = isotonic_regression(n_each / widths, weights=widths, increasing=False).x
    return np.asarray(np.minimum(n_tests / density, 1.0)[where])
