"""What goes on unlike anything that was found: a few new characters among those that occur.

Where strings change from one kind of character to others (the "T14:" of 2025-11-03T14:05), what was
learned misleads, and no fixed model fits. Here a character is as likely as it was common in what
was found, wherever it stood, and any other may come between them. So the extensions of a prefix are
looked at by how many new characters they have: all with one, and with two if they are short.
Invariant: no character is impossible.
"""

from __future__ import annotations

import string

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.alphabets import LEAST_END, Alphabet, alphabets
from hubbub.inference.open_strings.letters import AlphabetModel, SymbolArray
from hubbub.inference.open_strings.prefixes import Prefixes

# Of the characters that follow: new ones, and of these, ones that separate and begin parts of
# strings in all scripts. Fewer would leave out some, more double what there is to look at. Of the
# others half are as common as they were, and half are all alike, since there may be few to count.
_NEW, _NEW_COMMON = 0.3, 0.9
_COMMON = np.array(sorted(map(ord, string.ascii_letters + string.digits + " -.'_:/@,;=+#&|")))


class Unfamiliar:
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
