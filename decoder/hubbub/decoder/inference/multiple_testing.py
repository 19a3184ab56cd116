"""From p-values to q-values: what may be called detected when many candidates are tested."""

from __future__ import annotations

import enum

import numpy as np

from hubbub.decoder.arrays import FloatArray

SEARCHED = 2.0
"""By what q-values are raised where the model was searched for in the same reports.

Each test is exact in a given model. Which strings are in it depends on the reports, though, and
so a little on what is tested. Raised by a quarter only, false names were up to .079 of the detected
at alpha = .05 in the worst simulated populations, those with many times as many absent candidates
as present ones (docs/statistics.md).
"""


class Correction(enum.StrEnum):
    """Which error rate is held at alpha.

    BH holds the expected share of false names among those detected (the false discovery rate);
    BONFERRONI the chance of even one false name (the family-wise error rate).
    """

    BH = "bh"
    BONFERRONI = "bonferroni"


def log_q_values(
    log_p: FloatArray, correction: Correction, *, allowance: float = 1.0
) -> FloatArray:
    """Return ln of the smallest alpha at which each candidate is detected.

    Parameters
    ----------
    log_p : float64 array, shape (n,)
        Natural logarithms, because a strong candidate's p-value underflows.
    correction : Correction
        Benjamini and Hochberg 1995, or Bonferroni.
    allowance : float
        By which q-values are raised, such as `SEARCHED`.
    """
    n = len(log_p)
    raised = np.log(n * allowance)
    if correction is Correction.BONFERRONI:
        return np.asarray(np.minimum(log_p + raised, 0.0))
    order = np.argsort(log_p, kind="stable")
    stepped = log_p[order]
    stepped += raised
    stepped -= np.log(np.arange(1, n + 1))
    np.minimum.accumulate(stepped[::-1], out=stepped[::-1])
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(stepped, 0.0, out=stepped)
    return adjusted


def log_cutoff(
    detected: int,
    candidates: int,
    log_alpha: float,
    correction: Correction,
    *,
    allowance: float = 1.0,
) -> float:
    """Return ln of the largest p-value that counts as a detection.

    For Benjamini-Hochberg it follows from how many are detected, and is what a detected candidate
    had to stay below whatever its own p-value.
    """
    steps = max(detected, 1) if correction is Correction.BH else 1
    return float(log_alpha + np.log(steps) - np.log(candidates * allowance))
