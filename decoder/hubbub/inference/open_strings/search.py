"""From short prefixes to whole strings: which strings to test in the reports that show them whole.

Each step's survivors are extended where the letter model expects most, and looked for in the next
step's reports; what is found there teaches the model. Then it is gone over again by what that
leaves of each prefix's mass, and with more room if rows scatter more than sampling explains; strong
prefixes of which much is still missing are extended by the characters that occur, in any order, and
a step at which nothing was found does so below one prefix, and learns from that. The largest gaps
that stay are looked below one by one. Invariant: of the reports that show a string whole only what
other strings show takes part in listing it, and in what is expected of it, so that they can test
what comes out of here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.open_strings.extension import Extensions, LetterModels, extend
from hubbub.inference.open_strings.mixture import Mixture, UniformModel
from hubbub.inference.open_strings.prefixes import all_beginnings, unseen
from hubbub.inference.open_strings.steps import (
    LEAST_EXPECTED,
    LEAST_SHARE,
    LOG_ALPHA,
    SATURATION,
    SCATTER,
    Explained,
    RetainedPrefixes,
    StepReports,
    Tests,
    step_reports,
    training_weights,
)
from hubbub.inference.testing.multiple_testing import local_false_rates
from hubbub.protocol import TERMINATOR, CohortCounts, OpenStringType, RapporParams, canonical_bytes

ROOM_A_STEP = 100_000
"""About how many extensions are looked at in a step, at first, for each step that there is: strings
that need more steps are longer, and more of them begin alike.
"""
# How much is looked at, and again, as docs/understand/open-strings.md describes it (How strings are
# found, 1 to 5): rooms trade time against rare strings, and decide no test. A first step
# knows no prefixes, so that it gets three times the room.
_FIRST_ROOM = 3
_GLANCE = 0.25  # of the room: a later step looks again where something is missing
_AGAIN_ROOM = 6
_MORE_ROOM = 4  # below all gaps
_LAST_ROOM = 3  # for how strings end, which is looked at once
_BLIND_ROOM = 10  # where next to nothing was found
_EVERYWHERE = 0.1  # of all mass
# Until what is common is in the model, each fit lets rarer ones stand out; where reports are few it
# fits noise, and would go on.
_MOST_SCREENINGS = 4
_BLIND = 0.9  # of the mass unexplained, though it must be there: nothing was found
# A common prefix without extensions: 4 errors of both shares, of 3,000 prefixes .1 by chance. What
# is missing may be many rare ones, that can't be found, unless it is half of the share.
_UNEXPLAINED_Z = 4.0
_GAP_PART = 0.5
# Standard errors of a step beyond which what is missing is worth seconds: even half of it is found
# at every later step, nearly.
_FAR_Z = 16.0
_FEW = 20  # gaps, each of which then has a twentieth of a look's room at least
# Prefixes below which a blind step looks for anything, ten seconds each, one after the other.
_MOST_BLIND = 2
# Gaps that are searched one by one, a second or two each, until two running show nothing.
# Four times the room of four steps has most words of four letters, of either case.
_MOST_FAR, _FAR_ROOM, _MOST_FRUITLESS = 8, 4, 2
_MOST_KEPT = 3_000  # prefixes: more find hardly anything, and are more to extend
_LEAST_REAL = 0.01  # of a kept prefix: it is looked below, however unlikely
_STRONG_Z, _KEPT_Z = 5.0, 1.0  # chance makes hardly one of a step's hundred thousands at 5
# Something is below a gap, and it isn't what was expected: whatever two or three characters add,
# and four below a common beginning. Less is expected of most than what is looked for elsewhere.
_GAP_LEAST = 0.1
_LOG_HALF = float(np.log(0.5))

Progress = Callable[[int, int], None]
"""Told how many of how many steps are done."""


@dataclass(frozen=True, slots=True)
class FoundPrefixes:
    """The prefixes that were detected in a step, the most common first."""

    length: int  # of the step, in bytes
    reports: int  # of the step
    tried: int  # how many prefixes were looked for
    texts: tuple[bytes, ...]  # with the terminator behind strings that end before the step
    share: FloatArray  # shape (n,)
    std_error: float  # of the share of an absent prefix

    @property
    def noticed(self) -> float:
        """The share that a prefix needs to be noticed among some 10^5: five standard errors."""
        return _STRONG_Z * self.std_error

    @property
    def unexplained(self) -> float:
        """The share of all that have none of the prefixes."""
        return max(0.0, 1 - float(self.share.sum()))


@dataclass(frozen=True, slots=True)
class Family:
    """Strings that end within a step's length and not within the one before."""

    first: int  # the step's number: reports of that step and all later ones test them
    texts: list[bytes]  # UTF-8, all different
    expected: FloatArray  # shape (n,); the share that each is expected to have
    # Shape (t,); what was expected of all that were looked for, those included that the step's
    # reports spoke against.
    tried: FloatArray
    standing_out: int  # how many are sure (`Explained.sure`) by the step's reports alone


@dataclass(frozen=True, slots=True)
class Proposals:
    """Whole strings that are worth testing."""

    families: tuple[Family, ...]  # in the order of their steps
    explained: Mapping[int, Explained]  # the model of each step that was looked at
    steps: tuple[FoundPrefixes, ...]  # what was found on the way


class ResidualMass(NamedTuple):
    """The expected shares of a step's extensions, by what others leave."""

    expected: FloatArray  # shape (n,); of each that is listed
    # Shape (p,); what is left of each parent: the expected share of an unlisted extension over
    # the chance of what it adds.
    worth: FloatArray


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


class _Step:
    """Looks for extensions of prefixes in a step's reports.

    What was screened out is counted and never looked for again.
    """

    def __init__(self, parents: RetainedPrefixes, length: int, reports: StepReports) -> None:
        self.parents, self.length, self.reports = parents, length, reports
        self.listed = Extensions.none(length)
        self.words = np.zeros((0, 2), dtype=np.uint32)
        self._seen = np.zeros(0, dtype=np.uint64)
        self._expected_sum = 0.0
        # The part of its parent that each extension is expected to have: for those listed, for all
        # that were looked for (with their parents, or added up by parent where saturation never
        # cuts it off), and for whole strings, with keys too.
        self._chance = np.zeros(0)
        self._little = reports.sampling_error * SATURATION / 2
        self._chance_of_little = np.zeros(len(parents.prefixes))
        self._others: list[tuple[FloatArray, IntArray]] = []
        self._whole = [(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64))]
        self.tests = Tests(*(np.zeros(0) for _ in range(3)))

    @property
    def tried(self) -> int:
        """How many extensions were looked for."""
        return len(self._seen)

    def look(
        self,
        of: IntArray,
        shares: FloatArray,
        room: int,
        letters: LetterModels,
        least: float = LEAST_EXPECTED,
    ) -> None:
        """Look for the likeliest extensions of some of the parents.

        `of`, shape (n,): the parents. `shares`, shape (n,): by which they share the room. `least`:
        standard errors; of which less is expected isn't looked for.
        """
        prefixes, least = self.parents.prefixes.take(of), least * self.reports.std_error
        found = extend(prefixes, shares, self.length, room, letters, self._seen, least=least)
        chance = found.expected / shares[found.parents]
        found = replace(found, parents=of[found.parents])
        self._add(found, chance)

    def look_below(self, parent: int, room: int, letters: LetterModels) -> None:
        """Look for the likeliest extensions of one parent, however little is expected of them."""
        self.look(np.array([parent]), self.parents.share[[parent]], room, letters, least=0.0)

    def exhaustive_search(self, alphabet: str) -> None:
        """Look for every beginning for which there is time, whatever letters are likely."""
        prefixes = all_beginnings(self.length, alphabet)
        chance = np.full(len(prefixes), _EVERYWHERE / len(prefixes))
        parents = np.zeros(len(prefixes), dtype=np.int64)
        found = Extensions(prefixes, parents, chance * self.parents.worth[0])
        new = np.flatnonzero(unseen(found.prefixes.keys, self._seen))
        self._add(found.take(new), chance[new])

    def _add(self, found: Extensions, chance: FloatArray) -> None:
        """Look for some extensions, all of them new.

        Common prefixes scatter the rows until they are in the model, and others hide in that. So
        what was dropped is screened again once the rows scatter so much less.
        """
        if not len(found):
            return
        self._note(found, chance)
        for _ in range(_MOST_SCREENINGS):
            scattered = self.reports.std_error
            self._screen(found, chance)
            self._fit()
            if scattered < SCATTER * self.reports.std_error:
                return

    def _note(self, found: Extensions, chance: FloatArray) -> None:
        """Count some extensions, all of them new.

        What was expected of those that were seen stays: what a step has taught must not weigh its
        own tests.
        """
        # There may be 2^24: they grow in place, and as both ascend, a stable sort merges them.
        n_seen = len(self._seen)
        self._seen.resize(n_seen + len(found), refcheck=False)
        self._seen[n_seen:] = found.prefixes.keys
        self._seen.sort(kind="stable")
        self._expected_sum += float(np.minimum(found.expected, self.reports.saturation).sum())
        of, little = found.parents, chance * self.parents.worth[found.parents] < self._little
        self._chance_of_little += np.bincount(
            of[little], chance[little], len(self.parents.prefixes)
        )
        self._others.append((chance[~little], of[~little]))
        whole = self._ends_here(found)
        self._whole.append((chance[whole], found.parents[whole], found.prefixes.keys[whole]))

    def _screen(self, found: Extensions, chance: FloatArray) -> None:
        """List some extensions, but for those that the reports speak against or that are listed."""
        words = self.reports.words(found.prefixes)
        kept = self.reports.screened(words, found.expected)
        listed = np.sort(self.listed.prefixes.keys)
        kept = kept[unseen(found.prefixes.keys[kept], listed)]
        self.listed = self.listed.joined(found.take(kept))
        self.words = np.concatenate([self.words, words[kept]])
        self._chance = np.concatenate([self._chance, chance[kept]])

    def _fit(self) -> None:
        mean = self._expected_sum / self.tried
        self.reports, self.tests = self.reports.fitted(
            self.words, self.listed.expected, mean, float(self.tried)
        )

    def learned(self, letters: Mixture) -> Mixture:
        """Return the letter model that also knows what is likely to be there in this step."""
        likely = np.flatnonzero(self.tests.log_q < _LOG_HALF)
        real = self._real(self._reweighted())[likely]
        weights = training_weights(self._shares(likely) * real)
        symbols = self.listed.prefixes.symbols[likely]
        return letters.learned(symbols, weights, self.parents.length)

    def n_found_below(self, parent: int) -> int:
        """Return how many extensions of a parent were detected."""
        return int(np.count_nonzero(self.listed.parents[self.reports.fit.selected] == parent))

    def explained(self) -> FloatArray:
        """Return how much of each parent's share is in extensions that were detected."""
        of = self.listed.parents[self.reports.fit.selected]
        shares = self.reports.fit.coefficients[1:]
        return np.bincount(of, shares, len(self.parents.prefixes)).astype(np.float64)

    def remaining(self) -> FloatArray:
        """Return how much more room each parent should have: by what its extensions leave."""
        return self._worth_left(self.explained())

    def left(self) -> ResidualMass:
        """Return what is expected of extensions by what the others of each parent leave of it.

        Only what is sure leaves nothing to others: where reports are few the model fits noise.
        """
        sure, fit, of = self.explains().sure, self.reports.fit, self.listed.parents
        own = np.zeros(len(self.listed))
        own[fit.selected[sure]] = fit.coefficients[1:][sure]
        by_all = np.bincount(of, own, len(self.parents.prefixes)).astype(np.float64)
        by_others = self.parents.worth_left(of, by_all[of] - own, self.reports.std_error)
        return ResidualMass(self._chance * by_others, self._worth_left(by_all))

    def _worth_left(self, explained: FloatArray) -> FloatArray:
        everyone = np.arange(len(explained))
        return self.parents.worth_left(everyone, explained, self.reports.std_error)

    def gaps(self) -> Gaps:
        """Return strong parents of whose share most or much is missing."""
        fit, parents, std_error = self.reports.fit, self.parents, self.reports.std_error
        of, n = self.listed.parents[fit.selected], len(parents.prefixes)
        error = std_error * np.sqrt(1 + np.bincount(of, minlength=n))
        explained = self.explained()
        missing, going = parents.share - explained, parents.strong & ~parents.prefixes.whole
        is_most = missing > _GAP_PART * parents.share
        rows = np.flatnonzero(
            going
            & (missing > _UNEXPLAINED_Z * np.hypot(error, parents.std_error))
            & (is_most | (missing > _FAR_Z * std_error))
        )
        rows = np.sort(rows[np.lexsort((-missing[rows], ~is_most[rows]))[:_FEW]])
        least = (1 - _BLIND) * float(parents.share[going].sum())
        is_blind = len(rows) > 0 and float(explained[going].sum()) < least
        return Gaps(rows, missing[rows], is_most[rows], is_blind)

    def family(self, number: int, explained: Explained) -> Family:
        """Return the strings that end within this step, of which its model says so much."""
        whole = self._ends_here(self.listed)
        rows, members = np.flatnonzero(whole), self.reports.fit.selected[explained.sure]
        listed, left = self.listed.prefixes.take(rows), self.left()
        chance, parents, keys = (np.concatenate(each) for each in zip(*self._whole, strict=True))
        dropped = unseen(keys, np.sort(listed.keys))
        expected, of_dropped = left.expected[rows], (chance * left.worth[parents])[dropped]
        tried = np.concatenate([expected, of_dropped])
        return Family(number, listed.texts(b""), expected, tried, int(whole[members].sum()))

    def _ends_here(self, found: Extensions) -> BoolArray:
        return found.prefixes.whole & ~found.prefixes.whole_within(self.parents.length)

    def explains(self) -> Explained:
        """Return the model of the step's rows."""
        members = self.listed.prefixes.take(self.reports.fit.selected)
        return Explained(self.reports, members.sizes)

    def survivors(self) -> RetainedPrefixes:
        """Return what the next step sets out from."""
        z = self.tests.share / self.reports.std_error
        log_weighted = self._reweighted()
        kept = np.argsort(log_weighted, kind="stable")[:_MOST_KEPT]
        kept = np.sort(kept[z[kept] > _KEPT_Z])
        return RetainedPrefixes(
            self.listed.prefixes.take(kept),
            self._shares(kept),
            self._real(log_weighted)[kept],
            z[kept] > _STRONG_Z,
            self.reports.std_error,
        )

    def _reweighted(self) -> FloatArray:
        """Return ln of p-values over weights, by what the others of a parent leave of it.

        Where an extension has all that its parent has, the others' weight goes to those of which
        most is missing.
        """
        if not self.tried:
            return self.tests.log_weighted
        (expected, worth), most = self.left(), self.reports.saturation
        new, old = np.minimum(expected, most), np.minimum(self.listed.expected, most)
        by_all = float(self._chance_of_little @ worth) + sum(
            float(np.minimum(chance * worth[parents], most).sum())
            for chance, parents in self._others
        )
        by_others = np.minimum(self._chance * worth[self.listed.parents], most)
        total = by_all + float((new - by_others).sum())
        log_ratio = np.log(new / old) + math.log(self._expected_sum / total)
        return np.asarray(np.minimum(self.tests.log_weighted - log_ratio, 0.0))

    def found(self) -> FoundPrefixes:
        """Return what was detected."""
        detected = np.flatnonzero(self.tests.log_q < LOG_ALPHA)
        detected = detected[np.argsort(-self.tests.share[detected], kind="stable")]
        return FoundPrefixes(
            length=self.length,
            reports=int(self.reports.bits.reports.sum()),
            tried=self.tried,
            texts=tuple(self.listed.prefixes.take(detected).texts(TERMINATOR)),
            share=self.tests.share[detected],
            std_error=self.reports.std_error,
        )

    def _shares(self, rows: IntArray) -> FloatArray:
        return np.maximum(self.tests.share[rows], LEAST_SHARE * self.reports.std_error)

    def _real(self, log_weighted: FloatArray) -> FloatArray:
        false = local_false_rates(np.exp(log_weighted), self.tried)
        return np.asarray(np.clip(1 - false, _LEAST_REAL, 1.0))


def propose(
    counts: CohortCounts,
    params: RapporParams,
    metric_type: OpenStringType,
    *,
    below: str = "",
    corpus: Sequence[str] = (),
    alphabet: str = "",
    room: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Proposals:
    """Return the whole strings that are worth testing in the reports that show them whole.

    `params`: of the metric. `below`: look only for strings that begin so. `corpus`: public strings
    like those that are looked for, to learn letters from. `alphabet`: the characters of most
    strings, if they are known. `room`: about how many extensions to look at in a step; 100,000
    times the number of steps if not given. `progress`: called with how many steps are done, and of
    how many. Raises `UndecodableError` if a step that is needed has no reports.
    """
    start = canonical_bytes(below)
    survivors = RetainedPrefixes.all_below(start)
    letters = Mixture.of_corpus([text.encode() for text in corpus], "".join(sorted(set(alphabet))))
    found: list[FoundPrefixes] = []
    families: list[Family] = []
    explained: dict[int, Explained] = {}
    n_steps = len(metric_type.steps) + 1
    room = room or ROOM_A_STEP * n_steps
    for number, length in enumerate(metric_type.steps):
        progress(number, n_steps)
        if length <= len(start):
            continue
        step = _Step(survivors, length, step_reports(counts, params, metric_type, number))
        _search(step, room, letters, first=not found)
        survivors = step.survivors()
        found.append(step.found())
        explained[number] = step.explains()
        families.append(step.family(number, explained[number]))
        if not len(survivors.prefixes):
            return Proposals(tuple(families), explained, tuple(found))
        weights = training_weights(survivors.expected)
        letters = letters.learned(survivors.prefixes.symbols, weights, step.parents.length)
        del step  # what it looked at takes as much memory as what comes next
    progress(n_steps - 1, n_steps)
    reports = step_reports(counts, params, metric_type, n_steps - 1)
    ends = ends_of(survivors, _LAST_ROOM * room, letters)
    family, explained[n_steps - 1] = last_family(ends, reports, n_steps - 1, survivors.length)
    return Proposals((*families, family), explained, tuple(found))


def _search(step: _Step, room: int, letters: Mixture, *, first: bool) -> None:
    """Look for the extensions that are expected, then for those that must be missing.

    The first step sets out from nothing, so it is gone over once more. Then common prefixes whose
    extensions are known leave room to those of which they are missing.
    """
    everyone, shares = np.arange(len(step.parents.prefixes)), step.parents.worth
    step.look(everyone, shares, room if first else int(_GLANCE * room), letters)
    if not step.parents.length:
        step.exhaustive_search(letters.own)
    if first:
        step.look(everyone, shares, _FIRST_ROOM * room, step.learned(letters))
    if step.reports.scatter > SCATTER or step.gaps().is_blind:
        step.look(everyone, shares, _MORE_ROOM * room, step.learned(letters))
    if step.gaps().is_blind:
        _look_for_the_unfamiliar(step, room)
    of_again = (_BLIND_ROOM if first else _AGAIN_ROOM) * room
    step.look(everyone, step.remaining(), of_again, step.learned(letters))
    gaps = step.gaps()
    if len(gaps.rows):
        least = _GAP_LEAST * LEAST_EXPECTED
        step.look(gaps.rows, gaps.missing, _MORE_ROOM * room, _unfamiliar(step), least)
        _look_far_below_each(step, room, letters.unlearned())


def _look_far_below_each(step: _Step, room: int, letters: LetterModels) -> None:
    """Look below one gap after the other, as a search below that prefix alone would."""
    fruitless = 0
    for row in step.gaps().largest(_FAR_Z * step.reports.std_error)[:_MOST_FAR].tolist():
        known = step.n_found_below(row)
        step.look_below(row, _FAR_ROOM * room, letters)
        fruitless = 0 if step.n_found_below(row) > known else fruitless + 1
        if fruitless == _MOST_FRUITLESS:
            return


def _look_for_the_unfamiliar(step: _Step, room: int) -> None:
    """Look for anything below the one prefix of which most is missing, or else below the next.

    All room is one prefix's: of each of its extensions next to nothing is expected, and yet the
    most common ones stand out. The characters that are found so are looked for below all others.
    """
    strong = np.flatnonzero(step.parents.strong)
    gaps = step.gaps()
    for row in gaps.largest()[:_MOST_BLIND].tolist():
        step.look_below(row, _BLIND_ROOM * room, _unfamiliar(step))
        found = step.listed.prefixes.take(step.reports.fit.selected)
        if len(found):
            shares = step.remaining()[strong]
            step.look(strong, shares, _MORE_ROOM * room, UniformModel(found), least=0.0)
            return


def _unfamiliar(step: _Step) -> UniformModel:
    return UniformModel(step.parents.prefixes.take(np.flatnonzero(step.parents.strong)))


LONGEST_END = 64
"""How many bytes longer than the last prefix a string may be."""

_UNFAMILIAR_WORTH = 0.25  # of what an end has that was expected


def ends_of(survivors: RetainedPrefixes, room: int, letters: Mixture) -> Extensions:
    """Return whole strings that begin with what was found, by what was learned.

    That misleads where few prefixes taught it, so those that are beyond doubt are also extended by
    anything unfamiliar.

    `survivors`: the prefixes that were found last. `room`: about how many strings to list of either
    kind.
    """
    length, least = survivors.length + LONGEST_END, LEAST_EXPECTED * survivors.std_error
    ends = extend(
        survivors.prefixes, survivors.worth, length, room, letters, least=least, whole=True
    )
    strong = np.flatnonzero(survivors.strong)
    prefixes, worth = survivors.prefixes.take(strong), survivors.worth[strong]
    seen = np.sort(ends.prefixes.keys, kind="stable")
    others = extend(prefixes, worth, length, room, UniformModel(prefixes), seen, whole=True)
    return ends.joined(replace(others, expected=_UNFAMILIAR_WORTH * others.expected))


def last_family(
    ends: Extensions, reports: StepReports, number: int, begin: int
) -> tuple[Family, Explained]:
    """Return the strings that go on after the last prefix, and a model of the last step's reports.

    `ends`: whole strings, and what is expected of each. `number`: of the last step. `begin`: the
    length of prefixes before it.
    """
    words = ends.prefixes.hash_words(b"")
    kept = reports.screened(words, ends.expected)
    mean = float(np.minimum(ends.expected, reports.saturation).mean())
    fitted, _ = reports.fitted(words[kept], ends.expected[kept], mean, float(len(ends)))
    found = ends.prefixes.take(kept[fitted.fit.selected])
    explained = Explained(fitted, found.sizes)
    goes_on = ends.take(np.flatnonzero(~ends.prefixes.whole_within(begin)))
    standing_out = int(np.count_nonzero(~found.whole_within(begin)[explained.sure]))
    texts, expected = goes_on.prefixes.texts(b""), goes_on.expected
    return Family(number, texts, expected, expected, standing_out), explained
