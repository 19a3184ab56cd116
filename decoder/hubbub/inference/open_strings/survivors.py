"""Prefixes that one step hands to the next, with what is known of each, and what they teach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.open_strings.prefixes import Prefixes
from hubbub.inference.open_strings.steps import SATURATION

LEAST_EXPECTED = 1e-5
"""Standard errors: what less is expected of is hardly ever common enough to be found. The room that
this leaves goes to the steps at which letters are hard to guess.
"""
LEAST_SHARE = 0.3
"""Standard errors that a prefix has at least, and leaves to others: an estimate below tells no more
than one at 0.
"""
FEW = 20
"""Prefixes, each of which then has a twentieth of a look's room at least."""


@dataclass(frozen=True, slots=True)
class Survivors:
    """Prefixes of one length that the next step sets out from."""

    prefixes: Prefixes
    # Shape (n,); the estimate, at least a part of its error; how sure it is that there is such a
    # prefix.
    share: FloatArray
    real: FloatArray
    strong: BoolArray  # shape (n,); whether that is beyond doubt
    std_error: float  # of the shares

    @classmethod
    def all_below(cls, start: bytes) -> Self:
        """Return the one prefix that all strings have that are looked for."""
        one = np.ones(1)
        return cls(Prefixes.of(start), one, one, np.zeros(1, dtype=np.bool_), 0.0)

    @property
    def expected(self) -> FloatArray:
        """Shares without what noise adds to the largest of many."""
        return self.share * self.real

    @property
    def worth(self) -> FloatArray:
        """How much room each should have: its share, but of common ones less than in proportion.

        How many of its extensions are common enough to be found grows slowly with its share.
        """
        return self.worth_of(self.expected)

    def worth_of(self, expected: FloatArray) -> FloatArray:
        """Return the same of other expected shares."""
        if not self.std_error:
            return expected
        enough = SATURATION * self.std_error
        beyond = np.log(np.maximum(expected / enough, 1.0))
        return np.asarray(np.minimum(expected, enough) * (1 + beyond))

    def worth_left(self, of: IntArray, explained: FloatArray, std_error: float) -> FloatArray:
        """Return how much room prefixes should have of whose shares a part is explained.

        `of`, shape (e,): which of these prefixes; any number of times. `explained`, shape (e,):
        shares of what goes on from them. `std_error`: of those shares.
        """
        expected = self.expected[of]
        least = np.minimum(expected, LEAST_SHARE * std_error)
        return self.worth_of(np.maximum(expected - explained, least))

    @property
    def length(self) -> int:
        """In bytes."""
        return self.prefixes.length


def lesson(expected: FloatArray) -> FloatArray:
    """Return how many times each prefix counts for the letter model.

    In proportion to its share, and together as many times as there are different prefixes, if
    these were equally common: (sum x)^2 / sum x^2 (Kish 1965).
    """
    total, squares = float(expected.sum()), float(expected @ expected)
    return expected * (total / squares) if squares > 0 else expected
