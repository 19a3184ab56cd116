"""Exact Bernoulli bit vectors from a stream of fair bytes.

Lane j is 1 if its uniform number U_j is below P_j. They are compared digit by digit, as integers
and as far as is needed, so each probability is exactly that of the double. All lanes are compared
at once: a binary digit a round where the protocol fixes whose coins are whose, eight digits at a
time where only the distribution counts. Invariant: no two lanes share a coin. Privacy rests on it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

ByteStream = Callable[[int], bytes]
"""Returns the next n bytes, each uniform and independent of all others."""

os_stream: ByteStream = os.urandom
"""The operating system's generator: no state in this process that a fork could copy."""


class BernoulliSampler:
    """Draw k independent bits, each with one of two probabilities.

    `k`: lanes; a multiple of 8. `low` and `high`: probability of a 1 in the lanes that `draw`'s
    selector leaves out, and in those it names.
    """

    __slots__ = (
        "_bytewise", "_certain", "_digits", "_full", "_high_bytes", "_k", "_lookahead",
        "_low_bytes", "_rests", "_tail", "_width",
    )  # fmt: skip

    def __init__(self, k: int, low: float, high: float) -> None:
        self._k = k
        self._width = k // 8
        self._full = (1 << k) - 1
        self._digits = digit_codes(low, high)
        self._certain = (low == 1) * 2 + (high == 1)
        # About log2(k) rounds decide all lanes; a few more make a second read rare.
        self._lookahead = min(len(self._digits), k.bit_length() + 4)
        self._tail = max(0, (len(self._digits) - 1) // 8)
        self._low_bytes, low_rest = byte_outcomes(low, self._tail)
        self._high_bytes, high_rest = byte_outcomes(high, self._tail)
        self._rests = (low_rest, high_rest)
        # Measured: k bytes take as long as about 3 + k/50 rounds, the fewest that are worth it.
        self._bytewise = len(self._digits) > 3 + k // 50

    def draw(self, selector: int, stream: ByteStream) -> int:
        """Return k bits as an integer: bit j has probability `high` if selector has it, else `low`.

        A keyed stream is read by rounds, as the protocol fixes; any other the faster way.
        """
        if self._bytewise and not isinstance(stream, KeyedStream):
            return self.draw_by_bytes(selector, stream)
        return self.draw_by_rounds(selector, stream)

    def draw_by_rounds(self, selector: int, stream: ByteStream) -> int:
        """Draw as docs/protocol, section 4: each round has one coin per lane, for one binary digit.

        A lane is decided by the first digit in which U and P differ. Round r uses the stream's
        bytes [r*k/8, (r+1)*k/8), read as a little-endian integer, whatever the sizes of the reads;
        a keyed stream therefore gives the same bits everywhere.
        """
        k, full, width = self._k, self._full, self._width
        planes = (0, selector, full ^ selector, full)
        below = planes[self._certain]
        undecided = full ^ below
        rounds = self._lookahead
        coins = left = 0
        for code in self._digits:
            if not undecided:
                break
            if left:
                coins >>= k  # lanes above k are masked by `undecided`
            else:
                coins = int.from_bytes(stream(rounds * width), "little")
                left, rounds = rounds, 1
            left -= 1
            if code == 0:
                undecided ^= undecided & coins
            elif code == 3:
                open_lanes = undecided & coins
                below |= undecided ^ open_lanes
                undecided = open_lanes
            else:
                plane = planes[code]
                decided = undecided & (plane ^ coins)
                below |= decided & plane
                undecided ^= decided
        return below  # a lane that matched every digit of P has U >= P

    def draw_by_bytes(self, selector: int, stream: ByteStream) -> int:
        """Draw from the same distribution: a byte a lane, and t more for one lane in 256.

        Write P = (n + x / 256^t) / 256 with integers 0 <= n <= 255 and 0 <= x <= 256^t. Of the 256
        values of a lane's byte, n give a 1, value 0 leaves the lane undecided, the others give a 0.
        An undecided lane is 1 if t bytes of its own, a uniform integer below 256^t, are below x.
        So P(lane = 1) = n / 256 + (1 / 256) (x / 256^t) = P exactly. Lanes are independent: none
        uses a byte of another, and which lanes read t more depends only on first bytes.
        """
        coins = stream(self._k)
        low = int(coins.translate(self._low_bytes), 2)
        high = int(coins.translate(self._high_bytes), 2)
        drawn = low ^ (low ^ high) & selector
        index = coins.find(0)
        while index >= 0:
            lane = self._k - 1 - index  # int(..., 2) reads the highest lane first
            if int.from_bytes(stream(self._tail), "little") < self._rests[selector >> lane & 1]:
                drawn |= 1 << lane
            index = coins.find(0, index + 1)
        return drawn


@functools.lru_cache(maxsize=256)
def bernoulli_sampler(k: int, low: float, high: float) -> BernoulliSampler:
    """Return the sampler of these probabilities; it has no state, so all may share it."""
    return BernoulliSampler(k, low, high)


class KeyedStream:
    """The endless SHAKE-256 output of a message: the same message always gives the same bytes."""

    __slots__ = ("_hash", "_offset")

    def __init__(self, message: bytes) -> None:
        from hashlib import shake_256  # see `Encoder`

        self._hash = shake_256(message)
        self._offset = 0

    def after(self, rest: bytes) -> KeyedStream:
        """Return the stream of this message continued by `rest`; this one stays as it is."""
        continued = KeyedStream.__new__(KeyedStream)
        continued._hash = self._hash.copy()
        continued._hash.update(rest)
        continued._offset = 0
        return continued

    def __call__(self, n: int) -> bytes:
        """Return the next n bytes."""
        start, self._offset = self._offset, self._offset + n
        return self._hash.digest(self._offset)[start:]


def keyed_message(*parts: bytes) -> bytes:
    """Join parts so that no two lists of parts give the same message (each behind its length)."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def uniform_below(bound: int, stream: ByteStream) -> int:
    """Return an exactly uniform integer in [0, bound), from little-endian 32-bit words.

    Words at or above the largest multiple of `bound` are thrown away, so no remainder is favoured.
    """
    limit = 2**32 - 2**32 % bound
    while True:
        word = int.from_bytes(stream(4), "little")
        if word < limit:
            return word % bound


def digit_codes(low: float, high: float) -> bytes:
    """Pair the binary digits of two probabilities, most significant first.

    One code per digit: 0 if neither has it, 1 high only, 2 low only, 3 both; 1 counts as 0 here.
    """
    low_digits, high_digits = _binary_digits(low), _binary_digits(high)
    length = max(len(low_digits), len(high_digits))
    pairs = zip(low_digits.ljust(length, "0"), high_digits.ljust(length, "0"), strict=True)
    return bytes(2 * int(a) + int(b) for a, b in pairs)


def byte_outcomes(probability: float, tail: int) -> tuple[bytes, int]:
    """Share out the values of a lane's first byte; n, x and t are `draw_by_bytes`'s.

    `probability`: it has at most 8 (t + 1) digits behind the binary point. `tail`: the t bytes
    behind the first one. Returns a table for `bytes.translate` with an ASCII digit for each value
    (0 for the undecided one), n of them 1; and x.
    """
    numerator, denominator = probability.as_integer_ratio()
    scaled = (numerator << 8 * (tail + 1)) // denominator
    ones = min(scaled >> 8 * tail, 255)
    return b"0" + b"1" * ones + b"0" * (255 - ones), scaled - (ones << 8 * tail)


def _binary_digits(probability: float) -> str:
    numerator, denominator = probability.as_integer_ratio()
    places = denominator.bit_length() - 1
    return f"{numerator:0{places}b}" if places and numerator else ""
