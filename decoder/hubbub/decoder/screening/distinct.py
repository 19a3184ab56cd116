"""Hashes of a list's strings -> its different sets of bits, in the list's order, on disk.

Three numbers of each string are kept in files of a folder of their own: the words that its bits
follow from, the rest of its digest, and a fingerprint of its bits. What is equal has equal numbers,
so it is found among numbers of one range at a time, as many as fit in memory: repeats by their
digests, then strings that can't be told apart by their fingerprints. Of each set of bits the first
string stands for all; only these are tested.

Invariants: what is found doesn't depend on how the list was cut; memory holds a byte a string, and
some hundred bytes of the strings of a range.

Two different strings are taken for repeats if the 128 bits of their digests are equal, and for the
same set of bits if two fingerprints of 64 bits are: with probability 2^-128 a pair, so among 10^8
strings with one of 1.5e-23. Digests aren't cryptographic: who makes a list may put strings into it
that are taken for one, which no reports could tell apart either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, NamedTuple, overload

import numpy as np

from hubbub.decoder.candidates.parts import Part
from hubbub.decoder.screening.hashing import Cohorts, HashedPart, Wanted
from hubbub.inference.arrays import BoolArray, ByteArray, IntArray, NumberArray, WordArray
from hubbub.inference.candidates import repeated
from hubbub.inference.scanning import fingerprints, same_sums

BLOCK_ROWS = 2**17
"""Sets of bits that a task tests: always the same ones, so that sums are, too."""
_MOST_IN_RANGE = 2**22  # 32 MiB of numbers, sorted at once
_AT_ONCE = 2**20  # numbers of a file that are read at a time: 8 MiB
_MOST_SINGLY = 2**16  # more rows touch most pages of the file: mapping it is quicker than seeking
_NUMBER = np.dtype("<u8")


class Block(NamedTuple):
    """Sets of bits that follow one another (a task's input).

    Attributes
    ----------
    first : int
        Number of the first one.
    words : uint32 array, shape (r, 2)
    """

    first: int
    words: WordArray


class Blocks(Sequence[Block]):
    """All sets of bits, read from disk when a block is asked for."""

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._count = path, count

    def __len__(self) -> int:
        return math.ceil(self._count / BLOCK_ROWS)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        first = range(0, self._count, BLOCK_ROWS)[index]
        numbers = np.fromfile(self._path, _NUMBER, BLOCK_ROWS, offset=first * _NUMBER.itemsize)
        return Block(first, _as_words(numbers))


class DistinctList:
    """A list whose parts are added one after the other, and are then gone over block by block.

    Parameters
    ----------
    folder : Path
        An empty one.
    cohorts : Cohorts
        Wherever these have the same bits, strings can't be told apart.

    Attributes
    ----------
    given : int
        Strings of all parts, repeats too.
    strings : int
        Different ones.
    sets : int
        Different sets of bits, numbered from 0 by their first strings.
    indistinguishable : int
        Different strings that set the same bits as another one.
    """

    def __init__(self, folder: Path, cohorts: Cohorts) -> None:
        self.given = self.strings = self.sets = self.indistinguishable = 0
        self._folder, self._cohorts = folder, cohorts
        self._parts: list[Part] = []
        self._kept: list[ByteArray | None] = []
        self._begins = [0]

    def fill(self, parts: Sequence[Part], hashed: Iterator[HashedPart]) -> None:
        """Take what parts hold, and find out what is equal.

        Parameters
        ----------
        parts : sequence of Part
            Of the whole list.
        hashed : iterator of HashedPart
            In the order of the parts.
        """
        with (
            self._path("words").open("wb") as words,
            self._path("rest").open("wb") as rest,
            self._path("fingerprints").open("wb") as marks,
        ):
            for part, found in zip(parts, hashed, strict=True):
                _as_numbers(found.words).tofile(words)
                found.rest.astype(_NUMBER).tofile(rest)
                found.fingerprints.astype(_NUMBER).tofile(marks)
                self.given += found.given
                self._parts.append(part)
                self._kept.append(found.kept)
                self._begins.append(self._begins[-1] + len(found.words))
        if not self.given:
            return
        self._dropped = np.zeros(self._begins[-1], dtype=np.bool_)
        self._drop_repeats()
        self.strings = int(np.count_nonzero(~self._dropped))
        self._path("rest").unlink()
        self._group()
        self._path("fingerprints").unlink()
        self.sets = self._write_sets()

    @property
    def blocks(self) -> Blocks:
        """All sets of bits."""
        return Blocks(self._path("sets"), self.sets)

    def words(self, sets: IntArray) -> WordArray:
        """Return the hash words of some sets' first strings; shape (r, 2)."""
        return _as_words(self._numbers("sets", sets))

    def strings_of(self, sets: IntArray) -> tuple[IntArray, IntArray]:
        """Return the strings that have some sets of bits, as rows, and the set of each.

        Returns
        -------
        rows, owners : int64 array, shape (r,)
            Rows in ascending order; owners are numbers of sets.
        """
        firsts = self._first_rows(sets)
        rows, owners = [firsts], [sets]
        for pairs in self._pairs():
            place = np.minimum(np.searchsorted(firsts, pairs[:, 1]), max(len(firsts) - 1, 0))
            mine = firsts[place] == pairs[:, 1] if len(firsts) else np.zeros(len(pairs), np.bool_)
            rows.append(pairs[mine, 0])
            owners.append(sets[place[mine]])
        every, whose = np.concatenate(rows), np.concatenate(owners)
        order = np.argsort(every)
        return every[order], whose[order]

    def places(self, rows: IntArray) -> list[Wanted]:
        """Return where the strings of rows, in ascending order, stand."""
        parts = np.searchsorted(self._begins, rows, side="right") - 1
        wanted = []
        for part in np.unique(parts).tolist():
            numbers = rows[parts == part] - self._begins[part]
            kept = self._kept[part]
            if kept is not None:
                numbers = np.flatnonzero(np.unpackbits(kept))[numbers]
            wanted.append(Wanted(self._parts[part], numbers))
        return wanted

    def row_words(self, rows: IntArray) -> WordArray:
        """Return the hash words of rows; shape (r, 2)."""
        return _as_words(self._numbers("words", rows))

    def _drop_repeats(self) -> None:
        for pieces in self._by_range("words"):
            found = list(pieces)
            rows = np.concatenate([rows for rows, _ in found])
            words = _as_words(np.concatenate([numbers for _, numbers in found]))

            def equal(some: IntArray, others: IntArray, of: IntArray = rows) -> BoolArray:
                rest = self._numbers("rest", of[some])
                return np.asarray(rest == self._numbers("rest", of[others]))

            self._dropped[rows[repeated(words, equal)]] = True

    def _group(self) -> None:
        with self._path("pairs").open("wb") as file:
            for pieces in self._by_range("fingerprints"):
                firsts, rows, marks = [np.empty(0, np.int64)], [], []
                for more, numbers in pieces:
                    kept = ~self._dropped[more]
                    rows.append(more[kept])
                    marks.append(numbers[kept])
                    # Where there are few sets of bits a range may be the whole list.
                    if sum(map(len, rows)) >= 2 * _MOST_IN_RANGE:
                        rows, marks = self._grouped(rows, marks, file, firsts)
                self._grouped(rows, marks, file, firsts)
                self.indistinguishable += len(np.unique(np.concatenate(firsts)))

    def _grouped(
        self,
        pieces: list[IntArray],
        numbers: list[NumberArray],
        file: IO[bytes],
        firsts: list[IntArray],
    ) -> tuple[list[IntArray], list[NumberArray]]:
        """Drop strings that can't be told from an earlier one; return what is left."""
        rows, marks = np.concatenate(pieces), np.concatenate(numbers)
        same = same_sums(marks, lambda some: self._second(rows[some]))
        pairs = np.column_stack([rows[same.rows], rows[same.first]])
        pairs.astype("<i8").tofile(file)
        firsts.append(np.unique(pairs[:, 1]))
        self._dropped[pairs[:, 0]] = True
        self.indistinguishable += len(pairs)
        others = same.others(len(rows))
        return [rows[others]], [marks[others]]

    def _second(self, rows: IntArray) -> NumberArray:
        return fingerprints(self.row_words(rows), *self._cohorts, which=1)

    def _by_range(self, name: str) -> Iterator[Iterator[tuple[IntArray, NumberArray]]]:
        """Yield one range of a file's numbers after the other, with their rows, in pieces."""
        ranges = math.ceil(len(self._dropped) / _MOST_IN_RANGE)
        bounds = [2**64 * each // ranges for each in range(ranges + 1)]
        for low, high in pairwise(bounds):
            yield self._between(name, np.uint64(low), np.uint64(high - 1 - low))

    def _between(
        self, name: str, low: np.uint64, width: np.uint64
    ) -> Iterator[tuple[IntArray, NumberArray]]:
        for start, numbers in self._read(name):
            within = np.flatnonzero(numbers - low <= width)  # below low it wraps around
            yield start + within, numbers[within]

    def _read(self, name: str) -> Iterator[tuple[int, NumberArray]]:
        with self._path(name).open("rb") as file:
            start = 0
            while len(numbers := np.fromfile(file, _NUMBER, _AT_ONCE)):
                yield start, numbers
                start += len(numbers)

    def _numbers(self, name: str, rows: IntArray) -> NumberArray:
        """Return a file's numbers of some rows."""
        if len(rows) > _MOST_SINGLY:
            mapped: NumberArray = np.memmap(self._path(name), _NUMBER, "r")
            return np.array(mapped[rows])
        # Of a file that is mapped into memory, each look would keep some 64 kilobytes there.
        found = bytearray()
        with self._path(name).open("rb", buffering=0) as file:
            for row in rows.tolist():
                file.seek(row * _NUMBER.itemsize)
                found += file.read(_NUMBER.itemsize)
        return np.frombuffer(found, _NUMBER)

    def _pairs(self) -> Iterator[IntArray]:
        """Yield rows that aren't their set's first string, and that string's row."""
        with self._path("pairs").open("rb") as file:
            while len(pairs := np.fromfile(file, "<i8", 2 * _AT_ONCE)):
                yield pairs.reshape(-1, 2)

    def _write_sets(self) -> int:
        counts = []
        with self._path("sets").open("wb") as file:
            for start, numbers in self._read("words"):
                own = numbers[~self._dropped[start : start + len(numbers)]]
                own.tofile(file)
                counts.append(len(own))
        self._sets_before = np.array([0, *accumulate(counts)])
        return int(self._sets_before[-1])

    def _first_rows(self, sets: IntArray) -> IntArray:
        """Return the rows of sets' first strings; both in ascending order."""
        chunks = np.searchsorted(self._sets_before, sets, side="right") - 1
        rows = [np.empty(0, np.int64)]
        for chunk in np.unique(chunks).tolist():
            start = chunk * _AT_ONCE
            kept = np.flatnonzero(~self._dropped[start : start + _AT_ONCE])
            rows.append(start + kept[sets[chunks == chunk] - self._sets_before[chunk]])
        return np.concatenate(rows)

    def _path(self, name: str) -> Path:
        return self._folder / name


def _as_words(numbers: NumberArray) -> WordArray:
    return np.ascontiguousarray(numbers).view("<u4").reshape(-1, 2).astype(np.uint32)


def _as_numbers(words: WordArray) -> NumberArray:
    return np.ascontiguousarray(words, dtype="<u4").view(_NUMBER).ravel()
