"""Blended shares: their weights, their distribution, and the intervals by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hubbub.inference.arrays import FloatArray
from hubbub.inference.blending.distribution import BlendedShares, intervals, two_sided_p_values
from hubbub.inference.blending.noise import CountNoise
from hubbub.inference.blending.shares import Variances, fitted_to_one, pool
from significance import frequency_bounds
from unit.decoder.releases import NOISE, laplace_noise

USERS, REPORTS, LOCAL_ERROR = 2_000, 100_000, 2e-3
SHARES = st.lists(st.floats(-0.2, 1.0), min_size=1, max_size=8)
ALARM = 1e-7
DRAWS = 40_000


def variances(n: int, local_error: float = LOCAL_ERROR, users: int = USERS) -> Variances:
    return Variances(
        local=np.full(n, local_error**2),
        reports=REPORTS,
        noise=NOISE.variance,
        users=users,
        users_variance=25.0,
    )


def drawn_shares(
    rng: np.random.Generator, true: float, n: int, local_error: float = LOCAL_ERROR
) -> tuple[FloatArray, FloatArray]:
    """Return local and central shares of n strings that have the same true share."""
    sampled = rng.binomial(REPORTS, true, n) / REPORTS
    local = sampled + rng.normal(0, local_error, n)
    counts = rng.binomial(USERS, true, n) + laplace_noise(rng, n)
    return local, counts / USERS


@given(SHARES, st.floats(1e-5, 0.1), st.data())
def test_a_blended_share_lies_between_both_and_errs_less(local, error, data):
    central = np.array(data.draw(st.lists(st.floats(-0.2, 1.2), min_size=len(local),
                                          max_size=len(local))))  # fmt: skip
    both = variances(len(local), error)
    found = pool(np.array(local), central, both)
    assert (np.minimum(local, central) - 1e-9 <= found.share).all()
    assert (found.share <= np.maximum(local, central) + 1e-9).all()
    possible = np.clip(found.share, 0, 1)
    assert (found.std_error**2 <= both.of_local(possible) * (1 + 1e-9)).all()
    assert (found.std_error**2 <= both.of_central(possible) * (1 + 1e-9)).all()


def test_without_a_local_share_the_central_one_stands_alone():
    both = Variances(np.array([np.inf]), REPORTS, NOISE.variance, USERS, 0.0)
    found = pool(np.array([np.nan]), np.array([0.25]), both)
    assert found.share.tolist() == [0.25]
    assert found.weight.tolist() == [1.0]
    assert found.std_error[0] == pytest.approx(np.sqrt(0.25 * 0.75 / USERS + 1.8412 / USERS**2),
                                               rel=1e-3)  # fmt: skip


@pytest.mark.parametrize("true", [0.002, 0.02])
def test_weights_at_the_blended_share_make_no_bias_and_plugged_in_ones_do(true):
    """40,000 draws; the mean is within 6 of its standard errors, P(false alarm) < 1e-8.

    Each count's own share as its variance would make it too low by more than that.
    """
    rng = np.random.default_rng(11)
    local, central = drawn_shares(rng, true, DRAWS)
    both = variances(DRAWS)
    blended = pool(local, central, both).share
    assert abs(blended.mean() - true) < 6 * blended.std() / np.sqrt(DRAWS)
    own = 1 / both.of_central(np.clip(central, 0, 1))
    other = 1 / both.of_local(np.clip(local, 0, 1))
    plugged = (own * central + other * local) / (own + other)
    assert plugged.mean() < true - 8 * plugged.std() / np.sqrt(DRAWS)


@given(SHARES)
def test_shares_that_are_fitted_to_one_are_possible(shares):
    given_shares = np.array(shares)
    found = fitted_to_one(given_shares, np.linspace(1e-6, 1e-4, len(shares)))
    assert found.min() >= 0
    assert found.sum() <= 1 + 1e-9
    possible = np.maximum(given_shares, 0)
    if possible.sum() <= 1:
        assert found.tolist() == possible.tolist()


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("true", [0.0, 0.001, 0.1, 0.4])
@pytest.mark.parametrize("weight", [0.05, 0.9, 1.0])
def test_the_distribution_is_that_of_drawn_shares(laplace, true, weight):
    """Few and many holders; frequencies of 40,000 draws, P(false alarm) <= 4e-7 a case."""
    rng = np.random.default_rng([7, laplace, int(1000 * true), int(100 * weight)])
    noise = CountNoise(NOISE.variance, laplace)
    added = laplace_noise(rng, DRAWS) if laplace else rng.normal(0, noise.variance**0.5, DRAWS)
    central = (rng.binomial(USERS, true, DRAWS) + added) / USERS
    shares = BlendedShares(np.array([weight]), np.array([1e-4]), USERS, noise)
    drawn = weight * central + (1 - weight) * true + rng.normal(0, 1e-4, DRAWS)
    for at in np.quantile(drawn, [0.02, 0.6]).tolist():
        for above in (True, False):
            chance = float(shares.chance(np.array([true]), np.array([at]), above=above)[0])
            ones = int((drawn >= at).sum() if above else (drawn <= at).sum())
            low, high = frequency_bounds(ones, DRAWS, ALARM)
            assert low <= chance <= high


def test_the_binomial_distribution_goes_over_into_the_normal_one():
    """Where 100 holders are expected one takes the other's place, but for half an outcome."""
    shares = BlendedShares(np.array([1.0, 1.0]), np.zeros(2), USERS, NOISE)
    for at in (0.043, 0.05, 0.057):
        few, many = shares.chance(np.array([0.05, 0.05 + 1e-9]), np.full(2, at), above=True)
        assert few == pytest.approx(many, abs=0.02)


@pytest.mark.parametrize(
    ("local_error", "true"),
    [
        (2e-4, 0.0),
        (2e-4, 0.002),
        (2e-4, 0.3),
        (2e-3, 0.0003),
        (2e-3, 0.03),
        pytest.param(2e-3, 0.0, marks=pytest.mark.long),
        pytest.param(2e-4, 0.0003, marks=pytest.mark.long),
        pytest.param(2e-3, 0.002, marks=pytest.mark.long),
        pytest.param(2e-4, 0.03, marks=pytest.mark.long),
        pytest.param(2e-3, 0.3, marks=pytest.mark.long),
    ],
)
def test_intervals_hold_for_all_strings_and_for_the_detected(true, local_error):
    """1,500 strings each: 95% coverage up to a binomial bound, P(false alarm) <= 1e-7 a case.

    Half of the strings count as detected where their share reaches a threshold.
    """
    n = 1_500
    rng = np.random.default_rng([13, int(1e5 * true), int(1e5 * local_error)])
    local, central = drawn_shares(rng, true, n, local_error)
    both = variances(n, local_error)
    pooled = pool(local, central, both)
    possible = np.clip(pooled.share, 0, 1)
    deviation = np.sqrt(
        (1 - pooled.weight) ** 2 * both.of_local(possible)
        + (pooled.weight * possible / USERS) ** 2 * both.users_variance
    )
    shares = BlendedShares(pooled.weight, deviation, USERS, NOISE)
    threshold = max(float(np.median(pooled.share)), 3 * float(pooled.std_error.min()))
    detected = pooled.share >= threshold
    low, high = intervals(
        shares, pooled.share, pooled.std_error, np.where(detected, threshold, -np.inf)
    )
    holds = (low <= true) & (true <= high)
    for chosen in (np.ones(n, dtype=bool), detected):
        if chosen.sum() > 100:
            held, of = int(holds[chosen].sum()), int(chosen.sum())
            assert frequency_bounds(held, of, ALARM)[1] >= 0.95
    assert (low >= 0).all()
    assert (low <= high).all()


def test_no_interval_is_empty_however_low_the_estimate():
    shares = BlendedShares(np.array([0.5]), np.array([1e-4]), USERS, NOISE)
    low, high = intervals(shares, np.array([-0.01]), np.array([5e-4]), np.array([-np.inf]))
    assert low[0] == 0
    assert high[0] > 1e-4


@pytest.mark.parametrize("true", [0.003, 0.2])
def test_differences_are_seldom_seen_where_there_are_none(true):
    """40,000 comparisons at levels .05 and .001: not more often, P(false alarm) <= 2e-7."""
    rng = np.random.default_rng(17)
    local, central = drawn_shares(rng, true, DRAWS)
    both = variances(DRAWS)
    blended = np.clip(pool(local, central, both).share, 0, 1)
    difference = BlendedShares(np.ones(DRAWS), np.sqrt(both.of_local(blended)), USERS, NOISE)
    p = two_sided_p_values(difference, blended, blended + central - local)
    for level in (0.05, 0.001):
        assert stats.binomtest(int((p <= level).sum()), DRAWS, level, "greater").pvalue > ALARM
