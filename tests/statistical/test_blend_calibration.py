"""Blends of reports with an opted-in group's counts err as seldom as they say.

A run is one population's people, coins and noise. Candidates of a run share errors, so the run is
the unit of every bound.
"""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from hubbub.client import RapporParams
from hubbub.simulations.experiments.blend import BlendCase, BlendExperiment, BlendTrial
from hubbub.simulations.laboratory import run_trials
from hubbub.simulations.populations import family_shares, made_up
from significance import ALARM, frequency_bounds

RUNS = 16
PARAMS = RapporParams(128, 1, 32, 0.0, 0.12, 0.5)
POPULATION = made_up(family_shares("zipf:1.0", 300), "string ")


@cache
def trials(opted_in: float, difference: float = 0.0, runs: int = RUNS) -> tuple[BlendTrial, ...]:
    """Return runs of 60,000 people, of whom 3,000 or 12,000 opt in."""
    experiment = BlendExperiment(
        POPULATION,
        PARAMS,
        people=60_000,
        opted_in=(opted_in,),
        absent=tuple(f"absent {i}" for i in range(60)),
        difference=difference,
        seed=20171,
    )
    return run_trials([BlendCase(experiment, 0)], runs)[0]


@pytest.mark.long
@pytest.mark.parametrize("opted_in", [0.05, 0.2])
@pytest.mark.parametrize("which", ["covered", "covered_detected"])
def test_intervals_hold_the_populations_shares(opted_in, which):
    """At least 95%, less Student's bound for 16 runs: P(false alarm) <= 1e-6 a case.

    Of the runs' shares of intervals that hold, those with more intervals weigh more.
    """
    held, of = np.array([getattr(trial, which) for trial in trials(opted_in)], dtype=float).T
    ratio = held.sum() / of.sum()
    error = np.sqrt(((held - ratio * of) ** 2).sum()) / of.sum()
    assert ratio >= 0.95 - stats.t.isf(ALARM, RUNS - 1) * max(error, 0.05 / np.sqrt(of.sum()))


@pytest.mark.parametrize("opted_in", [0.05, 0.2])
def test_groups_of_one_population_are_seldom_said_to_differ(opted_in):
    """Level .05 of 16 runs, exact binomial bound: P(false alarm) <= 1e-6 a case."""
    rejected = sum(trial.p_value <= 0.05 for trial in trials(opted_in))
    assert frequency_bounds(rejected, RUNS, ALARM)[0] <= 0.05
    assert not any(np.isnan(trial.p_value) for trial in trials(opted_in))


@pytest.mark.parametrize("opted_in", [0.05, 0.2])
def test_false_names_are_as_rare_as_asked_for(opted_in):
    """False discovery rate of at most .05, less Student's bound: P(false alarm) <= 1e-6 a case."""
    shares = np.array([
        trial.false.blended / max(trial.false.blended + trial.found.blended, 1)
        for trial in trials(opted_in)
    ])  # fmt: skip
    room = stats.t.isf(ALARM, RUNS - 1) * shares.std(ddof=1) / np.sqrt(RUNS)
    assert shares.mean() <= 0.05 + room


def test_groups_of_different_populations_are_told_apart():
    """The commonest strings differ by half of their shares, ten standard errors and more."""
    assert all(trial.p_value <= 0.05 for trial in trials(0.2, difference=0.5, runs=4))


def test_both_groups_together_find_more_and_err_less_than_each_alone():
    found = [trial.found for trial in trials(0.2)]
    assert sum(each.blended for each in found) > 1.3 * sum(each.local for each in found)
    errors = np.array([trial.squared_errors for trial in trials(0.05)]).mean(axis=0)
    assert errors[2] < 0.9 * min(errors[0], errors[1])
