"""Whole strings by the step that is the first to show them whole.

A string that ends within a step's length is in that step's reports, and in all later ones, as a
whole. It was listed by what earlier steps showed, so all of these are left to test it. Invariant:
what a string is expected to have was set before any of them was looked at for its own sake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, hash_words, joined, of_words
from hubbub.inference.open_strings.steps import StepReports, offset_words
from hubbub.inference.regression.model import weighted_gram
from hubbub.protocol.metric_types.open_strings import TERMINATOR, OpenStringType
from hubbub.protocol.params import RapporParams

# Beside strings that are tested others are taken to be known from 3 standard errors on: weaker ones
# hardly scatter anything, and where reports are few hundreds of them fit noise alone.
_SURE_Z = 3.0
# Rows for each, so that what they take up of the noise, and of a tested string, is at most a
# fiftieth: errors are 1% too small then.
_ROWS_EACH = 50


@dataclass(frozen=True, slots=True)
class Family:
    """Strings that end within a step's length and not within the one before."""

    first: int  # the step's number: reports of that step and all later ones test them
    texts: list[bytes]  # UTF-8, all different
    expected: FloatArray  # shape (n,); the share that each is expected to have
    # Shape (n,); in which half of all strings each is, by chance (`Extensions.halves`).
    halves: IntArray
    # Shape (t,); what was expected of all that were looked for, those included that the step's
    # reports spoke against.
    tried: FloatArray
    halves_tried: IntArray  # shape (t,); in which half of all strings each of these is
    # Shape (2,); how many of each half are sure (`Explained.sure`) by the step's reports alone.
    standing_out: IntArray


def as_one(families: Sequence[Family]) -> Family:
    """Return the strings of all families, at least one, as if there were only the last step."""
    columns = {
        name: np.concatenate([getattr(family, name) for family in families])
        for name in ("expected", "halves", "tried", "halves_tried")
    }
    texts = [text for family in families for text in family.texts]
    standing_out = np.sum([family.standing_out for family in families], axis=0)
    return Family(0, texts, standing_out=standing_out, **columns)


@dataclass(frozen=True, slots=True)
class Explained:
    """What a step's model says of its rows."""

    reports: StepReports  # the step's, and the model
    sizes: IntArray  # shape (a,); how many bytes each of its members has before its string's end

    @property
    def sure(self) -> IntArray:
        """Members that hardly are noise, ascending: as many as the rows can carry."""
        fit = self.reports.fit
        z = fit.coefficients[1:] / np.sqrt(np.diag(fit.covariance)[1:])
        most = self.reports.bits.rate.size // _ROWS_EACH
        strongest = np.argsort(-z, kind="stable")[:most]
        return np.sort(strongest[z[strongest] > _SURE_Z])

    def beside(self, least: int, below: int) -> FloatArray:
        """Return the rates of sure members but those of so many bytes, as fitted without these.

        Beside a string that is tested the others' shares must not be what they are in a model that
        holds it: there its noise would be its own alone. So they are fitted anew, to rates in which
        it is one of those that nothing explains.

        Returns an array of shape (m, k).
        """
        fit, rates, sure = self.reports.fit, self.reports.bits.rate, self.sure
        others = sure[(self.sizes[sure] < least) | (self.sizes[sure] >= below)]
        basis = SparseMatrix(fit.basis[np.append(0, 1 + others)])
        gram = weighted_gram(basis, SparseMatrix(basis.T), fit.weights)
        sums = np.asarray(basis @ (fit.weights * rates.ravel()))
        shares = linalg.solve(gram, sums, assume_a="pos")
        return np.asarray(basis[1:].T @ shares[1:]).reshape(rates.shape)


def family_of(size: int, steps: Sequence[int]) -> int:
    """Return the number of the first step that shows strings of so many bytes whole."""
    return int(np.searchsorted(steps, size, side="right"))


def sizes_of(first: int, steps: Sequence[int]) -> tuple[int, int]:
    """Return from how many bytes on, and below how many, a step is the first to show strings whole.

    Of the last step, which shows all strings whole, as many as there may be.
    """
    return (steps[first - 1] if first else 0), (*steps, np.iinfo(np.int64).max)[first]


def whole_in(
    texts: Sequence[bytes], first: int, params: RapporParams, metric_type: OpenStringType
) -> Candidates:
    """Return whole strings with the positions that they have from a step on.

    `texts`: UTF-8, known to be distinct, which end within the step's length. `first`: the step's
    number. `params`: of one step.
    """
    strings, words = [text.decode() for text in texts], hash_words(texts)
    before = len(metric_type.steps) - first
    if not before:
        return of_words(strings, words, params)
    ended = hash_words([text + TERMINATOR for text in texts])
    moved = offset_words(ended, metric_type.hashed_cohort(first * params.m))
    of_all = params._replace(m=(before + 1) * params.m)
    return joined(strings, (moved, words), (before * params.m, params.m), of_all)
