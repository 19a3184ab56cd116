"""Intervals of shares hold 95% everywhere between 0 and 1, ends included, and are never empty."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from hubbub.inference import Z_CONFIDENCE, FloatArray, share_interval

SE = 0.01
FINE: FloatArray = np.linspace(-9, 9, 900_001)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("errors", [0, 1e-3, 0.05, 0.5, 1, 1.64, 1.9, 1.96, 1.97, 2.5, 3.92, 4, 9])
def test_share_at_any_distance_from_an_end_is_held_with_95_percent(errors, side):
    """By numerical integration over the estimate's normal law; no randomness."""
    truth = errors * SE if side > 0 else 1 - errors * SE
    interval = share_interval(truth + SE * FINE, np.full_like(FINE, SE))
    # An end is given up to rounding; at a truth of exactly 0 or 1 the interval's own end is exact.
    held = (interval.low <= truth + 1e-12) & (truth - 1e-12 <= interval.high)
    weights = stats.norm.pdf(FINE)
    assert (weights * held).sum() / weights.sum() == pytest.approx(0.95, abs=2e-4)


def test_interval_far_from_the_ends_is_the_usual_one():
    estimate = np.array([0.05, 0.3, 0.5, 0.7, 0.95])
    interval = share_interval(estimate, np.full(5, SE))
    np.testing.assert_allclose(interval.low, estimate - Z_CONFIDENCE * SE)
    np.testing.assert_allclose(interval.high, estimate + Z_CONFIDENCE * SE)


@given(st.floats(-0.2, 1.2), st.floats(1e-4, 0.3))
def test_share_and_its_complement_have_mirrored_intervals(share, std_error):
    errors = np.array([std_error])
    interval = share_interval(np.array([share]), errors)
    mirrored = share_interval(np.array([1 - share]), errors)
    if share != 0.5:
        np.testing.assert_allclose(interval.low, 1 - mirrored.high, atol=1e-12)
        np.testing.assert_allclose(interval.high, 1 - mirrored.low, atol=1e-12)
