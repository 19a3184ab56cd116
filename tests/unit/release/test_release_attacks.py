"""Releases under attack, in short: no more is answered, or lost unseen, than is claimed."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "name", ["release_csv", "release_ledger", "release_normal_forms", "release_nulls"]
)
def test_an_attack_reaches_no_more_than_what_is_claimed(name: str) -> None:
    outcomes = list(import_module(f"evaluation.attacks.{name}").attack(quick=True))
    assert outcomes
    assert [outcome for outcome in outcomes if not outcome.holds] == []
