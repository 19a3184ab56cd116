"""Prefixes -> whole strings: which to test in the last step's reports, and what to expect of each.

How strings end no step has shown, so they are listed twice: by what the steps taught, and by what
the last step's own reports show of their ends. Invariant: strings fall into two halves by chance,
and what is found in one half teaches what is expected of the other alone, and what a string that
was found has of its prefix is left to no others. So no string's own reports weigh its test
(cross-weighting: Ignatiadis, Huber 2021).

Whole strings by the step that is the first to show them whole.

A string that ends within a step's length is in that step's reports, and in all later ones, as a
whole. It was listed by what earlier steps showed, so all of these are left to test it. Invariant:
what a string is expected to have was set before any of them was looked at for its own sake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, hash_words, joined, of_words
from hubbub.inference.open_strings.extension import Extensions, extend
from hubbub.inference.open_strings.letters import END
from hubbub.inference.open_strings.mixture import Mixture, UniformModel
from hubbub.inference.open_strings.steps import (
    BLIND_ROOM,
    FEW,
    LEAST_EXPECTED,
    MORE_ROOM,
    Gaps,
    RetainedPrefixes,
    StepReports,
    extended_in_parts,
    gaps_of,
    offset_words,
    training_weights,
)
from hubbub.inference.regression.model import weighted_gram
from hubbub.protocol import TERMINATOR, OpenStringType, RapporParams

# When strings are tested, others count as known from 3 standard errors on: weaker ones hardly
# scatter anything, and where reports are few, hundreds of them fit noise alone.
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


def merge_families(families: Sequence[Family]) -> Family:
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
    """A step's reports and the members of its model."""

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

    def other_rates(self, least: int, below: int) -> FloatArray:
        """Return the rates of sure members but those of so many bytes, as fitted without these.

        While a string is tested the others' shares must not come from a model that holds it: its
        noise would be its own alone there. So they are fitted again, to rates in which it is one
        of those that nothing explains.

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


LONGEST_END = 64
"""How many bytes longer than the last prefix a string may be."""

# Ends that the model without lessons spells get a third of the room, and a quarter of the weight:
# where few prefixes are strong, twice the room, since time is left.
_UNLEARNED, _UNLEARNED_WORTH = 3, 0.25
# Part of a half's weight that is kept for the ends expected at first, since a few strings teach
# little. As many prefixes as stand against what is found, as the mixture has them.
_FIRST_PART = 0.1
_PRIOR_ENDS = 2.0
_TINY = 1e-300  # keeps quotients finite


class Dropped(NamedTuple):
    """Strings that the reports speak against, so that they aren't tested."""

    expected: FloatArray  # shape (n,); what was expected of each
    halves: IntArray  # shape (n,); in which half each is

    def joined(self, others: Extensions, dropped: BoolArray) -> Dropped:
        """Return these and those that are dropped of others."""
        return Dropped(
            np.append(self.expected, others.expected[dropped]),
            np.append(self.halves, others.halves[dropped]),
        )


class LearnedSuffixes(NamedTuple):
    """Strings longer than the last prefix, as learned from the last step's reports."""

    strings: Extensions  # these, and what is expected of them
    dropped: Dropped  # what else was looked for
    explained: Explained  # the model of a quick look at whole strings
    # Shape (2,); how many of each half of the strings are sure in that look (`Explained.sure`).
    standing_out: IntArray


def ends_of(survivors: RetainedPrefixes, room: int, letters: Mixture) -> Extensions:
    """Return whole strings that begin with what was found.

    What was learned misleads where few prefixes taught it, so those that are beyond doubt are also
    extended by the model that knows nothing, far if they are few, and by anything unfamiliar.

    `survivors`: the prefixes that were found last. `room`: about how many strings to list by what
    was learned. `letters`: what was learned.
    """
    length = survivors.length + LONGEST_END
    least = LEAST_EXPECTED * survivors.std_error
    ends = extend(
        survivors.prefixes, survivors.worth, length, room, letters, least=least, whole=True
    )
    strong = np.flatnonzero(survivors.strong)
    prefixes, worth = survivors.prefixes.take(strong), survivors.worth[strong]
    of_unlearned = 2 * room if len(strong) <= FEW else room // _UNLEARNED
    for room_of, guesses, floor in (
        (of_unlearned, letters.unlearned(), least),
        (room, UniformModel(prefixes), 0.0),
    ):
        seen = np.sort(ends.prefixes.keys, kind="stable")
        others = extend(prefixes, worth, length, room_of, guesses, seen, least=floor, whole=True)
        ends = ends.joined(replace(others, expected=_UNLEARNED_WORTH * others.expected))
    return ends


def learned_suffixes(
    ends: Extensions, survivors: RetainedPrefixes, room: int, letters: Mixture, reports: StepReports
) -> LearnedSuffixes:
    """Return these strings and more, each half by how those end that are found in the other.

    Strings that end within the prefixes were listed before, and are left out.

    `ends`: what was expected at first. `survivors`: the prefixes that were found last. `room`:
    about how many strings to list for each half. `letters`: what was learned before. `reports`: the
    last step's.
    """
    begin = survivors.length
    ends, dropped, found, fitted, gaps = _looked(ends, survivors, room, letters, reports)
    explained = Explained(fitted, found.prefixes.sizes)
    shares = fitted.fit.coefficients[1:]
    within = found.prefixes.whole_within(begin)
    sure = explained.sure
    standing_out = np.bincount(found.take(sure[~within[sure]]).halves, minlength=2)
    goes_on, half = ~ends.prefixes.whole_within(begin), ends.halves
    taught = ends.take(np.zeros(0, dtype=np.int64))
    for number in (0, 1):
        first = ends.take(np.flatnonzero(goes_on & (half == number)))
        teachers = np.flatnonzero(~within & (found.halves != number))
        if len(first) and len(teachers):
            weights = training_weights(np.maximum(shares[teachers], fitted.std_error))
            like = _like(found.take(teachers), weights, survivors, gaps.rows, room, letters, number)
            first = _mixed(first, like) if len(like) else first
        left = _left(first, survivors, found.take(sure), shares[sure], fitted.std_error)
        first = replace(first, expected=left)
        stay = _already_explained(first, found, fitted)
        taught = taught.joined(first.take(np.flatnonzero(stay)))
        dropped = dropped.joined(first, ~stay)
    return LearnedSuffixes(taught, dropped, explained, standing_out)


def _left(
    ends: Extensions,
    survivors: RetainedPrefixes,
    found: Extensions,
    shares: FloatArray,
    std_error: float,
) -> FloatArray:
    """Return what is expected of strings by what the others of each prefix leave of it.

    `ends`: what is expected by the prefixes' shares. `survivors`: the prefixes. `found`: which
    strings are there. `shares`: theirs. `std_error`: of these.
    """
    own = np.zeros(len(ends))
    _, these, there = np.intersect1d(
        ends.prefixes.keys, found.prefixes.keys, assume_unique=True, return_indices=True
    )
    own[these] = shares[there]
    explained = np.bincount(found.parents, shares, len(survivors.share))
    of = ends.parents
    left = survivors.worth_left(of, explained[of] - own, std_error)
    return np.asarray(ends.expected * (left / survivors.worth[of]))


def _like(
    found: Extensions,
    weights: FloatArray,
    survivors: RetainedPrefixes,
    gaps: IntArray,
    room: int,
    letters: Mixture,
    half: int,
) -> Extensions:
    """Return strings of a half that end like some that were found, below prefixes and below gaps.

    Each of those that were found counts so many times; what lies below gaps has as much room again.
    """
    begin, going = survivors.length, np.flatnonzero(~survivors.prefixes.whole)
    added, least = _added(found, begin), LEAST_EXPECTED * survivors.std_error
    symbols = found.prefixes.symbols[:, : begin + int(added.max()) + 1]
    learned = letters.forgetful().learned(symbols, weights, begin)
    like = Extensions.none(begin + LONGEST_END)
    for of in (going, gaps) if len(gaps) else (going,):
        more = extend(
            survivors.prefixes.take(of),
            survivors.worth[of],
            begin + LONGEST_END,
            room,
            learned,
            like.prefixes.keys,
            least=least,
            whole=True,
        )
        more = more.take(np.flatnonzero(more.halves == half))
        like = like.joined(replace(more, parents=of[more.parents]))
    like = like.take(np.argsort(like.prefixes.keys, kind="stable"))
    likelier = _likelier(_added(like, begin), like.expected, added, weights)
    like = replace(like, expected=like.expected * likelier)
    return like.take(np.flatnonzero(like.expected > least)).trimmed()


def _mixed(first: Extensions, more: Extensions) -> Extensions:
    """Return strings of either kind, of which as much is expected together as of the first."""
    mass = float(first.expected.sum()) / max(float(more.expected.sum()), _TINY)
    expected, of_more = _FIRST_PART * first.expected, (1 - _FIRST_PART) * mass * more.expected
    keys = more.prefixes.keys  # ascending
    place = np.minimum(np.searchsorted(keys, first.prefixes.keys), len(more) - 1)
    both = keys[place] == first.prefixes.keys
    expected[both] += of_more[place[both]]
    new = np.ones(len(more), dtype=np.bool_)
    new[place[both]] = False
    return replace(first, expected=expected).joined(
        replace(more, expected=of_more).take(np.flatnonzero(new))
    )


def _looked(
    ends: Extensions, survivors: RetainedPrefixes, room: int, letters: Mixture, reports: StepReports
) -> tuple[Extensions, Dropped, Extensions, StepReports, Gaps]:
    """Return what is worth testing and what isn't, and what `_found` does.

    Below strong prefixes of which most or much is missing more is looked for, whatever was learned.
    Which these are follows from what was found, so a string that was not found has no part in it.
    """
    dropped = Dropped(np.zeros(0), np.zeros(0, dtype=np.int64))
    found, fitted, gaps = _found(ends, dropped, survivors, reports)
    if not len(gaps.rows):
        return ends, dropped, found, fitted, gaps
    seen = np.sort(ends.prefixes.keys, kind="stable")
    for below in extended_in_parts(
        survivors.prefixes.take(gaps.rows),
        survivors.worth[gaps.rows],
        survivors.length + LONGEST_END,
        (BLIND_ROOM if gaps.is_blind else MORE_ROOM) * room,
        letters.unlearned(),
        seen,
        whole=True,
    ):
        more = replace(
            below, parents=gaps.rows[below.parents], expected=_UNLEARNED_WORTH * below.expected
        )
        stay = _already_explained(more, found, fitted)
        ends = ends.joined(more.take(np.flatnonzero(stay)))
        dropped = dropped.joined(more, ~stay)
    return ends, dropped, *_found(ends, dropped, survivors, reports)


def _already_explained(ends: Extensions, found: Extensions, fitted: StepReports) -> BoolArray:
    """Return which strings the reports don't speak against, shape (n,).

    Of those that are in the model, whose shares are taken out of what is left, none.
    """
    stay = np.isin(ends.prefixes.keys, found.prefixes.keys)
    stay[fitted.screened(ends.prefixes.hash_words(b""), ends.expected)] = True
    return stay


def _found(
    ends: Extensions, dropped: Dropped, survivors: RetainedPrefixes, reports: StepReports
) -> tuple[Extensions, StepReports, Gaps]:
    """Return which strings are there as a quick look has it, their model, and what it leaves."""
    words = ends.prefixes.hash_words(b"")
    kept = reports.screened(words, ends.expected)
    listed = np.append(ends.expected, dropped.expected)
    mean = float(np.minimum(listed, reports.saturation).mean())
    fitted, _ = reports.fitted(words[kept], ends.expected[kept], mean, float(len(listed)))
    found, shares = ends.take(kept[fitted.fit.selected]), fitted.fit.coefficients[1:]
    return found, fitted, gaps_of(survivors, found.parents, shares, fitted.std_error)


def _added(ends: Extensions, begin: int) -> IntArray:
    return np.asarray((ends.prefixes.symbols[:, begin:] != END).sum(axis=1))


def _likelier(
    added: IntArray, expected: FloatArray, found: IntArray, weights: FloatArray
) -> FloatArray:
    """Return how much likelier each string is by the number of bytes that those found add.

    A letter model knows of two bytes and not of places, so tokens of one length are beyond it.

    `added` has shape (n,). `expected`, shape (n,): what a letter model expects of strings that add
    so many bytes. `found`, shape (t,): how many bytes strings add that were found. `weights`, shape
    (t,): how many times each of these counts.
    """
    size = 1 + int(max(added.max(initial=0), found.max()))
    model: FloatArray = np.bincount(added, expected, size).astype(np.float64)
    seen: FloatArray = np.bincount(found, weights, size).astype(np.float64)
    model = model / max(float(model.sum()), _TINY)
    factors = (seen + _PRIOR_ENDS * model) / np.maximum(model, _TINY)
    return np.asarray(factors[added] / (weights.sum() + _PRIOR_ENDS))
