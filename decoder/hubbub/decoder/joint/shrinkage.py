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

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.joint.table import JointEstimates

_FACTORS = np.concatenate([[0.0], np.geomspace(0.05, 20.0, 41)])
_SPREAD = 0.1
_STEPS = 60
_ROUNDS = 60
_TINY = 1e-300


def shrunk_cells(estimates: JointEstimates) -> FloatArray:
    """Return cells that are at least 0, whose margins are the margins' constrained shares.

    Returns
    -------
    float64 array, shape (n,)

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
    """Return the table of these margins in which fields are independent; a margin adds up to total.

    Returns
    -------
    float64 array, of as many dimensions as margins
    """
    table = reduce(np.multiply.outer, margins)
    return np.asarray(table / total ** (len(margins) - 1))


def fit_margins(table: FloatArray, variance: FloatArray, margins: list[FloatArray]) -> FloatArray:
    """Return a table near another that is nowhere below 0 and has these margins.

    What rows, columns (and layers) lack is added to their cells in proportion to the cells'
    variances, in turn until there is next to nothing left (alternating projections).
    """
    table = np.maximum(table, 0.0)
    for _ in range(_ROUNDS):
        for axis, margin in enumerate(margins):
            others = tuple(a for a in range(table.ndim) if a != axis)
            lacking = margin - table.sum(axis=others)
            free = np.where((table > 0) | np.expand_dims(lacking > 0, others), variance, _TINY)
            added = free * np.expand_dims(lacking / free.sum(axis=others), others)
            table = np.maximum(table + added, 0.0)
    return np.asarray(table * (margins[0].sum() / table.sum()))
