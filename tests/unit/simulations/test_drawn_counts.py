"""Counts that are drawn at once are those of clients counted one by one."""

import numpy as np
from scipy import stats

from evaluation.drawn_counts import draw_counts
from factories import make_params
from hubbub.protocol import EnumType
from significance import ALARM, chi_squared_p


def test_drawn_counts_have_the_distribution_of_counted_reports(rng):
    """One bit's count over 4,000 draws, against the binomial; P(false alarm) = 1e-6.

    Everybody holds the first of three categories, so that counts of its bit are binomial.
    """
    params, kinds = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75), EnumType(("a", "b", "c"))
    shares, reports = np.array([1.0, 0.0, 0.0]), 20
    ones = [
        draw_counts(("a", "b", "c"), shares, params, reports, rng, kinds).bits[0, 0]
        for _ in range(4_000)
    ]
    seen = np.bincount(ones, minlength=reports + 1)
    expected = 4_000 * stats.binom.pmf(np.arange(reports + 1), reports, params.q_star)
    usual = expected > 5
    assert usual.sum() > 8
    pooled = np.append(seen[usual], seen[~usual].sum())
    assert chi_squared_p(pooled, np.append(expected[usual], expected[~usual].sum())) > ALARM
