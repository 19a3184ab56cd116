"""Parameters of strings that nobody lists: steps, cells, cohorts and noise, and what they find.

Each of G steps has a G-th of the reports, and a string must pass all of them; its prefixes are at
least as common as itself, so the last step's test decides. That is the limit of listed strings with
N / G reports of one hash, among as many candidates as the decoder's weights amount to. Invariant:
the epsilons are those of one step, since a client answers one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hubbub.decoder.errors import PlanError
from hubbub.decoder.open_strings.search import ROOM_A_STEP
from hubbub.planning.limits import (
    Question,
    detection_limit,
    fewest_cohorts,
    reports_needed,
)
from hubbub.planning.noise import (
    Budget,
    common_rates,
    count_variance,
    oue_variance,
    params_within,
)
from hubbub.planning.search import (
    MOST_BITS,
    best_rate,
    fewest_near_best,
    limit_by_rate,
    settled_reports,
)
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_COHORTS, RapporParams

EFFECTIVE_CANDIDATES = 3_000.0
"""A list on which every string had the same weight would be so long; docs/planning.md measures."""

TYPICAL_LENGTH = 8
"""Bytes: first names, words that are typed."""

_STEPS = (4, 7, 10, 14)
_SHORT_STEP = 2
_STRINGS = 1e5
_NEAR_BITS = 1.05
_LISTED = 3 * ROOM_A_STEP
_FEWEST_BITS = 64
_COHORTS = (32, 64, 128, 256, 512, 1024)
_FEWEST_REPORTS_A_COHORT = 100
_CURVE_POINTS = 25


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """Parameters of an open string metric, and what they achieve.

    Attributes
    ----------
    steps : tuple of int
        Lengths of the prefixes, in bytes; after them comes the whole string.
    params : RapporParams
        Of one step; m is its cohorts.
    reports : float
        N, of all steps together.
    limit : float
        Share that N reports show with the question's power; infinite if none.
    if_listed : float
        The same if the strings stood in a list of a hundred thousand, and all clients reported
        theirs whole.
    """

    name: str
    steps: tuple[int, ...]
    params: RapporParams
    reports: float
    limit: float
    if_listed: float

    @property
    def n_steps(self) -> int:
        """G, the last step included."""
        return len(self.steps) + 1

    @property
    def pseudonym_bits(self) -> float:
        """How many bits of a client its cohort is, which each of its reports shows."""
        return math.log2(self.n_steps * self.params.m)

    @property
    def oue_ratio(self) -> float:
        """As `search.Plan` has it."""
        return count_variance(self.params) / oue_variance(self.params.epsilon_report)


@dataclass(frozen=True, slots=True)
class OpenComparison:
    """What was planned.

    Attributes
    ----------
    given : OpenPlan or None
        Parameters that were to be evaluated; the budget is what they spend.
    """

    question: Question
    budget: Budget
    best: OpenPlan
    given: OpenPlan | None = None


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """Detectable shares at one epsilon or number of reports, by prefixes and with a list."""

    at: float
    limit: float
    if_listed: float


def open_question(
    alpha: float = 0.05, power: float = 0.9, concentration: float | None = None
) -> Question:
    """Return the question that the last step's test answers.

    Raises
    ------
    PlanError
        If a number is out of range.
    """
    return Question(
        EFFECTIVE_CANDIDATES, alpha, power, concentration=concentration, strings=_STRINGS
    )


def choose_steps(length: int) -> tuple[int, ...]:
    """Return steps for strings of a typical length in bytes: 4, 7, 10 and 14, as far as it goes.

    Raises
    ------
    PlanError
        If it isn't at least 1.
    """
    if length < 1:
        raise PlanError(f"longest = {length}: must be at least 1 byte")
    return tuple(step for step in _STEPS if step < length) or (_SHORT_STEP,)


def make_open_plan(
    name: str, steps: tuple[int, ...], params: RapporParams, n_reports: float, question: Question
) -> OpenPlan:
    """Return parameters, of one step, with what they achieve."""
    return OpenPlan(
        name,
        steps,
        params,
        n_reports,
        open_limit(steps, params, n_reports, question),
        detection_limit(params, n_reports, replace(question, candidates=_STRINGS)),
    )


def open_limit(
    steps: tuple[int, ...], params: RapporParams, n_reports: float, question: Question
) -> float:
    """Return the smallest share that N reports show with the question's power."""
    return detection_limit(params, n_reports / (len(steps) + 1), question)


def open_reports_needed(
    steps: tuple[int, ...], params: RapporParams, share: float, question: Question
) -> float:
    """Return the number of reports at which `share` is the limit; infinite if none."""
    return (len(steps) + 1) * reports_needed(params, share, question)


def plan_open(
    budget: Budget,
    question: Question,
    n_reports: float,
    steps: tuple[int, ...],
    most_bits: int = MOST_BITS,
) -> OpenComparison:
    """Choose cells, cohorts and noise for steps.

    Parameters
    ----------
    question : Question
        By `open_question`.
    n_reports : float
        N, of all steps together.
    most_bits : int
        Largest k, of which a power of two is taken.

    Raises
    ------
    PlanError
        If no parameters are within the budget, or the best show nothing.
    """
    if most_bits < _FEWEST_BITS:
        raise PlanError(f"max-bits = {most_bits}: must be at least {_FEWEST_BITS} for open strings")
    n = n_reports / (len(steps) + 1)
    # Only where many prefixes can be told apart does the search find anything.
    fewest = _cohorts_that_tell(n)
    bits = [2**power for power in range(6, int(math.log2(most_bits)) + 1)]
    many = max(m for m in fewest if m <= 256) if min(fewest) <= 256 else min(fewest)

    def of_bits(k: int) -> float:
        return _limit(k, many, budget, question, n)

    k = fewest_near_best(bits, of_bits, _NEAR_BITS)
    m = fewest_near_best(fewest, lambda cohorts: _limit(k, cohorts, budget, question, n))
    params = _within(k, m, budget, question, n)
    best = make_open_plan("best", steps, params, n_reports, question)
    if best.limit == math.inf:
        raise PlanError(
            f"reports = {n_reports:,.0f}: too few to show any share at {len(steps) + 1} steps "
            "within the budget; collect more, or allow larger epsilons"
        )
    return OpenComparison(question, budget, best)


def plan_open_for_share(
    budget: Budget,
    question: Question,
    share: float,
    steps: tuple[int, ...],
    most_bits: int = MOST_BITS,
) -> OpenComparison:
    """Choose parameters that show a share from the fewest reports; otherwise as `plan_open`."""

    def needed_by_best(n_reports: float) -> float:
        params = plan_open(budget, question, n_reports, steps, most_bits).best.params
        return open_reports_needed(steps, params, share, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"share = {share:g}: no number of reports shows it within the budget")
    return plan_open(budget, question, math.ceil(needed), steps, most_bits)


def evaluate_open(
    steps: tuple[int, ...],
    params: RapporParams,
    question: Question,
    n_reports: float | None,
    share: float | None,
    most_bits: int = MOST_BITS,
) -> OpenComparison:
    """Compare given parameters, of one step, with the best of the same steps and epsilons.

    Parameters
    ----------
    n_reports : float, optional
        N; by default as many as the given parameters need to show `share`.

    Raises
    ------
    PlanError
        As `plan_open`, and if no number of reports shows the share.
    """
    if n_reports is None:
        wanted = share if share is not None else math.nan
        needed = open_reports_needed(steps, params, wanted, question)
        if math.isinf(needed):
            raise PlanError(f"share = {share}: no number of reports shows it with {params}")
        n_reports = math.ceil(needed)
    budget = Budget(params.epsilon_permanent, params.epsilon_report)
    planned = plan_open(budget, question, n_reports, steps, most_bits)
    return replace(planned, given=make_open_plan("given", steps, params, n_reports, question))


def open_params(metric: Metric) -> tuple[tuple[int, ...], RapporParams]:
    """Return the steps of an open string metric, and the parameters of one.

    Raises
    ------
    PlanError
        If it is of another type.
    """
    if not isinstance(metric.type, OpenStringType):
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be 'open-string' for --open"
        )
    return metric.type.steps, metric.type.step_params(metric.params)


def check_cohorts(steps: tuple[int, ...], m: int) -> None:
    """Refuse more cohorts a step than fit a report (raises PlanError)."""
    most = MOST_COHORTS // (len(steps) + 1)
    if m > most:
        raise PlanError(
            f"m = {m}: must be at most {most}, the cohorts of each of {len(steps) + 1} steps"
        )


def open_by_epsilon(found: OpenComparison) -> list[OpenPoint]:
    """Return limits over epsilons of a report, from a quarter of the budget's to four times."""
    best, spent = found.best, found.budget.report
    highest = min(4 * spent, found.budget.permanent)
    points = []
    for epsilon in np.geomspace(spent / 4, highest, _CURVE_POINTS).tolist():
        budget = Budget(found.budget.permanent, min(epsilon, found.budget.permanent))
        n, k, m = best.reports / best.n_steps, best.params.k, best.params.m
        listed = replace(found.question, candidates=_STRINGS)
        limits = (
            _limit(k, m, budget, found.question, n),
            _limit(k, m, budget, listed, best.reports),
        )
        points.append(OpenPoint(epsilon, *limits))
    return points


def open_by_reports(found: OpenComparison) -> list[OpenPoint]:
    """Return limits over N, from a hundredth of the plan's to a hundred times, at fixed noise."""
    best, points = found.best, []
    for n in np.geomspace(best.reports / 100, best.reports * 100, _CURVE_POINTS).tolist():
        plan = make_open_plan("", best.steps, best.params, n, found.question)
        points.append(OpenPoint(n, plan.limit, plan.if_listed))
    return points


def _cohorts_that_tell(n_reports: float) -> list[int]:
    """Return numbers of cohorts with which a step can tell apart what it looks at.

    Each has a hundred reports or more, if any number has.
    """
    fewest = fewest_cohorts(_FEWEST_BITS, 1, 0.05 / _LISTED)
    enough = [m for m in _COHORTS if m >= fewest]
    full = [m for m in enough if n_reports / m >= _FEWEST_REPORTS_A_COHORT]
    return full or enough[:1]


def _limit(k: int, m: int, budget: Budget, question: Question, n_reports: float) -> float:
    limit_at = limit_by_rate(k, 1, m, budget, question, n_reports)
    return limit_at(_rate(budget, limit_at))


def _rate(budget: Budget, limit_at: Callable[[float], float]) -> float:
    """Return the best q*; of one-time reports 1/2, whose variance is least (Wang et al. 2017)."""
    if budget.permanent == math.inf:
        return 0.5
    low, high = common_rates(1, budget)
    return min(max(best_rate(1, budget, limit_at), low), high)


def _within(k: int, m: int, budget: Budget, question: Question, n_reports: float) -> RapporParams:
    limit_at = limit_by_rate(k, 1, m, budget, question, n_reports)
    return params_within(k, 1, m, budget, _rate(budget, limit_at))
