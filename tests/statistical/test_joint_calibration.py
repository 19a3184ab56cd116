"""Tables of fields: intervals hold, and independence is rejected as often as it should be.

A run is one population and one sample of it; runs are independent, the intervals of one run are
not, so a run's share of intervals that hold is one observation. Seeded: what passes once always
does, and the chances say how likely another seed would fail.
`python -m evaluation.studies.joint` prints the same figures for more cases and runs.
"""

import numpy as np
import pytest
from scipy import stats

from evaluation.laboratory import run_trials
from evaluation.studies.joint import KINDS, DrawnTable, draw_tuples, shares_held
from hubbub.inference import assess_independence, estimate_categories, one_hot_estimates
from parameters import long_but, quick_and_full
from significance import z_limit

RUNS = 40
LOWEST, HIGHEST = 0.93, 0.97
"""What the decoder promises of each kind of interval on average."""
CASES = (
    DrawnTable("20x10", 30_000, 4, 30),
    DrawnTable("6x5", 3_000, 2, 30),
    DrawnTable("8x5x2", 100_000, 4, 30),
)
ALARM = 1e-6


@pytest.mark.parametrize("runs", quick_and_full(RUNS // 2, RUNS))
@pytest.mark.parametrize("case", long_but(CASES[0].name, CASES, lambda case: case.name))
def test_intervals_of_tables_hold(case, runs):
    """Each kind's mean coverage within .93 to .97, but for noise: P(false alarm) < 1e-6 (normal).

    Cramer's V is left out: its interval may reach 0 or be cut off at values that aren't known.
    """
    (trials,) = run_trials([case], runs)
    for kind in KINDS[:-1]:
        shares = np.array(shares_held(trials, kind))
        known = shares[~np.isnan(shares)]
        room = z_limit(2 * len(KINDS) * len(CASES), ALARM) * known.std(ddof=1) / np.sqrt(len(known))
        assert len(known) > runs / 2, kind
        assert LOWEST - room <= known.mean() <= HIGHEST + room, kind


def p_value_of_independence(case: DrawnTable, number: int) -> float:
    """Return what a numbered run's table says, without all else that is told of tables.

    Fewer draws than the decoder's 499 make the test no less exact, and hardly less likely to
    reject.
    """
    experiment = case.experiment(number)
    counts = draw_tuples(experiment, np.random.default_rng(number))
    cells = estimate_categories(counts, experiment.metric)
    fields = experiment.population.fields
    table = one_hot_estimates(fields, cells, counts.total)
    return assess_independence(table, draws=199).p_value


@pytest.mark.long
@pytest.mark.parametrize(
    ("partners", "least", "most"),
    [(0, 0.0, 0.07), (10, 0.4, 1.0), (30, 0.98, 1.0)],
    ids=["independent", "10% partners", "30% partners"],
)
def test_independence_is_rejected_as_often_as_it_should_be(partners, least, most):
    """100 x 20 values, 30,000 reports, epsilon 4; P(false alarm) < 1e-6 (binomial).

    With a tenth of partners 55% were rejected in 200 other runs; 40% make the bound 3 of 40.
    """
    case = DrawnTable("100x20", 30_000, 4, partners)
    rejected = sum(p_value_of_independence(case, number) <= 0.05 for number in range(RUNS))
    assert stats.binom.ppf(ALARM, RUNS, least) <= rejected <= stats.binom.isf(ALARM, RUNS, most)
