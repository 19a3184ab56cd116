"""P-values of members and the thresholds of detection, against models that are really fitted."""

import numpy as np
import pytest
from scipy import special

from factories import make_params
from hubbub.inference import (
    BitEstimates,
    CandidateEstimates,
    Candidates,
    Fit,
    FloatArray,
    PresenceTests,
    estimate_all,
)
from significance import z_limit
from unit.decoder.models import PARAMS, candidates_of, design_of, fit_of, noisy_bits

N = 40
DESIGN, CANDIDATES = design_of(N), candidates_of(N)
SHARES = np.array([0.3, 0.1, 0.02, 0.015, 0.01, 0.0])
PRIOR_VARIANCE, PRIOR_MEAN = 2e-5, 0.005
FIXED = [i in {0, 1, 2} for i in range(12)]


def z_of(log_p: FloatArray | float) -> FloatArray:
    return np.asarray(-special.ndtri_exp(log_p))


def model_of(
    bits: BitEstimates, members: int = 12, candidates: Candidates = CANDIDATES
) -> tuple[Fit, CandidateEstimates, FloatArray]:
    """Return the model of the first strings, of which the first three are free, and p-values."""
    fit = fit_of(bits, DESIGN, np.arange(members), FIXED[:members], PRIOR_VARIANCE, PRIOR_MEAN)
    estimates = estimate_all(fit, candidates, bits, PARAMS)
    return fit, estimates, PresenceTests(fit, candidates, bits, PARAMS).log_p_values(estimates)


def without(member: int, bits: BitEstimates) -> float:
    """Return the p-value, as a z-score, of a member in a model fitted without it."""
    others = np.delete(np.arange(12), member)
    fit = fit_of(
        bits, DESIGN, others, np.delete(FIXED, member).tolist(), PRIOR_VARIANCE, PRIOR_MEAN
    )
    estimates = estimate_all(fit, CANDIDATES, bits, PARAMS)
    log_p = PresenceTests(fit, CANDIDATES, bits, PARAMS).log_p_values(estimates)
    return float(z_of(log_p[member]))


@pytest.mark.parametrize("n_reports", [1e4, 3e4])
def test_member_is_tested_in_the_model_without_it(n_reports, rng):
    """The model that is refitted without it has slightly other weights: 8% of a z-score.

    Very common strings are left out: without them the model has excess variance.
    """
    bits = noisy_bits(DESIGN, rng, SHARES, n_reports)
    _, estimates, log_p = model_of(bits)
    z = estimates.share / estimates.std_error
    weak = [i for i in range(2, 12) if 1.5 < z[i] < 8]
    assert len(weak) >= 2
    for member in weak:
        assert z_of(log_p[member]) == pytest.approx(without(member, bits), rel=0.08, abs=0.05)


def test_p_values_of_absent_strings_are_uniform(rng):
    """30 populations, 1,000 absent candidates outside of the model: frequencies at three levels.

    Given the rates the p-values are independent, so numbers are binomial but for the saddlepoint's
    1%; normal approximation, P(false alarm) < 1e-6 for the three.
    """
    candidates = candidates_of(1000, label="absent")
    reached, levels = np.zeros(3), np.array([0.5, 0.1, 0.01])
    for _ in range(30):
        bits = noisy_bits(DESIGN, rng, SHARES)
        fit = fit_of(bits, DESIGN, np.arange(4))
        outside = Fit(np.empty(0, dtype=np.int64), fit.basis[:1], fit.penalties[:1], fit.pulls[:1],
                      fit.coefficients[:1], fit.covariance[:1, :1], fit.residuals, fit.weights,
                      fit.excess_variance)  # fmt: skip
        tests = PresenceTests(outside, candidates, bits, PARAMS)
        log_p = tests.log_p_values(estimate_all(outside, candidates, bits, PARAMS))
        reached += (np.exp(log_p)[:, None] <= levels).sum(axis=0)
    n = 30_000
    z = (reached - n * levels) / np.sqrt(n * levels * (1 - levels))
    assert np.abs(z).max() < z_limit(3) + 1


@pytest.mark.parametrize("member", range(2, 5))
def test_threshold_is_where_the_p_value_crosses_the_cutoff(member, rng):
    """The rates are moved along the member's own bits, until its share is the threshold.

    Fitted anew it has the cutoff's p-value, up to the weights: 0.1 of a z-score. So for the free
    (2), and for those drawn about a mean (3, 4).
    """
    bits = noisy_bits(DESIGN, rng, SHARES, 4e5)
    fit, estimates, log_p = model_of(bits)
    cutoff = float(np.log(0.05 * 3 / N))
    assert log_p[member] < cutoff - 1
    tests = PresenceTests(fit, CANDIDATES, bits, PARAMS)
    (threshold,) = tests.thresholds(estimates, log_p, np.array([member]), cutoff)
    assert 0 < threshold < estimates.share[member]
    less = estimates.share[member] - threshold
    moved = bits.rate.ravel() - less * DESIGN.matrix[[member]].toarray()[0]
    again = BitEstimates(moved.reshape(bits.rate.shape), bits.reports, bits.collected)
    _, at_threshold, its_log_p = model_of(again)
    assert at_threshold.share[member] == pytest.approx(
        threshold, abs=0.1 * estimates.std_error[member]
    )
    assert z_of(its_log_p[member]) == pytest.approx(z_of(cutoff), abs=0.1)


def test_no_single_row_decides(rng):
    """One row that is off by 1,000 standard deviations gives its strings no more than one off by 4.

    The strings that set the bit would otherwise all be detected.
    """
    params = make_params(k=32, h=2, m=64)
    design, candidates = design_of(N, params), candidates_of(N, params)
    bits = noisy_bits(design, rng, np.array([]), params=params)
    bits.rate[5, 7] += 3
    fit = fit_of(bits, design, np.empty(0, dtype=np.int64), params=params)
    log_p = PresenceTests(fit, candidates, bits, params).log_p_values(
        estimate_all(fit, candidates, bits, params)
    )
    assert log_p.min() > np.log(1e-6)
