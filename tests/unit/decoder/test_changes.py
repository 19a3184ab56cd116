"""Shifts, spikes, stretches and weekly patterns of a series, and how often chance makes them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from hubbub.inference import LEAST_DAYS, FloatArray, SeriesFit, change_log_p, fit_changes
from parameters import examples

WEEKEND = (np.arange(56) % 7 >= 5).astype(np.float64)
seeds = st.integers(0, 2**32 - 1)


def noisy(seed: int, n_days: int) -> tuple[FloatArray, FloatArray]:
    """Return values and variances of days, a few without any, with a shift and a spike."""
    rng = np.random.default_rng(seed)
    variances = rng.uniform(0.3, 3.0, n_days)
    values = rng.normal(size=n_days) * np.sqrt(variances)
    values[rng.random(n_days) < 0.1] = np.nan
    values[int(rng.integers(n_days)) :] += 4.0
    values[int(rng.integers(n_days))] += 15.0
    return values, variances


def marks(fit: SeriesFit) -> list[tuple[int, int | None]]:
    return [(change.day, change.last) for change in fit.changes]


def test_step_is_found_on_its_day_with_its_size():
    shares = np.array([0.2] * 6 + [0.3] * 5)
    (change,) = fit_changes(shares, np.full(11, 1e-4), 0.01).changes
    assert (change.form, change.day, change.last) == ("shift", 6, None)
    assert change.before == pytest.approx(0.2)
    assert change.after == pytest.approx(0.3)
    assert change.std_error == pytest.approx(np.sqrt(1e-4 / 6 + 1e-4 / 5))
    assert change.p_value < 1e-10


def test_day_that_is_another_is_a_spike_and_days_are_a_stretch():
    shares = np.full(30, 0.2)
    shares[9], shares[16:20] = 0.25, 0.17
    spike, stretch = fit_changes(shares, np.full(30, 0.005**2), 0.05).changes
    assert (spike.form, spike.day, spike.last) == ("spike", 9, 9)
    assert (stretch.form, stretch.day, stretch.last) == ("stretch", 16, 19)
    assert (spike.before, spike.after) == pytest.approx((0.2, 0.25))
    assert (stretch.before, stretch.after) == pytest.approx((0.2, 0.17))


def test_far_changes_are_ordered_though_their_chances_are_0():
    """Beyond 38 standard errors chances are below the least number."""
    shares = np.full(40, 0.2)
    shares[11] = 0.9
    (change,) = fit_changes(shares, np.full(40, 1e-6), 0.05).changes
    assert (change.form, change.day, change.p_value) == ("spike", 11, 0.0)


def test_several_steps_are_found_across_gaps():
    shares = np.array([0.2, 0.2, 0.2, np.nan, 0.4, 0.4, 0.4, 0.1, np.nan, 0.1, 0.1])
    fit = fit_changes(shares, np.full(11, 1e-5), 0.05)
    assert marks(fit) == [(4, None), (7, None)]
    assert [(each.before, each.after) for each in fit.changes] == [
        pytest.approx((0.2, 0.4)),
        pytest.approx((0.4, 0.1)),
    ]
    np.testing.assert_allclose(fit.level, [0.2] * 4 + [0.4] * 3 + [0.1] * 4)


@pytest.mark.parametrize("shares", [[], [0.2], [np.nan, 0.2, np.nan]])
def test_one_day_cannot_have_changed(shares):
    values = np.array(shares, dtype=np.float64)
    assert change_log_p(values, np.full(len(values), 1e-4)) == 0.0
    assert fit_changes(values, np.full(len(values), 1e-4), 0.05).changes == ()


def test_error_that_days_share_makes_everything_less_certain():
    shares = 0.2 + 0.03 * WEEKEND
    shares[30:] += 0.02
    found = [fit_changes(shares, np.full(56, 1e-4), 0.5, common) for common in (0.0, 1e-6)]
    (certain,), (doubtful,) = (fit.changes for fit in found)
    assert certain.std_error < doubtful.std_error
    assert certain.p_value < doubtful.p_value
    assert found[0].weekly_log_p < found[1].weekly_log_p < 0


def test_weekly_pattern_is_no_change_and_its_size_is_estimated():
    shares, variances = 0.2 + 0.12 * WEEKEND, np.full(56, 0.017**2)
    fit = fit_changes(shares, variances, 0.05)
    assert fit.changes == ()
    assert fit.weekly_log_p < math.log(1e-6)
    mean = 0.12 * 2 / 7
    np.testing.assert_allclose(fit.weekday_effect, [-mean] * 5 + [0.12 - mean] * 2)
    # Variance of one weekday's mean over eight weeks less that of the mean of all weekdays.
    np.testing.assert_allclose(fit.weekday_error, np.sqrt(0.017**2 / 8 * 6 / 7))


def test_a_shift_is_no_weekly_pattern_and_is_found_with_one():
    step = np.where(np.arange(56) >= 31, 0.1, 0.0)
    for pattern in (0.0, 0.12):
        fit = fit_changes(0.2 + step + pattern * WEEKEND, np.full(56, 0.017**2), 0.05)
        assert marks(fit) == [(31, None)]
        assert (fit.weekly_log_p < math.log(1e-6)) == (pattern > 0)
        assert fit.changes[0].after - fit.changes[0].before == pytest.approx(0.1)


@pytest.mark.parametrize("day", [5, 19])
@pytest.mark.parametrize("unit", [0.1, 0.7, 1.0, 3.0])
def test_of_two_days_of_a_weekday_the_one_unlike_all_others_is_marked(day, unit):
    """Either explains both; the other one would need a weekly pattern, too."""
    values = 0.5 * np.random.default_rng(8).normal(size=25)
    values[12], values[day] = np.nan, values[day] + 20.0
    for series, marked in ((values, day), (values[::-1], 24 - day)):
        (spike,) = fit_changes(unit * series, np.full(25, unit**2), 0.01).changes
        assert (spike.form, spike.day) == ("spike", marked)


@examples(12)
@given(seeds, st.sampled_from([2, 3, 10, 25]), st.floats(-10, 10), st.floats(0.1, 10))
def test_neither_the_zero_nor_the_unit_matters(seed, n_days, zero, unit):
    values, variances = noisy(seed, n_days)
    one = fit_changes(values, variances, 0.05)
    other = fit_changes(zero + unit * values, unit**2 * variances, 0.05)
    np.testing.assert_allclose(other.level, zero + unit * one.level, atol=1e-6)
    assert len(one.changes) == len(other.changes)
    assert one.weekly_log_p == pytest.approx(other.weekly_log_p, rel=1e-6, abs=1e-9)
    assert change_log_p(values, variances) == pytest.approx(
        change_log_p(zero + unit * values, unit**2 * variances), rel=1e-6, abs=1e-9
    )


@examples(12)
@given(seeds, st.lists(st.floats(-20, 20), min_size=7, max_size=7))
def test_weekly_pattern_of_any_size_changes_no_mark(seed, pattern):
    values, variances = noisy(seed, 35)
    assume(np.isfinite(values).sum() >= LEAST_DAYS)
    one = fit_changes(values, variances, 0.05)
    other = fit_changes(values + np.array(pattern)[np.arange(35) % 7], variances, 0.05)
    np.testing.assert_allclose(other.level - one.level, np.mean(pattern), atol=1e-6)
    assert len(one.changes) == len(other.changes)
    np.testing.assert_allclose(
        other.weekday_effect - one.weekday_effect, pattern - np.mean(pattern), atol=1e-6
    )
