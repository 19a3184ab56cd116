"""Letter models of all kinds of strings, each with a weight: what is expected of any population.

Fixed models stand for words, for what programs write, and for each script; one has learned which
bytes follow which. Their weights are learned from the prefixes that were found, and none is ever
zero: what the weights favour is listed first, and no more. It decides which extensions of a prefix
are worth looking at, so it costs detections where it is poor, never honesty; learning is
post-processing of reports and costs no privacy.

Where strings change from one kind of character to others (the "T14:" of 2025-11-03T14:05), what was
learned misleads, and no fixed model fits. There another model takes over (`UniformModel`): a
character is as likely as it was common in what was found, wherever it stood, and any other may come
between them. So the extensions of a prefix are looked at by how many new characters they have: all
with one, and with two if they are short. Invariant: no character is impossible.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.alphabets import LEAST_END, Alphabet, alphabets
from hubbub.inference.open_strings.letters import (
    ANYTHING,
    END,
    N_SYMBOLS,
    STATES,
    AlphabetModel,
    CharacterTree,
    Model,
    Ngrams,
    SymbolArray,
    WordModel,
    contexts_at,
    state_after,
    utf_8,
)
from hubbub.inference.open_strings.prefixes import Prefixes

# Part of the strings that are words, and of those whose letters are all equally common. Where what
# was learned or guessed misled, the latter are worth more.
_WORDS, _FLAT_WORDS = 0.5, 0.03
# Weight of what was learned: a tenth at first, when it is next to nothing, and at most 95%; symbols
# until it is halfway.
_LEAST_LEARNED, _MOST_LEARNED, _HALF_WAY = 0.1, 0.95, 20.0
# Prefixes that the weights at first stand for; rounds of expectation and maximisation.
_PRIOR_PREFIXES, _ROUNDS = 2.0, 3
_LEAST_LOG = -1e4  # stands for the logarithm of 0, and stays finite when it is added up
_N_WORDS = 2  # models, which come first: the two parts above
_ROW_BITS = 28  # of a context's row, behind the 27 bits of its symbols and state
# Limits of a corpus: bytes per line, lines that are learned from, lines that set the weights; found
# strings that it counts for.
_LONGEST, _MOST_LINES, _MOST_WEIGHED, _CORPUS_WEIGHT = 64, 100_000, 1_000, 500.0


@dataclass(frozen=True, slots=True)
class Mixture:
    """Models and how likely it is that each wrote a string."""

    ngrams: Ngrams  # what was learned; backs off to the others
    learned_weight: float  # how likely it is that a string follows that
    weights: FloatArray  # shape (c,); of the fixed models; sum to 1
    # All alphabets with their weights, which what was learned backs off to.
    characters: AlphabetModel
    prior: FloatArray  # shape (c,); weights before anything was found
    own: str  # the characters of the strings' own alphabet, if they are known

    @classmethod
    def at_start(cls, own: str = "") -> Mixture:
        """Return what is expected before anything was learned, but for the alphabet."""
        weights, learned = _fixed(own)[1], Ngrams.of_addresses()
        return cls(learned, _LEAST_LEARNED, weights, _blended(weights, own), weights, own)

    @classmethod
    def of_corpus(cls, texts: Sequence[bytes], own: str = "") -> Mixture:
        """Return what is expected of strings like some, each of which ends where it ends.

        `texts`: UTF-8; all count alike, and together no more than some hundred found strings.
        `own`: the characters of their alphabet, if they are known.
        """
        start = cls.at_start(own)
        some = [text[:_LONGEST] for text in texts[:: 1 + len(texts) // _MOST_LINES] if text]
        if not some:
            return start
        symbols = Prefixes.of_all(some, max(map(len, some)) + 1).symbols
        weights = np.full(len(some), min(1.0, _CORPUS_WEIGHT / len(some)))
        few = slice(None, None, 1 + len(some) // _MOST_WEIGHED)
        of_models = start._weighed(
            start.log_likelihoods(symbols[few]), np.full(len(some[few]), 1.0)
        )
        ngrams = start.ngrams.learned(symbols, weights, 0)
        return cls._of(ngrams, of_models, of_models, own)

    @classmethod
    def _of(cls, ngrams: Ngrams, weights: FloatArray, prior: FloatArray, own: str) -> Mixture:
        more = (_MOST_LEARNED - _LEAST_LEARNED) * ngrams.seen / (ngrams.seen + _HALF_WAY)
        learned = _LEAST_LEARNED + more
        return cls(ngrams, learned, weights, _blended(weights, own), prior, own)

    def unlearned(self) -> Mixture:
        """Return what is expected where what was learned misled, and frequencies of letters too."""
        weights = self.prior.copy()
        weights[[0, 1]] = weights[[1, 0]]
        return replace(self, learned_weight=0.0, weights=weights)

    def forgetful(self) -> Mixture:
        """Return what is expected where the learned letters give no information."""
        return replace(self, ngrams=Ngrams.nothing())

    def learned(self, symbols: SymbolArray, weights: FloatArray, begin: int) -> Mixture:
        """Return the mixture that has also seen some prefixes.

        `symbols`, shape (n, length): END from the end on. `weights`, shape (n,): how many times
        each counts. `begin`: the first place that wasn't learned before.
        """
        if not len(symbols):
            return self
        ngrams = self.ngrams.learned(symbols, weights, begin)
        log_likelihoods = self.log_likelihoods(symbols)
        found = self._of(ngrams, self._weighed(log_likelihoods, weights), self.prior, self.own)
        if not begin:
            return found
        gain, total = self._gain(symbols, begin, log_likelihoods), float(weights.sum())
        learned_weight = found.learned_weight
        for _ in range(_ROUNDS):
            posterior = special.expit(special.logit(learned_weight) + gain)
            learned_weight = _PRIOR_PREFIXES * found.learned_weight + float(weights @ posterior)
            learned_weight /= _PRIOR_PREFIXES + total
            learned_weight = min(max(learned_weight, _LEAST_LEARNED), _MOST_LEARNED)
        return replace(found, learned_weight=learned_weight)

    def _gain(self, symbols: SymbolArray, begin: int, log_likelihoods: FloatArray) -> FloatArray:
        """Return ln of how much better what was learned foretold the ends of prefixes, shape (n,).

        Better than the fixed models did, given how each prefix begins.
        """
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        whole, start = (
            special.logsumexp(some + log_weights, axis=1)
            for some in (log_likelihoods, self.log_likelihoods(symbols[:, :begin]))
        )
        states = np.zeros(len(symbols), dtype=np.int64)
        found = np.zeros(len(symbols))
        for place in range(symbols.shape[1]):
            before, last = contexts_at(symbols, place)
            symbol = symbols[:, place].astype(np.int64)
            rows = np.flatnonzero(last != END)
            if place >= begin and len(rows):
                learned = np.zeros(len(rows), dtype=np.int64)
                contexts = self.relevant(learned, before[rows], last[rows], states[rows])
                different, where = _different(*contexts)
                found[rows] += _log(self.chances(0, *different)[where, symbol[rows]])
            states = state_after(states, symbol)
        return np.asarray(found - (whole - start))

    def _weighed(self, log_likelihoods: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the fixed models' weights that make some prefixes likeliest, none of them 0."""
        chances, found = _relative(log_likelihoods), self.prior
        for _ in range(_ROUNDS):
            posterior = chances * found
            posterior /= posterior.sum(axis=1, keepdims=True)
            found = _PRIOR_PREFIXES * self.prior + weights @ posterior
            found /= found.sum()
        return np.asarray(found)

    def shares_of_models(self, symbols: SymbolArray) -> FloatArray:
        """Return how likely it is that each model goes on with each prefix, shape (n, 1 + c)."""
        posterior = _relative(self.log_likelihoods(symbols)) * self.weights
        posterior *= (1 - self.learned_weight) / posterior.sum(axis=1, keepdims=True)
        return np.column_stack([np.full(len(symbols), self.learned_weight), posterior])

    def log_likelihoods(self, symbols: SymbolArray) -> FloatArray:
        """Return ln of each fixed model's chance of each prefix, shape (n, c)."""
        n, length = symbols.shape
        found = np.zeros((n, len(self.weights)))
        states = np.zeros(n, dtype=np.int64)
        models, _, log_roots = _fixed(self.own)
        places: list[tuple[IntArray, ...]] = []
        for place in range(length):
            before, last = contexts_at(symbols, place)
            symbol = symbols[:, place].astype(np.int64)
            rows = np.flatnonzero(last != END)
            places.append((rows, before[rows], last[rows], states[rows], symbol[rows]))
            free = rows[states[rows] % STATES == 0]
            found[free, _N_WORDS:] += log_roots[:, symbol[free]].T
            states = state_after(states, symbol)
        everywhere = tuple(map(np.concatenate, zip(*places, strict=True))) if places else ()
        begun = tuple(each[everywhere[3] % STATES > 0] for each in everywhere)
        numbers_of = (range(_N_WORDS), range(_N_WORDS, len(models)))
        for some, numbers in zip((everywhere, begun), numbers_of, strict=True):
            if some and len(some[0]):
                rows, *contexts, symbol = some
                different, where = _different(*models[numbers[0]].relevant(*contexts))
                for number in numbers:
                    chances = models[number].chances(*different)[where, symbol]
                    found[:, number] += np.bincount(rows, _log(chances), n)
        return found

    def relevant(
        self, models: IntArray, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return the contexts with whatever doesn't matter to their models made alike.

        `models`, shape (n,): 0 for what was learned, and the fixed ones from 1. `before` and `last`
        and `states`, shape (n,): as of `Model`.
        """
        of_learned = np.where(states % STATES > 0, before, self.ngrams.matters(before, last))
        found = np.stack([of_learned, last, states])
        fixed, _, _ = _fixed(self.own)
        kinds = ((models > 0) & (models <= _N_WORDS), models > _N_WORDS)
        for rows, model in zip(kinds, (fixed[0], fixed[-1]), strict=True):
            some = model.relevant(before[rows], last[rows], states[rows])
            found[:, rows] = np.stack(some)
        return found[0], found[1], found[2]

    def chances(self, model: int, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:
        """Return the chance of each symbol in some contexts of a model, shape (c, 257)."""
        if model:
            return _fixed(self.own)[0][model - 1].chances(before, last, states)
        words = _fixed(self.own)[0][:_N_WORDS]
        start = np.zeros((len(last), N_SYMBOLS))
        for weight, fixed in zip(
            (*self.weights[:_N_WORDS], 1.0), (*words, self.characters), strict=True
        ):
            begun = weight * fixed.begun(before, last, states)
            start += begun[:, None] * fixed.chances(before, last, states)
        return self.ngrams.chances(before, last, states, utf_8(start, last, states))


@cache
def _fixed(own: str) -> tuple[tuple[Model, ...], FloatArray, FloatArray]:
    """Return the fixed models, their weights before anything was learned, and of characters.

    `weights`, shape (c,). `log_roots`, shape (c - 2, 257): ln of each alphabet's chances where a
    character begins.
    """
    of_alphabets = tuple(map(AlphabetModel, alphabets(own)))
    models: tuple[Model, ...] = (WordModel(), WordModel(flat=True), *of_alphabets)
    weights = np.array([_WORDS, _FLAT_WORDS, *(alphabet.weight for alphabet in alphabets(own))])
    log_roots = _log(np.array([model.root for model in of_alphabets]))
    return models, weights / weights.sum(), log_roots


def _blended(weights: FloatArray, own: str) -> AlphabetModel:
    """Return one model of all alphabets, each character as likely as they make it together."""
    of_each = weights[_N_WORDS:].tolist()
    codes, where, tree = _characters(own)
    parts = [
        weight * alphabet.chances for weight, alphabet in zip(of_each, alphabets(own), strict=True)
    ]
    chances: FloatArray = np.bincount(where, np.concatenate(parts)).astype(np.float64)
    end = LEAST_END * sum(of_each)
    return AlphabetModel(Alphabet(1.0, codes, chances, end, codes), tree)


@cache
def _characters(own: str) -> tuple[IntArray, IntArray, CharacterTree]:
    """Return the code points of all alphabets, which of them each alphabet's are, and their tree.

    Mixtures differ in nothing but chances.
    """
    codes, where = np.unique(
        np.concatenate([alphabet.codes for alphabet in alphabets(own)]), return_inverse=True
    )
    return codes, where, CharacterTree.of(codes)


def _different(
    before: IntArray, last: IntArray, states: IntArray
) -> tuple[tuple[IntArray, IntArray, IntArray], IntArray]:
    """Return each context once, and which of these each is.

    Sorting numbers is several times as fast as finding their order, so each has its row behind it.
    """
    codes = (before * (ANYTHING + 1) + last) * N_SYMBOLS * STATES + states
    in_order = np.sort(codes << _ROW_BITS | np.arange(len(codes)))
    rows, codes = in_order & ((1 << _ROW_BITS) - 1), in_order >> _ROW_BITS
    is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
    where = np.empty(len(rows), dtype=np.int64)
    where[rows] = np.cumsum(is_first) - 1
    first = rows[is_first]
    return (before[first], last[first], states[first]), where


def _log(chances: FloatArray) -> FloatArray:
    possible = chances > 0
    return np.where(possible, np.log(np.where(possible, chances, 1.0)), _LEAST_LOG)


def _relative(log_likelihoods: FloatArray) -> FloatArray:
    return np.asarray(np.exp(log_likelihoods - log_likelihoods.max(axis=1, keepdims=True)))


# Parts of the characters that follow: new ones, and of these, ones that separate and begin parts
# of strings in all scripts. Fewer would leave out some, more double the search. Half of the others
# are as common as they were, and half are all alike, since there may be few to count.
_NEW, _NEW_COMMON = 0.3, 0.9
_COMMON = np.array(sorted(map(ord, string.ascii_letters + string.digits + " -.'_:/@,;=+#&|")))


class UniformModel:
    """One letter model (`LetterModels`) that knows how common characters are, and nothing else.

    `prefixes`: in which they occur.
    """

    def __init__(self, prefixes: Prefixes) -> None:
        text = "".join(text.decode(errors="ignore") for text in prefixes.texts(b""))
        found, times = np.unique(np.array(list(map(ord, text)), dtype=np.int64), return_counts=True)
        anything = alphabets()[-1]
        codes = np.unique(np.concatenate([anything.codes, _COMMON, found]))
        chances = np.zeros(len(codes))
        for part, some, of_each in (
            (_NEW * _NEW_COMMON, _COMMON, np.ones(len(_COMMON))),
            (_NEW * (1 - _NEW_COMMON), anything.codes, anything.chances),
            (1 - _NEW, found, times / max(len(text), 1) + 1 / max(len(found), 1)),
        ):
            chances[np.searchsorted(codes, some)] += part * of_each / max(of_each.sum(), 1e-300)
        chances *= (1 - LEAST_END) / chances.sum()
        self._model = AlphabetModel(Alphabet(1.0, codes, chances, LEAST_END, found))

    def shares_of_models(self, symbols: SymbolArray) -> FloatArray:
        """Return 1 for each prefix: there is one model, shape (n, 1)."""
        return np.ones((len(symbols), 1))

    def relevant(
        self,
        models: IntArray,  # noqa: ARG002
        before: IntArray,
        last: IntArray,
        states: IntArray,
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Keep the bytes of an unfinished character, and nothing else."""
        return self._model.relevant(before, last, states)

    def chances(self, model: int, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:  # noqa: ARG002
        """Return the chances of first bytes, or of those that follow in a character."""
        return self._model.chances(before, last, states)
