"""How small a share this decoding could have found, and how far forged reports could move it.

The test's threshold follows from the distribution that an absent string's score has in these very
reports; beyond it a present string needs some of its own standard errors, which grow with its share
because its bits are set more often.

An estimate is linear in the bit rates, once the model is chosen, so what one report can do to it is
a sum over that report's bits, which a forger sets each to what helps. The regression subtracts what
other strings and the unknown mass explain, so bits left 0 help a forger too, and the bound is above
that of a single bit's rate, which is the forged share times (1 - p*)/(q* - p*).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from hubbub.inference.arrays import SparseMatrix
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.estimates import CandidateEstimates
from hubbub.inference.regression.model import Fit, unknown_column
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import z_scores
from hubbub.protocol import RapporParams

# A fixed point whose error shrinks by a constant factor each time: far more steps than it needs.
_STEPS = 100
FORGED_SHARE = 0.01
"""The share of forged reports in the summaries' line about forgery."""


def limit_of_detection(
    estimates: CandidateEstimates,
    null: HashNull,
    params: RapporParams,
    n_reports: int,
    level: float,
    power: float,
) -> float:
    """Return the share whose one-sided test at `level` rejects with a given power; nan if unknown.

    Infinite if there are too few cohorts for such a small level (`threshold_z`).

    `null`: distribution of an absent candidate's score. `level`: the test's chance of a false
    alarm. `power`: the chance with which that share is to be detected.
    """
    absent = estimates.typical_error
    if np.isnan(absent):
        return np.nan
    threshold = absent * threshold_z(null, level)
    if not np.isfinite(threshold):
        return threshold
    z_power = float(special.ndtri(power))
    slope = params.q_star - params.p_star
    reported = params.p_star + slope * unknown_column(params)
    own_bits = params.k * unknown_column(params)
    growth = ((1 - 2 * reported) / slope - 1) / (own_bits * n_reports)
    share = threshold
    for _ in range(_STEPS):
        share = threshold + z_power * float(np.sqrt(absent**2 + max(growth, 0.0) * share))
    return share


def threshold_z(null: HashNull, level: float) -> float:
    """Return how many of its standard deviations an absent string's score must lie above its mean.

    Infinite if no score is that rare: there are too few cohorts for such a small level.
    """
    log_level = float(np.log(level))
    distribution = null.standardised()
    if distribution is None:
        possible = log_level >= null.log_smallest()
        return float(z_scores(np.array(log_level))) if possible else np.inf
    z, log_tails = distribution
    if log_level < log_tails[-1]:
        return np.inf
    return float(np.interp(-log_level, -log_tails, z))


def largest_shift(fit: Fit, bits: BitEstimates, params: RapporParams, share: float) -> float:
    """Return how far any estimate could move, either way, if a share of the reports were forged.

    `bits`: to which the model was fitted. `share`: forged reports as a share of all.

    Notes
    -----
    With A = C B W, divided by the reliability of random effects, an estimate is sum_cj A_cj y_cj. A
    forged report in cohort c brings its own y_j, either zero = -p*/(q* - p*) or one =
    (1 - p*)/(q* - p*), and moves the estimate by

        (1/N_c) sum_j A_cj (y_j - y_cj),

    at most with y_j = one where A_cj > 0 and zero elsewhere. The worst cohort, the worst string of
    the model and the worse direction are taken, times share N: to first order in the share, with
    the model and its weights as they are. A string outside the model, all its bits distinct, beside
    the unknown mass alone could be moved by share / |q* - p*|, which is the least that is returned.
    """
    slope = params.q_star - params.p_star
    least, most = sorted([(1 - params.p_star) / slope, -params.p_star / slope])
    worst = 1 / abs(slope)
    reports = bits.reports.ravel()
    rows = SparseMatrix(fit.basis.T)
    as_fixed = fit.covariance[:, 1:] / fit.reliability
    for cohort in np.flatnonzero(reports):
        of_cohort = slice(int(cohort) * params.k, (int(cohort) + 1) * params.k)
        influence = np.asarray(rows[of_cohort] @ as_fixed).T * fit.weights[of_cohort]
        present, total = influence @ bits.rate[cohort], influence.sum(axis=1)
        positive = np.maximum(influence, 0.0).sum(axis=1)
        up = total * least + positive * (most - least) - present
        down = present - total * most + positive * (most - least)
        strongest = max(up.max(initial=0.0), down.max(initial=0.0))
        worst = max(worst, strongest * reports.sum() / reports[cohort])
    return float(share * worst)
