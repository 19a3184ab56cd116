"""Which noise two epsilons buy: f, p and q for a budget, and how they compare with the optimum.

The permanent epsilon fixes f, the report's epsilon the odds ratio of p* and q*; what is left is
one number, q*, between "ones are rare" and "ones are common".

Invariant: returned parameters stay within the budget as `RapporParams` computes it, to
the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubbub.inference.errors import PlanError
from hubbub.protocol.errors import ParameterError
from hubbub.protocol.params import RapporParams

_LEAST = 1e-6  # epsilon of a report: below, p and q differ by less than decimals can show
_DIGITS = (4, 6, 9, 12, 15)  # of f, p and q, tried in turn; a double has 15
_TRIES = 40  # for each: a try takes off at least what was too much, so few are enough
_NOTHING = 1e-13  # what rounding leaves of a p that is 0, or a q that is 1
_WASTED = 1e-3  # of an epsilon, by rounding: more than that is worth more digits


@dataclass(frozen=True, slots=True)
class Budget:
    """The two epsilons that a plan may spend.

    Attributes
    ----------
    permanent : float
        Of all reports of one value together; infinite: one-time collection (f = 0).
    report : float
        Of one report.

    Raises
    ------
    PlanError
        If one isn't positive or is too small for arithmetic, or a report may spend more than all
        together.
    """

    permanent: float
    report: float

    def __post_init__(self) -> None:
        """Refuse epsilons that contradict each other."""
        if not self.permanent > 0:
            raise PlanError(f"epsilon permanent = {self.permanent}: must be above 0")
        if not 0 < self.report < math.inf:
            raise PlanError(f"epsilon report = {self.report}: must be above 0 and finite")
        if self.report < _LEAST:
            raise PlanError(
                f"epsilon report = {self.report:g}: too small for any parameters, which are doubles"
            )
        if self.report > self.permanent:
            raise PlanError(
                f"epsilon report = {self.report:g}: must be at most epsilon permanent = "
                f"{self.permanent:g}, which bounds all reports together and so each of them"
            )


def permanent_noise(h: int, epsilon: float) -> float:
    """Return the least f within epsilon: 2 / (1 + e^(epsilon / 2h))."""
    return 2 / (1 + math.exp(min(epsilon / (2 * h), 700.0))) if epsilon < math.inf else 0.0


def common_rates(h: int, budget: Budget) -> tuple[float, float]:
    """Return the least and the greatest q* that some p and q within 0 and 1 give.

    With e = e^(permanent / 2h) and rho = e^(report / h): q* >= (rho - e)/(rho - 1) or p would be
    negative, q* <= rho (1 - 1/e)/(rho - 1) or q above 1.
    """
    if budget.permanent == math.inf:
        return 0.0, 1.0
    spent, permanent = math.expm1(budget.report / h), math.expm1(budget.permanent / (2 * h))
    lowest = 1 - permanent / spent
    highest = (spent + 1) * permanent / ((permanent + 1) * spent)
    return max(0.0, lowest), min(1.0, highest)


def rare_rate(h: int, epsilon_report: float, q_star: float) -> float:
    """Return the p* that spends epsilon on a report: h ln(q*(1 - p*) / (p*(1 - q*))) = epsilon."""
    return q_star / (q_star + math.exp(epsilon_report / h) * (1 - q_star))


def exact_params(k: int, h: int, m: int, budget: Budget, q_star: float) -> RapporParams:
    """Return parameters of a given q* that spend all of a budget, but for rounding of doubles."""
    turned = permanent_noise(h, budget.permanent) / 2
    p_star = rare_rate(h, budget.report, q_star)
    p = ((1 - turned) * p_star - turned * q_star) / (1 - 2 * turned)
    q = ((1 - turned) * q_star - turned * p_star) / (1 - 2 * turned)
    return RapporParams(k, h, m, 2 * turned, min(max(p, 0.0), 1.0), min(max(q, 0.0), 1.0))


def params_within(k: int, h: int, m: int, budget: Budget, q_star: float) -> RapporParams:
    """Return parameters of a given q*, in as few digits as waste little of the budget.

    Raises
    ------
    PlanError
        If the epsilons are too small for any numbers of 15 digits.
    """
    for digits in _DIGITS:
        target = budget.report
        for _ in range(_TRIES):
            params = _rounded(k, h, m, budget, target, q_star, digits)
            if params is None:
                break
            if params.epsilon_report <= budget.report:
                least_permanent = (1 - _WASTED) * budget.permanent
                is_close = (
                    budget.permanent == math.inf or params.epsilon_permanent >= least_permanent
                ) and params.epsilon_report >= (1 - _WASTED) * budget.report
                if is_close or digits == _DIGITS[-1]:
                    return params
                break
            target *= 1 - max(10.0**-digits, params.epsilon_report / budget.report - 1)
    raise PlanError(
        f"epsilon permanent = {budget.permanent:g}, report = {budget.report:g}: too small for any "
        f"parameters with h = {h}"
    )


def paper_within(k: int, m: int, budget: Budget) -> RapporParams:
    """Return the RAPPOR paper's default (h = 2, q = .75) with f and p moved to a budget.

    At its own epsilons, 4.3944 and 1.0743, this is f = p = .5. Where no p >= 0 spends enough with
    q = .75, q is moved instead.

    Raises
    ------
    PlanError
        As `params_within`.
    """
    h = 2
    turned = permanent_noise(h, budget.permanent) / 2
    low, high = common_rates(h, budget)

    def excess_of_q(q_star: float) -> float:
        p_star = rare_rate(h, budget.report, q_star)
        return ((1 - turned) * q_star - turned * p_star) / (1 - 2 * turned) - 0.75

    if excess_of_q(low) > 0:  # even p = 0 spends less: q = .75 isn't enough
        return params_within(k, h, m, budget, low)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess_of_q(middle) < 0 else (low, middle)
    return params_within(k, h, m, budget, high)


def oue_variance(epsilon: float) -> float:
    """Return N times the variance of optimal unary encoding: 4 e^eps / (e^eps - 1)^2.

    The least of all one-hot noise at epsilon (Wang et al. 2017, section 4.3).
    """
    return 1 / math.sinh(epsilon / 2) ** 2


def count_variance(params: RapporParams) -> float:
    """Return the variance of an absent string's share, times N, as the RAPPOR paper has it.

    p*(1 - p*) / (h (q* - p*)^2): without collisions (Erlingsson et al. 2014, section 5.2).
    """
    p_star, q_star = params.p_star, params.q_star
    return p_star * (1 - p_star) / (q_star - p_star) ** 2 / params.h


def _rounded(
    k: int, h: int, m: int, budget: Budget, epsilon_report: float, q_star: float, digits: int
) -> RapporParams | None:
    """Return decimal parameters near a target; None if they need more digits."""
    f = _up(permanent_noise(h, budget.permanent), digits)
    if f < 1 and RapporParams(8, h, 1, f, 0.25, 0.75).epsilon_permanent > budget.permanent:
        f = _up(f + 10.0**-digits / 2, digits)  # the double was a little below the decimal
    if f >= 1:
        return None
    turned = f / 2
    target = Budget(budget.permanent, epsilon_report)
    if turned:
        # Rounding moved f, and with it what is reachable.
        exact = 2 * h * math.log((1 - turned) / turned)
        if exact <= 0:
            return None
        target = Budget(exact, min(epsilon_report, exact))
    low, high = common_rates(h, target)
    q_star = min(max(q_star, low), high)
    p_star = rare_rate(h, target.report, q_star)
    p = ((1 - turned) * p_star - turned * q_star) / (1 - 2 * turned)
    q = ((1 - turned) * q_star - turned * p_star) / (1 - 2 * turned)
    p = _up(p, digits) if p > _NOTHING else 0.0
    q = -_up(-q, digits) if 1 - q > _NOTHING else 1.0
    try:
        params = RapporParams(k, h, m, f, p, q)
    except ParameterError:
        return None
    too_much = params.q <= params.p or params.epsilon_permanent > budget.permanent
    return None if too_much else params


def _up(number: float, digits: int) -> float:
    """Round up to a decimal, unless the number is one but for the rounding of a few operations."""
    scale = 10.0**digits
    scaled = number * scale
    nearest = round(scaled)
    is_decimal = nearest != 0 and abs(scaled - nearest) <= min(1e-14 * abs(scaled), 1e-3)
    return (nearest if is_decimal else math.ceil(scaled)) / scale
