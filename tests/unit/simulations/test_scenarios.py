"""Which of a population's values are listed, and what each candidate's true share is."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.simulations import made_up, make_scenario


def test_tenth_that_is_missing_is_the_ninth_the_nineteenth_and_so_on():
    scenario = make_scenario(made_up(np.full(30, 1 / 30), "v"), 0.1, ())
    assert set(scenario.population.values) - set(scenario.candidates) == {"v9", "v19", "v29"}


@given(st.integers(1, 300), st.floats(0, 1))
def test_the_unlisted_share_matches_the_missing_names(n, missing):
    scenario = make_scenario(made_up(np.full(n, 1 / n), "v"), missing, ())
    assert abs((n - len(scenario.candidates)) - n * missing) <= 1


def test_extra_candidates_come_last_and_held_ones_are_not_doubled():
    scenario = make_scenario(made_up(np.full(3, 1 / 3), "v"), 0.0, ("a", "v2", "b"))
    assert scenario.candidates == ("v1", "v2", "v3", "a", "b")


def test_shares_are_those_of_the_reports_and_zero_for_absent_candidates():
    scenario = make_scenario(made_up(np.full(10, 0.1), "v"), 0.5, ("nobody's",))
    holders = np.arange(10)
    by_string = dict(zip(scenario.candidates, scenario.candidates_share(holders), strict=True))
    assert by_string["nobody's"] == 0
    for i, value in enumerate(scenario.population.values):
        if value in by_string:
            assert by_string[value] == pytest.approx(i / 45)


def test_null_scenario_lists_no_value():
    scenario = make_scenario(made_up(np.full(10, 0.1), "v"), 1.0, ("a", "b"))
    assert scenario.candidates == ("a", "b")
    assert (scenario.candidates_share(np.arange(10)) == 0).all()
