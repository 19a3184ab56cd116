"""Choose the model's candidates: fit, test and add the detected ones until it is stable.

A short list goes into the model whole where rows are plenty, all as fixed effects (plain weighted
least squares): nothing is searched. Otherwise the marginal tests show whether much of the list is
there. If so, it goes in whole, as fixed effects and as random effects whose distribution is
estimated, and the model with the smaller errors is kept. If not, only those go in that the marginal
tests propose, or a non-negative Lasso where more stand out than rows can carry, and that a test
then detects; the others add to the excess variance. Where that is much, the whole list is tried as
random effects, too.

Proposals decide nothing: whether a candidate is detected is decided by its p-value, so a generous
selection costs time, not false discoveries. Of a long list the candidates that stand out are
searched among themselves, and the whole list is gone over twice.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.candidates import Candidates, make_design
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.estimates import (
    CandidateEstimates,
    PresenceTests,
    bounded_scores,
    candidate_sums,
    estimate_all,
)
from hubbub.inference.regression.model import (
    ROWS_EACH,
    Fit,
    ModelTerms,
    drawn_members,
    fit_members,
    unknown_column,
)
from hubbub.inference.scanning import scan
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import (
    LOG_HALF,
    Correction,
    counted_tests,
    log_cutoff,
    log_q_values,
    z_scores,
)
from hubbub.protocol import RapporParams

MOST_LISTED = 1_200
"""Most candidates that go into the model whole."""

# So few candidates with so many rows for each lose at most 5% of their errors to each other's
# freedom, which no search would make up for.
_FEW, _PLENTY = 300, 10

SEARCHED = 1.4
"""The factor by which q-values are raised if the model was found in the same reports.

A candidate that was tested as a member helped to choose the model that it is tested in, as random
effects do: without it .049 and .060 of the names were false in 160 random regimes and 40 crowded
ones, with it .043 and .050, at 1% fewer right ones.
"""

# Candidates per row beyond which fixed effects have larger errors than random effects.
_CROWDED = 0.6
_MOSTLY_ABSENT = 0.75  # if more than this share seems absent, only the detected go in
# Up to such a part of a variance, what candidates outside of the model add to it isn't worth the
# time of putting them in.
_NEGLIGIBLE_PART = 0.1
# Random effects, and the weights that they lead to: these begin with all that nothing explains yet
# as noise, so that after two of them too little is found; a fourth costs more and finds 1% more.
# Shares are then known to a tenth of an error; later rounds set out from where others ended.
_REWEIGHTINGS, _ROUNDS, _ROUNDS_AGAIN = 3, 6, 3
# Random effects take up what strong unlisted strings share with candidates: in one cohort errors
# came out 15% larger than stated; with eight candidates a row, half of the reports of unlisted
# strings, a sixth of the names were false. Up to three a row they find up to twice as many names.
_MOST_A_ROW = 3
# Rounds of the search while members may still join; after these they may only leave, so that it
# ends (docs/understand/statistics.md, The model).
_FREE_ROUNDS = 6
# While it searches, stronger members are tested by approximation: they are detected anyway.
_EXACT_BELOW_Z = 6.0
# Proposed are some of the 1,000 strongest candidates above 2 standard deviations: others can't be
# detected, and only cost time.
_SCREEN_Z = 2.0
_MAX_SURVIVORS = 1000
_TINY = 1e-300  # keeps a quotient finite
_LASSO_TOLERANCE = 1e-6  # of the rates' sum of squares: who is above 0 hardly depends on the order
MAX_NEAR = 4000
"""Candidates among which the model is searched for."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A model in which nothing changes any more, or the last one tried."""

    fit: Fit
    estimates: CandidateEstimates
    log_p: FloatArray  # shape (n,)
    log_q: FloatArray
    detected: BoolArray  # shape (n,)
    # Ln of the largest p-value, divided by its weight, that counts as a detection.
    log_cutoff: float
    n_tests: float  # by how many tests p-values were corrected, an allowance for the search apart
    listed: int  # how many candidates were tested in all
    tests: PresenceTests  # by which p-values were found
    # Shape (n,); by which p-values were divided before they were compared.
    log_weights: FloatArray | None = None
    settled: bool = True  # whether nothing changes any more
    allowance: float = 1.0  # by which q-values were raised

    @property
    def log_cutoffs(self) -> FloatArray:
        """Return ln of the largest p-value at which each candidate is detected; shape (n,)."""
        if self.log_weights is None:
            return np.full(len(self.log_p), self.log_cutoff)
        return np.minimum(self.log_cutoff + self.log_weights, LOG_HALF)


@dataclass(frozen=True, slots=True)
class Search:
    """The loop between what is in the model and what is detected."""

    bits: BitEstimates
    candidates: Candidates
    params: RapporParams
    log_alpha: float
    correction: Correction
    # How many candidates are tested in all, if these are some of them: those that stand out.
    listed: int | None = None
    allowance: float = 1.0  # by which q-values are raised
    # Shape (n,); logarithms of what was expected of each candidate before these reports were seen:
    # p-values are divided by their weights, whose mean over all tested is 1 (Genovese, Roeder and
    # Wasserman, Biometrika 93, 2006).
    log_weights: FloatArray | None = None
    # How many are tested if some of them were dropped before: all count against these.
    tests: int | None = None
    elsewhere: int = 0  # how many other strings are detected, at the same error rate

    def run(self) -> SearchResult:
        """Return the model in which nothing changes any more, or the last one tried."""
        rows, n = self.bits.informative, len(self.candidates)
        alone = self._fit_fixed(np.empty(0, dtype=np.int64))
        may_be_random = n <= MOST_LISTED and self.params.m > 1 and n <= _MOST_A_ROW * rows
        if is_short(n, rows) and (whole := self._run_fixed()):
            return whole
        scores = bounded_scores(alone.scores, alone.weights, self.params)
        totals, _ = scan(self.candidates, [scores], [])
        null = HashNull(scores, self.params.h)
        log_p = self._marginal_tails(null, totals[:, 0])
        mostly_absent = n > MOST_LISTED or counted_tests(log_p, Correction.BH) > _MOSTLY_ABSENT * n
        if mostly_absent:
            found = self._run_proposed(alone, log_p)
            if not may_be_random:
                return found
            if np.count_nonzero(found.detected) <= (1 - _MOSTLY_ABSENT) * n:
                if n / rows * _excess_square(found) <= _NEGLIGIBLE_PART:
                    return found
                return _surest([found, self._run_random(found.fit)])
        # Rows of a filter that is half full carry less about each string.
        room = (1.0 - unknown_column(self.params)) ** 2 * rows
        all_fixed = self._run_fixed() if n <= _CROWDED * room else None
        if not may_be_random:
            return all_fixed or self._run_proposed(alone, log_p)
        if all_fixed is None:
            return self._run_random(alone)
        if n * _PLENTY <= room:
            return all_fixed
        return _surest([all_fixed, self._run_random(all_fixed.fit)])

    def _marginal_tails(self, null: HashNull, totals: FloatArray) -> FloatArray:
        if self.log_weights is not None or len(totals) <= MAX_NEAR:
            return null.log_tails(totals)
        high = np.flatnonzero(totals >= np.partition(totals, -MAX_NEAR)[-MAX_NEAR])
        log_p = np.zeros(len(totals))
        log_p[high] = null.log_tails(totals[high])
        return log_p

    def _run_fixed(self) -> SearchResult | None:
        """Return the whole list as fixed effects, if the rows determine all shares.

        Otherwise the last of dependent columns would be left out, and the others' shares would hold
        its own: as random effects they stay what they are.
        """
        fit = self._fit_fixed(np.arange(len(self.candidates)))
        return self.tested(fit) if len(fit.selected) == len(self.candidates) else None

    def _run_random(self, fit: Fit) -> SearchResult:
        """Return the model of the whole list as random effects.

        `fit`: another model, to set out from its weights.
        """
        members = self._members(np.arange(len(self.candidates)))
        for rounds in (_ROUNDS, *[_ROUNDS_AGAIN] * (_REWEIGHTINGS - 1)):
            members = drawn_members(self.bits, members, self.params, fit, rounds)
            fit = fit_members(self.bits, members, self.params, start=fit)
        return replace(self, allowance=SEARCHED).tested(fit)

    def all_listed(self, found: SearchResult) -> Fit | None:
        """Return the model of the whole list as fixed effects, if the rows carry it."""
        n = len(self.candidates)
        if len(found.fit.selected) == n and not found.fit.penalties.any():
            return found.fit
        if n > MOST_LISTED or n * ROWS_EACH > self.bits.informative or self.tests:
            return None
        fit = self._fit_fixed(np.arange(n))
        return fit if len(fit.selected) == n else None

    def _run_proposed(self, alone: Fit, log_p: FloatArray) -> SearchResult:
        """Search among the candidates that stand out, then look whether another one does now.

        `alone`: of the unknown mass alone. `log_p`, shape (n,): of the marginal tests, in that fit.
        """
        search = replace(self, allowance=SEARCHED)
        near, best = top_scoring(self._weighted(log_p))
        # Where more stand out than rows carry, the strongest share bits and aren't those to begin
        # with. Elsewhere the Lasso finds the same names, and takes longer to import than the list.
        propose = chosen_by_lasso if len(best) > room(self.bits) else passing
        chosen = best[propose(alone, self.candidates.take(best), self.bits, len(log_p))]
        fit = search._among(near).settle(np.searchsorted(near, chosen)).fit
        found = search.tested(replace(fit, selected=near[fit.selected]))
        outside = np.setdiff1d(np.flatnonzero(found.detected), near)
        return replace(found, settled=not len(outside))

    def _among(self, near: IntArray) -> Search:
        listed = self._n_tested
        weights = None if self.log_weights is None else self.log_weights[near]
        return replace(
            self, candidates=self.candidates.take(near), listed=listed, log_weights=weights
        )

    def settle(self, chosen: IntArray) -> SearchResult:
        """Let in and out until the members are those that are detected.

        After some rounds members may only leave, so that it comes to an end.
        """
        for step in itertools.count():
            found = self.tested(self._fit_fixed(chosen))
            detected = np.flatnonzero(found.detected)
            if np.array_equal(detected, found.fit.selected):
                break
            if step >= _FREE_ROUNDS:
                detected = np.intersect1d(detected, chosen)
            kept = non_collinear_subset(detected, -found.log_p[detected], self.bits)
            if np.array_equal(kept, chosen):
                break
            chosen = kept
        return found

    def tested(self, fit: Fit) -> SearchResult:
        """Estimate and test all candidates in a given model."""
        sums = candidate_sums(fit, self.candidates)
        searching = self.listed is not None
        estimates = estimate_all(
            fit, self.candidates, self.bits, self.params, sums, roughly=searching
        )
        exact = _EXACT_BELOW_Z if searching else np.inf
        tests = PresenceTests(fit, self.candidates, self.bits, self.params, exact)
        log_p = tests.log_p_values(estimates, sums)
        tested = self._n_tested
        n_tests = counted_tests(log_p, self.correction, tested, self.log_weights)
        raised = n_tests * self.allowance
        weighted = _weighted(log_p, self.log_weights)
        log_q = log_q_values(weighted, self.correction, raised, self.elsewhere)
        log_q[log_p > LOG_HALF] = 0.0
        detected = log_q <= self.log_alpha
        n_detected = int(np.count_nonzero(detected)) + self.elsewhere
        return SearchResult(
            fit,
            estimates,
            log_p,
            log_q,
            detected,
            log_cutoff(n_detected, raised, self.log_alpha, self.correction),
            n_tests,
            tested,
            tests,
            self.log_weights,
            allowance=self.allowance,
        )

    @property
    def _n_tested(self) -> int:
        return self.listed or self.tests or len(self.candidates)

    def _weighted(self, log_p: FloatArray) -> FloatArray:
        return _weighted(log_p, self.log_weights)

    def _fit_fixed(self, selected: IntArray) -> Fit:
        return fit_members(self.bits, self._members(selected), self.params)

    def _members(self, selected: IntArray) -> ModelTerms:
        design = make_design(self.candidates.positions(selected), self.params)
        return ModelTerms.fixed(selected, design.matrix)


def _excess_square(found: SearchResult) -> float:
    z = (found.estimates.share / found.estimates.std_error)[~found.detected]
    return float(np.nanmean(z**2)) - 1 if np.isfinite(z).any() else 0.0


def _surest(found: Sequence[SearchResult]) -> SearchResult:
    errors = [each.estimates.typical_error for each in found]
    return found[int(np.argmin(np.nan_to_num(errors, nan=np.inf)))]


def is_short(n: float, rows: int) -> bool:
    """Say whether a list goes into the model whole without a search."""
    return n <= _FEW and n * _PLENTY <= rows


def top_scoring(log_p: FloatArray) -> tuple[IntArray, IntArray]:
    """Return which candidates are searched, and which of them the Lasso sees.

    `log_p`, shape (n,): of the marginal tests. Returns `near, best`: in ascending order.
    """
    rows = np.arange(len(log_p))
    if len(log_p) > MAX_NEAR:  # sorting a million takes ten times as long as finding these
        rows = np.flatnonzero(log_p <= np.partition(log_p, MAX_NEAR - 1)[MAX_NEAR - 1])
    order = rows[np.argsort(log_p[rows], kind="stable")]
    strongest = order[:_MAX_SURVIVORS]
    stand_out = z_scores(log_p[strongest]) > _SCREEN_Z
    return np.sort(order[:MAX_NEAR]), np.sort(strongest[stand_out])


def _weighted(log_p: FloatArray, log_weights: FloatArray | None) -> FloatArray:
    return log_p if log_weights is None else np.minimum(log_p - log_weights, 0.0)


def passing(fit: Fit, candidates: Candidates, bits: BitEstimates, n_candidates: int) -> IntArray:
    """Propose candidates for the model by their own tests: one of n absent ones passes.

    `fit`: of the model that holds nothing but the unknown mass. `candidates`: those that stand out.
    `n_candidates`: among so many. Returns the proposed in ascending order.
    """
    sums = candidate_sums(fit, candidates)
    z = sums.score / np.sqrt(np.maximum(sums.weight, _TINY))
    return non_collinear_subset(np.arange(len(z)), z - _passed_by_one(n_candidates), bits)


def chosen_by_lasso(
    fit: Fit, candidates: Candidates, bits: BitEstimates, n_candidates: int
) -> IntArray:
    """Propose as `passing` does, by a non-negative Lasso over all of them together.

    The noise level is known, so no cross-validation is needed: the score of an absent candidate has
    standard deviation sqrt(x'Wx), so a penalty on shares of that, times the z-score that one of n
    absent ones exceeds, lets through about one of n.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - slow, and seldom needed
    from sklearn.linear_model import Lasso  # noqa: PLC0415

    matrix = make_design(candidates.positions(slice(0, len(candidates))), candidates.params).matrix
    typical = float(np.median(np.asarray(matrix @ fit.weights)))
    penalty = max(_passed_by_one(n_candidates), 1.0) * math.sqrt(typical)
    lasso = Lasso(penalty / fit.weights.sum(), positive=True, tol=_LASSO_TOLERANCE)
    with warnings.catch_warnings():  # proposals needn't be exact, and a user can't do anything
        warnings.simplefilter("ignore", ConvergenceWarning)
        lasso.fit(matrix.T.tocsc(), bits.rate.ravel(), sample_weight=fit.weights)
    return non_collinear_subset(np.arange(len(candidates)), lasso.coef_, bits)


def _passed_by_one(n: int) -> float:
    """Return the z-score that one of n absent candidates exceeds."""
    return -float(special.ndtri(1.0 / n))


def room(bits: BitEstimates) -> int:
    """Return how many fixed effects the rows can carry."""
    return max(1, bits.informative // ROWS_EACH)


def non_collinear_subset(candidates: IntArray, merit: FloatArray, bits: BitEstimates) -> IntArray:
    """Keep candidates of positive merit, the best ones if the rows can't carry them all."""
    best = np.argsort(-merit, kind="stable")[: room(bits)]
    return np.sort(candidates[best[merit[best] > 0]])
