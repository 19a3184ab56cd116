"""Days on which a client reports of one permanent response aren't independent; seeded."""

import pytest

from evaluation.attacks import shuffled_days
from evaluation.attacks.shuffled_days import CLIENTS, DAYS, DELTA, PARAMS
from factories import make_metric
from hubbub.planning import amplified_epsilon


def test_figures_of_single_days_do_not_add_up(rng):
    """The delta of six days exceeds six deltas at six epsilons, hundreds of times.

    A lower bound that fails with P < 1e-6 (normal approximation).
    """
    day = amplified_epsilon(make_metric(params=PARAMS), CLIENTS, DELTA / DAYS)
    assert shuffled_days.lower_delta(DAYS * day, CLIENTS, 20_000, rng) > 100 * DELTA


@pytest.mark.long
def test_claims_about_six_days_hold():
    outcomes = list(shuffled_days.attack(quick=True))
    assert [outcome for outcome in outcomes if not outcome.holds] == []
