"""Two periods' reports share nothing but the value: nobody can tell who is who."""

import pytest

from evaluation.studies.periods import CASES

RUNS = 8
ONE_VALUE = [case for case in CASES if case.redraws and len(case.values) == 1]
PERMANENT = next(case for case in CASES if not case.redraws)


@pytest.mark.parametrize("case", ONE_VALUE, ids=lambda case: case.name)
def test_reports_of_two_periods_are_linked_by_chance_alone(case):
    """Right links are fixed points of random permutations, about Poisson(8); P(> 27) < 1e-7."""
    assert sum(case.run(number).right for number in range(RUNS)) <= 27


def test_the_attack_finds_what_a_permanent_response_shows():
    """Of 1,000 pairs it links some 776, so that its silence above says something."""
    assert PERMANENT.run(0).right > 600
