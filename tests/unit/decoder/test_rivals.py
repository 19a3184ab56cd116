"""A candidate near the limit is tested with its rivals in the model."""

from __future__ import annotations

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import Correction
from hubbub.decoder.arrays import IntArray
from hubbub.decoder.candidates.listing import Candidates, make_design, mapped
from hubbub.decoder.counts import BitEstimates
from hubbub.decoder.regression.estimates import LeftOut, PresenceTests, estimate_all
from hubbub.decoder.regression.model import Fit, fit_selected
from hubbub.decoder.regression.rivals import extended, models_with_rivals
from hubbub.decoder.regression.search import Search
from unit.decoder.models import candidates_of, design_of, noisy_bits

PARAMS = make_params(k=32, h=2, m=32)
DESIGN = design_of(60, PARAMS)
SHARES = np.concatenate([np.linspace(0.02, 0.08, 10), np.zeros(50)])
LOG_CUTOFF = float(np.log(1e-3))


def bits_of(rng: np.random.Generator) -> BitEstimates:
    return noisy_bits(DESIGN, rng, SHARES, 1e4, PARAMS)


def fit_of(bits: BitEstimates, selected: IntArray) -> Fit:
    return fit_selected(bits, DESIGN, selected, PARAMS)


def test_extended_fit_is_least_squares_with_the_same_weights(rng: np.random.Generator) -> None:
    fit = fit_of(bits_of(rng), np.arange(8))
    rows = np.array([20, 9, 31])
    larger = extended(fit, rows, DESIGN.matrix[rows])
    columns = larger.basis.toarray()
    rates = fit.residuals + fit.basis.T @ fit.coefficients
    gram = (columns * fit.weights) @ columns.T
    coefficients = np.linalg.solve(gram, columns @ (fit.weights * rates))
    assert larger.selected.tolist() == [*range(8), 20, 9, 31]
    np.testing.assert_allclose(larger.coefficients, coefficients, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(larger.covariance, np.linalg.inv(gram), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(larger.residuals, rates - columns.T @ coefficients, atol=1e-9)


def test_columns_that_the_fit_explains_are_left_out(rng: np.random.Generator) -> None:
    fit = fit_of(bits_of(rng), np.arange(8))
    rows = np.array([3, 20])
    assert extended(fit, rows, DESIGN.matrix[rows]).selected.tolist() == [*range(8), 20]
    assert extended(fit, rows[:1], DESIGN.matrix[rows[:1]]) is fit


def shadowing(n_shared: int) -> Candidates:
    """Return two strings, the second of which nobody has but which has most bits of the first."""
    rng = np.random.default_rng(8)
    positions = rng.integers(0, PARAMS.k, (40, PARAMS.m, PARAMS.h)).astype(np.int16)
    positions[1] = positions[0]
    positions[1, n_shared:] = (positions[0, n_shared:] + 1 + PARAMS.k // 3) % PARAMS.k
    return mapped([f"string {i}" for i in range(40)], positions, PARAMS)


def test_shadow_of_a_string_that_is_there_is_tested_beside_it(rng: np.random.Generator) -> None:
    """A model that holds the shadow alone: its rival is the string itself, and it fails with it."""
    candidates = shadowing(n_shared=24)
    truth = np.append(0.05, np.zeros(39))
    design = make_design(candidates.positions(slice(None)), PARAMS)
    bits = noisy_bits(design, rng, truth, 1e4, PARAMS)
    fit = fit_selected(bits, design, np.array([1]), PARAMS)
    tests = PresenceTests(fit, candidates, bits, PARAMS)
    log_p = tests.log_p_values(estimate_all(fit, candidates, bits, PARAMS))
    assert log_p[1] < LOG_CUTOFF
    found = models_with_rivals(tests, np.maximum(log_p, LOG_CUTOFF - 1), LOG_CUTOFF)
    assert found[1].fit.selected.tolist() == [1, 0]
    again = PresenceTests(fit, candidates, bits, PARAMS, found)
    assert again.log_p_values(estimate_all(fit, candidates, bits, PARAMS))[1] > np.log(0.01)


def test_model_without_the_tested_is_the_same_however_it_came_about(
    rng: np.random.Generator,
) -> None:
    """Left out of an extended fit, or never in: the same residuals, up to weights of its rows."""
    fit = fit_of(bits_of(rng), np.arange(6))
    larger = extended(fit, np.array([7]), DESIGN.matrix[[7]])
    tests = PresenceTests(fit, candidates_of(60, PARAMS), bits_of(rng), PARAMS)
    residuals, _ = tests.without(LeftOut(larger, 6))
    np.testing.assert_allclose(residuals, fit.residuals, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_search_detects_the_string_and_not_its_shadow(seed: int) -> None:
    """Of a list too long to go in whole."""
    candidates = shadowing(n_shared=24)
    design = make_design(candidates.positions(slice(None)), PARAMS)
    truth = np.append(0.05, np.zeros(39))
    bits = noisy_bits(design, np.random.default_rng(seed), truth, 1e4, PARAMS)
    search = Search(bits, candidates, PARAMS, float(np.log(0.05)), Correction.BH, listed=4_000)
    settled = search._settle(np.array([1]))
    assert np.flatnonzero(settled.log_q <= np.log(0.05)).tolist() == [0]
