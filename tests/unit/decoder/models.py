"""Models of made-up rates, and the textbook's dense algebra to compare them with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    BitEstimates,
    BoolArray,
    Candidates,
    Design,
    Effects,
    Fit,
    FloatArray,
    IntArray,
    ModelTerms,
    bit_positions,
    fit_members,
    make_design,
    mapped,
    unknown_column,
    variance_of_one,
)

PARAMS = make_params(k=32, h=2, m=8)
SHARES = np.array([0.4, 0.2, 0.1, 0.05])
SELECTED = np.arange(len(SHARES))


def strings(n: int, label: str = "string") -> list[str]:
    return [f"{label} {i}" for i in range(n)]


def candidates_of(n: int, params: RapporParams = PARAMS, label: str = "string") -> Candidates:
    names = strings(n, label)
    return mapped(names, bit_positions(names, params), params)


def design_of(n: int, params: RapporParams = PARAMS, label: str = "string") -> Design:
    return make_design(bit_positions(strings(n, label), params), params)


def filters_of(filters: Sequence[set[int]], params: RapporParams) -> Candidates:
    """Return candidates with made-up filters in the one cohort: positions repeat to fill h."""
    rows = np.array([[np.resize(sorted(bits), params.h)] for bits in filters], dtype=np.int16)
    return mapped(strings(len(filters)), rows, params)


def bits_of(
    rates: FloatArray, params: RapporParams = PARAMS, n_reports: float = 1e6
) -> BitEstimates:
    """Return rates over the m * k rows as if so many reports stood behind each cohort."""
    reports = np.full((params.m, 1), n_reports)
    return BitEstimates(rates.reshape(params.m, params.k), reports, float(reports.sum()))


def rates_of(
    design: Design, shares: FloatArray, unknown: float = 0.0, params: RapporParams = PARAMS
) -> FloatArray:
    """Return the true rates of a population: the model's formula, without noise."""
    listed = design.matrix[: len(shares)].T @ shares
    return np.asarray(listed) + unknown * unknown_column(params)


def noisy_bits(
    design: Design,
    rng: np.random.Generator,
    shares: FloatArray = SHARES,
    n_reports: float = 1e5,
    params: RapporParams = PARAMS,
) -> BitEstimates:
    """Return rates with sampling noise; what the shares leave of 1 is unknown mass."""
    rates = rates_of(design, shares, 1 - shares.sum(), params)
    sd = np.sqrt(variance_of_one(rates, params) / n_reports)
    return bits_of(rates + sd * rng.standard_normal(len(rates)), params, n_reports)


def fit_of(
    bits: BitEstimates,
    design: Design,
    selected: IntArray,
    free: Sequence[bool] | None = None,
    prior_variance: float = 1.0,
    prior_mean: float = 0.0,
    params: RapporParams = PARAMS,
) -> Fit:
    """Return the model of some candidates; those that aren't free are random effects."""
    members = members_of(design, selected, free, prior_variance, prior_mean)
    return fit_members(bits, members, params)


def members_of(
    design: Design,
    selected: IntArray,
    free: Sequence[bool] | None,
    prior_variance: float,
    prior_mean: float = 0.0,
) -> ModelTerms:
    """Return candidates of which those that aren't free are draws of one mean and variance."""
    drawn = np.zeros(len(selected)) if free is None else 1.0 - np.array(free)
    effects = Effects(drawn / prior_variance, drawn * prior_mean / prior_variance)
    return ModelTerms(selected, design.matrix[selected], effects)


class Textbook(NamedTuple):
    """Generalised least squares of free columns, by dense algebra."""

    coefficients: FloatArray  # coefficients, covariance: Of the free columns
    covariance: FloatArray
    scores: FloatArray  # shape (m * k,): V^-1 (y - X beta)
    influence: FloatArray  # shape (m * k, columns): how each row moves each coefficient


def textbook(fit: Fit, rates: FloatArray, free: BoolArray, drawn: BoolArray,
             more: FloatArray | None = None) -> Textbook:  # fmt: skip
    """Fit the marked rows of a fit's basis at its weights: y = X beta + Z gamma + noise.

    fit: Whose basis, weights and distribution of gamma are taken.
    rates: shape (m * k,)
    free, drawn: shape (1 + a,): Columns of X, and of Z.
    more: shape (m * k,): One more column of X, the last.
    """
    rows, basis = fit.weights > 0, fit.basis.toarray()
    columns = basis[free] if more is None else np.vstack([basis[free], more])
    given, others = columns[:, rows], basis[drawn][:, rows]
    variances = 1 / fit.penalties[drawn]
    inverse = np.linalg.inv(np.diag(1 / fit.weights[rows]) + (others.T * variances) @ others)
    rates = rates - basis[drawn].T @ (fit.pulls[drawn] * variances)
    covariance = np.linalg.inv(given @ inverse @ given.T)
    influence = np.zeros((len(rows), len(given)))
    influence[rows] = inverse @ given.T @ covariance
    coefficients = influence.T @ rates
    scores = np.zeros(len(rows))
    scores[rows] = inverse @ (rates[rows] - given.T @ coefficients)
    return Textbook(coefficients, np.asarray(covariance, np.float64), scores, influence)


def influence_of(fit: Fit, members: IntArray) -> FloatArray:
    """Return how each row moves some members' shares if these alone are freed: share = a'y."""
    moved = np.asarray(fit.basis.T @ fit.covariance[:, 1 + members])
    return np.asarray(fit.weights[:, None] * moved / fit.reliability[members])
