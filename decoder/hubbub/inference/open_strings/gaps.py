"""Common prefixes of which most or much is missing, and how much more is looked at below them.

A prefix beyond doubt whose share the extensions that were found don't make up has others, which
weren't looked for. Invariant: a gap follows from what was found, never from what wasn't looked for.

Prefixes that one step hands to the next, with what is known of each, and what they teach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.open_strings.extension import Extensions, LetterModels, extend
from hubbub.inference.open_strings.prefixes import KeyArray, Prefixes
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


FAR_Z = 16.0
"""Standard errors of a step beyond which what is missing is worth seconds: even half of it is found
at every later step, nearly.
"""
MORE_ROOM = 4
"""Times the room that is looked at below all gaps."""
BLIND_ROOM = 10
"""Times the room that is looked at where next to nothing was found."""
_BLIND = 0.9  # of the mass unexplained, though it must be there: nothing was found
# A common prefix without extensions: 4 errors of both shares, of 3,000 prefixes .1 by chance. What
# is missing may be many rare ones, that can't be found, unless it is half of the share.
_UNEXPLAINED_Z = 4.0
_GAP_PART = 0.5
# Each part takes no more memory than another look.
_PARTS = 3


class Gaps(NamedTuple):
    """Strong prefixes that go on, and of whose share most or much is missing."""

    # Shape (g,); which prefixes, ascending: the largest, and first those of which most is missing.
    rows: IntArray
    missing: FloatArray  # shape (g,); how much of each one's share
    is_most: BoolArray  # shape (g,); whether that is most of it
    is_blind: bool  # whether hardly anything was found of what all strong prefixes have

    def largest(self, beyond: float = 0.0) -> IntArray:
        """Return those of which most is missing, and more than a share, the largest gap first."""
        some = np.flatnonzero(self.is_most & (self.missing > beyond))
        return self.rows[some[np.argsort(-self.missing[some], kind="stable")]]


def gaps_of(parents: Survivors, of: IntArray, shares: FloatArray, std_error: float) -> Gaps:
    """Return the gaps that some extensions leave.

    `parents`: the prefixes, n of them. `of`, shape (e,): whose extension each is that was found.
    `shares`, shape (e,): of these. `std_error`: of each.
    """
    n = len(parents.prefixes)
    error = std_error * np.sqrt(1 + np.bincount(of, minlength=n))
    explained = np.bincount(of, shares, n).astype(np.float64)
    missing, going = parents.share - explained, parents.strong & ~parents.prefixes.whole
    is_most = missing > _GAP_PART * parents.share
    rows = np.flatnonzero(
        going
        & (missing > _UNEXPLAINED_Z * np.hypot(error, parents.std_error))
        & (is_most | (missing > FAR_Z * std_error))
    )
    rows = np.sort(rows[np.lexsort((-missing[rows], ~is_most[rows]))[:FEW]])
    least = (1 - _BLIND) * float(parents.share[going].sum())
    is_blind = len(rows) > 0 and float(explained[going].sum()) < least
    return Gaps(rows, missing[rows], is_most[rows], is_blind)


def extended_in_parts(
    prefixes: Prefixes,
    shares: FloatArray,
    length: int,
    room: int,
    letters: LetterModels,
    seen: KeyArray | None = None,
    *,
    whole: bool = False,
) -> Iterator[Extensions]:
    """Extend prefixes as `extend` does, a part of the extensions after the other.

    `prefixes` and `shares` and `length` and `room` and `letters` and `seen` and `whole`: as
    `extend` has them.
    """
    begun = extend(prefixes, shares, prefixes.length + 1, room, letters)
    for part in range(_PARTS):
        some = begun.take(np.arange(part, len(begun), _PARTS))
        if len(some):
            found = extend(
                some.prefixes, some.expected, length, room // _PARTS, letters, seen, whole=whole
            )
            yield Extensions(found.prefixes, some.parents[found.parents], found.expected)
