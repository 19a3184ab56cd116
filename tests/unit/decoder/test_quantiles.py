"""Quantiles of a number's buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.quantiles import quantiles
from hubbub.inference.categories.shares import CategoryEstimates

_EDGES = (0.0, 10.0, 30.0, 40.0)
_LEVELS = (0.25, 0.5, 0.75)


def _estimates(unbiased: FloatArray, error: float = 0.0) -> CategoryEstimates:
    n = len(unbiased)
    covariance = error**2 * (np.eye(n) - 1 / n)
    return CategoryEstimates(unbiased, covariance, np.maximum(unbiased, 0), ())


def test_quantile_divides_its_bucket():
    """Below 10 are .3, below 30 .7: the median is in the middle of [10, 30)."""
    value, error = quantiles(_estimates(np.array([0.1, 0.2, 0.4, 0.2, 0.1])), _EDGES, _LEVELS)
    assert value == pytest.approx([7.5, 20.0, 32.5])
    assert error == pytest.approx(0.0)


def test_quantile_of_an_open_bucket_is_unknown():
    value, error = quantiles(_estimates(np.array([0.6, 0.1, 0.1, 0.1, 0.1])), _EDGES, _LEVELS)
    assert np.isnan(value).tolist() == np.isnan(error).tolist() == [True, True, False]


def test_interval_that_reaches_an_open_bucket_has_no_end():
    found = _estimates(np.array([0.24, 0.26, 0.2, 0.2, 0.1]), 0.01)
    value, error = quantiles(found, _EDGES, _LEVELS)
    assert np.isfinite(value).all()
    assert np.isnan(error).tolist() == [True, False, False]


shares = st.lists(st.floats(-0.05, 1.0), min_size=5, max_size=5).map(np.array)


@given(shares, st.floats(0.1, 100.0), st.floats(-1e3, 1e3))
def test_quantiles_are_in_the_numbers_own_unit(unbiased, factor, shift):
    """Whoever counts in other units gets the same quantiles in them."""
    if unbiased.sum() < 0.1:
        unbiased = unbiased + 0.1
    found = _estimates(unbiased / unbiased.sum(), 0.01)
    moved = [edge * factor + shift for edge in _EDGES]
    value, error = quantiles(found, _EDGES, _LEVELS)
    other, other_error = quantiles(found, moved, _LEVELS)
    np.testing.assert_allclose(other, value * factor + shift, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other_error, error * factor, rtol=1e-6, atol=1e-6)


@given(shares)
def test_quantiles_rise_with_their_levels(unbiased):
    if unbiased.sum() < 0.1:
        unbiased = unbiased + 0.1
    levels = np.linspace(0.05, 0.95, 19)
    value, _ = quantiles(_estimates(unbiased / unbiased.sum()), _EDGES, levels.tolist())
    known = value[~np.isnan(value)]
    assert (np.diff(known) >= -1e-9).all()
