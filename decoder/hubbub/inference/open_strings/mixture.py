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

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.letters import (
    ANYTHING,
    END,
    LEAST_END,
    N_SYMBOLS,
    STATES,
    Alphabet,
    AlphabetModel,
    CharacterTree,
    Ngrams,
    SymbolArray,
    WordModel,
    alphabets,
    contexts_at,
    state_after,
    utf_8,
)
from hubbub.inference.open_strings.prefixes import Prefixes

_WORDS = 0.5  # part of the strings that are words
# Weight of what was learned: a tenth at first, when it is next to nothing, and at most 95%; symbols
# until it is halfway.
_LEAST_LEARNED, _MOST_LEARNED, _HALF_WAY = 0.1, 0.95, 20.0
# Prefixes that the weights at first stand for; rounds of expectation and maximisation.
_PRIOR_PREFIXES, _ROUNDS = 2.0, 3
# Chance of a first byte that isn't ASCII, in words of English letters: others are other models'.
_OTHER_CHARACTER = 1e-3
_LEAST_LOG = -1e4  # stands for the logarithm of 0, and stays finite when it is added up
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
        weights = _fixed(own)[1]
        return cls._of(Ngrams.nothing(), weights, weights, own)

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
        """Return what is expected where what was learned misled, and English frequencies too."""
        weights = np.append(0.0, self.prior[1:])
        return replace(self, learned_weight=0.0, weights=weights / weights.sum())

    def learned(self, symbols: SymbolArray, weights: FloatArray, begin: int) -> Mixture:
        """Return the mixture that has also seen some prefixes.

        `symbols`, shape (n, length): END from the end on. `weights`, shape (n,): how many times
        each counts. `begin`: the first place that wasn't learned before.
        """
        if not len(symbols):
            return self
        ngrams = self.ngrams.learned(symbols, weights, begin)
        of_models = self._weighed(self.log_likelihoods(symbols), weights)
        return self._of(ngrams, of_models, self.prior, self.own)

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
        models, _, log_roots = _fixed(self.own)
        found = np.zeros((len(symbols), len(models)))
        states = np.zeros(len(symbols), dtype=np.int64)
        for place in range(symbols.shape[1]):
            before, last = contexts_at(symbols, place)
            symbol, begun = symbols[:, place].astype(np.int64), states % STATES > 0
            live = np.flatnonzero(last != END)
            free = live[~begun[live]]
            found[free, 1:] += log_roots[:, symbol[free]].T
            for rows, numbers in ((live, [0]), (np.flatnonzero(begun), range(1, len(models)))):
                relevant = models[numbers[0]].relevant(before[rows], last[rows], states[rows])
                contexts, where = _different(*relevant)
                for number in numbers if len(rows) else ():
                    chances = models[number].chances(*contexts)
                    found[rows, number] += _log(chances[where, symbol[rows]])
            states = state_after(states, symbol)
        return found

    def relevant(
        self, models: IntArray, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return the contexts with whatever doesn't matter to their models made alike.

        `models`, shape (n,): 0 for what was learned, and the fixed ones from 1. `before` and `last`
        and `states`, shape (n,): as of `AlphabetModel.relevant`.
        """
        of_learned = np.where(states % STATES > 0, before, self.ngrams.matters(before, last))
        found = np.stack([of_learned, last, states])
        fixed, _, _ = _fixed(self.own)
        for rows, model in ((models == 1, fixed[0]), (models > 1, fixed[-1])):
            found[:, rows] = np.stack(model.relevant(before[rows], last[rows], states[rows]))
        return found[0], found[1], found[2]

    def chances(self, model: int, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:
        """Return the chance of each symbol in some contexts of a model, shape (c, 257)."""
        if model:
            return _fixed(self.own)[0][model - 1].chances(before, last, states)
        words, begun = _fixed(self.own)[0][0], self.characters.begun(before, last, states)
        of_words = self.weights[0] * np.where(states % STATES > 0, _OTHER_CHARACTER, 1.0)
        start = of_words[:, None] * words.chances(before, last, states)
        start += begun[:, None] * self.characters.chances(before, last, states)
        return self.ngrams.chances(before, last, states, utf_8(start, last, states))


@cache
def _fixed(own: str) -> tuple[tuple[WordModel | AlphabetModel, ...], FloatArray, FloatArray]:
    """Return the fixed models, their weights before anything was learned, and of characters.

    `weights`, shape (c,). `log_roots`, shape (c - 1, 257): ln of each alphabet's chances where a
    character begins.
    """
    of_alphabets = tuple(map(AlphabetModel, alphabets(own)))
    weights = np.array([_WORDS, *(alphabet.weight for alphabet in alphabets(own))])
    log_roots = _log(np.array([model.root for model in of_alphabets]))
    return (WordModel(), *of_alphabets), weights / weights.sum(), log_roots


def _blended(weights: FloatArray, own: str) -> AlphabetModel:
    """Return one model of all alphabets, each character as likely as they make it together."""
    codes, where, tree = _characters(own)
    of_each = weights[1:].tolist()
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
    """Return each context once, and which of these each is."""
    codes = (before * (ANYTHING + 1) + last) * N_SYMBOLS * STATES + states
    _, first, where = np.unique(codes, return_index=True, return_inverse=True)
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
