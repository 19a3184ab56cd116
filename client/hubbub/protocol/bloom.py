"""The one hash that everyone shares: (value, cohort) -> positions in the Bloom filter.

Client, decoder and every client in another language must always agree on this to the bit;
docs/protocol holds the test vectors. Only 32-bit arithmetic is used, so that languages without
wide integers can follow.
"""

from __future__ import annotations

import struct
import unicodedata

import mmh3

from hubbub.protocol.errors import EncodingError
from hubbub.protocol.params import RapporParams

MAX_VALUE_BYTES = 65_536  # the protocol's bound (section 2): hashing stays below a millisecond
_MASK = 0xFFFFFFFF  # arithmetic modulo 2^32
_FIRST_WORDS = struct.Struct("<II").unpack_from


def canonical_bytes(value: object) -> bytes:
    """Return the bytes of a text: UTF-8 of its NFC form (EncodingError, without the value)."""
    if not isinstance(value, str):
        raise EncodingError(f"value of type {type(value).__name__}: must be a string")
    try:
        data = (value if value.isascii() else unicodedata.normalize("NFC", value)).encode()
    except UnicodeEncodeError:
        raise EncodingError("value: must be Unicode text without lone surrogates") from None
    if len(data) > MAX_VALUE_BYTES:
        raise EncodingError(
            f"value of {len(data)} bytes: must be at most {MAX_VALUE_BYTES} bytes of UTF-8"
        )
    return data


def hash_words(data: bytes) -> tuple[int, int]:
    """Return the first two little-endian 32-bit words of MurmurHash3_x86_128 with seed 0."""
    first, second = _FIRST_WORDS(mmh3.hash_bytes(data, 0, False))
    return first, second


def bit_positions(value: object, cohort: int, params: RapporParams) -> tuple[int, ...]:
    """Return the h positions, not necessarily distinct, that a value sets in a cohort's filter."""
    return byte_positions(canonical_bytes(value), cohort, params)


def byte_positions(data: bytes, cohort: int, params: RapporParams) -> tuple[int, ...]:
    """Return the positions of any bytes; of a value's canonical bytes, these are the value's."""
    x, second = hash_words(data)
    step = second | 1
    x += cohort * params.h * step
    positions = []
    for _ in range(params.h):
        positions.append(_fmix32(x & _MASK) % params.k)
        x += step
    return tuple(positions)


def bloom_bits(value: object, cohort: int, params: RapporParams) -> int:
    """Return the Bloom filter as an integer whose bit j is bit j of the filter."""
    bits = 0
    for position in bit_positions(value, cohort, params):
        bits |= 1 << position
    return bits


def _fmix32(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)
