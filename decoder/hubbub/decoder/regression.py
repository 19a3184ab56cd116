"""Weighted least squares of bit rates on the selected candidates and an unknown mass.

The model of the rate y_cj of bit j in cohort c is
    y_cj = beta_0 b + sum_s beta_s x_scj + noise,     b = 1 - (1 - 1/k)^h,
where x_s is candidate s's Bloom filter and beta_0 the mass of strings nobody listed, which set a
bit with probability b. The noise has two parts: sampling, known exactly from the fitted rates, and
a background tau^2, because unlisted strings set *their* bits rather than a little of each; it is
estimated from the residuals. What a maintainer must not break: weights come from fitted rates,
never from the observed ones, which would bias every estimate towards its own noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.decoder.bits import BitEstimates, variance_of_one
from hubbub.decoder.candidates import Design

_REWEIGHTINGS = 3
_CHUNK = 16_384
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Fit:
    """A weighted least squares fit; vectors over the m * k rows (cohort, bit).

    Attributes
    ----------
    selected : int64 array, shape (a,)
        Candidates in the model, in ascending order.
    basis : sparse float64 array, shape (1 + a, m * k)
        The unknown mass's column and the selected candidates', as rows.
    coefficients : float64 array, shape (1 + a,)
        Shares of the population: the unknown mass first.
    covariance : float64 array, shape (1 + a, 1 + a)
        Inverse of the weighted Gram matrix.
    residuals, weights : float64 array, shape (m * k,)
        Weights are 1 / (sampling variance + background), 0 where there are no reports.
    background : float64
        tau^2.
    """

    selected: IntArray
    basis: SparseMatrix
    coefficients: FloatArray
    covariance: FloatArray
    residuals: FloatArray
    weights: FloatArray
    background: float


@dataclass(frozen=True, slots=True)
class Estimates:
    """One share and its standard error a candidate; nan where the data can't tell.

    Attributes
    ----------
    share : float64 array, shape (n,)
        Unbiased share of the collected reports; may be negative for an absent candidate.
    std_error : float64 array, shape (n,)
    """

    share: FloatArray
    std_error: FloatArray


def unknown_column(params: RapporParams) -> float:
    """Return b, the chance that a random string sets a given bit."""
    return 1.0 - (1.0 - 1.0 / params.k) ** params.h


def fit_selected(
    bits: BitEstimates, design: Design, selected: IntArray, params: RapporParams
) -> Fit:
    """Fit the unknown mass and the selected candidates, reweighting until weights settle.

    Candidates whose column depends on the others' are left out of the model.
    """
    rates = bits.rate.ravel()
    reports = reports_by_row(bits)
    fitted = np.full(rates.shape, np.average(rates, weights=reports))
    background = 0.0
    weights = _weights(fitted, reports, background, params)
    selected = _independent(design, np.sort(selected), weights, params)
    basis = _basis(design, selected, params)
    for _ in range(_REWEIGHTINGS):
        weights = _weights(fitted, reports, background, params)
        weighted = _scaled(basis, weights)
        covariance: FloatArray = linalg.inv((weighted @ basis.T).toarray())
        coefficients: FloatArray = covariance @ np.asarray(weighted @ rates)
        fitted = np.asarray(basis.T @ coefficients)
        inverse_variance = reports / variance_of_one(fitted, params)
        background = _background(rates - fitted, inverse_variance, len(coefficients))
    weights = _weights(fitted, reports, background, params)
    return Fit(selected, basis, coefficients, covariance, rates - fitted, weights, background)


def estimate_all(fit: Fit, design: Design, reports: FloatArray) -> Estimates:
    """Estimate every candidate as if it alone were added to the fit.

    For a candidate outside the model this is the coefficient of its column after the model's
    columns are projected out, a one-step (de-biased) estimate; inside, its own coefficient. The
    standard error is that of the share among the *collected* reports, so the noise of drawing those
    reports from a larger population isn't in it.

    Parameters
    ----------
    fit : Fit
    design : Design
    reports : float64 array, shape (m * k,)
        Reports behind each row.
    """
    share, information = _added_one_by_one(fit, design)
    share[fit.selected] = fit.coefficients[1:]
    information[fit.selected] = 1.0 / np.diag(fit.covariance)[1:]
    estimable = information > _TINY * design.sums(fit.weights)
    share[~estimable] = np.nan
    information[~estimable] = np.nan
    variance = 1.0 / information - _own_sampling(fit, design, reports, share, information)
    return Estimates(share, np.sqrt(variance))


def without_candidate(fit: Fit, design: Design, candidate: int) -> FloatArray:
    """Return the residuals as they would be if a selected candidate's share were not removed."""
    row = int(np.searchsorted(fit.selected, candidate))
    residuals = fit.residuals.copy()
    start, stop = design.matrix.indptr[candidate], design.matrix.indptr[candidate + 1]
    residuals[design.matrix.indices[start:stop]] += fit.coefficients[1 + row]
    return residuals


def total_share(fit: Fit, estimates: Estimates, members: IntArray) -> tuple[float, float]:
    """Return the sum of some candidates' shares and its standard error.

    Candidates for which the model had no room (more were detected than rows can carry) are added as
    if their errors were independent of the others'.
    """
    inside = np.isin(members, fit.selected)
    rows = 1 + np.searchsorted(fit.selected, members[inside])
    variance = fit.covariance[np.ix_(rows, rows)].sum()
    own = (np.diag(fit.covariance)[rows] - estimates.std_error[members[inside]] ** 2).sum()
    apart = (estimates.std_error[members[~inside]] ** 2).sum()
    total = float(estimates.share[members].sum())
    return total, float(np.sqrt(max(variance - own, 0.0) + apart))


def reports_by_row(bits: BitEstimates) -> FloatArray:
    """Return N_c for each of the m * k rows."""
    return np.repeat(bits.reports.ravel(), bits.rate.shape[1])


def _basis(design: Design, selected: IntArray, params: RapporParams) -> SparseMatrix:
    unknown = sparse.csr_array(np.full((1, design.matrix.shape[1]), unknown_column(params)))
    stacked: SparseMatrix = sparse.vstack([unknown, design.matrix[selected]], format="csr")
    return stacked


def _scaled(matrix: SparseMatrix, weights: FloatArray) -> SparseMatrix:
    """Multiply each column by its row's weight in the regression."""
    return SparseMatrix(matrix @ sparse.diags_array(weights))


def _weights(
    fitted: FloatArray, reports: FloatArray, background: float, params: RapporParams
) -> FloatArray:
    return reports / (variance_of_one(fitted, params) + background * reports)


def _independent(
    design: Design, selected: IntArray, weights: FloatArray, params: RapporParams
) -> IntArray:
    """Drop the columns that others explain (pivoted Cholesky of the scaled Gram matrix)."""
    basis = _basis(design, selected, params)
    gram = (_scaled(basis, weights) @ basis.T).toarray()
    scale = np.sqrt(np.diag(gram))
    scale[0] /= 2  # the largest pivot comes first: the unknown mass always stays
    _, pivots, rank, _ = linalg.lapack.dpstrf(gram / np.outer(scale, scale), tol=_TINY)
    kept = np.sort(pivots[:rank]) - 1
    return np.asarray(selected[kept[kept > 0] - 1])


def _background(residuals: FloatArray, inverse_variance: FloatArray, n_coefficients: int) -> float:
    """Moment estimate of tau^2: what the residuals scatter beyond sampling noise."""
    n_rows = int(np.count_nonzero(inverse_variance))
    spare = max(n_rows - n_coefficients, 1)
    scatter = float(inverse_variance @ residuals**2) * n_rows / spare
    return max(0.0, (scatter - n_rows) / float(inverse_variance.sum()))


def _added_one_by_one(fit: Fit, design: Design) -> tuple[FloatArray, FloatArray]:
    """Return each candidate's coefficient and information, given the model's columns."""
    weighted_basis = _scaled(fit.basis, fit.weights).T
    score = design.sums(fit.weights * fit.residuals)
    information = design.sums(fit.weights)
    for start in range(0, len(score), _CHUNK):
        rows = slice(start, start + _CHUNK)
        overlap = (design.matrix[rows] @ weighted_basis).toarray()
        information[rows] -= np.einsum("ij,ij->i", overlap @ fit.covariance, overlap)
    share = np.divide(score, information, out=np.zeros_like(score), where=information > 0)
    return share, information


def _own_sampling(
    fit: Fit, design: Design, reports: FloatArray, share: FloatArray, information: FloatArray
) -> FloatArray:
    """Variance that comes from drawing a candidate's own clients, which the target shares."""
    squared = np.divide(fit.weights**2, reports, out=np.zeros_like(reports), where=reports > 0)
    clipped = np.clip(share, 0.0, 1.0)
    own = design.sums(squared) / information**2 * clipped * (1 - clipped)
    # A coefficient can't have more of it than of everything together.
    return np.minimum(own, (1 - _TINY) / information)
