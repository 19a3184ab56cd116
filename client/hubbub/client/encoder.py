"""From a value to a report: Bloom bits, then the permanent and the instantaneous response.

The permanent response is a pure function of (secret, metric, cohort, Bloom bits), so the memo that
RAPPOR asks for needs no storage; the instantaneous one is drawn anew from the operating system each
time. What a maintainer must not break: nothing computed before the second response (value, Bloom
bits, permanent bits) may be stored, logged or returned to anyone but the caller of a private step.
"""

from __future__ import annotations

from hubbub.client.bloom import bloom_bits
from hubbub.client.errors import StateError
from hubbub.client.metrics import Metric
from hubbub.client.randomness import (
    BernoulliSampler,
    ByteStream,
    KeyedStream,
    keyed_message,
    os_stream,
    uniform_below,
)
from hubbub.client.wire import Report

SECRET_BYTES = 32
_COHORT_TAG = b"hubbub/1/cohort"
_PERMANENT_TAG = b"hubbub/1/permanent"


class Encoder:
    """One client's encoder for one metric.

    Parameters
    ----------
    metric : Metric
    secret : bytes
        The client's 32 secret bytes; they fix its cohort and its permanent responses for life.

    Attributes
    ----------
    cohort : int
        0 to m-1, uniform over secrets.

    Raises
    ------
    StateError
        If the secret isn't 32 bytes.
    """

    __slots__ = ("_instantaneous", "_permanent", "_secret", "cohort", "metric")

    def __init__(self, metric: Metric, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise StateError(f"secret of {len(secret)} bytes: must be {SECRET_BYTES} bytes")
        params = metric.params
        self.metric = metric
        self._secret = secret
        self._permanent = BernoulliSampler(params.k, params.flip, params.flip)
        self._instantaneous = BernoulliSampler(params.k, params.p, params.q)
        self.cohort = uniform_below(params.m, self._keyed_stream(_COHORT_TAG))

    def encode(self, value: str) -> Report:
        """Return a fresh report of a value.

        Raises
        ------
        EncodingError
            If the value isn't a text that the metric accepts.
        """
        bits = bloom_bits(value, self.cohort, self.metric.params)
        reported = self.instantaneous_response(self.permanent_response(bits))
        return Report(
            self.metric.name,
            self.metric.version,
            self.cohort,
            reported.to_bytes(self.metric.params.k // 8, "little"),
        )

    def permanent_response(self, bits: int) -> int:
        """Return the memoized noisy bits (PRR) of a Bloom filter: the same for life.

        Each bit is turned over with probability f/2, which is RAPPOR's "1 with f/2, 0 with f/2,
        itself with 1 - f" (Erlingsson et al. 2014, section 2, step 2).
        """
        stream = self._keyed_stream(
            _PERMANENT_TAG,
            self.cohort.to_bytes(2, "little"),
            bits.to_bytes(self.metric.params.k // 8, "little"),
        )
        return bits ^ self._permanent.draw(0, stream)

    def instantaneous_response(self, bits: int, stream: ByteStream = os_stream) -> int:
        """Return one report's bits (IRR): 1 with probability q where `bits` is 1, p where it is 0.

        `stream` is there for tests and simulations; clients leave it alone.
        """
        return self._instantaneous.draw(bits, stream)

    def _keyed_stream(self, tag: bytes, *details: bytes) -> KeyedStream:
        metric = self.metric
        domain = (
            metric.application.encode(),
            metric.name.encode(),
            metric.version.to_bytes(4, "little"),
        )
        return KeyedStream(keyed_message(tag, self._secret, *domain, *details))
