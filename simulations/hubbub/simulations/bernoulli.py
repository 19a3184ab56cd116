"""Exact Bernoulli bits for whole arrays of packed words.

The same comparison of binary digits as `hubbub.client.randomness`, 64 lanes a word: a round draws
one coin a lane and decides the lanes whose coin differs from their probability's digit. Invariant:
no two lanes share a coin. Coins come from a generator, or, where the same bits must come again,
from a key of each word. The first rounds run over blocks that stay in the CPU's cache; when few
lanes are still open, the words that hold them go on alone.

What clients' values set before any noise, for many clients at once.

Strings and hashed tuples set the bits of their Bloom filters, and other values one bit of their
own: both are kept packed. Open strings set one bit of the prefix that the client's cohort asks for.
Invariant: every bit is the real client's (a property test holds them together).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hubbub.inference import (
    ByteArray,
    IntArray,
    bit_numbers,
    first_numbers,
    hash_words,
    positions_in,
)
from hubbub.protocol import (
    JointType,
    MetricType,
    OpenStringType,
    RapporParams,
    Value,
    canonical_bytes,
)

_FILTERS_AT_ONCE = 1 << 24
"""Unpacked bits of Bloom filters that are held in memory while they are packed."""


class TrueBits(Protocol):
    """True bits of a list of values."""

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        """Return the packed true bits of clients, uint8, shape (n, k / 8), by value and cohort."""


def true_bits(
    values: Sequence[Value], params: RapporParams, metric_type: MetricType | None = None
) -> TrueBits:
    """Return the bits of strings or, given their type, of any other values."""
    if isinstance(metric_type, OpenStringType):
        return _PrefixBits(values, params, metric_type)
    if isinstance(metric_type, JointType) and metric_type.hashed:
        encoded = [metric_type.tuple_bytes(metric_type.digits(value)) for value in values]
    elif metric_type is not None and metric_type.width is not None:
        bits = (metric_type.bits(value, 0, params) for value in values)
        packed = b"".join(each.to_bytes(params.k // 8, "little") for each in bits)
        return _ListedBits(np.frombuffer(packed, dtype=np.uint8).reshape(len(values), -1), 1)
    else:
        encoded = [canonical_bytes(value) for value in values]
    return _ListedBits(packed_filters(encoded, params), params.m)


class _ListedBits:
    """Packed bits of each value in each cohort, or in all of them: uint8, shape (v * m, k / 8)."""

    def __init__(self, packed: ByteArray, m: int) -> None:
        self._packed, self._m = packed, m

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        return np.take(self._packed, held if self._m == 1 else held * self._m + cohorts, axis=0)


class _PrefixBits:
    def __init__(
        self, values: Sequence[Value], params: RapporParams, open_type: OpenStringType
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
        bits = np.zeros((len(position), self._params.k // 8), dtype=np.uint8)
        bits[np.arange(len(position)), position >> 3] = 1 << (position & 7)
        return bits


def packed_filters(encoded: Sequence[bytes], params: RapporParams) -> ByteArray:
    """Return every value's Bloom filter in every cohort: uint8, shape (v * m, k / 8)."""
    packed = np.empty((len(encoded), params.m, params.k // 8), dtype=np.uint8)
    step = max(1, _FILTERS_AT_ONCE // (params.m * params.k))
    for start in range(0, len(encoded), step):
        rows = slice(start, start + step)
        numbers = bit_numbers(hash_words(encoded[rows]), params) - first_numbers(params)
        positions = numbers.transpose(0, 2, 1).astype(np.int64)
        filters = np.zeros((len(positions), params.m, params.k), dtype=np.uint8)
        np.put_along_axis(filters, positions, 1, axis=2)
        packed[rows] = np.packbits(filters, axis=2, bitorder="little")
    return packed.reshape(-1, params.k // 8)


Words = npt.NDArray[np.uint64]
Dyadic = float | Fraction
"""A number whose binary digits end: any double, and sums and products of doubles."""

_Coins = Callable[[int, "slice | IntArray", int], Words]
"""(round, which words, how many) -> one fair bit for each of their lanes."""
_ALL = np.uint64(2**64 - 1)
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: SplitMix64's step."""
_BLOCK = 8192
"""Words: 64 kB an array."""
_DENSE_ROUNDS = 7
"""After so many coins two fifths of the words still hold an open lane."""


def bernoulli_bytes(
    rng: np.random.Generator, selector: ByteArray, low: Dyadic, high: Dyadic
) -> ByteArray:
    """Draw one bit for each bit of an array of any shape (see `bernoulli_words`)."""
    padded = -(-selector.size // 8) * 8
    flat = selector.ravel()
    if padded != selector.size:
        flat = np.concatenate([flat, np.zeros(padded - selector.size, dtype=np.uint8)])
    bits = bernoulli_words(rng, flat.view(np.uint64), low, high)
    return bits.view(np.uint8)[: selector.size].reshape(selector.shape)


def bernoulli_words(rng: np.random.Generator, selector: Words, low: Dyadic, high: Dyadic) -> Words:
    """Draw independent bits: 1 with probability `high` where the selector's bit is 1, else `low`.

    The generator must give 64 bits a draw, as PCG64 and SFC64 do; denominators are powers of two,
    so the comparison is exact. Takes and returns shape (w,).
    """
    if isinstance(rng.bit_generator, np.random.MT19937):
        raise ValueError("MT19937: gives 32 bits a draw; use PCG64 or SFC64, which give 64")
    return _compare(
        lambda _round, _words, size: np.asarray(rng.bit_generator.random_raw(size)),
        selector,
        low,
        high,
    )


def keyed_bernoulli_words(keys: Words, selector: Words, low: Dyadic, high: Dyadic) -> Words:
    """Draw bits as `bernoulli_words`, but from hashes of each word's key and the round."""
    return _compare(
        lambda round_, words, _size: mix(keys[words] + np.uint64((round_ + 1) * _GOLDEN % 2**64)),
        selector,
        low,
        high,
    )


def mix(x: Words) -> Words:
    """Scramble 64-bit words so that nearby ones become unrelated (a bijection).

    SplitMix64's finalizer, variant 13 of Stafford's, as in Steele, Lea, Flood: "Fast splittable
    pseudorandom number generators", OOPSLA 2014.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def digit_codes(low: Dyadic, high: Dyadic) -> bytes:
    """Pair the binary digits of two probabilities, most significant first.

    Returns one code a digit: 0 if neither probability has it, 1 high only, 2 low only, 3 both. A
    probability of 1 has no digit behind the point and counts as 0 here. Raises `ValueError` if a
    probability isn't in [0, 1], or its binary digits don't end.
    """
    low_digits, high_digits = _binary_digits(low), _binary_digits(high)
    length = max(len(low_digits), len(high_digits))
    pairs = zip(low_digits.ljust(length, "0"), high_digits.ljust(length, "0"), strict=True)
    return bytes(2 * int(a) + int(b) for a, b in pairs)


def _binary_digits(probability: Dyadic) -> str:
    numerator, denominator = probability.as_integer_ratio()
    places = denominator.bit_length() - 1
    if not 0 <= numerator <= denominator or denominator != 1 << places:
        raise ValueError(
            f"probability {probability}: must be in [0, 1] with a power of two as denominator"
        )
    return f"{numerator:0{places}b}" if places and numerator else ""


def _compare(coins: _Coins, selector: Words, low: Dyadic, high: Dyadic) -> Words:
    codes = digit_codes(low, high)
    certain = (low == 1) * 2 + (high == 1)
    below = np.empty_like(selector)
    undecided = np.empty_like(selector)
    for start in range(0, len(selector), _BLOCK):
        block = slice(start, start + _BLOCK)
        lanes = selector[block]
        below[block] = (np.uint64(0), lanes, ~lanes, _ALL)[certain]
        np.invert(below[block], out=undecided[block])
        for round_, code in enumerate(codes[:_DENSE_ROUNDS]):
            _decide(coins(round_, block, len(lanes)), code, lanes, below[block], undecided[block])
    # The words that hold an open lane go on alone; a lane that matches every digit has U >= P.
    places = np.flatnonzero(undecided)
    lanes, decided, undecided = selector[places], below[places], undecided[places]
    for round_ in range(_DENSE_ROUNDS, len(codes)):
        if not len(places):
            break
        _decide(coins(round_, places, len(places)), codes[round_], lanes, decided, undecided)
        still = undecided != 0
        if 2 * np.count_nonzero(still) < len(places):
            below[places] = decided
            places, lanes = places[still], lanes[still]
            decided, undecided = decided[still], undecided[still]
    below[places] = decided
    return below


def _decide(coins: Words, code: int, selector: Words, below: Words, undecided: Words) -> None:
    """Use one coin a lane up, in place: lanes whose digit differs from it are settled."""
    if code == 0:
        np.bitwise_and(coins, undecided, out=coins)
    elif code == 3:
        np.invert(coins, out=coins)
        np.bitwise_and(coins, undecided, out=coins)
        np.bitwise_or(below, coins, out=below)
    else:
        plane = selector if code == 1 else ~selector
        np.bitwise_xor(coins, plane, out=coins)
        np.bitwise_and(coins, undecided, out=coins)
        np.bitwise_or(below, coins & plane, out=below)
    np.bitwise_xor(undecided, coins, out=undecided)
