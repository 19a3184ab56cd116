"""Central mechanisms under attack: neighbouring data are told apart no better than claimed.

OpenDP draws from the operating system, so nothing is seeded: bounds leave an alarm a probability
below 1e-6 (Clopper-Pearson). Each audit also shows that it would see a mechanism that claims half
of what it costs.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hubbub.release.mechanisms.counts import bounded_mean, lattice
from hubbub.release.mechanisms.histograms import threshold, thresholded_histogram
from hubbub.release.noise import (
    add_gaussian,
    add_laplace,
    gaussian_radius,
    gaussian_scale,
    laplace_radius,
    laplace_scale,
    laplace_tail,
    select,
    select_scale,
)

ALARM = 1e-6
DRAWS = 200_000


def bounds(hits: int, draws: int) -> tuple[float, float]:
    """Return where the probability of an event is, but with probability `ALARM`."""
    low = stats.beta.ppf(ALARM / 2, hits, draws - hits + 1) if hits else 0.0
    high = stats.beta.isf(ALARM / 2, hits + 1, draws - hits) if hits < draws else 1.0
    return float(low), float(high)


def least_epsilon(likely: int, unlikely: int, draws: int) -> float:
    """Return the epsilon that two frequencies of one event show at least."""
    return math.log(bounds(likely, draws)[0] / bounds(unlikely, draws)[1])


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2)])
@pytest.mark.parametrize("rows", [1, 3])
def test_laplace_noise_hides_a_users_rows(epsilon: Fraction, rows: int) -> None:
    scale = laplace_scale(rows, epsilon)
    without, with_user = (np.array(add_laplace([n] * DRAWS, scale)) for n in (0, rows))
    found = least_epsilon(int((with_user >= rows).sum()), int((without >= rows).sum()), DRAWS)
    assert epsilon / 2 < found <= epsilon


def test_choosing_the_best_hides_a_user() -> None:
    """The worst neighbours: his row turns a tie of two options over."""
    draws, epsilon = 40_000, Fraction(2)
    scale = select_scale(1, epsilon, monotonic=False)
    first = sum(select([1, 0], scale, monotonic=False) == 0 for _ in range(draws))
    second = sum(select([0, 1], scale, monotonic=False) == 0 for _ in range(draws))
    found = least_epsilon(first, second, draws)
    assert epsilon / 4 < found <= epsilon


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(2)])
def test_keys_of_one_user_are_released_with_at_most_delta(epsilon: Fraction) -> None:
    keys, delta = [str(i) for i in range(50_000)], Fraction(1, 100)
    found = thresholded_histogram(rows_per_user=1, epsilon=epsilon, delta=delta)(keys)
    low, high = bounds(len(found), len(keys))
    scale = laplace_scale(1, epsilon)
    exact = laplace_tail(threshold(scale, 1, delta) - 1, scale)
    assert low <= exact <= high
    assert exact <= delta


def test_radii_hold_at_least_as_often_as_they_say() -> None:
    scale = laplace_scale(1, Fraction(1, 4))
    within = int((np.abs(add_laplace([0] * DRAWS, scale)) <= laplace_radius(scale)).sum())
    assert bounds(within, DRAWS)[1] >= 0.95
    sigma, _ = gaussian_scale(1.0, Fraction(1), Fraction("1e-6"))
    within = int((np.abs(add_gaussian([0] * DRAWS, sigma)) <= gaussian_radius(sigma)).sum())
    assert bounds(within, DRAWS)[1] >= 0.95


def test_radii_of_means_hold_at_least_as_often_as_they_say() -> None:
    values, draws = np.random.default_rng(1).normal(3, 1, 500), 2_000
    bounded = lattice(0.0, 10.0)
    truth, within = float(np.clip(values, 0, 10).mean()), 0
    mean = bounded_mean(bounded, rows_per_user=1, epsilon=Fraction(1))
    for _ in range(draws):
        (row,) = mean(values)
        within += abs(float(row.value) - truth) <= row.radius + bounded.step
    assert bounds(within, draws)[1] >= 0.95
