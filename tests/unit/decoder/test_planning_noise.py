"""Noise within a budget: never above it, hardly below it, and as good as the literature's best."""

import math

import pytest
from hypothesis import assume, given, strategies as st

from hubbub.inference import PlanError
from hubbub.planning import Budget, common_rates, params_within
from parameters import examples


def budgets() -> st.SearchStrategy[Budget]:
    """Budgets that people might have, and some that they shouldn't."""
    permanent = st.floats(0.05, 20)
    return permanent.flatmap(
        lambda total: st.floats(0.01, 1).map(lambda part: Budget(total, total * part))
    )


@examples(60)
@given(budgets(), st.floats(0, 1))
def test_parameters_stay_within_the_budget_and_use_it(budget, part):
    low, high = common_rates(budget)
    q_star = low + part * (high - low)
    assume(0.05 < q_star < 0.95)
    params = params_within(64, 8, budget, q_star)
    assert params.epsilon_permanent <= budget.permanent
    assert params.epsilon_report <= budget.report
    assert params.epsilon_permanent >= 0.99 * budget.permanent
    assert params.epsilon_report >= 0.98 * budget.report


@examples(60)
@given(st.floats(0.01, 5))
def test_one_time_collection_has_no_permanent_noise(epsilon):
    params = params_within(64, 8, Budget(math.inf, epsilon), 0.5)
    assert params.f == 0
    assert 0.98 * epsilon <= params.epsilon_report <= epsilon


@pytest.mark.parametrize(
    ("permanent", "report", "reason"),
    [
        (0.0, 1.0, "epsilon permanent = 0"),
        (1.0, 0.0, "epsilon report = 0"),
        (1.0, 2.0, "must be at most epsilon permanent = 1"),
        (math.nan, 1.0, "epsilon permanent = nan"),
        (1.0, math.nan, "epsilon report = nan"),
        (math.inf, math.inf, "epsilon report = inf"),
        (1e-3, 1e-7, "epsilon report = 1e-07: too small for parameters"),
    ],
)
def test_contradicting_epsilons_are_refused(permanent, report, reason):
    with pytest.raises(PlanError, match=reason):
        Budget(permanent, report)


def test_the_least_epsilons_still_have_parameters():
    budget = Budget(1e-5, 1e-6)
    params = params_within(64, 8, budget, 0.5)
    assert params.epsilon_permanent <= budget.permanent
    assert 0.9 * budget.report <= params.epsilon_report <= budget.report
