"""Shares that are bounded at 0 are those that the libraries' own solvers find."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import Bounds, LinearConstraint, minimize, nnls
from sklearn.linear_model import Lasso

from hubbub.inference import BestWithout, best_of_quadratic, quadratic
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


@examples(60)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 60), alpha=st.floats(0.01, 0.5))
def test_lasso_is_scikit_learns(seed, columns, alpha):
    matrix, rates = regression(seed, 2 * columns + 5, columns)
    lasso = Lasso(alpha=alpha, positive=True, fit_intercept=False, max_iter=100_000, tol=1e-10)
    expected = lasso.fit(matrix, rates).coef_
    score = matrix.T @ rates - alpha * len(rates)
    found = best_of_quadratic(matrix.T @ matrix, score, np.zeros(columns))
    assert found == pytest.approx(expected, abs=1e-4)


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


@pytest.mark.parametrize("exchanges", [20, 0])
@pytest.mark.parametrize("seed", range(10))
def test_the_peak_without_a_component_is_that_of_the_others_alone(monkeypatch, seed, exchanges):
    """Component 0 may be of any sign, the others not; exchanges that don't end are done slowly."""
    monkeypatch.setattr(quadratic, "_MOST_EXCHANGES", exchanges)
    columns = 5 + 8 * seed
    matrix, rates = regression(seed, 2 * columns + 5, columns)
    information = matrix.T @ matrix
    peak = best_of_quadratic(information, matrix.T @ rates, np.zeros(columns))
    score = matrix.T @ (rates - matrix @ peak)
    best = BestWithout(information, score, peak)
    for component in np.flatnonzero(peak)[1:]:
        others = np.delete(matrix, component, axis=1)
        signed = np.column_stack([others, -others[:, 0]])
        expected, _ = nnls(signed, rates)
        expected[0] -= expected[-1]
        found = best(int(component))
        assert found[component] == 0
        assert np.delete(found, component) == pytest.approx(expected[:-1], abs=1e-4)
