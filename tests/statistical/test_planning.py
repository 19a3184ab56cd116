"""The planner's theory against the decoder, on fixed seeds: a pass is a pass for ever.

`python -m evaluation.studies planned-power` has more collections.
"""

import math

import numpy as np
import pytest
from scipy import stats

from evaluation.laboratory import run_trials
from evaluation.studies.planned_joint import PlannedTable
from evaluation.studies.planned_power import requests
from hubbub.planning import Budget
from parameters import number_of_runs

_TABLES = 100
_ALARM = 1e-6


@pytest.mark.parametrize(
    ("sizes", "budget", "reports"),
    [
        pytest.param((12, 5), Budget(math.inf, 4.0), 100_000, marks=pytest.mark.long),
        ((8, 6), Budget(6.0, 3.0), 200_000),
        ((5, 4, 3), Budget(math.inf, 2.0), 500_000),
    ],
    ids=["one-time", "longitudinal", "three fields"],
)
def test_joint_tables_have_the_errors_of_their_plan(sizes, budget, reports):
    """100 tables; P(false alarm) < 1e-6 each: normal for means, binomial for what is found."""
    case = PlannedTable.of(sizes, budget, reports)
    trials = np.array(run_trials([case], _TABLES)[0], dtype=float)
    cells, margins, found = trials.T
    far = stats.norm.isf(_ALARM / 2)
    for ratios in (cells, margins):
        # The mean of a hundred skewed numbers: 1.2 for that.
        error = 1.2 * ratios.std(ddof=1) / math.sqrt(_TABLES)
        assert abs(ratios.mean() - 1.0) < far * error
    assert found.sum() >= stats.binom.ppf(_ALARM / 2, _TABLES, 0.9)
    assert found.sum() <= stats.binom.isf(_ALARM / 2, _TABLES, 0.9)


@pytest.mark.parametrize(
    ("number", "collections"),
    [
        pytest.param(4, 25, id="subset"),
        pytest.param(1, 12, id="few strings"),
        pytest.param(5, number_of_runs(60), id="strings", marks=pytest.mark.long),
        pytest.param(7, number_of_runs(60), id="longitudinal", marks=pytest.mark.long),
        pytest.param(3, number_of_runs(60), id="more strings", marks=pytest.mark.long),
    ],
)
def test_random_requests_find_what_they_promise(number, collections):
    """Between .87 and .93 of what has the planned share; P(false alarm) < 1e-6 each (binomial).

    `python -m evaluation.studies planned-power` has all twenty requests with more collections.
    """
    (trials,) = run_trials([requests()[number]], collections)
    planted, found = (
        sum(each) for each in zip(*((t.planted, t.found) for t in trials), strict=True)
    )
    assert stats.binom.ppf(_ALARM / 2, planted, 0.87) <= found
    assert found <= stats.binom.isf(_ALARM / 2, planted, 0.93)
