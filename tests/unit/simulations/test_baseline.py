"""The plain decoder is plain least squares."""

import numpy as np
import pytest

from evaluation.suite.baseline import least_squares_two_se
from factories import make_params
from hubbub.inference.candidates import bit_positions
from hubbub.inference.counts import CohortCounts
from hubbub.simulations.populations import family_shares, made_up
from hubbub.simulations.simulated_clients.population_sampler import ReportingPlan, sample_population

PARAMS = make_params(k=64, h=2, m=8)
POPULATION = made_up(family_shares("geometric:0.7", 10), "v")


def exact_counts(reports: int = 1_000_000) -> CohortCounts:
    """Return the counts that are expected, without any noise."""
    positions = bit_positions(POPULATION.values, PARAMS)
    rates = np.zeros((PARAMS.m, PARAMS.k))
    for string, share in zip(positions, POPULATION.shares, strict=True):
        for cohort in range(PARAMS.m):
            rates[cohort, np.unique(string[cohort])] += share
    per_cohort = reports // PARAMS.m
    ones = per_cohort * (PARAMS.p_star + (PARAMS.q_star - PARAMS.p_star) * rates)
    return CohortCounts(np.full(PARAMS.m, per_cohort), np.rint(ones).astype(np.int64))


def test_without_noise_the_shares_are_the_truth():
    plain = least_squares_two_se(exact_counts(), PARAMS, (*POPULATION.values, "absent"))
    assert plain.share[:10] == pytest.approx(POPULATION.shares, abs=1e-4)
    assert plain.share[10] == pytest.approx(0, abs=1e-4)
    assert plain.detected[:5].all()
    assert not plain.detected[10]


def test_one_absent_candidate_in_forty_is_detected():
    """2.3% of 300 absent candidates lie two standard errors above zero: about 7; seeded."""
    sample = sample_population(
        ReportingPlan(POPULATION, PARAMS, 200_000), np.random.SeedSequence(1)
    )
    absent = tuple(f"absent {i}" for i in range(300))
    plain = least_squares_two_se(sample.counts, PARAMS, (*POPULATION.values, *absent))
    assert 1 <= plain.detected[10:].sum() <= 25


def test_too_many_candidates_are_screened_first():
    """512 rows hold 409 columns; the others get no estimate, the common ones stay."""
    absent = tuple(f"absent {i}" for i in range(1_000))
    plain = least_squares_two_se(exact_counts(), PARAMS, (*POPULATION.values, *absent))
    assert np.count_nonzero(plain.share) <= 409
    assert plain.detected[:2].all()
