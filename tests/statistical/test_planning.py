"""The planner's theory against the decoder, on fixed seeds: a pass is a pass for ever.

`python -m evaluation.studies planned-power` has more collections.
"""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from evaluation.laboratory import run_trials
from evaluation.studies.planned_joint import PlannedTable
from evaluation.studies.planned_power import requests
from hubbub.inference import FloatArray
from hubbub.planning import Budget, DetectionMethod, DetectionTest, string_errors
from hubbub.protocol import RapporParams
from parameters import number_of_runs

_TABLES = 100
_ALARM = 1e-6


def string_report_kinds(
    params: RapporParams, n: int, share: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return likelihoods, relative to noise, of reports under one string and a random string.

    A part `share` of the reports is of the string, which sets the first h bits; the rest are of
    random strings, each report's its own.
    """
    filters = np.zeros((n, params.k), dtype=np.bool_)
    rows = np.arange(n)[:, None]
    filters[rows, rng.integers(params.k, size=(n, params.h))] = True
    own = rng.random(n) < share
    filters[own] = np.arange(params.k) < params.h
    rates = np.where(filters, params.q_star, params.p_star)
    bits = rng.random(rates.shape) < rates
    one, zero = params.q_star / params.p_star, (1 - params.q_star) / (1 - params.p_star)
    factors = np.where(bits, one, zero)
    random = (
        factors.sum(axis=1) ** 2 - (factors**2).sum(axis=1) + factors.sum(axis=1)
    ) / params.k**2
    return factors[:, : params.h].prod(axis=1), random


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_most_likely_share_has_the_error_of_the_information(share):
    """500 collections of 2,000 reports with two hashes: a standard deviation's error is 3%."""
    params, n = RapporParams(16, 2, 1, 0.25, 0.2, 0.8), 2_000
    rng = np.random.default_rng(7)
    estimates = []
    for _ in range(600):
        string, random = string_report_kinds(params, n, share, rng)
        score = string / random - 1
        slope = lambda x, score=score: float((score / (1 + x * score)).sum())  # noqa: E731
        low = -0.9 / score.max()
        estimates.append(optimize.brentq(slope, low, 0.9))
    errors = string_errors(
        params, n, share, DetectionTest(1, method=DetectionMethod.LIKELIHOOD, concentration=0)
    )
    # The string has exactly two bits here, and a little fewer on average over the hash.
    assert np.std(estimates) == pytest.approx(errors.present, rel=0.1)
    z = (np.mean(estimates) - share) / (errors.present / math.sqrt(500))
    assert abs(z) < stats.norm.isf(5e-7) + 1  # the estimate's bias, of order 1/n, is the 1


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
    """100 tables; P(false alarm) < 1e-6 each: normal for means, binomial for what is found.

    The test of independence, whose limit itself is drawn, counts as right from 0.8 on.
    """
    case = PlannedTable.of(sizes, budget, reports)
    trials = np.array(run_trials([case], _TABLES)[0], dtype=float)
    cells, margins, variations, found, rejected = (trials[:, i] for i in (0, 1, 3, 4, 5))
    far = stats.norm.isf(_ALARM / 2)
    for ratios, expected in (
        (cells, 1.0),
        (margins, 1.0),
        (variations, case.plan.figures["total_variation"]),
    ):
        # The mean of a hundred skewed numbers, and a plan's own of several hundred: 1.2 for both.
        error = 1.2 * ratios.std(ddof=1) / math.sqrt(_TABLES)
        assert abs(ratios.mean() - expected) < far * error
    assert found.sum() >= stats.binom.ppf(_ALARM / 2, _TABLES, 0.9)
    assert found.sum() <= stats.binom.isf(_ALARM / 2, _TABLES, 0.9)
    if math.isfinite(case.partner_share):
        assert rejected.sum() >= stats.binom.ppf(_ALARM, _TABLES, 0.8)


@pytest.mark.parametrize(
    ("number", "collections"),
    [
        pytest.param(4, 25, id="subset"),
        pytest.param(5, 8, id="few strings"),
        pytest.param(5, number_of_runs(60), id="strings", marks=pytest.mark.long),
        pytest.param(7, number_of_runs(60), id="longitudinal", marks=pytest.mark.long),
        pytest.param(13, number_of_runs(40), id="whole reports", marks=pytest.mark.long),
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
