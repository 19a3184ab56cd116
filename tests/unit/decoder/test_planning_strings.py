"""Plans for a list: better than the paper's default, than random trials."""

import math

import pytest

from hubbub.planning import Budget, DetectionTest, StringsGoal, detection_limit, evaluate, plan
from hubbub.protocol import RapporParams

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
