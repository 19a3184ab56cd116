"""Generalised least squares of bit rates on candidates and an unknown mass.

The model of the rate y_cj of bit j in cohort c is
    y_cj = beta_0 b + sum_s beta_s x_scj + noise,     b = 1 - (1 - 1/k)^h,
where x_s is candidate s's Bloom filter and beta_0 the mass of unlisted strings, which set a
bit with probability b. Shares beta_s are fixed effects, which may be anything, or random effects,
so that many of them can be in the model at once. The noise is sampling, known from the fitted
rates, and an excess variance tau^2, because unlisted strings set *their* bits rather than a little
of each.

Random effects are draws from a mixture of 0 and of bells from half an error up to 1, whose weights
are the most likely ones (Robbins 1956); draws of one variance would pull thirty strings of 1% among
three hundred absent ones towards 0. Each share gets the normal distribution that stands for its
posterior given all rows (expectation propagation: Minka 2001, Opper and Winther 2005).

Invariants: weights come from fitted rates, never from the observed ones, which would bias every
estimate towards its own noise; what stands for a share isn't used for its own estimate or test, but
for the others'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse, special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Design
from hubbub.inference.counts import BitEstimates, variance_of_one
from hubbub.protocol import RapporParams

ROWS_EACH = 3
"""Rows for each fixed effect, at least: so many leave noise to be estimated."""
# Weights depend weakly on rates, so that few rounds settle them; fewer where they start from those
# of a similar model.
_REWEIGHTINGS, _REWEIGHTINGS_AGAIN = 4, 2
# Part of the largest pivot below which the rest of a column is rounding.
_TINY = 1e-9
# Sparse matrices with more than such a part of their entries are multiplied as dense ones, which
# is quicker; filters of 16 bits and fewer have such a part.
_FULL = 0.1


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """Candidates in the model."""

    selected: IntArray  # shape (a,); in ascending order
    matrix: SparseMatrix  # shape (a, m * k); their Bloom filters
    effects: Effects  # which shares are fixed effects, and how the random ones are distributed

    @classmethod
    def fixed(cls, selected: IntArray, matrix: SparseMatrix) -> ModelTerms:
        """Return candidates all of whose shares are fixed effects."""
        return cls(selected, matrix, Effects(*np.zeros((2, len(selected)))))

    def keep(self, chosen: BoolArray) -> ModelTerms:
        """Return those that are marked."""
        effects = Effects(*(part[chosen] for part in self.effects))
        return ModelTerms(self.selected[chosen], self.matrix[chosen], effects)


@dataclass(frozen=True, slots=True)
class Fit:
    """A weighted least squares fit; vectors are over the m * k rows (cohort, bit)."""

    selected: IntArray  # shape (a,); candidates in the model, in ascending order
    # Shape (1 + a, m * k); the unknown mass's column and the selected candidates', as rows.
    basis: SparseMatrix
    # Shape (1 + a,); 0 for the unknown mass and fixed effects; of random effects the precision, and
    # precision times mean.
    penalties: FloatArray
    pulls: FloatArray
    # Shape (1 + a,); shares of the population, the unknown mass first; random effects are drawn to
    # their means.
    coefficients: FloatArray
    # Shape (1 + a, 1 + a); C, the inverse of the weighted Gram matrix plus the penalties.
    covariance: FloatArray
    # Shape (m * k,); weights are 1 / (sampling variance + excess variance), 0 where there are no
    # reports.
    residuals: FloatArray
    weights: FloatArray
    excess_variance: float  # tau^2

    @property
    def scores(self) -> FloatArray:
        """W (y - fitted), which is V^-1 (y - fixed effects) for the covariance V of y."""
        return self.weights * self.residuals

    @property
    def reliability(self) -> FloatArray:
        """1 - lambda_s C_ss, shape (a,): by how much a share's moves show in its coefficient."""
        return 1.0 - (self.penalties * np.diag(self.covariance))[1:]

    @property
    def shares(self) -> FloatArray:
        """Each member's share as if it alone were a fixed effect, shape (a,)."""
        drawn = (self.pulls * np.diag(self.covariance))[1:]
        return (self.coefficients[1:] - drawn) / np.maximum(self.reliability, UNDETERMINED)


def unknown_column(params: RapporParams) -> float:
    """Return b, the chance that a random string sets a given bit."""
    return 1.0 - (1.0 - 1.0 / params.k) ** params.h


def fit_selected(
    bits: BitEstimates, design: Design, selected: IntArray, params: RapporParams
) -> Fit:
    """Fit the unknown mass and the selected candidates, all as fixed effects.

    Candidates whose column depends on the others' are left out of the model.
    """
    chosen = np.sort(selected)
    return fit_members(bits, ModelTerms.fixed(chosen, design.matrix[chosen]), params)


def fit_members(
    bits: BitEstimates,
    members: ModelTerms,
    params: RapporParams,
    *,
    start: Fit | None = None,
) -> Fit:
    """Fit the unknown mass and the members, reweighting until the weights stay the same.

    Fixed effects whose column depends on the others' are left out of the model.

    `members`: fixed and random effects. `start`: a similar model, from whose weights the search for
    this one's sets out.
    """
    rates, reports, known = bits.rate.ravel(), reports_by_row(bits), known_by_row(bits)
    fitted = np.full(rates.shape, np.average(rates, weights=reports))
    excess_variance = 0.0
    if start is not None:
        fitted, excess_variance = rates - start.residuals, start.excess_variance
    weights = row_weights(known + fitted, reports, excess_variance, params)
    kept = members.effects.penalties > 0
    kept[~kept] = _independent(members.matrix[~kept], weights, params)
    members = members.keep(kept)
    basis = _basis(members.matrix, params)
    rows = SparseMatrix(basis.T)
    penalties, pulls = (np.append(0.0, part) for part in members.effects)
    steps = _REWEIGHTINGS if start is None else _REWEIGHTINGS_AGAIN
    for step in range(steps):
        weights = row_weights(known + fitted, reports, excess_variance, params)
        gram = weighted_gram(basis, rows, weights)
        covariance: FloatArray = linalg.inv(gram + np.diag(penalties))
        coefficients: FloatArray = covariance @ (np.asarray(basis @ (weights * rates)) + pulls)
        residuals = rates - np.asarray(basis.T @ coefficients)
        fit = Fit(members.selected, basis, penalties, pulls, coefficients, covariance, residuals,
                  weights, excess_variance)  # fmt: skip
        fitted = rates - residuals
        if step < steps - 1:
            variance = variance_of_one(known + fitted, params)
            sampling = np.divide(variance, reports, out=np.zeros_like(variance), where=reports > 0)
            excess_variance = estimate_excess_variance(
                fit.scores, weights, sampling, basis, covariance, penalties
            )
    return fit


def drawn_members(
    bits: BitEstimates, members: ModelTerms, params: RapporParams, fit: Fit, rounds: int
) -> ModelTerms:
    """Return members as random effects whose distribution is estimated (`sparse_effects`).

    `members`: whose effects are set out from, unless all are fixed. `fit`: of these or fewer
    members, for its weights. `rounds`: as of `sparse_effects`.
    """
    basis = _basis(members.matrix, params)
    gram = weighted_gram(basis, SparseMatrix(basis.T), fit.weights)
    sums = np.asarray(basis @ (fit.weights * bits.rate.ravel()))
    start = members.effects if members.effects.penalties.any() else None
    return replace(members, effects=sparse_effects(gram, sums, start, rounds))


def reports_by_row(bits: BitEstimates) -> FloatArray:
    """Return N_c for each of the m * k rows."""
    return np.repeat(bits.reports.ravel(), bits.rate.shape[1])


def known_by_row(bits: BitEstimates) -> FloatArray:
    """Return what is known of the rate of each of the m * k rows."""
    return np.broadcast_to(bits.known, bits.rate.shape).ravel()


def row_weights(
    fitted: FloatArray, reports: FloatArray, excess_variance: float, params: RapporParams
) -> FloatArray:
    """Return 1 / (sampling variance + excess variance) of rows, 0 where there are no reports."""
    return reports / (variance_of_one(fitted, params) + excess_variance * reports)


def _basis(matrix: SparseMatrix, params: RapporParams) -> SparseMatrix:
    unknown = sparse.csr_array(np.full((1, matrix.shape[1]), unknown_column(params)))
    stacked: SparseMatrix = sparse.vstack([unknown, matrix], format="csr")
    return stacked


def _independent(matrix: SparseMatrix, weights: FloatArray, params: RapporParams) -> BoolArray:
    """Mark columns that the others don't explain (pivoted Cholesky of the scaled Gram matrix)."""
    basis = _basis(matrix, params)
    gram = weighted_gram(basis, SparseMatrix(basis.T), weights)
    scale = np.sqrt(np.diag(gram))
    scale[0] /= 2  # the largest pivot comes first: the unknown mass always stays
    _, pivots, rank, _ = linalg.lapack.dpstrf(gram / np.outer(scale, scale), tol=_TINY)
    kept = np.zeros(basis.shape[0], dtype=np.bool_)
    kept[pivots[:rank] - 1] = True
    return kept[1:]


def estimate_excess_variance(
    scores: FloatArray,
    weights: FloatArray,
    sampling: FloatArray,
    basis: SparseMatrix,
    covariance: FloatArray,
    penalties: FloatArray,
) -> float:
    """Return tau^2: how much rates scatter beyond what sampling and the members explain.

    `scores`, shape (m * k,): P y, with P = W - W B' C B W. `weights` and `sampling`, shape (m *
    k,): W, and the sampling variances D; 0 where there are no reports. `basis`, shape (1 + a, m *
    k): B. `covariance`, shape (1 + a, 1 + a): C. `penalties`, shape (1 + a,): lambda, 0 for fixed
    effects.

    Notes
    -----
    E |P y|^2 = tr(P D P) + tau^2 tr(P P) + tr(Lambda C B W^2 B' C): a random effect's column x has
    P x = W B' C e lambda (Rao 1971, MINQUE). The moment's solution has standard deviation
    sqrt(2 / tr(P P)); what is returned is the mean of a normal distribution with that mean and
    deviation, cut off below 0. A plain estimate would be exactly 0 in half of the populations
    without unlisted strings, and where rows are few that would make every standard error too small.
    """
    fixed = int(np.count_nonzero(penalties == 0))
    if np.count_nonzero(weights) <= fixed:  # as many columns as rows: nothing to go by
        return 0.0
    rows = SparseMatrix(basis.T)
    squares = weighted_gram(basis, rows, weights**2)
    twice = covariance @ squares @ covariance

    def trace_with(diagonal: FloatArray, inner: FloatArray) -> float:
        """Return tr(diag P P), from products no larger than the covariance."""
        crossed = np.vdot(covariance, weighted_gram(basis, rows, diagonal * weights**3))
        return float(diagonal @ weights**2 - 2 * crossed + np.vdot(twice, inner))

    trace = trace_with(np.ones_like(weights), squares)
    if trace <= _TINY * float(weights @ weights):
        return 0.0
    from_sampling = trace_with(sampling, weighted_gram(basis, rows, sampling * weights**2))
    from_effects = float(penalties @ np.diag(twice))
    found = (float(scores @ scores) - from_sampling - from_effects) / trace
    deviation = float(np.sqrt(2 / trace))
    z = found / deviation
    above = deviation * np.exp(-(z**2) / 2 - special.log_ndtr(z)) / np.sqrt(2 * np.pi)
    return float(found + above)


def weighted_gram(basis: SparseMatrix, rows: SparseMatrix, diagonal: FloatArray) -> FloatArray:
    """Return B diag(d) B' for d >= 0, given B' by its rows, too."""
    if _is_full(basis):
        scaled = basis.toarray() * np.sqrt(diagonal)
        return np.asarray(scaled @ scaled.T)
    weighted = (basis.data * diagonal[basis.indices], basis.indices, basis.indptr)
    return np.asarray((sparse.csr_array(weighted, shape=basis.shape) @ rows).toarray())


def product(matrix: SparseMatrix, columns: FloatArray) -> FloatArray:
    """Return the product of a sparse matrix with a dense one."""
    return np.asarray((matrix.toarray() if _is_full(matrix) else matrix) @ columns)


def _is_full(matrix: SparseMatrix) -> bool:
    return bool(matrix.nnz > _FULL * matrix.shape[0] * matrix.shape[1])


# The bells begin at half an error: smaller shares are like 0. Each is larger by 40% than the one
# before, and half as wide as the step, so that together they leave no gap.
_LEAST_SHARE, _FACTOR = 0.5, 1.4
# Updates of the mixture's weights per round of the shares, which converge as slowly.
_WEIGHTINGS = 10
UNDETERMINED = 1e-6
"""Part of a share's information: less is rounding, and the rows don't determine it."""
# A share's normal distribution leaves between a thousandth of its variance and all but a
# ten-thousandth of its information, so that neither is rounding.
_LEAST_VARIANCE, _LEAST_PENALTY = 1e-3, 1e-4
# Weight of a share's part before: keeps two shares that compete from taking turns.
_KEPT = 0.3


class Effects(NamedTuple):
    """Normal distributions of the members' shares: precision, and precision times mean."""

    penalties: FloatArray  # shape (a,); both 0 for fixed effects, which may be anything
    pulls: FloatArray


class GaussianMixture(NamedTuple):
    """The mixture's parts, the first of which is 0; float64 arrays of shape (b,)."""

    means: FloatArray
    variances: FloatArray


def sparse_effects(
    gram: FloatArray, sums: FloatArray, start: Effects | None, rounds: int
) -> Effects:
    """Return what stands for each share, given all rows.

    `gram`, shape (1 + a, 1 + a): of the unknown mass, which is a fixed effect, and the members.
    `sums`, shape (1 + a,): the rates' weighted sums over the same columns. `start`: of a similar
    model. `rounds`: how often what stands for a share is worked out from what stands for the
    others.
    """
    own = np.diag(gram)[1:]
    bells = gaussian_mixture(own)
    effects = start or Effects(own.copy(), np.zeros(len(own)))
    weights = np.full(len(bells.means), 1 / len(bells.means))
    kept = _KEPT if start else 0.0  # of a mere guess nothing
    for _ in range(rounds):
        share, variance = _shares_without(gram, sums, effects)
        likelihood = _likelihood(share, variance, bells)
        for _ in range(_WEIGHTINGS):
            parts = likelihood * weights
            parts /= parts.sum(axis=1, keepdims=True)
            weights = parts.mean(axis=0)
        now = _standing_for(share, variance, bells, parts)
        effects = Effects(
            *(kept * old + (1 - kept) * new for old, new in zip(effects, now, strict=True))
        )
        kept = _KEPT
    return effects


def _likelihood(share: FloatArray, variance: FloatArray, bells: GaussianMixture) -> FloatArray:
    total = variance[:, None] + bells.variances
    surprise = (share[:, None] - bells.means) ** 2 / total + np.log(total)
    return np.asarray(np.exp((surprise.min(axis=1, keepdims=True) - surprise) / 2))


def _standing_for(
    share: FloatArray, variance: FloatArray, bells: GaussianMixture, parts: FloatArray
) -> Effects:
    """Return the normal distributions that stand for shares which belong to parts so likely."""
    means, variances = bells
    total = variance[:, None] + variances
    inner = (share[:, None] * variances + means * variance[:, None]) / total
    mean = (parts * inner).sum(axis=1)
    scatter = variance[:, None] * variances / total + (inner - mean[:, None]) ** 2
    left = np.maximum((parts * scatter).sum(axis=1), _LEAST_VARIANCE * variance)
    penalties = np.maximum(1 / left - 1 / variance, _LEAST_PENALTY / variance)
    pulls = mean * (penalties + 1 / variance) - share / variance
    return Effects(penalties, pulls)


def gaussian_mixture(own: FloatArray) -> GaussianMixture:
    """Return the mixture's parts, from half of a typical error up to 1.

    `own`, shape (a,): the rows' information about each share if all others are known.
    """
    size = float(1 / np.sqrt(np.median(own)))
    steps = max(int(np.ceil(np.log(1 / (_LEAST_SHARE * size)) / np.log(_FACTOR))), 0)
    means = _LEAST_SHARE * size * _FACTOR ** np.arange(steps + 1)
    widths = (_FACTOR - 1) / 2 * means
    return GaussianMixture(np.append(0.0, means), np.append(0.0, widths**2))


def _shares_without(
    gram: FloatArray, sums: FloatArray, effects: Effects
) -> tuple[FloatArray, FloatArray]:
    """Return each share and its variance as if it alone were a fixed effect; shape (a,) each."""
    precision = gram.copy()
    precision[np.diag_indices(len(gram))] += np.append(0.0, effects.penalties)
    # Variances need no more of the inverse than its root: a third less work.
    root = linalg.cholesky(precision, lower=True, overwrite_a=True)
    inverse, _ = linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)
    own = np.einsum("ij,ij->j", inverse, inverse)[1:]
    found = (inverse.T @ (inverse @ (sums + np.append(0.0, effects.pulls))))[1:]
    reliability = np.maximum(1 - effects.penalties * own, UNDETERMINED)
    return (found - effects.pulls * own) / reliability, own / reliability


# The shares >= 0 at which a quadratic peaks: one active set method wherever shares are bounded, in
# constrained shares and each step to the most likely mixture. It begins at a share that is nearly
# right, which library solvers can't, and these take longer to import than a list to decode.

# Added to scaled information: keeps identical components solvable. It pulls towards the
# start, so that steps of a search still end at its maximum.
_RIDGE = 1e-7
# Part of the largest score: a steeper slope outside is rounding.
_ROUNDING = 1e-14
# Sets of components that are tried for each of them; some more than there are have been needed.
_MOST_SETS = 50


def best_of_quadratic(
    information: FloatArray, score: FloatArray, start: FloatArray, *, keep_sum: bool = False
) -> FloatArray:
    """Return the x >= 0 where score' (x - start) - (x - start)' information (x - start)/2 peaks.

    `information`, shape (a, a): positive semidefinite, its diagonal positive. `score` has shape
    (a,). `start`, shape (a,): at least 0; the more of it is right, the sooner the peak is found.
    `keep_sum`: whether x has to have the sum of the start, which is positive.

    Notes
    -----
    Lawson and Hanson (1974, chapter 23) in normal equations. Not one component joins at a time but
    twice as many as before while that is a gain: with one alone it always is, so it ends.

    Examples
    --------
    The peak without bounds is (2, -1):

    >>> best_of_quadratic(np.eye(2), np.array([2.0, -1.0]), np.zeros(2)).round(3).tolist()
    [2.0, 0.0]
    """
    scale = 1.0 / np.sqrt(np.diag(information))
    matrix = information * np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
    found = start / scale
    linear = matrix @ found + score * scale
    tolerance = _ROUNDING * len(scale) * float(np.abs(linear).max(initial=0.0))
    inside, joining = found > 0, 1
    previous = inside
    for _ in range(_MOST_SETS * len(scale)):
        found, inside, pull = _climb(matrix, linear, found, inside, scale if keep_sum else None)
        if np.array_equal(inside, previous) and joining > 1:
            joining = 1
        slope = np.where(inside, -np.inf, linear - matrix @ found + pull * scale)
        steepest = np.argsort(-slope, kind="stable")[:joining]
        steepest = steepest[slope[steepest] > tolerance]
        if not len(steepest):
            break
        previous, inside = inside, inside.copy()
        inside[steepest] = True
        joining *= 2
    return np.asarray(found * scale)


def best_without(
    information: FloatArray, score: FloatArray, peak: FloatArray, component: int
) -> FloatArray:
    """Return where the quadratic peaks if a component is 0, from close to where it peaks with all.

    Parameters are those of `best_of_quadratic`; component 0 may be of any sign in the result.
    """
    rest = np.delete(np.arange(len(peak)), component)
    # Component 0 may go below 0: it is moved up by all there is, and back.
    floor = (rest == 0).astype(np.float64)
    pull = information[rest, component] * peak[component]
    found = np.zeros(len(peak))
    inner = information[np.ix_(rest, rest)]
    found[rest] = best_of_quadratic(inner, score[rest] + pull, peak[rest] + floor) - floor
    return found


def _climb(
    matrix: FloatArray,
    linear: FloatArray,
    found: FloatArray,
    inside: BoolArray,
    addends: FloatArray | None,
) -> tuple[FloatArray, BoolArray, float]:
    """Go to the peak among the components inside, leaving out those that would fall below 0."""
    while True:
        rows = np.flatnonzero(inside)
        aim, pull = np.zeros(len(found)), 0.0
        if len(rows):
            factor = linalg.cho_factor(matrix[np.ix_(rows, rows)], check_finite=False)
            aim[rows] = linalg.cho_solve(factor, linear[rows], check_finite=False)
            if addends is not None:
                each = linalg.cho_solve(factor, addends[rows], check_finite=False)
                pull = float(addends @ (found - aim)) / float(addends[rows] @ each)
                aim[rows] += pull * each
        falling = np.flatnonzero(inside & (aim <= 0))
        if not len(falling):
            return aim, inside, pull
        parts = found[falling] / np.maximum(found[falling] - aim[falling], np.finfo(float).tiny)
        step = float(parts.min())
        found = found + step * (aim - found)
        inside = inside.copy()
        inside[falling[parts <= step]] = False
        found = np.where(inside, np.maximum(found, 0.0), 0.0)
