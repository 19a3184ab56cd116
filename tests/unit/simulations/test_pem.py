"""PEM: what it looks for, what it finds, and how often that is false."""

import math

import numpy as np
import pytest
from scipy import stats

from evaluation.pem import Spelling, find
from hubbub.simulations.populations import Population, family_shares

_PEOPLE = Population(("Ada", "Al", "Łukasz", "日本"), np.array([0.4, 0.3, 0.2, 0.1]))


@pytest.mark.parametrize("spelling", [Spelling.in_characters, Spelling.in_bits])
def test_whole_strings_of_any_script_are_found(spelling, rng):
    """At epsilon 12 hardly any report is wrong."""
    result = find(spelling(_PEOPLE), _PEOPLE.shares, 100_000, 12.0, rng)
    assert result.found == (0, 1, 2, 3)


def test_nothing_but_the_end_follows_the_end():
    spelling = Spelling(np.array([[1, 2, 0]]), np.array([True]), 3, ends=True)
    possible = [(n // 9, n // 3 % 3, n % 3) for n in np.flatnonzero(spelling.endings(3))]
    assert len(possible) == 1 + 2 + 4 + 8
    assert all(0 not in row[: row.index(0)] and not any(row[row.index(0) :]) for row in possible
               if 0 in row)  # fmt: skip
    assert spelling.numbers(0, 3) == [15]
    assert Spelling(np.array([[1, 0]]), np.array([True]), 2, ends=False).endings(2).all()


def test_a_string_longer_than_nearly_all_is_cut_and_is_not_found(rng):
    people = Population(("a", "b", "abcdefgh"), np.array([0.5, 0.46, 0.04]))
    spelling = Spelling.in_characters(people)
    assert spelling.symbols.shape == (3, 1)
    assert spelling.whole.tolist() == [True, True, False]
    result = find(spelling, people.shares, 100_000, 12.0, rng)
    assert (result.found, result.n_false) == ((0, 1), 0)


def test_a_string_is_found_as_often_as_its_noise_allows(rng):
    """The binomial power of one test among 1,000; two-sided, P(false alarm) < 1e-6."""
    n, shares, runs = 50_000, np.array([0.005, 0.995]), 400
    spelling = Spelling(np.array([[1], [2]]), np.array([True, True]), 1_000, ends=False)
    found = sum(0 in find(spelling, shares, n, 4.0, rng).found for _ in range(runs))
    false_one = 1 / (math.exp(4) + 1)
    # The other string is found for certain, so this one's level is that of the second of 1,000.
    least = stats.binom.isf(0.05 * 2 / 1_000, n, false_one) + 1
    power = stats.binom.sf(least - 1, n, shares @ [0.5, false_one])
    assert 0.1 < power < 0.9
    least_found = stats.binom.ppf(4e-7, runs, power)
    assert least_found <= found <= stats.binom.ppf(1 - 4e-7, runs, power)


@pytest.mark.parametrize("spelling", [Spelling.in_characters, Spelling.in_bits])
def test_what_nobody_holds_is_seldom_found(spelling, rng, monkeypatch):
    """Where nothing is common, 5% of runs find anything; P(false alarm) < 1e-6."""
    monkeypatch.setattr("evaluation.pem.ROOM", 2**12)
    letters = rng.integers(0, 4, size=(5_000, 8))
    values = tuple(dict.fromkeys("".join("abcd"[n] for n in row) for row in letters))
    people = Population(values, family_shares("uniform", len(values)))
    spelt, runs = spelling(people), 60
    results = [find(spelt, people.shares, 20_000, 1.0, rng) for _ in range(runs)]
    assert sum(each.n_false > 0 for each in results) <= stats.binom.isf(1e-6, runs, 0.05)
