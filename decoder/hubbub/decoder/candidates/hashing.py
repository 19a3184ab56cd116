"""Many strings -> hash words -> the bits that they set, as `hubbub.protocol.bloom` says.

The two words of a string are all that its Bloom filters depend on, so eight bytes stand for it
whatever k, h and m are.

Invariant: every number here equals the client's to the bit (a property test holds them together).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import mmh3
import numpy as np

from hubbub.decoder.arrays import BoolArray, IntArray, WordArray
from hubbub.decoder.errors import CandidateError
from hubbub.protocol.bloom import MAX_VALUE_BYTES
from hubbub.protocol.params import RapporParams

Place = Callable[[int], str]
"""How a message names the string of an index, such as "candidate 3"."""

_DIGEST_WORDS = 4
_BLOCK = 8_192


def hash_words(encoded: Sequence[bytes], place: Place) -> WordArray:
    """Hash strings, given in UTF-8, as clients hash their values.

    Parameters
    ----------
    encoded : sequence of bytes, length n
    place : callable
        Names a string in an error's message, from its index.

    Returns
    -------
    uint32 array, shape (n, 2)
        The first two words of MurmurHash3_x86_128 of each string's normal form.

    Raises
    ------
    CandidateError
        If a string isn't UTF-8, or is too long for a client to report.
    """
    canonical = encoded
    if not all(map(bytes.isascii, encoded)):
        canonical = [
            data if data.isascii() else _normal_form(data, place, index)
            for index, data in enumerate(encoded)
        ]
    if max(map(len, canonical), default=0) > MAX_VALUE_BYTES:
        index, length = next(
            (i, len(data)) for i, data in enumerate(canonical) if len(data) > MAX_VALUE_BYTES
        )
        raise CandidateError(
            f"{place(index)}: {length} bytes; expected at most {MAX_VALUE_BYTES} bytes of UTF-8"
        )
    digests = b"".join(map(mmh3.mmh3_x86_128_digest, canonical))
    words = np.frombuffer(digests, dtype="<u4").reshape(-1, _DIGEST_WORDS)[:, :2]
    return np.ascontiguousarray(words, dtype=np.uint32)


def bit_numbers(words: WordArray, params: RapporParams) -> WordArray:
    """Return which of the m * k bits (cohort c's bit j being number c k + j) strings set.

    Parameters
    ----------
    words : uint32 array, shape (n, 2)
    params : RapporParams

    Returns
    -------
    uint32 array, shape (n, h, m)
    """
    k, h, m = params.k, params.h, params.m
    order = np.arange(m * h, dtype=np.uint32).reshape(m, h).T
    numbers = (words[:, 1:] | np.uint32(1)) * order.ravel()
    numbers += words[:, :1]
    _fmix32(numbers)
    if k & (k - 1):
        numbers -= numbers // np.uint32(k) * np.uint32(k)  # four times as fast as numpy's %
    else:
        numbers &= np.uint32(k - 1)
    numbers = numbers.reshape(-1, h, m)
    numbers += first_numbers(params)
    return numbers


def first_numbers(params: RapporParams) -> WordArray:
    """Return the number of each cohort's first bit, uint32, shape (m,)."""
    return np.arange(params.m, dtype=np.uint32) * np.uint32(params.k)


def words_of(strings: Sequence[str]) -> WordArray:
    """Return the hash words of strings, shape (n, 2).

    Raises
    ------
    CandidateError
        If a string is one that no client could report (too long, or not Unicode).
    """
    words = np.empty((len(strings), 2), dtype=np.uint32)
    for start in range(0, len(strings), _BLOCK):
        block = strings[start : start + _BLOCK]
        encoded = [_encoded(string, start + at) for at, string in enumerate(block)]
        words[start : start + len(encoded)] = hash_words(encoded, _numbered(start))
    return words


def repeated(words: WordArray, equal: Callable[[IntArray, IntArray], BoolArray]) -> BoolArray:
    """Mark strings that occur earlier, too.

    Parameters
    ----------
    words : uint32 array, shape (n, 2)
        Strings of different words are different.
    equal : callable
        Says of rows and as many other rows which pairs hold equal strings.

    Returns
    -------
    bool array, shape (n,)
    """
    again = np.zeros(len(words), dtype=np.bool_)
    keys = np.ascontiguousarray(words).view(np.uint64).ravel()
    ordered = np.sort(keys)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return again
    shared = shared[np.append(True, shared[1:] != shared[:-1])]
    group = np.minimum(np.searchsorted(shared, keys), len(shared) - 1)
    rows = np.flatnonzero(shared[group] == keys)
    group = group[rows]
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    while len(rows):
        # Compare with the first of each group; what differs from it is another string.
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        first = np.repeat(rows[begins], np.diff(begins, append=len(rows)))
        same = equal(rows, first)
        again[rows[same]] = True
        again[rows[begins]] = False
        rows, group = rows[~same], group[~same]
    return again


def _numbered(start: int) -> Place:
    return lambda index: f"candidate {start + index + 1}"


def _encoded(string: str, index: int) -> bytes:
    try:
        return string.encode()
    except UnicodeEncodeError:
        raise CandidateError(
            f"candidate {index + 1}: must be Unicode text without lone surrogates"
        ) from None


def _normal_form(data: bytes, place: Place, index: int) -> bytes:
    try:
        return unicodedata.normalize("NFC", data.decode()).encode()
    except UnicodeDecodeError as error:
        found = f"byte {error.start + 1} is 0x{data[error.start]:02x}"
        raise CandidateError(f"{place(index)}: {found}; expected UTF-8") from error


def _fmix32(x: WordArray) -> None:
    """Apply MurmurHash3's 32-bit finalizer in place."""
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
