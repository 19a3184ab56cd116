"""Is a candidate there at all? P-values, and how large a share had to look to be detected.

The null hypothesis is that nobody has the string. Then its bits are random, and the distribution of
its score over the hash is known exactly given the scores of the rows (`hash_null`), whatever
unlisted strings these hold. A member of the model is tested in the model without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.bits import BitEstimates
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.candidates.scanning import scan
from hubbub.decoder.inference.hash_null import HashNull, score_totals
from hubbub.decoder.regression.estimates import Estimates
from hubbub.decoder.regression.model import Fit, reports_by_row, row_weights
from hubbub.protocol.params import RapporParams

_CLIP = 4.0
_EXACT_FROM_Z = 1.2
_SEARCH_STEPS = 5
_CLOSE = 0.01
_LARGEST_LOG_P = -1e-9
_SURE_Z = 12.0


@dataclass(frozen=True, slots=True)
class Tests:
    """Tests of candidates against a fitted model.

    Attributes
    ----------
    fit : Fit
    candidates : Candidates
    bits : BitEstimates
        To which the model was fitted.
    params : RapporParams
    """

    fit: Fit
    candidates: Candidates
    bits: BitEstimates
    params: RapporParams

    def log_p_values(self, estimates: Estimates) -> FloatArray:
        """Return ln p of every candidate, one-sided; 0 where the data can't tell.

        Members that look absent get the normal distribution's p-value: nothing depends on which of
        two large p-values is the larger.
        """
        scores = self._table(self.fit.scores, self.fit.weights)
        null = HashNull(scores, self.params.h)
        totals, _ = scan(self.candidates, [scores], [])
        log_p = null.log_tails(totals[:, 0])
        selected = self.fit.selected
        share, std_error = estimates.share[selected], estimates.std_error[selected]
        z = np.divide(share, std_error, out=np.zeros_like(share), where=std_error > 0)
        log_p[selected] = special.log_ndtr(-z)
        for place in np.flatnonzero(z > _EXACT_FROM_Z):
            log_p[selected[place]] = self._member_log_p(int(place))
        log_p[np.isnan(estimates.share)] = 0.0
        return log_p

    def thresholds(
        self, estimates: Estimates, log_p: FloatArray, detected: IntArray, log_cutoff: float
    ) -> FloatArray:
        """Return the shares above which detected candidates are detected.

        Given the model without it, a candidate's p-value is a falling function of its estimate
        alone; this is where it crosses the cutoff.

        Parameters
        ----------
        estimates : Estimates
        log_p : float64 array, shape (n,)
        detected : int64 array, shape (d,)
        log_cutoff : float
            ln of the largest p-value that counts as a detection.

        Returns
        -------
        float64 array, shape (d,)
        """
        places = np.searchsorted(self.fit.selected, detected)
        members = np.zeros(len(detected), dtype=np.bool_)
        inside = places < len(self.fit.selected)
        members[inside] = self.fit.selected[places[inside]] == detected[inside]
        sure = estimates.share[detected] > _SURE_Z * estimates.std_error[detected]
        needed = float(_z_of(np.array(log_cutoff)))
        errors = estimates.share[detected] / estimates.std_error[detected]
        z = np.where(sure | members, errors, _z_of(log_p[detected]))
        parts = np.clip(needed / np.maximum(z, _CLOSE), 0.0, 1.0)
        for i in np.flatnonzero(members & ~sure):
            parts[i] = self._part_at(int(places[i]), float(parts[i]), needed)
        return np.asarray(estimates.share[detected] * parts)

    def noise(self) -> HashNull:
        """Return the distribution of an absent string's score, no row's say bounded."""
        return HashNull(self.fit.scores.reshape(self.params.m, self.params.k), self.params.h)

    def _member_log_p(self, place: int) -> float:
        """Test a member in the model without it."""
        residuals, weights = self._without(place)
        return self._log_p_of(place, residuals, weights)

    def _part_at(self, place: int, part: float, needed: float) -> float:
        """Return the part of a member's share at which its p-value is the cutoff (secant steps).

        P-values are taken as the z-scores that they are a normal distribution's tails of, because
        these are close to a straight line in the share: 0 where nothing is left of it.
        """
        residuals, weights = self._without(place)
        taken = (residuals - self.fit.residuals) / self.fit.freedom[place]
        previous, height = 0.0, 0.0
        for _ in range(_SEARCH_STEPS):
            log_p = self._log_p_of(place, residuals - (1 - part) * taken, weights)
            reached = float(_z_of(np.array(log_p)))
            if abs(reached - needed) < _CLOSE or part == previous or reached == height:
                break
            slope = (reached - height) / (part - previous)
            previous, height = part, reached
            part = float(np.clip(part + (needed - reached) / slope, 0.0, 1.0))
        return part

    def _without(self, place: int) -> tuple[FloatArray, FloatArray]:
        """Return residuals and weights of the model that leaves a member out.

        Its weights are those of rates without its share: nobody has it, says the hypothesis.
        """
        fit = self.fit
        own = fit.basis.indices[fit.basis.indptr[1 + place] : fit.basis.indptr[2 + place]]
        rates, reports = self.bits.rate.ravel()[own], reports_by_row(self.bits)[own]
        others = rates - fit.residuals[own] - fit.coefficients[1 + place]
        weights = fit.weights.copy()
        weights[own] = row_weights(others, reports, fit.excess_variance, self.params)
        scores = fit.scores_without(np.array([place]))[:, 0]
        residuals = fit.residuals.copy()
        np.divide(scores, fit.weights, out=residuals, where=fit.weights > 0)
        return residuals, weights

    def _log_p_of(self, place: int, residuals: FloatArray, weights: FloatArray) -> float:
        """Test a member against what a model without it leaves."""
        scores = self._table(weights * residuals, weights)
        candidate = int(self.fit.selected[place])
        positions = self.candidates.positions(slice(candidate, candidate + 1))
        total = score_totals(scores, positions)[0]
        return HashNull(scores, self.params.h).log_tail(float(total))

    def _table(self, scores: FloatArray, weights: FloatArray) -> FloatArray:
        """Bound each row's say at 4 standard deviations, so that no single one decides."""
        most = _CLIP * np.sqrt(weights)
        return np.clip(scores, -most, most).reshape(self.params.m, self.params.k)


def _z_of(log_p: FloatArray) -> FloatArray:
    """Return the z-scores whose one-sided p-values these are."""
    return np.asarray(-special.ndtri_exp(np.minimum(log_p, _LARGEST_LOG_P)))
