"""The weighted regression against dense textbook algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.bits import BitEstimates, variance_of_one
from hubbub.decoder.candidates import Design, bit_positions, make_design
from hubbub.decoder.regression import (
    Fit,
    estimate_all,
    fit_selected,
    reports_by_row,
    total_share,
    unknown_column,
    without_candidate,
)

PARAMS = make_params(k=32, h=2, m=8)
SHARES = np.array([0.4, 0.2, 0.1, 0.05])
SELECTED = np.arange(len(SHARES))


def design_of(n: int, params: RapporParams = PARAMS, label: str = "string") -> Design:
    return make_design(bit_positions([f"{label} {i}" for i in range(n)], params), params)


def bits_of(
    rates: FloatArray, params: RapporParams = PARAMS, n_reports: float = 1e6
) -> BitEstimates:
    """Return rates over the m * k rows as if so many reports stood behind each cohort."""
    reports = np.full((params.m, 1), n_reports)
    return BitEstimates(rates.reshape(params.m, params.k), reports)


def rates_of(
    design: Design, shares: FloatArray, unknown: float = 0.0, params: RapporParams = PARAMS
) -> FloatArray:
    """Return the true rates of a population: the model's formula, without noise."""
    listed = design.matrix[: len(shares)].T @ shares
    return np.asarray(listed) + unknown * unknown_column(params)


def noisy_bits(
    design: Design, rng: np.random.Generator, shares: FloatArray = SHARES, n_reports: float = 1e5
) -> BitEstimates:
    """Return rates with sampling noise; what the shares leave of 1 is unknown mass."""
    rates = rates_of(design, shares, unknown=1 - shares.sum())
    sd = np.sqrt(variance_of_one(rates, PARAMS) / n_reports)
    return bits_of(rates + sd * rng.standard_normal(len(rates)), n_reports=n_reports)


def design_of_filters(filters: list[set[int]], params: RapporParams) -> Design:
    """Return the design of made-up filters of one cohort: positions repeat to fill h."""
    rows = [[np.resize(sorted(bits), params.h)] for bits in filters]
    return make_design(np.array(rows, dtype=np.int16), params)


def dense_basis(design: Design, selected: IntArray, params: RapporParams = PARAMS) -> FloatArray:
    columns = design.matrix.toarray()[selected]
    unknown = np.full((1, columns.shape[1]), unknown_column(params))
    return np.vstack([unknown, columns]).T


def dense_least_squares(
    basis: FloatArray, rates: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return textbook coefficients and covariance, by an orthogonal decomposition."""
    root = np.sqrt(weights)
    coefficients, *_ = np.linalg.lstsq(basis * root[:, None], rates * root)
    half = np.linalg.inv(np.linalg.qr(basis * root[:, None]).R)
    return np.asarray(coefficients), np.asarray(half @ half.T)


def dense_fit(
    design: Design, selected: IntArray, rng: np.random.Generator, shares: FloatArray = SHARES
) -> Fit:
    """Return the fit of noisy rates at arbitrary weights, some of them 0, by dense algebra."""
    rates = noisy_bits(design, rng, shares).rate.ravel()
    weights = 1e4 * rng.random(len(rates)) * (rng.random(len(rates)) < 0.9)
    basis = dense_basis(design, selected)
    coefficients, covariance = dense_least_squares(basis, rates, weights)
    return Fit(
        selected=selected,
        basis=sparse.csr_array(basis.T),
        coefficients=coefficients,
        covariance=covariance,
        residuals=rates - basis @ coefficients,
        weights=weights,
        background=0.0,
    )


@given(st.integers(0, 10**6), st.integers(0, 5), st.floats(0, 1))
def test_noiseless_rates_give_back_the_exact_shares(seed: int, n: int, unknown: float) -> None:
    design = design_of(n, label=f"{seed}")
    weights = np.random.default_rng(seed).random(n) + 0.01
    shares = (1 - unknown) * weights / weights.sum()
    fit = fit_selected(bits_of(rates_of(design, shares, unknown)), design, np.arange(n), PARAMS)
    np.testing.assert_allclose(fit.coefficients, [unknown, *shares], atol=1e-9)
    np.testing.assert_allclose(fit.residuals, 0, atol=1e-9)
    assert fit.background < 1e-15


def test_settled_fit_solves_the_weighted_normal_equations(rng: np.random.Generator) -> None:
    """Gradient and covariance of textbook least squares at the weights that the fit ended with.

    A hundredth of a standard error, and a hundredth of the covariance, is what the last of the
    reweightings may still have moved.
    """
    design = design_of(10)
    fit = fit_selected(noisy_bits(design, rng), design, SELECTED, PARAMS)
    basis = dense_basis(design, SELECTED)
    gram = basis.T @ np.diag(fit.weights) @ basis
    gradient = basis.T @ (fit.weights * fit.residuals)
    assert np.abs(gradient / np.sqrt(np.diag(gram))).max() < 0.01
    np.testing.assert_allclose(fit.covariance @ gram, np.eye(5), atol=0.01)


def test_weights_come_from_fitted_rates_and_never_from_observed_ones(
    rng: np.random.Generator,
) -> None:
    design = design_of(10)
    bits = noisy_bits(design, rng)
    fit = fit_selected(bits, design, SELECTED, PARAMS)
    fitted = dense_basis(design, SELECTED) @ fit.coefficients
    variance = variance_of_one(fitted, PARAMS) / reports_by_row(bits) + fit.background
    np.testing.assert_allclose(fit.weights, 1 / variance)
    np.testing.assert_allclose(fit.residuals, bits.rate.ravel() - fitted)


def test_cohorts_without_reports_have_no_say(rng: np.random.Generator) -> None:
    design = design_of(10)
    bits = noisy_bits(design, rng)
    bits.reports[[1, 4]] = 0
    fit = fit_selected(bits, design, SELECTED, PARAMS)
    estimates = estimate_all(fit, design, reports_by_row(bits))
    bits.rate[[1, 4]] = 99.0
    again = fit_selected(bits, design, SELECTED, PARAMS)
    np.testing.assert_array_equal(again.coefficients, fit.coefficients)
    np.testing.assert_array_equal(again.covariance, fit.covariance)
    unmoved = estimate_all(again, design, reports_by_row(bits))
    np.testing.assert_array_equal(unmoved.share, estimates.share)
    np.testing.assert_array_equal(unmoved.std_error, estimates.std_error)
    assert not fit.weights.reshape(PARAMS.m, PARAMS.k)[[1, 4]].any()


def test_unknown_column_is_the_chance_that_a_random_string_sets_a_bit() -> None:
    """Enumerates all 8^3 outcomes of three hashes."""
    outcomes = itertools.product(range(8), repeat=3)
    assert unknown_column(make_params(k=8, h=3)) == np.mean([0 in hashes for hashes in outcomes])


def test_background_is_the_scatter_that_unlisted_strings_add() -> None:
    """One unlisted string of share a sets its bits and no others: variance a^2 b (1 - b) a row."""
    params, share = make_params(m=64), 0.2
    design = design_of(1, params)
    rates = rates_of(design, np.array([share]), params=params)
    bits = bits_of(rates, params, n_reports=1e9)
    fit = fit_selected(bits, design, np.empty(0, dtype=np.int64), params)
    b = unknown_column(params)
    assert fit.background == pytest.approx(share**2 * b * (1 - b), rel=0.02)


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
def test_dependent_columns_are_left_out_but_never_the_unknown_mass(
    filters: list[set[int]], kept: int, rng: np.random.Generator
) -> None:
    """One cohort of 8 bits. A matrix that stays singular ends in a warning, which is an error."""
    params = make_params(k=8, h=8, m=1)
    design = design_of_filters(filters, params)
    for _ in range(50):
        bits = bits_of(rng.random(params.k), params, n_reports=1000)
        fit = fit_selected(bits, design, np.arange(len(filters)), params)
        assert len(fit.selected) == kept
        assert np.linalg.matrix_rank(dense_basis(design, fit.selected, params)) == 1 + kept
        np.testing.assert_allclose(fit.basis.toarray()[0], unknown_column(params))


def test_candidate_outside_the_model_is_estimated_as_if_added_to_it(
    rng: np.random.Generator,
) -> None:
    """Frisch and Waugh: the one-step estimate is the added column's coefficient."""
    design, reports = design_of(40), np.full(PARAMS.m * PARAMS.k, np.inf)
    fit = dense_fit(design, SELECTED, rng)
    estimates = estimate_all(fit, design, reports)
    rates = fit.basis.T @ fit.coefficients + fit.residuals
    for candidate in range(4, 40):
        coefficients, covariance = dense_least_squares(
            dense_basis(design, np.append(SELECTED, candidate)), rates, fit.weights
        )
        assert estimates.share[candidate] == pytest.approx(coefficients[-1], abs=1e-12)
        assert estimates.std_error[candidate] == pytest.approx(np.sqrt(covariance[-1, -1]))


def test_candidate_inside_the_model_keeps_its_coefficient(rng: np.random.Generator) -> None:
    design, reports = design_of(40), np.full(PARAMS.m * PARAMS.k, np.inf)
    fit = dense_fit(design, SELECTED, rng)
    estimates = estimate_all(fit, design, reports)
    np.testing.assert_array_equal(estimates.share[SELECTED], fit.coefficients[1:])
    np.testing.assert_allclose(estimates.std_error[SELECTED], np.sqrt(np.diag(fit.covariance))[1:])


def test_standard_error_leaves_out_the_drawing_of_the_candidates_own_clients(
    rng: np.random.Generator,
) -> None:
    """Of a weighted mean of rows, share (1 - share) / N_c a row is not the estimate's error."""
    design, reports = design_of(1), np.full(PARAMS.m * PARAMS.k, 1e4)
    fit = dense_fit(design, np.array([0]), rng, shares=np.array([0.4]))
    with_own = estimate_all(fit, design, np.full(PARAMS.m * PARAMS.k, np.inf))
    without = estimate_all(fit, design, reports)
    share = fit.coefficients[1]
    row = design.matrix.toarray()[0] * fit.weights * fit.covariance[1, 1]
    own = (row**2 / reports).sum() * share * (1 - share)
    assert without.std_error[0] ** 2 == pytest.approx(with_own.std_error[0] ** 2 - own)


def test_candidate_that_the_model_explains_has_no_estimate() -> None:
    params = make_params(k=8, h=8, m=1)
    design = design_of_filters([{0, 1}, {2, 3}, {0, 1, 2, 3}, {0, 1}, {4}], params)
    bits = bits_of(np.linspace(0.1, 0.3, 8), params)
    fit = fit_selected(bits, design, np.array([0, 1]), params)
    estimates = estimate_all(fit, design, reports_by_row(bits))
    assert np.isnan(estimates.share).tolist() == [False, False, True, True, False]
    assert np.isnan(estimates.std_error).tolist() == [False, False, True, True, False]


def test_residuals_without_a_candidate_still_hold_its_share(rng: np.random.Generator) -> None:
    design = design_of(10)
    fit = fit_selected(noisy_bits(design, rng), design, np.array([0, 1, 3]), PARAMS)
    others = fit.residuals + fit.coefficients[3] * design.matrix.toarray()[3]
    np.testing.assert_allclose(without_candidate(fit, design, 3), others)


def test_total_share_is_the_sum_and_heeds_the_correlations(rng: np.random.Generator) -> None:
    design, reports = design_of(10), np.full(PARAMS.m * PARAMS.k, np.inf)
    fit = dense_fit(design, SELECTED, rng)
    estimates = estimate_all(fit, design, reports)
    for members in ([2], [0, 3], [0, 1, 2, 3]):
        total, std_error = total_share(fit, estimates, np.array(members))
        chosen = np.isin(np.arange(5), np.array(members) + 1).astype(np.float64)
        assert total == pytest.approx(chosen @ fit.coefficients)
        assert std_error == pytest.approx(np.sqrt(chosen @ fit.covariance @ chosen))


def test_total_share_of_nobody_is_zero(rng: np.random.Generator) -> None:
    design = design_of(10)
    fit = dense_fit(design, SELECTED, rng)
    estimates = estimate_all(fit, design, np.full(PARAMS.m * PARAMS.k, 1e4))
    assert total_share(fit, estimates, np.empty(0, dtype=np.int64)) == (0.0, 0.0)
