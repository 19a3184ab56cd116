"""Two periods' reports share nothing but the value; days of one permanent response do. Seeded."""

import pytest
from scipy import stats

from evaluation.attacks import shuffled_days
from evaluation.attacks.shuffled_days import CLIENTS, DAYS, DELTA, PARAMS
from evaluation.studies.periods import CASES
from factories import make_metric
from hubbub.planning import amplified_epsilon
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


def test_figures_of_single_days_do_not_add_up(rng):
    """The delta of six days exceeds six deltas at six epsilons, hundreds of times.

    A lower bound that fails with P < 1e-6 (normal approximation).
    """
    day = amplified_epsilon(make_metric(params=PARAMS), CLIENTS, DELTA / DAYS)
    assert shuffled_days.lower_delta(DAYS * day, CLIENTS, 20_000, rng) > 100 * DELTA
