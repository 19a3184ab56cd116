"""Beginnings of strings as arrays of bytes, with what their last characters still need.

Invariant: a prefix that is shorter than the others is a whole string, with END from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import BoolArray, IntArray
from hubbub.inference.open_strings.letters import END, SymbolArray, state_after
from hubbub.protocol.metric_types.open_strings import TERMINATOR


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Beginnings of strings, some of them whole.

    Attributes
    ----------
    symbols : uint16 array, shape (n, length)
        Bytes; END from the end of a string on.
    states : int64 array, shape (n,)
        Of the last character (`hubbub.inference.open_strings.letters.state_after`).
    """

    symbols: SymbolArray
    states: IntArray

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
        states = np.zeros(len(texts), dtype=np.int64)
        for place in range(length):
            states = state_after(states, symbols[:, place].astype(np.int64))
        return cls(symbols, states)

    @property
    def whole(self) -> BoolArray:
        """Whether a string ends within its prefix, shape (n,)."""
        if not self.symbols.shape[1]:
            return np.zeros(len(self), dtype=np.bool_)
        return np.asarray(self.symbols[:, -1] == END)

    def take(self, rows: IntArray) -> Prefixes:
        """Return some of the prefixes."""
        return Prefixes(self.symbols[rows], self.states[rows])

    def joined(self, others: Prefixes) -> Prefixes:
        """Return these and others, of the same length."""
        return Prefixes(
            np.concatenate([self.symbols, others.symbols]),
            np.concatenate([self.states, others.states]),
        )

    def texts(self, terminator: bytes) -> list[bytes]:
        """Return the bytes of each; the terminator stands for a string's end."""
        n, length = self.symbols.shape
        ended = np.where(self.symbols == END, 0, self.symbols).astype(np.uint8)
        sizes = (self.symbols != END).sum(axis=1)
        if terminator:
            short = np.flatnonzero(sizes < length)
            ended[short, sizes[short]] = terminator[0]
        texts: list[bytes] = ended.view(f"S{length}").ravel().tolist() if length else [b""] * n
        # That leaves out zeros at the end, which are a string's own bytes if it goes on after them.
        last = self.symbols[np.arange(n), sizes - 1] if length else np.ones(n)
        cut = (sizes == length) | (not terminator)
        for row in np.flatnonzero(cut & (sizes > 0) & (last == 0)).tolist():
            texts[row] = texts[row].ljust(int(sizes[row]), b"\0")
        return texts
