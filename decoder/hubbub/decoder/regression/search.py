"""Which candidates belong in the model: fit, test, and let in what is detected, until it settles.

A short list goes into the model whole: all free where rows are plenty (plain weighted least
squares), otherwise the detected free and the others as draws about 0 whose variance is estimated.
Of a long list only those go in that Lasso proposes or a test detects; the others are background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.decoder.bits import BitEstimates
from hubbub.decoder.candidates.listing import Candidates, make_design
from hubbub.decoder.inference.multiple_testing import SEARCHED, Correction, log_q_values
from hubbub.decoder.regression.estimates import Estimates, estimate_all
from hubbub.decoder.regression.model import Fit, Members, fit_members
from hubbub.decoder.regression.selection import keep_fittest, select
from hubbub.decoder.regression.testing import Tests

MOST_LISTED = 1_200
"""Most candidates that go into the model whole."""

_FEW = 3  # a third as many candidates as rows or fewer are estimated freely
_CROWDED = 0.7  # ... and up to this share of rows if a third of them is detected anyway
_ROOM = 16  # rows for each string that is freed because it was detected
_ROUNDS = 12
_SETTLED = 0.1
_LARGEST_LOG_VARIANCE = 8.0
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True, slots=True)
class Found:
    """A settled model.

    Attributes
    ----------
    fit : Fit
    estimates : Estimates
    log_p : float64 array, shape (n,)
    """

    fit: Fit
    estimates: Estimates
    log_p: FloatArray


@dataclass(frozen=True, slots=True)
class Search:
    """The loop between what is in the model and what is detected.

    Attributes
    ----------
    bits : BitEstimates
    candidates : Candidates
    twins : bool array, shape (n,)
        Candidates that can't be told from another one.
    params : RapporParams
    log_alpha : float
    correction : Correction
    """

    bits: BitEstimates
    candidates: Candidates
    twins: BoolArray
    params: RapporParams
    log_alpha: float
    correction: Correction

    def settle(self) -> Found:
        """Return the model in which nothing changes any more, or the last one tried."""
        if len(self.candidates) <= MOST_LISTED:
            return self._settle_whole_list()
        return self._settle_proposed()

    def detected(self, log_p: FloatArray) -> BoolArray:
        """Mark what is detected."""
        return np.asarray(
            log_q_values(log_p, self.correction, allowance=SEARCHED) <= self.log_alpha
        )

    def of_detected(self, found: Found, detected: BoolArray) -> Fit:
        """Return the model by which the shares of the detected are refitted.

        Of a short list the detected are free and the others draws about 0, which takes up what they
        hold together without letting the noise of each push the shares of the detected about. If
        most of the list is detected, the others are likely there, too, and stay as they are.
        """
        listed = np.flatnonzero(~self.twins)
        if len(self.candidates) > MOST_LISTED or detected.sum() * 2 > len(listed):
            return found.fit
        free = detected[listed]
        spread = self._spread(found, listed[~free], int(detected.sum()))
        members = self._members(listed, free)
        return fit_members(self.bits, members, self.params, spread=spread, start=found.fit)

    def _settle_whole_list(self) -> Found:
        listed = np.flatnonzero(~self.twins)
        rows, n = self.bits.informative, len(listed)
        free, spread, fit = np.full(n, n * _FEW <= rows), 0.0, None
        members = self._members(listed, free)
        for _ in range(_ROUNDS):
            members = replace(members, free=free)
            fit = fit_members(self.bits, members, self.params, spread=spread, start=fit)
            found = self._tested(fit)
            if free.all():
                return found
            detected = self.detected(found.log_p)[listed]
            if detected.sum() * _FEW > n and n <= _CROWDED * rows:
                free = np.ones(n, dtype=np.bool_)
                continue
            room = max(rows // _ROOM - int(free.sum()), 0)
            news = _strongest(detected & ~free, found.log_p[listed], room)
            free = free | news
            previous, spread = spread, self._spread(found, listed[~free], int(detected.sum()))
            if not news.any() and abs(spread - previous) <= _SETTLED * previous:
                return found
        return found

    def _settle_proposed(self) -> Found:
        fit = self._fit_free(np.empty(0, dtype=np.int64))
        estimates = self._estimates(fit)
        selected = select(fit, estimates, self.candidates, self.bits)
        for _ in range(_ROUNDS):
            found = self._tested(self._fit_free(selected))
            detected = np.flatnonzero(self.detected(found.log_p))
            if np.array_equal(detected, found.fit.selected):
                return found
            kept = keep_fittest(detected, -found.log_p[detected], self.bits)
            if np.array_equal(kept, selected):
                return found
            selected = kept
        return found

    def _tested(self, fit: Fit) -> Found:
        estimates = self._estimates(fit)
        log_p = Tests(fit, self.candidates, self.bits, self.params).log_p_values(estimates)
        return Found(fit, estimates, log_p)

    def _fit_free(self, selected: IntArray) -> Fit:
        members = self._members(selected, np.ones(len(selected), dtype=np.bool_))
        return fit_members(self.bits, members, self.params)

    def _members(self, selected: IntArray, free: BoolArray) -> Members:
        design = make_design(self.candidates.positions(selected), self.params)
        return Members(selected, design.matrix, free)

    def _estimates(self, fit: Fit) -> Estimates:
        estimates = estimate_all(fit, self.candidates, self.bits, self.params)
        estimates.share[self.twins] = np.nan
        estimates.std_error[self.twins] = np.nan
        return estimates

    def _spread(self, found: Found, others: IntArray, n_detected: int) -> float:
        """Return sigma^2 of the candidates that aren't detected, by maximum likelihood.

        Their z-scores are normal with variance 1 + sigma^2 / s^2, but cut off at the limit of
        detection: without regard to that those that came out low would seem to be absent. Of those
        detected only the weakest, for which there was no room among the free, are here.
        """
        share, std_error = found.estimates.share[others], found.estimates.std_error[others]
        known = ~np.isnan(share)
        if known.sum() < _FEW:
            return 0.0
        z = share[known] / std_error[known]
        level = np.exp(self.log_alpha) * max(n_detected, 1) / len(found.log_p)
        limit = max(-float(special.ndtri(level)), float(z.max()))

        def surprise(log_variance: float) -> float:
            deviation = np.exp(log_variance / 2)
            each = (z / deviation) ** 2 / 2 + log_variance / 2 + special.log_ndtr(limit / deviation)
            return float(each.sum())

        bounds = (0.0, _LARGEST_LOG_VARIANCE)
        best = optimize.minimize_scalar(surprise, bounds=bounds, method="bounded")
        excess = float(np.expm1(best.x))
        return excess * float(np.mean(std_error[known] ** 2)) if excess > _NEGLIGIBLE else 0.0


def _strongest(marked: BoolArray, log_p: FloatArray, most: int) -> BoolArray:
    """Return at most so many of those that are marked, by their p-values."""
    places = np.flatnonzero(marked)
    kept = np.zeros_like(marked)
    kept[places[np.argsort(log_p[places], kind="stable")[:most]]] = True
    return kept
