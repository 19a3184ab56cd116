"""Candidate strings with their Bloom positions, by the million, hashed as clients hash values.

The two hash words of a string are all that its Bloom filters depend on, so eight bytes stand for it
whatever k, h and m are; the m * h positions are computed from them a chunk at a time, small enough
for the processor's cache. A map's positions are given and so kept. Candidates are opaque: "007",
"NA" and " x " are themselves.

A `StringTable` holds many strings in little memory: their UTF-8, end to end, and where each begins.
With the hash of each that takes 16 bytes per string beyond its text, where a Python string takes
some 50. An item becomes a `str` when it is asked for.

Invariant: every number here equals the client's to the bit (a property test holds them together).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import mmh3
import numpy as np
from scipy import sparse

from hubbub.inference.arrays import (
    BoolArray,
    ByteArray,
    FloatArray,
    IntArray,
    PositionArray,
    SparseMatrix,
    WordArray,
)
from hubbub.inference.errors import CandidateError
from hubbub.protocol import MAX_VALUE_BYTES, RapporParams

# Strings, and bytes, that are taken apart at once: bound memory; speed alone depends on them.
_BLOCK = 65_536
_COMPARED_BYTES = 2**20


class StringTable(Sequence[str]):
    """Strings by number, held as bytes.

    `blob`: valid UTF-8 of each string, end to end. `offsets`, shape (n + 1,): where each string
    begins, and where the last one ends.
    """

    __slots__ = ("blob", "offsets")

    def __init__(self, blob: ByteArray, offsets: IntArray) -> None:
        self.blob = blob
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.encoded(range(len(self))[index]).decode()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            offsets = self.offsets[start : start + _BLOCK + 1]
            data = self.blob[offsets[0] : offsets[-1]].tobytes()
            for first, end in pairwise((offsets - offsets[0]).tolist()):
                yield data[first:end].decode()

    def encoded(self, row: int) -> bytes:
        """Return the UTF-8 of the string in a row, counted from 0."""
        return self.blob[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def equal(self, rows: IntArray, others: IntArray) -> BoolArray:
        """Compare the strings of rows with those of other rows, one by one; shape (r,).

        `rows` and `others` have shape (r,).
        """
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        same: BoolArray = lengths == self.offsets[others + 1] - self.offsets[others]
        unsure = np.flatnonzero(same & (lengths > 0))
        before = np.cumsum(lengths[unsure]) - lengths[unsure]
        start = 0
        while start < len(before):  # about a megabyte at a time
            stop = int(np.searchsorted(before, before[start] + _COMPARED_BYTES))
            at, first = unsure[start:stop], before[start:stop] - before[start]
            within = np.arange(first[-1] + lengths[at[-1]]) - np.repeat(first, lengths[at])
            own = self.blob[np.repeat(self.offsets[rows[at]], lengths[at]) + within]
            other = self.blob[np.repeat(self.offsets[others[at]], lengths[at]) + within]
            same[at] = ~np.logical_or.reduceat(own != other, first)
            start = stop
        return same

    def only(self, kept: BoolArray) -> StringTable:
        """Return the table of the marked rows, in the same order.

        `kept` has shape (n,).
        """
        lengths = np.diff(self.offsets)
        return StringTable(self.blob[np.repeat(kept, lengths)], string_offsets(lengths[kept]))


def pack_strings(strings: Iterable[str]) -> StringTable:
    """Return strings as a table.

    Raises `UnicodeEncodeError` if one holds a lone surrogate.
    """
    encoded = [string.encode() for string in strings]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return StringTable(np.frombuffer(b"".join(encoded), dtype=np.uint8), string_offsets(lengths))


def string_offsets(lengths: IntArray) -> IntArray:
    """Return where strings of these lengths begin, and where the last one ends; shape (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


Place = Callable[[int], str]
"""How a message names the string of an index, such as "candidate 3"."""

# A 128-bit digest has four words; hashing uses the first two (docs/protocol, section 2).
_DIGEST_WORDS = 4
# MurmurHash3_x86_128 of what is behind the last whole 16 bytes: each four bytes are multiplied,
# rotated by so many bits, and multiplied again.
_OF_A_TAIL = (
    (0x239B961B, 0xAB0E9789, 15),
    (0xAB0E9789, 0x38B34AE5, 16),
    (0x38B34AE5, 0xA1E38B93, 17),
    (0xA1E38B93, 0x239B961B, 18),
)
SHORT = 15
"""Bytes of the longest string that `short_hash_words` takes."""
# Bounds the memory of digests that Python holds at once; speed alone depends on it.
_HASHED_AT_ONCE = 8_192
# Half a megabyte of 64-bit positions, and what is read at them, stay in a core's cache; speed alone
# depends on it.
_CHUNK_NUMBERS = 2**16
# Strings with many hashes are read so few at a time: a loop over fewer costs its start.
_FEW_AT_ONCE, _MOST_NUMBERS = 32, 2**18


def canonical_forms(encoded: Sequence[bytes], place: Place) -> Sequence[bytes]:
    """Bring strings, given in UTF-8, to the normal form (NFC) that clients report.

    `place`: names a string in an error's message, from its index. Raises `CandidateError` if a
    string isn't UTF-8, or is too long for a client to report.
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
    return canonical


def hash_words(canonical: Sequence[bytes]) -> WordArray:
    """Return the first two words of MurmurHash3_x86_128 of normal forms, shape (n, 2)."""
    words = np.empty((len(canonical), 2), dtype=np.uint32)
    for begin in range(0, len(words), _HASHED_AT_ONCE):
        some = slice(begin, begin + _HASHED_AT_ONCE)
        digests = b"".join(map(mmh3.mmh3_x86_128_digest, canonical[some]))
        words[some] = np.frombuffer(digests, dtype="<u4").reshape(-1, _DIGEST_WORDS)[:, :2]
    return words


def short_hash_words(data: ByteArray, sizes: IntArray) -> WordArray:
    """Return the same words of strings of at most 15 bytes, which lie in an array.

    `data`, shape (n, length): strings, 0 behind them. `sizes`, shape (n,): in bytes. Returns an
    array of shape (n, 2).
    """
    padded = np.zeros((16, len(data)), dtype=np.uint8)
    padded[: data.shape[1]] = data.T
    state = np.empty((_DIGEST_WORDS, len(data)), dtype=np.uint32)
    for place, (multiplier, then, bits) in enumerate(_OF_A_TAIL):
        low, *others = padded[4 * place : 4 * place + 4].astype(np.uint32)
        for byte, other in enumerate(others, start=1):
            low |= other << np.uint32(8 * byte)
        low *= np.uint32(multiplier)
        low = low << np.uint32(bits) | low >> np.uint32(32 - bits)
        state[place] = low * np.uint32(then)
    state ^= sizes.astype(np.uint32)
    _add_crosswise(state)
    _fmix32(state)
    _add_crosswise(state)
    return np.ascontiguousarray(state[:2].T)


def bit_numbers(words: WordArray, params: RapporParams) -> WordArray:
    """Return which of the m * k bits (cohort c's bit j being number c k + j) strings set.

    `words` has shape (n, 2). Returns an array of shape (n, h, m): a hash's numbers of all strings
    are neighbours in memory.
    """
    k, h, m = params.k, params.h, params.m
    order = np.arange(m * h, dtype=np.uint32).reshape(m, h).T
    numbers = order.reshape(-1, 1) * (words[:, 1] | np.uint32(1))
    numbers += np.ascontiguousarray(words[:, 0])
    _fmix32(numbers)
    if k & (k - 1):
        numbers -= numbers // np.uint32(k) * np.uint32(k)  # four times as fast as numpy's %
    else:
        numbers &= np.uint32(k - 1)
    numbers = numbers.reshape(h, m, -1)
    numbers += first_numbers(params)[:, None]
    return numbers.transpose(2, 0, 1)


def positions_in(words: WordArray, cohorts: IntArray, params: RapporParams) -> IntArray:
    """Return the positions that strings set, each in a cohort of its own.

    `words` has shape (n, 2). `cohorts` has shape (n,). Returns an array of shape (n, h).
    """
    order = (cohorts[:, None] * params.h + np.arange(params.h)).astype(np.uint32)
    numbers = (words[:, 1:] | np.uint32(1)) * order
    numbers += words[:, :1]
    _fmix32(numbers)
    return np.asarray(numbers % params.k, dtype=np.int64)


def first_numbers(params: RapporParams) -> WordArray:
    """Return the number of each cohort's first bit, uint32, shape (m,)."""
    return np.arange(params.m, dtype=np.uint32) * np.uint32(params.k)


def words_of(strings: Sequence[str]) -> WordArray:
    """Return the hash words of strings, shape (n, 2); raises CandidateError as `hashed`."""
    words = np.empty((len(strings), 2), dtype=np.uint32)
    for start in range(0, len(strings), _HASHED_AT_ONCE):
        block = strings[start : start + _HASHED_AT_ONCE]
        encoded = [_encoded(string, start + at) for at, string in enumerate(block)]
        canonical = canonical_forms(encoded, _numbered(start))
        words[start : start + len(encoded)] = hash_words(canonical)
    return words


def repeated(words: WordArray, equal: Callable[[IntArray, IntArray], BoolArray]) -> BoolArray:
    """Mark strings that occur earlier, too; shape (n,).

    `words`, shape (n, 2): strings of different words are different. `equal`: says of rows and as
    many other rows which pairs hold equal strings.
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


def _add_crosswise(state: WordArray) -> None:
    state[0] += state[1:].sum(axis=0, dtype=np.uint32)
    state[1:] += state[0]


def _fmix32(x: WordArray) -> None:
    shifted = x >> np.uint32(16)
    x ^= shifted
    x *= np.uint32(0x85EBCA6B)
    x ^= np.right_shift(x, np.uint32(13), out=shifted)
    x *= np.uint32(0xC2B2AE35)
    x ^= np.right_shift(x, np.uint32(16), out=shifted)


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Bits that follow from hash words, uint32, shape (n, 2)."""

    words: WordArray
    params: RapporParams

    def take(self, rows: IntArray) -> _Hashed:
        return _Hashed(self.words[rows], self.params)

    def of_cohorts(self, params: RapporParams) -> _Hashed:
        return _Hashed(self.words, params)

    def numbers(self, rows: IntArray | slice) -> WordArray:
        return bit_numbers(self.words[rows], self.params)

    def positions(self, rows: IntArray | slice) -> PositionArray:
        numbers = self.numbers(rows)
        numbers -= first_numbers(self.params)
        return np.ascontiguousarray(numbers.transpose(0, 2, 1), dtype=np.int16)


@dataclass(frozen=True, slots=True)
class _Mapped:
    """Bits that a map names, int16, shape (n, m, h)."""

    given: PositionArray
    params: RapporParams

    def take(self, rows: IntArray) -> _Mapped:
        return _Mapped(self.given[rows], self.params)

    def of_cohorts(self, params: RapporParams) -> _Mapped:
        return _Mapped(self.given[:, : params.m], params)

    def numbers(self, rows: IntArray | slice) -> WordArray:
        numbers = np.ascontiguousarray(self.given[rows].transpose(0, 2, 1), dtype=np.uint32)
        numbers += first_numbers(self.params)
        return numbers

    def positions(self, rows: IntArray | slice) -> PositionArray:
        return self.given[rows]


@dataclass(frozen=True, slots=True)
class _Joined:
    """Bits in some cohorts, and in those that follow them."""

    first: _Hashed
    then: _Hashed

    def take(self, rows: IntArray) -> _Joined:
        return _Joined(self.first.take(rows), self.then.take(rows))

    def of_cohorts(self, params: RapporParams) -> _Hashed | _Joined:
        left = params.m - self.first.params.m
        if left <= 0:
            return self.first.of_cohorts(params)
        return _Joined(self.first, self.then.of_cohorts(params._replace(m=left)))

    def numbers(self, rows: IntArray | slice) -> WordArray:
        then = self.then.numbers(rows) + np.uint32(self.first.params.m * self.first.params.k)
        return np.concatenate([self.first.numbers(rows), then], axis=2)

    def positions(self, rows: IntArray | slice) -> PositionArray:
        return np.concatenate([self.first.positions(rows), self.then.positions(rows)], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Distinct strings and where their bits are: `hashed`, `mapped`, `of_words` or `joined`."""

    strings: Sequence[str]
    params: RapporParams
    _bits: _Hashed | _Mapped | _Joined

    def __len__(self) -> int:
        return len(self.strings)

    def take(self, rows: IntArray) -> Candidates:
        """Return some of the candidates."""
        strings = [self.strings[row] for row in rows.tolist()]
        return Candidates(strings, self.params, self._bits.take(rows))

    def of_cohorts(self, count: int) -> Candidates:
        """Return the candidates' bits in so many cohorts, the first ones."""
        params = self.params._replace(m=count)
        return Candidates(self.strings, params, self._bits.of_cohorts(params))

    def positions(self, rows: IntArray | slice) -> PositionArray:
        """Return the positions of some candidates in the filters of all cohorts.

        `rows` has shape (r,). Returns an array of shape (r, m, h): from 0, below k; hashes of one
        cohort may share a position.
        """
        return self._bits.positions(rows)

    def numbers(self, rows: IntArray | slice) -> WordArray:
        """Return the same as numbers of m * k bits: position j of cohort c is number c k + j.

        Returns an array of shape (r, h, m).
        """
        return self._bits.numbers(rows)

    def filters(self, rows: IntArray) -> FloatArray:
        """Return the Bloom filters of a few candidates, 0/1, shape (r, m * k)."""
        found = np.zeros((len(rows), self.params.m * self.params.k))
        numbers = self.numbers(rows).reshape(len(rows), -1)
        np.put_along_axis(found, numbers.astype(np.intp), 1.0, axis=1)
        return found

    def check(self, params: RapporParams) -> None:
        """Raise CandidateError if the positions were made for another k, h or m."""
        own = (self.params.k, self.params.h, self.params.m)
        if own != (params.k, params.h, params.m):
            raise CandidateError(
                f"candidates with positions for (k, h, m) = {own}: must be for "
                f"{(params.k, params.h, params.m)}"
            )

    def pieces(self, rows: slice) -> Iterator[slice]:
        """Yield rows (start and stop given) in pieces whose positions fit the processor's cache."""
        of_each = self.params.m * self.params.h
        few = min(_FEW_AT_ONCE, _MOST_NUMBERS // of_each)
        step = max(1, few, _CHUNK_NUMBERS // of_each)
        for start in range(rows.start, rows.stop, step):
            yield slice(start, min(start + step, rows.stop))


@dataclass(frozen=True, slots=True)
class Design:
    """The bits that each candidate sets."""

    # Shape (n, m * k); row of a candidate: its Bloom filters in all cohorts, side by side.
    matrix: SparseMatrix

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum a vector over the m * k rows at each candidate's set bits; shape (n,)."""
        return np.asarray(self.matrix @ values)


def hashed(strings: Sequence[str], params: RapporParams) -> Candidates:
    """Return candidates with the positions that hubbub's clients give them.

    Raises `CandidateError` if a string is one that no client could report (too long, or not
    Unicode), or occurs twice.
    """
    words = words_of(strings)

    def equal(rows: IntArray, others: IntArray) -> BoolArray:
        pairs = zip(rows.tolist(), others.tolist(), strict=True)
        return np.array([strings[row] == strings[other] for row, other in pairs], dtype=np.bool_)

    again = repeated(words, equal)
    if again.any():
        raise _repeated_error(int(again.argmax()))
    return of_words(strings, words, params)


def mapped(strings: Sequence[str], positions: PositionArray, params: RapporParams) -> Candidates:
    """Return candidates with the positions that a map gives them.

    `positions`, shape (n, m, h): from 0, below k. Raises `CandidateError` if a string occurs twice,
    or positions of this shape or range aren't the parameters'.
    """
    expected = (len(strings), params.m, params.h)
    if positions.shape != expected:
        raise CandidateError(
            f"positions of shape {positions.shape}: must be {expected} for {len(strings)} "
            "candidates"
        )
    if positions.size and not 0 <= positions.min() <= positions.max() < params.k:
        found = f"{positions.min()} to {positions.max()}"
        raise CandidateError(f"positions {found}: must be from 0 to k - 1 = {params.k - 1}")
    seen = set[str]()
    for row, string in enumerate(strings):
        if string in seen:
            raise _repeated_error(row)
        seen.add(string)
    return Candidates(strings, params, _Mapped(positions, params))


def of_words(strings: Sequence[str], words: WordArray, params: RapporParams) -> Candidates:
    """Return candidates that are known to be distinct and whose hash words are known.

    `words` has shape (n, 2).
    """
    return Candidates(strings, params, _Hashed(words, params))


def joined(
    strings: Sequence[str],
    words: tuple[WordArray, WordArray],
    m: tuple[int, int],
    params: RapporParams,
) -> Candidates:
    """Return candidates that are hashed otherwise in some cohorts than in those that follow.

    `strings`: known to be distinct. `words`, shape (n, 2): by which they are hashed in the first
    cohorts, and in the others, each counted from 0. `m`: how many cohorts these are.
    """
    parts = (_Hashed(own, params._replace(m=n)) for own, n in zip(words, m, strict=True))
    return Candidates(strings, params, _Joined(*parts))


def unnamed(words: WordArray, params: RapporParams) -> Candidates:
    """Return candidates that are known to be distinct, by their hash words alone, as `of_words`."""
    return of_words([""] * len(words), words, params)


def bit_positions(strings: Sequence[str], params: RapporParams) -> PositionArray:
    """Return the Bloom positions of a few strings, equal ones too, in all cohorts; shape (n, m, h).

    Raises CandidateError as `hashed`.
    """
    return _Hashed(words_of(strings), params).positions(slice(None))


def distinct_positions(positions: PositionArray, params: RapporParams) -> PositionArray:
    """Sort each string's positions in a cohort and turn repeats into k, a bit that never matters.

    `positions`, shape (..., h): from 0, below k. Returns an array of shape (..., h): ascending;
    from 0 to k.
    """
    ordered = np.sort(positions, axis=-1)
    repeat = ordered[..., 1:] == ordered[..., :-1]
    ordered[..., 1:][repeat] = params.k
    return np.sort(ordered, axis=-1)


def make_design(positions: PositionArray, params: RapporParams) -> Design:
    """Return the sparse design of candidates whose positions are known."""
    n = positions.shape[0]
    ordered = np.sort(positions, axis=2)
    first = np.ones(ordered.shape, dtype=np.bool_)
    first[:, :, 1:] = ordered[:, :, 1:] != ordered[:, :, :-1]
    columns = ordered.astype(np.int32) + (np.arange(params.m, dtype=np.int32) * params.k)[:, None]
    starts = np.concatenate([[0], np.cumsum(first.sum(axis=(1, 2)))]).astype(np.int32)
    values = np.ones(int(starts[-1]))
    matrix = sparse.csr_array((values, columns[first], starts), shape=(n, params.m * params.k))
    return Design(matrix)


def _repeated_error(row: int) -> CandidateError:
    return CandidateError(
        f"candidates: must be at least one string, each once; number {row + 1} stands earlier, too"
    )
