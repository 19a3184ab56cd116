"""Prefixes -> the extensions of them that are worth looking at, best first.

A prefix's share times a letter model's chance of what is added is the share that an extension is
expected to have, if that model goes on with it. Symbol by symbol those stay whose expected share is
above a limit, which is set so that about as many stay as there is room for. A model is followed as
an automaton: from a context its symbols lead, the likeliest first, to the contexts behind them.
Invariant: what is kept doesn't depend on order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.letters import (
    END,
    LEAST_END,
    N_SYMBOLS,
    STATES,
    SymbolArray,
    state_after,
)
from hubbub.inference.open_strings.prefixes import KeyArray, Prefixes, longer_keys, unseen


class LetterModels(Protocol):
    """Letter models that each go on with a part of a prefix's strings."""

    def shares_of_models(self, symbols: SymbolArray) -> FloatArray:
        """Return how likely it is that each model goes on with each prefix, shape (n, c)."""

    def relevant(
        self, models: IntArray, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return the contexts with whatever doesn't matter to their models made alike."""

    def chances(self, model: int, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:
        """Return the chance of each symbol in some contexts of a model, shape (c, 257)."""


MassArray = NDArray[np.float32]
"""ln of shares, or of chances: steering asks for no more digits."""

# Prefixes by which the least mass is chosen that fills the room; it decides how many are listed,
# not what is found of them.
_SAMPLED = 5_000
_BEFORES, _CONTEXTS, _STATES = 259, 258, 256 * STATES
# Where whole strings are asked for, what goes on must still end, and is worth as much less.
_UNENDED = np.float32(-np.log(LEAST_END))
# A model that goes on with less of a prefix than this isn't asked.
_LEAST_PART = 1e-7


@dataclass(frozen=True, slots=True)
class Extensions:
    """Extended prefixes."""

    prefixes: Prefixes
    parents: IntArray  # shape (n,); which prefix each comes from
    expected: FloatArray  # shape (n,); the share that it is expected to have

    def __len__(self) -> int:
        return len(self.prefixes)

    @classmethod
    def none(cls, length: int) -> Extensions:
        """Return no extensions, of some length."""
        nothing = np.zeros(0, dtype=np.int64)
        prefixes = Prefixes.of_all([], length)
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


class _Added(NamedTuple):
    """One more symbol behind each of some prefixes."""

    behind: IntArray  # shape (n,); which of the prefixes that are one symbol shorter
    symbols: SymbolArray  # shape (n,)


class _Ended(NamedTuple):
    """Prefixes that have no more symbols, all of one length."""

    rows: IntArray  # shape (n,); which of that length
    masses: MassArray  # shape (n,)
    keys: KeyArray  # shape (n,)
    added: int  # how many symbols were added

    def keys_of(self, added: int) -> KeyArray:
        """Return the keys if so many symbols had been added, END behind those that were."""
        keys = self.keys
        for _ in range(self.added, added):
            keys = longer_keys(keys, np.uint16(END))
        return keys

    def take(self, rows: IntArray) -> _Ended:
        return _Ended(self.rows[rows], self.masses[rows], self.keys[rows], self.added)


class _Grown(NamedTuple):
    """Extensions that aren't spelled yet, of one model each."""

    # The prefix that was extended, for each model that continues it.
    parents: IntArray
    added: list[_Added]  # the symbols, place by place, as long as any go on
    ended: list[_Ended]  # all extensions


def extend(
    prefixes: Prefixes,
    shares: FloatArray,
    length: int,
    room: int,
    letters: LetterModels,
    seen: KeyArray | None = None,
    *,
    least: float = 0.0,
    whole: bool = False,
) -> Extensions:
    """Extend prefixes to a length, whole strings staying as they are.

    `prefixes`: prefixes of at most `length` bytes. `shares`, shape (n,): above 0. `length`: how
    many bytes the extensions have. `room`: about how many extensions to list at most. `letters`:
    how likely each byte is to follow. `seen`: keys of extensions that aren't to be returned,
    ascending. `least`: of which less is expected isn't listed. `whole`: whether only whole strings
    are.
    """
    floor = np.float32(np.log(least) if least else -np.inf)
    grown = _grown(prefixes, shares, length, room, letters, floor, whole=whole)
    width = prefixes.length + len(grown.added) if whole else length
    return _spelled(prefixes, length, width, grown, seen)


def _grown(
    prefixes: Prefixes,
    shares: FloatArray,
    length: int,
    room: int,
    letters: LetterModels,
    floor: np.float32,
    *,
    whole: bool,
) -> _Grown:
    """Add symbols to prefixes as long as they are above `floor` and there is room (`extend`)."""
    unended = _UNENDED if whole else np.float32(0)
    automaton = _Automaton(letters)
    parts = letters.shares_of_models(prefixes.symbols)
    parents, models = np.nonzero(parts > _LEAST_PART)
    masses = np.log(shares[parents] * parts[parents, models]).astype(np.float32)
    keys, going = prefixes.keys[parents], ~prefixes.whole[parents]
    rows = np.flatnonzero(~going)
    ended = [_Ended(rows, masses[rows], keys[rows], 0)]
    rows = np.flatnonzero(going)
    before, last = prefixes.last_two()
    contexts = automaton.contexts(
        models[rows], *(each[parents[rows]] for each in (before, last, prefixes.states))
    )
    masses, keys = masses[rows], keys[rows]
    added: list[_Added] = []
    for place in range(prefixes.length, length):
        n_going = len(masses)
        of_ended = np.concatenate([each.masses for each in ended])
        limit = max(floor, automaton.limit(contexts, masses, of_ended, room, unended))
        behind, arcs = automaton.above(contexts, masses, limit, unended)
        symbols = automaton.symbols[arcs]
        masses = masses[behind] - automaton.surprise[arcs]
        keys = longer_keys(keys[behind], symbols)
        ended = [each.take(np.flatnonzero(each.masses > limit)) for each in ended]
        added.append(_Added(rows[behind], symbols))
        is_end = symbols == END
        rows = np.flatnonzero(is_end)
        ended.append(_Ended(rows, masses[rows], keys[rows], len(added)))
        rows = np.flatnonzero(~is_end)
        masses, keys = masses[rows], keys[rows]
        if not n_going:  # what has ended fits into the room now, and stays
            break
        if place < length - 1:
            contexts = automaton.after(arcs[rows])
    if not whole:
        ended.append(_Ended(rows, masses, keys, len(added)))
    return _Grown(parents, added, ended)


def _spelled(
    prefixes: Prefixes, length: int, width: int, grown: _Grown, seen: KeyArray | None
) -> Extensions:
    """Return each extension once, with what all models expect of it.

    `prefixes`: what was extended. `length`: of the extensions, by which their keys are made.
    `width`: how many symbols of each to keep: all are END beyond. `grown`: all extensions, of each
    model. `seen`: keys of those that aren't asked for, ascending.
    """
    begin, (parents, added, ended) = prefixes.length, grown
    chosen, expected, keys = _each_once(ended, length - begin)
    if seen is not None:
        new = np.flatnonzero(unseen(keys, seen))
        chosen, expected, keys = chosen[new], expected[new], keys[new]
    symbols = np.full((len(chosen), width), END, dtype=np.uint16)
    of = np.empty(len(chosen), dtype=np.int64)
    edges = np.cumsum([0, *(len(each.rows) for each in ended)]).tolist()
    for some, (low, high) in zip(ended, pairwise(edges), strict=True):
        mine = np.flatnonzero((low <= chosen) & (chosen < high))
        rows = some.rows[chosen[mine] - low]
        for number in reversed(range(some.added)):
            symbols[mine, begin + number] = added[number].symbols[rows]
            rows = added[number].behind[rows]
        of[mine] = parents[rows]
    symbols[:, :begin] = prefixes.symbols[of]
    return Extensions(Prefixes(symbols, keys), of, expected)


def _each_once(ended: Sequence[_Ended], added: int) -> tuple[IntArray, FloatArray, KeyArray]:
    """Return one row of each extension among all, what is expected of it, and its key, ascending.

    `added`: how many symbols keys are of, those of the prefix apart.
    """
    keys = np.concatenate([each.keys_of(added) for each in ended])
    order = _order(keys)
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    keys = keys[first]
    masses = np.concatenate([each.masses for each in ended])[order]
    expected = np.exp(masses, dtype=np.float64)
    expected = np.add.reduceat(expected, first) if len(first) else expected
    return order[first], expected, keys


def _order(keys: KeyArray) -> IntArray:
    """Return the order in which keys ascend.

    Sorting numbers is several times as fast as finding their order, so the last bits of each make
    place for its row; the first ones suffice unless two keys have them in common.
    """
    mask = np.uint64((1 << len(keys).bit_length()) - 1)
    ordered = np.sort((keys & ~mask) | np.arange(len(keys), dtype=np.uint64))
    order = (ordered & mask).astype(np.int64)
    if (keys[order[1:]] < keys[order[:-1]]).any():
        return np.argsort(keys, kind="stable")
    return order


class _Automaton:
    """From each context an arc for each symbol, the likeliest first, to the context behind it.

    An arc's number is its context's times 257, plus its rank. What doesn't matter to a model isn't
    in its contexts (`LetterModels.relevant`), and what will matter behind a symbol always is.

    `symbols`, shape (c * 257,): of arcs. `surprise`, shape (c * 257,): -ln of their chances,
    infinite for symbols that can't follow.
    """

    def __init__(self, letters: LetterModels) -> None:
        self._letters = letters
        self._codes = np.zeros(0, dtype=np.int64)
        self._number_of = np.zeros(0, dtype=np.int64)
        self._code_of = np.zeros(0, dtype=np.int64)
        self._behind = np.zeros(0, dtype=np.int32)  # -1 where no one has asked
        self._ends = np.zeros(0, dtype=np.int64)  # of each context the arc that ends a string
        self.symbols: SymbolArray = np.zeros(0, dtype=np.uint16)
        self.surprise: MassArray = np.zeros(0, dtype=np.float32)

    def contexts(
        self, models: IntArray, before: IntArray, last: IntArray, states: IntArray
    ) -> IntArray:
        """Return the numbers of contexts, shape (n,); new ones are added."""
        before, last, states = self._letters.relevant(models, before, last, states)
        code = ((models * _BEFORES + before) * _CONTEXTS + last) * _STATES + states
        place = np.searchsorted(self._codes, code)
        known = np.append(self._codes, -1)[place] == code
        if not known.all():
            self._add(np.array(sorted(set(code[~known].tolist()))))
            place = np.searchsorted(self._codes, code)
        return np.asarray(self._number_of[place])

    def _add(self, codes: IntArray) -> None:
        chances = self._chances_in(codes)
        with np.errstate(divide="ignore"):
            surprise = np.abs(np.log(chances.astype(np.float32)))
        # The bits of positive numbers are in the order of the numbers.
        ranked = surprise.view(np.uint32).astype(np.uint64) << np.uint64(16)
        ranked |= np.arange(N_SYMBOLS, dtype=np.uint64)
        ranked.sort(axis=1)
        surprise = (ranked >> np.uint64(16)).astype(np.uint32).view(np.float32)
        symbols = ranked.astype(np.uint16)
        ends = len(self.symbols) + np.arange(0, symbols.size, N_SYMBOLS)
        self._ends = np.concatenate([self._ends, ends + (symbols == END).argmax(axis=1)])
        self.symbols = np.concatenate([self.symbols, symbols.ravel()])
        self.surprise = np.concatenate([self.surprise, surprise.ravel()])
        self._behind = np.concatenate([self._behind, np.full(ranked.size, -1, dtype=np.int32)])
        self._code_of = np.concatenate([self._code_of, codes])
        self._number_of = np.argsort(self._code_of)
        self._codes = self._code_of[self._number_of]

    def _chances_in(self, codes: IntArray) -> FloatArray:
        models, before, last, states = _decoded(codes)
        chances = np.empty((len(codes), N_SYMBOLS))
        for model in sorted(set(models.tolist())):
            rows = models == model
            chances[rows] = self._letters.chances(model, before[rows], last[rows], states[rows])
        return chances

    def after(self, arcs: IntArray) -> IntArray:
        """Return the contexts that arcs lead to, shape (n,)."""
        found = self._behind[arcs]
        if (found < 0).any():
            wanted = np.zeros(len(self._behind), dtype=np.bool_)
            wanted[arcs[found < 0]] = True
            new = np.flatnonzero(wanted)
            models, _, last, states = _decoded(self._code_of[new // N_SYMBOLS])
            symbols = self.symbols[new].astype(np.int64)
            behind = self.contexts(models, last, symbols, state_after(states, symbols))
            self._behind[new] = behind
            found = self._behind[arcs]
        return found.astype(np.int64)

    def limit(
        self,
        contexts: IntArray,
        masses: MassArray,
        whole: MassArray,
        room: int,
        unended: np.float32,
    ) -> np.float32:
        """Return the limit above which about as many stay as there is room for.

        `contexts` has shape (n,). `masses` and `whole`, shape (n,) and (w,): of prefixes that go
        on, and of those that don't. `unended`: by how much more the masses of those that go on must
        be above it.
        """
        step = 1 + len(masses) // _SAMPLED
        surprise = self.surprise.reshape(-1, N_SYMBOLS)[contexts[::step]]
        goes_on = self.symbols.reshape(-1, N_SYMBOLS)[contexts[::step]] != END
        longer = (masses[::step, None] - surprise - unended * goes_on).ravel()
        longer = np.concatenate([longer[longer > -np.inf], whole[::step]])
        place = len(longer) - 1 - room // step
        return np.partition(longer, place)[place] if place >= 0 else np.float32(-np.inf)

    def above(
        self, contexts: IntArray, masses: MassArray, limit: np.float32, unended: np.float32
    ) -> tuple[IntArray, IntArray]:
        """Return rows, and arcs from their contexts, behind which the mass is above a limit.

        Above it by `unended` where the arc goes on: of these there are too many to list all.
        """
        rows, arcs = np.arange(len(masses)), contexts * N_SYMBOLS
        left = masses - (limit + unended)
        found = [(rows[:0], arcs[:0])]
        while len(rows):
            stay = np.flatnonzero(left > self.surprise[arcs])
            rows, arcs, left = rows[stay], arcs[stay], left[stay]
            found.append((rows, arcs))
            arcs = arcs + 1  # the next likely symbol; the last one of a context can never follow
        rows, arcs = (np.concatenate(some) for some in zip(*found, strict=True))
        if unended:
            goes_on = np.flatnonzero(self.symbols[arcs] != END)
            ends = self._ends[contexts]
            ended = np.flatnonzero(masses - limit > self.surprise[ends])
            rows = np.concatenate([rows[goes_on], ended])
            arcs = np.concatenate([arcs[goes_on], ends[ended]])
        return rows, arcs


def _decoded(codes: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    rest, states = np.divmod(codes, _STATES)
    rest, last = np.divmod(rest, _CONTEXTS)
    models, before = np.divmod(rest, _BEFORES)
    return models, before, last, states
