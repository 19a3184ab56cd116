"""Millions of clients at once: the client's law on packed words.

Same two responses, same exact comparison of binary digits as `hubbub.client.randomness`, but over
an array of all clients' bits and from a seeded generator, so that a simulation can be repeated. A
fleet client reports once; its cohort and permanent noise are drawn instead of derived from a
secret, which has the same distribution. Never use it for anybody's real data.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hubbub.client.params import RapporParams
from hubbub.client.randomness import digit_codes
from hubbub.decoder.arrays import ByteArray, IntArray
from hubbub.decoder.candidates import bit_positions

_Words = npt.NDArray[np.uint64]
_ALL = np.uint64(2**64 - 1)


class Fleet:
    """Clients of one metric whose values are known.

    Parameters
    ----------
    values : tuple of str
        All values that any client holds.
    params : RapporParams
    rng : numpy.random.Generator
    """

    def __init__(
        self, values: tuple[str, ...], params: RapporParams, rng: np.random.Generator
    ) -> None:
        self._params = params
        self._rng = rng
        self._filters = _packed_filters(values, params)

    def report(self, held: IntArray) -> tuple[IntArray, ByteArray]:
        """Draw one report for each client.

        Parameters
        ----------
        held : int64 array, shape (n,)
            Index of each client's value.

        Returns
        -------
        cohorts : int64 array, shape (n,)
        bits : uint8 array, shape (n, k / 8)
        """
        params = self._params
        cohorts = self._rng.integers(params.m, size=len(held))
        bloom = self._filters[held, cohorts]
        permanent = bloom ^ self._bernoulli(np.zeros_like(bloom), params.flip, params.flip)
        return cohorts, self._bernoulli(permanent, params.p, params.q)

    def _bernoulli(self, selector: ByteArray, low: float, high: float) -> ByteArray:
        padded = np.zeros(-(-selector.size // 8) * 8, dtype=np.uint8)
        padded[: selector.size] = selector.ravel()
        bits = bernoulli_words(self._rng, padded.view(np.uint64), low, high)
        return bits.view(np.uint8)[: selector.size].reshape(selector.shape)


def bernoulli_words(rng: np.random.Generator, selector: _Words, low: float, high: float) -> _Words:
    """Draw independent bits: 1 with probability `high` where the selector's bit is 1, else `low`.

    Parameters
    ----------
    rng : numpy.random.Generator
    selector : uint64 array, shape (w,)
    low, high : float
        Any doubles in [0, 1]; the comparison is exact.
    """
    certain = _plane((low == 1) * 2 + (high == 1), selector)
    below = np.broadcast_to(certain, selector.shape).copy()
    open_words = np.arange(len(selector))
    lanes, undecided = selector, ~below
    for code in digit_codes(low, high):
        coins = rng.integers(0, _ALL, size=len(open_words), dtype=np.uint64, endpoint=True)
        plane = _plane(code, lanes)
        decided = undecided & (plane ^ coins)
        below[open_words] |= decided & plane
        undecided = undecided ^ decided
        still = undecided != 0
        if 2 * np.count_nonzero(still) < len(open_words):
            # Most words are settled: go on with the others alone.
            open_words, lanes, undecided = open_words[still], lanes[still], undecided[still]
        if not len(open_words):
            break
    return below


def _plane(code: int, selector: _Words) -> _Words | np.uint64:
    """Return one binary digit of every lane's probability (see `digit_codes`)."""
    planes = (np.uint64(0), selector, ~selector, _ALL)
    return planes[code]


def _packed_filters(values: tuple[str, ...], params: RapporParams) -> ByteArray:
    """Return every value's Bloom filter in every cohort: uint8, shape (v, m, k / 8)."""
    positions = bit_positions(values, params)
    filters = np.zeros((len(values), params.m, params.k), dtype=np.uint8)
    np.put_along_axis(filters, positions.astype(np.int64), 1, axis=2)
    return np.packbits(filters, axis=2, bitorder="little")
