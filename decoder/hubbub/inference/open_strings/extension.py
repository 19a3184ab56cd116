"""Prefixes -> the extensions of them that are worth looking at, best first.

A prefix's share times the letter model's chance of what is added is the share that an extension
is expected to have. Byte by byte those stay whose expected share is above a limit, which is set so
that about as many stay as there is room for. Invariant: what is kept doesn't depend on order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.open_strings.letters import (
    END,
    N_SYMBOLS,
    STATES,
    LetterModel,
    SymbolArray,
    contexts_at,
    state_after,
)

# Prefixes by which the least mass is chosen that fills the room; it decides how many are listed,
# not what is found of them.
_SAMPLED = 5_000
_CONTEXTS, _STATES = 258, 256 * STATES
# A surprise (e^-60) that no room reaches: it stands for impossible symbols.
_FAR = 60.0
# In ln of mass: the room is then filled to about 1%.
_CLOSE = 0.01


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
        """Return one prefix, whole characters of UTF-8; the empty one is every string's."""
        symbols = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)[None, :]
        states = np.zeros(1, dtype=np.int64)
        for place in range(symbols.shape[1]):
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
        length = self.symbols.shape[1]
        ends = np.where(self.symbols == END, 0, self.symbols).astype(np.uint8).tobytes()
        sizes = (self.symbols != END).sum(axis=1)
        return [
            ends[at : at + size] + (terminator if size < length else b"")
            for at, size in zip(range(0, len(ends), length), sizes.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Extensions:
    """Extended prefixes.

    Attributes
    ----------
    prefixes : Prefixes, of length n
    parents : int64 array, shape (n,)
        Which prefix each comes from.
    expected : float64 array, shape (n,)
        The share that it is expected to have.
    """

    prefixes: Prefixes
    parents: IntArray
    expected: FloatArray

    def __len__(self) -> int:
        return len(self.prefixes)

    @classmethod
    def none(cls, length: int) -> Extensions:
        """Return no extensions, of some length."""
        nothing = np.zeros(0, dtype=np.int64)
        prefixes = Prefixes(np.zeros((0, length), dtype=np.uint16), nothing)
        return cls(prefixes, nothing, np.zeros(0))

    def take(self, rows: IntArray) -> Extensions:
        """Return some of the extensions."""
        return Extensions(self.prefixes.take(rows), self.parents[rows], self.expected[rows])

    def joined(self, others: Extensions) -> Extensions:
        """Return these and others, of the same length."""
        return Extensions(
            self.prefixes.joined(others.prefixes),
            np.concatenate([self.parents, others.parents]),
            np.concatenate([self.expected, others.expected]),
        )


def extend(
    prefixes: Prefixes, shares: FloatArray, length: int, room: int, letters: LetterModel
) -> Extensions:
    """Extend prefixes to a length, whole strings staying as they are.

    Parameters
    ----------
    prefixes : Prefixes
        Prefixes of at most `length` bytes.
    shares : float64 array, shape (n,)
        Above 0.
    length : int
        How many bytes the extensions have.
    room : int
        About how many extensions to return at most.
    letters : LetterModel
        How likely each byte is to follow.
    """
    ladders = _Ladders(letters)
    parents, expected, states = np.arange(len(prefixes)), shares, prefixes.states
    symbols = np.full((len(prefixes), length), END, dtype=np.uint16)
    symbols[:, : prefixes.symbols.shape[1]] = prefixes.symbols
    done: list[tuple[SymbolArray, IntArray, FloatArray]] = []
    for place in range(prefixes.symbols.shape[1], length):
        if place:
            whole = symbols[:, place - 1] == END
            done.append((symbols[whole], parents[whole], expected[whole]))
            going = np.flatnonzero(~whole)
            symbols, parents = symbols[going], parents[going]
            expected, states = expected[going], states[going]
        if not len(symbols):
            break
        before, last = contexts_at(symbols, place)
        kinds = ladders.kinds(before, last, states)
        masses = np.log(expected)
        whole_masses = np.log(np.concatenate([np.zeros(0), *(shares for _, _, shares in done)]))
        limit = ladders.limit(kinds, masses, whole_masses, room)
        rows, added, chances = ladders.above(kinds, masses, limit)
        symbols = symbols[rows]
        symbols[:, place] = added
        parents, expected = parents[rows], expected[rows] * chances
        states = state_after(states[rows], added)
        done = [_likely(*some, np.exp(limit)) for some in done]
    done.append((symbols, parents, expected))
    n_done = sum(len(some) for _, _, some in done)
    all_states = np.zeros(n_done, dtype=np.int64)
    all_states[n_done - len(states) :] = states
    symbols, parents, expected = (np.concatenate(some) for some in zip(*done, strict=True))
    return Extensions(Prefixes(symbols, all_states), parents, expected)


def _likely(
    symbols: SymbolArray, parents: IntArray, expected: FloatArray, least: float
) -> tuple[SymbolArray, IntArray, FloatArray]:
    kept = np.flatnonzero(expected >= least)
    return symbols[kept], parents[kept], expected[kept]


class _Ladders:
    """For each context its symbols, the likeliest first, and how unlikely each is.

    Parameters
    ----------
    letters : LetterModel
    """

    def __init__(self, letters: LetterModel) -> None:
        self._letters = letters
        self._codes = np.zeros(0, dtype=np.int64)
        self._place_of = np.zeros(0, dtype=np.int64)
        self._symbols = np.zeros((0, N_SYMBOLS), dtype=np.uint16)
        self._chances = np.zeros((0, N_SYMBOLS), dtype=np.float32)
        self._rungs = np.zeros(0)

    def kinds(self, before: IntArray, last: IntArray, states: IntArray) -> IntArray:
        """Return the number of each prefix's context, shape (n,); new contexts are added."""
        before = self._letters.matters(before, last)
        code = (before * _CONTEXTS + last) * _STATES + states
        codes = np.unique(code)
        news = np.setdiff1d(codes, self._codes, assume_unique=True)
        if len(news):
            pair, of_character = np.divmod(news, _STATES)
            chances = self._letters.chances(*np.divmod(pair, _CONTEXTS), of_character)
            order = np.argsort(-chances, axis=1, kind="stable")
            self._symbols = np.concatenate([self._symbols, order.astype(np.uint16)])
            self._chances = np.concatenate(
                [self._chances, np.take_along_axis(chances, order, axis=1).astype(np.float32)]
            )
            known = np.concatenate([self._codes, news])
            places = np.concatenate([self._place_of, np.arange(len(known) - len(news), len(known))])
            ascending = np.argsort(known)
            self._codes, self._place_of = known[ascending], places[ascending]
            with np.errstate(divide="ignore"):
                surprise = np.minimum(-np.log(self._chances, dtype=np.float64), _FAR)
            # One ascending sequence: each context's surprises, beyond those before it.
            surprise += 2 * _FAR * np.arange(len(surprise))[:, None]
            self._rungs = surprise.ravel()
        return np.asarray(self._place_of[np.searchsorted(self._codes, code)])

    def limit(
        self, kinds: IntArray, masses: FloatArray, whole_masses: FloatArray, room: int
    ) -> float:
        """Return the limit above which about as many stay as there is room for.

        Parameters
        ----------
        masses, whole_masses : float64 arrays
            ln of the expected shares of prefixes that go on, and of those that don't.
        """
        step = max(1, len(masses) // _SAMPLED)
        kinds, masses = kinds[::step], masses[::step]
        whole_masses = np.sort(whole_masses)

        def staying(limit: float) -> int:
            whole = len(whole_masses) - int(np.searchsorted(whole_masses, limit))
            return step * int(self._heights(kinds, masses, limit).sum()) + whole

        low, high = float(masses.min()) - _FAR, float(masses.max())
        if staying(low) <= room:
            return low
        while high - low > _CLOSE:
            middle = (low + high) / 2
            if staying(middle) > room:
                low = middle
            else:
                high = middle
        return high

    def above(
        self, kinds: IntArray, masses: FloatArray, limit: float
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return rows, added symbols and their chances, where the expected share stays above."""
        counts = self._heights(kinds, masses, limit)
        rows = np.repeat(np.arange(len(masses)), counts)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        kind = kinds[rows]
        chances = self._chances[kind, rank].astype(np.float64)
        return rows, self._symbols[kind, rank].astype(np.int64), chances

    def _heights(self, kinds: IntArray, masses: FloatArray, limit: float) -> IntArray:
        """Return how many symbols of each prefix keep its expected share above the limit."""
        within = np.clip(masses - limit, -1.0, _FAR - 1.0)
        place = np.searchsorted(self._rungs, within + 2 * _FAR * kinds, side="right")
        return np.asarray(place - kinds * N_SYMBOLS)
