"""Modes and responses side by side: one epsilon, spent once a period, once for life, or daily.

Each option is a goal with a schedule and a budget, and each is searched like any other plan; what
differs is how many reports some days have, and what they reveal. Invariant: all options have the
same clients, so the table compares what the same people would give for the same epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hubbub.inference.errors import PlanError
from hubbub.planning.categories import CategoriesGoal
from hubbub.planning.goals import A_YEAR, Goal, Plan, PlanSearch, Schedule
from hubbub.planning.histories import right_links, value_ratio
from hubbub.planning.noise import Budget
from hubbub.planning.numbers import NumberGoal
from hubbub.planning.search import USUAL_BITS, make_plan, plan
from hubbub.planning.strings import StringsGoal
from hubbub.protocol.params import RapporParams
from hubbub.reporting.estimates import Types

USUAL_PART = 4
"""One report of several spends a quarter of all together, as in the RAPPOR paper's experiments."""


@dataclass(frozen=True, slots=True)
class PlanOption:
    """A goal with a schedule, and what it may spend."""

    goal: Goal
    budget: Budget

    @property
    def name(self) -> str:
        """What tells it from the others."""
        schedule = self.goal.schedule
        assert schedule is not None  # noqa: S101 - of all options
        memory = f" ({schedule.memory})" if schedule.mode == "longitudinal" else ""
        return f"{schedule.mode}{memory}, {response_name(self.goal)}"


def response_name(goal: Goal) -> str:
    """Return the name of a goal's response."""
    if isinstance(goal, NumberGoal):
        return "window"
    return "subset" if isinstance(goal, CategoriesGoal) and goal.by_subset else "unary"


def plan_options(
    goal: Goal, epsilon: float, schedule: Schedule, epsilon_report: float | None = None
) -> Sequence[PlanOption]:
    """Return all ways to spend an epsilon on a goal, those of mode "once" first.

    `epsilon` is that of one answer: of a report where there is one, of all together else.
    `epsilon_report`: of one of several, by default a quarter.
    """
    if isinstance(goal, StringsGoal):
        goal = replace(goal, hashes=(1,))  # which wins in every mode (docs/understand/planning.md)
    once = Budget(math.inf, epsilon)
    spent = epsilon / USUAL_PART if epsilon_report is None else epsilon_report
    many = Budget(epsilon, spent, schedule.reports_each)
    found = []
    for mode in ("once", "one-time"):
        of_mode = replace(schedule, mode=mode)
        found += [PlanOption(replace(each, schedule=of_mode), once) for each in _by_response(goal)]
    if not isinstance(goal, NumberGoal):  # which has no permanent response
        each = goal.over(schedule.reports_each)
        for memory in ("period", "value"):
            of_memory = replace(schedule, mode="longitudinal", memory=memory)
            found.append(PlanOption(replace(each, schedule=of_memory), many))
    return found


def _by_response(goal: Goal) -> Iterator[Goal]:
    yield goal
    if isinstance(goal, CategoriesGoal):
        yield replace(goal, by_subset=True)


def compare(
    options: Sequence[PlanOption],
    *,
    n_clients: float | None = None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = USUAL_BITS,
) -> PlanSearch:
    """Search for the best parameters of each option, and choose the best of mode "once".

    By default `n_clients` are the fewest whose reports of a period, one each, show `share` or have
    `std_error`. Raises `PlanError` as `search.plan`, of mode "once"; other options are then left
    out.
    """
    recommended = [option for option in options if _schedule(option.goal).mode == "once"]
    if n_clients is None:
        needed = [
            plan(each.goal, each.budget, share=share, std_error=std_error, most_bits=most_bits).best
            for each in recommended
        ]
        n_clients = min(each.reports for each in needed)
    searched: dict[tuple[Goal, Budget], RapporParams] = {}
    plans: dict[str, Plan] = {}
    refusal: PlanError | None = None
    for option in options:
        schedule = _schedule(option.goal)
        key = (replace(option.goal, schedule=None), option.budget)
        reports = n_clients * schedule.reports_of_an_answer
        try:
            if key not in searched:
                found = plan(*key, n_reports=reports, most_bits=most_bits)
                searched[key] = found.best.params
            plans[option.name] = make_plan(option.goal, option.name, searched[key], reports)
        except PlanError as error:
            refusal = refusal or error
    best = [plans[option.name] for option in recommended if option.name in plans]
    if not best:
        assert refusal is not None  # noqa: S101 - all were refused
        raise refusal
    chosen = min(best, key=lambda each: (each.std_error, each.limit))
    alternatives = tuple(each for each in plans.values() if each is not chosen)
    return PlanSearch(recommended[0].budget, chosen, alternatives)


class ModeFigures(NamedTuple):
    """What a plan with a schedule achieves and reveals."""

    mode: str  # the schedule's mode, and for "longitudinal" its memory; the response's name
    memory: str
    response: str
    # Standard errors from the reports of so many days; nan if the mode leaves these open.
    error_day: float
    error_period: float
    error_year: float
    epsilon_period: float  # what a client reveals of an answer, in a year of one value, and ever
    epsilon_year: float
    epsilon_life: float
    # Share of two days' reports that are rightly linked by content; nan without a permanent
    # response.
    linked_share: float
    # How much likelier two periods' reports are of one client; nan in other modes than "once".
    value_ratio: float


COLUMNS: Types = {
    name: str if name in ("mode", "memory", "response") else float for name in ModeFigures._fields
}


def figures(each: Plan, clients: float) -> ModeFigures:
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
    return ModeFigures(
        mode=schedule.mode,
        memory=schedule.memory if schedule.mode == "longitudinal" else "",
        response=response_name(goal),
        error_day=error(1),
        error_period=error(schedule.period_days),
        error_year=error(A_YEAR),
        epsilon_period=spent(schedule.reports_of_an_answer),
        epsilon_year=schedule.epsilon(spent, A_YEAR),
        epsilon_life=schedule.epsilon_of_life(spent),
        linked_share=links,
        value_ratio=ratio,
    )


def _schedule(goal: Goal) -> Schedule:
    assert goal.schedule is not None  # noqa: S101 - of all options
    return goal.schedule
