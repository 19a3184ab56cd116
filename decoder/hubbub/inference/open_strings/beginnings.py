"""Every beginning for which there is time, looked for before anything was learned.

Every character alone, and of each alphabet all strings, cut to a length, if these aren't too many.
What is exhaustive at little cost is exhaustive: nothing common is lost that is written so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from hubbub.inference.arrays import IntArray
from hubbub.inference.open_strings.alphabets import ASCII, Alphabet, alphabets
from hubbub.inference.open_strings.letters import END, SymbolArray
from hubbub.inference.open_strings.prefixes import Prefixes

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
                few[same] = len(codes) > 0 and _how_many(characters, length) <= _most(codes)
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


def _most(codes: IntArray) -> int:
    return _MOST_PLAIN if (codes < ASCII).any() else _MOST_STRINGS


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
