"""The bound of the chance that the largest of several normals exceeds a size."""

import math

import numpy as np
import pytest
from scipy import stats

from hubbub.inference import log_exceedance_bound


@pytest.mark.parametrize("size", [2.0, 3.5])
def test_bound_holds_whatever_the_correlations_and_is_close(size, rng):
    """Against the integral of the multivariate normal, which is known to 3e-5."""
    for _ in range(3):
        correlation = np.corrcoef(rng.normal(size=(4, 6)))
        bound = math.exp(log_exceedance_bound(size, np.diagonal(correlation, 1)))
        inside = stats.multivariate_normal.cdf(
            np.full(4, size), np.zeros(4), correlation, lower_limit=np.full(4, -size),
            rng=np.random.default_rng(1),
        )  # fmt: skip
        chance = 1 - float(inside)
        assert chance - 3e-5 < bound < 1.5 * chance + 3e-5


def test_bound_of_shifts_over_two_months_is_close_to_their_chance(rng):
    """60,000 runs at three sizes: P(false alarm) < 1e-6 (5.2 standard errors)."""
    weights = rng.uniform(0.3, 2.0, 60)
    noise = rng.normal(size=(60_000, 60)) / np.sqrt(weights)
    before = np.cumsum(weights)[:-1]
    after = weights.sum() - before
    sums = np.cumsum(noise * weights, axis=1)
    differences = sums[:, :-1] / before - (sums[:, -1:] - sums[:, :-1]) / after
    largest = np.abs(differences / np.sqrt(1 / before + 1 / after)).max(axis=1)
    earlier, later = before[:-1] / weights.sum(), before[1:] / weights.sum()
    neighbours = np.sqrt(earlier * (1 - later) / (later * (1 - earlier)))
    for size in (2.5, 3.0, 3.5):
        bound = math.exp(log_exceedance_bound(size, neighbours))
        found = np.mean(largest > size)
        error = np.sqrt(bound * (1 - bound) / 60_000)
        assert found - 5.2 * error < bound < 2.0 * found


def test_small_chances_keep_their_digits():
    """Far out: 2 P(Z > b) for each that is independent of the others."""
    for size in (5.0, 7.9, 8.1, 40.0):
        once = math.log(2) + float(stats.norm.logsf(size))
        independent = log_exceedance_bound(size, np.zeros(99))
        assert independent == pytest.approx(once + math.log(100), rel=1e-6)
