"""Intervals of enum, boolean and ordinal metrics hold the truth as often as they say.

A run is one sample of a population; runs are independent, the intervals of one run are not. So a
run's share of intervals that hold the truth is one observation, and bounds are on its mean.
`python -m evaluation.studies.categories` prints the same figures for more cases and runs.
"""

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from evaluation.laboratory import run_trials
from evaluation.studies.categories import (
    LOOSE,
    PAPER,
    TIGHT,
    CategoryCase,
    CategoryCoverage,
    boolean,
    enum,
    ordinal,
)
from hubbub.inference import FloatArray, estimate_categories
from parameters import number_of_runs
from significance import frequency_bounds, z_limit

RUNS = number_of_runs(400)
CASES = (
    enum(4, 1_000, LOOSE),
    enum(20, 20_000, PAPER),
    enum(100, 100_000, TIGHT),
    ordinal(12, 1_000, LOOSE),
    ordinal(60, 20_000, PAPER),
    boolean(0.0, 20_000, PAPER),
    boolean(0.01, 20_000, PAPER),
    boolean(0.3, 1_000, LOOSE),
)
N_TESTS = 5 * len(CASES)


def bounds(runs: FloatArray) -> tuple[float, float]:
    """Return where the expected coverage lies but with probability 1e-6 over all cases' tests.

    Where a run is one interval (or two that hold together) the bounds are exact, elsewhere normal.
    """
    known = runs[~np.isnan(runs)]
    if set(np.unique(known)) <= {0.0, 1.0}:
        return frequency_bounds(int(known.sum()), len(known), 1e-6 / N_TESTS / 2)
    half = z_limit(N_TESTS) * known.std(ddof=1) / np.sqrt(len(known))
    return float(known.mean() - half), float(known.mean() + half)


def measure(case: CategoryCase) -> dict[str, FloatArray]:
    """Return every trial's coverage by the field's name, shape (runs,)."""
    (trials,) = run_trials([case], RUNS)
    names = (field.name for field in fields(CategoryCoverage))
    return {name: np.array([getattr(trial, name) for trial in trials]) for name in names}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.n_reports}")
def test_intervals_hold_the_truth_in_95_of_100(case):
    """P(false alarm) <= 1e-6 over all cases if the expected coverage is from 93% to 97%."""
    measured = measure(case)
    for name in ("all", "absent", "near", "differences", "cumulative"):
        if np.isnan(measured[name]).mean() > 0.5:
            continue  # there are no such intervals
        low, high = bounds(measured[name])
        assert low <= 0.97, f"{name}: expected coverage from {low:.3f} to {high:.3f}"
        assert high >= 0.93, f"{name}: expected coverage from {low:.3f} to {high:.3f}"


@pytest.mark.parametrize("case", [ordinal(12, 1_000, LOOSE), ordinal(60, 20_000, PAPER)])
def test_quantiles_of_buckets_are_held_at_least_as_often(case):
    """Buckets are coarse, so more than 95% is right; P(false alarm) <= 1e-6 at 94%."""
    assert bounds(measure(case)["quantiles"])[1] >= 0.94


@pytest.mark.parametrize("case", [enum(4, 1_000, LOOSE), enum(20, 20_000, PAPER)])
def test_estimates_are_unbiased_and_scatter_as_the_covariance_says(case):
    """Standardised errors over the runs; P(false alarm) <= 1e-6 (normal, Bonferroni).

    The variance of n standardised errors has a standard error of sqrt(2 / (n - 1)); 5% are left
    for the plugged-in shares.
    """
    errors = []
    for seed in range(RUNS):
        counts = case.draw(np.random.default_rng(seed))
        estimates = estimate_categories(counts, case.metric)
        errors.append((estimates.unbiased - case.shares) / estimates.std_error)
    standardised, limit = np.array(errors), z_limit(8 * len(case.shares))
    assert np.abs(standardised.mean(axis=0)).max() * np.sqrt(RUNS) < limit
    room = 0.05 + limit * np.sqrt(2 / (RUNS - 1))
    np.testing.assert_allclose(standardised.var(axis=0, ddof=1), 1, atol=room)


def test_empty_categories_are_detected_no_more_often_than_alpha_says():
    """p <= 0.05 in at most 5% of runs; an exact bound for each; P(false alarm) <= 1e-6."""
    case = enum(20, 20_000, PAPER)
    empty = np.flatnonzero(case.shares == 0)
    low = np.zeros(len(empty), dtype=np.int64)
    for seed in range(RUNS):
        counts = case.draw(np.random.default_rng(seed))
        found = estimate_categories(counts, case.metric).log_p_value[empty]
        low += found <= np.log(0.05)
    most = stats.binom.isf(1e-6 / len(empty), RUNS, 0.05)
    assert low.max() <= most
