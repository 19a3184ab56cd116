"""Millions of clients at once, drawn on packed words, with the real client's distribution.

Clients that report once: their cohort and permanent noise are drawn instead of derived from a
secret, which has the same distribution. Given the true bits, the two responses make each reported
bit an independent coin with p* or q*, both of them finite binary fractions, so one exact comparison
draws what the client draws in two.

Clients that report day after day: what a client would derive from its secret, its cohort and the
permanent response to every value's Bloom bits, is hashed from a seed and the client's number. So a
value that is reported again, even after others, gets the same permanent response, and nothing need
be kept between days. The instantaneous response is new in every report.

All are seeded, so that a simulation can be repeated; never use them for anybody's real data.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.bernoulli import (
    Words,
    bernoulli_bytes,
    keyed_bernoulli_words,
    mix,
    true_bits,
)

_WORD_STEP = np.uint64(0x9E3779B97F4A7C15)
"""SplitMix64's step, which sets the words of one response apart."""


class SimulatedClients:
    """Clients of one metric, each of which reports once.

    `values`: all values that any client holds. `rng`: of a bit generator with 64 bits a draw; SFC64
    is the fastest. `metric_type`: the metric's type, if its values aren't listed strings.
    """

    def __init__(
        self,
        values: Sequence[Value],
        params: RapporParams,
        rng: np.random.Generator,
        metric_type: MetricType | None = None,
    ) -> None:
        self._params = params
        self._rng = rng
        self._bits = true_bits(values, params, metric_type)
        self._low, self._high = reported_chances(params)

    def with_rng(self, rng: np.random.Generator) -> SimulatedClients:
        """Return clients of the same values with other randomness, sharing the hashed values."""
        other = copy.copy(self)
        other._rng = rng
        return other

    def report(self, held: IntArray) -> tuple[IntArray, ByteArray]:
        """Draw one report for each client, who is a new one in every call.

        `held`, shape (n,): index of each client's value. Returns `cohorts`, shape (n,). `bits`,
        shape (n, k / 8).
        """
        narrow = self._rng.integers(self._params.m, size=len(held), dtype=np.uint16)
        cohorts = narrow.astype(np.int64)
        true = self._bits.take(held, cohorts)
        return cohorts, bernoulli_bytes(self._rng, true, self._low, self._high)


class LongitudinalClients:
    """Numbered clients of one metric, each of which may report often.

    `values`: all values that any client holds at any time. `seed`: stands for all clients' secrets.
    `cohort_shares`, shape (m,): chance of each cohort; uniform if not given, as real clients are.
    `metric_type`: as for `SimulatedClients`.
    """

    def __init__(
        self,
        values: Sequence[Value],
        params: RapporParams,
        seed: np.random.SeedSequence,
        cohort_shares: FloatArray | None = None,
        metric_type: MetricType | None = None,
    ) -> None:
        self._params = params
        self._bits = true_bits(values, params, metric_type)
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

        `clients` and `held`, shape (n,): numbers of clients, and the index of each one's value.
        Returns an array of shape (n, k / 8): equal for equal clients and Bloom bits, in every call.
        """
        bloom = self._bits.take(held, self.cohorts(clients))
        padded = np.zeros((len(bloom), -(-bloom.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : bloom.shape[1]] = bloom
        words = padded.view(np.uint64)
        keys = self._keys(clients, words)
        flipped = keyed_bernoulli_words(
            keys.ravel(), words.ravel(), self._params.f0, self._params.f1
        )
        response = words ^ flipped.reshape(words.shape)
        return response.view(np.uint8)[:, : bloom.shape[1]]

    def report(self, clients: IntArray, held: IntArray, rng: np.random.Generator) -> ByteArray:
        """Draw one report of each client; uint8, shape (n, k / 8). See `permanent`."""
        permanent = np.ascontiguousarray(self.permanent(clients, held))
        return bernoulli_bytes(rng, permanent, self._params.p, self._params.q)

    def _keys(self, clients: IntArray, bloom: Words) -> Words:
        key = mix(mix(clients.astype(np.uint64)) + self._response_secret)
        for column in bloom.T:
            key = mix(key ^ column)
        places = np.arange(1, bloom.shape[1] + 1, dtype=np.uint64) * _WORD_STEP
        return mix(key[:, None] ^ mix(places))


def reported_chances(params: RapporParams) -> tuple[Fraction, Fraction]:
    """Return p* and q* exactly (Erlingsson et al. 2014, section 3): sums of products of doubles."""
    zero, one = Fraction(params.f0), Fraction(params.f1)
    p, q = Fraction(params.p), Fraction(params.q)
    return zero * q + (1 - zero) * p, (1 - one) * q + one * p


def as_records(cohorts: IntArray, bits: ByteArray) -> bytes:
    """Return reports as the collector stores them: the cohort in two bytes, then the bits.

    `cohorts` has shape (n,). `bits` has shape (n, k / 8).
    """
    records = np.empty((len(cohorts), 2 + bits.shape[1]), dtype=np.uint8)
    records[:, :2] = cohorts.astype("<u2")[:, None].view(np.uint8)
    records[:, 2:] = bits
    return records.tobytes()
