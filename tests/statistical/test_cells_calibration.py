"""Intervals from subsets and windows hold the truth, and tables of subsets are tested as they say.

Runs are independent and seeded: what passes once always does, and the chances say how likely
another seed would fail. `python -m evaluation.studies subsets`, `means` and `joint` print the same
figures for more cases and runs.
"""

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from evaluation.laboratory import Figure, run_trials
from evaluation.studies.categories import CategoryCoverage, enum, ordinal
from evaluation.studies.cells import POPULATIONS, MeanCase, SubsetCase, chance_of, published
from evaluation.studies.joint import KINDS, SubsetTable, draw_tuples, shares_held
from hubbub.inference import assess_independence, estimate_categories, one_hot_estimates
from hubbub.protocol import Subset
from parameters import quick_and_full
from significance import z_limit

ALARM = 1e-6
LOWEST, HIGHEST = 0.93, 0.97


def subset(categories: int, size: int, epsilon: float) -> Subset:
    return Subset(categories, size, chance_of(categories, size, epsilon))


CATEGORIES = (
    enum(4, 1_000, subset(4, 1, 1.0)),
    enum(20, 20_000, subset(20, 5, 1.0)),
    ordinal(12, 1_000, subset(12, 1, 2.0)),
    ordinal(12, 20_000, subset(12, 6, 0.5)),
)


def assert_within(values, n_tests, name):
    """Assert that the mean lies from .93 to .97, but for noise (normal)."""
    found = Figure.of(values)
    room = z_limit(n_tests, ALARM) * found.std_error
    assert LOWEST - room <= found.mean <= HIGHEST + room, (name, found)


@pytest.mark.parametrize("runs", quick_and_full(150, 400))
@pytest.mark.parametrize("case", CATEGORIES, ids=lambda case: f"{case.name}, {case.n_reports}")
def test_shares_differences_and_sums_of_subsets_are_held(case, runs):
    """P(false alarm) <= 1e-6 over all cases if the expected coverage is from 93% to 97%."""
    (trials,) = run_trials([case], runs)
    measured = {each.name: [getattr(trial, each.name) for trial in trials]
                for each in fields(CategoryCoverage)}  # fmt: skip
    for name in ("all", "absent", "differences", "cumulative"):
        if np.isfinite(measured[name]).any():
            assert_within(measured[name], 8 * len(CATEGORIES), name)
    if case.edges:
        assert np.nanmean(measured["quantiles"]) >= LOWEST


@pytest.mark.parametrize("case", [SubsetTable("6x5", 3_000, 2, 30)], ids=lambda case: case.name)
def test_intervals_of_tables_of_subsets_are_held(case):
    """Margins and conditional shares need the covariance of cells; P(false alarm) < 1e-6."""
    (trials,) = run_trials([case], 40)
    for kind in KINDS[:-1]:
        assert_within(shares_held(trials, kind), 2 * len(KINDS), kind)


def test_independent_tables_of_subsets_are_rejected_as_often_as_the_p_value_says():
    """Uniform p-values by Kolmogorov and Smirnov over 100 tables; P(false alarm) < 1e-6."""
    case, p_values = SubsetTable("6x5", 3_000, 2, 0), []
    for number in range(100):
        experiment = case.experiment(number)
        counts = draw_tuples(experiment, np.random.default_rng(number))
        cells = estimate_categories(counts, experiment.metric)
        people = experiment.population.fields
        table = one_hot_estimates(people, cells, counts.total)
        p_values.append(assess_independence(table, draws=99).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > ALARM


@pytest.mark.parametrize("categories", [4, 20])
def test_no_published_response_estimates_equal_shares_better_than_the_best_subset(categories):
    """Within 3% but for noise: P(false alarm) < 1e-6 (normal)."""
    case = SubsetCase(categories, 1.0)
    (trials,) = run_trials([case], 60)
    found = Figure.of([each.variance for each in trials])
    best = min(published(categories, 1.0).values())
    assert found.mean - z_limit(2, ALARM) * found.std_error <= 1.03 * best


@pytest.mark.long
@pytest.mark.parametrize("n_reports", [200, 100_000])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_means_of_all_populations_are_held(epsilon, n_reports):
    """At least .93 where all numbers are at one end, too; P(false alarm) < 1e-6 (normal).

    Where all are at an end and reports are few, the error's long tail is on the safe side.
    """
    for people in POPULATIONS:
        case = MeanCase(people, epsilon, n_reports, hybrid=False)
        (trials,) = run_trials([case], 25)
        for name in ("held", "spread_held"):
            found = Figure.of([getattr(each, name) for each in trials])
            error = max(found.std_error, np.sqrt(0.95 * 0.05 / 500))
            assert found.mean + z_limit(8 * len(POPULATIONS), ALARM) * error >= LOWEST, (
                people,
                name,
            )
