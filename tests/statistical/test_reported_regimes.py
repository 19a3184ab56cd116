"""Regimes in which independent simulations found the decoder wrong keep its promises.

Runs are independent and seeded; bounds are widened by Student's quantile times the standard error
over the runs, for 1e-6 each.
"""

import numpy as np
import pytest
from scipy import stats

from evaluation.studies.ablation import Regime, tallied
from hubbub.decoder import decode
from hubbub.inference import ONCE_OF_REPORTS
from hubbub.protocol import RapporParams
from hubbub.simulations import family_shares
from significance import ALARM

RUNS = 20


def regime(m: int, *, k: int, present: int, n: int, unlisted: float, twins: bool) -> Regime:
    """Return a regime of a million reports; five strings hold what isn't listed."""
    listed = (1 - unlisted) * family_shares("zipf:1", present)
    others = unlisted * family_shares("zipf:1", 5)
    params = RapporParams(k, 2, m, 0.5, 0.25, 0.75)
    return Regime(f"{k} {m}", params, 10**6, np.append(listed, others), present, n - present, twins)


ONE_COHORT = regime(1, k=64, present=20, n=60, unlisted=0.9, twins=False)
NEAR_TWINS = regime(32, k=64, present=50, n=100, unlisted=0.0, twins=True)
THOUSAND = regime(4, k=32, present=100, n=1_000, unlisted=0.5, twins=False)


@pytest.mark.parametrize("regime", [ONE_COHORT, NEAR_TWINS, THOUSAND], ids=lambda r: r.name)
def test_reported_regimes_keep_their_promises(regime):
    """Coverage of present strings, errors over standard errors, and false names."""
    runs = []
    for number in range(RUNS):
        counts, candidates, truth = regime.collect(np.random.default_rng(number))
        found = decode(counts, regime.params, candidates, repeats=ONCE_OF_REPORTS)
        runs.append(tallied(truth, found, 0.0))
    for low, values, high in (
        (0.93, [run.present_held / run.present for run in runs], 0.97),
        (0.9, [run.squares / run.known for run in runs], 1.1),
        (0.0, [run.false_share for run in runs], 0.05),
    ):
        slack = stats.t.isf(ALARM / 2, RUNS - 1) * np.std(values, ddof=1) / RUNS**0.5
        assert low - slack <= np.mean(values) <= high + slack


@pytest.mark.parametrize(("n", "known"), [(500, True), (700, False), (1_300, False)])
def test_unlisted_share_is_known_where_three_rows_carry_each_candidate(n, known):
    """2,048 rows; within 4.9 standard errors, which is P(false alarm) = 1e-6."""
    few = regime(32, k=64, present=50, n=n, unlisted=0.2, twins=False)
    counts, candidates, truth = few.collect(np.random.default_rng(1))
    summary = decode(counts, few.params, candidates, repeats=ONCE_OF_REPORTS).summary
    assert np.isnan(summary.unlisted_share) == (not known)
    if known:
        off = summary.unlisted_share - (1 - truth.sum())
        assert abs(off) < 4.9 * summary.unlisted_std_error < 0.5
