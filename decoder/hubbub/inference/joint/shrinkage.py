"""Unbiased cells -> a table that is nearer to the true one: cells drawn towards independence.

Most cells of a table are smaller than their noise, and together that noise is what a reader of the
table sees. How far cells are from the product of their margins is learnt from all of them together:
each cell is a draw of a factor, whose distribution is estimated, times that product (empirical
Bayes: Robbins 1956; Koenker and Mizera, Journal of the American Statistical Association 109, 2014).
Where cells show no departures they become the product, where they show them clearly they stay.

Invariant: such cells are for looking at and adding up, not for intervals: they are biased.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.joint.table import JointEstimates

# A cell may be 0, or a twentieth to 20 times what independence expects: steps of 16%, each blurred
# by a tenth (`_SPREAD`), leave no gaps between them.
_FACTORS = np.concatenate([[0.0], np.geomspace(0.05, 20.0, 41)])
_SPREAD = 0.1
# EM for 42 weights.
_STEPS = 60
# Newton's steps for the margins end where these are met to 1e-9, far below any error; the slope is
# the line search's usual one (Nocedal and Wright, section 3.1).
_ROUNDS, _CLOSE, _SLOPE = 50, 1e-9, 1e-4
# Keep the margins' equations solvable where cells have no variance or margins depend on each other.
_LEAST_SPREAD, _RIDGE = 1e-6, 1e-9


def shrunk_cells(estimates: JointEstimates) -> FloatArray:
    """Return cells that are at least 0, whose margins are the margins' constrained shares.

    Returns an array of shape (n,).

    Notes
    -----
    With m the product of the margins, a cell is drawn from a mixture of normal distributions with
    means g m, at most the least margin, and deviations a tenth of that; g runs over a grid, and 0.
    Its estimate adds the noise's variance. The mixture's weights are the most likely ones (EM), and
    a cell becomes its mean given its estimate. The table then gets its margins again, at the
    expense of the cells that are known least (`fit_margins`).
    """
    shape = estimates.shape
    margins = [estimates.margin(axis).constrained() for axis in range(len(shape))]
    total = float(margins[0].sum())
    product, least = product_of(margins, total), reduce(np.minimum.outer, margins)
    values = np.minimum(product[..., None] * _FACTORS, least[..., None]).reshape(-1, len(_FACTORS))
    noise = np.diagonal(estimates.covariance)[:, None]
    prior = (_SPREAD * values) ** 2
    off = estimates.unbiased[:, None] - values
    log_density = -(off**2) / (2 * (noise + prior)) - np.log(noise + prior) / 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights = np.full(len(_FACTORS), 1 / len(_FACTORS))
    for _ in range(_STEPS):
        chances = density * weights
        weights = (chances / chances.sum(axis=1, keepdims=True)).mean(axis=0)
    chances = density * weights
    chances /= chances.sum(axis=1, keepdims=True)
    means = values + off * prior / (noise + prior)
    found = (chances * means).sum(axis=1)
    scatter = noise * prior / (noise + prior) + (means - found[:, None]) ** 2
    uncertain = (chances * scatter).sum(axis=1)
    return fit_margins(found.reshape(shape), uncertain.reshape(shape), margins).ravel()


def product_of(margins: list[FloatArray], total: float) -> FloatArray:
    """Return the table of these margins whose fields are independent; a margin sums to `total`."""
    table = reduce(np.multiply.outer, margins)
    return np.asarray(table / total ** (len(margins) - 1))


def fit_margins(table: FloatArray, variance: FloatArray, margins: list[FloatArray]) -> FloatArray:
    """Return the table nearest to another that is nowhere below 0 and has these margins.

    Nearest: with the least sum of squared differences, each over its cell's variance.

    Notes
    -----
    Such a table is max(0, t + v (l_i + m_j)), with a multiplier for each row and column (and
    layer), of which the dual problem is concave, smooth and small: Newton's method takes a handful
    of steps, each halved until it is an ascent.
    """
    wanted, start = np.concatenate(margins), np.maximum(table, 0.0)
    ends = np.cumsum(table.shape)[:-1]
    largest = float(variance.max()) or 1.0
    spread = np.maximum(variance / largest, _LEAST_SPREAD)

    def cells(multipliers: FloatArray) -> FloatArray:
        added = spread * reduce(np.add.outer, np.split(multipliers, ends))
        return np.asarray(np.maximum(start + added, 0.0))

    def dual(multipliers: FloatArray) -> float:
        return float(multipliers @ wanted - (cells(multipliers) ** 2 / (2 * spread)).sum())

    ridge = _RIDGE * float(np.diag(_common(spread)).mean()) * np.eye(len(wanted))
    multipliers = np.zeros(len(wanted))
    for _ in range(_ROUNDS):
        found = cells(multipliers)
        lacking = wanted - np.diag(_common(found))
        if np.abs(lacking).max() < _CLOSE:
            break
        step = np.linalg.solve(_common(spread * (found > 0)) + ridge, lacking)
        before, slope = dual(multipliers), float(lacking @ step)
        while dual(multipliers + step) < before + _SLOPE * slope and slope > _CLOSE**2:
            step, slope = step / 2, slope / 2
        multipliers = multipliers + step
    return cells(multipliers)


def _common(table: FloatArray) -> FloatArray:
    """Return what any two sums of a table's margins have in common; on the diagonal the sums."""
    every = range(table.ndim)

    def block(one: int, other: int) -> FloatArray:
        others = tuple(axis for axis in every if axis not in (one, other))
        found = table.sum(axis=others)
        return np.diag(found) if one == other else found if one < other else found.T

    return np.block([[block(one, other) for other in every] for one in every])
