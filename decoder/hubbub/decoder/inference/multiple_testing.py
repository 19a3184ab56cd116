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

from hubbub.decoder.arrays import FloatArray

_HALF = 0.5
_LOG_HALF = float(np.log(_HALF))


class Correction(enum.StrEnum):
    """Which error rate is held at alpha.

    BH holds the expected share of false names among those detected (the false discovery rate);
    BONFERRONI the chance of even one false name (the family-wise error rate).
    """

    BH = "bh"
    BONFERRONI = "bonferroni"


def absent_share(log_p: FloatArray, n_candidates: int | None = None) -> float:
    """Return an estimate, upwards, of the share of candidates that are absent; at most 1.

    Parameters
    ----------
    log_p : float64 array, shape (n,)
    n_candidates : int, optional
        Of how many candidates these are the p-values; all others count as absent.

    Notes
    -----
    (1 + #{p > lambda}) / (n (1 - lambda)) with lambda = 1/2 (Storey et al. 2004, equation 2.4 and
    theorem 3). P-values are at least uniform where nobody has the string, so the expectation is no
    less than the share of the absent.
    """
    total = n_candidates or len(log_p)
    above = int(np.count_nonzero(log_p > _LOG_HALF)) + total - len(log_p)
    return min((1 + above) / (total * (1 - _HALF)), 1.0) if total else 1.0


def log_q_values(
    log_p: FloatArray, correction: Correction, n_candidates: int | None = None
) -> FloatArray:
    """Return ln of the smallest alpha at which each candidate is detected.

    Parameters
    ----------
    log_p : float64 array, shape (n,)
        Natural logarithms, because a strong candidate's p-value underflows.
    correction : Correction
        Benjamini and Hochberg 1995 with the share of absent candidates, or Bonferroni.
    n_candidates : int, optional
        Of how many candidates these are the p-values; those of all others are 1.
    """
    total = n_candidates or len(log_p)
    if correction is Correction.BONFERRONI:
        return np.asarray(np.minimum(log_p + np.log(max(total, 1)), 0.0))
    order = np.argsort(log_p, kind="stable")
    stepped = log_p[order]
    stepped += np.log(max(total, 1) * absent_share(log_p, total))
    stepped -= np.log(np.arange(1, len(log_p) + 1))
    np.minimum.accumulate(stepped[::-1], out=stepped[::-1])
    adjusted = np.empty(len(log_p))
    adjusted[order] = np.minimum(stepped, 0.0, out=stepped)
    adjusted[log_p > _LOG_HALF] = 0.0
    return adjusted


def log_cutoff(
    log_p: FloatArray,
    detected: int,
    log_alpha: float,
    correction: Correction,
    n_candidates: int | None = None,
) -> float:
    """Return ln of the largest p-value that counts as a detection.

    For Benjamini-Hochberg it follows from how many are detected and how many have p-values above
    1/2, and is what a detected candidate had to stay below whatever its own p-value.
    """
    total = n_candidates or len(log_p)
    if correction is Correction.BONFERRONI:
        return float(log_alpha - np.log(total))
    steps = max(detected, 1) / (total * absent_share(log_p, total))
    return float(min(log_alpha + np.log(steps), _LOG_HALF))
