"""What clients' values set before any noise, for many clients at once.

Strings set the bits of their Bloom filters, which are hashed once and kept packed; open strings one
bit of the prefix that the client's cohort asks for, hashed for each client. Invariant: every bit is
the real client's (a property test holds them together).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hubbub.decoder.arrays import ByteArray, IntArray
from hubbub.decoder.candidates.listing import bit_positions, hash_words, positions_in
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams

_FILTERS_AT_ONCE = 1 << 24
"""Unpacked bits of Bloom filters that are held in memory while they are packed."""


class TrueBits(Protocol):
    """True bits of a list of values."""

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        """Return the packed true bits of clients, uint8, shape (n, k / 8).

        Parameters
        ----------
        held, cohorts : int64 array, shape (n,)
            Index of each client's value, and its cohort.
        """


def true_bits(
    values: tuple[str, ...], params: RapporParams, open_type: OpenStringType | None = None
) -> TrueBits:
    """Return the bits of strings or, given their type, of open strings."""
    if open_type is None:
        return _StringBits(values, params)
    return _PrefixBits(values, params, open_type)


class _StringBits:
    def __init__(self, values: tuple[str, ...], params: RapporParams) -> None:
        self._m = params.m
        self._filters = packed_filters(values, params)

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        return np.take(self._filters, held * self._m + cohorts, axis=0)


class _PrefixBits:
    def __init__(
        self, values: tuple[str, ...], params: RapporParams, open_type: OpenStringType
    ) -> None:
        self._params = params
        cohorts = range(params.m)
        self._step = np.array([cohort // open_type.cohorts for cohort in cohorts])
        self._hashed_cohort = np.array([open_type.hashed_cohort(cohort) for cohort in cohorts])
        encoded = [canonical_bytes(value) for value in values]
        steps = range(len(open_type.steps) + 1)
        self._words = np.stack(
            [hash_words([open_type.prefix(data, step) for data in encoded]) for step in steps]
        )

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        words = self._words[self._step[cohorts], held]
        position = positions_in(words, self._hashed_cohort[cohorts], self._params)[:, 0]
        bits = np.zeros((len(held), self._params.k // 8), dtype=np.uint8)
        bits[np.arange(len(held)), position >> 3] = 1 << (position & 7)
        return bits


def packed_filters(values: tuple[str, ...], params: RapporParams) -> ByteArray:
    """Return every value's Bloom filter in every cohort: uint8, shape (v * m, k / 8)."""
    packed = np.empty((len(values), params.m, params.k // 8), dtype=np.uint8)
    step = max(1, _FILTERS_AT_ONCE // (params.m * params.k))
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        positions = bit_positions(values[rows], params)
        filters = np.zeros((len(positions), params.m, params.k), dtype=np.uint8)
        np.put_along_axis(filters, positions.astype(np.int64), 1, axis=2)
        packed[rows] = np.packbits(filters, axis=2, bitorder="little")
    return packed.reshape(-1, params.k // 8)
