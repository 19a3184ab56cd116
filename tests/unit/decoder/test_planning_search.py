"""The search: within the budget, better than the paper's default, monotone in what it is given."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.decoder.errors import PlanError
from hubbub.planning.limits import Method, Question, detection_limit, fewest_cohorts
from hubbub.planning.noise import Budget
from hubbub.planning.search import (
    Comparison,
    compare,
    compare_for_share,
    limit_by_epsilon,
    limit_by_reports,
)
from hubbub.protocol.params import RapporParams

PAPER = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
PAPERS_BUDGET = Budget(PAPER.epsilon_permanent, PAPER.epsilon_report)
QUESTION = Question(1e5)


@cache
def found(method: Method = Method.REGRESSION) -> Comparison:
    """Return the search at the paper's two epsilons."""
    return compare(PAPERS_BUDGET, Question(1e5, method=method), 1e6)


def plans(comparison: Comparison) -> list[RapporParams]:
    others = (comparison.best, comparison.paper, comparison.simple, *comparison.by_hashes)
    return [plan.params for plan in others if plan]


@pytest.mark.parametrize("method", list(Method))
def test_the_papers_default_needs_one_and_a_half_times_the_share(method: Method) -> None:
    """At its own two epsilons, a million reports and 100,000 candidates, whatever its cohorts."""
    comparison = found(method)
    for m in (8, 16, 64, 1024):
        limit = detection_limit(PAPER._replace(m=m), 1e6, comparison.question)
        assert limit >= 1.5 * comparison.best.limit


@settings(deadline=None, max_examples=5)
@given(st.floats(0.3, 12), st.floats(0.05, 0.99), st.floats(4.5, 8))
def test_every_plan_is_within_the_budget(permanent: float, part: float, power: float) -> None:
    budget = Budget(permanent, part * permanent)
    reports = 10.0**power / min(budget.report, 1) ** 2  # as many as show something
    comparison = compare(budget, Question(1e3), reports)
    for params in plans(comparison):
        assert params.epsilon_permanent <= budget.permanent
        assert params.epsilon_report <= budget.report
        assert params.m >= fewest_cohorts(params.k, params.h, comparison.question.level)


def test_looser_epsilons_show_smaller_shares() -> None:
    limits = [compare(Budget(6, report), QUESTION, 1e6).best.limit for report in (0.5, 1, 2, 4)]
    assert limits == sorted(limits, reverse=True)


def test_the_best_plan_is_the_best_of_all_hashes_and_of_random_trials() -> None:
    comparison = found()
    assert comparison.best.limit == min(plan.limit for plan in comparison.by_hashes)
    for k in (64, 256, 1024):
        for p in range(5, 60, 5):
            for q in range(p + 5, 100, 5):
                rival = RapporParams(k, 1, 64, comparison.best.params.f, p / 100, q / 100)
                if rival.epsilon_report <= PAPERS_BUDGET.report:
                    limit = detection_limit(rival, 1e6, QUESTION)
                    assert limit >= comparison.best.limit / 1.025


def test_simple_numbers_are_simple() -> None:
    simple = found().simple
    assert simple is not None
    for number in simple.params[3:]:
        assert round(number * 20) == pytest.approx(number * 20)
    assert simple.limit < 1.1 * found().best.limit


def test_the_fewest_reports_for_a_share_are_those_that_show_it() -> None:
    comparison = compare_for_share(PAPERS_BUDGET, QUESTION, 0.005)
    assert comparison.best.limit == pytest.approx(0.005, rel=5e-3)
    fewer = compare(PAPERS_BUDGET, QUESTION, 0.9 * comparison.best.reports)
    assert fewer.best.limit > 0.005


def test_bits_can_be_bounded() -> None:
    comparison = compare(PAPERS_BUDGET, QUESTION, 1e6, most_bits=32)
    assert all(plan.params.k <= 32 for plan in comparison.by_hashes)
    assert comparison.simple is not None
    assert comparison.simple.params.k <= 32


def test_one_time_collection_can_be_planned() -> None:
    comparison = compare(Budget(math.inf, 1.0), QUESTION, 1e6)
    assert comparison.best.params.f == 0


@pytest.mark.parametrize(
    ("budget", "reports", "reason"),
    [
        (Budget(4.4, 1.1), 50, "reports = 50: too few to show any share"),
        (Budget(1e-4, 1e-5), 1e6, "reports = 1,000,000: too few to show any share"),
    ],
)
def test_what_no_parameters_answer_is_refused(budget: Budget, reports: float, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        compare(budget, QUESTION, reports)


def test_a_share_out_of_reach_is_refused() -> None:
    with pytest.raises(PlanError, match="no number of reports detects it"):
        compare_for_share(PAPERS_BUDGET, Question(1e5, concentration=1.0), 1e-9)


def test_curves_pass_through_the_plan_and_fall() -> None:
    comparison = found()
    by_epsilon, by_reports = limit_by_epsilon(comparison), limit_by_reports(comparison)
    for points in (by_epsilon, by_reports):
        limits = [point.best for point in points]
        assert limits == sorted(limits, reverse=True)
        assert all(point.paper > point.best for point in points)
    middle = by_reports[len(by_reports) // 2]
    assert middle.at == pytest.approx(1e6)
    assert middle.best == pytest.approx(comparison.best.limit)
