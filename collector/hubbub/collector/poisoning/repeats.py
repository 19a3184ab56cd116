"""How often one exact report occurs: naive forgers send the same bits again and again.

A bounded, evenly spaced sample of the reports is reduced to one 64-bit key each; equal reports have
equal keys. Invariant: which reports are sampled never depends on their bits, because the bound on
honest repeats holds only for a sample chosen blindly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.collector.poisoning.set_bits import column, words
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Records

_FloatArray = NDArray[np.float64]
_IntArray = NDArray[np.int64]
SAMPLE = 2**19
"""Most reports that are remembered, 8 bytes each."""

_COHORT_SHIFT, _SET_BITS_SHIFT = np.uint64(54), np.uint64(43)
_SET_BITS_MASK = np.uint64(2**11 - 1)
_HASH_SHIFT = np.uint64(64 - 43)
_COLLISION = 2.0**-43
_MOST_CHANCE = 0.01
_MULTIPLIER, _FOLD = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Repeats(NamedTuple):
    """What a sample shows of reports that are equal to the bit.

    Attributes
    ----------
    assessed : bool
        False if honest reports may repeat so often under these parameters that repeats say nothing.
    sampled : int
        Reports looked at.
    most : int
        Times that the most conspicuous report occurs among them.
    plausible : int
        Times that it might with honest clients, but for a chance `alarm`.
    suspicious : int
        Sampled reports that occur more often than is plausible.
    """

    assessed: bool
    sampled: int
    most: int
    plausible: int
    suspicious: int


class RepeatSample:
    """An evenly spaced sample of the reports of one metric, as keys.

    All reports up to `size`; each time that the sample is full, every other one of it is dropped
    and the step between reports doubles. So it holds between size/2 and size of a larger number,
    and a report that makes up a share x of all is in it about x size/2 times or more.

    Parameters
    ----------
    params : RapporParams
    size : int
        Most reports to remember.
    """

    def __init__(self, params: RapporParams, size: int = SAMPLE) -> None:
        self._params = params
        self._size = size
        self._assessed = chance_of_repeat(params, np.arange(params.k + 1)).max() <= _MOST_CHANCE
        self._keys = np.empty(size, dtype=np.uint64)
        self._kept = 0
        self._step = 1
        self._seen = 0

    def add(self, records: Records) -> None:
        """Look at more reports."""
        if not self._assessed:
            return
        start = 0
        while start < records.reports:
            # In pieces, so that a long chunk doesn't fill the sample many times over.
            stop = min(records.reports, start + self._size * self._step // 2)
            piece = records.data[start * records.width : stop * records.width]
            self._add(Records(records.width, piece))
            start = stop

    def result(self, alarm: float) -> Repeats:
        """Return the repeats, and how many are plausible but for a chance `alarm`.

        Raises
        ------
        ValueError
            If `alarm` isn't in (0, 1).

        Notes
        -----
        Given the permanent responses, reports are independent, and each bit of one is what a
        pattern has with probability at most max(p, q) where the pattern is 1 and max(1 - p, 1 - q)
        where it is 0. So a report equals a pattern of s ones with probability at most
        B = max(p, q)^s max(1 - p, 1 - q)^(k - s), whatever the values and permanent responses are.
        Take any report i: given its bits, the number of *other* reports in its cohort that are
        equal to it is at most Binomial(n_c - 1, B) in stochastic order. A report is suspicious if
        that would reach the observed number with probability at most alarm/n; over the n sampled
        reports the chance of any suspicious one adds up to at most `alarm`. The tail is bounded by
        Chernoff's exp(-n KL(t/n || B)); B includes the chance that two keys collide.

        A one-time metric without a second response has p = 0, q = 1, but a client reports once, so
        p* and q* take their place.
        """
        if not 0 < alarm < 1:
            raise ValueError(f"alarm = {alarm}: must be between 0 and 1")
        if not self._assessed or not self._kept:
            return Repeats(bool(self._assessed), self._kept, 0, 0, 0)
        keys, occurrences = np.unique(self._keys[: self._kept], return_counts=True)
        in_cohort = np.bincount((self._keys[: self._kept] >> _COHORT_SHIFT).astype(np.int64))
        others = in_cohort[(keys >> _COHORT_SHIFT).astype(np.int64)] - 1
        ones = ((keys >> _SET_BITS_SHIFT) & _SET_BITS_MASK).astype(np.int64)
        chance = chance_of_repeat(self._params, ones)
        level = np.log(alarm / self._kept)
        log_tails = log_binomial_tails(occurrences - 1, others, chance)
        worst = int(np.lexsort((-occurrences, log_tails))[0])
        return Repeats(
            assessed=True,
            sampled=self._kept,
            most=int(occurrences[worst]),
            plausible=1 + _most_plausible(int(others[worst]), float(chance[worst]), float(level)),
            suspicious=int(occurrences[log_tails <= level].sum()),
        )

    def _add(self, records: Records) -> None:
        first = -self._seen % self._step
        keys = _keys(records, first, self._step)
        while self._kept + len(keys) > self._size:
            start = self._kept % 2  # keys[0] continues the sample: keep what stays in step
            self._keys[: (self._kept + 1) // 2] = self._keys[: self._kept : 2].copy()
            self._kept = (self._kept + 1) // 2
            self._step *= 2
            keys = keys[start::2]
        self._keys[self._kept : self._kept + len(keys)] = keys
        self._kept += len(keys)
        self._seen += records.reports


def chance_of_repeat(params: RapporParams, ones: _IntArray) -> _FloatArray:
    """Return a bound on the chance that a report equals a given one with so many set bits."""
    one_time = {params.p, params.q} == {0.0, 1.0}
    p, q = (params.p_star, params.q_star) if one_time else (params.p, params.q)
    log_one, log_zero = np.log(max(p, q)), np.log(max(1 - p, 1 - q))
    chance = np.exp(ones * log_one + (params.k - ones) * log_zero)
    return np.asarray(np.minimum(1.0, chance + _COLLISION))


def log_binomial_tails(reached: _IntArray, n: _IntArray, chance: _FloatArray) -> _FloatArray:
    """Return Chernoff's bound on ln P(Binomial(n, chance) >= reached), elementwise."""
    a = reached / np.maximum(n, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = np.where(a > 0, a * np.log(a / chance), 0.0)
        missed = np.where(a < 1, (1 - a) * np.log((1 - a) / (1 - chance)), 0.0)
    return np.asarray(np.where(a > chance, -n * (hit + missed), 0.0))


def _most_plausible(n: int, chance: float, level: float) -> int:
    """Return the largest number whose tail is above `level` on the log scale."""
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        tail = log_binomial_tails(np.array([middle]), np.array([n]), np.array([chance]))[0]
        low, high = (middle, high) if tail > level else (low, middle)
    return low


def _keys(records: Records, start: int, step: int) -> NDArray[np.uint64]:
    """Return cohort (10 bits), set bits (11) and a hash (43) of every step-th record.

    The hash multiplies and folds word by word; like a random function of 43 bits, it lets two
    different patterns share a key with probability 2^-43.
    """
    cohort = column(records, 0, "<u2", start, step).astype(np.uint64)
    hashed = np.zeros(len(cohort), dtype=np.uint64)
    ones = np.zeros(len(cohort), dtype=np.uint64)
    for word in words(records, start, step):
        ones += np.bitwise_count(word)
        hashed ^= hashed >> _FOLD
        hashed ^= word
        hashed *= _MULTIPLIER
    keys = (cohort << _COHORT_SHIFT) | (ones << _SET_BITS_SHIFT) | (hashed >> _HASH_SHIFT)
    return np.asarray(keys)
