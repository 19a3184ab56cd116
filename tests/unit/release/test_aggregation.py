"""Subsample and aggregate: what releases the estimates of blocks."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hubbub.release import QueryError
from hubbub.release.mechanisms.counts import lattice
from hubbub.release.mechanisms.selection import (
    aggregate_mean,
    aggregate_median,
    aggregate_mode,
    leader,
)
from hubbub.release.noise import Cost, laplace_radius, laplace_scale, select_scale

ONE, TINY = Fraction(1), Fraction("1e-9")
SURE = Fraction(400)
"""An epsilon at which noise is 0 but with probability e^-200."""


def test_medians_of_estimates_pay_for_replacing_one():
    """A score moves by 2 at most; the exponential mechanism pays twice that."""
    median = aggregate_median(-1, 1, options=2_001, epsilon=ONE)
    assert median.cost == Cost(ONE)
    assert "subsample-and-aggregate, median by the exponential" in median.name
    assert select_scale(2, ONE, monotonic=False) == 4.0
    estimates = np.append(np.linspace(0.2, 0.3, 401), [-1e9, 1e9])
    ((key, value, radius, _),) = aggregate_median(-1, 1, options=2_001, epsilon=SURE)(estimates)
    assert key == ""
    assert value == pytest.approx(0.25, abs=0.001)
    assert math.isnan(radius)


def test_means_of_estimates_pay_for_the_whole_range():
    bounds = lattice(-1.0, 1.0)
    mean = aggregate_mean(bounds, blocks=400, epsilon=ONE)
    ((_, _, radius, _),) = mean(np.zeros(400))
    scale = laplace_scale(bounds.high - bounds.low, ONE)
    assert radius == pytest.approx(laplace_radius(scale) * bounds.step / 400)
    assert radius == pytest.approx(2 / 400 * math.log(20), rel=1e-3)
    ((_, value, *_),) = aggregate_mean(bounds, blocks=3, epsilon=10**9 * SURE)(
        np.array([0.5, 0.25, 7.0])
    )
    assert value == pytest.approx(1.75 / 3, abs=1e-6)


def test_replacing_an_estimate_moves_a_mode_s_lead_by_two_at_most():
    """All ways to replace one of seven estimates, of four values."""
    rng = np.random.default_rng(1)
    largest, decided = 0, 0
    for _ in range(300):
        estimates = rng.integers(0, 3, 7).tolist()
        mode, lead = leader(estimates)
        for place in range(7):
            for value in range(4):
                other = [*estimates[:place], value, *estimates[place + 1 :]]
                other_mode, other_lead = leader(other)
                largest = max(largest, abs(lead - other_lead))
                if mode != other_mode:
                    decided = max(decided, lead + other_lead)
    assert (largest, decided) == (2, 2)


def test_modes_of_estimates_are_rounded_and_lead_by_far():
    """A lead of 1 passes with probability 1e-9, one of over 400 fails with less."""
    mode = aggregate_mode(epsilon=ONE, delta=TINY)
    estimates = np.array([2.0, -0.0, 0.0] + [1e-9, -1e-9] * 200)
    assert [row.value for row in mode(estimates)] == [0.0]
    assert mode(np.array([1.0, 1.0, 2.0])) == mode(np.array([])) == ()
    with pytest.raises(QueryError, match="delta = 0"):
        aggregate_mode(epsilon=ONE, delta=Fraction(0))
