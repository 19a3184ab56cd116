"""The chance that the largest of several normals exceeds a size, against integrals and draws."""

import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy import stats

from hubbub.inference import FloatArray, log_chain_exceedance, log_exceedance_bound
from parameters import examples

WEIGHTS = [(1, 1), (1, 1, 1), (0.2, 3, 1, 0.5), (5, 1, 1, 0.1, 2)]


def bridge(weights: FloatArray | tuple[float, ...]) -> FloatArray:
    """Return the correlations of standardised differences between the means around each cut."""
    times = np.cumsum(weights)[:-1] / np.sum(weights)
    earlier, later = np.minimum.outer(times, times), np.maximum.outer(times, times)
    return np.asarray(np.sqrt(earlier * (1 - later) / (later * (1 - earlier))))


def joint_chance(size: float, correlation: FloatArray) -> float:
    """Integrate the multivariate normal."""
    size_of_each = np.full(len(correlation), size)
    inside = stats.multivariate_normal.cdf(
        size_of_each, np.zeros(len(correlation)), correlation, lower_limit=-size_of_each,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    return 1 - float(inside)


@pytest.mark.parametrize("size", [0.5, 2.0, 3.5])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_chance_of_a_chain_is_that_of_the_joint_normal(weights, size):
    correlation = bridge(weights)
    chance = math.exp(log_chain_exceedance(size, correlation))
    assert chance == pytest.approx(joint_chance(size, correlation), abs=3e-5)


@pytest.mark.parametrize("size", [2.0, 3.5])
def test_bound_needs_no_chain_and_is_close(size, rng):
    for _ in range(3):
        factors = rng.normal(size=(4, 6))
        correlation = np.corrcoef(factors)
        bound = math.exp(log_exceedance_bound(size, np.diagonal(correlation, 1)))
        chance = joint_chance(size, correlation)
        assert chance - 3e-5 < bound < 1.5 * chance + 3e-5


@pytest.mark.long
@examples(40)
@example([14.0, 0.125, 1.0, 107.0], 1.0, 1.0)  # the second variable is taken as the first
@given(
    st.lists(st.floats(1e-4, 1e4), min_size=2, max_size=30), st.floats(0, 45), st.floats(0.01, 2)
)
def test_chance_is_between_one_cut_and_the_union_bound_and_falls(weights, size, more):
    correlation = bridge(tuple(weights))
    once = math.log(2) + float(stats.norm.logsf(size))
    union = min(0.0, once + math.log(len(correlation)))
    neighbours = np.diagonal(correlation, 1)
    for chance, given_it in (
        (log_chain_exceedance, correlation),
        (log_exceedance_bound, neighbours),
    ):
        assert once - 1e-9 <= chance(size, given_it) <= union + 1e-6
        assert chance(size + more, given_it) <= chance(size, given_it) + 1e-6
    chained = log_chain_exceedance(size, correlation)
    assert chained <= log_exceedance_bound(size, neighbours) + 1e-6


def test_chance_of_many_days_agrees_with_simulation(rng):
    """60,000 runs at three sizes: P(false alarm) < 1e-6 (5.2 standard errors)."""
    weights = rng.uniform(0.3, 2.0, 60)
    noise = rng.normal(size=(60_000, 60)) / np.sqrt(weights)
    before = np.cumsum(weights)[:-1]
    after = weights.sum() - before
    sums = np.cumsum(noise * weights, axis=1)
    differences = sums[:, :-1] / before - (sums[:, -1:] - sums[:, :-1]) / after
    largest = np.abs(differences / np.sqrt(1 / before + 1 / after)).max(axis=1)
    for size in (2.0, 3.0, 3.5):
        expected = math.exp(log_chain_exceedance(size, bridge(weights)))
        error = np.sqrt(expected * (1 - expected) / 60_000)
        assert abs(np.mean(largest > size) - expected) < 5.2 * error


def test_small_chances_keep_their_digits():
    """Beside one variable, far out: 2 P(Z > b) for each that is independent of the others."""
    for size in (5.0, 7.9, 8.1, 40.0):
        once = math.log(2) + float(stats.norm.logsf(size))
        independent = log_exceedance_bound(size, np.zeros(99))
        assert independent == pytest.approx(once + math.log(100), rel=1e-6)
        assert log_chain_exceedance(size, np.eye(3)) == pytest.approx(once + math.log(3), rel=1e-6)
