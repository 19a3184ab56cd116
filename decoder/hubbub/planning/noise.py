"""The noise that epsilons allow, in decimals, for one hash.

The permanent epsilon fixes the permanent response, the report's epsilon the odds ratio of p* and
q*; what is left is one number, q*, between "ones are rare" and "ones are common". More hashes
would leave less epsilon to each bit, and are never better (docs/measured/planning.md).

A client that reports once may have the symmetric permanent response of the paper, f: how p* and q*
come about doesn't matter. With more reports it does, for the instantaneous noise averages out and
the permanent noise stays. The variance of an absent value is then least with f1 = 1/2 and f0 =
1/(e^eps + 1), which is optimal unary encoding, once.

Of d categories a report may instead name a subset of w (Ye and Barg 2018), of which one category
is generalized randomized response. Of a bounded number it names one of d cells, those in a window
about the number being likelier. Both spend ln(q (d - w) / ((1 - q) w)), so one search for q serves
both.

Invariant: what is returned stays within the budget as `RapporParams` and `Response` compute it, to
the last bit.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import optimize

from hubbub.inference import PlanError, cell_chances, cell_weights
from hubbub.protocol import ParameterError, RapporParams, Subset, Window, chance_bound

_LEAST = 1e-6  # epsilon of a report: below, p and q differ by less than decimals can show
_DIGITS = (4, 6, 9, 12, 15)  # of f, p and q, tried in turn; a double has 15
_TRIES = 40  # for each: a try takes off at least what was too much, so few are enough
_NOTHING = 1e-13  # what rounding leaves of a p that is 0, or a q that is 1
_MOST_EXPONENT = 700.0  # whose exponential is a double
_WASTED = 1e-3  # of an epsilon, by rounding: more than that is worth more digits


@dataclass(frozen=True, slots=True)
class Budget:
    """The two epsilons that a plan may spend.

    Raises `PlanError` if one isn't positive or is too small for arithmetic, or a report may spend
    more than all together.
    """

    permanent: float  # of all reports of one value together; infinite: one-time collection (f = 0)
    report: float  # of one report
    reports_each: float = 1.0  # R, reports that each client makes of one permanent response

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


class NoiseRates(NamedTuple):
    """A permanent response: the chances that it turns a true 0 over, and a true 1."""

    zero: float  # f0 and f1
    one: float

    @classmethod
    def within(cls, budget: Budget) -> NoiseRates:
        """Return a budget's best: f/2 twice for one report, with f = 2 / (1 + e^(epsilon / 2)).

        Of more reports f1 = 1/2 and f0 = 1 / (e^epsilon + 1).
        """
        if budget.reports_each > 1:
            return cls(1 / (math.exp(min(budget.permanent, _MOST_EXPONENT)) + 1), 0.5)
        return cls.symmetric(permanent_noise(budget.permanent))

    @classmethod
    def symmetric(cls, f: float) -> NoiseRates:
        """Return those of the paper's permanent noise f."""
        return cls(f / 2, f / 2)

    @property
    def epsilon(self) -> float:
        """Return ln((1 - f1)(1 - f0) / (f1 f0)), which the permanent response spends."""
        if not self.zero:
            return math.inf
        return math.log((1 - self.one) / self.one) + math.log((1 - self.zero) / self.zero)

    def instantaneous(self, p_star: float, q_star: float) -> tuple[float, float]:
        """Return the p and q that give p* and q*; they may lie outside of 0 and 1."""
        slope = 1 - self.zero - self.one
        p = ((1 - self.one) * p_star - self.zero * q_star) / slope
        return p, ((1 - self.zero) * q_star - self.one * p_star) / slope


def permanent_noise(epsilon: float) -> float:
    """Return the least f within epsilon: 2 / (1 + e^(epsilon / 2))."""
    if epsilon == math.inf:
        return 0.0
    return 2 / (1 + math.exp(min(epsilon / 2, _MOST_EXPONENT)))


def common_rates(budget: Budget, flips: NoiseRates | None = None) -> tuple[float, float]:
    """Return the least and the greatest q* that some p and q within 0 and 1 give.

    With rho = e^report: q* >= (rho - (1 - f1)/f0)/(rho - 1) or p would be negative, and
    1 - q* >= (rho - (1 - f0)/f1) f1/((1 - f0)(rho - 1)) or q would be above 1.

    `flips`: the permanent response, if it isn't the budget's best.
    """
    zero, one = flips or NoiseRates.within(budget)
    if not zero:
        return 0.0, 1.0
    spent = math.expm1(budget.report)
    lowest = 1 - ((1 - one) / zero - 1) / spent
    highest = 1 - (one / (1 - zero) - (1 - one / (1 - zero)) / spent)
    return max(0.0, lowest), min(1.0, highest)


def rare_rate(epsilon_report: float, q_star: float) -> float:
    """Return the p* that spends epsilon on a report: ln(q*(1 - p*) / (p*(1 - q*))) = epsilon."""
    return q_star / (q_star + math.exp(epsilon_report) * (1 - q_star))


def exact_params(k: int, m: int, budget: Budget, q_star: float) -> RapporParams:
    """Return parameters of a given q* that spend all of a budget, but for rounding of doubles."""
    flips = NoiseRates.within(budget)
    p, q = flips.instantaneous(rare_rate(budget.report, q_star), q_star)
    return _params(k, m, flips, min(max(p, 0.0), 1.0), min(max(q, 0.0), 1.0))


def params_within(k: int, m: int, budget: Budget, q_star: float) -> RapporParams:
    """Return parameters of a given q*, in as few digits as waste little of the budget."""
    for digits in _DIGITS:
        target = budget.report
        for _ in range(_TRIES):
            params = _rounded(k, m, budget, target, q_star, digits)
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
        "parameters"
    )


def _rounded(
    k: int, m: int, budget: Budget, epsilon_report: float, q_star: float, digits: int
) -> RapporParams | None:
    """Return decimal parameters near a target; None if they need more digits."""
    flips = _rounded_flips(budget, digits)
    if flips is None:
        return None
    target = Budget(budget.permanent, epsilon_report, budget.reports_each)
    if flips.zero:
        # Rounding moved the permanent response, and with it what is reachable.
        exact = flips.epsilon
        if exact <= 0:
            return None
        target = replace(target, permanent=exact, report=min(epsilon_report, exact))
    low, high = common_rates(target, flips)
    q_star = min(max(q_star, low), high)
    p, q = flips.instantaneous(rare_rate(target.report, q_star), q_star)
    p = _up(p, digits) if p > _NOTHING else 0.0
    q = -_up(-q, digits) if 1 - q > _NOTHING else 1.0
    try:
        params = _params(k, m, flips, p, q)
    except ParameterError:
        return None
    too_much = params.q <= params.p or params.epsilon_permanent > budget.permanent
    return None if too_much else params


def _rounded_flips(budget: Budget, digits: int) -> NoiseRates | None:
    """Return the permanent response in decimals, rounded up; None if they need more digits."""
    step = 10.0**-digits / 2
    if budget.reports_each > 1:
        zero, one = NoiseRates.within(budget)
        zero = _up(zero, digits)
        if _params(8, 1, NoiseRates(zero, one), 0.25, 0.75).epsilon_permanent > budget.permanent:
            zero = _up(zero + step, digits)  # the double was a little below the decimal
        return NoiseRates(zero, one) if zero < 0.5 else None
    f = _up(permanent_noise(budget.permanent), digits)
    if f < 1 and RapporParams(8, 1, 1, f, 0.25, 0.75).epsilon_permanent > budget.permanent:
        f = _up(f + step, digits)
    return NoiseRates.symmetric(f) if f < 1 else None


def _params(k: int, m: int, flips: NoiseRates, p: float, q: float) -> RapporParams:
    zero, one = flips
    if zero == one:
        return RapporParams(k, 1, m, 2 * zero, p, q)
    return RapporParams(k, 1, m, zero + one, p, q, zero, one)


def _up(number: float, digits: int) -> float:
    scale = 10.0**digits
    scaled = number * scale
    nearest = round(scaled)
    is_decimal = nearest != 0 and abs(scaled - nearest) <= min(1e-14 * abs(scaled), 1e-3)
    return (nearest if is_decimal else math.ceil(scaled)) / scale


def exact_chance(cells: int, width: int, epsilon: float) -> float:
    """Return the q that spends epsilon: w e^eps / (w e^eps + d - w)."""
    return width / (width + (cells - width) * math.exp(-epsilon))


def chance_within(cells: int, width: int, epsilon: float) -> float:
    """Return the greatest q within epsilon, in as few decimals as waste little of it."""
    exact = exact_chance(cells, width, epsilon)
    for digits in _DIGITS:
        scale = 10.0**digits
        units = math.floor(exact * scale)
        for chance in (units / scale, (units - 1) / scale):  # the first may be rounded upwards
            if not width / cells < chance < 1:
                continue
            spent = chance_bound(chance, cells - width, width)
            if spent <= epsilon and (spent >= (1 - _WASTED) * epsilon or digits == _DIGITS[-1]):
                return chance
    raise PlanError(
        f"epsilon = {epsilon:g}: must be one that decimals can spend on {width} of {cells}"
    )


def subset_variance(subset: Subset, share: float = 0.0) -> float:
    """Return N times the variance of a category's share, the drawing of clients included.

    A category is in Binomial(N, p + share (q - p)) reports, and its share is (rate - p) / (q - p).
    """
    p, q = subset.other_chance, subset.chance
    rate = p + share * (q - p)
    return rate * (1 - rate) / (q - p) ** 2


def exact_subset(categories: int, epsilon: float) -> Subset:
    """Return the subsets of the least variance of an absent category; w is near d/(e^eps + 1)."""
    near = int(categories / (math.exp(min(epsilon, _MOST_EXPONENT)) + 1))
    sizes = {max(1, min(categories - 1, near + more)) for more in (0, 1)}
    return min(
        (Subset(categories, w, exact_chance(categories, w, epsilon)) for w in sorted(sizes)),
        key=subset_variance,
    )


def subset_within(categories: int, epsilon: float) -> Subset:
    """Return the same in decimals (raises as `chance_within`)."""
    width = exact_subset(categories, epsilon).width
    return Subset(categories, width, chance_within(categories, width, epsilon))


def subset_params(subset: Subset) -> RapporParams:
    """Return the parameters of a metric with a subset, whose p and q are those of single bits."""
    assert subset.cells is not None  # noqa: S101 - of all subsets
    k = -(-subset.cells // 8) * 8
    return RapporParams(k, 1, 1, 0.0, subset.other_chance, subset.chance)


def subset_of(params: RapporParams, categories: int) -> Subset:
    """Return the subset of such parameters: the chances of all bits add up to its size."""
    return Subset(categories, round(params.q + (categories - 1) * params.p), params.q)


def worst_variance(window: Window) -> float:
    """Return N times the variance of the mean if all have the number in [0, 1] that is known worst.

    A number between two positions is rounded to one of them at random, so between them the mean
    square is a straight line and the variance a parabola, which is highest at half the slope.
    """
    chances = cell_chances(window.cells, window.width, window.chance)
    squares = chances @ cell_weights(window.cells, window.width, window.chance) ** 2
    at = np.linspace(0, 1, len(squares))
    tops = np.clip(np.diff(squares) / np.diff(at) / 2, at[:-1], at[1:])
    numbers = np.concatenate([at, tops])
    return float((np.interp(numbers, at, squares) - numbers**2).max())


@functools.lru_cache(maxsize=256)
def widest_variance(window: Window) -> float:
    """Return N times the largest variance of the mean in any population, sampling included.

    A report's weight w has the variance min over c of E[(w - c)^2]. That is linear in the
    population, so its largest value is the least over c of the largest E[(w - c)^2] of a number.
    """
    chances = cell_chances(window.cells, window.width, window.chance)
    squares = chances @ cell_weights(window.cells, window.width, window.chance) ** 2
    at = np.linspace(0, 1, len(squares))
    found = optimize.minimize_scalar(
        lambda c: float((squares - 2 * c * at + c**2).max()), bounds=(0.0, 1.0), method="bounded"
    )
    return float(found.fun)


@functools.lru_cache(maxsize=256)
def exact_window(epsilon: float, most_cells: int) -> Window:
    """Return the window of the least worst variance, whose cells fill whole bytes."""
    windows = (
        Window(cells, width, exact_chance(cells, width, epsilon))
        for cells in range(8, most_cells + 1, 8)
        for width in range(1, cells // 2 + 1)
    )
    return min(windows, key=worst_variance)


def window_within(epsilon: float, most_cells: int) -> Window:
    """Return the same in decimals (raises as `chance_within`)."""
    exact = exact_window(epsilon, most_cells)
    return Window(exact.cells, exact.width, chance_within(exact.cells, exact.width, epsilon))


def window_params(window: Window, cohorts: int = 1) -> RapporParams:
    """Return the parameters of a metric with a window: p and q are of a cell outside and inside."""
    outside, inside = window.cells - window.width, window.width
    p, q = (1 - window.chance) / outside, window.chance / inside
    return RapporParams(window.cells, 1, cohorts, 0.0, p, q)


def window_of(params: RapporParams) -> Window:
    """Return the window of such parameters: the chances of all cells add up to 1."""
    width = round((1 - params.k * params.p) / (params.q - params.p))
    return Window(params.k, width, round(params.q * width, _DIGITS[-1]))
