"""Modes and medians that are released only where they are stable."""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from hubbub.release.mechanisms.counts import lattice
from hubbub.release.mechanisms.selection import leader, median_by_test, median_distance, stable_mode
from hubbub.release.noise import Cost, laplace_radius, laplace_scale, laplace_threshold

ONE, TINY = Fraction(1), Fraction("1e-9")
"""An epsilon at which noise is 0 but with probability e^-200 (of sensitivity 1)."""
VALUES = 4
"""Median's brute force: values 0 to 3."""

Table = tuple[int, ...]
"""How often each value is there."""


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3"])
@pytest.mark.parametrize("delta", ["1e-2", "1e-6", "1e-12", "1e-400"])
def test_thresholds_of_noise_are_the_least_that_hold(epsilon, delta):
    scale = laplace_scale(1, Fraction(epsilon))
    least = laplace_threshold(scale, Fraction(delta))

    def log_tail(distance: int) -> float:
        return -distance / scale - math.log1p(math.exp(-1 / scale))

    log_delta = -float(delta.removeprefix("1e-")) * math.log(10)
    assert log_tail(least) <= log_delta < log_tail(least - 1)


def neighbours(table: Table, rows: int) -> Iterator[Table]:
    """Yield all tables that have up to so many rows more, or fewer."""
    for more in range(1, rows + 1):
        for added in combinations_with_replacement(range(len(table)), more):
            numbers = Counter(added)
            yield tuple(own + numbers[i] for i, own in enumerate(table))
            fewer = tuple(own - numbers[i] for i, own in enumerate(table))
            if min(fewer) >= 0:
                yield fewer


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_one_user_moves_the_lead_by_no_more_than_his_rows(rows):
    """All tables of three keys with up to five rows each; two modes' leads add up to no more."""
    largest = 0
    for table in product(range(6), repeat=3):
        mode, lead = leader([key for key, n in enumerate(table) for _ in range(n)])
        for other in neighbours(table, rows):
            other_mode, other_lead = leader([key for key, n in enumerate(other) for _ in range(n)])
            assert abs(lead - other_lead) <= rows
            if mode != other_mode:
                assert lead + other_lead <= rows
                largest = max(largest, lead)
    assert largest == rows


def test_only_modes_that_lead_by_far_are_released():
    """A tie or a single row passes with probability 1e-9; a lead of 1,000 fails with less."""
    mode = stable_mode(rows_per_user=1, epsilon=ONE, delta=TINY)
    assert mode.cost == Cost(ONE, TINY)
    assert mode([]) == mode(["a"]) == mode(["a", "b"] * 1_000) == ()
    ((key, value, radius, _),) = mode(["a"] * 1_000 + ["b"] * 2_000)
    assert (key, value) == ("1", "b")
    assert math.isnan(radius)


@cache
def median(table: Table) -> int:
    """Return the lower median; of no values the lower bound."""
    values = [value for value, n in enumerate(table) for _ in range(n)]
    return values[(len(values) - 1) // 2] if values else 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_distances_are_those_of_all_tables_round_about(rows):
    """Rows are added and removed one by one until somebody could move the median too far."""

    @cache
    def moved(table: Table) -> int:
        return max(abs(median(table) - median(other)) for other in neighbours(table, rows))

    def distance(table: Table, width: int) -> int:
        seen, reached, steps = {table}, {table}, 0
        while all(moved(found) <= width for found in reached):
            reached = {other for found in reached for other in neighbours(found, 1)} - seen
            seen |= reached
            steps += 1
        return steps

    differ = set()
    for width, table in product(range(1, VALUES - 1), product(range(4), repeat=VALUES)):
        if sum(table) <= 6:
            ordered = np.repeat(np.arange(VALUES), table)
            found = median_distance(ordered, 0, VALUES - 1, width, rows)
            assert found == distance(table, width), (table, width)
            differ.add(found)
    assert {0, 1, 2} <= differ


def test_medians_that_one_user_moves_little_are_released():
    """Values lie a thousandth apart; noise is beyond 40 of its scales with probability e^-40."""
    values = np.linspace(0, 10, 10_001)
    release = median_by_test(lattice(0, 10), 0.1, rows_per_user=1, epsilon=Fraction(4), delta=TINY)
    assert release.cost == Cost(Fraction(4), TINY)
    ((key, value, radius, _),) = release(values)
    assert key == ""
    assert abs(float(value) - 5) < 2
    bounds = lattice(0, 10)
    width = math.floor(0.1 / bounds.step)
    assert radius == laplace_radius(laplace_scale(width, Fraction(2))) * bounds.step


def test_medians_that_one_user_could_move_far_are_not_released():
    """Two equal heaps far apart, none at all, or one value: passes with probability 1e-9."""
    release = median_by_test(lattice(0, 10), 0.1, rows_per_user=1, epsilon=ONE, delta=TINY)
    for values in ([0.0] * 500 + [10.0] * 500, [], [5.0]):
        assert release(np.array(values)) == ()
