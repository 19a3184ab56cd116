"""Millions of clients at once, honest and forged, drawn on packed words.

Clients that report once have their cohort and permanent noise drawn instead of derived from a
secret, which has the same distribution; given the true bits, each reported bit is an independent
coin with p* or q*, so one exact comparison draws what the client draws in two. Clients that report
day after day keep their permanent response. Forged reports are what an attacker would send who
controls a share of all reports (docs/understand/attacks.md).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hubbub.inference import ByteArray, IntArray
from hubbub.protocol import MetricType, RapporParams, Value
from hubbub.simulations.bernoulli import (
    Words,
    bernoulli_bytes,
    keyed_bernoulli_words,
    mix,
    true_bits,
)

_WORD_STEP = np.uint64(0x9E3779B97F4A7C15)
"""SplitMix64's step, which sets the words of one response apart."""


class SimulatedClients:
    """Clients of one metric, each of which reports once; SFC64 is the fastest generator."""

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
        """Draw one report for each new client, given its value's index, shape (n,).

        Returns `cohorts`, shape (n,), and `bits`, shape (n, k / 8).
        """
        narrow = self._rng.integers(self._params.m, size=len(held), dtype=np.uint16)
        cohorts = narrow.astype(np.int64)
        true = self._bits.take(held, cohorts)
        return cohorts, bernoulli_bytes(self._rng, true, self._low, self._high)


class LongitudinalClients:
    """Numbered clients of one metric that may report often; secrets follow from the seed."""

    def __init__(
        self,
        values: Sequence[Value],
        params: RapporParams,
        seed: np.random.SeedSequence,
        metric_type: MetricType | None = None,
    ) -> None:
        self._params = params
        self._bits = true_bits(values, params, metric_type)
        self._cohort_secret, self._response_secret = seed.generate_state(2, np.uint64)

    def cohorts(self, clients: IntArray) -> IntArray:
        """Return the cohort that each client has for life; int64, shape (n,)."""
        hashes = mix(mix(clients.astype(np.uint64)) + self._cohort_secret)
        uniform = (hashes >> np.uint64(11)) * 2.0**-53
        return (uniform * self._params.m).astype(np.int64)

    def permanent(self, clients: IntArray, held: IntArray) -> ByteArray:
        """Return each client's permanent response to its value, (n, k / 8): always the same."""
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
    """Return reports as the collector stores them: the cohort in two bytes, then the bits."""
    records = np.empty((len(cohorts), 2 + bits.shape[1]), dtype=np.uint8)
    records[:, :2] = cohorts.astype("<u2")[:, None].view(np.uint8)
    records[:, 2:] = bits
    return records.tobytes()


def forge(
    n: int,
    target: Value,
    params: RapporParams,
    rng: np.random.Generator,
    metric_type: MetricType | None = None,
) -> tuple[IntArray, ByteArray]:
    """Make n reports that raise a target most: noise, and every bit of its as if it were true."""
    cohorts = rng.integers(params.m, size=n)
    absent, _ = reported_chances(params)
    noise = bernoulli_bytes(rng, np.zeros((n, params.k // 8), dtype=np.uint8), absent, absent)
    wanted = true_bits((target,), params, metric_type).take(np.zeros(n, dtype=np.int64), cohorts)
    return cohorts, noise | wanted if params.q > params.p else noise & ~wanted
