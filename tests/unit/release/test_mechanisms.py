"""Mechanisms: scales that cost what they say, thresholds that hold, answers that are near."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from evaluation.studies.releases import laplace_tail
from hubbub.release.mechanisms import selection
from hubbub.release.mechanisms.counts import (
    Mechanism,
    bounded_mean,
    bounded_sum,
    bucketed,
    buckets,
    count,
    histogram,
    lattice,
    threshold,
    thresholded_histogram,
)
from hubbub.release.mechanisms.selection import quantile, quantile_scores
from hubbub.release.noise import (
    Cost,
    gaussian_epsilon,
    gaussian_radius,
    gaussian_scale,
    laplace_radius,
    laplace_scale,
    select_scale,
)

EPSILONS = st.fractions(Fraction(1, 100), Fraction(10), max_denominator=100)
SURE = Fraction(200)
"""An epsilon at which noise is 0 but with probability e^-200."""


def laplace_law(scale: float, most: int = 4_000) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return P(Z = z) for z from -most to most."""
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-most, most + 1))


@given(EPSILONS, st.integers(1, 10))
def test_laplace_scales_cost_at_most_epsilon_and_barely_less(epsilon, sensitivity):
    scale = laplace_scale(sensitivity, epsilon)
    assert Fraction(sensitivity) / Fraction(scale) <= epsilon
    assert scale == pytest.approx(float(sensitivity / epsilon), rel=1e-12)


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.7, 50.0])
def test_radii_and_tails_are_those_of_the_discrete_law(scale):
    law = laplace_law(scale)
    z = np.arange(-4_000, 4_001)
    for distance in (-3, 0, 1, 2, 7):
        assert laplace_tail(distance, scale) == pytest.approx(law[z >= distance].sum(), rel=1e-9)
    radius = laplace_radius(scale)
    assert law[np.abs(z) <= radius].sum() >= 0.95
    assert radius == 0 or law[np.abs(z) <= radius - 1].sum() < 0.95


@pytest.mark.parametrize("scale", [0.3, 4.53, 1e6])
def test_radii_of_gaussian_noise_are_those_of_the_discrete_law(scale):
    radius = gaussian_radius(scale)
    if scale > 1e5:
        assert radius == pytest.approx(1.95996 * scale, rel=1e-4)
        return
    z = np.arange(-100, 101)
    law = np.exp(-(z**2) / (2 * scale**2))
    law /= law.sum()
    assert law[np.abs(z) <= radius].sum() >= 0.95
    assert radius == 0 or law[np.abs(z) <= radius - 1].sum() < 0.95


def test_gaussian_scales_cost_at_most_epsilon():
    for epsilon, delta in itertools.product(("0.1", "1", "10"), ("1e-6", "1e-9")):
        scale, cost = gaussian_scale(2.0, Fraction(epsilon), Fraction(delta))
        assert gaussian_epsilon(scale, 2.0, Fraction(delta)) <= Fraction(epsilon)
        assert gaussian_epsilon(scale * 0.999, 2.0, Fraction(delta)) > Fraction(epsilon)
        assert cost.rho == pytest.approx(4 / (2 * scale**2), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6"])
def test_thresholds_hold_however_a_users_rows_are_parted(rows, epsilon, delta):
    """The probability that any of a user's own keys passes, over all partitions of his rows."""
    scale = laplace_scale(rows, Fraction(epsilon))
    least = threshold(scale, rows, Fraction(delta))

    def worst(at: int) -> float:
        return max(
            sum(laplace_tail(at - own, scale) for own in parts)
            for n in range(1, rows + 1)
            for parts in itertools.combinations_with_replacement(range(1, rows + 1), n)
            if sum(parts) <= rows
        )

    assert worst(least) <= float(delta)
    assert least == rows + 1 or worst(least - 1) > float(delta)


def test_keys_of_few_are_not_released_and_keys_of_many_are():
    """A key of one passes with probability 1e-9, one of 1,000 fails with less: P(alarm) < 1e-6."""
    keys = ["rare"] + ["often"] * 1_000 + ["again"] * 1_000
    found = thresholded_histogram(rows_per_user=1, epsilon=Fraction(1), delta=Fraction("1e-9"))(
        keys
    )
    assert [row.key for row in found] == ["again", "often"]
    assert all(abs(float(row.value) - 1_000) < 40 for row in found)


@given(st.floats(-1e3, 1e3), st.floats(2.0, 1e6))
def test_lattices_hold_their_bounds(low, width):
    bounds = lattice(low, low + width)
    assert bounds.low * bounds.step <= low
    assert low + width <= bounds.high * bounds.step
    assert width / 2**21 <= bounds.step <= width / 2**19
    inside = bounds.numbers(np.array([low + width / 3, math.inf, -math.inf]))
    assert inside[0] * bounds.step == pytest.approx(low + width / 3, abs=bounds.step)
    assert inside[1:].tolist() == [bounds.high, bounds.low]


LEVELS = st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(2, 3)])


@given(st.lists(st.integers(0, 10), min_size=1, max_size=30), LEVELS)
def test_without_noise_quantiles_are_quantiles(values, level):
    """Also of values that are all the same; noise is 0 but with probability e^-20 at most."""
    choose = quantile(0, 10, level, options=11, rows_per_user=1, epsilon=10 * SURE)
    found = float(choose(np.array(values, dtype=np.float64))[0].value)
    below, above = sum(v < found for v in values), sum(v > found for v in values)
    assert below <= level * len(values)
    assert above <= (1 - level) * len(values)


@pytest.mark.parametrize("level", ["1/2", "3/10", "1/3", "0.9999"])
def test_a_user_moves_no_score_of_a_quantile_by_more_than_it_is_paid_for(level):
    """Over all tables of up to two values at each of four options, and a large one."""
    share = Fraction(level)
    most = max(share.numerator, share.denominator - share.numerator)
    tables = [*itertools.product(range(3), repeat=4), (10**9, 0, 10**9, 1)]
    moves = []
    for table in tables:
        before = quantile_scores(np.array(table), share)
        for place in range(4):
            after = quantile_scores(np.array(table) + (np.arange(4) == place), share)
            moves.append(int(np.abs(after - before).max()))
    assert max(moves) == most


def released_scale(mechanism: Mechanism[Any], data: object) -> float:
    """Return the scale of the Laplace noise that a mechanism says it has added."""
    variance = mechanism(data)[0].variance
    return -1 / math.log1p(-(math.sqrt(2 * variance + 1) - 1) / variance)


@pytest.mark.parametrize("rows", [1, 3])
def test_noise_is_for_all_rows_of_a_user(rows):
    bounds, epsilon = lattice(-2.0, 10.0), Fraction(1, 2)
    budget: dict[str, Any] = {"rows_per_user": rows, "epsilon": epsilon}
    scale = rows / float(epsilon)
    assert released_scale(count(**budget), 5) == pytest.approx(scale)
    assert released_scale(histogram(["a"], **budget), ["a"]) == pytest.approx(scale)
    found = thresholded_histogram(**budget, delta=Fraction(1, 10))
    assert released_scale(found, ["a"] * 1_000) == pytest.approx(scale)
    (row,) = bounded_sum(bounds, **budget)(np.zeros(3))
    assert math.sqrt(row.variance / 2) == pytest.approx(10 * scale, rel=1e-6)
    (mean,) = bounded_mean(bounds, **budget)(np.zeros(10**6))
    low, high = 6 * scale * 2 * math.log(20) / 10**6, 12 * scale * 2 * math.log(40) * 2 / 10**6
    assert low < mean.radius < high


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("best", [1, 2])
def test_choices_are_paid_for_all_rows_of_a_user(rows, best, monkeypatch):
    """Scales as `selection` asks for them, whose cost is tested by itself."""
    asked = []

    def scale_for(sensitivity: int, epsilon: Fraction, *, monotonic: bool, best: int = 1) -> float:
        asked.append((sensitivity, monotonic, best))
        return select_scale(sensitivity, epsilon, monotonic=monotonic, best=best)

    monkeypatch.setattr(selection, "select_scale", scale_for)
    selection.most_common(["a", "b"], best, rows_per_user=rows, epsilon=Fraction(1))
    for level, most in (("1/2", 1), ("9/10", 9), ("1/4", 3)):
        quantile(0, 1, Fraction(level), options=3, rows_per_user=rows, epsilon=Fraction(1))
        assert asked.pop() == (rows * most, False, 1)
    assert asked == [(rows, True, best)]


def test_numbers_near_the_threshold_say_that_they_may_be_of_one_row_alone():
    """A key with far fewer rows than the threshold is above `near` in 5% of releases at most.

    Of 40,000 such keys about 197 are released; below 100, or over 20% of them missed: P < 1e-9.
    """
    found = thresholded_histogram(rows_per_user=1, epsilon=Fraction(1), delta=Fraction("1e-4"))
    keys = [str(i) for i in range(40_000) for _ in range(5)]
    rows = found(keys)
    missed = sum(abs(float(row.value) - 5) > row.radius for row in rows)
    assert len(rows) > 100
    assert missed < 0.2 * len(rows)


def test_values_far_beyond_the_bounds_are_clipped_silently():
    """Tests turn warnings into errors."""
    bounds = lattice(0.0, 1.0)
    assert bounds.numbers(np.array([1e308, -1e308, 0.5])).tolist() == [
        bounds.high, bounds.low, bounds.high // 2
    ]  # fmt: skip


@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=8, unique=True).map(sorted),
    st.lists(st.one_of(st.integers(-60, 60), st.just(math.inf), st.just(-math.inf)), max_size=20),
)
def test_every_number_is_in_the_bucket_between_its_edges(edges, values):
    names = buckets(edges)
    assert len(set(names)) == len(edges) + 1
    for value, name in zip(values, bucketed(np.array(values, dtype=float), edges), strict=True):
        place = names.index(name)
        assert place == 0 or edges[place - 1] <= value
        assert place == len(edges) or value < edges[place]


def test_a_mean_costs_what_its_sum_and_its_number_cost():
    bounds = lattice(0.0, 10.0)
    pure = bounded_mean(bounds, rows_per_user=1, epsilon=Fraction(1)).cost
    assert pure == Cost(Fraction(1), rho=2 * Fraction(1, 2) ** 2 / 2)
    noisy = bounded_mean(bounds, rows_per_user=1, epsilon=Fraction(1), delta=Fraction("1e-6")).cost
    _, number = gaussian_scale(1.0, Fraction(1, 2), Fraction("5e-7"))
    assert noisy == Cost(Fraction(1), Fraction("1e-6"), noisy.rho)
    assert noisy.rho is not None
    assert number.rho is not None
    assert float(noisy.rho) == pytest.approx(2 * float(number.rho), rel=1e-6)
