"""The best parameters for a budget: which k, h, m, f, p and q detect the smallest share.

Each h from 1 to 8 gets its best noise (one number, see `planning.noise`), then the fewest bits and
cohorts that come close to the best; the smallest limit among the eight wins. Nothing is tabulated:
the limit is computed anew for each trial, so whatever the theory says decides.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from hubbub.decoder.errors import PlanError
from hubbub.planning.limits import (
    Question,
    bit_rate,
    coin_variance,
    detection_limit,
    fewest_cohorts,
    reports_needed,
)
from hubbub.planning.noise import (
    Budget,
    common_rates,
    count_variance,
    exact_params,
    oue_variance,
    paper_within,
    params_within,
    permanent_noise,
)
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams

MOST_BITS = 1024
_HASHES = range(1, 9)
_MOST_COHORTS = 1024
_REPORTS_A_COHORT = 100
_NEAR = 1.01
_COHORTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_FIRST_BITS, _FIRST_COHORTS = 256, 64
_ROUNDS = 8
_FIRST_REPORTS = 1e6
_ROUND_STEPS = (20, 100)  # as fractions of 1: multiples of .05, else of .01
_MOST_ROUND = 12
_CURVE_POINTS = 25


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters, and what they achieve.

    Attributes
    ----------
    reports : float
        N.
    limit : float
        Share that N reports show with the question's power; infinite if none.
    """

    name: str
    params: RapporParams
    reports: float
    limit: float

    @property
    def oue_ratio(self) -> float:
        """How much more an absent string's estimate varies than the best one-hot noise's.

        Both at the report's epsilon; without collisions (Wang et al. 2017).
        """
        return count_variance(self.params) / oue_variance(self.params.epsilon_report)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a search found.

    Attributes
    ----------
    by_hashes : tuple of Plan
        The best of each h that can be had.
    paper : Plan or None
        The RAPPOR paper's default moved to the same epsilons; None if that can't be.
    simple : Plan or None
        The best with round numbers, if there are any within the budget.
    given : Plan or None
        Parameters that were to be evaluated; the budget is what they spend.
    """

    question: Question
    budget: Budget
    best: Plan
    by_hashes: tuple[Plan, ...]
    paper: Plan | None
    simple: Plan | None
    given: Plan | None = None


def make_plan(name: str, params: RapporParams, n_reports: float, question: Question) -> Plan:
    """Return parameters with what they achieve."""
    return Plan(name, params, n_reports, detection_limit(params, n_reports, question))


def compare(
    budget: Budget, question: Question, n_reports: float, most_bits: int = MOST_BITS
) -> Comparison:
    """Search for the smallest detectable share.

    Parameters
    ----------
    n_reports : float
        N, at least 1.
    most_bits : int
        Largest k.

    Raises
    ------
    PlanError
        If no parameters are within the budget, or the best show nothing.
    """
    plans = tuple(_best_of_each(budget, question, n_reports, most_bits))
    best = min(plans, key=lambda plan: plan.limit)
    if best.limit == math.inf:
        raise PlanError(
            f"reports = {n_reports:,.0f}: too few to show any share within the budget; "
            "collect more, or allow larger epsilons"
        )
    return Comparison(
        question,
        budget,
        replace(best, name="best"),
        plans,
        _paper(budget, question, n_reports),
        _simple(best, budget, question, most_bits),
    )


def compare_for_share(
    budget: Budget, question: Question, share: float, most_bits: int = MOST_BITS
) -> Comparison:
    """Search for the fewest reports that detect a share; otherwise as `compare`.

    The best m depends on N and N on m, so both are sought in turn until N stays.
    """
    first = _best_of_each(budget, question, _FIRST_REPORTS, most_bits)
    best = min(first, key=lambda plan: plan.limit).params

    def needed_by_best(n_reports: float) -> float:
        params = best
        if n_reports != _FIRST_REPORTS:
            params = best_params(best.h, budget, question, n_reports, most_bits)
        return reports_needed(params, share, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"share = {share:g}: no number of reports detects it within the budget")
    return compare(budget, question, math.ceil(needed), most_bits)


def settled_reports(needed_by_best: Callable[[float], float]) -> float:
    """Return the number of reports that the best parameters for it need; infinite if none.

    Parameters
    ----------
    needed_by_best : callable
        Of a number of reports, how many the best parameters for so many need.
    """
    n_reports = needed = _FIRST_REPORTS
    for _ in range(_ROUNDS):
        needed = needed_by_best(n_reports)
        if math.isinf(needed) or abs(needed / n_reports - 1) < 1e-3:
            break
        n_reports = needed
    return needed


def evaluate(
    params: RapporParams,
    question: Question,
    n_reports: float | None,
    share: float | None,
    most_bits: int = MOST_BITS,
) -> Comparison:
    """Compare given parameters with the best at the epsilons that they spend.

    Parameters
    ----------
    n_reports : float, optional
        N; by default as many as the given parameters need to show `share`.

    Raises
    ------
    PlanError
        As `compare`, and if no number of reports shows the share.
    """
    if n_reports is None:
        needed = math.inf if share is None else reports_needed(params, share, question)
        if math.isinf(needed):
            raise PlanError(f"share = {share}: no number of reports detects it with {params}")
        n_reports = math.ceil(needed)
    budget = Budget(params.epsilon_permanent, params.epsilon_report)
    found = compare(budget, question, n_reports, most_bits)
    return replace(found, given=make_plan("given", params, n_reports, question))


def string_params(metric: Metric) -> RapporParams:
    """Return the parameters of a metric whose values are hashed and looked for in a list.

    Raises
    ------
    PlanError
        If its registry lists the values, so that nothing is searched for, or if nobody does.
    """
    if isinstance(metric.type, OpenStringType):
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: its strings stand in no list; "
            "add --open"
        )
    if metric.type.width is not None:
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be a type whose values are "
            "looked for among candidates, such as 'string'"
        )
    return metric.params


def _best_of_each(
    budget: Budget, question: Question, n_reports: float, most_bits: int
) -> list[Plan]:
    """Return the best plan of each h; if there is none for any, raise the last h's PlanError."""
    plans, refusal = [], None
    for h in _HASHES:
        try:
            params = best_params(h, budget, question, n_reports, most_bits)
        except PlanError as error:
            refusal = error
            continue
        plans.append(make_plan(f"best, h = {h}", params, n_reports, question))
    if not plans:
        assert refusal is not None  # noqa: S101 - every h was refused
        raise refusal
    return plans


def best_params(
    h: int, budget: Budget, question: Question, n_reports: float, most_bits: int
) -> RapporParams:
    """Find q*, then k, then m, then q* again for those.

    Raises
    ------
    PlanError
        If no parameters with h hashes are within the budget.
    """
    k = min(_FIRST_BITS, most_bits)
    m = _allowed_cohorts(_FIRST_COHORTS, k, h, question, n_reports)
    limit_at = limit_by_rate(k, h, m, budget, question, n_reports)
    q_star = best_rate(h, budget, limit_at)

    def of_bits(eighth: int) -> float:
        return limit_by_rate(8 * eighth, h, m, budget, question, n_reports)(q_star)

    def of_cohorts(cohorts: int) -> float:
        return limit_by_rate(k, h, cohorts, budget, question, n_reports)(q_star)

    k = 8 * fewest_near_best(range(1, most_bits // 8 + 1), of_bits)
    choices = sorted({_allowed_cohorts(cohorts, k, h, question, n_reports) for cohorts in _COHORTS})
    m = fewest_near_best(choices, of_cohorts)
    q_star = best_rate(h, budget, limit_by_rate(k, h, m, budget, question, n_reports))
    return params_within(k, h, m, budget, q_star)


def _allowed_cohorts(wanted: int, k: int, h: int, question: Question, n_reports: float) -> int:
    """Return the nearest m with which tests work and each cohort has enough reports."""
    most = min(int(n_reports / _REPORTS_A_COHORT), _MOST_COHORTS)
    return min(max(fewest_cohorts(k, h, question.level), min(wanted, most)), _MOST_COHORTS)


def fewest_near_best(
    choices: range | list[int], limit_of: Callable[[int], float], near: float = _NEAR
) -> int:
    """Return the first of ascending choices whose limit is at most `near` times the best.

    A range is too long to try; on it the limit falls, so bisection finds the place.
    """
    if isinstance(choices, range):
        wanted = near * limit_of(choices[-1])
        return choices[bisect_left(choices[:-1], True, key=lambda each: limit_of(each) <= wanted)]
    limits = [limit_of(choice) for choice in choices]
    return next(c for c, x in zip(choices, limits, strict=True) if x <= near * min(limits))


def limit_by_rate(
    k: int, h: int, m: int, budget: Budget, question: Question, n_reports: float
) -> Callable[[float], float]:
    """Return the limit as a function of q*, the budget being spent to the last."""

    @functools.cache
    def limit(q_star: float) -> float:
        params = exact_params(k, h, m, budget, q_star)
        return detection_limit(params, n_reports, question)

    return limit


def best_rate(h: int, budget: Budget, limit_at: Callable[[float], float]) -> float:
    """Return the q* of the least limit; where nothing is detectable, that of the least variance."""
    low, high = common_rates(h, budget)
    margin = 1e-3 * (high - low)
    if high - low < 1e-9:
        return (low + high) / 2
    found = optimize.minimize_scalar(
        lambda q_star: min(math.log(limit_at(float(q_star))), 1e3),
        bounds=(low + margin, high - margin),
        method="bounded",
        options={"xatol": 4e-3 * (high - low)},
    )
    q_star = float(found.x)
    return q_star if limit_at(q_star) < math.inf else min(max(0.5, low), high)


def _paper(budget: Budget, question: Question, n_reports: float) -> Plan | None:
    """Return the paper's default at the budget, with the m that suits it best."""
    k, h = 128, 2
    plans = []
    for cohorts in _COHORTS:
        m = _allowed_cohorts(cohorts, k, h, question, n_reports)
        try:
            params = paper_within(k, m, budget)
        except PlanError:
            return None
        plans.append(make_plan("the paper's default", params, n_reports, question))
    return min(plans, key=lambda plan: plan.limit)


def _simple(best: Plan, budget: Budget, question: Question, most_bits: int) -> Plan | None:
    """Return the best plan whose f, p, q are multiples of .05 (or .01), k and m powers of two."""
    bits = min(2 ** math.ceil(math.log2(best.params.k)), 2 ** int(math.log2(most_bits)))
    cohorts = min(2 ** math.ceil(math.log2(best.params.m)), _MOST_COHORTS)
    for steps in _ROUND_STEPS:
        plans = [
            make_plan("simple numbers", params, best.reports, question)
            for h in _HASHES
            for params in round_params(bits, h, cohorts, budget, steps)
        ]
        if plans:
            return min(plans, key=lambda plan: plan.limit)
    return None


def round_params(k: int, h: int, m: int, budget: Budget, steps: int) -> list[RapporParams]:
    """Return the least noisy parameters within a budget whose f, p and q are multiples of 1/steps.

    Parameters
    ----------
    steps : int
        Such as 20: multiples of .05.

    Returns
    -------
    list of RapporParams
        At most twelve, those with the least variance first.
    """
    least = math.ceil(permanent_noise(h, budget.permanent) * steps - 1e-9)
    found = []
    for up, low, high in itertools.product((least, least + 1), range(steps + 1), range(steps + 1)):
        if low >= high or up >= steps or (up == 0) != (budget.permanent == math.inf):
            continue
        f, p, q = up / steps, low / steps, high / steps
        p_star, q_star = p + f / 2 * (q - p), q - f / 2 * (q - p)
        if p_star <= 0 or q_star >= 1:
            continue
        spent = h * math.log(q_star * (1 - p_star) / (p_star * (1 - q_star)))
        if 0.5 * budget.report <= spent <= budget.report:
            found.append(RapporParams(k, h, m, f, p, q))
    found.sort(key=lambda params: coin_variance(params, bit_rate(k, h)))
    return [
        params
        for params in found[:_MOST_ROUND]
        if params.epsilon_permanent <= budget.permanent and params.epsilon_report <= budget.report
    ]


@dataclass(frozen=True, slots=True)
class Point:
    """Detectable shares at one epsilon or number of reports; infinite: none, nan: not defined.

    Attributes
    ----------
    best, paper : float
        Of the best plan and of the RAPPOR paper's default at the same epsilons.
    """

    at: float
    best: float
    paper: float


def limit_by_epsilon(found: Comparison) -> list[Point]:
    """Return limits over epsilons of a report, with k, h and m of the plans and noise of its own.

    From a quarter of the budget's to four times, or the permanent epsilon.
    """
    spent = found.budget.report
    highest = min(4 * spent, found.budget.permanent)
    points = []
    for epsilon in np.geomspace(spent / 4, highest, _CURVE_POINTS).tolist():
        budget = Budget(found.budget.permanent, min(epsilon, found.budget.permanent))
        k, h, m, *_ = found.best.params
        limit_at = limit_by_rate(k, h, m, budget, found.question, found.best.reports)
        best, paper = limit_at(best_rate(h, budget, limit_at)), math.nan
        if found.paper:
            with contextlib.suppress(PlanError):
                params = paper_within(found.paper.params.k, found.paper.params.m, budget)
                paper = detection_limit(params, found.best.reports, found.question)
        points.append(Point(epsilon, best, paper))
    return points


def limit_by_reports(found: Comparison) -> list[Point]:
    """Return limits over N, from a hundredth of the plan's to a hundred times, at fixed noise."""
    n_reports = found.best.reports
    points = []
    for n in np.geomspace(n_reports / 100, n_reports * 100, _CURVE_POINTS).tolist():
        best = detection_limit(found.best.params, n, found.question)
        paper = detection_limit(found.paper.params, n, found.question) if found.paper else math.nan
        points.append(Point(n, best, paper))
    return points
