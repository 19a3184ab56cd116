"""What holds for every goal: the budget is kept, laws of its limit, fewest reports, curves."""

import math
from functools import cache

import pytest
from hypothesis import given, strategies as st

from hubbub.inference import PlanError
from hubbub.planning import (
    Budget,
    DetectionMethod,
    DetectionTest,
    Goal,
    OpenGoal,
    PlanSearch,
    StringsGoal,
    against_epsilon,
    against_reports,
    evaluate,
    make_plan,
    open_test,
    plan,
    table_goal,
)
from parameters import examples, quick_but

ONE_TIME, LIFELONG = Budget(math.inf, 4.0), Budget(6.0, 3.0)
BUDGETS = [ONE_TIME, LIFELONG, Budget(math.inf, 0.5), Budget(2.0, 2.0)]
GOALS: dict[str, Goal] = {
    "listed": StringsGoal(DetectionTest(1e4)),
    "by likelihood": StringsGoal(DetectionTest(1e4, method=DetectionMethod.LIKELIHOOD)),
    "open": OpenGoal(open_test(), (4, 7)),
    "bit per cell": table_goal((6, 4)),
    "hashed cells": table_goal((100, 100)),
}
goals = pytest.mark.parametrize("name", quick_but({"by likelihood"}, GOALS))
budgets = pytest.mark.parametrize("budget", BUDGETS, ids=str)


@cache
def planned(name: str, budget: Budget = ONE_TIME, n_reports: float = 1e6) -> PlanSearch:
    return plan(GOALS[name], budget, n_reports=n_reports, most_bits=256)


@goals
@budgets
def test_every_plan_keeps_the_budget_and_the_most_bits(name, budget):
    found = planned(name, budget, 1e8)
    for each in found.plans:
        if each.name != "the paper's default":
            assert each.params.k <= 256
        assert each.params.epsilon_report <= budget.report
        assert each.params.epsilon_permanent <= budget.permanent
    assert found.best.params.epsilon_report > 0.998 * budget.report


@pytest.mark.long
@examples(15)
@given(
    st.sampled_from(list(GOALS)),
    st.floats(0.3, 12),
    st.floats(0.05, 1),
    st.floats(5, 8),
    st.booleans(),
)
def test_any_budget_is_kept_and_spent(name, permanent, part, power, once):
    budget = Budget(math.inf if once else permanent, part * permanent)
    reports = 10.0**power / min(budget.report, 1) ** 2  # as many as show something
    for each in plan(GOALS[name], budget, n_reports=reports, most_bits=256).plans:
        assert each.params.epsilon_permanent <= budget.permanent
        assert each.params.epsilon_report <= budget.report
        assert each.limit == GOALS[name].limit(each.params, reports)


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


@goals
def test_given_parameters_stand_beside_the_best_at_their_epsilons(name):
    goal, best = GOALS[name], planned(name, LIFELONG).best
    params = best.params._replace(p=min(best.params.p * 2, 0.4))
    for wanted in ({"n_reports": 1e6}, {"share": 0.02}, {"std_error": 0.002}):
        found = evaluate(goal, params, most_bits=256, **wanted)
        same = found.given
        assert same is not None
        assert repr(same) == repr(make_plan(goal, "given", params, same.reports))
        assert found.subject is same
        assert found.plans[:2] == (same, found.best)
        assert found.best.params.epsilon_report <= params.epsilon_report
        assert found.best.limit < same.limit * 1.05
        if "share" in wanted:
            assert same.limit == pytest.approx(0.02, rel=0.01)
        if "std_error" in wanted:
            assert same.std_error == pytest.approx(0.002, rel=0.01)


@goals
@pytest.mark.parametrize("budget", [ONE_TIME, LIFELONG], ids=str)
def test_curves_pass_through_the_plan_and_fall(name, budget):
    found = planned(name, budget)
    by_epsilon, by_reports = against_epsilon(found), against_reports(found)
    for points in (by_epsilon, by_reports):
        values = [each["detectable_share"] for each in points]
        values = [value for value in values if math.isfinite(value)]
        assert len(values) > 10
        assert values == sorted(values, reverse=True)
        assert values[0] > 2 * values[-1]
    middle = by_reports[len(by_reports) // 2]
    assert middle["reports"] == pytest.approx(1e6)
    assert middle["detectable_share"] == pytest.approx(found.best.limit, rel=1e-3)
    assert by_epsilon[0]["epsilon_report"] == pytest.approx(budget.report / 4)
    highest = min(4 * budget.report, budget.permanent)
    assert by_epsilon[-1]["epsilon_report"] == pytest.approx(highest)


@goals
def test_what_no_parameters_answer_is_refused(name):
    goal, params = GOALS[name], planned(name).best.params
    with pytest.raises(PlanError, match="reports = 3: too few to show any share"):
        plan(goal, ONE_TIME, n_reports=3)
    with pytest.raises(PlanError, match=r"share = 1e-13: no number of reports reaches it"):
        plan(goal, ONE_TIME, share=1e-13)
    with pytest.raises(PlanError, match=r"error = 1e-13: no number .* within the budget"):
        plan(goal, ONE_TIME, std_error=1e-13)
    with pytest.raises(PlanError, match=r"share = 1e-13: no number .* with RapporParams"):
        evaluate(goal, params, share=1e-13)
    with pytest.raises(PlanError, match="reports, share, error: one of them must be given"):
        plan(goal, ONE_TIME)
