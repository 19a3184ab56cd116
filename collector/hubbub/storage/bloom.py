"""Filters of batch ids: a few bits an id, which say "surely not there" or "perhaps".

A blocked Bloom filter: an id chooses two words of 64 bits, and four bits in each, so that to ask
takes two reads of memory. The choices are parts of the id itself, for ids are random. Invariants:
an id that was added is never denied; and ids that somebody has chosen badly only make "perhaps"
more frequent, because a word that is full denies nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.storage.id_tables import ID_BYTES, IdTable

WORD_BYTES = 8  # a filter is of 64-bit words: one read of memory an id

BITS_PER_ID = 16
"""So many that one of 889 ids that aren't there may be (tests/unit/collector/test_bloom.py)."""

BITS_SET = 4
"""Of each of the two words that an id chooses; some of them may be the same."""

_WORD = np.dtype("<u8")
_WORD_BITS = 8 * WORD_BYTES  # in which all bits of an id lie
_SCHEME = b"hubbub-ids-2"
"""Goes into the digest: a filter that chooses bits in another way isn't taken for one of these."""

_PAIRS = np.array([1 << (i % 64) | 1 << (i // 64) for i in range(4096)], np.uint64)
"""Words with the two bits that 12 bits of an id choose."""


class IdFilter:
    """A filter of so many ids.

    `words`, shape (words,): in the byte order of files, which is "little".
    """

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    @classmethod
    def for_ids(cls, number: int) -> IdFilter:
        """Return a filter with room for so many ids, without any."""
        return cls(np.zeros(max(1, -(-number * BITS_PER_ID // _WORD_BITS)), _WORD))

    @classmethod
    def of_data(cls, data: bytearray) -> IdFilter:
        """Return the filter with these bytes, which are used and not copied."""
        return cls(np.frombuffer(data, _WORD))

    def add(self, ids: bytes) -> None:
        """Add ids, which lie end to end."""
        chosen, bits = _choices(ids)
        np.bitwise_or.at(self.words, _places(chosen, len(self.words)), bits)

    @property
    def data(self) -> memoryview:
        """The bytes of the words."""
        return self.words.data.cast("B")

    @property
    def digest(self) -> bytes:
        """16 bytes that tell this filter from any other."""
        return hashlib.blake2b(self.data, digest_size=16, person=_SCHEME).digest()


class FilteredTables:
    """Tables of ids whose filters are in memory."""

    def __init__(self, filters: Mapping[IdTable, IdFilter]) -> None:
        self.tables = tuple(filters)
        self._words = [it.words for it in filters.values()]
        self._lengths = np.array([[len(words)] for words in self._words], np.uint64)

    def possible_duplicates(self, ids: Sequence[bytes]) -> list[tuple[IdTable, bytes]]:
        """Return the tables that ids may be in; all others surely don't have them.

        All of a group and of all tables in a few of numpy's steps, each of which takes longer than
        a word.
        """
        if not self.tables or not ids:
            return []
        chosen, bits = _choices(b"".join(ids))
        found = np.empty((len(self.tables), len(chosen)), _WORD)
        for words, places, row in zip(
            self._words, _places(chosen, self._lengths), found, strict=True
        ):
            words.take(places, out=row, mode="clip")  # "raise" would copy the row
        are_set = (found & bits) == bits
        which, where = np.nonzero(are_set[:, : len(ids)] & are_set[:, len(ids) :])
        hits = zip(which.tolist(), where.tolist(), strict=True)
        return [(self.tables[table], ids[place]) for table, place in hits]


def _choices(ids: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return what ids choose: numbers below 2**32 for their words, and bits there.

    First one word of each id, then the other of each.
    """
    parts = np.frombuffer(ids, ">u4").reshape(-1, ID_BYTES // 4).astype(np.uint64).T
    bits = _PAIRS[parts[2:] & 4095] | _PAIRS[parts[2:] >> 12 & 4095]
    return parts[:2].ravel(), bits.ravel()


def _places(chosen: NDArray[np.uint64], words: int | NDArray[np.uint64]) -> NDArray[np.intp]:
    return (chosen * np.uint64(words) >> np.uint64(32)).astype(np.intp)
