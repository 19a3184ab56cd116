"""What is claimed holds against the programs that attack it, in their short forms."""

from __future__ import annotations

import pytest

from evaluation.attacks.__main__ import attack_names, outcomes_of


@pytest.mark.parametrize("name", attack_names())
def test_attack_stays_within_what_is_claimed(name: str) -> None:
    outcomes = list(outcomes_of(name, quick=True))
    assert outcomes
    broken = [outcome for outcome in outcomes if not outcome.holds]
    assert broken == []
