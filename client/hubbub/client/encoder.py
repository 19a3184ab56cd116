"""From a value to a report: true bits, then the permanent and the instantaneous response.

With ``memory = "value"`` the permanent response is a pure function of (secret, metric, cohort,
true bits), so RAPPOR's memoization needs no storage; with ``memory = "period"`` it is drawn from
the operating system and stored. The instantaneous response is drawn each time; where an answer
is reported once, it is the only one, and nothing of the answer is stored. Subsets and windows draw
a whole report at once: one coin decides whether it holds the value, and unbiased integers choose
among the rest. Invariant: values and true bits are neither stored nor logged, permanent bits
never leave the device, probabilities are exactly those of their doubles.
"""

from __future__ import annotations

from typing import NamedTuple

from hubbub.client.randomness import (
    ByteStream,
    KeyedStream,
    bernoulli_sampler,
    keyed_message,
    os_stream,
    uniform_below,
)
from hubbub.client.schedule import Period, period_at
from hubbub.protocol.errors import StateError
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric, Response, Subset, Window
from hubbub.protocol.wire import Report

SECRET_BYTES = 32  # 256 bits, the security level of the keyed hash
_COHORT_TAG = b"hubbub/1/cohort"
_PERMANENT_TAG = b"hubbub/1/permanent"
_VALUE_TAG = b"hubbub/1/value"
_DIGEST_BYTES = 16  # two answers of a client share a digest with chance 2^-128
_MOST_RESPONSES = 256  # bounds memory (at most 128 KiB of bits); a client has some tens of values


class PermanentResponse(NamedTuple):
    """An answer after the first randomized response (PRR); its reports are drawn from this."""

    cohort: int
    bits: int


class Encoder:
    """One client's encoder for one metric.

    Parameters
    ----------
    metric : Metric
    secret : bytes
        The client's 32 secret bytes; with ``memory = "value"`` they fix its cohort and its
        permanent responses for life.

    Attributes
    ----------
    cohort : int
        0 to m-1, uniform over secrets; of ``memory = "value"`` alone.

    Raises
    ------
    StateError
        If the secret isn't 32 bytes.

    Examples
    --------
    >>> import os
    >>> from hubbub.client import Registry
    >>> theme = Registry.load("metrics.toml")["theme"]
    >>> report = Encoder(theme, os.urandom(32)).encode("dark")
    >>> report.metric, report.cohort, len(report.bits)
    ('theme', 0, 1)
    """

    __slots__ = (
        "_digest",
        "_instantaneous",
        "_length",
        "_period",
        "_permanent",
        "_permanent_stream",
        "_responses",
        "_secret",
        "_width",
        "cohort",
        "metric",
    )  # fmt: skip

    def __init__(self, metric: Metric, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise StateError(f"secret of {len(secret)} bytes: must be {SECRET_BYTES} bytes")
        from hashlib import sha256  # by then it is wanted; importing the client shouldn't wait

        params = metric.params
        self.metric = metric
        self._width = params.k // 8
        self._length = self._width.to_bytes(4, "little")
        self._permanent = bernoulli_sampler(params.k, params.f0, params.f1)
        self._instantaneous = bernoulli_sampler(params.k, params.p, params.q)
        self._responses: dict[int, PermanentResponse] = {}
        self._secret = secret
        self._period: Period | None = None
        # Three messages of the secret, each with a tag of its own: cohort, responses, digests.
        self.cohort = uniform_below(params.m, KeyedStream(_keyed(_COHORT_TAG, secret, metric)))
        in_cohort = keyed_message(self.cohort.to_bytes(2, "little"))
        self._permanent_stream = KeyedStream(_keyed(_PERMANENT_TAG, secret, metric) + in_cohort)
        self._digest = sha256(_keyed(_VALUE_TAG, secret, metric) + in_cohort)

    def encode(self, value: Value) -> Report:
        """Return a fresh report of a value; with periods, as the first value of a new one.

        Raises
        ------
        EncodingError
            If the value isn't one that the metric's type takes.
        """
        if self.metric.memory == "period":
            return self.report(self.fresh_response(value))
        return self.report(self.permanent_response(self.true_bits(value)))

    def true_bits(self, value: Value, stream: ByteStream = os_stream) -> int:
        """Return a value's bits in `cohort`, before noise (raises as `encode`)."""
        return self.metric.type.drawn_bits(value, self.cohort, self.metric.params, stream)

    def permanent_response(self, bits: int) -> PermanentResponse:
        """Return the response (PRR) that true bits have for life (``memory = "value"``).

        A 0 is turned over with probability f0 and a 1 with f1; if both are f/2, that is RAPPOR's
        "1 with f/2, 0 with f/2, itself with 1 - f" (Erlingsson et al. 2014, section 2, step 2).
        """
        response = self._responses.get(bits)
        if response is None:
            if len(self._responses) >= _MOST_RESPONSES:
                self._responses.clear()
            message = self._length + bits.to_bytes(self._width, "little")
            stream = self._permanent_stream.after(message)
            noisy = bits ^ self._permanent.draw(bits, stream)
            response = self._responses[bits] = PermanentResponse(self.cohort, noisy)
        return response

    def fresh_response(self, value: Value, stream: ByteStream = os_stream) -> PermanentResponse:
        """Return a new response, in a new cohort, for a period; `stream` is for tests."""
        params = self.metric.params
        cohort = uniform_below(params.m, stream)
        bits = self.metric.type.drawn_bits(value, cohort, params, stream)
        return PermanentResponse(cohort, bits ^ self._permanent.draw(bits, stream))

    def check(self, value: Value) -> None:
        """Raise EncodingError, without drawing anything, unless the metric's type takes a value."""
        self.metric.type.bits(value, 0, self.metric.params)

    def report(self, response: PermanentResponse, stream: ByteStream = os_stream) -> Report:
        """Return a fresh report of an answer: the second response (IRR), with new coins.

        A reported bit is 1 with probability q where the answer's is 1, and p where it is 0; other
        responses than `UNARY` draw the report as a whole. `stream` is for tests.
        """
        cohort, bits = response
        metric = self.metric
        if metric.response.ones is None:
            reported = self._instantaneous.draw(bits, stream)
        else:
            reported = draw_cells(metric.response, bits.bit_length() - 1, stream)
        data = reported.to_bytes(self._width, "little")
        return Report(metric.name, metric.version, cohort, data, metric.slice)

    def value_digest(self, bits: int) -> bytes:
        """Return 16 bytes that stand for a value in the ledger, keyed with the secret.

        Guesses of the value can be tested with both, and nothing is learned from one of them.
        """
        digest = self._digest.copy()
        digest.update(bits.to_bytes(self._width, "little"))
        return digest.digest()[:_DIGEST_BYTES]

    def period(self, seconds: float) -> Period:
        """Return this client's period at a moment, in seconds since the epoch."""
        known = self._period
        if known and known.first_day <= seconds // SECONDS_A_DAY < known.end_day:
            return known
        self._period = found = period_at(self.metric, self._secret, seconds)
        return found


def _keyed(tag: bytes, secret: bytes, metric: Metric) -> bytes:
    return keyed_message(
        tag,
        secret,
        metric.application.encode(),
        metric.name.encode(),
        metric.version.to_bytes(4, "little"),
    )


def draw_cells(response: Response, own: int, stream: ByteStream) -> int:
    """Return a report of a category (0 to d - 1) or position (0 to d - w), as bits of the cells."""
    if isinstance(response, Subset):
        return _subset(response, own, stream)
    if isinstance(response, Window):
        return _in_window(response, own, stream)
    raise TypeError(f"{response!r}: must be a response that draws whole reports")


def _subset(response: Subset, own: int, stream: ByteStream) -> int:
    """Draw a set of w categories, which holds `own` with probability q (Ye, Barg 2018)."""
    others = [cell for cell in range(response.cells) if cell != own]
    holds_own = _happens(response.chance, stream)
    drawn = 1 << own if holds_own else 0
    for i in range(response.width - holds_own):  # the beginning of a Fisher-Yates shuffle
        j = i + uniform_below(len(others) - i, stream)
        others[i], others[j] = others[j], others[i]
        drawn |= 1 << others[i]
    return drawn


def _in_window(response: Window, own: int, stream: ByteStream) -> int:
    if _happens(response.chance, stream):
        return 1 << own + uniform_below(response.width, stream)
    cell = uniform_below(response.cells - response.width, stream)
    return 1 << (cell if cell < own else cell + response.width)


def _happens(chance: float, stream: ByteStream) -> bool:
    """Toss one exact coin: compare a uniform number with a chance below 1, byte by byte.

    All steps are exact: a double times 256 has the same digits, and its fraction fewer.
    """
    rest = chance
    while rest > 0:
        rest *= 256
        digit, (byte,) = int(rest), stream(1)
        if byte != digit:
            return byte < digit
        rest -= digit
    return False
