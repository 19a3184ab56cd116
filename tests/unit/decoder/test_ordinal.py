"""What buckets say about quantiles and means, and what they can't say."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import CategoryEstimates, Quantile, estimate_ordinal, nearest_distribution
from hubbub.protocol import bucket_bounds, bucket_label

EDGES = (0.0, 10.0, 20.0, 40.0)
SHARES = (0.1, 0.2, 0.4, 0.2, 0.1)


def estimates_of(shares: tuple[float, ...], std_error: float) -> CategoryEstimates:
    """Return estimates whose errors add up to nothing, as real ones do."""
    rate, n = np.array(shares), len(shares)
    covariance = std_error**2 * (np.eye(n) - 1 / n)
    return CategoryEstimates(rate, covariance, nearest_distribution(rate, np.ones(n)), ())


def quantiles(shares: tuple[float, ...], std_error: float) -> dict[float, Quantile]:
    return {x.level: x for x in estimate_ordinal(estimates_of(shares, std_error), EDGES).quantiles}


def test_buckets_are_written_as_half_open_intervals():
    labels = [bucket_label(*bucket) for bucket in bucket_bounds((-1.0, 0.5, 20.0))]
    assert labels == ["< -1", "[-1, 0.5)", "[0.5, 20)", ">= 20"]


def test_certain_shares_put_a_quantile_into_its_bucket():
    found = quantiles(SHARES, 1e-6)
    assert found[0.25] == Quantile(0.25, 0, 10, 0, 10)
    assert found[0.5] == Quantile(0.5, 10, 20, 10, 20)
    assert found[0.75] == Quantile(0.75, 20, 40, 20, 40)


@pytest.mark.parametrize(("errors", "known"), [(1.9, False), (2.0, True)])
def test_edge_is_known_to_be_on_one_side_at_two_standard_errors(errors, known):
    std_error = 0.01
    off = errors * std_error * math.sqrt(2 * 3 / 5)  # the error of the first two shares' sum
    below = quantiles((0.2, 0.3 - off, 0.3, 0.1, 0.1 + off), std_error)[0.5]
    above = quantiles((0.2, 0.3 + off, 0.3, 0.1, 0.1 - off), std_error)[0.5]
    assert (below.low, below.high) == (10 if known else 0, 20)
    assert (above.low, above.high) == (0, 10 if known else 20)


def test_quantile_at_an_edge_may_be_on_either_side():
    on_the_edge = quantiles((0.25, 0.25, 0.25, 0.15, 0.1), 1e-6)[0.5]
    assert (on_the_edge.low, on_the_edge.high) == (0, 20)


def test_quantile_beyond_the_last_edge_has_no_upper_end():
    beyond = quantiles((0.1, 0.1, 0.1, 0.1, 0.6), 1e-6)[0.9]
    assert beyond == Quantile(0.9, 40, math.inf, 40, math.inf)


def test_uncertain_edge_stops_the_search_though_a_later_one_is_certain():
    """Otherwise the chance of an error would grow with the number of edges."""
    below, errors = np.array([0.45, 0.15, 0.15, 0.15]), np.array([0.1, 0.01, 0.01, 0.01])
    differences = np.vstack([np.eye(4), np.zeros(4)]) - np.vstack([np.zeros(4), np.eye(4)])
    rate = differences @ below + [0, 0, 0, 0, 1]
    covariance = differences @ np.diag(errors**2) @ differences.T
    estimates = CategoryEstimates(rate, covariance, nearest_distribution(rate, np.ones(5)), rate)
    found = estimate_ordinal(estimates, EDGES)
    assert found.interval.high[1] < 0.5
    assert found.quantiles[1].low == -math.inf


@given(
    st.lists(st.floats(-0.2, 0.6), min_size=5, max_size=5),
    st.floats(1e-4, 1),
)
def test_estimated_bucket_is_within_the_interval_and_shares_never_fall(rate, std_error):
    scaled = tuple(x + (1 - sum(rate)) / 5 for x in rate)
    found = estimate_ordinal(estimates_of(scaled, std_error), EDGES)
    for quantile in found.quantiles:
        assert quantile.low <= quantile.bucket_low < quantile.bucket_high <= quantile.high
    assert (np.diff(found.cumulative) >= 0).all()
    assert found.cumulative[-1] == 1
