"""The RAPPOR paper's formulas for what can be learned, and the literature's for other noise.

All are without collisions, for one string at a time.
"""

from __future__ import annotations

import math

from scipy import special

from hubbub.planning.noise import Budget, common_rates, count_variance, rare_rate
from hubbub.protocol.params import RapporParams


def count_deviation(params: RapporParams, n_reports: float) -> float:
    """Return the standard deviation of an absent string's count (`count_variance`)."""
    return math.sqrt(n_reports * count_variance(params))


def learnable_strings(params: RapporParams, n_reports: float, candidates: float) -> float:
    """Return how many strings N reports can teach at most (Erlingsson et al. 2014, appendix).

    sqrt(N) (q* - p*) / (z sqrt(p*(1 - p*))), z being the normal quantile of 0.05 / candidates.
    """
    z = -float(special.ndtri(0.05 / candidates))
    return math.sqrt(n_reports / _rate_variance(params.p_star, params.q_star)) / z


def longitudinal_optimum(budget: Budget) -> float:
    """Return N times the variance of the best one-hot noise under both epsilons.

    As L-OSUE (Arcolezi et al. 2022) for one report: q* = 1/2 and p* = 1 / (1 + e^report), or the
    nearest q* that the permanent epsilon allows.
    """
    low, high = common_rates(1, budget)
    q_star = min(max(0.5, low), high)
    return _rate_variance(rare_rate(1, budget.report, q_star), q_star)


def symmetric_chaining(budget: Budget) -> float:
    """Return N times the variance of one-hot noise with p* = 1 - q*, at the report's epsilon."""
    p_star = 1 / (1 + math.exp(budget.report / 2))
    return _rate_variance(p_star, 1 - p_star)


def symmetric_oue_ratio(h: int, epsilon: float) -> float:
    """Return how much more RAPPOR with p* = 1 - q* varies than optimal unary encoding.

    sinh^2(eps/2) / (4h sinh^2(eps/4h)): h at eps = 0, and more above.
    """
    return (math.sinh(epsilon / 2) / math.sinh(epsilon / (4 * h))) ** 2 / (4 * h)


def quantised_epsilon(h: int, f: float, steps: int = 128) -> float:
    """Return the permanent epsilon of a client that rounds f down to a multiple of 1/steps."""
    return RapporParams(8, h, 1, math.floor(f * steps) / steps, 0.25, 0.75).epsilon_permanent


def _rate_variance(p_star: float, q_star: float) -> float:
    return p_star * (1 - p_star) / (q_star - p_star) ** 2
