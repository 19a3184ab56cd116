"""Shares of categories: exact covariance, exact tests, and the nearest distribution."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_metric, make_params
from hubbub.client import Metric, RapporParams
from hubbub.decoder import CohortCounts
from hubbub.inference import (
    CategoryEstimates,
    FloatArray,
    UndecodableError,
    decode_categories,
    estimate_categories,
    nearest_distribution,
    rate_covariance,
)
from hubbub.protocol import BooleanType, EnumType, MetricError

LOOSE = make_params(8, 1, 1, f=0.2, p=0.05, q=0.75)
BACKWARDS = make_params(8, 1, 1, f=0.2, p=0.75, q=0.05)
NOISES = pytest.mark.parametrize("noise", [LOOSE, BACKWARDS], ids=["q > p", "q < p"])
SHARES: FloatArray = np.array([0.6, 0.3, 0.1])
MANY = 10**12


def metric_of(n: int, noise: RapporParams = LOOSE) -> Metric:
    return make_metric(metric_type=EnumType(tuple(map(str, range(n)))), params=noise)


def exact_counts(shares: FloatArray, metric: Metric, n_reports: int = MANY) -> CohortCounts:
    """Return the expected counts: their rates are the shares, but for rounding to whole reports."""
    params = metric.params
    rate = np.zeros(params.k)
    rate[: len(shares)] = shares
    bits = n_reports * (params.p_star + (params.q_star - params.p_star) * rate)
    return CohortCounts(np.array([n_reports]), np.rint(bits).astype(np.int64)[None, :])


def enumerated_covariance(shares: FloatArray, params: RapporParams) -> FloatArray:
    """Return Cov(y) of one report from every category and every pattern of its bits."""
    n, mean, second = len(shares), np.zeros(len(shares)), np.zeros((len(shares),) * 2)
    for category, pattern in itertools.product(range(n), itertools.product((0, 1), repeat=n)):
        chance = shares[category]
        for bit, value in enumerate(pattern):
            of_one = params.q_star if bit == category else params.p_star
            chance *= of_one if value else 1 - of_one
        y = (np.array(pattern) - params.p_star) / (params.q_star - params.p_star)
        mean += chance * y
        second += chance * np.outer(y, y)
    np.testing.assert_allclose(mean, shares, atol=1e-12)
    return second - np.outer(mean, mean)


def test_all_other_texts_are_the_last_category():
    metric = make_metric(metric_type=EnumType(("a", "b"), other=True), params=LOOSE)
    decoding = decode_categories(exact_counts(SHARES, metric), metric)
    assert decoding.categories == ("a", "b", "other")
    np.testing.assert_allclose(decoding.estimates.unbiased, SHARES, atol=1e-6)


@NOISES
@pytest.mark.parametrize("shares", [(1.0, 0, 0), (0.6, 0.3, 0.1), (0.4, 0.3, 0.2, 0.1, 0.0)])
def test_covariance_of_rates_is_that_of_all_reports_enumerated(noise, shares):
    given = np.array(shares)
    expected = enumerated_covariance(given, noise) / 7
    np.testing.assert_allclose(rate_covariance(given, 7, noise), expected, atol=1e-12)


@NOISES
def test_covariance_of_estimates_is_that_of_the_same_weights_enumerated(noise):
    estimates = estimate_categories(exact_counts(SHARES, metric_of(3, noise)), metric_of(3, noise))
    of_rates = enumerated_covariance(SHARES, noise) / MANY
    weights = np.eye(3) - np.outer(of_rates.sum(axis=0) / of_rates.sum(), np.ones(3))
    np.testing.assert_allclose(
        estimates.covariance, weights @ of_rates @ weights.T, rtol=1e-6, atol=1e-18
    )


def test_knowing_that_shares_add_up_to_1_makes_errors_smaller():
    metric = metric_of(2)
    estimates = estimate_categories(exact_counts(np.array([0.5, 0.5]), metric), metric)
    without = rate_covariance(np.array([0.5, 0.5]), MANY, metric.params)
    noise = without[0, 0] - 0.25 / MANY
    assert estimates.covariance[0, 0] == pytest.approx(0.25 / MANY + noise / 2)


@NOISES
def test_expected_counts_give_back_the_shares(noise):
    metric = metric_of(3, noise)
    estimates = estimate_categories(exact_counts(SHARES, metric), metric)
    np.testing.assert_allclose(estimates.unbiased, SHARES, atol=1e-9)
    np.testing.assert_allclose(estimates.share, SHARES, atol=1e-9)


@given(st.lists(st.integers(0, 1000), min_size=8, max_size=8))
def test_whatever_the_counts_shares_are_a_distribution_and_rates_add_up_to_1(ones):
    counts = CohortCounts(np.array([1000]), np.array([ones]))
    for metric_type in (BooleanType(), EnumType(("a", "b")), EnumType(tuple("abcdefg"))):
        estimates = estimate_categories(counts, make_metric(metric_type=metric_type, params=LOOSE))
        assert estimates.unbiased.sum() == pytest.approx(1)
        assert estimates.share.sum() == pytest.approx(1)
        assert estimates.share.min() >= 0
        assert (estimates.log_p_value <= 0).all()


def vectors(low: float, high: float, n: int = 6) -> st.SearchStrategy[FloatArray]:
    numbers = st.lists(st.floats(low, high), min_size=n, max_size=n)
    return numbers.map(np.array)


@given(vectors(-1, 1), vectors(0.01, 2))
def test_no_distribution_is_nearer_than_the_projection(rate, var):
    """It is nearest if and only if no step towards a corner of the simplex leads nearer."""
    nearest = nearest_distribution(rate, var)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(1)
    descent = (rate - nearest) / var
    assert (descent - descent @ nearest <= 1e-9 * max(1, np.abs(descent).max())).all()


@pytest.mark.parametrize("n_reports", [1, 50, 3000])
@NOISES
def test_p_value_is_the_chance_that_an_empty_category_looks_as_present(noise, n_reports):
    metric = metric_of(3, noise)
    of_no_use = np.zeros(6, dtype=np.int64)
    for ones in {0, 1, n_reports // 2, n_reports}:
        counts = CohortCounts(np.array([n_reports]), np.array([[ones, ones, *of_no_use]]))
        law = stats.binom(n_reports, metric.params.p_star)
        tail = law.sf(ones - 1) if noise is LOOSE else law.cdf(ones)
        found = np.exp(estimate_categories(counts, metric).log_p_value[0])
        assert found == pytest.approx(tail, rel=1e-9)


@NOISES
def test_p_value_of_false_asks_whether_all_could_be_true(noise):
    metric = make_metric(metric_type=BooleanType(), params=noise)
    law = stats.binom(2000, metric.params.q_star)
    ones = int(law.mean())
    counts = CohortCounts(np.array([2000]), np.array([[ones] + 7 * [0]]))
    false, true = np.exp(estimate_categories(counts, metric).log_p_value)
    assert false == pytest.approx(law.cdf(ones) if noise is LOOSE else law.sf(ones - 1))
    assert true < 1e-9


def test_contrasts_carry_the_whole_covariance():
    covariance = np.array([[4.0, -1, -3], [-1, 3, -2], [-3, -2, 5]])
    estimates = CategoryEstimates(SHARES, covariance, SHARES, ())
    values, errors = estimates.contrast(np.array([[1.0, -1, 0], [1, 1, 0], [1, 1, 1]]))
    np.testing.assert_allclose(values, [0.3, 0.9, 1])
    np.testing.assert_allclose(errors, [3, np.sqrt(5), 0])


def test_string_metric_and_missing_reports_are_refused():
    metric = metric_of(3)
    nothing = CohortCounts(np.zeros(1, dtype=np.int64), np.zeros((1, 8), dtype=np.int64))
    with pytest.raises(UndecodableError, match="no reports"):
        estimate_categories(nothing, metric)
    with pytest.raises(MetricError, match="must be a type with categories"):
        estimate_categories(nothing, make_metric())
