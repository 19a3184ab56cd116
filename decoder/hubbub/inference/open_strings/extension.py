"""Prefixes -> the extensions of them that are worth looking at, best first.

A prefix's share times a letter model's chance of what is added is the share that an extension is
expected to have, if that model goes on with it. Byte by byte those stay whose expected share is
above a limit, which is set so that about as many stay as there is room for. Invariant: what is kept
doesn't depend on order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.letters import (
    END,
    N_SYMBOLS,
    STATES,
    SymbolArray,
    contexts_at,
    state_after,
)
from hubbub.inference.open_strings.mixture import Mixture
from hubbub.inference.open_strings.prefixes import Prefixes

# Prefixes by which the least mass is chosen that fills the room; it decides how many are listed,
# not what is found of them.
_SAMPLED = 5_000
_BEFORES, _CONTEXTS, _STATES = 259, 258, 256 * STATES
# A model that goes on with less of a prefix than this isn't asked.
_LEAST_PART = 1e-7
# An odd number with bits all over (MurmurHash3's), whose powers tell sequences apart.
_MULTIPLIER = np.uint64(0x87C37B91114253D5)
# A surprise (e^-60) that no room reaches: it stands for impossible symbols.
_FAR = 60.0
# In ln of mass: the room is then filled to about 1%.
_CLOSE = 0.01


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
    prefixes: Prefixes, shares: FloatArray, length: int, room: int, letters: Mixture
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
    letters : Mixture
        How likely each byte is to follow.
    """
    ladders = _Ladders(letters)
    parts = letters.shares_of_models(prefixes.symbols)
    parents, models = np.nonzero(parts > _LEAST_PART)
    expected, states = shares[parents] * parts[parents, models], prefixes.states[parents]
    symbols = np.full((len(parents), length), END, dtype=np.uint16)
    symbols[:, : prefixes.symbols.shape[1]] = prefixes.symbols[parents]
    done: list[tuple[SymbolArray, IntArray, FloatArray]] = []
    for place in range(prefixes.symbols.shape[1], length):
        if place:
            whole = symbols[:, place - 1] == END
            done.append((symbols[whole], parents[whole], expected[whole]))
            going = np.flatnonzero(~whole)
            symbols, parents, models = symbols[going], parents[going], models[going]
            expected, states = expected[going], states[going]
        if not len(symbols):
            break
        before, last = contexts_at(symbols, place)
        kinds = ladders.kinds(models, before, last, states)
        masses = np.log(expected)
        whole_masses = np.log(np.concatenate([np.zeros(0), *(shares for _, _, shares in done)]))
        limit = ladders.limit(kinds, masses, whole_masses, room)
        rows, added, chances = ladders.above(kinds, masses, limit)
        symbols = symbols[rows]
        symbols[:, place] = added
        parents, models, expected = parents[rows], models[rows], expected[rows] * chances
        states = state_after(states[rows], added)
        done = [_likely(*some, np.exp(limit)) for some in done]
    done.append((symbols, parents, expected))
    n_done = sum(len(some) for _, _, some in done)
    all_states = np.zeros(n_done, dtype=np.int64)
    all_states[n_done - len(states) :] = states
    symbols, parents, expected = (np.concatenate(some) for some in zip(*done, strict=True))
    return _merged(Extensions(Prefixes(symbols, all_states), parents, expected))


def _merged(extensions: Extensions) -> Extensions:
    """Return each extension once, with what all models expect of it."""
    symbols = extensions.prefixes.symbols
    keys = np.zeros(len(symbols), dtype=np.uint64)
    for place in range(symbols.shape[1]):
        keys = (keys ^ symbols[:, place]) * _MULTIPLIER
        keys ^= keys >> np.uint64(32)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    expected: FloatArray = np.bincount(where, extensions.expected, len(first)).astype(np.float64)
    return replace(extensions.take(first), expected=expected)


def _likely(
    symbols: SymbolArray, parents: IntArray, expected: FloatArray, least: float
) -> tuple[SymbolArray, IntArray, FloatArray]:
    kept = np.flatnonzero(expected >= least)
    if len(kept) == len(expected):  # as most often, from the second time on
        return symbols, parents, expected
    return symbols[kept], parents[kept], expected[kept]


class _Ladders:
    """For each context its symbols, the likeliest first, and how unlikely each is.

    Parameters
    ----------
    letters : Mixture
    """

    def __init__(self, letters: Mixture) -> None:
        self._letters = letters
        self._codes = np.zeros(0, dtype=np.int64)
        self._place_of = np.zeros(0, dtype=np.int64)
        self._symbols = np.zeros((0, N_SYMBOLS), dtype=np.uint16)
        self._chances = np.zeros((0, N_SYMBOLS), dtype=np.float32)
        self._rungs = np.zeros(0)

    def kinds(
        self, models: IntArray, before: IntArray, last: IntArray, states: IntArray
    ) -> IntArray:
        """Return the number of each prefix's context, shape (n,); new contexts are added."""
        before, last, states = self._letters.relevant(models, before, last, states)
        code = ((models * _BEFORES + before) * _CONTEXTS + last) * _STATES + states
        place = np.searchsorted(self._codes, code)
        known = np.append(self._codes, -1)[place] == code
        if not known.all():
            news = np.unique(code[~known])
            chances = self._chances_in(news)
            order = np.argsort(-chances, axis=1, kind="stable")
            chances = np.take_along_axis(chances, order, axis=1).astype(np.float32)
            with np.errstate(divide="ignore"):
                surprise = np.minimum(-np.log(chances, dtype=np.float64), _FAR)
            # One ascending sequence: each context's surprises, beyond those before it.
            surprise += 2 * _FAR * (len(self._symbols) + np.arange(len(surprise))[:, None])
            self._rungs = np.concatenate([self._rungs, surprise.ravel()])
            self._symbols = np.concatenate([self._symbols, order.astype(np.uint16)])
            self._chances = np.concatenate([self._chances, chances])
            known = np.concatenate([self._codes, news])
            places = np.concatenate([self._place_of, np.arange(len(known) - len(news), len(known))])
            ascending = np.argsort(known)
            self._codes, self._place_of = known[ascending], places[ascending]
            place = np.searchsorted(self._codes, code)
        return np.asarray(self._place_of[place])

    def _chances_in(self, codes: IntArray) -> FloatArray:
        """Return the chances of symbols in contexts, shape (c, 257)."""
        rest, states = np.divmod(codes, _STATES)
        rest, last = np.divmod(rest, _CONTEXTS)
        models, before = np.divmod(rest, _BEFORES)
        chances = np.empty((len(codes), N_SYMBOLS))
        for model in np.unique(models).tolist():
            rows = models == model
            chances[rows] = self._letters.chances(model, before[rows], last[rows], states[rows])
        return chances

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
