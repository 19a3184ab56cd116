"""One step's reports: how common each of many prefixes is, and which of them are there.

The prefixes that are detected are in the model together; every other gets the share that it would
have if it alone were added. Of a long list most are dropped after a look at half of the
cohorts. It steers where to look next; of what is published only what is beyond doubt here is taken
out (`Explained`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy import linalg, sparse

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix, WordArray
from hubbub.inference.candidates import Candidates, make_design, of_words, unnamed
from hubbub.inference.counts import BitEstimates, estimate_bits, variance_of_one
from hubbub.inference.errors import UndecodableError
from hubbub.inference.open_strings.prefixes import Prefixes
from hubbub.inference.regression.estimates import bounded_scores
from hubbub.inference.regression.model import (
    Fit,
    ModelTerms,
    fit_members,
    reports_by_row,
    weighted_gram,
)
from hubbub.inference.scanning import scan
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import Correction, log_q_values
from hubbub.protocol import TERMINATOR, CohortCounts, OpenStringType, RapporParams, counted

# If prefixes are many, those that don't stand out are dropped, except for the 20,000 most
# expected: a string that is found at 4 in the end is at 1.5 or more in every step, nearly.
# In standard errors of all cohorts: what is at 3 after all of them is below the mean after half of
# them with a probability of .13%, and below .9 after three quarters with one of .1%.
_LOOKS = ((0.5, 0.0), (0.75, 0.9), (1.0, 1.5))
_ALWAYS_LOOKED_AT = 20_000
# Each fit explains more, so that more stands out; it ends when less than 5% joins. The first takes
# in whatever a look has found: it may be few, and common.
_FITS = 4
_STILL_GROWING = 1.05
# A fit takes the time of its members' square times the rows.
_MOST_MEMBERS = 1_000
# When strings are tested, others count as known from 3 standard errors on: weaker ones hardly
# scatter anything, and where reports are few, hundreds of them fit noise alone.
_SURE_Z = 3.0
# Rows for each, so that what they take up of the noise, and of a tested string, is at most a
# fiftieth: errors are 1% too small then.
_ROWS_EACH = 50
SCATTER = 1.15
"""Rows that scatter 15% more than sampling explains mean that something is missing, since chance
makes it less than a percent or two.
"""
LOG_ALPHA = float(np.log(0.05))
"""ln of the false discovery rate at which a prefix counts as detected in its step."""
SATURATION = 2.0
"""Standard errors: beyond that a greater expected share makes detection no likelier."""


class Moments(NamedTuple):
    """Mean and standard deviation of an absent string's score, over its hash."""

    mean: float
    deviation: float


class Tests(NamedTuple):
    """Estimates and tests of some prefixes in a step."""

    share: FloatArray  # shape (n,); unbiased
    log_weighted: FloatArray  # shape (n,); one-sided p-values, divided by their weights
    log_q: FloatArray  # shape (n,)


@dataclass(frozen=True, slots=True)
class StepReports:
    """The reports of one step, and a model of the prefixes that are there."""

    bits: BitEstimates
    params: RapporParams
    first: int  # with which number the step's first cohort is hashed
    fit: Fit

    @property
    def std_error(self) -> float:
        """Standard error of the share of a prefix outside the model."""
        return _moments(self._scores()).deviation / self._information()

    @property
    def sampling_error(self) -> float:
        """The standard error if every prefix were in the model."""
        rates, reports = self.bits.rate.ravel() - self.fit.residuals, reports_by_row(self.bits)
        by_row = reports / variance_of_one(rates, self.params)
        return float(1 / np.sqrt(by_row.reshape(self.bits.rate.shape).mean(axis=1).sum()))

    @property
    def saturation(self) -> float:
        """The share beyond which a greater expected one makes detection no likelier."""
        return SATURATION * self.std_error

    def words(self, prefixes: Prefixes) -> WordArray:
        """Return what the step's positions of prefixes follow from, shape (n, 2)."""
        return offset_words(prefixes.hash_words(TERMINATOR), self.first)

    def screened(self, words: WordArray, expected: FloatArray) -> IntArray:
        """Return the rows of prefixes that the reports don't speak against.

        Those of which most is expected are always among them.
        """
        if len(words) <= _ALWAYS_LOOKED_AT:
            return np.arange(len(words))
        place = len(words) - _ALWAYS_LOOKED_AT
        always = expected >= np.partition(expected, place)[place]
        scores, looked = self._scores(), 0
        rows, totals = np.arange(len(words)), np.zeros(len(words))
        deviation = _moments(scores).deviation
        for part, least_z in _LOOKS:
            end = math.ceil(part * self.params.m)
            if end > looked:  # of one or two cohorts two looks are one
                cohorts = self.params._replace(m=end - looked)
                some = unnamed(offset_words(words[rows], looked), cohorts)
                totals = totals + scan(some, [scores[looked:end]], [])[0][:, 0]
            least = float(scores[:end].mean(axis=1).sum()) + least_z * deviation
            stay = np.flatnonzero((totals > least) | always[rows])
            rows, totals, looked = rows[stay], totals[stay], end
        return rows

    def fitted(
        self, words: WordArray, expected: FloatArray, mean_weight: float, listed: float
    ) -> tuple[StepReports, Tests]:
        """Put those that are detected into the model, until it hardly grows.

        `words`, shape (n, 2): of prefixes that begin with those of the model so far. `expected`,
        shape (n,): shares that were expected before. `mean_weight`: mean of the expected shares,
        cut off at `saturation`, over all that were listed. `listed`: how many were listed, those
        included that were screened out.
        """
        candidates = of_words(range(len(words)), words, self.params)  # type: ignore[arg-type]
        log_weights = np.log(np.minimum(expected, self.saturation) / mean_weight)
        step, enough = self, 0.0
        tests = step._tests(candidates, log_weights, listed)
        for _ in range(_FITS):
            chosen = np.flatnonzero(tests.log_q < LOG_ALPHA)
            order = np.argsort(tests.log_weighted[chosen], kind="stable")
            chosen = np.sort(chosen[order[:_MOST_MEMBERS]])
            if len(chosen) <= enough or np.isin(chosen, step.fit.selected).all():
                break
            enough = _STILL_GROWING * len(chosen)
            fit = _fit(self.bits, candidates, chosen, step.fit)
            step = StepReports(self.bits, self.params, self.first, fit)
            tests = step._tests(candidates, log_weights, listed)
        return step, tests

    def _tests(self, candidates: Candidates, log_weights: FloatArray, listed: float) -> Tests:
        scores = self._scores()
        totals, _ = scan(candidates, [scores], [])
        mean, information = _moments(scores).mean, self._information()
        share = (totals[:, 0] - mean) / information
        share[self.fit.selected] = self.fit.coefficients[1:]
        # Common prefixes that aren't in the model make tails that no normal distribution has: what
        # shares their bits in a few cohorts would stand out by the hundred.
        log_p = HashNull(scores, 1).log_tails(mean + share * information)
        weighted = np.minimum(log_p - log_weights, 0.0)
        log_q = log_q_values(weighted, Correction.BH, listed)
        return Tests(share, weighted, log_q)

    @property
    def scatter(self) -> float:
        """How many times as much rows scatter as sampling explains."""
        return self.std_error / self.sampling_error

    def _scores(self) -> FloatArray:
        return bounded_scores(self.fit.scores, self.fit.weights, self.params)

    def _information(self) -> float:
        by_cohort = self.fit.weights.reshape(self.params.m, self.params.k).mean(axis=1)
        return float(by_cohort.sum()) * (1 - 1 / self.params.k)


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


def step_reports(
    counts: CohortCounts, params: RapporParams, metric_type: OpenStringType, step: int
) -> StepReports:
    """Return the reports of a step, with nothing in the model.

    `params`: of the metric. `step`: the step's number, from 0. Raises `UndecodableError` if the
    step has no reports, or the counts don't fit the parameters.
    """
    of_step = metric_type.step_params(params)
    bits = estimate_bits(step_counts(counts, metric_type, step), of_step, counts.total)
    nothing = of_words([], np.zeros((0, 2), dtype=np.uint32), of_step)
    first = metric_type.hashed_cohort(step * metric_type.cohorts)
    return StepReports(bits, of_step, first, _fit(bits, nothing, np.zeros(0, dtype=np.int64)))


def step_counts(counts: CohortCounts, metric_type: OpenStringType, step: int) -> CohortCounts:
    """Return the counts of one step's cohorts; raises UndecodableError if there are no reports."""
    rows = slice(step * metric_type.cohorts, (step + 1) * metric_type.cohorts)
    of_step = CohortCounts(counts.reports[rows], counts.bits[rows])
    if not of_step.total:
        lengths = (*(counted(length, "byte") for length in metric_type.steps), "whole strings")
        raise UndecodableError(
            f"step {step + 1} of {len(lengths)}, {lengths[step]}: no reports in its cohorts "
            f"{rows.start} to {rows.stop - 1}; expected some at every step"
        )
    return of_step


def offset_words(words: WordArray, first: int) -> WordArray:
    """Return hash words whose cohort 0 is the given words' cohort `first`; shape (n, 2)."""
    moved = words.copy()
    moved[:, 0] += np.uint32(first) * (words[:, 1] | np.uint32(1))
    return moved


def _moments(scores: FloatArray) -> Moments:
    deviation = float(np.sqrt(scores.var(axis=1).sum()))
    return Moments(float(scores.mean(axis=1).sum()), deviation)


def _fit(
    bits: BitEstimates, candidates: Candidates, chosen: IntArray, start: Fit | None = None
) -> Fit:
    matrix = SparseMatrix((0, candidates.params.m * candidates.params.k))
    if len(chosen):
        matrix = make_design(candidates.positions(chosen), candidates.params).matrix
    members = ModelTerms.fixed(chosen, sparse.csr_array(matrix))
    return fit_members(bits, members, candidates.params, start=start)


LEAST_EXPECTED = 1e-5
"""Standard errors: what less is expected of is hardly ever common enough to be found. The room that
this leaves goes to the steps at which letters are hard to guess.
"""
LEAST_SHARE = 0.3
"""Standard errors that a prefix has at least, and leaves to others: an estimate below counts as
one at 0.
"""


@dataclass(frozen=True, slots=True)
class RetainedPrefixes:
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


def training_weights(expected: FloatArray) -> FloatArray:
    """Return how many times each prefix counts for the letter model.

    In proportion to its share, and together as many times as there are different prefixes, if
    these were equally common: (sum x)^2 / sum x^2 (Kish 1965).
    """
    total, squares = float(expected.sum()), float(expected @ expected)
    return expected * (total / squares) if squares > 0 else expected
