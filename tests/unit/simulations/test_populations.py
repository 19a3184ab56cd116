"""Populations are what the census says."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.simulations.populations import census_first_names, census_names


def share_of(name: str) -> float:
    population = census_first_names()
    return float(population.shares[population.values.index(name)])


def test_shares_are_a_distribution() -> None:
    population = census_first_names()
    assert population.shares.shape == (len(population.values),)
    assert (population.shares > 0).all()
    assert np.isclose(population.shares.sum(), 1, rtol=0, atol=1e-12)


def test_each_first_name_stands_once() -> None:
    """1,219 names of men and 4,275 of women, of which 331 are both."""
    values = census_first_names().values
    assert len(values) == len(set(values)) == 1219 + 4275 - 331


def test_most_frequent_names_are_the_censuses() -> None:
    population = census_first_names()
    top = [population.values[i] for i in np.argsort(-population.shares)[:3]]
    assert top == ["James", "John", "Robert"]


def test_shares_are_those_of_the_table_for_half_men_and_half_women() -> None:
    """Percentages of the census; its tables name 90.052% of the men and 89.94% of the women."""
    for name, men, women in (
        ("James", 3.318, 0.010),
        ("Mary", 0.009, 2.629),
        ("Leslie", 0.081, 0.154),
    ):
        assert share_of(name) == pytest.approx((men / 90.052 + women / 89.94) / 2)


def test_candidates_are_all_names_each_once() -> None:
    names = census_names()
    assert len(names) == len(set(names)) == 91_910
    assert set(census_first_names().values) < set(names)
    assert {"Smith", "Johnson", "Mary"} < set(names)


def test_names_are_clean_text() -> None:
    assert all(name.isascii() and name.isalpha() and name.istitle() for name in census_names())


def test_population_is_the_same_every_time() -> None:
    first, second = census_first_names(), census_first_names()
    assert first.values == second.values
    np.testing.assert_array_equal(first.shares, second.shares)
    assert census_names() == census_names()
