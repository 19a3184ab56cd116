"""Goals side by side: two groups of reports, and modes and responses for one epsilon.

A difference wraps the goal of what is compared, whose responses, search and entry it keeps; its
limit is the least difference that the comparison of N reports in each group finds. Each mode is a
goal with a schedule and a budget, searched like any other plan. Invariants: thresholds are those of
`hubbub.inference.comparison`, for a row that is the only one that differs; all modes have the same
clients, so the table compares what the same people would give for the same epsilon.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import optimize, special

from hubbub.inference import (
    AlwaysValid,
    FixedSample,
    PlanError,
    SequentialTest,
    number_scale,
    share_scale,
)
from hubbub.planning.categories import CategoriesGoal, NumberGoal, listed_goal, mean_goal
from hubbub.planning.cells import MOST_REPORTS, CellErrors
from hubbub.planning.goals import (
    A_YEAR,
    Goal,
    Plan,
    PlanSearch,
    Schedule,
    SearchSpace,
    limit_finding,
)
from hubbub.planning.histories import right_links, value_ratio
from hubbub.planning.limits import DetectionTest, detection_limit, string_errors
from hubbub.planning.noise import Budget, subset_of, subset_variance, widest_variance
from hubbub.planning.search import USUAL_BITS, make_plan, plan
from hubbub.planning.strings import StringsGoal, string_params
from hubbub.protocol import EnumType, Metric, NumberType, OrdinalType, RapporParams, Response
from hubbub.reporting import Finding, Types

USUAL_ROWS = 20
"""Strings that are compared, unless somebody knows better."""
_LEAST, _STEPS, _CLOSE = 1e-6, 30, 1e-6
"""The least difference that is tried, and the steps from there; how close the found one is."""


@dataclass(frozen=True, slots=True)
class DifferenceGoal(Goal):
    """The least difference that is found between two groups of N reports each."""

    of: Goal  # what is compared
    # The control's share of the value that differs; for numbers the worst population is assumed.
    share: float
    sequential: bool  # whether the comparison may be looked at every day
    sought: ClassVar[str] = "A difference of"

    @property
    def groups(self) -> int:
        """The groups of the compared goal."""
        return self.of.groups

    def over(self, reports_each: float) -> Self:
        """Return the goal if each client makes so many reports of a permanent response."""
        test = replace(self.test, reports_each=reports_each)
        return replace(self, test=test, of=self.of.over(reports_each))

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of a difference of 0."""
        return self._error(params, n_reports, 0.0)

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which a difference is found at this look."""
        z = self._needed_z(params, n_reports, share)
        found = float(special.ndtr(share / self._error(params, n_reports, share) - z))
        if isinstance(self.of, StringsGoal):  # which are first detected in both groups together
            clients, pooled = 2 * self.clients(n_reports), self.share + share / 2
            found *= _chance_of_detection(params, clients, pooled, self.of.test)
        return found

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the least difference that is found with the power; infinite if none."""

        def missing(difference: float) -> float:
            return self.test.power - self.power(params, n_reports, difference)

        low = 0.0
        for high in np.geomspace(_LEAST, 1.0 - self.share, _STEPS).tolist():
            if missing(high) <= 0:
                return float(optimize.brentq(missing, low, high, xtol=_LEAST, rtol=_CLOSE))
            low = high
        return math.inf

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return how many reports in each group find a difference."""

        def missing(log_reports: float) -> float:
            return self.test.power - self.power(params, math.exp(log_reports), share)

        high = math.log(MOST_REPORTS)
        if share > 1 - self.share or missing(high) > 0:
            return math.inf
        return math.exp(optimize.brentq(missing, math.log(10), high, xtol=1e-6))

    def _needed_z(self, params: RapporParams, n_reports: float, difference: float) -> float:
        error = np.array(self._error(params, n_reports, difference))
        return float(self._looks(params).critical_z(math.log(self.test.level), error))

    def _looks(self, params: RapporParams) -> SequentialTest:
        if not self.sequential:
            return FixedSample()
        if isinstance(self.of, NumberGoal):
            return AlwaysValid(number_scale(self.of.response(params)))
        return AlwaysValid(share_scale(params))

    def _error(self, params: RapporParams, n_reports: float, difference: float) -> float:
        both = sum(self._variance(params, self.share + more) for more in (0.0, difference))
        return math.sqrt(both / self.clients(n_reports))

    def _variance(self, params: RapporParams, share: float) -> float:
        """Return the variance of a share, or a mean, times the number of clients."""
        each = self.test.reports_each
        if isinstance(self.of, NumberGoal):
            return widest_variance(self.of.response(params))
        if isinstance(self.of, CategoriesGoal):
            if self.of.by_subset:
                return subset_variance(subset_of(params, self.of.categories), share)
            return CellErrors(params, self.of.categories, each).of_cell(share) ** 2
        # Unlisted strings set the same bits in both groups, so it doesn't scatter differences.
        # But each string that is fitted takes one of the k m bit rates from the others.
        known = replace(self.of.test, concentration=0.0)
        left = 1 - self.test.candidates / (params.k * params.m)
        variance = string_errors(params, 1.0, share, known).present ** 2
        return variance / left if left > 0 else math.inf

    def response(self, params: RapporParams) -> Response:
        """Return that of what is compared."""
        return self.of.response(params)

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:
        """Return those of what is compared."""
        spaces = self.of.spaces(budget, n_reports, most_bits)
        return [replace(each, rate=None) for each in spaces]  # known for absent values

    def exact(self, budget: Budget) -> RapporParams | None:
        """Return those of what is compared."""
        return self.of.exact(budget)

    def asked(self, found: PlanSearch) -> Mapping[str, object]:
        """Return what is compared, and how."""
        test = self.test
        return {
            **self.of.asked(found),
            "rows": test.candidates,
            "control": self.share,
            "alpha": test.alpha,
            "power": test.power,
            "sequential": self.sequential,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Least difference between two groups of {reports} reports each"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which difference is found, and how."""
        what = "the mean, in parts of the range,"
        if not isinstance(self.of, NumberGoal):
            what = f"a value that {self.share:.3%} of the control have"
        size = f"A difference of {plan.limit:.3%}" if plan.limit < math.inf else "No difference"
        return limit_finding(
            plan,
            f"{size} in {what} is found with probability {self.test.power:g} from "
            f"{plan.reports:,.0f} reports in each group, among {self.test.candidates:,.0f} rows "
            f"(false discovery rate {self.test.alpha:g}) even if no other row differs.",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what looking every day costs."""
        subject = found.subject
        if not self.sequential or subject.limit == math.inf:
            return
        once = replace(self, sequential=False)
        needed = once.reports_needed(subject.params, subject.limit)
        text = (
            "You may look every day and stop when you like: the difference is found by then "
            "with this probability, and often earlier. A single look, at a time fixed in advance, "
            f"needs {needed:,.0f} reports in each group, {needed / subject.reports:.0%} of these."
        )
        yield Finding("one_look_reports", "", text, needed)

    def oue_ratio(self, params: RapporParams) -> float:
        """Return that of what is compared."""
        return self.of.oue_ratio(params)

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return those of what is compared."""
        return self.of.all_bits(params)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return that of what is compared."""
        return self.of.entry(params, name)


@functools.lru_cache(maxsize=256)
def _detection_limit(
    params: RapporParams, n_clients: float, test: DetectionTest
) -> tuple[float, float]:
    limit = detection_limit(params, n_clients, test)
    if limit == math.inf:
        return limit, math.nan
    return limit, string_errors(params, n_clients, limit, test).present


def _chance_of_detection(
    params: RapporParams, n_clients: float, share: float, test: DetectionTest
) -> float:
    limit, error = _detection_limit(params, n_clients, test)
    if limit == math.inf:
        return 0.0
    return float(special.ndtr((share - limit) / error + special.ndtri(test.power)))


def difference_goal(
    metric: Metric,
    share: float,
    *,
    rows: float | None = None,
    candidates: float = 1e4,
    alpha: float = 0.05,
    power: float = 0.8,
    sequential: bool = False,
) -> DifferenceGoal:
    """Return the goal of a difference between two groups of a metric's reports.

    `share` is that of the differing value in the control; `rows` by default all categories, all
    statistics, or 20 strings. Raises `PlanError` if metrics of its type aren't compared.
    """
    if isinstance(metric.type, NumberType):
        of: Goal = mean_goal(metric, alpha, power)
        return DifferenceGoal(DetectionTest(rows or of.groups, alpha, power), of, 0.0, sequential)
    if not 0 <= share < 1:
        raise PlanError(f"share = {share:g}: must be at least 0 and below 1")
    if isinstance(metric.type, EnumType | OrdinalType):
        listed = listed_goal(metric, alpha, power)
        test = DetectionTest(rows or listed.categories, alpha, power)
        return DifferenceGoal(test, listed, share, sequential)
    if metric.type.width is not None:
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be 'string', 'enum', "
            "'ordinal' or 'number' for a comparison to be planned"
        )
    string_params(metric)
    of = StringsGoal(DetectionTest(candidates, alpha))
    return DifferenceGoal(DetectionTest(rows or USUAL_ROWS, alpha, power), of, share, sequential)


USUAL_PART = 4
"""One report of several spends a quarter of all together, as in the RAPPOR paper's experiments."""


def response_name(goal: Goal) -> str:
    """Return the name of a goal's response."""
    if isinstance(goal, NumberGoal):
        return "window"
    return "subset" if isinstance(goal, CategoriesGoal) and goal.by_subset else "unary"


def _by_mode(
    goal: Goal, epsilon: float, schedule: Schedule, epsilon_report: float | None
) -> Iterator[tuple[Goal, Budget]]:
    """Yield all ways to spend an epsilon on a goal, those of mode "once" first."""
    if isinstance(goal, StringsGoal):
        goal = replace(goal, hashes=(1,))  # which wins in every mode (docs/understand/planning.md)
    responses = [goal]
    if isinstance(goal, CategoriesGoal):
        responses.append(replace(goal, by_subset=True))
    for mode in ("once", "one-time"):
        for each in responses:
            yield replace(each, schedule=replace(schedule, mode=mode)), Budget(math.inf, epsilon)
    if isinstance(goal, NumberGoal):  # which has no permanent response
        return
    spent = epsilon / USUAL_PART if epsilon_report is None else epsilon_report
    budget, each = Budget(epsilon, spent, schedule.reports_each), goal.over(schedule.reports_each)
    for memory in ("period", "value"):
        of_memory = replace(schedule, mode="longitudinal", memory=memory)
        yield replace(each, schedule=of_memory), budget


def compare_modes(
    goal: Goal,
    epsilon: float,
    schedule: Schedule,
    *,
    epsilon_report: float | None = None,
    n_clients: float | None = None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = USUAL_BITS,
) -> PlanSearch:
    """Search for the best parameters of each mode and response, and choose the best of mode "once".

    `epsilon` is that of one answer: of a report where there is one, of all together else.
    `epsilon_report`: of one of several, by default a quarter. By default `n_clients` are the fewest
    whose reports of a period, one each, show `share` or have `std_error`. Raises `PlanError` as
    `search.plan`, of mode "once"; other modes are then left out.
    """
    options = list(_by_mode(goal, epsilon, schedule, epsilon_report))
    recommended = [each for each in options if _schedule(each[0]).mode == "once"]
    if n_clients is None:
        wanted: dict[str, Any] = {"share": share, "std_error": std_error, "most_bits": most_bits}
        n_clients = min(plan(*each, **wanted).best.reports for each in recommended)
    searched: dict[tuple[Goal, Budget], RapporParams] = {}
    plans: list[Plan] = []
    refusal: PlanError | None = None
    for of_mode, budget in options:
        own = _schedule(of_mode)
        key = (replace(of_mode, schedule=None), budget)
        reports = n_clients * own.reports_of_an_answer
        memory = f" ({own.memory})" if own.mode == "longitudinal" else ""
        name = f"{own.mode}{memory}, {response_name(of_mode)}"
        try:
            if key not in searched:
                searched[key] = plan(*key, n_reports=reports, most_bits=most_bits).best.params
            plans.append(make_plan(of_mode, name, searched[key], reports))
        except PlanError as error:
            refusal = refusal or error
    best = [each for each in plans if _schedule(each.goal).mode == "once"]
    if not best:
        assert refusal is not None  # noqa: S101 - all were refused
        raise refusal
    chosen = min(best, key=lambda each: (each.std_error, each.limit))
    alternatives = tuple(each for each in plans if each is not chosen)
    return PlanSearch(recommended[0][1], chosen, alternatives)


MODE_COLUMNS: Types = {
    **dict.fromkeys(("mode", "memory", "response"), str),
    **dict.fromkeys(("error_day", "error_period", "error_year"), float),
    **dict.fromkeys(("epsilon_period", "epsilon_year", "epsilon_life"), float),
    **dict.fromkeys(("linked_share", "value_ratio"), float),
}
"""Standard errors are from the reports of so many days, and nan if the mode leaves these open;
epsilons are what a client reveals of an answer, in a year of one value, and ever; `linked_share` is
the share of two days' reports that are rightly linked by content, nan without a permanent response;
`value_ratio` how much likelier two periods' reports are of one client, nan but for mode "once"."""


def mode_figures(each: Plan, clients: float) -> dict[str, Any]:
    """Return what a plan with a schedule achieves and reveals; all plans have N clients."""
    goal, params = each.goal, each.params
    schedule = _schedule(goal)

    def error(days: float) -> float:
        collected = schedule.collected(clients, days)
        if collected is None:
            return math.nan
        return goal.over(collected.each).error(params, collected.reports)

    def spent(reports: int) -> float:
        return goal.epsilon_after(params, reports)

    links = ratio = math.nan
    if schedule.mode == "longitudinal":
        links = right_links(*goal.all_bits(params), max(round(clients), 1))
    elif schedule.mode == "once":
        ratio = value_ratio(spent(1))
    return {
        "mode": schedule.mode,
        "memory": schedule.memory if schedule.mode == "longitudinal" else "",
        "response": response_name(goal),
        "error_day": error(1),
        "error_period": error(schedule.period_days),
        "error_year": error(A_YEAR),
        "epsilon_period": spent(schedule.reports_of_an_answer),
        "epsilon_year": schedule.epsilon(spent, A_YEAR),
        "epsilon_life": schedule.epsilon_of_life(spent),
        "linked_share": links,
        "value_ratio": ratio,
    }


def _schedule(goal: Goal) -> Schedule:
    assert goal.schedule is not None  # noqa: S101 - of all options
    return goal.schedule
