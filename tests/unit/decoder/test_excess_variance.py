"""The excess variance against the traces of dense matrices, and what it is estimated for."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from hubbub.inference import Fit, FloatArray, estimate_excess_variance, variance_of_one
from significance import z_limit
from unit.decoder.models import PARAMS, bits_of, design_of, fit_of, noisy_bits, rates_of

FIXED = [i < 4 for i in range(20)]
PRIOR_VARIANCE = 1e-4
SAMPLING = np.linspace(1e-5, 3e-5, PARAMS.m * PARAMS.k)


def excess(fit: Fit, scores: FloatArray, sampling: FloatArray = SAMPLING) -> float:
    return estimate_excess_variance(
        scores, fit.weights, sampling, fit.basis, fit.covariance, fit.penalties
    )


def projection(fit: Fit) -> FloatArray:
    """Return P = V^-1 - V^-1 X (X'V^-1 X)^-1 X'V^-1, by dense algebra."""
    basis = fit.basis.toarray()
    fixed, drawn = basis[fit.penalties == 0], basis[fit.penalties > 0]
    inverse = np.linalg.inv(np.diag(1 / fit.weights) + PRIOR_VARIANCE * drawn.T @ drawn)
    middle = np.linalg.inv(fixed @ inverse @ fixed.T)
    return np.asarray(inverse - inverse @ fixed.T @ middle @ fixed @ inverse)


@given(st.integers(-8, 200))
def test_it_is_the_mean_of_a_normal_law_cut_off_below_zero(sigmas):
    """The distribution's mean solves the moment equation, its deviation is sqrt(2 / tr PP)."""
    design = design_of(20)
    fit = fit_of(
        noisy_bits(design, np.random.default_rng(1)), design, np.arange(20), FIXED, PRIOR_VARIANCE
    )
    dense, drawn = projection(fit), fit.basis.toarray()[fit.penalties > 0]
    trace = float((dense**2).sum())
    deviation = np.sqrt(2 / trace)
    expected = float(
        np.trace(dense @ np.diag(SAMPLING) @ dense)
        + PRIOR_VARIANCE * ((dense @ drawn.T) ** 2).sum()
        + sigmas * deviation * trace
    )
    scores = np.full(len(fit.weights), np.sqrt(max(expected, 0) / len(fit.weights)))
    z = (sigmas * deviation if expected > 0 else sigmas * deviation - expected / trace) / deviation
    law = stats.truncnorm(-z, np.inf, loc=z * deviation, scale=deviation)
    assert excess(fit, scores) == pytest.approx(float(law.mean()), rel=1e-5)


def test_scatter_of_a_known_size_is_found(rng):
    """200 draws of noise of variance D + tau^2 about a model of four free strings.

    An estimate's deviation is tau^2 sqrt(2 / 251) (1 + D / tau^2), so the mean is within z_limit of
    14 times less; where tau^2 is 5 deviations and more, cutting off doesn't matter.
    P(false alarm) < 1e-6.
    """
    design, n_reports, tau2 = design_of(20), 1e5, 1e-4
    shares = np.array([0.4, 0.2, 0.1, 0.05])
    rates = rates_of(design, shares, 0.25)
    variance = variance_of_one(rates, PARAMS) / n_reports
    sd = np.sqrt(variance + tau2)
    fits = [
        fit_of(
            bits_of(rates + sd * rng.standard_normal(len(rates)), n_reports=n_reports),
            design,
            np.arange(4),
        )
        for _ in range(200)
    ]
    deviation = (tau2 + variance.mean()) * np.sqrt(2 / 251)
    assert deviation < tau2 / 5
    mean = np.mean([fit.excess_variance for fit in fits])
    assert abs(mean - tau2) < 1.05 * z_limit() * deviation / np.sqrt(200)
