"""Exact Bernoulli bit vectors from a stream of fair bytes.

Lane j is 1 if its uniform number U_j is below P_j. They are compared digit by digit, as integers
and as far as is needed, so each probability is exactly that of the double. All lanes are compared
at once, a binary digit a round. Invariant: no two lanes share a coin. Privacy rests on it.
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

    __slots__ = ("_certain", "_digits", "_full", "_k", "_lookahead", "_width")

    def __init__(self, k: int, low: float, high: float) -> None:
        self._k = k
        self._width = k // 8
        self._full = (1 << k) - 1
        self._digits = digit_codes(low, high)
        self._certain = (low == 1) * 2 + (high == 1)
        # About log2(k) rounds decide all lanes; a few more make a second read rare.
        self._lookahead = min(len(self._digits), k.bit_length() + 4)

    def draw(self, selector: int, stream: ByteStream) -> int:
        """Return k bits as an integer: bit j has probability `high` if selector has it, else `low`.

        Each round has one coin per lane, for one binary digit (docs/protocol, section 4). A lane is
        decided by the first digit in which U and P differ. Round r uses the stream's bytes
        [r*k/8, (r+1)*k/8), read as a little-endian integer, whatever the sizes of the reads; a
        keyed stream therefore gives the same bits everywhere.
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


def _binary_digits(probability: float) -> str:
    numerator, denominator = probability.as_integer_ratio()
    places = denominator.bit_length() - 1
    return f"{numerator:0{places}b}" if places and numerator else ""
