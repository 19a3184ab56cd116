"""Many strings in little memory: their UTF-8, end to end, and where each begins.

With the hash of each that takes 16 bytes per string beyond its text, where a Python string takes
some 50. An item becomes a `str` when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from hubbub.inference.arrays import BoolArray, ByteArray, IntArray

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
