"""Shares that are bounded at 0 are those that the libraries' own solvers find."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import Bounds, LinearConstraint, minimize, nnls

from hubbub.inference import best_of_quadratic, best_without
from parameters import examples


def regression(seed, rows, columns):
    rng = np.random.default_rng(seed)
    matrix = (rng.random((rows, columns)) < 0.3) + 0.05 * rng.random((rows, columns))
    shares = np.maximum(rng.normal(0.0, 1.0, columns), 0.0)
    return matrix, matrix @ shares + rng.normal(0.0, 0.5, rows)


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 60), start=st.sampled_from((0.0, 1.0))
)
def test_least_squares_with_shares_of_at_least_0_are_lawson_and_hansons(seed, columns, start):
    matrix, rates = regression(seed, 2 * columns + 5, columns)
    begin = np.full(columns, start)
    score = matrix.T @ (rates - matrix @ begin)
    found = best_of_quadratic(matrix.T @ matrix, score, begin)
    assert found == pytest.approx(nnls(matrix, rates)[0], abs=1e-4)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(2, 12))
def test_shares_that_keep_their_sum_are_as_good_as_any(seed, columns):
    matrix, rates = regression(seed, 2 * columns + 5, columns)
    begin = np.full(columns, 1.0 / columns)
    gram, score = matrix.T @ matrix, matrix.T @ (rates - matrix @ begin)

    def loss(shares):
        moved = shares - begin
        return float(0.5 * moved @ gram @ moved - score @ moved)

    found = best_of_quadratic(gram, score, begin, keep_sum=True)
    peak = minimize(
        loss,
        begin,
        method="SLSQP",
        bounds=Bounds(0.0),
        constraints=LinearConstraint(np.ones(columns), 1.0, 1.0),
    )
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    assert loss(found) <= peak.fun + 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_the_peak_without_a_component_is_that_of_the_others_alone(seed):
    """Component 0 may be of any sign, the others not."""
    columns = 5 + 8 * seed
    matrix, rates = regression(seed, 2 * columns + 5, columns)
    information = matrix.T @ matrix
    peak = best_of_quadratic(information, matrix.T @ rates, np.zeros(columns))
    score = matrix.T @ (rates - matrix @ peak)
    for component in np.flatnonzero(peak)[1:]:
        others = np.delete(matrix, component, axis=1)
        signed = np.column_stack([others, -others[:, 0]])
        expected, _ = nnls(signed, rates)
        expected[0] -= expected[-1]
        found = best_without(information, score, peak, int(component))
        assert found[component] == 0
        assert np.delete(found, component) == pytest.approx(expected[:-1], abs=1e-4)
