"""Clients that report day after day: a cohort and permanent responses for life, in no memory.

What a client would derive from its secret is derived here from the fleet's seed and the client's
number by a mixing hash: its cohort, and for every value's Bloom bits the permanent response. So a
value that is reported again, even after others, gets the same permanent response, and nothing need
be kept between days. The instantaneous response is new in every report.
"""

from __future__ import annotations

import numpy as np

from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray
from hubbub.protocol.params import RapporParams
from hubbub.simulations.fleet.bernoulli import Words, bernoulli_bytes, keyed_bernoulli_words, mix
from hubbub.simulations.fleet.clients import packed_filters

_WORD_STEP = np.uint64(0x9E3779B97F4A7C15)


class LongitudinalFleet:
    """Numbered clients of one metric, each of which may report often.

    Parameters
    ----------
    values : tuple of str
        All values that any client holds at any time.
    params : RapporParams
    seed : numpy.random.SeedSequence
        Stands for all clients' secrets.
    cohort_shares : float64 array, shape (m,), or None
        Chance of each cohort; uniform if not given, as real clients are.
    """

    def __init__(
        self,
        values: tuple[str, ...],
        params: RapporParams,
        seed: np.random.SeedSequence,
        cohort_shares: FloatArray | None = None,
    ) -> None:
        self._params = params
        self._filters = packed_filters(values, params)
        self._cohort_secret, self._response_secret = seed.generate_state(2, np.uint64)
        self._cohort_edges = None if cohort_shares is None else np.cumsum(cohort_shares)[:-1]

    def cohorts(self, clients: IntArray) -> IntArray:
        """Return the cohort that each client has for life; int64, shape (n,)."""
        hashes = mix(mix(clients.astype(np.uint64)) + self._cohort_secret)
        uniform = (hashes >> np.uint64(11)) * 2.0**-53
        if self._cohort_edges is None:
            return (uniform * self._params.m).astype(np.int64)
        return np.searchsorted(self._cohort_edges, uniform, side="right")

    def permanent(self, clients: IntArray, held: IntArray) -> ByteArray:
        """Return each client's permanent response to the value it holds.

        Parameters
        ----------
        clients, held : int64 array, shape (n,)
            Numbers of clients, and the index of each one's value.

        Returns
        -------
        uint8 array, shape (n, k / 8)
            Equal for equal clients and Bloom bits, in every call.
        """
        bloom = np.take(self._filters, held * self._params.m + self.cohorts(clients), axis=0)
        words = _as_words(bloom)
        keys = self._keys(clients, words)
        flipped = keyed_bernoulli_words(
            keys.ravel(), np.zeros(keys.size, np.uint64), self._params.flip, self._params.flip
        )
        response = words ^ flipped.reshape(words.shape)
        return response.view(np.uint8)[:, : bloom.shape[1]]

    def report(self, clients: IntArray, held: IntArray, rng: np.random.Generator) -> ByteArray:
        """Draw one report of each client; uint8, shape (n, k / 8). See `permanent`."""
        permanent = np.ascontiguousarray(self.permanent(clients, held))
        return bernoulli_bytes(rng, permanent, self._params.p, self._params.q)

    def _keys(self, clients: IntArray, bloom: Words) -> Words:
        """Return a key for each word of each client's permanent response, shape (n, words)."""
        key = mix(mix(clients.astype(np.uint64)) + self._response_secret)
        for column in bloom.T:
            key = mix(key ^ column)
        places = np.arange(1, bloom.shape[1] + 1, dtype=np.uint64) * _WORD_STEP
        return mix(key[:, None] ^ mix(places))


def _as_words(rows: ByteArray) -> Words:
    """Return rows of bytes as rows of 64-bit words, filled up with zeros."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : rows.shape[1]] = rows
    return padded.view(np.uint64)
