"""Which candidates belong in the model: fit, test, let in what is detected, until it is stable.

A short list goes into the model whole: all as fixed effects where rows are plenty (plain weighted
least squares), otherwise the detected as fixed and the others as random effects, whose variance is
estimated.
Of a long list only those go in that a screen and a non-negative Lasso propose, or that a test
detects; the others add to the excess variance. Proposals decide nothing: whether a candidate is
detected is decided by its p-value, so a generous selection costs time, not false discoveries.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.decoder.candidates.listing import Candidates, make_design
from hubbub.decoder.counts import BitEstimates
from hubbub.decoder.inference.multiple_testing import SEARCHED, Correction, log_q_values
from hubbub.decoder.regression.estimates import Estimates, PresenceTests, estimate_all
from hubbub.decoder.regression.model import Fit, Members, fit_members
from hubbub.protocol.params import RapporParams

MOST_LISTED = 1_200
"""Most candidates that go into the model whole."""

_FEW = 3  # a third as many candidates as rows or fewer are estimated freely
_CROWDED = 0.7  # ... and up to this share of rows if a third of them is detected anyway
_ROOM = 16  # rows for each string that is a fixed effect because it was detected
_ROUNDS = 12
_STABLE = 0.1
_LARGEST_LOG_VARIANCE = 8.0
_GRID = 20_001
_NEGLIGIBLE = 1e-3
_SCREEN_Z = 2.0
_MAX_SURVIVORS = 1000
_MAX_SHARE_OF_ROWS = 3  # at most a third as many candidates as rows leaves noise to be estimated
_MAX_STEPS = 5000


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A model in which nothing changes any more, or the last one tried.

    Attributes
    ----------
    log_p : float64 array, shape (n,)
    """

    fit: Fit
    estimates: Estimates
    log_p: FloatArray


@dataclass(frozen=True, slots=True)
class Search:
    """The loop between what is in the model and what is detected."""

    bits: BitEstimates
    candidates: Candidates
    params: RapporParams
    log_alpha: float
    correction: Correction

    def run(self) -> SearchResult:
        """Return the model in which nothing changes any more, or the last one tried."""
        if len(self.candidates) <= MOST_LISTED:
            return self._run_whole_list()
        return self._run_proposed()

    def detected(self, log_p: FloatArray) -> BoolArray:
        """Mark what is detected."""
        return np.asarray(
            log_q_values(log_p, self.correction, allowance=SEARCHED) <= self.log_alpha
        )

    def of_detected(self, found: SearchResult, detected: BoolArray) -> Fit:
        """Return the model by which the constrained shares of the detected are fitted.

        Of a short list the detected are fixed effects and the others random, which takes up what
        they hold together without letting the noise of each push the shares of the detected about.
        If most of the list is detected, the others are likely there, too, and stay as they are.
        """
        if len(self.candidates) > MOST_LISTED or detected.sum() * 2 > len(detected):
            return found.fit
        prior_variance = self._prior_variance(found, ~detected, int(detected.sum()))
        members = self._members(np.arange(len(detected)), detected)
        return fit_members(
            self.bits, members, self.params, prior_variance=prior_variance, start=found.fit
        )

    def _run_whole_list(self) -> SearchResult:
        rows, n = self.bits.informative, len(self.candidates)
        fixed, prior_variance, fit = np.full(n, n * _FEW <= rows), 0.0, None
        members = self._members(np.arange(n), fixed)
        for _ in range(_ROUNDS):
            members = replace(members, fixed=fixed)
            fit = fit_members(
                self.bits, members, self.params, prior_variance=prior_variance, start=fit
            )
            found = self._tested(fit)
            if fixed.all():
                return found
            detected = self.detected(found.log_p)
            if detected.sum() * _FEW > n and n <= _CROWDED * rows:
                fixed = np.ones(n, dtype=np.bool_)
                continue
            room = max(rows // _ROOM - int(fixed.sum()), 0)
            news = np.flatnonzero(detected & ~fixed)
            news = news[np.argsort(found.log_p[news], kind="stable")[:room]]
            fixed = fixed.copy()
            fixed[news] = True
            previous = prior_variance
            prior_variance = self._prior_variance(found, ~fixed, int(detected.sum()))
            if not len(news) and abs(prior_variance - previous) <= _STABLE * previous:
                return found
        return found

    def _run_proposed(self) -> SearchResult:
        fit = self._fit_fixed(np.empty(0, dtype=np.int64))
        estimates = estimate_all(fit, self.candidates, self.bits, self.params)
        selected = select(fit, estimates, self.candidates, self.bits)
        for _ in range(_ROUNDS):
            found = self._tested(self._fit_fixed(selected))
            detected = np.flatnonzero(self.detected(found.log_p))
            if np.array_equal(detected, found.fit.selected):
                return found
            kept = keep_fittest(detected, -found.log_p[detected], self.bits)
            if np.array_equal(kept, selected):
                return found
            selected = kept
        return found

    def _tested(self, fit: Fit) -> SearchResult:
        estimates = estimate_all(fit, self.candidates, self.bits, self.params)
        log_p = PresenceTests(fit, self.candidates, self.bits, self.params).log_p_values(estimates)
        return SearchResult(fit, estimates, log_p)

    def _fit_fixed(self, selected: IntArray) -> Fit:
        members = self._members(selected, np.ones(len(selected), dtype=np.bool_))
        return fit_members(self.bits, members, self.params)

    def _members(self, selected: IntArray, fixed: BoolArray) -> Members:
        design = make_design(self.candidates.positions(selected), self.params)
        return Members(selected, design.matrix, fixed)

    def _prior_variance(self, found: SearchResult, others: BoolArray, n_detected: int) -> float:
        """Return sigma^2 of the candidates that aren't detected, by maximum likelihood.

        Their z-scores are normal with variance 1 + sigma^2 / s^2, but cut off at the limit of
        detection: without regard to that those that came out low would seem to be absent. Of those
        detected only the weakest, for which there was no room among the fixed, are here.
        """
        share, std_error = found.estimates.share[others], found.estimates.std_error[others]
        known = ~np.isnan(share)
        if known.sum() < _FEW:
            return 0.0
        z = share[known] / std_error[known]
        level = np.exp(self.log_alpha) * max(n_detected, 1) / len(found.log_p)
        limit = max(-float(special.ndtri(level)), float(z.max()))

        # On a grid: SciPy's minimisers take longer to import than all this takes.
        log_variance = np.linspace(0.0, _LARGEST_LOG_VARIANCE, _GRID)
        cut_off = special.log_ndtr(limit * np.exp(-log_variance / 2))
        surprise = float(z @ z) / 2 * np.exp(-log_variance)
        surprise += len(z) * (log_variance / 2 + cut_off)
        excess = float(np.expm1(log_variance[surprise.argmin()]))
        return excess * float(np.mean(std_error[known] ** 2)) if excess > _NEGLIGIBLE else 0.0


def select(fit: Fit, estimates: Estimates, candidates: Candidates, bits: BitEstimates) -> IntArray:
    """Return the candidates for the model, in ascending order.

    Parameters
    ----------
    fit, estimates
        Of the model that holds nothing but the unknown mass: the marginal statistics.
    """
    # Long lists alone need it, and importing it takes longer than decoding a short one.
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.linear_model import Lasso  # noqa: PLC0415

    z = np.nan_to_num(estimates.share / estimates.std_error)
    survivors = np.flatnonzero(z > _SCREEN_Z)
    survivors = survivors[np.argsort(-z[survivors], kind="stable")[:_MAX_SURVIVORS]]
    if not len(survivors):
        return survivors
    design = make_design(candidates.positions(survivors), candidates.params)
    lasso = Lasso(
        alpha=penalty(fit.weights, design.matrix, len(candidates)),
        positive=True,
        max_iter=_MAX_STEPS,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it only proposes
        lasso.fit(design.matrix.T.tocsc(), bits.rate.ravel(), sample_weight=fit.weights)
    return keep_fittest(survivors, lasso.coef_, bits)


def penalty(weights: FloatArray, matrix: SparseMatrix, n_candidates: int) -> float:
    """Return the Lasso's alpha, in scikit-learn's scale, that lets through about one of n nulls.

    The noise level is known, so no cross-validation is needed: the score of an absent candidate has
    standard deviation sqrt(x'Wx), and the n-th part of a normal lies above Phi^-1(1 - 1/n).

    Parameters
    ----------
    weights : float64 array, shape (m * k,)
    matrix : sparse array, shape (s, m * k)
        Bloom filters of some of the candidates.
    n_candidates : int
        n.
    """
    z = max(-float(special.ndtri(1.0 / n_candidates)), 1.0)
    typical = float(np.median(np.asarray(matrix @ weights)))
    return z * float(np.sqrt(typical) / weights.sum())


def keep_fittest(candidates: IntArray, merit: FloatArray, bits: BitEstimates) -> IntArray:
    """Keep candidates of positive merit, the best ones if the rows can't carry them all."""
    room = max(1, bits.informative // _MAX_SHARE_OF_ROWS)
    best = np.argsort(-merit, kind="stable")[:room]
    return np.sort(candidates[best[merit[best] > 0]])
