"""What holds for every goal: the budget is kept, laws of its limit, fewest reports, curves."""

import math
from functools import cache

import pytest

from hubbub.planning import (
    Budget,
    DetectionTest,
    Goal,
    OpenGoal,
    PlanSearch,
    StringsGoal,
    open_test,
    plan,
    table_goal,
)

ONE_TIME, LIFELONG = Budget(math.inf, 4.0), Budget(6.0, 3.0)
BUDGETS = [ONE_TIME, LIFELONG, Budget(math.inf, 0.5), Budget(2.0, 2.0)]
GOALS: dict[str, Goal] = {
    "listed": StringsGoal(DetectionTest(1e4)),
    "open": OpenGoal(open_test(), (4, 7)),
    "bit per cell": table_goal((6, 4)),
    "hashed cells": table_goal((100, 100)),
}
goals = pytest.mark.parametrize("name", GOALS)
budgets = pytest.mark.parametrize("budget", BUDGETS, ids=str)


@cache
def planned(name: str, budget: Budget = ONE_TIME, n_reports: float = 1e6) -> PlanSearch:
    return plan(GOALS[name], budget, n_reports=n_reports, most_bits=256)


@goals
@budgets
def test_every_plan_keeps_the_budget_and_the_most_bits(name, budget):
    found = planned(name, budget, 1e8)
    for each in found.plans:
        assert each.params.k <= 256
        assert each.params.epsilon_report <= budget.report
        assert each.params.epsilon_permanent <= budget.permanent
    assert found.best.params.epsilon_report > 0.998 * budget.report


@goals
@pytest.mark.parametrize("budget", [ONE_TIME, LIFELONG], ids=str)
def test_limit_power_and_reports_are_one_law(name, budget):
    """The limit is found with the power, and is the limit of the reports that it needs."""
    goal, best = GOALS[name], planned(name, budget).best
    found = goal.power(best.params, 1e6, best.limit)
    assert found == pytest.approx(goal.test.power, abs=1e-4)
    assert goal.power(best.params, 1e6, best.limit / 2) < found
    needed = goal.reports_needed(best.params, best.limit)
    assert needed == pytest.approx(1e6, rel=0.05)  # a bit's limit falls in jumps
    assert goal.limit(best.params, needed) <= best.limit * (1 + 1e-6)
    assert goal.error(best.params, 4e6) == pytest.approx(best.std_error / 2)


@goals
def test_a_share_or_an_error_gets_the_fewest_reports(name):
    """Up to a jump of k or m, which the fewest reports and the best parameters may lie around."""
    goal = GOALS[name]
    by_share = plan(goal, ONE_TIME, share=0.005, most_bits=256).best
    assert by_share.limit == pytest.approx(0.005, rel=0.01)
    assert goal.limit(by_share.params, 0.9 * by_share.reports) > 0.005
    by_error = plan(goal, ONE_TIME, std_error=0.001, most_bits=256).best
    assert by_error.std_error == pytest.approx(0.001, rel=0.05)
    assert goal.error(by_error.params, 0.9 * by_error.reports) > 0.001
