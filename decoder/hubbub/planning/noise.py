"""Which noise two epsilons buy: f, p and q for a budget, and how they compare with the optimum.

The permanent epsilon fixes the permanent response, the report's epsilon the odds ratio of p* and
q*; what is left is one number, q*, between "ones are rare" and "ones are common".

A client that reports once may have the symmetric permanent response of the paper, f: how p* and q*
come about doesn't matter. With more reports it does, for the instantaneous noise averages out and
the permanent noise stays. The variance of an absent value is then least with f1 = 1/2 and f0 =
1/(e^eps + 1), which is optimal unary encoding, once.

Invariant: returned parameters stay within the budget as `RapporParams` computes it, to
the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from hubbub.inference.errors import PlanError
from hubbub.protocol.errors import ParameterError
from hubbub.protocol.params import RapporParams

_LEAST = 1e-6  # epsilon of a report: below, p and q differ by less than decimals can show
_DIGITS = (4, 6, 9, 12, 15)  # of f, p and q, tried in turn; a double has 15
_TRIES = 40  # for each: a try takes off at least what was too much, so few are enough
_NOTHING = 1e-13  # what rounding leaves of a p that is 0, or a q that is 1
_MOST_EXPONENT = 700.0  # whose exponential is a double
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
    reports_each : float
        R, reports that each client makes of one permanent response.

    Raises
    ------
    PlanError
        If one isn't positive or is too small for arithmetic, or a report may spend more than all
        together.
    """

    permanent: float
    report: float
    reports_each: float = 1.0

    def __post_init__(self) -> None:
        """Refuse epsilons that contradict each other."""
        if not self.permanent > 0:
            raise PlanError(f"epsilon permanent = {self.permanent}: must be above 0")
        if not 0 < self.report < math.inf:
            raise PlanError(f"epsilon report = {self.report}: must be above 0 and finite")
        if self.report < _LEAST:
            raise PlanError(
                f"epsilon report = {self.report:g}: too small for parameters in double precision"
            )
        if self.report > self.permanent:
            raise PlanError(
                f"epsilon report = {self.report:g}: must be at most epsilon permanent = "
                f"{self.permanent:g}, which bounds all reports together and so each of them"
            )
        if self.reports_each > 1 and self.permanent == math.inf:
            raise PlanError(
                f"reports each = {self.reports_each:g}: must be 1 without a permanent response, "
                "whose epsilon bounds several reports"
            )


class Flips(NamedTuple):
    """A permanent response: the chances that it turns a true 0 over, and a true 1.

    Attributes
    ----------
    zero, one : float
        f0 and f1.
    """

    zero: float
    one: float

    @classmethod
    def within(cls, h: int, budget: Budget) -> Flips:
        """Return the best ones of a budget: f/2 twice for one report per client.

        Of more reports f1 = 1/2 and f0 = 1 / (e^(epsilon / h) + 1).
        """
        if budget.reports_each > 1:
            return cls(1 / (math.exp(min(budget.permanent / h, _MOST_EXPONENT)) + 1), 0.5)
        return cls.symmetric(permanent_noise(h, budget.permanent))

    @classmethod
    def symmetric(cls, f: float) -> Flips:
        """Return those of the paper's permanent noise f."""
        return cls(f / 2, f / 2)

    @property
    def epsilon_of_a_hash(self) -> float:
        """Return ln((1 - f1)(1 - f0) / (f1 f0)), which the permanent response spends on a hash."""
        if not self.zero:
            return math.inf
        return math.log((1 - self.one) / self.one) + math.log((1 - self.zero) / self.zero)

    def reported(self, p: float, q: float) -> tuple[float, float]:
        """Return p* and q*."""
        return self.zero * q + (1 - self.zero) * p, (1 - self.one) * q + self.one * p

    def instantaneous(self, p_star: float, q_star: float) -> tuple[float, float]:
        """Return the p and q that give p* and q*; they may lie outside of 0 and 1."""
        slope = 1 - self.zero - self.one
        p = ((1 - self.one) * p_star - self.zero * q_star) / slope
        return p, ((1 - self.zero) * q_star - self.one * p_star) / slope


def permanent_noise(h: int, epsilon: float) -> float:
    """Return the least f within epsilon: 2 / (1 + e^(epsilon / 2h))."""
    if epsilon == math.inf:
        return 0.0
    return 2 / (1 + math.exp(min(epsilon / (2 * h), _MOST_EXPONENT)))


def common_rates(h: int, budget: Budget, flips: Flips | None = None) -> tuple[float, float]:
    """Return the least and the greatest q* that some p and q within 0 and 1 give.

    With rho = e^(report / h): q* >= (rho - (1 - f1)/f0)/(rho - 1) or p would be negative, and
    1 - q* >= (rho - (1 - f0)/f1) f1/((1 - f0)(rho - 1)) or q would be above 1.

    Parameters
    ----------
    h : int
        Hashes.
    budget : Budget
        What may be spent.
    flips : Flips, optional
        The permanent response, if it isn't the budget's best.
    """
    zero, one = flips or Flips.within(h, budget)
    if not zero:
        return 0.0, 1.0
    spent = math.expm1(budget.report / h)
    lowest = 1 - ((1 - one) / zero - 1) / spent
    highest = 1 - (one / (1 - zero) - (1 - one / (1 - zero)) / spent)
    return max(0.0, lowest), min(1.0, highest)


def rare_rate(h: int, epsilon_report: float, q_star: float) -> float:
    """Return the p* that spends epsilon on a report: h ln(q*(1 - p*) / (p*(1 - q*))) = epsilon."""
    return q_star / (q_star + math.exp(epsilon_report / h) * (1 - q_star))


def exact_params(k: int, h: int, m: int, budget: Budget, q_star: float) -> RapporParams:
    """Return parameters of a given q* that spend all of a budget, but for rounding of doubles."""
    flips = Flips.within(h, budget)
    p, q = flips.instantaneous(rare_rate(h, budget.report, q_star), q_star)
    return _params(k, h, m, flips, min(max(p, 0.0), 1.0), min(max(q, 0.0), 1.0))


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
    budget = replace(budget, reports_each=1.0)  # as published, so f
    flips = Flips.within(h, budget)
    low, high = common_rates(h, budget)

    def excess_of_q(q_star: float) -> float:
        return flips.instantaneous(rare_rate(h, budget.report, q_star), q_star)[1] - 0.75

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
    flips = _rounded_flips(h, budget, digits)
    if flips is None:
        return None
    target = Budget(budget.permanent, epsilon_report, budget.reports_each)
    if flips.zero:
        # Rounding moved the permanent response, and with it what is reachable.
        exact = h * flips.epsilon_of_a_hash
        if exact <= 0:
            return None
        target = replace(target, permanent=exact, report=min(epsilon_report, exact))
    low, high = common_rates(h, target, flips)
    q_star = min(max(q_star, low), high)
    p, q = flips.instantaneous(rare_rate(h, target.report, q_star), q_star)
    p = _up(p, digits) if p > _NOTHING else 0.0
    q = -_up(-q, digits) if 1 - q > _NOTHING else 1.0
    try:
        params = _params(k, h, m, flips, p, q)
    except ParameterError:
        return None
    too_much = params.q <= params.p or params.epsilon_permanent > budget.permanent
    return None if too_much else params


def _rounded_flips(h: int, budget: Budget, digits: int) -> Flips | None:
    """Return the permanent response in decimals, rounded up; None if they need more digits."""
    step = 10.0**-digits / 2
    if budget.reports_each > 1:
        zero, one = Flips.within(h, budget)
        zero = _up(zero, digits)
        if _params(8, h, 1, Flips(zero, one), 0.25, 0.75).epsilon_permanent > budget.permanent:
            zero = _up(zero + step, digits)  # the double was a little below the decimal
        return Flips(zero, one) if zero < 0.5 else None
    f = _up(permanent_noise(h, budget.permanent), digits)
    if f < 1 and RapporParams(8, h, 1, f, 0.25, 0.75).epsilon_permanent > budget.permanent:
        f = _up(f + step, digits)
    return Flips.symmetric(f) if f < 1 else None


def _params(k: int, h: int, m: int, flips: Flips, p: float, q: float) -> RapporParams:
    """Return parameters with a permanent response, which is f alone where it is symmetric."""
    zero, one = flips
    if zero == one:
        return RapporParams(k, h, m, 2 * zero, p, q)
    return RapporParams(k, h, m, zero + one, p, q, zero, one)


def _up(number: float, digits: int) -> float:
    """Round up to a decimal, unless the number is one but for the rounding of a few operations."""
    scale = 10.0**digits
    scaled = number * scale
    nearest = round(scaled)
    is_decimal = nearest != 0 and abs(scaled - nearest) <= min(1e-14 * abs(scaled), 1e-3)
    return (nearest if is_decimal else math.ceil(scaled)) / scale
