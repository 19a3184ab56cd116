"""Corrections for testing many candidates, and tails of binomial laws and of maxima."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from hubbub.decoder import Correction
from hubbub.inference import (
    at_most,
    counted_tests,
    local_false_rates,
    log_cutoff,
    log_exceedance_bound,
    log_q_values,
    more_than,
    z_scores,
)

log_p_values = arrays(np.float64, st.integers(1, 50), elements=st.floats(-700, 0))


@given(st.floats(-5, 37))
def test_z_score_is_that_of_its_p_value(z):
    assert z_scores(np.array([stats.norm.logsf(z)])) == pytest.approx(z, abs=1e-6)


def test_p_value_of_one_is_the_lowest_z_score_and_no_infinity():
    assert z_scores(np.array([0.0, -1e-12])) == pytest.approx(-6, abs=0.1)


@given(log_p_values)
def test_benjamini_hochberg_equals_scipys(log_p):
    expected = stats.false_discovery_control(np.exp(log_p), method="bh")
    np.testing.assert_allclose(np.exp(log_q_values(log_p, Correction.BH)), expected, rtol=1e-9)


@given(log_p_values, st.integers(0, 60))
def test_detections_elsewhere_count_as_p_values_of_zero(log_p, elsewhere):
    n_tests = float(len(log_p) + elsewhere)
    for correction in Correction:
        of_all = np.append(np.full(elsewhere, -1e6), log_p)
        expected = log_q_values(of_all, correction, n_tests)[elsewhere:]
        found = log_q_values(log_p, correction, n_tests, elsewhere)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(log_p_values, st.integers(0, 60))
def test_tests_that_count_are_twice_those_whose_p_values_are_above_a_half(log_p, others):
    """Candidates whose p-values aren't given count as absent."""
    total = len(log_p) + others
    above = int((log_p > np.log(0.5)).sum()) + others
    expected = min(2 * (1 + above), total)
    assert counted_tests(log_p, Correction.BH, total) == expected
    assert counted_tests(np.append(log_p, np.zeros(others)), Correction.BH) == expected
    assert counted_tests(log_p, Correction.BONFERRONI, total) == total


@given(log_p_values)
def test_bonferroni_multiplies_by_the_number_of_candidates(log_p):
    expected = np.minimum(len(log_p) * np.exp(log_p), 1)
    log_q = log_q_values(log_p, Correction.BONFERRONI)
    np.testing.assert_allclose(np.exp(log_q), expected, rtol=1e-9)


@pytest.mark.parametrize("correction", Correction)
def test_p_values_too_small_for_a_double_do_not_underflow(correction):
    log_p = np.array([-100_000.0, -50_000.0, -1.0])
    log_q = log_q_values(log_p, correction)
    assert log_q[0] == pytest.approx(-100_000 + np.log(3))
    assert log_q[0] < log_q[1] < -40_000


@given(log_p_values, st.sampled_from(Correction), st.floats(0.001, 0.3))
def test_cutoff_is_where_detection_ends(log_p, correction, alpha):
    """Detected are those up to it; one that moves to either side of it changes sides."""
    n_tests = counted_tests(log_p, correction)
    detected = log_q_values(log_p, correction, n_tests) <= np.log(alpha)
    n_detected = int(detected.sum())
    cutoff = log_cutoff(n_detected, n_tests, float(np.log(alpha)), correction)
    if n_detected:
        assert log_p[detected].max() <= cutoff + 1e-9
        moved, place = log_p.copy(), int(detected.argmax())
        moved[place] = cutoff - 1e-6
        assert log_q_values(moved, correction, n_tests)[place] <= np.log(alpha)
        if correction is Correction.BONFERRONI:
            moved[place] = cutoff + 1e-6
            assert log_q_values(moved, correction, n_tests)[place] > np.log(alpha)
    if not detected.all():
        assert log_p[~detected].min() > cutoff - 1e-9


def test_local_false_rate_is_the_part_of_true_hypotheses_among_such_p_values():
    """Of 10,000 evenly spread ones a tenth is below .1, as many as there are false ones there."""
    true, false = (np.arange(10_000) + 0.5) / 10_000, (np.arange(1_000) + 0.5) / 10_000
    rates = local_false_rates(np.concatenate([true, false, [1e-9]]), 11_001.0)
    assert rates[-1] < 1e-4
    assert rates[-1_000:-1].mean() == pytest.approx(0.55, abs=0.02)
    assert rates[5_000:10_000].min() > 0.95


def test_a_heavy_present_string_leaves_few_tests():
    """Ten of a hundred are there and have nine tenths of the weight."""
    log_p = np.log(np.concatenate([np.full(10, 1e-9), (np.arange(90) + 0.5) / 90]))
    log_weights = np.log(np.repeat([9.0, 1 / 9], [10, 90]))
    expected = 2 * (9 + 45 / 9)
    assert counted_tests(log_p, Correction.BH, log_weights=log_weights) == pytest.approx(expected)
    assert counted_tests(log_p, Correction.BONFERRONI, log_weights=log_weights) == 100


@pytest.mark.parametrize("n", [0, 1, 30, 2000])
@pytest.mark.parametrize("p", [2.0**-20, 0.25, 0.5, 1 - 2.0**-10])
def test_tails_are_good_to_twelve_digits(n, p):
    """The chance is a fraction of a power of two, so all sums have one denominator, n times it."""
    ones, of = p.as_integer_ratio()
    whole, total, term = of**n, 0, (of - ones) ** n  # of k = 0
    for k in range(-1, n + 2):
        if 0 <= k <= n:
            total += term
            term = term * (n - k) * ones // ((k + 1) * (of - ones))
        if k % 97 == 0 or k < 3 or k > n - 3:
            assert float(at_most(k, n, p)) == pytest.approx(total / whole, rel=1e-12)
            assert float(more_than(k, n, p)) == pytest.approx((whole - total) / whole, rel=1e-12)
    assert total == whole


def test_many_are_computed_at_once():
    assert more_than([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [1.0, 0.75, 0.0]
    assert at_most([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("size", [2.0, 3.5])
def test_bound_holds_whatever_the_correlations_and_is_close(size, rng):
    """Against the integral of the multivariate normal, which is known to 3e-5."""
    for _ in range(3):
        correlation = np.corrcoef(rng.normal(size=(4, 6)))
        bound = math.exp(log_exceedance_bound(size, np.diagonal(correlation, 1)))
        inside = stats.multivariate_normal.cdf(
            np.full(4, size), np.zeros(4), correlation, lower_limit=np.full(4, -size),
            rng=np.random.default_rng(1),
        )  # fmt: skip
        chance = 1 - float(inside)
        assert chance - 3e-5 < bound < 1.5 * chance + 3e-5


def test_bound_of_shifts_over_two_months_is_close_to_their_chance(rng):
    """60,000 runs at three sizes: P(false alarm) < 1e-6 (5.2 standard errors)."""
    weights = rng.uniform(0.3, 2.0, 60)
    noise = rng.normal(size=(60_000, 60)) / np.sqrt(weights)
    before = np.cumsum(weights)[:-1]
    after = weights.sum() - before
    sums = np.cumsum(noise * weights, axis=1)
    differences = sums[:, :-1] / before - (sums[:, -1:] - sums[:, :-1]) / after
    largest = np.abs(differences / np.sqrt(1 / before + 1 / after)).max(axis=1)
    earlier, later = before[:-1] / weights.sum(), before[1:] / weights.sum()
    neighbours = np.sqrt(earlier * (1 - later) / (later * (1 - earlier)))
    for size in (2.5, 3.0, 3.5):
        bound = math.exp(log_exceedance_bound(size, neighbours))
        found = np.mean(largest > size)
        error = np.sqrt(bound * (1 - bound) / 60_000)
        assert found - 5.2 * error < bound < 2.0 * found


def test_small_chances_keep_their_digits():
    """Far out: 2 P(Z > b) for each that is independent of the others."""
    for size in (5.0, 7.9, 8.1, 40.0):
        once = math.log(2) + float(stats.norm.logsf(size))
        independent = log_exceedance_bound(size, np.zeros(99))
        assert independent == pytest.approx(once + math.log(100), rel=1e-6)
