"""Intervals of detected rows hold the truth as often as they say, given that these were detected.

A run is one sample of people and of their reports; rows of one run aren't independent, so bounds
are those of a ratio estimate over runs. Seeded: what passes once always does.
`python -m evaluation.studies detected` prints the same figures for more cases and runs.
"""

import pytest

from evaluation.laboratory import run_trials
from evaluation.studies.categories import LOOSE, TIGHT
from evaluation.studies.detected import (
    DetectedCells,
    DetectedStrings,
    boolean,
    enum,
    ordinal,
    pooled,
    subset,
)
from evaluation.studies.joint import DrawnTable
from factories import make_params
from parameters import long_but, number_of_runs
from significance import t_limit

RUNS = number_of_runs(60)
LOWEST, HIGHEST = 0.93, 0.97
CASES = (
    enum(100, "zipf:1", 100_000, TIGHT),
    enum(100, "exponential", 30_000, subset(100, 2.0)),
    enum(20, "exponential", 3_000, LOOSE),
    ordinal(12, 1_000, LOOSE),
    boolean(0.05, 500, LOOSE),
    DetectedCells(DrawnTable("6x5", 3_000, 2, 30)),
    DetectedStrings(make_params(64, 2, 16, f=0.0, p=0.25, q=0.75), "zipf:1", 40, 60, 30_000),
)
KINDS = ("all", "detected", "near")


@pytest.mark.parametrize("case", long_but(CASES[0].name, CASES, lambda case: case.name))
def test_intervals_hold_given_detection(case):
    """Within .93 to .97, but for noise: P(false alarm) < 1e-6 (Student's t, over all cases).

    Of the first case's intervals 78% held near the limit before selection was allowed for.
    """
    (trials,) = run_trials([case], RUNS)
    for kind in KINDS:
        found = pooled(trials, kind)
        room = t_limit(RUNS, len(KINDS) * len(CASES)) * found.std_error
        assert LOWEST - room <= found.mean <= HIGHEST + room, kind
