"""How small a share this decoding could have found.

The test's threshold follows from the distribution that an absent string's score has in these very
reports; beyond it a present string needs some of its own standard errors, which grow with its share
because its bits are set more often.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from hubbub.decoder.inference.hash_null import HashNull
from hubbub.decoder.regression.estimates import Estimates
from hubbub.decoder.regression.model import unknown_column
from hubbub.protocol.params import RapporParams

_STEPS = 100


def limit_of_detection(
    estimates: Estimates,
    null: HashNull,
    params: RapporParams,
    n_reports: int,
    level: float,
    power: float,
) -> float:
    """Return the share whose one-sided test at `level` rejects with a given power; nan if unknown.

    Infinite if there are too few cohorts for such a small level (`threshold_z`).

    Parameters
    ----------
    estimates : Estimates
    null : HashNull
        Distribution of an absent candidate's score.
    params : RapporParams
    n_reports : int
    level, power : float
    """
    if np.isnan(estimates.std_error).all():
        return np.nan
    absent = float(np.nanmedian(estimates.std_error))
    threshold = absent * threshold_z(null, level)
    if not np.isfinite(threshold):
        return threshold
    z_power = float(stats.norm.ppf(power))
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
    distribution = null.standardised()
    if distribution is None:
        smallest = null.log_smallest()
        return float(stats.norm.isf(level)) if np.log(level) >= smallest else np.inf
    z, log_tails = distribution
    if log_tails[-1] > np.log(level):
        return np.inf
    return float(np.interp(-np.log(level), -log_tails, z))
