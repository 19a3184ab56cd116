"""The RAPPOR paper's own formulas for what can be learned: no collisions, one string at a time."""

from __future__ import annotations

import math

from scipy import special

from hubbub.client.params import RapporParams


def count_variance(params: RapporParams) -> float:
    """Return the variance of an absent string's share, times N, as the RAPPOR paper has it.

    p*(1 - p*) / (h (q* - p*)^2): without collisions (Erlingsson et al. 2014, section 5.2).
    """
    return _bit_variance(params) / params.h


def count_deviation(params: RapporParams, n_reports: float) -> float:
    """Return the standard deviation of an absent string's *count*, by the same formula."""
    return math.sqrt(n_reports * count_variance(params))


def learnable_strings(params: RapporParams, n_reports: float, candidates: float) -> float:
    """Return how many strings N reports can teach at most (Erlingsson et al. 2014, appendix).

    sqrt(N) (q* - p*) / (z sqrt(p*(1 - p*))), z being the normal quantile of 0.05 / candidates.
    """
    z = -float(special.ndtri(0.05 / candidates))
    return math.sqrt(n_reports / _bit_variance(params)) / z


def _bit_variance(params: RapporParams) -> float:
    """Return p*(1 - p*)/(q* - p*)^2."""
    p_star = params.p_star
    return p_star * (1 - p_star) / (params.q_star - p_star) ** 2
