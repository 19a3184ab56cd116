"""The possible shares solve the constrained problem."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import constrained_shares
from parameters import examples
from unit.decoder.models import SHARES, bits_of, design_of, fit_of, noisy_bits, rates_of


@examples(30)
@given(st.integers(0, 10**6), st.sampled_from([1e3, 1e5, 1e7]), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_shares_are_those_of_the_karush_kuhn_tucker_conditions(seed, n_reports, spread):
    """Where a share is positive the gradient is the multiplier of the sum; elsewhere not below it.

    The gradient of half of (beta - theta)' C^-1 (beta - theta) over the free members.
    """
    rng = np.random.default_rng(seed)
    design = design_of(30)
    marks = [i < 8 for i in range(30)]
    bits = noisy_bits(design, rng, SHARES * rng.uniform(0.5, 1.3), n_reports)
    fit = fit_of(bits, design, np.arange(30), marks, spread)
    selected, listed = constrained_shares(fit)
    np.testing.assert_array_equal(selected, np.arange(8))
    assert listed.min() >= 0
    assert listed.sum() <= 1 + 1e-9
    shares = np.concatenate([[1 - listed.sum()], listed])
    free = fit.penalties == 0
    information = np.linalg.inv(fit.covariance[np.ix_(free, free)])
    gradient = information @ (shares - fit.coefficients[free])
    inside = shares > 1e-7
    multiplier = gradient[inside].mean()
    slack = 1e-4 * np.abs(information @ fit.coefficients[free]).max()
    np.testing.assert_allclose(gradient[inside], multiplier, atol=slack)
    assert (gradient[~inside] >= multiplier - slack).all()


def test_they_err_less_than_the_unbiased_ones(rng):
    """20 draws of 100 strings, most of them absent: squared errors are half as large on average.

    (0.40 of those of the unbiased shares over 100 draws, and at most 0.65.)
    """
    design = design_of(100)
    truth = np.concatenate([SHARES, np.zeros(96)])
    quotients = []
    for _ in range(20):
        bits = noisy_bits(design, rng, n_reports=2e4)
        fit = fit_of(bits, design, np.arange(100))
        unbiased = ((fit.coefficients[1:] - truth) ** 2).sum()
        quotients.append(((constrained_shares(fit)[1] - truth) ** 2).sum() / unbiased)
    assert np.mean(quotients) < 0.5
    assert max(quotients) < 1


def test_members_drawn_about_zero_are_noise(rng):
    """300 members of 256 rows, of which four are free."""
    design = design_of(300)
    bits = noisy_bits(design, rng)
    fit = fit_of(bits, design, np.arange(300), [i < 4 for i in range(300)], 1e-5)
    assert len(fit.selected) == 300
    selected, shares = constrained_shares(fit)
    assert selected.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(shares, SHARES, atol=0.05)


@pytest.mark.parametrize("shares", [[0.7, 0.6], [-0.2, 0.5], [1.5, -0.1]])
def test_impossible_rates_still_give_possible_shares(shares):
    design = design_of(2)
    _, possible = constrained_shares(
        fit_of(bits_of(rates_of(design, np.array(shares))), design, np.arange(2))
    )
    assert ((possible >= 0) & (possible <= 1)).all()
    assert possible.sum() <= 1 + 1e-9
