"""Intervals hold what they promise: of shares near 0 and 1, and after selection."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special, stats

from hubbub.inference import (
    Z_CONFIDENCE,
    ErrorDistribution,
    FloatArray,
    HashNull,
    after_selection,
    selection_bias,
    share_interval,
)
from parameters import examples

NORMAL = ErrorDistribution()
Z = 1.959964
GRID = np.arange(-9, 30, 0.01)


def skewed_null() -> HashNull:
    """Return the law of scores among which a few bits stand out: heavy to the right."""
    rng = np.random.default_rng(5)
    scores = rng.standard_normal((16, 128))
    scores[:, :2] += 12
    return HashNull(scores, 1)


SKEWED = skewed_null()


def skewed_law() -> tuple[FloatArray, FloatArray]:
    """Return error sizes on a grid and their chances."""
    known = SKEWED.standardised()
    assert known is not None
    edges = np.append(GRID - 0.005, GRID[-1] + 0.005)
    tails = np.exp(np.interp(edges, *known, left=0.0))
    return GRID, np.asarray(-np.diff(tails))


def normal_law() -> tuple[FloatArray, FloatArray]:
    return GRID, stats.norm.pdf(GRID) * 0.01


def coverage(
    share: float, threshold: float, noise: ErrorDistribution, law: tuple[FloatArray, FloatArray]
) -> float:
    """Return how often the intervals of estimates above the threshold hold the share."""
    errors, chances = law
    estimates = share + errors
    passed = estimates > threshold
    low, high = after_selection(
        estimates[passed],
        np.ones(int(passed.sum())),
        np.full(int(passed.sum()), threshold),
        noise,
    )
    held = (low <= share) & (share <= high)
    return float(chances[passed] @ held / chances[passed].sum())


@examples(40)
@given(st.floats(0, 12), st.sampled_from([0.0, 0.4, 2.0, 3.04, 3.3, 4.47, 5.2]))
def test_95_percent_of_what_passed_hold_the_share(share, threshold):
    """Whatever the share: absent, weak, strong.

    A hundredth is for grids of 0.04 errors; a little more is held by shares at high thresholds,
    where the accepted estimates aren't one stretch.
    """
    assert 0.94 < coverage(share, threshold, NORMAL, normal_law()) < 0.98


@examples(25)
@given(st.floats(0, 12), st.sampled_from([0.0, 3.2, 4.4]))
def test_noise_that_is_heavy_to_the_right_is_allowed_for(share, threshold):
    noise, law = ErrorDistribution(SKEWED), skewed_law()
    assert stats.skew(np.repeat(law[0], (law[1] * 1e5).astype(int))) > 0.5
    assert 0.94 < coverage(share, threshold, noise, law) < 0.97


@pytest.mark.parametrize("noise", [NORMAL, ErrorDistribution(SKEWED)], ids=["normal", "skewed"])
def test_intervals_are_never_empty_and_never_below_zero(noise):
    for threshold in np.arange(0, 6, 0.37):
        estimates = threshold + np.geomspace(1e-6, 30, 60)
        ones = np.ones(60)
        low, high = after_selection(estimates, ones, threshold * ones, noise)
        assert (low >= 0).all()
        assert (low < high).all()
        assert (low <= estimates).all()
        assert (np.diff(low) > -0.05).all()
        assert (np.diff(high) > -0.05).all()


def test_far_above_the_threshold_it_is_the_usual_interval():
    estimates = np.array([9.0, 12.0, 40.0])
    low, high = after_selection(estimates, np.ones(3), np.full(3, 3.0))
    np.testing.assert_allclose(low, estimates - Z, atol=0.05)
    np.testing.assert_allclose(high, estimates + Z, atol=0.05)
    low, high = after_selection(estimates + 3, np.ones(3), np.full(3, 3.0))
    np.testing.assert_allclose(high - low, 2 * Z, atol=0.06)


@pytest.mark.parametrize("few", [True, False])
def test_quantiles_cut_off_a_fortieth_on_each_side(few):
    """A law of few outcomes (16 here) stands for the normal one."""
    null = HashNull(np.random.default_rng(1).standard_normal((2, 4)), 1) if few else None
    low, high = ErrorDistribution(null).quantiles()
    assert low == pytest.approx(-Z, abs=0.002)
    assert high == pytest.approx(Z, abs=0.002)


def test_quantiles_of_a_skewed_law_are_its_own():
    low, high = ErrorDistribution(SKEWED).quantiles()
    errors, chances = skewed_law()
    assert chances[errors < low].sum() == pytest.approx(0.025, abs=0.002)
    assert chances[errors > high].sum() == pytest.approx(0.025, abs=0.002)
    assert -low < high


def feldman_cousins(estimate: float, threshold: float, most: float) -> tuple[float, float]:
    """Return the bounds by their definition, with densities on a grid of .02."""
    shares = np.arange(0, min(most, estimate + 10) + 0.01, 0.02)
    errors = np.arange(threshold + 0.01, threshold + 20, 0.02)
    log_mass = stats.norm.logsf(threshold - shares)

    def log_density(at: FloatArray) -> FloatArray:
        return stats.norm.logpdf(at - shares[:, None]) - log_mass[:, None]

    of_errors, of_estimate = log_density(errors), log_density(np.array([estimate]))
    # Shares above those that are asked about may be the likeliest, too.
    likelier = of_errors - of_errors.max(axis=0) > of_estimate - of_estimate.max(axis=0)
    inside = (np.exp(of_errors) * likelier).sum(axis=1) * 0.02 < 0.95
    found = shares[inside]
    return float(found.min()), float(found.max())


@pytest.mark.parametrize("threshold", [0.0, 2.48, 4.4])
@pytest.mark.parametrize(
    ("above", "wider"), [(0.06, 0.35), (0.42, 0.06), (1.02, 0.1), (2.5, 0.06), (5.02, 0.06)]
)
@pytest.mark.parametrize("room", [np.inf, 0.5])
def test_bounds_are_those_of_the_definition(threshold, above, wider, room):
    """In the middles of cells of .04, which make intervals wider: most just above the threshold."""
    estimate = threshold + above
    low, high = feldman_cousins(estimate, threshold, estimate + room)
    found_low, found_high = NORMAL.bounds(estimate, threshold, estimate + room)
    assert low - wider <= found_low <= low + 0.03
    assert high - 0.03 <= found_high <= high + wider


SE = 0.01
FINE: FloatArray = np.linspace(-9, 9, 900_001)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("errors", [0, 1e-3, 0.05, 0.5, 1, 1.64, 1.9, 1.96, 1.97, 2.5, 3.92, 4, 9])
def test_share_at_any_distance_from_an_end_is_held_with_95_percent(errors, side):
    """By numerical integration over the estimate's normal law; no randomness."""
    truth = errors * SE if side > 0 else 1 - errors * SE
    interval = share_interval(truth + SE * FINE, np.full_like(FINE, SE))
    # An end is given up to rounding; at a truth of exactly 0 or 1 the interval's own end is exact.
    held = (interval.low <= truth + 1e-12) & (truth - 1e-12 <= interval.high)
    weights = stats.norm.pdf(FINE)
    assert (weights * held).sum() / weights.sum() == pytest.approx(0.95, abs=2e-4)


def test_interval_far_from_the_ends_is_the_usual_one():
    estimate = np.array([0.05, 0.3, 0.5, 0.7, 0.95])
    interval = share_interval(estimate, np.full(5, SE))
    np.testing.assert_allclose(interval.low, estimate - Z_CONFIDENCE * SE)
    np.testing.assert_allclose(interval.high, estimate + Z_CONFIDENCE * SE)


@given(st.floats(-0.2, 1.2), st.floats(1e-4, 0.3))
def test_share_and_its_complement_have_mirrored_intervals(share, std_error):
    errors = np.array([std_error])
    interval = share_interval(np.array([share]), errors)
    mirrored = share_interval(np.array([1 - share]), errors)
    if share != 0.5:
        np.testing.assert_allclose(interval.low, 1 - mirrored.high, atol=1e-12)
        np.testing.assert_allclose(interval.high, 1 - mirrored.low, atol=1e-12)


ERROR = 0.01


def errors_of_a_run(
    rng: np.random.Generator, truth: np.ndarray, cutoff: float
) -> tuple[float, float, float]:
    """Return the error of the detected sum, the expected bias and its variance."""
    share = truth + ERROR * rng.standard_normal(len(truth))
    std_error = np.full(len(truth), ERROR)
    log_p = special.log_ndtr(-share / std_error)
    log_cutoff = float(special.log_ndtr(-cutoff))
    detected = log_p <= log_cutoff
    n_absent = int((truth == 0).sum())
    bias, added = selection_bias(share, std_error, log_p, detected, log_cutoff, n_absent)
    return float((share - truth)[detected].sum()), bias, added


@pytest.mark.parametrize("cutoff", [1.5, 2.5, 3.5])
@pytest.mark.parametrize("strongest", [0.03, 0.06, 0.2])
def test_sum_of_the_detected_is_unbiased_after_it(rng, cutoff, strongest):
    """400 runs of 100 strings with and 900 without shares.

    The mean of the errors is within 5 of its standard errors and a tenth of the bias, which the
    width of the window may cost: P(false alarm) < 1e-6 each, apart from that tenth.
    """
    truth = np.append(np.linspace(0, strongest, 100), np.zeros(900))
    runs = np.array([errors_of_a_run(rng, truth, cutoff) for _ in range(400)])
    left = runs[:, 0] - runs[:, 1]
    naive = float(runs[:, 0].mean())
    assert naive > 10 * float(runs[:, 0].std()) / 20
    assert abs(left.mean()) < 5 * left.std() / 20 + 0.1 * naive
