"""The best responses for an epsilon: none is better, and rounded they stay within the budget."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import cell_chances, cell_weights
from hubbub.planning import (
    Budget,
    NoiseRates,
    coin_variance,
    exact_chance,
    exact_params,
    params_within,
    subset_of,
    subset_params,
    subset_variance,
    subset_within,
    value_ratio,
    window_of,
    window_params,
    window_within,
    worst_variance,
)
from hubbub.protocol import RapporParams, Subset, chance_bound
from parameters import examples

EPSILONS = st.floats(0.1, 8)


def repeated(permanent: float, report: float, f1: float, q_star: float) -> RapporParams | None:
    """Return parameters that spend two epsilons with one hash; None if no p and q do."""
    f0 = (1 - f1) / (math.exp(permanent) * f1 + 1 - f1)
    p_star = q_star / (q_star + math.exp(report) * (1 - q_star))
    p, q = NoiseRates(f0, f1).instantaneous(p_star, q_star)
    if not (0 <= p < q <= 1 and f0 + f1 < 1):
        return None
    return RapporParams(8, 1, 1, f0 + f1, p, q, f0, f1)


@examples(20)
@given(st.floats(0.5, 7), st.floats(0.2, 0.95), st.integers(2, 400))
def test_no_permanent_response_reveals_more_in_repeated_reports(permanent, part, reports):
    """Of 2,000 on a grid that spend the same two epsilons."""
    budget = Budget(permanent, part * permanent, reports)
    best = exact_params(8, 1, budget, 0.5)
    assert best.f1 == 0.5
    assert best.f0 == pytest.approx(1 / (math.exp(permanent) + 1))
    grid = [
        params
        for f1 in np.linspace(0.02, 0.98, 49).tolist()
        for q_star in np.linspace(0.02, 0.98, 41).tolist()
        if (params := repeated(permanent, part * permanent, f1, q_star))
    ]
    least = min(coin_variance(params, 0.0, reports) for params in grid)
    assert coin_variance(best, 0.0, reports) <= least * (1 + 1e-9)


@examples(60)
@given(st.floats(0.05, 12), st.floats(0.05, 1), st.floats(0.05, 0.95))
def test_rounded_asymmetric_parameters_keep_the_budget_and_spend_it(permanent, part, q_star):
    budget = Budget(permanent, part * permanent, 30)
    params = params_within(8, 1, budget, q_star)
    assert 0.998 * permanent < params.epsilon_permanent <= permanent
    assert 0.998 * budget.report < params.epsilon_report <= budget.report
    assert params.f1 == 0.5


@examples(40)
@given(st.integers(2, 200), EPSILONS)
def test_subsets_are_the_best_and_within_the_budget(categories, epsilon):
    subset = subset_within(categories, epsilon)
    spent = chance_bound(subset.chance, categories - subset.width, subset.width)
    assert 0.999 * epsilon <= spent <= epsilon
    best = min(
        subset_variance(Subset(categories, w, exact_chance(categories, w, epsilon)))
        for w in range(1, categories)
    )
    # What a thousandth of epsilon is worth, where the variance grows with e^(2 epsilon) at most.
    assert subset_variance(subset) <= best * (1 + 2e-3 * max(epsilon, 1))
    oue = 1 / math.sinh(epsilon / 2) ** 2  # N times that of a bit for each (Wang et al. 2017)
    assert best <= oue * (1 + 1e-9)
    assert subset_of(subset_params(subset), categories) == subset


def hybrid_variance(epsilon: float) -> float:
    """Return N times the worst variance for a number between 0 and 1 (Wang et al. 2019, ICDE).

    Theirs is of [-1, 1]: four times as much. Above epsilon .61 it is a mixture of the piecewise
    mechanism, of weight 1 - e^(-eps/2), and Duchi's; below it Duchi's alone.
    """
    duchi = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    if epsilon <= 0.61:
        return duchi**2 / 4
    half = math.exp(epsilon / 2)
    return ((half + 3) / (3 * half * (half - 1)) + duchi**2 / half) / 4


@pytest.mark.parametrize("epsilon", [0.5, 1, 1.5, 2, 3, 4, 6])
def test_windows_need_no_more_reports_than_the_hybrid_mechanism(epsilon):
    window = window_within(epsilon, 32)
    spent = chance_bound(window.chance, window.cells - window.width, window.width)
    assert 0.999 * epsilon <= spent <= epsilon
    assert worst_variance(window) <= hybrid_variance(epsilon)
    assert window_of(window_params(window)) == window
    chances = cell_chances(window.cells, window.width, window.chance)
    squares = chances @ cell_weights(window.cells, window.width, window.chance) ** 2
    numbers = np.linspace(0, 1, 10_001)
    seen = np.interp(numbers, np.linspace(0, 1, len(squares)), squares) - numbers**2
    assert worst_variance(window) == pytest.approx(seen.max(), rel=1e-4)


@given(st.floats(0.1, 6), st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.data())
def test_a_value_links_two_independent_reports_no_better_than_stated(epsilon, weights, data):
    """For any values' shares, and any two reports that each differ by e^epsilon at most."""
    shares = np.array(weights) / sum(weights)
    ratios = st.lists(st.floats(0, epsilon), min_size=len(weights), max_size=len(weights))
    first, second = (np.exp(data.draw(ratios)) for _ in range(2))
    found = shares @ (first * second) / ((shares @ first) * (shares @ second))
    assert found <= value_ratio(epsilon) * (1 + 1e-12)
    assert value_ratio(epsilon) <= math.exp(epsilon)
