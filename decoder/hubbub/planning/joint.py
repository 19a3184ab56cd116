"""Parameters of a table of several fields, and how well it will be known.

Cells have a bit each while they fit, and are hashed otherwise; noise is the least that both
epsilons allow. Invariant: the tuple is one value, so both epsilons are those of a string with as
many hashes, whichever field changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hubbub.decoder.errors import PlanError
from hubbub.planning.noise import (
    Budget,
    common_rates,
    count_variance,
    exact_params,
    oue_variance,
    params_within,
    rare_rate,
)
from hubbub.planning.search import best_params, settled_reports
from hubbub.planning.tables import (
    MOST_REPORTS,
    TableErrors,
    TableQuestion,
    association_limit,
    cell_error,
    cell_limit,
    cell_reports_needed,
    error_reports_needed,
    expected_total_variation,
    is_hashed,
)
from hubbub.protocol.metric_types.joint import (
    JointType,
    number_of_values,
)
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_BITS, RapporParams

GIVEN_SHARE = 0.1
"""Of the clients: who are asked about where conditional shares are."""

_CURVE_POINTS = 25


@dataclass(frozen=True, slots=True)
class JointPlan:
    """Parameters of a joint metric, and what they achieve.

    Attributes
    ----------
    hashed : bool
        Whether the cells are hashed; otherwise each has a bit.
    reports : float
        N.
    limit : float
        Share of a cell that N reports show with the question's power; infinite if none.
    std_error : float
        Of the share of a cell that nobody is in.
    margins : tuple of float
        Standard errors of a value's share of each field, if nobody has it; none if hashed.
    conditional : float
        Standard error of an average value of the last field among those with a value of the first
        that `GIVEN_SHARE` have; nan if hashed.
    total_variation : float
        Expected, of the possible table nearest to the estimates from the typical one; nan if
        hashed.
    association : float
        Share of clients with a partner value that the test of independence finds with the
        question's power (see `partner_table`); nan if hashed or of three fields, infinite if none.
    """

    name: str
    params: RapporParams
    hashed: bool
    reports: float
    limit: float
    std_error: float
    margins: tuple[float, ...] = ()
    conditional: float = math.nan
    total_variation: float = math.nan
    association: float = math.nan

    @property
    def oue_ratio(self) -> float:
        """As `search.Plan` has it."""
        return count_variance(self.params) / oue_variance(self.params.epsilon_report)


class Split(NamedTuple):
    """Fields that share the epsilons instead, an equal part each.

    Attributes
    ----------
    margins : tuple of float
        Standard errors of a value's share of each field that nobody has, as metrics apart.
    cell_ratio : float
        How much more an empty cell's estimate varies if each report has all fields side by side.
    """

    margins: tuple[float, ...]
    cell_ratio: float


@dataclass(frozen=True, slots=True)
class JointComparison:
    """What was planned.

    Attributes
    ----------
    split : Split
        What the fields would be at the best plan's reports, if they had parts of the epsilons.
    given : JointPlan or None
        Parameters that were to be evaluated; the budget is what they spend.
    """

    question: TableQuestion
    budget: Budget
    best: JointPlan
    split: Split
    given: JointPlan | None = None


class JointPoint(NamedTuple):
    """Of a cell, at one epsilon or number of reports."""

    at: float
    limit: float
    std_error: float


def make_joint_plan(
    name: str, params: RapporParams, n_reports: float, question: TableQuestion
) -> JointPlan:
    """Return parameters with what they achieve.

    Raises
    ------
    PlanError
        If there are hashes or cohorts although each cell has a bit, or more reports than can be
        drawn.
    """
    if n_reports > MOST_REPORTS:
        raise PlanError(f"reports = {n_reports:g}: must be at most {MOST_REPORTS:g} for a table")
    hashed = is_hashed(params, question)
    limit = cell_limit(params, n_reports, question)
    std_error = cell_error(params, n_reports, question)
    if hashed:
        return JointPlan(name, params, hashed, n_reports, limit, std_error)
    errors = TableErrors(params, question.cells)
    first, last = question.sizes[0], question.sizes[-1]
    scale = 1 / math.sqrt(n_reports)
    return JointPlan(
        name,
        params,
        hashed,
        n_reports,
        limit,
        std_error,
        margins=tuple(scale * errors.of_margin(size) for size in question.sizes),
        conditional=scale * errors.of_conditional(first, last, GIVEN_SHARE, 1 / last),
        total_variation=expected_total_variation(params, n_reports, question.sizes),
        association=association_limit(params, n_reports, question),
    )


def plan_joint(
    budget: Budget, question: TableQuestion, n_reports: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters: a bit a cell if there are so many, with the least noise; else hashes.

    Parameters
    ----------
    n_reports : float
        N.
    most_bits : int
        Largest k.

    Raises
    ------
    PlanError
        If no parameters are within the budget, or they show nothing.
    """
    params = _params(budget, question, n_reports, most_bits)
    best = make_joint_plan("best", params, n_reports, question)
    if best.limit == math.inf:
        raise PlanError(
            f"reports = {n_reports:,.0f}: too few to show any of {question.cells:,} cells within "
            "the budget; collect more, or allow larger epsilons"
        )
    return JointComparison(question, budget, best, _split(budget, question, n_reports))


def plan_joint_for_share(
    budget: Budget, question: TableQuestion, share: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters that show a cell's share from the fewest reports."""

    def needed_by_best(n_reports: float) -> float:
        params = _params(budget, question, n_reports, most_bits)
        return cell_reports_needed(params, share, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"share = {share:g}: no number of reports shows it within the budget")
    return plan_joint(budget, question, math.ceil(needed), most_bits)


def plan_joint_for_error(
    budget: Budget, question: TableQuestion, std_error: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters that estimate a rare cell with an error from the fewest reports."""

    def needed_by_best(n_reports: float) -> float:
        params = _params(budget, question, n_reports, most_bits)
        return error_reports_needed(params, std_error, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"error = {std_error:g}: no number of reports has it within the budget")
    return plan_joint(budget, question, math.ceil(needed), most_bits)


def evaluate_joint(
    params: RapporParams,
    question: TableQuestion,
    n_reports: float | None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = MOST_BITS,
) -> JointComparison:
    """Compare given parameters with the best at the epsilons that they spend.

    Parameters
    ----------
    n_reports : float, optional
        N; by default as many as the given parameters need for `share` or else `std_error`.

    Raises
    ------
    PlanError
        As `plan_joint`, and if no number of reports is enough.
    """
    if n_reports is None:
        wanted = f"share = {share}" if share is not None else f"error = {std_error}"
        if share is not None:
            needed = cell_reports_needed(params, share, question)
        else:
            needed = error_reports_needed(params, std_error or 0.0, question)
        if math.isinf(needed):
            raise PlanError(f"{wanted}: no number of reports has it with {params}")
        n_reports = math.ceil(needed)
    budget = Budget(params.epsilon_permanent, params.epsilon_report)
    given = make_joint_plan("given", params, n_reports, question)
    return replace(plan_joint(budget, question, n_reports, most_bits), given=given)


def joint_question(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> TableQuestion:
    """Return the question about the table of a joint metric.

    Raises
    ------
    PlanError
        If it is of another type, or has a field of strings, which have no number.
    """
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    if not isinstance(metric.type, JointType):
        raise PlanError(
            f"{what}: must be 'joint', or a type of strings with --candidates or --open"
        )
    sizes = tuple(number_of_values(field.type) for field in metric.type.fields)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise PlanError(
            f"{what}: has a field of strings, so there are as many cells as tuples that are looked "
            "for; give --candidates"
        )
    return TableQuestion(known, alpha, power)


def joint_by_epsilon(found: JointComparison) -> list[JointPoint]:
    """Return errors over epsilons of a report, from a quarter of the budget's to four times."""
    best, spent = found.best, found.budget.report
    highest = min(4 * spent, found.budget.permanent)
    points = []
    for epsilon in np.geomspace(spent / 4, highest, _CURVE_POINTS).tolist():
        budget = Budget(found.budget.permanent, min(epsilon, found.budget.permanent))
        params = exact_params(*best.params[:3], budget, least_noise_rate(budget))
        points.append(_point(epsilon, params, best.reports, found.question))
    return points


def joint_by_reports(found: JointComparison) -> list[JointPoint]:
    """Return errors over N, from a hundredth of the plan's to a hundred times, at fixed noise."""
    best = found.best
    reports = np.geomspace(best.reports / 100, best.reports * 100, _CURVE_POINTS).tolist()
    return [_point(n, best.params, n, found.question) for n in reports]


def least_noise_rate(budget: Budget) -> float:
    """Return the q* of the least variance of an empty cell within a budget.

    That is 1/2 (Wang et al. 2017, section 4.3), or what is nearest to it among those that can be.
    """
    low, high = common_rates(1, budget)
    return min(max(0.5, low), high)


def _params(
    budget: Budget, question: TableQuestion, n_reports: float, most_bits: int
) -> RapporParams:
    if question.cells <= most_bits:
        k = -(-question.cells // 8) * 8
        return params_within(k, 1, 1, budget, least_noise_rate(budget))
    return best_params(1, budget, question.of_strings, n_reports, most_bits)


def _point(
    at: float, params: RapporParams, n_reports: float, question: TableQuestion
) -> JointPoint:
    limit = cell_limit(params, n_reports, question)
    return JointPoint(at, limit, cell_error(params, n_reports, question))


def _split(budget: Budget, question: TableQuestion, n_reports: float) -> Split:
    """Return what fields with equal parts of the epsilons would be."""
    fields = len(question.sizes)
    part = Budget(budget.permanent / fields, budget.report / fields)
    apart, together = (_least_variance(each) for each in (part, budget))
    # Of a field's values that have a bit each, the sum is known (see TableErrors).
    margins = (math.sqrt(apart * (1 - 1 / size) / n_reports) for size in question.sizes)
    return Split(tuple(margins), apart**fields / together)


def _least_variance(budget: Budget) -> float:
    """Return N times the least variance of an empty cell's share."""
    q_star = least_noise_rate(budget)
    p_star = rare_rate(1, budget.report, q_star)
    return p_star * (1 - p_star) / (q_star - p_star) ** 2
