"""Densities, held against the enumeration of all reports and of all strings."""

import numpy as np
import pytest
from scipy import stats

from factories import make_params
from hubbub.inference.arrays import PositionArray
from hubbub.inference.likelihood.sums import (
    densities,
    distinct_positions,
    ratio_rows,
    unknown_densities,
    unknown_density,
)
from unit.decoder.packed import every_report, every_tuple, likelihood_ratio

TINY = tuple(make_params(k=8, h=h, m=2, f=0.3, p=0.2, q=0.7) for h in (1, 2, 3))


def positions_of(*strings: tuple[int, ...]) -> PositionArray:
    return np.array(strings, dtype=np.int16)


def test_repeated_positions_become_a_bit_that_never_matters():
    params = make_params(k=8, h=3, m=1)
    given = positions_of((5, 2, 5), (1, 1, 1), (7, 0, 3))
    expected = [[2, 5, 8], [1, 8, 8], [0, 3, 7]]
    assert distinct_positions(given, params).tolist() == expected
    assert given[0].tolist() == [5, 2, 5]


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_density_is_the_ratio_of_the_reports_probabilities(params):
    """All 256 reports, strings with and without repeated positions."""
    bits = every_report(params)
    strings = [(3,) * params.h, tuple(range(params.h)), (7, 2, 2, 5)[: params.h]]
    found = densities(ratio_rows(bits, params), distinct_positions(positions_of(*strings), params))
    for density, string in zip(found, strings, strict=True):
        np.testing.assert_allclose(density, likelihood_ratio(bits, string, params), rtol=1e-12)


def test_bits_are_read_in_the_order_of_the_wire():
    """Bit j of the filter is bit j % 8 of byte j // 8."""
    params = make_params(k=24, h=1, m=1)
    bits = np.array([[0, 0b100, 0]], dtype=np.uint8)
    rows = ratio_rows(bits, params)[:, 0]
    assert np.flatnonzero(rows[:24] > 1).tolist() == [10]
    assert rows[24] == 1


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_unknown_strings_density_is_the_mean_over_all_strings(params):
    bits = every_report(params)
    mean = np.mean([likelihood_ratio(bits, string, params) for string in every_tuple(params)], 0)
    np.testing.assert_allclose(unknown_density(bits, params), mean, rtol=1e-12)


@pytest.mark.parametrize("h", [1, 2, 8])
def test_unknown_strings_density_is_a_density(h):
    """Over all numbers of ones, weighted by how probable they are if no bit is set."""
    params = make_params(k=128, h=h, m=1)
    ones = np.arange(params.k + 1)
    chance = stats.binom.pmf(ones, params.k, params.p_star)
    assert chance @ unknown_densities(params) == pytest.approx(1, rel=1e-9)
