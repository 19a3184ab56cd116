"""The literature's formulas give what it publishes, and so do the paper's headline numbers."""

import math

import pytest
from hypothesis import given, strategies as st

from evaluation.paper.headline import (
    count_deviation,
    formula_lines,
    learnable_strings,
    longitudinal_optimum,
    quantised_epsilon,
    symmetric_chaining,
    symmetric_oue_ratio,
)
from hubbub.planning import Budget
from hubbub.protocol import RapporParams
from parameters import examples


def budgets() -> st.SearchStrategy[Budget]:
    """Budgets that people might have, and some that they shouldn't."""
    permanent = st.floats(0.05, 20)
    return permanent.flatmap(
        lambda total: st.floats(0.01, 1).map(lambda part: Budget(total, total * part))
    )


@pytest.mark.parametrize(
    ("m", "reports", "deviation"), [(16, 1_000_000, 2806), (8, 186_792, 1212.8)]
)
def test_deviations_of_counts_are_those_of_the_papers_tables(m, reports, deviation):
    params = RapporParams(128, 2, m, 0.5, 0.5, 0.75)
    assert count_deviation(params, reports) == pytest.approx(deviation, rel=5e-4)


@pytest.mark.parametrize(("reports", "strings"), [(1e6, 93.9), (1e8, 938.7)])
def test_learnable_strings_are_those_of_the_papers_appendix(reports, strings):
    one_time = RapporParams(128, 1, 1, 0.0, 0.5, 0.75)
    assert learnable_strings(one_time, reports, 1e6) == pytest.approx(strings, abs=0.05)


def test_longitudinal_optimum_beats_symmetric_chaining_by_the_published_figures():
    budget = Budget(4.394, 2.043)
    assert longitudinal_optimum(budget) == pytest.approx(0.684, abs=1e-3)
    assert symmetric_chaining(budget) == pytest.approx(0.879, abs=1e-3)


@examples(50)
@given(budgets())
def test_longitudinal_optimum_lies_between_oue_and_symmetric_chaining(budget):
    best = longitudinal_optimum(budget)
    assert best >= (1 - 1e-9) / math.sinh(budget.report / 2) ** 2  # OUE's (Wang et al. 2017)
    assert best <= symmetric_chaining(budget) * (1 + 1e-6)


@pytest.mark.parametrize(("epsilon", "ratio"), [(1e-4, 2.0), (4.394, 7.4)])
def test_two_hashes_vary_two_to_seven_times_as_much_as_oue(epsilon, ratio):
    assert symmetric_oue_ratio(2, epsilon) == pytest.approx(ratio, abs=0.05)


def test_rounding_noise_down_costs_privacy():
    assert quantised_epsilon(2, 0.45) == pytest.approx(5.001, abs=1e-3)
    assert RapporParams(8, 2, 1, 0.45, 0.25, 0.75).epsilon_permanent == pytest.approx(
        4.947, abs=1e-3
    )


@pytest.mark.parametrize(
    "line", list(formula_lines()), ids=lambda line: f"{line.number} {line.what}"
)
def test_headline_number_is_reproduced(line):
    assert line.within, f"{line.ours} instead of {line.stated}"
