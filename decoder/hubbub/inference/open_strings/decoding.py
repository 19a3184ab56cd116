"""The whole decoding of open strings: steps propose, the reports that show strings whole decide.

Strings are proposed from the reports of the steps that show less of them (`search`), and tested in
those of all others, by the decoder of listed strings. A string's own reports there haven't been
used to choose it, so p-values, false discoveries and intervals mean what they mean there. What was
expected of a string weighs its p-value, so that a long list of unlikely strings hardly costs the
likely ones.

A family of strings, those that end within a step's length and not within the one before, is decoded
like a list, by the reports of its first step and all later ones, which show them whole. What the
steps' models say of all other strings is taken out of the rates. All families have one error rate:
a string's p-value is compared with its part of all expected shares times how many strings are
detected in all (weights: Genovese, Roeder, Wasserman 2006; sets that so agree with themselves hold
the false discovery rate where p-values depend positively on each other: Blanchard, Roquain 2008).

A beginning that many clients have, and whose share the strings that were found don't make up, has
strings below it that weren't looked for. Its interval allows for the choice among all beginnings
that were looked for (Benjamini, Yekutieli 2005: at level 1 - alpha R / m, where R of m stood out).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from unicodedata import is_normalized

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.candidates import Candidates, canonical_forms, hash_words, joined, of_words
from hubbub.inference.counts import variance_of_one
from hubbub.inference.decoding import Decoding, OtherTests, decode, merged
from hubbub.inference.errors import UndecodableError
from hubbub.inference.open_strings.search import Family, FoundPrefixes, Progress, propose
from hubbub.inference.open_strings.steps import SATURATION, Explained, offset_words, step_counts
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction, local_false_rates
from hubbub.protocol import TERMINATOR, CohortCounts, OpenStringType, RapporParams, canonical_bytes

# Part of the weight for candidates that are given, the rest for proposals
# (docs/understand/open-strings.md): neither list costs the other more than a factor of two in its
# p-values.
_GIVEN_PART = 0.5


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


@dataclass(frozen=True, slots=True)
class StringTests:
    """All strings that are tested, the given ones first."""

    texts: list[bytes]
    # Shape (n,); the share that each is expected to have, as far as that makes detection likelier.
    expected: FloatArray
    families: tuple[FamilyTests, ...]  # those that have any string

    @property
    def n_tests(self) -> int:
        """How many there are, those included that were dropped before."""
        return sum(family.n_tests for family in self.families)

    @property
    def total(self) -> float:
        """Expected number of all of these together."""
        return sum(family.total for family in self.families)

    def weighted(self, p_values: FloatArray) -> FloatArray:
        """Return p-values divided by weights whose mean over all tests is 1."""
        return np.asarray(p_values * (self.total / self.n_tests) / self.expected)


@dataclass(frozen=True, slots=True)
class FamilyTests:
    """The tests of one family."""

    first: int  # the number of the first step in whose reports they are tested
    rows: IntArray  # shape (n,); which of all texts are its strings, ascending
    # Expected number of all that were looked for, those included that were dropped before.
    total: float
    n_tests: int  # how many these are
    standing_out: int  # how many are sure by the first step's reports: what is supposed at first


def string_tests(
    families: Sequence[Family],
    given: Sequence[bytes],
    counts: CohortCounts,
    params: RapporParams,
    metric_type: OpenStringType,
) -> StringTests:
    """Return what is tested, and what is expected of it.

    A share beyond the saturation is as good as certain to be detected, so more weight is lost on
    it. Where there are both, the given strings have half of all the weight, in equal parts.

    `families`: proposed strings. `given`: candidates, each once. `params`: of one step.
    """
    known, n_steps = set(given), len(metric_type.steps) + 1
    step_of_given = np.array([family_of(len(text), metric_type.steps) for text in given])
    given_in = np.bincount(step_of_given.astype(np.int64), minlength=n_steps)
    rows = [np.flatnonzero(step_of_given == step) for step in range(n_steps)]
    texts, expected, n_tests = list(given), [np.zeros(len(given))], given_in.copy()
    totals, standing_out = np.zeros(n_steps), np.zeros(n_steps, dtype=np.int64)
    for family in families:
        step = min(family.first, n_steps - 1)  # all are in the last one where it alone decides
        most = _saturation(int(counts.reports[step * params.m :].sum()), params)
        fresh = [
            row for row, text in enumerate(family.texts) if text not in known and _may_be_sent(text)
        ]
        rows[step] = np.append(rows[step], np.arange(len(texts), len(texts) + len(fresh)))
        texts += [family.texts[row] for row in fresh]
        expected.append(np.minimum(family.expected[fresh], most))
        totals[step] += np.minimum(family.tried, most).sum()
        n_tests[step] += len(family.tried)
        standing_out[step] += family.standing_out
    of_given = totals.sum() * _GIVEN_PART / (1 - _GIVEN_PART) or 1.0
    of_each = of_given / max(len(given), 1)
    expected[0] += of_each
    totals += of_each * given_in
    columns = (rows, totals.tolist(), n_tests.tolist(), standing_out.tolist())
    tested = map(FamilyTests, range(n_steps), *columns)
    return StringTests(
        texts, np.concatenate(expected), tuple(each for each in tested if len(each.rows))
    )


def _may_be_sent(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        return is_normalized("NFC", text.decode())
    except UnicodeDecodeError:  # a surrogate, or a longer form than need be
        return False


def _saturation(n_reports: int, params: RapporParams) -> float:
    """Return the share beyond which a greater expected one makes detection no likelier.

    It follows from the number of reports, so that weights owe nothing to what is tested.
    """
    background = 1 / params.k
    variance = float(variance_of_one(np.array(background), params))
    return SATURATION * float(np.sqrt(variance / max(n_reports, 1) / (1 - background)))


@dataclass(frozen=True, slots=True)
class FamilyDecoder:
    """Decodes families together."""

    tests: StringTests
    counts: CohortCounts  # of all steps
    params: RapporParams  # of one step
    metric_type: OpenStringType  # the metric's type, which names the lengths of prefixes
    explained: Mapping[int, Explained]  # the models of steps
    alpha: float  # level of the correction's error rate, in (0, 1)
    # The error rate that `alpha` bounds: false discoveries, or the chance of any false detection.
    correction: Correction
    # How often the reports' clients have reported, and whose shares are asked for.
    repeats: RepeatedReports
    collected: int  # of how many reports shares are asked for

    def run(self) -> Decoding:
        """Return the decoding of all strings, in the order of their texts."""
        if self.correction is Correction.BONFERRONI:
            return self._merged([self._decoded(n, 0) for n in range(len(self.tests.families))])
        supposed = np.array([family.standing_out for family in self.tests.families])
        others, found = np.zeros_like(supposed), dict[int, Decoding]()
        waiting = list(range(len(supposed)))
        while waiting:
            number = waiting[0]
            others[number] = supposed.sum() - supposed[number]
            found[number] = self._decoded(number, int(others[number]))
            supposed[number] = found[number].summary.detected
            too_many = others - (supposed.sum() - supposed)  # supposed of others: fewer again
            worst = int(np.argmax(too_many))
            waiting = waiting[1:] or [worst] * bool(too_many[worst] > 0)
        return self._merged([found[number] for number in range(len(supposed))])

    def _decoded(self, number: int, elsewhere: int) -> Decoding:
        """Decode a family, of which so many other families' strings are detected."""
        family, m = self.tests.families[number], self.params.m
        first = family.first
        pool = CohortCounts(self.counts.reports[first * m :], self.counts.bits[first * m :])
        candidates = whole_in(
            [self.tests.texts[row] for row in family.rows.tolist()],
            first,
            self.params,
            self.metric_type,
        )
        expected = self.tests.expected[family.rows]
        return decode(
            pool,
            candidates.params,
            candidates,
            alpha=self.alpha * self._part(number),
            correction=self.correction,
            weights=expected * family.n_tests / family.total,
            collected=self.collected,
            repeats=self.repeats,
            others=OtherTests(self._known(first), family.n_tests, elsewhere),
        )

    def _part(self, number: int) -> float:
        return self.tests.families[number].total / self.tests.total

    def _known(self, first: int) -> FloatArray:
        """Return the rates of other families' strings, from a step on."""
        steps = self.metric_type.steps
        nothing = np.zeros((self.params.m, self.params.k))
        own = sizes_of(first, steps)
        rates = [
            self.explained[step].other_rates(*own) if step in self.explained else nothing
            for step in range(first, len(steps) + 1)
        ]
        return np.concatenate(rates)

    def _merged(self, found: Sequence[Decoding]) -> Decoding:
        """Return the decodings of all families as one."""
        families, summaries = self.tests.families, [each.summary for each in found]
        texts = [text.decode() for text in self.tests.texts]
        decoding = merged(texts, found, [family.rows for family in families])
        for number, family in enumerate(families):
            decoding.q_value[family.rows] /= self._part(number)
        np.minimum(decoding.q_value, 1.0, out=decoding.q_value)
        errors = [each.unknown_std_error for each in summaries]
        likeliest = int(np.argmax([family.total for family in families]))
        last = self.counts.reports[-self.params.m :]
        summary = replace(
            summaries[-1],
            candidates=self.tests.n_tests,
            detected=sum(each.detected for each in summaries),
            indistinguishable=decoding.same_bits.candidates,
            alpha=self.alpha,
            settled=all(each.settled for each in summaries),
            detection_limit=summaries[likeliest].detection_limit,
            cohorts=len(last),
            empty_cohorts=int(np.count_nonzero(last == 0)),
            unknown_share=1 - sum(1 - each.unknown_share for each in summaries),
            unknown_std_error=math.hypot(*errors),
            unlisted_share=math.nan,
            unlisted_std_error=math.nan,
            forgery_shift=max(each.forgery_shift for each in summaries),
        )
        return replace(decoding, summary=summary)


# Least part of a beginning's share: less may be many rare strings that can't be found.
_LEAST_PART = 0.5
_ALPHA = 0.05  # by convention


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A beginning of which at least half is in no string that was found."""

    prefix: bytes  # may end within a character
    # Share of clients with this beginning and none of the strings and longer beginnings named.
    share: float
    low: float
    high: float
    strings: int  # how many strings were found below it


def unexplained(steps: Sequence[FoundPrefixes], decoding: Decoding) -> tuple[Unexplained, ...]:
    """Return beginnings whose strings weren't found, each as long as it is known, largest first.

    `steps`: of a search, in order. `decoding`: of whole strings.
    """
    rows = decoding.largest_detected()
    known = [decoding.candidates[row].encode() for row in rows.tolist()]
    shares, variances = decoding.share[rows], decoding.std_error[rows] ** 2
    is_string = np.ones(len(rows), dtype=np.bool_)
    found: list[Unexplained] = []
    for step in reversed(steps):
        level = _ALPHA * len(step.texts) / max(step.tried, 1)
        z = float(-special.ndtri(level / 2)) if step.texts else 0.0
        for text, share in zip(step.texts, step.share.tolist(), strict=True):
            if text.endswith(TERMINATOR):
                continue
            below = np.array([each.startswith(text) for each in known], dtype=np.bool_)
            missing = share - float(shares[below].sum())
            error = z * float(np.sqrt(step.std_error**2 + variances[below].sum()))
            if missing <= error or missing < _LEAST_PART * share:
                continue
            n_strings = int((below & is_string).sum())
            found.append(Unexplained(text, missing, missing - error, missing + error, n_strings))
            known.append(text)
            shares = np.append(shares, missing)
            variances = np.append(variances, step.std_error**2)
            is_string = np.append(is_string, False)
    return tuple(sorted(found, key=lambda each: -each.share))


# Reports of a cohort, as planned at least: with fewer a step's model shows too little of other
# strings, and the last step's reports, which show all of them whole, decide alone.
_FEWEST_REPORTS = 100


@dataclass(frozen=True, slots=True)
class OpenDecoding:
    """Strings found without a list."""

    # Covers the detected strings and the given candidates; its summary counts all that were tested.
    decoding: Decoding
    steps: tuple[FoundPrefixes, ...]  # what was found on the way, in the order of the steps
    proposed: int  # whole strings that were proposed and tested
    listed: int  # candidates that were given
    below: str  # what all strings begin with that were looked for
    # Shape (n,); the approximate chance that no client has the string, given its letters: the local
    # false discovery rate.
    chance_false: FloatArray
    unexplained: tuple[Unexplained, ...]  # beginnings whose strings weren't found


def decode_open_strings(
    counts: CohortCounts,
    params: RapporParams,
    metric_type: OpenStringType,
    *,
    candidates: Sequence[str] = (),
    below: str = "",
    corpus: Sequence[str] = (),
    alphabet: str = "",
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    room: int | None = None,
    repeats: RepeatedReports = ONCE,
    progress: Progress = lambda _done, _total: None,
) -> OpenDecoding:
    """Find unlisted strings, and how common they are.

    `counts`: of all steps' cohorts. `params`: of the metric: m is the number of all cohorts.
    `candidates`: strings to be tested in any case, each once. `below`: look only for strings that
    begin so, with all the room there is. `corpus`: public strings like those that are looked for:
    the model learns from them, so that theirs are found sooner, and no others given up.
    `alphabet`: the characters of most strings, if they are known; others aren't given up. `room`:
    about how many extensions to look at in a step; 100,000 times the number of steps if not given.
    `progress`: called with the steps done and all. Raises `CandidateError` if a candidate
    can't be a client's value. Raises `UndecodableError` if a step has no reports, or the counts
    don't fit the parameters.
    """
    if counts.bits.shape != (params.m, params.k):
        raise UndecodableError(
            f"counts of shape {counts.bits.shape}: must be {(params.m, params.k)}"
        )
    encoded = [text.encode() for text in candidates]
    given = list(dict.fromkeys(canonical_forms(encoded, lambda row: f"candidate {row + 1}")))
    step = len(metric_type.steps)
    last = step_counts(counts, metric_type, step)
    proposals = propose(
        counts,
        params,
        metric_type,
        below=below,
        corpus=corpus,
        alphabet=alphabet,
        room=room,
        progress=progress,
    )
    families, explained = proposals.families, proposals.explained
    of_step = metric_type.step_params(params)
    tested, kind = counts, metric_type
    if counts.total < _FEWEST_REPORTS * params.m:
        explained, tested, kind = {}, last, OpenStringType((), metric_type.cohorts)
    tests = string_tests(families, given, tested, of_step, kind)
    if not tests.texts:
        tests = string_tests((), [canonical_bytes(below)], tested, of_step, kind)
    decoding = FamilyDecoder(
        tests, tested, of_step, kind, explained, alpha, correction, repeats, counts.total
    ).run()
    progress(step + 1, step + 1)
    shown = decoding.detected.copy()
    shown[: len(given)] = True
    rows = np.flatnonzero(shown)
    return OpenDecoding(
        decoding.only(rows),
        proposals.steps,
        tests.n_tests - len(given),
        len(given),
        below,
        local_false_rates(tests.weighted(decoding.p_value), tests.n_tests)[rows],
        unexplained(proposals.steps, decoding),
    )
