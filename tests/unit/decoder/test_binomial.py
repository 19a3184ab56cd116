"""Tails of binomial distributions against exact sums."""

import pytest

from hubbub.inference import at_most, more_than


@pytest.mark.parametrize("n", [0, 1, 30, 2000])
@pytest.mark.parametrize("p", [2.0**-20, 0.25, 0.5, 1 - 2.0**-10])
def test_tails_are_good_to_twelve_digits(n, p):
    """The chance is a fraction of a power of two, so all sums have one denominator, n times it."""
    ones, of = p.as_integer_ratio()
    whole, total, term = of**n, 0, (of - ones) ** n  # of k = 0
    for k in range(-1, n + 2):
        if 0 <= k <= n:
            total += term
            term = term * (n - k) * ones // ((k + 1) * (of - ones))
        if k % 97 == 0 or k < 3 or k > n - 3:
            assert float(at_most(k, n, p)) == pytest.approx(total / whole, rel=1e-12)
            assert float(more_than(k, n, p)) == pytest.approx((whole - total) / whole, rel=1e-12)
    assert total == whole


def test_many_are_computed_at_once():
    assert more_than([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [1.0, 0.75, 0.0]
    assert at_most([-1.0, 0.5, 2.0], [2, 2, 2], 0.5).tolist() == [0.0, 0.25, 1.0]
