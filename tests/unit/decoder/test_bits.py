"""From noisy counts to unbiased bit rates."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts
from hubbub.inference import estimate_bits, variance_of_one
from significance import z_limit

chances = st.floats(0.01, 0.99)


@st.composite
def parameters(draw: st.DrawFn) -> RapporParams:
    p = draw(chances)
    q = draw(chances.filter(lambda q: abs(q - p) > 0.01))
    return make_params(k=8, m=2, f=draw(st.floats(0, 0.95, allow_subnormal=False)), p=p, q=q)


@given(parameters(), st.floats(0, 1))
def test_inversion_undoes_both_responses(params, rate):
    """The expected count of a bit that a share `rate` of clients sets gives back `rate`.

    Each client's bit goes through the paper's two steps, written out here.
    """
    n = 10**15  # so that rounding the expected count to a whole number costs nothing
    permanent = params.f / 2 + (1 - params.f) * rate
    reported = params.q * permanent + params.p * (1 - permanent)
    counts = CohortCounts(np.full(params.m, n), np.full((params.m, params.k), round(reported * n)))
    np.testing.assert_allclose(estimate_bits(counts, params).rate, rate, atol=1e-9)


def test_estimates_are_unbiased_and_have_the_stated_variance(rng):
    """20,000 cohorts' bits of 1,000 clients each, of whom 30% set the bit.

    The mean and the sample variance (relative sd sqrt(2/n) = 1%) both lie within 5.0 standard
    errors. P(false alarm) < 1e-6 for the two together (normal approximation).
    """
    params, clients, rate = make_params(k=80, m=250), 1_000, 0.3
    draws = params.m * params.k
    permanent = params.f / 2 + (1 - params.f) * rate
    reported = params.q * permanent + params.p * (1 - permanent)
    ones = rng.binomial(clients, reported, size=(params.m, params.k))
    estimated = estimate_bits(CohortCounts(np.full(params.m, clients), ones), params).rate
    variance = float(variance_of_one(np.array([rate]), params)[0]) / clients
    z_of_mean = (estimated.mean() - rate) / np.sqrt(variance / draws)
    z_of_variance = (estimated.var() / variance - 1) / np.sqrt(2 / draws)
    assert max(abs(z_of_mean), abs(z_of_variance)) < z_limit(2)


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_variance_is_that_of_a_coin_stretched_by_the_slope(rate):
    """At f=1/2, p=1/4, q=3/4: p*=3/8, q*=5/8, so r = 3/8 + rate/4 and the slope is 1/4."""
    reported = 3 / 8 + rate / 4
    given_rate = np.array([rate])
    assert variance_of_one(given_rate, make_params())[0] == reported * (1 - reported) * 16


@pytest.mark.parametrize(("wild", "tame"), [(-0.5, 0.0), (1.5, 1.0)])
def test_variance_of_an_impossible_rate_is_that_of_the_nearest_possible(wild, tame):
    params = make_params()
    np.testing.assert_array_equal(
        variance_of_one(np.array([wild]), params), variance_of_one(np.array([tame]), params)
    )


def test_empty_cohorts_have_rate_zero_and_no_say():
    params = make_params(k=8, m=3)
    bits = estimate_bits(CohortCounts(np.array([0, 8, 0]), np.full((3, 8), 4) * [[0], [1], [0]]),
                         params)  # fmt: skip
    assert not bits.rate[[0, 2]].any()
    np.testing.assert_allclose(bits.rate[1], 0.5)
    assert bits.informative == 8
