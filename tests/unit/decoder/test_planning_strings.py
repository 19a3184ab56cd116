"""Plans for a list: better than the paper's default, than random trials."""

from functools import cache

import pytest

from hubbub.planning import (
    Budget,
    DetectionMethod,
    DetectionTest,
    PlanSearch,
    StringsGoal,
    detection_limit,
    plan,
)
from hubbub.protocol import RapporParams

PAPERS = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
PAPERS_BUDGET = Budget(PAPERS.epsilon_permanent, PAPERS.epsilon_report)
QUESTION = DetectionTest(1e5)
GOAL = StringsGoal(QUESTION)


@cache
def found(method: DetectionMethod = DetectionMethod.REGRESSION) -> PlanSearch:
    """Return the search at the paper's two epsilons."""
    return plan(StringsGoal(DetectionTest(1e5, method=method)), PAPERS_BUDGET, n_reports=1e6)


@pytest.mark.parametrize("method", list(DetectionMethod))
def test_the_papers_default_needs_one_and_a_half_times_the_share(method):
    """At its own two epsilons, a million reports and 100,000 candidates, whatever its cohorts."""
    for m in (8, 16, 64, 1024):
        limit = detection_limit(PAPERS._replace(m=m), 1e6, DetectionTest(1e5, method=method))
        assert limit >= 1.5 * found(method).best.limit


def test_the_best_plan_is_the_best_of_all_hashes_and_of_random_trials():
    best, alternatives = found().best, found().alternatives
    by_hashes = [each for each in alternatives if each.name.startswith("best, h = ")]
    assert [each.params.h for each in by_hashes] == list(range(1, 9))
    assert best.limit == min(each.limit for each in by_hashes)
    for k in (64, 256, 1024):
        for p in range(5, 60, 5):
            for q in range(p + 5, 100, 5):
                rival = RapporParams(k, 1, 64, best.params.f, p / 100, q / 100)
                if rival.epsilon_report <= PAPERS_BUDGET.report:
                    assert detection_limit(rival, 1e6, QUESTION) >= best.limit / 1.025


@pytest.mark.parametrize("share", [0.0005, 0.05, 0.2])
def test_reports_and_the_best_parameters_for_them_agree(share):
    """However far from the million reports that the search begins with."""
    best = plan(GOAL, PAPERS_BUDGET, share=share).best
    assert GOAL.reports_needed(best.params, share) == pytest.approx(best.reports, rel=2e-3)
