"""PEM, with which strings that nobody listed were found before: the baseline of open strings.

Each group of clients reports its value's beginning up to a length of its own, and what is most
common there is extended by all symbols and looked for in the next group's reports (Wang, Li, Jha,
arXiv 1708.06674). PEM is told what our decoder isn't: how long strings are, and either which
characters there are, or it takes their bits. Counts are drawn by their exact distribution under
optimal unary encoding: of n clients, of whom t hold a beginning, Binomial(t, 1/2) +
Binomial(n - t, 1 / (e^epsilon + 1)) report it, whatever they report of others. Optimal local
hashing, which reports of long strings need, has the same variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from scipy import stats

from hubbub.inference import BoolArray, Correction, FloatArray, IntArray, log_q_values
from hubbub.simulations import Population

ROOM = 2**20
"""How many beginnings are looked for in a group's reports at most: the authors' choice."""
_FEW, _MANY, _MANY_REPORTS = 256, 512, 5_000_000
"""How many beginnings are extended: what finds most, from that many reports on the second."""
_MASS = 0.95
"""Strings are told to be as long as so much of the population is: a longer one costs groups."""
_TRUE_STAYS = 0.5
"""Optimized unary encoding's chance that a true bit is sent (Wang et al. 2017)."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Values as symbols, cut to one length, or filled up to it with 0."""

    symbols: IntArray  # shape (v, length): from 0 to `size` - 1
    whole: BoolArray  # shape (v,): whether nothing was cut off
    size: int  # how many symbols there are
    ends: bool  # whether 0 is the end of a string, which only another 0 follows

    @classmethod
    def in_characters(cls, people: Population) -> Self:
        """Spell values in their alphabet: the characters that occur."""
        alphabet = sorted(set().union(*people.values))
        numbers = {character: number for number, character in enumerate(alphabet, start=1)}
        rows = [[numbers[character] for character in value] for value in people.values]
        return cls(*_cut(rows, people.shares), 1 + len(alphabet), ends=True)

    @classmethod
    def in_bits(cls, people: Population) -> Self:
        """Spell values in the bits of their UTF-8."""
        octets, whole = _cut([value.encode() for value in people.values], people.shares)
        bits = np.unpackbits(octets.astype(np.uint8), axis=1)
        return cls(bits.astype(np.int64), whole, 2, ends=False)

    def steps(self, kept: int) -> list[int]:
        """Return up to which symbol each group reports: as few groups as there is `ROOM` for."""
        length = self.symbols.shape[1]
        first, more = (
            max(1, int(math.log(room) / math.log(self.size))) for room in (ROOM, ROOM / kept)
        )
        return [*range(min(first, length), length, more), length]

    def endings(self, n: int) -> BoolArray:
        """Return which of all `size`^n endings there can be, in the order of their numbers."""
        numbers = np.arange(self.size**n)
        possible = np.ones(len(numbers), dtype=np.bool_)
        going = [numbers // self.size**place % self.size > 0 for place in reversed(range(n))]
        for earlier, later in pairwise(going if self.ends else ()):
            possible &= earlier | ~later
        return possible

    def numbers(self, begin: int, end: int) -> IntArray:
        """Return the number of each value's symbols between two places, shape (v,)."""
        powers = self.size ** np.arange(end - begin)[::-1]
        return np.asarray(self.symbols[:, begin:end] @ powers)


@dataclass(frozen=True, slots=True)
class PemResult:
    """What was found."""

    found: tuple[int, ...]  # which of the values
    n_false: int  # how many that aren't even the beginning of a value


def find(
    spelling: Spelling,
    shares: FloatArray,
    reports: int,
    epsilon: float,
    rng: np.random.Generator,
    alpha: float = 0.05,
) -> PemResult:
    """Let a population report once, and find its common values.

    The authors return the best of the last group. Here these are tested: by exact p-values among
    all that were looked for in its reports, which chose none of them (Benjamini-Hochberg).

    shares: shape (v,): Of the values.
    epsilon: Of a client's only report.
    alpha: False discovery rate.
    """
    most_kept = _MANY if reports >= _MANY_REPORTS else _FEW
    steps = spelling.steps(most_kept)
    groups = rng.multinomial(reports, np.full(len(steps), 1 / len(steps)))
    false_one = 1 / (math.exp(epsilon) + 1)
    ended, begins = np.zeros(1, dtype=np.bool_), np.zeros(len(shares), dtype=np.int64)
    for begin, end, clients in zip([0, *steps], steps, groups.tolist(), strict=False):
        fits = spelling.endings(end - begin)
        asked = np.flatnonzero((fits & ~ended[:, None]) | (np.arange(len(fits)) == 0))
        codes = np.where(begins < 0, -1, begins * len(fits) + spelling.numbers(begin, end))
        held = rng.multinomial(clients, shares)
        true = np.bincount(codes + 1, held, minlength=1 + len(ended) * len(fits))[1 + asked]
        true = true.astype(np.int64)
        counts = rng.binomial(true, _TRUE_STAYS) + rng.binomial(clients - true, false_one)
        if end == steps[-1]:
            values, place = np.unique(counts, return_inverse=True)
            log_p = stats.binom.logsf(values - 1, clients, false_one)[place]
            best = np.flatnonzero(log_q_values(log_p, Correction.BH) < math.log(alpha))
        else:  # equal counts by chance, since their order isn't
            best = np.argsort(-counts - rng.random(len(counts)))[:most_kept]
        kept = np.sort(asked[best])
        ended, begins = (kept % spelling.size == 0) & spelling.ends, _places(codes, kept)
    found = np.flatnonzero((begins >= 0) & spelling.whole)
    return PemResult(tuple(found.tolist()), len(kept) - len(np.unique(begins[begins >= 0])))


def _cut(rows: Sequence[Sequence[int]], shares: FloatArray) -> tuple[IntArray, BoolArray]:
    lengths = [len(row) for row in rows]
    length = length_of_most(lengths, shares)
    symbols = np.array([[*row[:length], *[0] * (length - len(row))] for row in rows])
    return symbols, np.array(lengths) <= length


def length_of_most(lengths: Sequence[int], shares: FloatArray) -> int:
    """Return the length that 95% of a population's values don't exceed."""
    order = np.argsort(lengths, kind="stable")
    place = np.searchsorted(np.cumsum(shares[order]), _MASS)
    return int(lengths[order[min(int(place), len(lengths) - 1)]])


def _places(codes: IntArray, kept: IntArray) -> IntArray:
    place = np.searchsorted(kept, codes)
    there = np.append(kept, -1)[place] == codes
    return np.where(there & (codes >= 0), place, -1)
