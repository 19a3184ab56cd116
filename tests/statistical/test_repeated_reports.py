"""Intervals hold the truth, and detections are right, where clients report day after day.

Runs are independent and seeded: what passes once always does, and the chances say how likely
another seed would fail. `python -m evaluation.studies repeated-reports` prints the same figures for
more metrics, days and runs.
"""

import pytest

from evaluation.laboratory import Figure, run_trials
from evaluation.studies.repeated_reports import LEAVING, SAME, VISITING, cases
from parameters import long_but, quick_and_full
from significance import z_limit

LOWEST, HIGHEST, MOST_FALSE = 0.93, 0.98, 0.05
CHOSEN = [
    case
    for case in cases()
    if (case.name, case.kind, case.days)
    in {
        ("enum of 40", SAME, 30),
        ("enum of 40", LEAVING, 30),
        ("enum of 40", VISITING, 365),
        ("ordinal of 20", SAME, 365),
        ("joint of 6 and 5", SAME, 30),
    }
]


def by_name(case):
    return f"{case.name}, {case.kind}, {case.days}"


@pytest.mark.parametrize("runs", quick_and_full(24, 60))
@pytest.mark.parametrize("case", long_but(f"enum of 40, {SAME}, 30", CHOSEN, by_name))
def test_pooled_days_keep_coverage_and_false_detections(case, runs):
    """P(false alarm) <= 1e-6 over all cases if coverage is .93 to .98 and the false share .05."""
    (trials,) = run_trials([case], runs)
    limit = z_limit(2 * len(CHOSEN))
    covered = Figure.of([trial.coverage for trial in trials])
    room = limit * covered.std_error
    assert LOWEST - room <= covered.mean <= HIGHEST + room, covered
    false = Figure.of([trial.false_share for trial in trials])
    assert false.mean <= MOST_FALSE + limit * false.std_error, false


@pytest.mark.parametrize("runs", quick_and_full(10, 20))
def test_as_if_clients_had_reported_once_too_few_intervals_hold(runs):
    """The study sees what it is about.

    P(it fails) < 1e-6: .65 is 20 deviations of twenty runs below .93, and 14 of ten.
    """
    (trials,) = run_trials(CHOSEN[:1], runs)
    assert Figure.of([trial.as_once for trial in trials]).mean < LOWEST - 0.1
