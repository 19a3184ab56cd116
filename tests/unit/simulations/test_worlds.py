"""Which of a population's values are listed, and what each candidate's true share is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.simulations.populations import made_up
from hubbub.simulations.worlds import make_world


def test_tenth_that_is_missing_is_the_ninth_the_nineteenth_and_so_on() -> None:
    world = make_world(made_up(np.full(30, 1 / 30), "v"), 0.1, ())
    assert set(world.population.values) - set(world.candidates) == {"v9", "v19", "v29"}


@given(st.integers(1, 300), st.floats(0, 1))
def test_so_many_are_missing_as_the_share_says(n: int, missing: float) -> None:
    world = make_world(made_up(np.full(n, 1 / n), "v"), missing, ())
    assert abs((n - len(world.candidates)) - n * missing) <= 1


def test_extra_candidates_come_last_and_held_ones_are_not_doubled() -> None:
    world = make_world(made_up(np.full(3, 1 / 3), "v"), 0.0, ("a", "v2", "b"))
    assert world.candidates == ("v1", "v2", "v3", "a", "b")


def test_shares_are_those_of_the_reports_and_zero_for_absent_candidates() -> None:
    world = make_world(made_up(np.full(10, 0.1), "v"), 0.5, ("nobody's",))
    holders = np.arange(10)
    by_string = dict(zip(world.candidates, world.candidates_share(holders), strict=True))
    assert by_string["nobody's"] == 0
    for i, value in enumerate(world.population.values):
        if value in by_string:
            assert by_string[value] == pytest.approx(i / 45)


def test_null_world_lists_no_value() -> None:
    world = make_world(made_up(np.full(10, 0.1), "v"), 1.0, ("a", "b"))
    assert world.candidates == ("a", "b")
    assert (world.candidates_share(np.arange(10)) == 0).all()
