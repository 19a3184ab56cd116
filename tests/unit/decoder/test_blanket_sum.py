"""The positive part of a sum of independent draws, against enumeration and the normal law."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from hubbub.planning import mean_positive_part
from parameters import examples


def enumerated(values: np.ndarray, chance: np.ndarray, n: int) -> float:
    outcomes = [*zip(values, chance, strict=True), (0.0, 1 - chance.sum())]
    return math.fsum(
        max(sum(value for value, _ in drawn), 0.0) * math.prod(p for _, p in drawn)
        for drawn in itertools.product(outcomes, repeat=n)
    )


@examples(50)
@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=3),
    st.floats(0.1, 0.9),
    st.integers(1, 5),
)
def test_bound_is_above_the_enumeration_and_close_to_it(values, total, n):
    given_values = np.array([*values, 1.0])
    chance = np.full(len(given_values), total / len(given_values))
    exact = enumerated(given_values, chance, n)
    bound = mean_positive_part(given_values, chance, n, 1e-9)
    assert exact <= bound * (1 + 1e-12)
    assert bound <= exact * 1.02 + 1e-6


def test_many_draws_are_those_of_the_normal_law():
    n, values, chance = 200_000, np.array([1.0, -1.01]), np.array([0.3, 0.3])
    mean, second = float(chance @ values), float(chance @ values**2)
    spread = math.sqrt(n * (second - mean**2))
    z = n * mean / spread
    expected = spread * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
    bound = mean_positive_part(values, chance, n, 1e-3 * expected)
    assert bound == pytest.approx(expected, rel=0.01)


def test_a_sum_that_is_never_positive_has_none():
    values, chance = np.array([-1.0, 0.0]), np.array([0.3, 0.1])
    assert mean_positive_part(values, chance, 1_000, 1e-6) < 1e-6
