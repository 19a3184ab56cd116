"""The theory of what can be found: its laws, and the formulas that it contains as special cases."""

import math

import pytest
from hypothesis import given, strategies as st
from scipy import stats

from hubbub.inference import PlanError
from hubbub.planning import (
    Budget,
    DetectionTest,
    StringsGoal,
    corrected,
    detection_limit,
    evaluate,
    plan,
)
from hubbub.protocol import RapporParams
from parameters import examples

REPORTS = st.floats(3, 8).map(lambda power: 10.0**power)


def noises() -> st.SearchStrategy[RapporParams]:
    """Parameters whose reports carry some information."""
    return st.builds(
        RapporParams,
        f0=st.none(),
        f1=st.none(),
        k=st.sampled_from([8, 32, 128, 512]),
        h=st.integers(1, 4),
        m=st.sampled_from([32, 64, 256]),
        f=st.floats(0.1, 0.7),
        p=st.floats(0.05, 0.4),
        q=st.floats(0.5, 0.95),
    )


@examples(25)
@given(noises(), REPORTS)
def test_more_reports_show_smaller_shares(params, n):
    question = DetectionTest(1e4)
    here, there = (detection_limit(params, reports, question) for reports in (n, 2 * n))
    assert there < here or here == math.inf


@examples(25)
@given(noises(), REPORTS)
def test_more_candidates_and_stricter_tests_need_larger_shares(params, n):
    limits = [
        detection_limit(params, n, DetectionTest(candidates, alpha, concentration=1e-3))
        for candidates, alpha in ((1e3, 0.1), (1e3, 0.05), (1e6, 0.05))
    ]
    assert limits[0] <= limits[1] * (1 + 1e-6)  # the iteration ends within 1e-7
    assert limits[1] <= limits[2] * (1 + 1e-6)


@examples(25)
@given(st.floats(2, 6), st.floats(0.01, 0.1))
def test_threshold_of_a_skewed_law_is_close_to_its_quantile(z, skewness):
    """Against the gamma law of that skewness."""
    shape = 4 / skewness**2
    quantile = (stats.gamma.isf(stats.norm.sf(z), shape) - shape) / math.sqrt(shape)
    assert corrected(z, skewness) == pytest.approx(quantile, rel=0.02)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"candidates": 0.5}, "candidates = 0.5"),
        ({"candidates": math.nan}, "candidates = nan"),
        ({"alpha": 0.0}, "alpha = 0"),
        ({"power": 0.5}, "power = 0.5"),
        ({"concentration": 2.0}, "concentration = 2"),
    ],
)
def test_questions_without_an_answer_are_refused(change, reason):
    with pytest.raises(PlanError, match=reason):
        DetectionTest(**{"candidates": 10.0, **change})


PAPERS = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
PAPERS_BUDGET = Budget(PAPERS.epsilon_permanent, PAPERS.epsilon_report)
QUESTION = DetectionTest(1e5)
GOAL = StringsGoal(QUESTION)


def test_the_papers_default_needs_one_and_a_half_times_the_share():
    """At its own two epsilons, a million reports and 100,000 candidates, whatever its cohorts."""
    found = evaluate(GOAL, PAPERS, n_reports=1e6)
    for m in (8, 16, 64, 1024):
        assert detection_limit(PAPERS._replace(m=m), 1e6, QUESTION) >= 1.5 * found.best.limit


def test_the_best_plan_is_the_best_of_random_trials():
    """Of one hash, and of two to eight with a q* from one end to the other."""
    best = plan(GOAL, PAPERS_BUDGET, n_reports=1e6).best
    trials = [
        RapporParams(k, h, m, 2 / (1 + math.exp(PAPERS_BUDGET.permanent / 2 / h)), p / 100, q / 100)
        for h, m in ((1, 64), (2, 64), (4, 32), (8, 16))
        for k in (64, 256, 1024)
        for p in range(5, 60, 5)
        for q in range(p + 5, 100, 5)
    ]
    within = [each for each in trials if each.epsilon_report <= PAPERS_BUDGET.report]
    assert {each.h for each in within} == {1, 2, 4, 8}
    for each in within:
        assert detection_limit(each, 1e6, QUESTION) >= best.limit / 1.025


@pytest.mark.parametrize("share", [0.0005, 0.05, 0.2])
def test_reports_and_the_best_parameters_for_them_agree(share):
    """However far from the million reports that the search begins with."""
    best = plan(GOAL, PAPERS_BUDGET, share=share).best
    assert GOAL.reports_needed(best.params, share) == pytest.approx(best.reports, rel=2e-3)
