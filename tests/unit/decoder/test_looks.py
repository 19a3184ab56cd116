import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import AlwaysValid, FixedSample, scale_of
from significance import frequency_bounds

PATHS, TIMES = 4_000, np.geomspace(1e2, 1e8, 600)
SCALE = 0.01
LOG_LEVEL = np.log(0.05)
std_errors = st.floats(1e-5, 1.0)


@pytest.fixture(scope="module")
def looks():
    """Equal groups' differences at 600 looks, by the information so far; shape (paths, looks)."""
    rng = np.random.default_rng(11)
    steps = rng.standard_normal((PATHS, len(TIMES))) * np.sqrt(np.diff(TIMES, prepend=0.0))
    return np.cumsum(steps, axis=1) / np.sqrt(TIMES), 1 / np.sqrt(TIMES)


def alarms(log_p):
    return int((log_p <= LOG_LEVEL).any(axis=1).sum())


def test_few_of_many_looks_alarm(looks):
    """By Ville's inequality one path in twenty at most alarms; P(false failure) < 1e-6, exact."""
    low, _ = frequency_bounds(alarms(AlwaysValid(SCALE).log_p(*looks)), PATHS, 1e-6)
    assert low <= 0.05


@pytest.mark.parametrize(
    "judge",
    [
        FixedSample(),
        pytest.param(AlwaysValid(3 / np.sqrt(TIMES)), id="a scale that follows what is seen"),
    ],
)
def test_other_rules_alarm_too_often(looks, judge):
    """So the test above can fail. P(false failure) < 1e-6: each alarms on over 12% of paths."""
    low, _ = frequency_bounds(alarms(judge.log_p(*looks)), PATHS, 1e-6)
    assert low > 0.05


@given(st.sampled_from([FixedSample(), AlwaysValid(SCALE)]), st.floats(-40, -1), std_errors)
def test_critical_values_have_exactly_that_p_value(judge, log_level, std_error):
    error = np.array([std_error])
    assert judge.log_p(judge.critical_z(log_level, error), error)[0] == pytest.approx(log_level)


def test_at_a_first_look_an_interval_is_nearly_as_narrow_as_can_be():
    """Of two groups of 30,000 reports, and still of a hundred times as many."""
    scales = scale_of(1.0) * np.geomspace(0.01, 100, 2_001)
    for reports, worse in ((30_000, 1.01), (3_000_000, 1.25)):
        error = np.array(np.sqrt(2 / reports))
        narrowest = AlwaysValid(scales).critical_z(LOG_LEVEL, error).min()
        assert AlwaysValid(scale_of(1.0)).critical_z(LOG_LEVEL, error) < worse * narrowest


@given(std_errors, std_errors, st.floats(0, 1e3), st.floats(-20, -1))
def test_one_boundary_serves_all_ratios(of_control, of_treatment, ratio, log_level):
    """That of t - r c at the scale of its own is never above the larger one of t and c alone."""
    scale = SCALE * np.sqrt((1 + ratio**2) / 2)
    own = AlwaysValid(scale).critical_z(log_level, np.hypot(of_treatment, ratio * of_control))
    alone = np.sqrt(2) * np.array([of_control, of_treatment])
    assert own <= AlwaysValid(SCALE).critical_z(log_level, alone).max() * (1 + 1e-9)
