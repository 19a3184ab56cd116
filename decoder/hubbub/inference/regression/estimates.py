"""A share, its standard error and a p-value for every candidate, in the model or not.

A candidate outside of the model gets the coefficient that it would have if it alone were added (a
one-step, de-biased estimate); a member its own as if it alone were a fixed effect.
Standard errors take account of two things that the weights of the regression don't know: the bits
of one report are correlated, and the target is the share among the *collected* reports, so that
drawing these from a population adds nothing.

The null hypothesis of a test is that no client has the string. Then its bits are random, and the
distribution of its score over the hash is known exactly given the scores of the rows (`hash_null`),
whatever unlisted strings these hold. A member of the model is tested in the model without it.

How small a share could have been found follows from the same distribution; beyond its threshold a
present string needs some of its own standard errors, which grow with its share because its bits are
set more often. An estimate is linear in the bit rates, once the model is chosen, so what one report
can do to it is a sum over that report's bits, which a forger sets each to what helps. The
regression subtracts what others explain, so bits left 0 help a forger too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse, special

from hubbub.inference.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, make_design
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.model import (
    UNDETERMINED,
    Fit,
    best_of_quadratic,
    known_by_row,
    product,
    reports_by_row,
    row_weights,
    unknown_column,
)
from hubbub.inference.scanning import scan
from hubbub.inference.testing.hash_null import HashNull, score_totals
from hubbub.inference.testing.multiple_testing import z_scores
from hubbub.protocol import RapporParams

EXACT = 16_384
"""Most candidates whose information is worked out for each."""
# For longer lists the information is the mean of a sample, whose error is 1 in 64 of its scatter;
# 256 are enough where only an order is asked for.
_SAMPLE, _ROUGH_SAMPLE = 4_096, 256
# Candidates that look present get exact information; a false alarm at 3 costs time alone.
_INTERESTING_Z = 3.0
# Doubles at once (4 MB): bounds memory; speed alone depends on it.
_NUMBERS_AT_ONCE = 2**19
# Errors don't shrink below a third of what sampling explains, however little rows scatter by
# chance, and a variance keeps a tenth when the drawing of clients is taken off.
_LEAST = 0.1
# No row decides alone: 4 standard deviations (docs/understand/statistics.md, Tests).
_CLIP = 4.0
# Below it no q-value can matter; above it a member's test is exact.
_EXACT_FROM_Z = 1.2
# Secant steps for a threshold, which end where it is known to .01 standard errors.
_SEARCH_STEPS = 5
_CLOSE = 0.01
# Further from its threshold than any selection reaches: the interval is that of the estimate.
_SURE_Z = 12.0


@dataclass(frozen=True, slots=True)
class CandidateEstimates:
    """One share and its standard error a candidate; nan where the data don't determine them."""

    # Shape (n,); unbiased share of the collected reports; may be negative for an absent candidate.
    share: FloatArray
    std_error: FloatArray  # shape (n,)

    @property
    def typical_error(self) -> float:
        """The median standard error of all candidates; nan if none is known."""
        known = self.std_error[~np.isnan(self.std_error)]
        return float(np.median(known)) if len(known) else np.nan


class CandidateSums(NamedTuple):
    """Sums of a fit's rows at each candidate's bits."""

    score: FloatArray  # shape (n,); x'W(y - fitted) and x'Wx
    weight: FloatArray
    total: FloatArray  # shape (n,); the test's score, of bounded rows


def candidate_sums(fit: Fit, candidates: Candidates) -> CandidateSums:
    """Go over all candidates once."""
    params = candidates.params
    tables = [table.reshape(params.m, params.k) for table in (fit.scores, fit.weights)]
    bounded = bounded_scores(fit.scores, fit.weights, params)
    by_hash, by_bit = scan(candidates, [bounded], tables)
    return CandidateSums(by_bit[:, 0], by_bit[:, 1], by_hash[:, 0])


def bounded_scores(scores: FloatArray, weights: FloatArray, params: RapporParams) -> FloatArray:
    """Bound each row's score at 4 standard deviations, so that no single one decides a test.

    Returns an array of shape (m, k).
    """
    most = _CLIP * np.sqrt(weights)
    return np.clip(scores, -most, most).reshape(params.m, params.k)


def estimate_all(
    fit: Fit,
    candidates: Candidates,
    bits: BitEstimates,
    params: RapporParams,
    sums: CandidateSums | None = None,
    *,
    roughly: bool = False,
) -> CandidateEstimates:
    """Estimate every candidate as if it alone were added to the fit as a fixed effect.

    `candidates`: the strings to estimate. `bits`: to which the model was fitted. `sums`: of this
    fit, if they are known. `roughly`: whether approximate errors of those outside the fit are
    enough, as while a model is searched for.
    """
    sums = sums or candidate_sums(fit, candidates)
    information = _information(fit, candidates, sums.score, sums.weight, roughly)
    share = np.divide(
        sums.score, information, out=np.zeros_like(information), where=information > 0
    )
    own = np.diag(fit.covariance)[1:]
    share[fit.selected] = fit.shares
    information[fit.selected] = fit.reliability / own
    # A candidate's rows must hold more information than the model explains.
    determined = information > UNDETERMINED * sums.weight
    share[~determined] = np.nan
    variance = np.divide(1.0, information, out=np.full_like(share, np.nan), where=determined)
    as_fixed = fit.covariance[:, 1:] / np.maximum(fit.reliability, UNDETERMINED)
    added = correlated_bits(fit, bits, params, as_fixed)
    variance[fit.selected] = with_correlation(variance[fit.selected], added)
    return CandidateEstimates(
        share, np.sqrt(without_drawing(variance, drawing(share, bits.collected)))
    )


def drawing(share: FloatArray, collected: float) -> FloatArray:
    """Return the variance that drawing the reports from a population adds to shares."""
    clipped = np.clip(share, 0.0, 1.0)
    return np.asarray(clipped * (1 - clipped) / collected)


def without_drawing(variance: FloatArray, drawn: FloatArray) -> FloatArray:
    """Return variances of estimates of the collected reports' shares."""
    return np.maximum(variance - drawn, _LEAST * variance)


def total_share(
    fit: Fit, estimates: CandidateEstimates, bits: BitEstimates, params: RapporParams, of: IntArray
) -> tuple[float, float]:
    """Return the sum of some candidates' shares and its standard error.

    Candidates for which the model had no room are added as if their errors were independent of the
    others'.

    `of`, shape (d,): candidates whose shares are known, in ascending order.
    """
    total = float(estimates.share[of].sum())
    inside = np.isin(of, fit.selected)
    apart = float((estimates.std_error[of[~inside]] ** 2).sum())
    places = np.searchsorted(fit.selected, of[inside])
    reliability = fit.reliability[places]
    combination = (fit.covariance[:, 1 + places] / reliability).sum(axis=1, keepdims=True)
    own, penalties = np.diag(fit.covariance)[1 + places] / reliability, fit.penalties[1 + places]
    moved = combination[1 + places, 0]
    variance = float((moved / reliability + penalties * own * (own - 2 * moved)).sum())
    variance = float(with_correlation(variance, correlated_bits(fit, bits, params, combination))[0])
    clipped = float(np.clip(total, 0.0, 1.0))
    drawing = clipped * (1 - clipped) / bits.collected
    variance = max(variance - drawing, _LEAST * variance)
    return total, float(np.sqrt(variance + apart))


def _information(
    fit: Fit, candidates: Candidates, score: FloatArray, weight: FloatArray, roughly: bool
) -> FloatArray:
    """Return x'Px of those outside: the information of their rows beyond what the model explains.

    Of a long list that is worked out for those that stand out; the others get their x'Wx times the
    mean quotient of the two, which differs little between absent strings.
    """
    n = len(candidates)
    if n <= EXACT and not roughly:
        outside = np.setdiff1d(np.arange(n), fit.selected)
        exactly = weight.copy()
        exactly[outside] -= _explained(fit, candidates, outside)
        return exactly
    sample = np.linspace(0, n - 1, _ROUGH_SAMPLE if roughly else _SAMPLE).astype(np.int64)
    quotient = 1 - _explained(fit, candidates, sample).sum() / weight[sample].sum()
    information: FloatArray = weight * float(quotient)
    if not roughly:
        errors = np.sqrt(np.maximum(information, 0))
        exact = np.flatnonzero(np.abs(score) > _INTERESTING_Z * errors)
        information[exact] = weight[exact] - _explained(fit, candidates, exact)
    return information


def _explained(fit: Fit, candidates: Candidates, rows: IntArray) -> FloatArray:
    """Return x'W B' C B W x of some candidates."""
    weighted = (fit.basis @ sparse.diags_array(fit.weights)).T.tocsr()
    explained = np.empty(len(rows))
    for start in range(0, len(rows), _SAMPLE):
        block = rows[start : start + _SAMPLE]
        design = make_design(candidates.positions(block), candidates.params)
        overlap = (design.matrix @ weighted).toarray()
        end = start + _SAMPLE
        explained[start:end] = np.einsum("ij,ij->i", overlap @ fit.covariance, overlap)
    return explained


def correlated_bits(
    fit: Fit, bits: BitEstimates, params: RapporParams, combinations: FloatArray
) -> FloatArray:
    """Return what the correlations between the bits of one report add to variances; shape (b,).

    `combinations`, shape (1 + a, b): of W B' c for each column c: how rows move the estimate whose
    variance is asked for.

    Notes
    -----
    The true bits of a report are those of one string, so in cohort c they have the covariance
    sum_s pi_s x_s x_s' - t t', t = sum_s pi_s x_s, of which the weights hold the diagonal alone.
    The unknown strings' pairs of bits are both set with probability
    1 - 2(1 - 1/k)^h + (1 - 2/k)^h.
    """
    m, k, n = params.m, params.k, combinations.shape[1]
    added = np.zeros(n)
    if not n:
        return added
    shares = np.maximum(fit.coefficients[1:], 0.0)
    shares /= max(1.0, float(shares.sum()))
    unknown = 1.0 - shares.sum()
    single, pair = unknown_column(params), pair_probability(params)
    present = np.flatnonzero(shares > 0)
    by_row = SparseMatrix(fit.basis.T)
    together = _set_together(fit.basis[1 + present], shares[present], k)
    rate = together.diagonal() + unknown * single
    # The unknown's pairs add this to each bit alone, less what the weights know.
    alone = sparse.diags_array(unknown * (single - pair) - rate * (1 - rate))
    together = SparseMatrix(together + alone)
    reports = np.asarray(bits.reports, dtype=np.float64).ravel()
    share_of_one = np.divide(1.0, reports, out=np.zeros_like(reports), where=reports > 0)
    # Sums over a cohort's bits, and over those of a typical report.
    both = np.stack([np.ones((m, k)), rate.reshape(m, k)], axis=1)
    at_once = max(1, _NUMBERS_AT_ONCE // (k * n))
    for first in range(0, m, at_once):
        count = min(at_once, m - first)
        cohorts, rows = slice(first, first + count), slice(first * k, (first + count) * k)
        influence = product(by_row[rows], combinations)
        influence *= fit.weights[rows, None]
        sums = both[cohorts] @ influence.reshape(count, k, n)
        of_pairs = np.asarray(together[rows, rows] @ influence)
        of_pairs *= influence
        of_cohorts = of_pairs.reshape(count, k, n).sum(axis=1)
        of_cohorts += unknown * pair * sums[:, 0] ** 2 - sums[:, 1] ** 2
        added += share_of_one[cohorts] @ of_cohorts
    return added


def _set_together(filters: SparseMatrix, shares: FloatArray, k: int) -> SparseMatrix:
    """Return the shares of reports that set two bits of a cohort both, of each pair of rows once.

    `filters`, shape (a, m * k): its bits in ascending order. `shares` has shape (a,). Returns an
    array of shape (m * k, m * k): M with v' M v = sum_s pi_s (x_s' v)^2 in every cohort: what is
    above the diagonal is twice as much, what is below is 0.
    """
    share = np.repeat(shares, np.diff(filters.indptr))
    owner = np.repeat(np.arange(len(shares)), np.diff(filters.indptr))
    bit, cohort = filters.indices, filters.indices // k
    entries, apart = [(share, bit, bit)], 1
    while len(entries[-1][0]):
        same = (owner[apart:] == owner[:-apart]) & (cohort[apart:] == cohort[:-apart])
        lower, upper = bit[:-apart][same], bit[apart:][same]
        entries.append((2 * share[apart:][same], lower, upper))
        apart += 1
    values, lower, upper = map(np.concatenate, zip(*entries, strict=True))
    size = filters.shape[1]
    return SparseMatrix(sparse.coo_array((values, (lower, upper)), shape=(size, size)))


def with_correlation(variance: FloatArray | float, added: FloatArray) -> FloatArray:
    """Return variances with what `correlated_bits` adds to them.

    It goes by the model's rates, and the weights by those that were observed, so that of a handful
    of reports it may take away more than there is.
    """
    return np.maximum(variance + added, _LEAST * variance)


def pair_probability(params: RapporParams) -> float:
    """Return the chance that a random string sets both of two given bits."""
    return float(1 - 2 * (1 - 1 / params.k) ** params.h + (1 - 2 / params.k) ** params.h)


def constrained_shares(fit: Fit) -> tuple[IntArray, FloatArray]:
    """Return the non-negative least squares shares of the fixed effects.

    Unbiased estimates scatter below 0 and may add up to more than 1. For adding up, plotting and
    comparing, the detected are fitted once more under these constraints, the others being noise:
    less variance, at the price of a little bias.

    `fit`: its fixed effects are those whose shares are wanted. Returns `selected`, shape (d,).
    `shares`, shape (d,): they add up to 1 with that of the unknown mass.

    Notes
    -----
    The coefficients theta of the unknown mass and the fixed effects have the covariance C, the
    others being random. Minimises (beta - theta)' C^-1 (beta - theta) over beta >= 0 with
    sum beta = 1.
    """
    fixed = fit.penalties == 0
    found = fit.coefficients[fixed]
    information = linalg.inv(fit.covariance[np.ix_(fixed, fixed)])
    start = np.maximum(found, 0.0)
    start = start / start.sum() if start.any() else np.full(len(found), 1.0 / len(found))
    shares = best_of_quadratic(information, information @ (found - start), start, keep_sum=True)
    return fit.selected[fixed[1:]], (shares / shares.sum())[1:]


@dataclass(frozen=True)
class PresenceTests:
    """Tests of candidates against a fitted model."""

    fit: Fit
    candidates: Candidates
    bits: BitEstimates  # to which the model was fitted
    params: RapporParams
    # Members beyond so many standard errors get the normal distribution's p-value, too, where it
    # only matters that they are detected.
    exact_below_z: float = np.inf

    @cached_property
    def null(self) -> HashNull:
        """The distribution of the score of an absent candidate that isn't a member."""
        scores = bounded_scores(self.fit.scores, self.fit.weights, self.params)
        return HashNull(scores, self.params.h)

    def log_p_values(
        self, estimates: CandidateEstimates, sums: CandidateSums | None = None
    ) -> FloatArray:
        """Return ln p of every candidate, one-sided; 0 where the data don't determine it.

        Members that look absent get the normal distribution's p-value: nothing depends on which of
        two large p-values is the larger.

        `estimates`: the estimates that `sums` led to. `sums`: of this fit, if they are known.
        """
        selected = self.fit.selected
        log_p = np.zeros(len(self.candidates))
        if len(selected) < len(log_p):
            sums = sums or candidate_sums(self.fit, self.candidates)
            log_p = self.null.log_tails(sums.total)
        share, std_error = estimates.share[selected], estimates.std_error[selected]
        z = np.divide(share, std_error, out=np.zeros_like(share), where=std_error > 0)
        log_p[selected] = special.log_ndtr(-z)
        for place in np.flatnonzero((z > _EXACT_FROM_Z) & (z < self.exact_below_z)):
            candidate = int(selected[place])
            log_p[candidate] = self._log_p_at(candidate, *self.without(int(place)))
        log_p[np.isnan(estimates.share)] = 0.0
        return log_p

    def thresholds(
        self,
        estimates: CandidateEstimates,
        log_p: FloatArray,
        detected: IntArray,
        log_cutoff: FloatArray | float,
    ) -> FloatArray:
        """Return the shares above which detected candidates are detected; shape (d,).

        Given the model without it, a candidate's p-value is a falling function of its estimate
        alone; this is where it crosses the cutoff.

        `estimates`: the estimates of all candidates. `log_p` has shape (n,). `detected` has shape
        (d,). `log_cutoff` has shape (d,).
        """
        places = np.searchsorted(self.fit.selected, detected)
        members = np.zeros(len(detected), dtype=np.bool_)
        inside = places < len(self.fit.selected)
        members[inside] = self.fit.selected[places[inside]] == detected[inside]
        sure = estimates.share[detected] > _SURE_Z * estimates.std_error[detected]
        needed = z_scores(np.broadcast_to(log_cutoff, detected.shape))
        errors = estimates.share[detected] / estimates.std_error[detected]
        z = np.where(sure, errors, z_scores(log_p[detected]))
        parts = np.clip(needed / np.maximum(z, _CLOSE), 0.0, 1.0)
        for i in np.flatnonzero(~sure):
            if members[i]:
                where = int(detected[i]), int(places[i])
                parts[i] = self._part_at(*where, float(parts[i]), float(needed[i]))
        return np.asarray(estimates.share[detected] * parts)

    def _part_at(self, candidate: int, place: int, part: float, needed: float) -> float:
        """Return the part of a member's share at which its p-value is the cutoff (secant steps).

        P-values are taken as the z-scores that they are a normal distribution's tails of, because
        these are close to a straight line in the share: 0 where nothing is left of it.
        """
        fit, (residuals, weights) = self.fit, self.without(place)
        taken = (residuals - fit.residuals) * (fit.shares[place] / fit.coefficients[1 + place])
        previous, height = 0.0, 0.0
        for _ in range(_SEARCH_STEPS):
            log_p = self._log_p_at(candidate, residuals - (1 - part) * taken, weights)
            reached = float(z_scores(np.array(log_p)))
            if abs(reached - needed) < _CLOSE or part == previous or reached == height:
                break
            slope = (reached - height) / (part - previous)
            previous, height = part, reached
            part = float(np.clip(part + (needed - reached) / slope, 0.0, 1.0))
        return part

    def without(self, place: int) -> tuple[FloatArray, FloatArray]:
        """Return residuals and weights of the model that leaves a member out, by its place.

        Its weights are those of rates without its share: it is absent under the hypothesis.
        """
        fit = self.fit
        own = fit.basis.indices[fit.basis.indptr[1 + place] : fit.basis.indptr[2 + place]]
        rates, reports = self.bits.rate.ravel()[own], reports_by_row(self.bits)[own]
        others = rates - fit.residuals[own] - fit.coefficients[1 + place]
        others += known_by_row(self.bits)[own]
        weights = fit.weights.copy()
        weights[own] = row_weights(others, reports, fit.excess_variance, self.params)
        column = fit.covariance[:, 1 + place]
        steps = column * (fit.coefficients[1 + place] / column[1 + place])
        residuals = fit.residuals + np.asarray(fit.basis.T @ steps)
        return residuals, weights

    def _log_p_at(self, candidate: int, residuals: FloatArray, weights: FloatArray) -> float:
        scores = bounded_scores(weights * residuals, weights, self.params)
        positions = self.candidates.positions(slice(candidate, candidate + 1))
        total = score_totals(scores, positions)[0]
        return HashNull(scores, self.params.h).log_tail(float(total))


# A fixed point whose error shrinks by a constant factor each time: far more steps than it needs.
_STEPS = 100
FORGED_SHARE = 0.01
"""The share of forged reports in the summaries' line about forgery."""


def limit_of_detection(
    estimates: CandidateEstimates,
    null: HashNull,
    params: RapporParams,
    n_reports: int,
    level: float,
    power: float,
) -> float:
    """Return the share whose one-sided test at `level` rejects with a given power; nan if unknown.

    Infinite if there are too few cohorts for such a small level (`threshold_z`).

    `null`: distribution of an absent candidate's score. `level`: the test's chance of a false
    alarm. `power`: the chance with which that share is to be detected.
    """
    absent = estimates.typical_error
    if np.isnan(absent):
        return np.nan
    threshold = absent * threshold_z(null, level)
    if not np.isfinite(threshold):
        return threshold
    z_power = float(special.ndtri(power))
    slope = params.q_star - params.p_star
    reported = params.p_star + slope * unknown_column(params)
    own_bits = params.k * unknown_column(params)
    growth = ((1 - 2 * reported) / slope - 1) / (own_bits * n_reports)
    share = threshold
    for _ in range(_STEPS):
        share = threshold + z_power * float(np.sqrt(absent**2 + max(growth, 0.0) * share))
    return share


def threshold_z(null: HashNull, level: float) -> float:
    """Return how many of its standard deviations an absent string's score must lie above its mean.

    Infinite if no score is that rare: there are too few cohorts for such a small level.
    """
    log_level = float(np.log(level))
    distribution = null.standardised()
    if distribution is None:
        possible = log_level >= null.log_smallest()
        return float(z_scores(np.array(log_level))) if possible else np.inf
    z, log_tails = distribution
    if log_level < log_tails[-1]:
        return np.inf
    return float(np.interp(-log_level, -log_tails, z))


def largest_shift(fit: Fit, bits: BitEstimates, params: RapporParams, share: float) -> float:
    """Return how far any estimate could move, either way, if a share of the reports were forged.

    `bits`: to which the model was fitted. `share`: forged reports as a share of all.

    Notes
    -----
    With A = C B W, divided by the reliability of random effects, an estimate is sum_cj A_cj y_cj. A
    forged report in cohort c brings its own y_j, either zero = -p*/(q* - p*) or one =
    (1 - p*)/(q* - p*), and moves the estimate by

        (1/N_c) sum_j A_cj (y_j - y_cj),

    at most with y_j = one where A_cj > 0 and zero elsewhere. The worst cohort, the worst string of
    the model and the worse direction are taken, times share N: to first order in the share, with
    the model and its weights as they are. A string outside the model, all its bits distinct, beside
    the unknown mass alone could be moved by share / |q* - p*|, which is the least that is returned.
    """
    slope = params.q_star - params.p_star
    least, most = sorted([(1 - params.p_star) / slope, -params.p_star / slope])
    worst = 1 / abs(slope)
    reports = bits.reports.ravel()
    rows = SparseMatrix(fit.basis.T)
    as_fixed = fit.covariance[:, 1:] / fit.reliability
    for cohort in np.flatnonzero(reports):
        of_cohort = slice(int(cohort) * params.k, (int(cohort) + 1) * params.k)
        influence = np.asarray(rows[of_cohort] @ as_fixed).T * fit.weights[of_cohort]
        present, total = influence @ bits.rate[cohort], influence.sum(axis=1)
        positive = np.maximum(influence, 0.0).sum(axis=1)
        up = total * least + positive * (most - least) - present
        down = present - total * most + positive * (most - least)
        strongest = max(up.max(initial=0.0), down.max(initial=0.0))
        worst = max(worst, strongest * reports.sum() / reports[cohort])
    return float(share * worst)
