"""Candidates near the limit: tested with their rivals, and estimated without their allies, too."""

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import Correction
from hubbub.inference.arrays import IntArray
from hubbub.inference.candidates import Candidates, make_design, mapped
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.estimates import (
    LeaveOneOutFit,
    PresenceTests,
    estimate_all,
    estimated_in,
)
from hubbub.inference.regression.model import Fit, fit_selected
from hubbub.inference.regression.rivals import (
    extended,
    models_with_rivals,
    reduced,
    selection_corrected_models,
)
from hubbub.inference.regression.search import Search
from unit.decoder.models import candidates_of, design_of, noisy_bits

PARAMS = make_params(k=32, h=2, m=32)
DESIGN = design_of(60, PARAMS)
SHARES = np.concatenate([np.linspace(0.02, 0.08, 10), np.zeros(50)])
LOG_CUTOFF = float(np.log(1e-3))


def bits_of(rng: np.random.Generator) -> BitEstimates:
    return noisy_bits(DESIGN, rng, SHARES, 1e4, PARAMS)


def fit_of(bits: BitEstimates, selected: IntArray) -> Fit:
    return fit_selected(bits, DESIGN, selected, PARAMS)


def test_extended_fit_is_least_squares_with_the_same_weights(rng):
    fit = fit_of(bits_of(rng), np.arange(8))
    rows = np.array([20, 9, 31])
    larger = extended(fit, rows, DESIGN.matrix[rows].toarray())
    columns = larger.basis.toarray()
    rates = fit.residuals + fit.basis.T @ fit.coefficients
    gram = (columns * fit.weights) @ columns.T
    coefficients = np.linalg.solve(gram, columns @ (fit.weights * rates))
    assert larger.selected.tolist() == [*range(8), 20, 9, 31]
    np.testing.assert_allclose(larger.coefficients, coefficients, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(larger.covariance, np.linalg.inv(gram), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(larger.residuals, rates - columns.T @ coefficients, atol=1e-9)


def test_columns_that_the_fit_explains_are_left_out(rng):
    fit = fit_of(bits_of(rng), np.arange(8))
    rows = np.array([3, 20])
    assert extended(fit, rows, DESIGN.matrix[rows].toarray()).selected.tolist() == [*range(8), 20]
    assert extended(fit, rows[:1], DESIGN.matrix[rows[:1]].toarray()) is fit


def test_reduced_fit_is_the_one_that_was_extended(rng):
    fit = fit_of(bits_of(rng), np.arange(8))
    rows = np.array([20, 9, 31])
    again = reduced(extended(fit, rows, DESIGN.matrix[rows].toarray()), np.array([8, 9, 10]))
    assert again.selected.tolist() == list(range(8))
    np.testing.assert_allclose(again.coefficients, fit.coefficients, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(again.covariance, fit.covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(again.residuals, fit.residuals, atol=1e-9)
    np.testing.assert_array_equal(again.basis.toarray(), fit.basis.toarray())


def shadowing(n_shared: int) -> Candidates:
    """Return two strings, the second of which nobody has but which has most bits of the first."""
    rng = np.random.default_rng(8)
    positions = rng.integers(0, PARAMS.k, (40, PARAMS.m, PARAMS.h)).astype(np.int16)
    positions[1] = positions[0]
    positions[1, n_shared:] = (positions[0, n_shared:] + 1 + PARAMS.k // 3) % PARAMS.k
    return mapped([f"string {i}" for i in range(40)], positions, PARAMS)


def test_shadow_of_a_string_that_is_there_is_tested_beside_it(rng):
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


def test_rivals_are_no_more_than_the_rows_carry(rng):
    """Of 2,000 absent strings hundreds are beyond a p-value of .4, beside 1,024 rows."""
    bits = bits_of(rng)
    tests = PresenceTests(fit_of(bits, np.arange(8)), candidates_of(2_000, PARAMS), bits, PARAMS)
    log_p = np.zeros(2_000)
    log_p[100] = np.log(0.3)
    model = models_with_rivals(tests, log_p, np.log(0.4))[100]
    assert 200 < len(model.fit.selected) <= 1_024 // 3


def test_ally_is_out_of_the_model_that_a_string_is_estimated_in(rng):
    """Two strings without a common bit raise each other's shares, and so help each other in."""
    crowded = make_params(k=8, h=2, m=64)
    draws = np.random.default_rng(8)
    positions = draws.integers(0, crowded.k, (40, crowded.m, crowded.h)).astype(np.int16)
    positions[0], positions[1] = draws.permuted(
        np.tile(np.arange(4, dtype=np.int16), (2, crowded.m, 1)), axis=2
    )[:, :, :2]
    positions[1] += 4
    candidates = mapped([f"string {i}" for i in range(40)], positions, crowded)
    design = make_design(positions, crowded)
    truth = np.concatenate([[0.025, 0.025], np.zeros(38)])
    bits = noisy_bits(design, rng, truth, 2e3, crowded)
    fit = fit_selected(bits, design, np.array([0, 1]), crowded)
    tests = PresenceTests(fit, candidates, bits, crowded)
    estimates = estimate_all(fit, candidates, bits, crowded)
    log_p = tests.log_p_values(estimates)
    stronger, weaker = np.argsort(log_p[:2]).tolist()

    just_passed = float(log_p[weaker]) + 0.1  # beside the other string, and not without it
    without = selection_corrected_models(tests, log_p, just_passed)
    assert without[stronger].fit.selected.tolist() == [stronger]
    found = estimated_in({stronger: without[stronger]}, fit, estimates)
    alone = reduced(fit, np.array([weaker]))
    assert found.share[stronger] == pytest.approx(alone.coefficients[1])
    assert found.share[stronger] < estimates.share[stronger]
    assert found.std_error[stronger] < estimates.std_error[stronger]
    others = np.arange(40) != stronger
    np.testing.assert_array_equal(found.share[others], estimates.share[others])

    weaker_alone = reduced(fit, np.array([stronger]))
    easily_passed = 1.0 + float(
        PresenceTests(weaker_alone, candidates, bits, crowded).log_p_values(
            estimate_all(weaker_alone, candidates, bits, crowded)
        )[weaker]
    )
    assert easily_passed + np.log(1e-4) < log_p[stronger] < easily_passed
    assert selection_corrected_models(tests, log_p, easily_passed) == {}


def test_model_without_the_tested_is_the_same_however_it_came_about(rng):
    """Left out of an extended fit, or never in: the same residuals, up to weights of its rows."""
    fit = fit_of(bits_of(rng), np.arange(6))
    larger = extended(fit, np.array([7]), DESIGN.matrix[[7]].toarray())
    tests = PresenceTests(fit, candidates_of(60, PARAMS), bits_of(rng), PARAMS)
    residuals, _ = tests.without(LeaveOneOutFit(larger, 6))
    np.testing.assert_allclose(residuals, fit.residuals, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_search_detects_the_string_and_not_its_shadow(seed):
    """Of a list too long to go in whole."""
    candidates = shadowing(n_shared=24)
    design = make_design(candidates.positions(slice(None)), PARAMS)
    truth = np.append(0.05, np.zeros(39))
    bits = noisy_bits(design, np.random.default_rng(seed), truth, 1e4, PARAMS)
    search = Search(bits, candidates, PARAMS, float(np.log(0.05)), Correction.BH, listed=4_000)
    settled = search.settle(np.array([1]))
    assert np.flatnonzero(settled.log_q <= np.log(0.05)).tolist() == [0]
