"""From p-values to q-values: what may be called detected when many candidates are tested."""

from __future__ import annotations

import enum

import numpy as np

from hubbub.decoder.arrays import FloatArray


class Correction(enum.StrEnum):
    """Which error rate is held at alpha.

    BH holds the expected share of false names among those detected (the false discovery rate);
    BONFERRONI the chance of even one false name (the family-wise error rate).
    """

    BH = "bh"
    BONFERRONI = "bonferroni"


def log_q_values(log_p: FloatArray, correction: Correction) -> FloatArray:
    """Return ln of the smallest alpha at which each candidate is detected.

    Parameters
    ----------
    log_p : float64 array, shape (n,)
        Natural logarithms, because a strong candidate's p-value underflows.
    correction : Correction
        Benjamini and Hochberg 1995, or Bonferroni.
    """
    n = len(log_p)
    if correction is Correction.BONFERRONI:
        return np.asarray(np.minimum(log_p + np.log(n), 0.0))
    order = np.argsort(log_p, kind="stable")
    stepped = log_p[order] + np.log(n) - np.log(np.arange(1, n + 1))
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 0.0)
    return adjusted
