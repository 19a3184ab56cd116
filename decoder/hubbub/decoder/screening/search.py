"""The search of `regression.search` over a list that isn't in memory.

The whole list is needed three times: for the candidates that stand out by the marginal tests, for
those that stand out in the model that was found among them, and for how many the others are. Tasks
return just that, and everything else happens among some thousand candidates, as it does of a list
in memory.

What is left out can't matter, and that is checked: p-values above the limit are counted in 256
ranges up to 1/2, and in none of them is the rank that its largest may have high enough for its
smallest to be detected. Otherwise the list is tested again, with a larger limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.decoder.engines import Engine
from hubbub.decoder.screening.distinct import DistinctList
from hubbub.decoder.screening.testing import (
    RANGES,
    ErrorRange,
    ListTest,
    MarginalTest,
    Strongest,
    Tested,
    strongest_of,
    tested_of,
)
from hubbub.inference.arrays import BoolArray, IntArray
from hubbub.inference.candidates import Candidates, make_design, unnamed
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.estimates import (
    EXACT,
    CandidateEstimates,
    PresenceTests,
    bounded_scores,
    dispersion_outside,
    drawing,
    estimates_of,
    information_of_many,
    is_determined,
    left_over,
    sampled,
    shares_outside,
    without_drawing,
)
from hubbub.inference.regression.model import Fit, fit_selected
from hubbub.inference.regression.rivals import Models, selection_corrected_models
from hubbub.inference.regression.search import (
    MAX_NEAR,
    SCANS,
    SEARCHED,
    Search,
    SearchResult,
    corrected,
    keep_fittest,
    select,
    top_scoring,
)
from hubbub.inference.scanning import scan
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import (
    LOG_HALF,
    Correction,
    number_of_tests,
    p_value_counts,
    z_scores,
)
from hubbub.protocol.params import RapporParams

_DETECTED = 8_192
"""So many detected candidates don't reach the limit at first."""
_WINDOW_Z = 0.75
"""Candidates so far below the limit of detection are counted with the detected's total."""
_NEEDED_Z = 0.5
"""Candidates so far below the cutoff must be known; less than the window, so that it mostly is."""
_SURE = (0.35, 0.65)
"""Between these quantiles of a sample lies the median of all: of 4,096 candidates it is outside of
them with a chance below 1e-80.
"""
_DISPERSION_ERROR, _MARGIN = 0.02, 1e-3
"""Of what a sample's mean information makes of the dispersion (1 in 64 of its scatter), and of its
quantiles: they bound, so that room costs time alone.
"""
_LEAST_STEP = float(np.log(8))
"""A limit is raised eightfold at least, so that the list isn't gone over again for little."""


class Screened(NamedTuple):
    """What was found, of the candidates that stand out.

    Attributes
    ----------
    found : SearchResult
    sets : int64 array, shape (r,)
        Which sets of bits its candidates are.
    p_value_counts : int64 array, shape (20,)
        See `Decoding`.
    of_detected : callable
        As of `Search`.
    """

    found: SearchResult
    sets: IntArray
    p_value_counts: IntArray
    of_detected: Callable[[SearchResult, BoolArray], Fit]


@dataclass(frozen=True, slots=True)
class ListSearch:
    """Looks for the model of a list, and tests all of it, on an engine."""

    distinct: DistinctList
    engine: Engine
    bits: BitEstimates
    params: RapporParams
    log_alpha: float
    correction: Correction

    def run(self) -> Screened:
        """Return the model in which nothing changes any more, or the last one tried."""
        n = self.distinct.sets
        if n <= EXACT:
            search = self._among(np.arange(n), None, 1.0)
            found = search.run()
            p_values = np.exp(found.log_p[~np.isnan(found.estimates.share)])
            return Screened(found, np.arange(n), p_value_counts(p_values)[0], search.of_detected)
        near, chosen = self._proposed()
        for _ in range(SCANS - 1):
            settled = self._among(near, n, SEARCHED).settle(np.searchsorted(near, chosen))
            screened = self._tested(settled, near)
            found, sets = screened.found, screened.sets
            chosen = sets[found.detected]
            if np.isin(chosen, near).all():
                models = selection_corrected_models(
                    settled.tests, settled.log_p, settled.log_cutoffs
                )
                named = models.named(np.searchsorted(sets, near))
                return screened._replace(found=replace(found, without_feedback=named))
            near = np.union1d(near, chosen)
            chosen = keep_fittest(chosen, -found.log_p[found.detected], self.bits)
        return screened._replace(found=replace(found, settled=False))

    def _proposed(self) -> tuple[IntArray, IntArray]:
        """Return the candidates that are searched, and those that the Lasso proposes."""
        none = np.empty(0, dtype=np.int64)
        design = make_design(self._candidates(none).positions(none), self.params)
        alone = fit_selected(self.bits, design, none, self.params)
        scores = bounded_scores(alone.scores, alone.weights, self.params)
        test = MarginalTest(self.params, scores, _ready(HashNull(scores, self.params.h)), MAX_NEAR)
        strongest = Strongest(none, np.empty(0))
        for found in self.engine.map(strongest_of, test, self.distinct.blocks):
            sets = np.concatenate([strongest.sets, found.sets])
            log_p = np.concatenate([strongest.log_p, found.log_p])
            strongest = Strongest(sets, log_p).best(MAX_NEAR)
        near, best = (strongest.sets[rows] for rows in top_scoring(strongest.log_p))
        proposed = select(alone, self._candidates(best), self.bits, self.distinct.sets)
        return near, best[proposed]

    def _tested(self, settled: SearchResult, near: IntArray) -> Screened:
        """Estimate and test the whole list in the model that was found among those near."""
        fit = replace(settled.fit, selected=near[settled.fit.selected])
        test = self._test(fit, near, self._first_limit())
        while True:
            tasks = self.engine.map(tested_of, test, self.distinct.blocks)
            tested = reduce(add, tasks)
            screened = self._corrected(test, tested, settled, near)
            needed = self._needed_limit(test, tested, screened.found)
            if needed <= test.log_limit:
                return screened
            test = replace(test, log_limit=needed)

    def _test(self, fit: Fit, near: IntArray, log_limit: float) -> ListTest:
        """Return what blocks need to know, for which some candidates stand for all."""
        bounded = bounded_scores(fit.scores, fit.weights, self.params)
        sample = self._candidates(sampled(self.distinct.sets))
        tables = [table.reshape(bounded.shape) for table in (fit.scores, fit.weights)]
        _, by_bit = scan(sample, [], tables)
        score, weight = by_bit[:, 0].copy(), by_bit[:, 1].copy()
        quotient = left_over(fit, sample, weight)
        information = information_of_many(fit, sample, score, weight, quotient)
        known = is_determined(information, weight)
        errors = ErrorRange((1.0, 1.0), 0.0, 1.0)
        if known.any():
            information, score = information[known], score[known]
            dispersion = dispersion_outside(fit, float(information.mean()), self.params)
            drawn = drawing(shares_outside(score, information), self.bits.collected)
            low, high = np.quantile(without_drawing(1 / information, drawn / dispersion), _SURE)
            errors = ErrorRange(
                ((1 - _DISPERSION_ERROR) / dispersion, (1 + _DISPERSION_ERROR) / dispersion),
                (1 - _MARGIN) * float(low),
                (1 + _MARGIN) * float(high),
            )
        null = _ready(HashNull(bounded, self.params.h))
        return ListTest(
            self.params, fit, bounded, null, quotient, self.bits.collected, near, log_limit, errors
        )

    def _corrected(
        self, test: ListTest, tested: Tested, settled: SearchResult, near: IntArray
    ) -> Screened:
        """Put together what blocks have returned."""
        sets, sums, n = tested.sets, tested.sums, self.distinct.sets
        candidates = self._candidates(sets)
        members = np.searchsorted(sets, test.fit.selected)
        fit = replace(test.fit, selected=members)
        information = information_of_many(fit, candidates, sums.score, sums.weight, test.quotient)
        mean = tested.information / tested.known if tested.known else None
        estimates = estimates_of(fit, self.bits, self.params, sums, information, mean)
        estimates = replace(estimates, median_error=_median_error(test, tested, estimates, members))
        with_rivals = settled.tests.with_rivals
        if isinstance(with_rivals, Models):
            with_rivals = with_rivals.named(np.searchsorted(sets, near))
        tests = PresenceTests(fit, candidates, self.bits, self.params, with_rivals)
        log_p = tests.log_p_values(estimates, sums)
        above = tested.above_half + int(np.count_nonzero(log_p[members] > LOG_HALF))
        n_tests = number_of_tests(above, n, self.correction, test.null.above_half())
        found = corrected(
            estimates,
            log_p,
            tests,
            n_tests,
            n,
            self.log_alpha,
            self.correction,
            allowance=SEARCHED,
        )
        known = members[~np.isnan(estimates.share[members])]
        p_values = tested.p_values + p_value_counts(np.exp(log_p[known]))[0]
        return Screened(found, sets, p_values, lambda _found, _detected: fit)

    def _first_limit(self) -> float:
        """Return ln of the p-value above which no candidate is expected to matter."""
        cutoff = min(self.log_alpha + np.log(_DETECTED / self.distinct.sets), LOG_HALF)
        return _below(float(cutoff), _WINDOW_Z)

    def _needed_limit(self, test: ListTest, tested: Tested, found: SearchResult) -> float:
        """Return the limit up to which candidates must be known, given what is known.

        Notes
        -----
        By Benjamini and Hochberg's procedure the candidate of rank j is detected if
        p n_tests / i <= alpha for its own p-value or that of any later rank i. Here p is at least
        the lower end of a range, and i at most the number of all up to its upper end.
        """
        limit, members = test.log_limit, len(found.fit.selected)
        if limit >= 0:
            return limit
        needed = _below(found.log_cutoff, _NEEDED_Z)
        at_most = int(np.count_nonzero(found.log_p <= limit)) + members + np.cumsum(tested.ranges)
        ranks = np.append(at_most, found.listed).astype(np.float64)
        if self.correction is Correction.BONFERRONI:
            ranks[:] = 1
        stepped = test.ranges + np.log(found.n_tests * found.allowance / np.maximum(ranks, 1))
        reached = np.flatnonzero(stepped <= self.log_alpha)
        if len(reached):
            last = int(reached[-1])
            needed = max(needed, float(test.ranges[last + 1]) if last < RANGES else 0.0)
        return limit if needed <= limit else min(max(needed, limit + _LEAST_STEP), 0.0)

    def _among(self, sets: IntArray, listed: int | None, allowance: float) -> Search:
        return Search(
            self.bits,
            self._candidates(sets),
            self.params,
            self.log_alpha,
            self.correction,
            listed,
            allowance,
        )

    def _candidates(self, sets: IntArray) -> Candidates:
        return unnamed(self.distinct.words(sets), self.params)


def _median_error(
    test: ListTest, tested: Tested, estimates: CandidateEstimates, members: IntArray
) -> float:
    """Return the median standard error of all candidates.

    Notes
    -----
    Where drawing adds nothing, the median of v - w / d doesn't depend on d at all; where it does,
    it is close to a straight line in 1 / d.
    """
    own = estimates.std_error[members]
    own = own[~np.isnan(own)] ** 2 / estimates.dispersion
    counts = tested.errors + test.errors.tally(own)
    if not counts[0].sum():
        return float("nan")
    at = test.errors.inverse
    medians = [test.errors.median(each) for each in counts]
    slope = (medians[1] - medians[0]) / (at[1] - at[0]) if at[1] > at[0] else 0.0
    median = medians[0] + slope * (1 / estimates.dispersion - at[0])
    return float(np.sqrt(estimates.dispersion * median))


def _below(log_p: float, z: float) -> float:
    """Return ln of the p-value of a z-score that is smaller by so much."""
    return float(special.log_ndtr(z - z_scores(np.array(log_p))))


def _ready(null: HashNull) -> HashNull:
    """Return a distribution with its table, so that tasks needn't make it again."""
    null.log_tails(np.zeros(1))
    return null
