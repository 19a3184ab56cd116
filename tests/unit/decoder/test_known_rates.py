"""Unused bits and sums of bits: silent about honest reports, even repeated, and told when off."""

import numpy as np
import pytest

from factories import make_metric, make_params
from hubbub.client import Metric
from hubbub.decoder import CohortCounts
from hubbub.inference import FloatArray, known_rates
from hubbub.protocol import BooleanType, EnumType, OrdinalType

NOISE = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
ENUM = make_metric(metric_type=EnumType(("a", "b", "c")), params=NOISE)
FULL = make_metric(metric_type=OrdinalType(tuple(map(float, range(7)))), params=NOISE)
BOOLEAN = make_metric(metric_type=BooleanType(), params=NOISE)
N = 1_000_000


def counts_at(rates: FloatArray) -> CohortCounts:
    return CohortCounts(np.array([N]), np.rint(N * rates).astype(np.int64)[None, :])


def honest_rates(metric: Metric) -> FloatArray:
    rates = np.full(8, metric.params.p_star)
    rates[0] = metric.params.q_star
    return rates


@pytest.mark.parametrize("repeats", [1, 100])
def test_honest_clients_are_not_suspected_for_repeating_a_permanent_response(repeats):
    """200 runs of 2,000 clients; P(false alarm) <= 200 x 1e-6 by Hoeffding, really far less.

    The seed is fixed, so the test gives the same answer every time.
    """
    rng, n_clients = np.random.default_rng(20140814), 2000
    params = ENUM.params
    for _ in range(200):
        true = np.zeros((n_clients, 8), dtype=bool)
        true[np.arange(n_clients), rng.integers(3, size=n_clients)] = True
        permanent = true ^ (rng.random(true.shape) < params.f / 2)
        ones = rng.binomial(repeats, np.where(permanent, params.q, params.p)).sum(axis=0)
        counts = CohortCounts(np.array([n_clients * repeats]), ones[None, :])
        assert not known_rates(counts, ENUM).suspicious


def test_one_unused_bit_that_forgers_set_is_noticed():
    rates = honest_rates(ENUM)
    rates[7] += 0.1
    found = known_rates(counts_at(rates), ENUM)
    assert found.suspicious
    assert found.unused_rate == pytest.approx(NOISE.p_star + 0.1 / 5)


def test_number_of_reports_that_would_explain_a_deviation_is_hoeffdings():
    """Five unused bits, all of them together and the own bits make seven sums of two sides."""
    rates = honest_rates(ENUM)
    rates[7] += 0.1
    expected = 2 * (0.1 * N) ** 2 / (N * np.log(2 * 7 / 1e-6))
    found = known_rates(counts_at(rates), ENUM, alarm=1e-6)
    assert found.clients_must_send == pytest.approx(expected)


def test_small_shift_of_all_unused_bits_counts_more_than_of_one():
    one, every = honest_rates(BOOLEAN), honest_rates(BOOLEAN)
    one[7] -= 0.02
    every[1:] -= 0.02
    must_send = [known_rates(counts_at(x), BOOLEAN).clients_must_send for x in (one, every)]
    assert must_send[1] == pytest.approx(7 * must_send[0], rel=1e-6)


def test_reports_with_two_true_values_are_reported():
    rates = honest_rates(FULL)
    rates[1] = NOISE.q_star
    found = known_rates(counts_at(rates), FULL)
    assert found.suspicious
    assert found.own_bits_set == pytest.approx(found.expected_own_bits_set + 0.25)
