"""Tails of binomial distributions against exact sums of fractions."""

from fractions import Fraction
from math import comb

import pytest

from hubbub.inference.binomial import at_most, more_than


@pytest.mark.parametrize("n", [0, 1, 30, 2000])
@pytest.mark.parametrize("p", [2.0**-20, 0.25, 0.5, 1 - 2.0**-10])
def test_tails_are_good_to_twelve_digits(n, p):
    chance, total = Fraction(p), Fraction(0)
    for k in range(-1, n + 2):
        if 0 <= k <= n:
            total += comb(n, k) * chance**k * (1 - chance) ** (n - k)
        if k % 97 == 0 or k < 3 or k > n - 3:
            assert float(at_most(k, n, p)) == pytest.approx(float(total), rel=1e-12)
            assert float(more_than(k, n, p)) == pytest.approx(float(1 - total), rel=1e-12)


def test_many_are_computed_at_once():
    assert more_than([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [1.0, 0.75, 0.0]
    assert at_most([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [0.0, 0.25, 1.0]
