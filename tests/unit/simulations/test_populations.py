"""Populations are what the census says, what a family's formula says, or what a file holds."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.simulations import (
    PopulationError,
    census_first_names,
    census_names,
    census_surnames,
    domain_names,
    family_shares,
    made_up,
    make_scenario,
    population_of_file,
)


def share_of(name: str) -> float:
    population = census_first_names()
    return float(population.shares[population.values.index(name)])


def test_shares_are_a_distribution():
    population = census_first_names()
    assert population.shares.shape == (len(population.values),)
    assert (population.shares > 0).all()
    assert np.isclose(population.shares.sum(), 1, rtol=0, atol=1e-12)


def test_shares_are_those_of_the_table_for_half_men_and_half_women():
    """Percentages of the census; its tables name 90.052% of the men and 89.94% of the women."""
    for name, men, women in (
        ("James", 3.318, 0.010),
        ("Mary", 0.009, 2.629),
        ("Leslie", 0.081, 0.154),
    ):
        assert share_of(name) == pytest.approx((men / 90.052 + women / 89.94) / 2)


def test_surnames_have_the_shares_of_the_table_and_rare_ones_what_is_left():
    """The 88,799 surnames are 90.483% of the people; 79.59% have one that is above 0.0005%."""
    population = census_surnames()
    assert len(population.values) == len(set(population.values)) == 88_799
    assert population.values[0] == "Smith"
    assert population.shares[0] == pytest.approx(1.006 / 90.483)
    rare = population.shares < 0.0005 / 90.483
    assert population.shares[rare].sum() == pytest.approx((90.483 - 79.59) / 90.483)
    assert population.shares.sum() == pytest.approx(1)


def test_domains_are_short_enough_distinct_and_in_an_order_of_their_own():
    population = domain_names()
    assert len(population.values) == len(set(population.values)) == 10_172
    assert max(len(name.encode()) for name in population.values) <= 41
    assert all("." in name and name == name.lower() for name in population.values)
    assert population.values[:3] == ("tmpbox.net", "autu11n.lol", "villaclimate.xyz")
    assert population.shares[:3] / population.shares[0] == pytest.approx([1, 1 / 2, 1 / 3])


def test_candidates_are_all_names_each_once():
    names = census_names()
    assert len(names) == len(set(names)) == 91_910
    assert set(census_first_names().values) < set(names)
    assert {"Smith", "Johnson", "Mary"} < set(names)


@pytest.mark.parametrize(
    "spec",
    ["uniform", "zipf", "zipf:1.5", "exponential", "exponential:2", "gauss", "geometric:0.5"],
)
@pytest.mark.parametrize("n", [1, 2, 100, 10_001])
def test_families_are_distributions_with_the_largest_share_first(spec, n):
    shares = family_shares(spec, n)
    assert shares.shape == (n,)
    assert np.isclose(shares.sum(), 1)
    assert (np.diff(shares) <= 1e-15).all()


def test_families_follow_their_formulas():
    assert family_shares("uniform", 4) == pytest.approx([0.25] * 4)
    assert family_shares("zipf:1", 3) == pytest.approx(np.array([6, 3, 2]) / 11)
    assert family_shares("geometric:0.5", 3) == pytest.approx(np.array([4, 2, 1]) / 7)
    exponential = family_shares("exponential:5", 100)
    assert exponential[1:] / exponential[:-1] == pytest.approx(np.full(99, np.exp(-0.05)))


def test_gauss_is_a_normal_density_about_the_middle_rank():
    """Ranks 50, 49 and 51, ... of 100, standard deviation 100 / 6, as in google/rappor's tests."""
    shares = family_shares("gauss", 100)
    assert shares[1] == shares[2]
    assert shares[1] / shares[0] == pytest.approx(np.exp(-0.5 * (6 / 100) ** 2))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("pareto", "must be one of uniform"),
        ("zipf:steep", "'steep' must be a number above 0"),
        ("zipf:-1", "must be a number above 0"),
        ("geometric:1", "ratio must be below 1"),
        ("uniform:3", "uniform takes no number"),
    ],
)
def test_other_families_are_refused(spec, reason):
    with pytest.raises(PopulationError, match=reason):
        family_shares(spec, 10)


def test_file_holds_a_client_a_line(tmp_path):
    path = tmp_path / "values.txt"
    path.write_bytes(b"b\r\na\nb\n\n x \n")
    population = population_of_file(str(path))
    shares = dict(zip(population.values, population.shares, strict=True))
    assert shares == {"b": 0.4, "a": 0.2, "": 0.2, " x ": 0.2}


def test_values_may_come_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\na\n")))
    assert population_of_file("-").values == ("a",)


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (b"\xff", "UTF-8"), (None, "UTF")])
def test_file_that_is_none_is_refused(content, reason, tmp_path):
    path = tmp_path / "values.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PopulationError, match=reason):
        population_of_file(str(path))


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
