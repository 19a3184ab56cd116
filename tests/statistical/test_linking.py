"""What attackers link of shuffled days is what is predicted, whatever they know of values.

Right and wrong links come in twos and threes, so a share's variance is taken to be twice a
binomial's; 5 standard deviations are then P(false alarm) < 1e-6 a comparison (normal
approximation).
"""

import math

import pytest

from evaluation.attacks import linking
from evaluation.attacks.linking import LinkedClients
from hubbub.planning.histories import right_links
from hubbub.protocol.params import RapporParams

ACCURACY = 0.02
CASES = (
    LinkedClients(RapporParams(424, 1, 32, 0.2, 0.0683, 0.5534), None, 32 * 100),
    LinkedClients(RapporParams(128, 2, 40, 0.5, 0.25, 0.75), None, 40 * 100),
    LinkedClients(RapporParams(128, 1, 40, 0.05, 0.02, 0.9), None, 40 * 100),
    LinkedClients(RapporParams(32, 1, 40, 0.25, 0.2, 0.8), None, 40 * 100),
    LinkedClients(RapporParams(8, 1, 40, 0.5, 0.25, 0.75), 3, 40 * 100),
)


def room(share: float, links: int) -> float:
    return ACCURACY + 5 * math.sqrt(2 * share * (1 - share) / links)


@pytest.mark.long
def test_attacks_reach_no_more_than_is_predicted_and_put_whole_weeks_together():
    """Why nobody may rely on shuffling: nearly all seven-day histories of a thousand clients."""
    outcomes = list(linking.attack(quick=True))
    assert [outcome for outcome in outcomes if not outcome.holds] == []
    (weeks,) = [outcome for outcome in outcomes if "seven-day" in outcome.what]
    assert weeks.measured > 0.99


@pytest.mark.parametrize(
    "case",
    [CASES[0], *(pytest.param(case, marks=pytest.mark.long) for case in CASES[1:])],
    ids=lambda case: f"k={case.params.k}",
)
def test_the_prediction_is_neither_too_low_nor_too_high(case, rng):
    predicted = right_links(case.params, case.width, case.clients)
    days = linking.simulated_days(case, rng)
    measured = linking.right_share(days, case.params, rng)
    assert measured == pytest.approx(predicted, abs=room(predicted, case.clients))
