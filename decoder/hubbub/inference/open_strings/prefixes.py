"""Beginnings of strings as arrays of bytes, and numbers that identify them.

Invariant: a prefix that is shorter than the others is a whole string, with END from there on.

Every beginning for which there is time, looked for before anything was learned.

Every character alone, and of each alphabet all strings, cut to a length, if these aren't too many.
What is exhaustive at little cost is exhaustive: nothing common is lost that is written so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from hubbub.inference.arrays import BoolArray, ByteArray, IntArray, WordArray
from hubbub.inference.candidates import SHORT, hash_words, short_hash_words
from hubbub.inference.open_strings.letters import (
    ASCII,
    END,
    Alphabet,
    SymbolArray,
    alphabets,
    contexts_at,
    state_after,
)
from hubbub.protocol import TERMINATOR

# Beginnings of a script's strings that are few enough to look at all of them, and of ASCII, in
# which programs write most of what they do: four letters of either case.
_MOST_STRINGS, _MOST_PLAIN = 2**17, 2**19
_LONGEST = 4
"""Bytes of a character."""


def all_beginnings(length: int, own: str = "") -> Prefixes:
    """Return every beginning of so many bytes that can be looked at, each once.

    `length`: in bytes; shorter strings end. `own`: characters of the strings' own alphabet; if they
    are known, no others are looked at.
    """
    asked = [[alphabets(own)[-1].codes]] if own else map(_alternatives, alphabets())
    some, few = [np.full((1, length), END, dtype=np.uint16)], dict[bytes, bool]()
    for alternatives in asked:
        for codes in alternatives:
            same = codes.tobytes()
            if same not in few:  # many alphabets have the same letters
                characters = _by_size(codes)
                most = _MOST_PLAIN if (codes < ASCII).any() else _MOST_STRINGS
                few[same] = len(codes) > 0 and _how_many(characters, length) <= most
                some += _strings(characters, length) if few[same] else _alone(characters, length)
            if few[same]:
                break
    found = Prefixes.of_symbols(np.concatenate(some))
    return found.take(np.unique(found.keys, return_index=True)[1])


def _alternatives(alphabet: Alphabet) -> list[IntArray]:
    """Return code points of which to take all strings: all, or else the common ones.

    A script's strings are of its own characters alone.
    """
    beyond = alphabet.codes[alphabet.codes >= ASCII]
    return [beyond if len(beyond) else alphabet.codes, alphabet.common]


def _by_size(codes: IntArray) -> list[SymbolArray]:
    characters, found = [chr(code).encode() for code in codes.tolist()], []
    for size in range(1, _LONGEST + 1):
        data = b"".join(each for each in characters if len(each) == size)
        found.append(np.frombuffer(data, dtype=np.uint8).astype(np.uint16).reshape(-1, size))
    return found


def _cut(characters: SymbolArray, room: int) -> SymbolArray:
    cut = characters[:, :room]
    if room >= characters.shape[1]:
        return cut
    new = (cut[1:] != cut[:-1]).any(axis=1)
    return np.asarray(cut[np.append(True, new)[: len(cut)]])


def _padded(symbols: SymbolArray, length: int) -> SymbolArray:
    return np.pad(symbols, ((0, 0), (0, length - symbols.shape[1])), constant_values=END)


def _alone(characters: Sequence[SymbolArray], length: int) -> Iterator[SymbolArray]:
    return (_padded(_cut(each, length), length) for each in characters)


def _strings(characters: Sequence[SymbolArray], length: int) -> Iterator[SymbolArray]:
    """Yield all strings, the last character cut where no room is left for all of it.

    `characters` has shape (n, 1) to (n, 4).
    """
    of_size: list[list[SymbolArray]] = [[] for _ in range(length + 1)]
    of_size[0].append(np.zeros((1, 0), dtype=np.uint16))
    for size, some in enumerate(of_size):
        strings = np.concatenate([np.zeros((0, size), dtype=np.uint16), *some])
        yield _padded(strings, length)
        for each in characters if size < length else ():
            last = _cut(each, length - size)
            longer = np.hstack(
                [strings.repeat(len(last), axis=0), np.tile(last, (len(strings), 1))]
            )
            of_size[longer.shape[1]].append(longer)


def _how_many(characters: Sequence[SymbolArray], length: int) -> int:
    """Return how many strings `_strings` would yield."""
    n_strings = [1]
    for room in range(1, length + 1):
        sizes = Counter[int]()
        for each in characters:
            last = _cut(each, room)
            sizes[last.shape[1]] += len(last)
        n_strings.append(1 + sum(n * n_strings[room - size] for size, n in sizes.items()))
    return n_strings[-1]


KeyArray = NDArray[np.uint64]
"""Numbers that identify sequences of symbols: two of n have the same one with probability
n^2 / 2^65.
"""
# An odd number with bits all over (MurmurHash3's), whose powers identify sequences.
_MULTIPLIER = np.uint64(0x87C37B91114253D5)
# Spelled at a time: of a million whole strings the arrays of bytes would take .3 GB.
_PART = 2**16


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Beginnings of strings, some of them whole."""

    # Shape (n, length); bytes; END from the end of a string on. If all are whole, only up to the
    # last END.
    symbols: SymbolArray
    # Shape (n,); numbers that identify them among those of the same length (`longer_keys`).
    keys: KeyArray

    def __len__(self) -> int:
        return len(self.symbols)

    @classmethod
    def of(cls, text: bytes) -> Prefixes:
        """Return one prefix; the empty one is every string's."""
        return cls.of_all([text], len(text))

    @classmethod
    def of_all(cls, texts: Sequence[bytes], length: int) -> Prefixes:
        """Return prefixes of a length; those that are shorter are whole."""
        data = b"".join(text.ljust(length, TERMINATOR) for text in texts)
        symbols = np.frombuffer(data, dtype=np.uint8).astype(np.uint16).reshape(len(texts), length)
        symbols[symbols == TERMINATOR[0]] = END
        return cls.of_symbols(symbols)

    @classmethod
    def of_symbols(cls, symbols: SymbolArray) -> Prefixes:
        """Return prefixes that are spelled already."""
        keys: KeyArray = np.zeros(len(symbols), dtype=np.uint64)
        for place in range(symbols.shape[1]):
            keys = longer_keys(keys, symbols[:, place])
        return cls(symbols, keys)

    @property
    def length(self) -> int:
        """In bytes."""
        return int(self.symbols.shape[1])

    @property
    def whole(self) -> BoolArray:
        """Whether a string ends within its prefix, shape (n,)."""
        return self.whole_within(self.length)

    def whole_within(self, length: int) -> BoolArray:
        """Return whether each string ends before so many bytes, shape (n,)."""
        if not length:
            return np.zeros(len(self), dtype=np.bool_)
        return np.asarray(self.symbols[:, length - 1] == END)

    @property
    def sizes(self) -> IntArray:
        """How many bytes each has before its string's end, shape (n,)."""
        return np.asarray((self.symbols != END).sum(axis=1))

    def last_two(self) -> tuple[IntArray, IntArray]:
        """Return the last symbol but one, and the last one, of each."""
        return contexts_at(self.symbols, self.length)

    @property
    def states(self) -> IntArray:
        """State of the last character of each (`state_after`), shape (n,)."""
        states = np.zeros(len(self), dtype=np.int64)
        for place in range(self.length):
            states = state_after(states, self.symbols[:, place].astype(np.int64))
        return states

    def take(self, rows: IntArray) -> Prefixes:
        """Return some of the prefixes."""
        return Prefixes(self.symbols[rows], self.keys[rows])

    def trimmed(self) -> Prefixes:
        """Return the same up to the last END, all being whole."""
        return Prefixes(self.symbols[:, : 1 + int(self.sizes.max(initial=0))].copy(), self.keys)

    def joined(self, others: Prefixes) -> Prefixes:
        """Return these and others, whose keys are of the same length."""
        n, width = len(self), max(self.length, others.length)
        symbols = np.full((n + len(others), width), END, dtype=np.uint16)
        symbols[:n, : self.length] = self.symbols
        symbols[n:, : others.length] = others.symbols
        return Prefixes(symbols, np.concatenate([self.keys, others.keys]))

    def texts(self, terminator: bytes) -> list[bytes]:
        """Return the bytes of each; the terminator stands for a string's end."""
        return list(chain.from_iterable(part._texts(terminator) for part in self._parts()))

    def hash_words(self, terminator: bytes) -> WordArray:
        """Return the hash words of the same, shape (n, 2)."""
        words = [
            short_hash_words(*part._data(terminator))
            if self.length <= SHORT
            else hash_words(part._texts(terminator))
            for part in self._parts()
        ]
        return np.concatenate([np.zeros((0, 2), dtype=np.uint32), *words])

    def _parts(self) -> Iterator[Prefixes]:
        for begin in range(0, len(self), _PART):
            some = slice(begin, begin + _PART)
            yield Prefixes(self.symbols[some], self.keys[some])

    def _texts(self, terminator: bytes) -> list[bytes]:
        n, length = self.symbols.shape
        ended, sizes = self._data(terminator)
        texts: list[bytes] = ended.view(f"S{length}").ravel().tolist() if length else [b""] * n
        # That leaves out zeros at the end, which are a string's own bytes if it goes on after them.
        last = ended[np.arange(n), sizes - 1] if length else np.ones(n)
        for row in np.flatnonzero((sizes > 0) & (last == 0)).tolist():
            texts[row] = texts[row].ljust(int(sizes[row]), b"\0")
        return texts

    def _data(self, terminator: bytes) -> tuple[ByteArray, IntArray]:
        """Return the bytes of each, 0 behind them, shape (n, length), and how many there are."""
        data = np.where(self.symbols == END, 0, self.symbols).astype(np.uint8)
        sizes = self.sizes
        if terminator:
            short = np.flatnonzero(sizes < self.length)
            data[short, sizes[short]] = terminator[0]
            sizes[short] += 1
        return data, sizes


def longer_keys(keys: KeyArray, symbols: SymbolArray | np.uint16) -> KeyArray:
    """Return the keys of prefixes with one more symbol each."""
    longer = (keys ^ symbols) * _MULTIPLIER
    longer ^= longer >> np.uint64(32)
    return longer


def unseen(keys: KeyArray, seen: KeyArray) -> BoolArray:
    """Return which keys aren't among others, which are ascending; quick if they ascend as well."""
    if not len(seen):
        return np.ones(len(keys), dtype=np.bool_)
    place = np.minimum(np.searchsorted(seen, keys), len(seen) - 1)
    return np.asarray(seen[place] != keys)
