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
_STEPS = 60
_RAKINGS = 60
_TINY = 1e-300


def shrunk_cells(estimates: JointEstimates) -> FloatArray:
    """Return cells that are at least 0, whose margins are the margins' constrained shares.

    Returns
    -------
    float64 array, shape (n,)

    Notes
    -----
    With m the product of the margins and v a cell's noise, the likelihood of a factor g is that of
    a normal y with mean min(g m, smallest margin) and variance v. The weights of the factors on a
    grid are their maximum likelihood (EM); a cell becomes its mean given y. Raking (iterative
    proportional fitting) then gives the table its margins again.
    """
    shape = estimates.shape
    margins = [estimates.margin(axis).constrained() for axis in range(len(shape))]
    total = float(margins[0].sum())
    product, least = product_of(margins, total), reduce(np.minimum.outer, margins)
    values = np.minimum(product[..., None] * _FACTORS, least[..., None]).reshape(-1, len(_FACTORS))
    variance = np.diagonal(estimates.covariance)[:, None]
    log_density = -((estimates.unbiased[:, None] - values) ** 2) / (2 * variance)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights = np.full(len(_FACTORS), 1 / len(_FACTORS))
    for _ in range(_STEPS):
        chances = density * weights
        weights = (chances / chances.sum(axis=1, keepdims=True)).mean(axis=0)
    chances = density * weights
    mean = (chances * values).sum(axis=1) / chances.sum(axis=1)
    return rake(mean.reshape(shape), margins).ravel()


def product_of(margins: list[FloatArray], total: float) -> FloatArray:
    """Return the table of these margins in which fields are independent; a margin adds up to total.

    Returns
    -------
    float64 array, of as many dimensions as margins
    """
    table = reduce(np.multiply.outer, margins)
    return np.asarray(table / total ** (len(margins) - 1))


def rake(table: FloatArray, margins: list[FloatArray]) -> FloatArray:
    """Scale rows, columns (and layers) of a table in turn until they add up to the margins."""
    for _ in range(_RAKINGS):
        for axis, margin in enumerate(margins):
            others = tuple(a for a in range(table.ndim) if a != axis)
            sums = np.maximum(table.sum(axis=others), _TINY)
            table = table * np.expand_dims(margin / sums, others)
    return table
