"""Estimates and their errors: against dense algebra, and against all reports that there can be."""

import itertools

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    BitEstimates,
    CandidateEstimates,
    Design,
    Fit,
    FloatArray,
    correlated_bits,
    estimate_all,
    fit_selected,
    make_design,
    pair_probability,
    total_share,
    unknown_column,
    variance_of_one,
)
from hubbub.inference.regression import estimates as module
from unit.decoder.models import (
    PARAMS,
    SELECTED,
    bits_of,
    candidates_of,
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
TINY = make_params(k=8, h=2, m=2, f=0.1, p=0.2, q=0.9)


def drawing(shares: FloatArray, bits: BitEstimates) -> FloatArray:
    """Return by how much the variance about the population's share is larger."""
    clipped = np.clip(shares, 0, 1)
    return np.asarray(clipped * (1 - clipped) / bits.reports.sum())


def test_candidate_outside_the_model_is_estimated_as_if_added_to_it(rng):
    """Frisch and Waugh: the one-step estimate is the added column's coefficient."""
    design, candidates = design_of(40), candidates_of(40)
    bits = noisy_bits(design, rng)
    fit = fit_of(bits, design, np.arange(10), FEW_FREE, PRIOR_VARIANCE, PRIOR_MEAN)
    estimates = estimate_all(fit, candidates, bits, PARAMS)
    variance = estimates.std_error**2 + drawing(estimates.share, bits)
    for candidate in range(10, 40):
        column = design.matrix[[candidate]].toarray()[0]
        expected = textbook(fit, bits.rate.ravel(), fit.penalties == 0, fit.penalties > 0, column)
        assert estimates.share[candidate] == pytest.approx(expected.coefficients[-1], abs=1e-12)
        within = drawing(estimates.share[[candidate]], bits)[0]
        assert variance[candidate] == pytest.approx(
            expected.covariance[-1, -1], rel=1e-9, abs=1.01 * within
        )


def test_member_is_estimated_as_if_it_alone_were_freed(rng):
    """Its variance is the textbook's, and what the correlations between bits add."""
    design, candidates = design_of(10), candidates_of(10)
    bits = noisy_bits(design, rng)
    fit = fit_of(bits, design, np.arange(10), FEW_FREE, PRIOR_VARIANCE, PRIOR_MEAN)
    estimates = estimate_all(fit, candidates, bits, PARAMS)
    added = correlated_bits(fit, bits, PARAMS, fit.covariance[:, 1:] / fit.reliability)
    for member in range(10):
        freed = (fit.penalties == 0) | (np.arange(11) == 1 + member)
        expected = textbook(fit, bits.rate.ravel(), freed, ~freed)
        place = int(freed[: 1 + member].sum())
        assert estimates.share[member] == pytest.approx(expected.coefficients[place])
        total = expected.covariance[place, place] + added[member]
        own = drawing(estimates.share[[member]], bits)[0]
        assert estimates.std_error[member] ** 2 == pytest.approx(max(total - own, 0.1 * total))


def test_long_lists_are_estimated_nearly_exactly(rng, monkeypatch):
    """Shares within a tenth of a standard error, exactly those that stand out; 1% in errors."""
    design, candidates = design_of(4), candidates_of(3000)
    bits = noisy_bits(design, rng)
    fit = fit_selected(bits, design, SELECTED[:2], PARAMS)
    exact = estimate_all(fit, candidates, bits, PARAMS)
    monkeypatch.setattr(module, "EXACT", 100)
    monkeypatch.setattr(module, "_SAMPLE", 500)
    quick = estimate_all(fit, candidates, bits, PARAMS)
    off = np.abs(quick.share - exact.share) / exact.std_error
    z = np.abs(exact.share / exact.std_error)
    assert off.max() < 0.4
    assert np.sqrt(np.mean(off**2)) < 0.05
    assert off[z > 4].max() < 0.02
    assert np.median(np.abs(quick.std_error / exact.std_error - 1)) < 0.03


def test_candidate_that_the_model_explains_has_no_estimate():
    params = make_params(k=8, h=8, m=1)
    candidates = filters_of([{0, 1}, {2, 3}, {0, 1, 2, 3}, {0, 1}, {4}], params)
    bits = bits_of(np.linspace(0.1, 0.3, 8), params, 1e3)
    design = make_design(candidates.positions(slice(None)), params)
    fit = fit_selected(bits, design, np.array([0, 1]), params)
    estimates = estimate_all(fit, candidates, bits, params)
    assert np.isnan(estimates.share).tolist() == [False, False, True, True, False]
    assert np.isnan(estimates.std_error).tolist() == [False, False, True, True, False]


def all_filters(params: RapporParams) -> tuple[FloatArray, FloatArray]:
    """Return the filters that random strings have in a cohort, and how likely each is."""
    filters = np.zeros((params.k**params.h, params.k))
    for row, hashes in enumerate(itertools.product(range(params.k), repeat=params.h)):
        filters[row, list(hashes)] = 1
    return filters, np.full(len(filters), 1 / len(filters))


def covariance_of_a_report(
    filters: FloatArray, chances: FloatArray, params: RapporParams
) -> FloatArray:
    """Return the covariance of one report's inverted bits, by trying every report."""
    reports = np.array(list(itertools.product([0, 1], repeat=params.k)), dtype=np.float64)
    rates = params.p_star + (params.q_star - params.p_star) * filters
    law = np.zeros(len(reports))
    for rate, chance in zip(rates, chances, strict=True):
        law += chance * np.prod(np.where(reports == 1, rate, 1 - rate), axis=1)
    inverted = (reports - params.p_star) / (params.q_star - params.p_star)
    mean = law @ inverted
    return np.asarray((inverted * law[:, None]).T @ inverted - np.outer(mean, mean))


def exact_fit(shares: FloatArray, reports: FloatArray) -> tuple[Fit, BitEstimates, Design]:
    """Return the fit of true rates: its shares are the truth, the rest is unknown."""
    design = design_of(len(shares), TINY)
    rates = rates_of(design, shares, 1 - shares.sum(), TINY)
    bits = BitEstimates(rates.reshape(TINY.m, TINY.k), reports, float(reports.sum()))
    return fit_selected(bits, design, np.arange(len(shares)), TINY), bits, design


def exact_variance(fit: Fit, design: Design, reports: FloatArray, rows: FloatArray) -> float:
    """Return the variance of a combination of rows, from the enumeration of all reports."""
    shares = fit.coefficients[1:]
    random, chances = all_filters(TINY)
    dense, total = design.matrix.toarray(), 0.0
    for cohort in range(TINY.m):
        of_cohort = slice(cohort * TINY.k, (cohort + 1) * TINY.k)
        filters = np.vstack([dense[:, of_cohort], random])
        law = np.concatenate([shares, (1 - shares.sum()) * chances])
        covariance = covariance_of_a_report(filters, law, TINY)
        total += float(rows[of_cohort] @ covariance @ rows[of_cohort] / reports[cohort, 0])
    return total


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], [0.4, 0.1, 0.05, 0.02]], ids=["all", "some"])
def test_variances_are_those_of_all_reports_there_can_be(shares):
    """Two cohorts of unequal size, 8 bits, with and without unknown strings."""
    reports = np.array([[4000.0], [9000.0]])
    fit, bits, design = exact_fit(np.array(shares), reports)
    rates, n_c = bits.rate.ravel(), np.repeat(reports.ravel(), TINY.k)
    influence = influence_of(fit, np.arange(len(shares)))
    added = correlated_bits(fit, bits, TINY, fit.covariance[:, 1:])
    for member in range(len(shares)):
        rows = influence[:, member]
        alone = float(rows**2 @ (variance_of_one(rates, TINY) / n_c))
        expected = exact_variance(fit, design, reports, rows)
        assert alone + added[member] == pytest.approx(expected)
    assert np.abs(added).max() > 0.03 * alone, "or the test would pass without"


def test_total_share_has_the_variance_of_all_reports_there_can_be():
    """Of the population's share; drawing the collected ones is taken off again."""
    reports = np.array([[40000.0], [90000.0]])
    fit, bits, design = exact_fit(np.array([0.3, 0.2, 0.1]), reports)
    of = np.array([0, 2])
    estimates = CandidateEstimates(fit.coefficients[1:], np.zeros(3))
    total, std_error = total_share(fit, estimates, bits, TINY, of)
    expected = exact_variance(fit, design, reports, influence_of(fit, of).sum(axis=1))
    weighted = influence_of(fit, of).sum(axis=1)
    excess = fit.excess_variance * float(weighted @ weighted)
    assert total == pytest.approx(0.4)
    assert std_error**2 + 0.4 * 0.6 / 130_000 == pytest.approx(expected + excess, rel=2e-3)


@pytest.mark.parametrize("h", [1, 2, 3])
def test_pair_probability_is_that_of_all_strings(h):
    """Enumerates the 8^h outcomes of a cohort."""
    params = make_params(k=8, h=h, m=2)
    filters, _ = all_filters(params)
    assert pair_probability(params) == pytest.approx(np.mean(filters[:, 0] * filters[:, 1]))
    assert unknown_column(params) == pytest.approx(filters[:, 0].mean())
