"""The weights of a number's cells: unbiased for every number, and no population scatters less."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import cell_chances, cell_weights, least_second_moments

SIZES = [(2, 1), (6, 2), (8, 4), (12, 4), (16, 4), (32, 5), (60, 30)]
chances = st.sampled_from(SIZES).flatmap(
    lambda size: st.floats(0.25, 8).map(lambda epsilon: (*size, _chance(size[0], size[1], epsilon)))
)


def _chance(cells: int, window: int, epsilon: float) -> float:
    odds = window / (cells - window) * math.exp(epsilon)
    return odds / (1 + odds)


@given(chances)
def test_reports_of_any_two_numbers_differ_by_the_stated_epsilon(size):
    cells, window, q = size
    rows = cell_chances(*size)
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    ratio = math.log(rows.max() / rows.min())
    assert ratio == pytest.approx(math.log(q * (cells - window) / ((1 - q) * window)))


@given(chances)
def test_the_weights_expectation_is_the_number_wherever_it_lies(size):
    weights = cell_weights(*size)
    grid = np.linspace(0, 1, size[0] - size[1] + 1)
    np.testing.assert_allclose(cell_chances(*size) @ weights, grid, atol=1e-9)
    np.testing.assert_allclose(weights + weights[::-1], 1, atol=1e-9 * np.abs(weights).max())


@given(chances, st.integers(0, 2**32 - 1))
def test_no_other_unbiased_weights_have_less_variance_if_windows_begin_anywhere_alike(size, seed):
    rows, weights = cell_chances(*size), cell_weights(*size)
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=size[0])
    direction -= np.linalg.pinv(rows) @ (rows @ direction)  # leaves all expectations as they are
    alike = rows.mean(axis=0)
    best = alike @ weights**2
    for step in (-1e-2, 1e-2):
        assert alike @ (weights + step * direction) ** 2 >= best * (1 - 1e-9)


@given(chances, st.integers(0, 2**32 - 1))
def test_every_population_scatters_at_least_as_the_least_one_of_its_mean(size, seed):
    rng = np.random.default_rng(seed)
    starts = rng.dirichlet(np.full(size[0] - size[1] + 1, 0.1))
    grid = np.linspace(0, 1, len(starts))
    squares = starts @ cell_chances(*size) @ cell_weights(*size) ** 2
    least = np.interp(starts @ grid, grid, least_second_moments(*size))
    assert squares >= least * (1 - 1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_where_all_numbers_are_at_one_end_the_least_scatter_is_theirs(size):
    cells, window = size
    q = _chance(cells, window, 2.0)
    squares = cell_chances(cells, window, q) @ cell_weights(cells, window, q) ** 2
    least = least_second_moments(cells, window, q)
    assert (least[0], least[-1]) == pytest.approx((squares[0], squares[-1]))
