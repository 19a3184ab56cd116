"""What goes on unlike anything that was found: a few new characters among those that occur.

Where strings change from one kind of character to others (the "T14:" of 2025-11-03T14:05), what was
learned misleads, and no fixed model fits. All characters that were found are alike here, wherever
they stood, and any other may come between them. So the extensions of a prefix are looked at by how
many new characters they have: all with one, and with two if they are short. Invariant: no
character is impossible.
"""

from __future__ import annotations

import string

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.open_strings.alphabets import LEAST_END, Alphabet, alphabets
from hubbub.inference.open_strings.letters import AlphabetModel, SymbolArray
from hubbub.inference.open_strings.prefixes import Prefixes

# Of the characters that follow: new ones, and of these, ones that separate and begin parts of
# strings in all scripts. Fewer would leave out some, more double what there is to look at.
_NEW, _NEW_COMMON = 0.3, 0.9
_COMMON = np.array(sorted(map(ord, string.ascii_letters + string.digits + " -.'_:/@,;=+#&|")))


class Unfamiliar:
    """One letter model (`LetterModels`) that knows which characters occur, and nothing else.

    Parameters
    ----------
    prefixes : Prefixes
        In which they occur.
    """

    def __init__(self, prefixes: Prefixes) -> None:
        texts = (text.decode(errors="ignore") for text in prefixes.texts(b""))
        found = np.array(sorted(map(ord, set().union(*texts))), dtype=np.int64)
        anything = alphabets()[-1]
        codes = np.unique(np.concatenate([anything.codes, _COMMON, found]))
        chances = np.zeros(len(codes))
        for part, some, of_each in (
            (_NEW * _NEW_COMMON, _COMMON, np.ones(len(_COMMON))),
            (_NEW * (1 - _NEW_COMMON), anything.codes, anything.chances),
            (1 - _NEW, found, np.ones(len(found))),
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
