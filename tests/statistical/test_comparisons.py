"""Intervals of differences hold the truth, and few rows are said to differ that don't.

`python -m evaluation.studies comparisons` prints the same figures for more cases and runs.
"""

import pytest

from evaluation.laboratory import run_trials
from evaluation.studies.categories import PAPER
from evaluation.studies.comparisons import (
    CASES,
    ComparedCategories,
    ComparedNumbers,
    false_share,
    pooled,
)
from parameters import number_of_runs, quick_and_full
from significance import t_limit, z_limit


def trials_of(case, runs):
    (trials,) = run_trials([case], runs)
    return trials


@pytest.mark.parametrize(
    ("case", "times"),
    [
        (ComparedCategories(20, PAPER, 100_000, 100_000), 1),
        (ComparedNumbers(0.5, 100_000, 30_000), 2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.parametrize("runs", quick_and_full(50, 100))
def test_differences_are_held_and_seldom_false(case, times, runs):
    """False alarm below 1e-6 each: standard errors are the trials' own; seeded."""
    trials = trials_of(case, times * runs)
    held = pooled("held", "rows")(case, trials)
    assert abs(held.mean - 0.95) < z_limit(2) * held.std_error + 0.01
    false = false_share(case, trials)
    assert false.mean < 0.05 + z_limit(2) * false.std_error


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.control}")
def test_all_kinds_of_rows_are_held_and_found_as_stated(case):
    """False alarm below 1e-6 each: standard errors are the trials' own (Student's t); seeded.

    What is at least the stated least difference is found nine times in ten or more often.
    """
    runs = number_of_runs(30)
    trials, limit = trials_of(case, runs), t_limit(runs, 5)
    for of, among in (("held", "rows"), ("ratios_held", "rows"), ("marked_held", "marked")):
        held = pooled(of, among)(case, trials)
        if held.runs:
            assert abs(held.mean - 0.95) < limit * held.std_error + 0.02
    false = false_share(case, trials)
    assert false.mean < 0.05 + limit * false.std_error
    found = pooled("found", "planned")(case, trials)
    if found.runs:
        assert found.mean > 0.9 - limit * found.std_error
