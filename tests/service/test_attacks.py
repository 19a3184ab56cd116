"""What is claimed holds against the programs that attack it, in their short forms."""

import pytest

from evaluation.attacks.__main__ import attack_names, outcomes_of

_LONG = {"answer_times", "disk_of_postgresql", "front_door", "linking", "published_numbers"}
_LONG |= {"leftovers", "restores", "shuffled_days"}
"""What takes three quarters of the time of all."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name in _LONG else name
        for name in attack_names()
    ],
)
def test_attack_stays_within_what_is_claimed(name):
    outcomes = list(outcomes_of(name, quick=True))
    assert outcomes
    broken = [outcome for outcome in outcomes if not outcome.holds]
    assert broken == []
