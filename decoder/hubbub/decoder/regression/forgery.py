"""How far forged reports can move the decoder's own estimates.

An estimate is linear in the bit rates, once the model is chosen, so what one report can do to it is
a sum over that report's bits, which a forger sets each to what helps. The regression subtracts what
other strings and the unknown mass explain, so bits left 0 help a forger too, and the bound is above
that of a single bit's rate (`hubbub.collector.poisoning.set_bits.forgery_shift`).
"""

from __future__ import annotations

import numpy as np

from hubbub.decoder.arrays import SparseMatrix
from hubbub.decoder.bits import BitEstimates
from hubbub.decoder.regression.model import Fit
from hubbub.protocol.params import RapporParams

FORGED_SHARE = 0.01
"""The share of forged reports that summaries speak of."""


def largest_shift(fit: Fit, bits: BitEstimates, params: RapporParams, share: float) -> float:
    """Return how far any estimate could move, either way, if a share of the reports were forged.

    Parameters
    ----------
    fit : Fit
    bits : BitEstimates
        To which the model was fitted.
    params : RapporParams
    share : float
        Forged reports as a share of all.

    Notes
    -----
    With A = C B W, of penalised members as if freed, an estimate is sum_cj A_cj y_cj. A forged
    report in cohort c brings its own y_j, either zero = -p*/(q* - p*) or one = (1 - p*)/(q* - p*),
    and moves the estimate by

        (1/N_c) sum_j A_cj (y_j - y_cj),

    at most with y_j = one where A_cj > 0 and zero elsewhere. The worst cohort, the worst string of
    the model and the worse direction are taken, times share N: to first order in the share, with
    the model and its weights as they are. A string outside the model, all its bits distinct, beside
    the unknown mass alone could be moved by share / |q* - p*|, which is the least that is returned.
    """
    slope = params.q_star - params.p_star
    one, zero = (1 - params.p_star) / slope, -params.p_star / slope
    worst = 1 / abs(slope)
    reports = bits.reports.ravel()
    rows = SparseMatrix(fit.basis.T)
    freed = fit.covariance[:, 1:] / fit.freedom
    for cohort in np.flatnonzero(reports):
        of_cohort = slice(int(cohort) * params.k, (int(cohort) + 1) * params.k)
        influence = np.asarray(rows[of_cohort] @ freed).T * fit.weights[of_cohort]
        present = influence @ bits.rate[cohort]
        at_one, at_zero = influence * one, influence * zero
        up = np.maximum(at_one, at_zero).sum(axis=1) - present
        down = present - np.minimum(at_one, at_zero).sum(axis=1)
        strongest = max(up.max(initial=0.0), down.max(initial=0.0))
        worst = max(worst, strongest * reports.sum() / reports[cohort])
    return float(share * worst)
