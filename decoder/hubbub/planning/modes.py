"""Ways to ask for one epsilon, side by side: modes and responses.

Each mode is a goal with a schedule and a budget, searched like any other plan. Invariant: all modes
have the same clients, so the table compares what the same people would give for the same epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hubbub.inference import PlanError
from hubbub.planning.categories import CategoriesGoal, NumberGoal
from hubbub.planning.goals import A_YEAR, Goal, Plan, PlanSearch, Schedule
from hubbub.planning.histories import linked_clients, value_ratio
from hubbub.planning.noise import Budget
from hubbub.planning.search import USUAL_BITS, make_plan, plan
from hubbub.reporting import Types

USUAL_PART = 4
"""One report of several spends a quarter of all together, as in the RAPPOR paper's experiments."""


def response_name(goal: Goal) -> str:
    """Return the name of a goal's response."""
    if isinstance(goal, NumberGoal):
        return "window"
    return "subset" if isinstance(goal, CategoriesGoal) and goal.by_subset else "unary"


def _ways(
    goal: Goal, epsilon: float, schedule: Schedule
) -> Iterator[tuple[Goal, Budget, Sequence[Schedule]]]:
    """Yield all ways to spend an epsilon on a goal, with the schedules that parameters serve."""
    responses = [goal]
    if isinstance(goal, CategoriesGoal):
        responses.append(replace(goal, by_subset=True))
    single = [replace(schedule, mode=mode) for mode in ("once", "one-time")]
    for each in responses:
        yield each, Budget(math.inf, epsilon), single
    if isinstance(goal, NumberGoal):  # which has no permanent response
        return
    repeated = [
        replace(schedule, mode="longitudinal", memory=memory) for memory in ("period", "value")
    ]
    budget = Budget(epsilon, epsilon / USUAL_PART, schedule.period_days)
    yield goal.over(schedule.period_days), budget, repeated


def compare_modes(
    goal: Goal,
    epsilon: float,
    schedule: Schedule,
    *,
    n_clients: float | None = None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = USUAL_BITS,
) -> PlanSearch:
    """Search for the best parameters of each mode and response, and choose the best of mode "once".

    `epsilon` is that of one answer: of a report where there is one, of all together else. By
    default `n_clients` are the fewest whose reports of a period, one each, show `share` or have
    `std_error`. Raises `PlanError` as `search.plan`, of mode "once"; other modes are then left out.
    """
    ways = list(_ways(goal, epsilon, schedule))
    if n_clients is None:
        wanted: dict[str, Any] = {"share": share, "std_error": std_error, "most_bits": most_bits}
        n_clients = min(
            plan(each, budget, **wanted).best.reports
            for each, budget, schedules in ways
            if schedules[0].mode == "once"
        )
    by_mode: dict[str, list[Plan]] = {mode: [] for mode in ("once", "one-time", "longitudinal")}
    refusal: PlanError | None = None
    for of_way, budget, schedules in ways:
        reports = n_clients * schedules[0].reports_of_an_answer
        try:
            params = plan(of_way, budget, n_reports=reports, most_bits=most_bits).best.params
        except PlanError as error:
            refusal = refusal or error
            continue
        for own in schedules:
            memory = f" ({own.memory})" if own.mode == "longitudinal" else ""
            name = f"{own.mode}{memory}, {response_name(of_way)}"
            of_mode = replace(of_way, schedule=own)
            by_mode[own.mode].append(make_plan(of_mode, name, params, reports))
    if not by_mode["once"]:
        assert refusal is not None  # noqa: S101 - all were refused
        raise refusal
    best = min(by_mode["once"], key=lambda each: (each.std_error, each.limit))
    others = tuple(each for plans in by_mode.values() for each in plans if each is not best)
    return PlanSearch(ways[0][1], best, others)


MODE_COLUMNS: Types = {
    **dict.fromkeys(("mode", "memory", "response"), str),
    **dict.fromkeys(("error_day", "error_period", "error_year"), float),
    **dict.fromkeys(("epsilon_period", "epsilon_year", "epsilon_life"), float),
    **dict.fromkeys(("linked_clients", "value_ratio"), float),
}
"""Standard errors are from the reports of so many days, and nan if the mode leaves these open;
epsilons are what a client reveals of an answer, in a year of one value, and ever; among up to
`linked_clients` most links of two days by content are right, nan without a permanent response;
`value_ratio` is how much likelier two periods' reports are of one client, nan but for mode "once".
"""


def mode_figures(each: Plan, schedule: Schedule, clients: float) -> dict[str, Any]:
    """Return what a plan with a schedule achieves and reveals; all plans have N clients."""
    goal, params = each.goal, each.params

    def error(days: float) -> float:
        collected = schedule.collected(clients, days)
        if collected is None:
            return math.nan
        return goal.over(collected.each).error(params, collected.reports)

    def spent(reports: int) -> float:
        return goal.epsilon_after(params, reports)

    links = ratio = math.nan
    if schedule.mode == "longitudinal":
        links = linked_clients(*goal.all_bits(params))
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
        "linked_clients": links,
        "value_ratio": ratio,
    }
