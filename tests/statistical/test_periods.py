"""Two periods' reports share nothing but the value: nobody can tell who is who."""

import pytest
from scipy import stats

from evaluation.studies.periods import CASES
from parameters import quick_and_full

ONE_VALUE = [case for case in CASES if case.redraws and len(case.values) == 1]
PERMANENT = next(case for case in CASES if not case.redraws)


@pytest.mark.parametrize("case", ONE_VALUE, ids=lambda case: case.name)
@pytest.mark.parametrize("runs", quick_and_full(2, 8))
def test_reports_of_two_periods_are_linked_by_chance_alone(case, runs):
    """Right links are fixed points of random permutations, about one per run: P(alarm) < 1e-7.

    The limits are 13 of 2,000 pairs and 27 of 8,000: one link in 100 is too many.
    """
    right = sum(case.run(number).right for number in range(runs))
    assert right <= stats.poisson.isf(1e-7, runs)


def test_the_attack_finds_what_a_permanent_response_shows():
    """Of 1,000 pairs it links some 776, so that its silence above says something."""
    assert PERMANENT.run(0).right > 600
