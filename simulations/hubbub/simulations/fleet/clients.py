"""Millions of clients at once: the client's law on packed words.

A fleet client reports once; its cohort and permanent noise are drawn instead of derived from a
secret, which has the same distribution. Given the true bits, the two responses make each reported
bit an independent coin with p* or q*, both of them finite binary fractions, so one exact comparison
draws what the client draws in two. Seeded, so that a simulation can be repeated; never use it for
anybody's real data. Clients that report again are in `longitudinal`.
"""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np

from hubbub.decoder.arrays import ByteArray, IntArray
from hubbub.decoder.candidates.listing import bit_positions
from hubbub.protocol.params import RapporParams
from hubbub.simulations.fleet.bernoulli import bernoulli_bytes

_FILTERS_AT_ONCE = 1 << 24
"""Unpacked bits of Bloom filters that are held in memory while they are packed."""


class Fleet:
    """Clients of one metric whose values are known.

    Parameters
    ----------
    values : tuple of str
        All values that any client holds.
    params : RapporParams
    rng : numpy.random.Generator
        Of a bit generator with 64 bits a draw; SFC64 is the fastest.
    """

    def __init__(
        self, values: tuple[str, ...], params: RapporParams, rng: np.random.Generator
    ) -> None:
        self._params = params
        self._rng = rng
        self._filters = packed_filters(values, params)
        self._low, self._high = reported_chances(params)

    def with_rng(self, rng: np.random.Generator) -> Fleet:
        """Return the same values' fleet with other randomness, sharing the hashed filters."""
        other = copy.copy(self)
        other._rng = rng
        return other

    def report(self, held: IntArray) -> tuple[IntArray, ByteArray]:
        """Draw one report for each client, who is a new one in every call.

        Parameters
        ----------
        held : int64 array, shape (n,)
            Index of each client's value.

        Returns
        -------
        cohorts : int64 array, shape (n,)
        bits : uint8 array, shape (n, k / 8)
        """
        narrow = self._rng.integers(self._params.m, size=len(held), dtype=np.uint16)
        cohorts = narrow.astype(np.int64)
        bloom = np.take(self._filters, held * self._params.m + cohorts, axis=0)
        return cohorts, bernoulli_bytes(self._rng, bloom, self._low, self._high)


def reported_chances(params: RapporParams) -> tuple[Fraction, Fraction]:
    """Return p* and q* exactly (Erlingsson et al. 2014, section 3): sums of products of doubles."""
    flip, p, q = Fraction(params.flip), Fraction(params.p), Fraction(params.q)
    return flip * q + (1 - flip) * p, (1 - flip) * q + flip * p


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


def as_records(cohorts: IntArray, bits: ByteArray) -> bytes:
    """Return reports as the collector stores them: the cohort in two bytes, then the bits.

    Parameters
    ----------
    cohorts : int64 array, shape (n,)
    bits : uint8 array, shape (n, k / 8)
    """
    records = np.empty((len(cohorts), 2 + bits.shape[1]), dtype=np.uint8)
    records[:, :2] = cohorts.astype("<u2")[:, None].view(np.uint8)
    records[:, 2:] = bits
    return records.tobytes()
