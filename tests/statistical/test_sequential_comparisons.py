"""Looking every day alarms seldom, and differences are found as often as planned.

`python -m evaluation.studies sequential` and `planned-comparisons` print the same figures for more
runs.
"""

import pytest

from evaluation.laboratory import Figure, run_trials
from evaluation.studies.arms import NumberArms
from evaluation.studies.planned_comparisons import CASES as PLANNED
from evaluation.studies.sequential import CASES, WatchedArms
from parameters import number_of_runs
from significance import frequency_bounds, t_limit, z_limit

ALARM = 1e-6


def trials_of(case, runs):
    (trials,) = run_trials([case], runs)
    return trials


def alarms(trials, rule):
    return int(sum(getattr(trial, rule) for trial in trials))


def test_thirty_looks_alarm_seldom_and_plain_ones_often():
    """The exact bounds of .05 are passed by chance with probability below 1e-6 each; seeded.

    Plain looks alarm in a quarter of the trials, so the bound that they pass can be passed.
    """
    runs = 60
    trials = trials_of(WatchedArms(NumberArms(2.0), (3_000, 3_000)), runs)
    assert frequency_bounds(alarms(trials, "every_look"), runs, ALARM)[0] <= 0.05
    assert frequency_bounds(alarms(trials, "one_look"), runs, ALARM)[0] > 0.05


@pytest.mark.long
@pytest.mark.parametrize("case", PLANNED[2:4], ids=lambda case: case.name)
def test_differences_are_found_as_often_as_planned(case):
    """False alarm below 1e-6 each: standard errors are the trials' own; seeded."""
    found = Figure.of(trials_of(case, 200))
    assert abs(found.mean - case.goal.test.power) < z_limit() * found.std_error + 0.03


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.daily}")
def test_all_kinds_of_rows_may_be_looked_at_every_day(case):
    """False alarm below 1e-6 each: exact bounds; seeded."""
    runs = number_of_runs(30)
    trials = trials_of(case, runs)
    assert frequency_bounds(alarms(trials, "every_look"), runs, ALARM)[0] <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: f"{case.name}, {case.reports}")
def test_all_kinds_of_rows_are_found_as_planned(case):
    """False alarm below 1e-6 each: standard errors are the trials' own (Student's t); seeded."""
    runs = number_of_runs(150)
    found = Figure.of(trials_of(case, runs))
    assert abs(found.mean - case.goal.test.power) < t_limit(runs) * found.std_error + 0.03
