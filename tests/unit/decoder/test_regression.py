"""The weighted regression against dense textbook algebra."""

import itertools

import numpy as np
import pytest

from factories import make_params
from hubbub.inference import BoolArray, Fit, FloatArray, fit_selected, make_design, unknown_column
from unit.decoder.models import (
    PARAMS,
    SELECTED,
    SHARES,
    bits_of,
    design_of,
    filters_of,
    fit_of,
    influence_of,
    noisy_bits,
    rates_of,
    textbook,
)

FEW_FREE = [True, False, True, False, False, False, True, False, False, False]
PRIOR_VARIANCE, PRIOR_MEAN = 4e-4, 0.01


def mixed_fit(rng: np.random.Generator) -> tuple[Fit, FloatArray]:
    """Return a fit of ten strings, three of them free, and the rates; one cohort is empty."""
    design = design_of(10)
    bits = noisy_bits(design, rng)
    bits.reports[3] = 0
    fit = fit_of(bits, design, np.arange(10), FEW_FREE, PRIOR_VARIANCE, PRIOR_MEAN)
    return fit, bits.rate.ravel()


def columns(fit: Fit) -> tuple[BoolArray, BoolArray]:
    """Return marks of the free columns, the unknown mass among them, and of the others."""
    return np.asarray(fit.penalties == 0), np.asarray(fit.penalties > 0)


def test_free_members_solve_the_weighted_normal_equations(rng):
    design = design_of(10)
    bits = noisy_bits(design, rng)
    fit = fit_selected(bits, design, SELECTED, PARAMS)
    everything = np.ones(5, dtype=np.bool_)
    expected = textbook(fit, bits.rate.ravel(), everything, ~everything)
    np.testing.assert_allclose(fit.coefficients, expected.coefficients)
    np.testing.assert_allclose(fit.covariance, expected.covariance)


def test_drawn_members_are_noise_to_the_free_ones(rng):
    """Coefficients, covariance and V^-1 (y - X beta), with V = D + tau^2 I + sigma^2 Z Z'."""
    fit, rates = mixed_fit(rng)
    free, drawn = columns(fit)
    expected = textbook(fit, rates, free, drawn)
    np.testing.assert_allclose(fit.coefficients[free], expected.coefficients)
    np.testing.assert_allclose(fit.covariance[np.ix_(free, free)], expected.covariance)
    np.testing.assert_allclose(fit.scores, expected.scores, atol=1e-6 * np.abs(fit.scores).max())


def test_drawn_shares_are_their_conditional_expectations(rng):
    """E(gamma | y) = mu + sigma^2 Z' V^-1 (y - Z mu - X beta): best linear unbiased predictions."""
    fit, rates = mixed_fit(rng)
    free, drawn = columns(fit)
    moved = PRIOR_VARIANCE * fit.basis.toarray()[drawn] @ textbook(fit, rates, free, drawn).scores
    np.testing.assert_allclose(fit.coefficients[drawn], PRIOR_MEAN + moved)


def test_influence_is_that_of_the_model_with_the_member_freed(rng):
    fit, rates = mixed_fit(rng)
    free, drawn = columns(fit)
    influence = influence_of(fit, np.arange(10))
    for member in range(10):
        freed = free | (np.arange(11) == 1 + member)
        expected = textbook(fit, rates, freed, drawn & ~freed)
        place = int(freed[: 1 + member].sum())
        np.testing.assert_allclose(influence[:, member], expected.influence[:, place], atol=1e-12)
        assert fit.shares[member] == pytest.approx(expected.coefficients[place])
        others = (np.delete(fit.basis.toarray()[1:], member, axis=0).T
                  @ (PRIOR_MEAN * ~np.delete(FEW_FREE, member)))  # fmt: skip
        moved = influence[:, member] @ (rates - others)
        assert moved == pytest.approx(fit.shares[member])


def test_cohorts_without_reports_have_no_say(rng):
    design = design_of(10)
    bits = noisy_bits(design, rng)
    bits.reports[[1, 4]] = 0
    fit = fit_of(bits, design, np.arange(10), FEW_FREE, PRIOR_VARIANCE)
    bits.rate[[1, 4]] = 99.0
    again = fit_of(bits, design, np.arange(10), FEW_FREE, PRIOR_VARIANCE)
    np.testing.assert_array_equal(again.coefficients, fit.coefficients)
    np.testing.assert_array_equal(again.covariance, fit.covariance)
    np.testing.assert_array_equal(again.scores, fit.scores)
    assert not fit.weights.reshape(PARAMS.m, PARAMS.k)[[1, 4]].any()


def test_unknown_column_is_the_chance_that_a_random_string_sets_a_bit():
    """Enumerates all 8^3 outcomes of three hashes."""
    outcomes = itertools.product(range(8), repeat=3)
    assert unknown_column(make_params(k=8, h=3)) == np.mean([0 in hashes for hashes in outcomes])


def test_background_is_the_scatter_that_unlisted_strings_add():
    """One unlisted string of share a sets its bits and no others: variance a^2 b (1 - b) a row."""
    params, share = make_params(m=64), 0.2
    design = design_of(1, params)
    rates = rates_of(design, np.array([share]), params=params)
    bits = bits_of(rates, params, n_reports=1e9)
    fit = fit_selected(bits, design, np.empty(0, dtype=np.int64), params)
    b = unknown_column(params)
    assert fit.excess_variance == pytest.approx(share**2 * b * (1 - b), rel=0.02)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([{0, 1}, {0, 1}, {2}], 2),
        ([{0, 1, 2}, {0, 1}, {2}], 2),
        ([{0, 1}, {1, 2}, {2, 3}, {0, 3}], 3),
        ([set(range(8))], 0),
        ([{0, 1, 2, 3}, {4, 5, 6, 7}], 1),
        ([{bit} for bit in range(8)], 7),
    ],
    ids=["twins", "sum of two", "cycle", "all bits", "complements", "every bit"],
)
def test_dependent_columns_are_left_out_but_never_the_unknown_mass(filters, kept, rng):
    """One cohort of 8 bits. A matrix that stays singular ends in a warning, which is an error."""
    params = make_params(k=8, h=8, m=1)
    candidates = filters_of(filters, params)
    design = make_design(candidates.positions(slice(None)), params)
    for _ in range(50):
        bits = bits_of(rng.random(params.k), params, n_reports=1000)
        fit = fit_selected(bits, design, np.arange(len(filters)), params)
        assert len(fit.selected) == kept
        assert np.linalg.matrix_rank(fit.basis.toarray()) == 1 + kept
        np.testing.assert_allclose(fit.basis.toarray()[0], unknown_column(params))


def test_drawn_columns_may_be_dependent_and_more_than_the_rows(rng):
    """300 members of 64 rows: the free ones are kept, and so are all others."""
    params = make_params(k=8, h=2, m=8)
    design = design_of(300, params)
    bits = bits_of(0.2 + 0.01 * rng.standard_normal(64), params, n_reports=1e5)
    free = [i < 5 for i in range(300)]
    fit = fit_of(bits, design, np.arange(300), free, 1e-4, params=params)
    assert len(fit.selected) == 300
    assert np.isfinite(fit.covariance).all()
    chosen = np.concatenate([[True], free])
    expected = textbook(fit, bits.rate.ravel(), chosen, ~chosen)
    np.testing.assert_allclose(fit.coefficients[chosen], expected.coefficients, atol=1e-8)


def test_known_rates_weigh_as_if_they_were_in_the_model(rng):
    """Half of the shares are known: the other half is fitted as if all were in the model."""
    design = design_of(len(SHARES))
    bits = noisy_bits(design, rng)
    of_all = fit_of(bits, design, SELECTED)
    known = np.asarray(design.matrix[2:].T @ of_all.coefficients[3:]).reshape(bits.rate.shape)
    beside = fit_of(bits.beyond(known), design, SELECTED[:2])
    np.testing.assert_allclose(beside.weights, of_all.weights, rtol=5e-3)
    np.testing.assert_allclose(beside.coefficients, of_all.coefficients[:3], rtol=5e-3)
    alone = fit_of(bits_of(bits.rate - known, n_reports=1e5), design, SELECTED[:2])
    assert np.abs(alone.weights / of_all.weights - 1).max() > 0.02
