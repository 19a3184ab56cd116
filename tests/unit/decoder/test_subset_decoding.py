"""Categories and tables from sets of fixed size: covariance, tests, and what can't be honest."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from evaluation.drawn_counts import draw_cells
from factories import make_metric
from hubbub.client import Metric
from hubbub.decoder import CohortCounts, decode_categories
from hubbub.inference import FieldLabels, FloatArray, decode_joint, estimate_categories
from hubbub.protocol import EnumType, Field, JointType, MetricType, OrdinalType, Subset
from hubbub.reporting import categories_estimates

SHARES: FloatArray = np.array([0.5, 0.25, 0.15, 0.1, 0.0])
Q = 0.7


def metric_of(a_type: MetricType | None = None, size: int = 2, cells: int = 5) -> Metric:
    a_type = a_type or EnumType(tuple("abcde"))
    return make_metric(metric_type=a_type, response=Subset(cells, size, Q), mode="one-time")


def expected_counts(metric: Metric, shares: FloatArray = SHARES, n: int = 10**9) -> CohortCounts:
    bits = np.zeros((1, metric.params.k), dtype=np.int64)
    rate = metric.params.p + (metric.params.q - metric.params.p) * shares
    bits[0, : len(shares)] = np.rint(n * rate)
    bits[0, 0] += n * (metric.response.ones or 0) - bits.sum()
    return CohortCounts(np.array([n]), bits)


def covariance_of_a_report(metric: Metric, shares: FloatArray) -> FloatArray:
    """Return the covariance of the inverted bits of one report, over all clients and sets."""
    d, w, params = len(shares), metric.response.ones or 0, metric.params
    mean, second = np.zeros(d), np.zeros((d, d))
    for own, chosen in itertools.product(range(d), itertools.combinations(range(d), w)):
        alike = math.comb(d - 1, w - 1) if own in chosen else math.comb(d - 1, w)
        chance = shares[own] * (params.q if own in chosen else 1 - params.q) / alike
        y = (np.isin(np.arange(d), chosen) - params.p) / (params.q - params.p)
        mean += chance * y
        second += chance * np.outer(y, y)
    np.testing.assert_allclose(mean, shares, atol=1e-12)
    return second - np.outer(mean, mean)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_covariance_of_shares_is_that_of_all_clients_and_sets(size):
    metric = metric_of(size=size)
    found = estimate_categories(expected_counts(metric), metric)
    np.testing.assert_allclose(found.unbiased, SHARES, atol=1e-8)
    exact = covariance_of_a_report(metric, SHARES) / 1e9
    np.testing.assert_allclose(found.covariance, exact, rtol=1e-6, atol=1e-15)
    weights = np.tri(4, 5)
    sums, error = found.contrast(weights)
    np.testing.assert_allclose(sums, np.cumsum(SHARES)[:-1], atol=1e-8)
    np.testing.assert_allclose(error**2, np.diag(weights @ exact @ weights.T), rtol=1e-6)


def test_shares_add_up_to_1_by_themselves():
    metric = metric_of()
    counts = draw_cells(metric, range(5), SHARES, 700, np.random.default_rng(1))
    found = estimate_categories(counts, metric)
    assert found.unbiased.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.covariance.sum(axis=0), 0, atol=1e-12)
    assert found.share.min() >= 0
    assert found.share.sum() == pytest.approx(1)


def test_an_absent_categorys_p_value_is_the_exact_tail_of_a_binomial():
    metric = metric_of()
    counts = draw_cells(metric, range(5), SHARES, 700, np.random.default_rng(2))
    found = estimate_categories(counts, metric)
    exact = stats.binom.logsf(counts.bits[0, :5] - 1, 700, metric.params.p)
    np.testing.assert_allclose(found.log_p_value, exact, rtol=1e-6)


def test_ordinals_have_the_sums_of_their_buckets():
    metric = metric_of(OrdinalType((10.0, 20.0, 30.0, 40.0)))
    found = decode_categories(expected_counts(metric), metric).ordinal
    assert found is not None
    np.testing.assert_allclose(found.cumulative, np.cumsum(SHARES), atol=1e-6)
    assert found.quantiles[1].bucket_high in {10.0, 20.0}


def test_margins_of_a_table_have_the_variance_of_their_cells_sums():
    fields = (Field("crash", EnumType(("a", "b"))), Field("place", EnumType(("x", "y", "z"))))
    metric, shares = metric_of(JointType(fields), 2, 6), np.array([0.3, 0.2, 0.1, 0.2, 0.1, 0.1])
    labels = tuple(FieldLabels(each.name, each.type.listed_values().labels) for each in fields)
    found = decode_joint(expected_counts(metric, shares), metric, labels).table
    assert found is not None
    rows, columns = found.margins
    np.testing.assert_allclose(rows.share, [0.6, 0.4], atol=1e-6)
    exact = covariance_of_a_report(metric, shares) / 1e9
    weights = np.kron(np.ones((1, 2)), np.eye(3))
    np.testing.assert_allclose(
        columns.std_error**2, np.diag(weights @ exact @ weights.T), rtol=1e-5
    )


def test_sets_of_another_size_are_no_honest_ones():
    metric = metric_of()
    counts = draw_cells(metric, range(5), SHARES, 700, np.random.default_rng(3))
    assert not decode_categories(counts, metric).known_rates.suspicious
    for cell in (0, 6):  # one bit more in a report: of a category, or of none
        counts.bits[0, cell] += 1
        decoding = decode_categories(counts, metric)
        assert decoding.known_rates.suspicious
        assert categories_estimates(decoding).suspicious
        counts.bits[0, cell] -= 1


def test_a_forged_set_moves_a_share_by_what_one_of_its_categories_counts_for():
    metric = metric_of()
    summary = decode_categories(expected_counts(metric), metric).summary
    p, q = metric.params.p, metric.params.q
    assert summary.forgery_shift / summary.forged_share == pytest.approx(
        (1 - p) / (q - p), abs=1e-6
    )
