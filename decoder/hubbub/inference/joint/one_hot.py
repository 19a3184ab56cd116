"""Counts of a joint metric whose cells have a bit each -> the table's estimates.

The cells are estimated as categories are; how such estimates scatter is exact, because given the
clients' values the bits of reports are independent.
"""

from __future__ import annotations

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import CategoryEstimates, noise_variance
from hubbub.inference.joint.table import Draws, FieldLabels, JointEstimates
from hubbub.protocol.params import RapporParams


def one_hot_estimates(
    fields: tuple[FieldLabels, ...],
    cells: CategoryEstimates,
    n_reports: int,
    params: RapporParams,
) -> JointEstimates:
    """Return the estimates of cells as those of a table."""
    noise = noise_variance(cells.share, n_reports, params)
    draw = one_hot_draws(n_reports, params, noise)
    return JointEstimates(fields, cells.unbiased, cells.covariance, draw)


def one_hot_draws(n_reports: int, params: RapporParams, noise: FloatArray) -> Draws:
    """Return a function that draws estimates of cells with a bit each.

    Parameters
    ----------
    n_reports : int
        How many reports were counted.
    params : RapporParams
        The metric's k, h, m, f, p and q.
    noise : float64 array, shape (n,)
        d, by which estimates are made to add up to 1 (`estimate_categories`).

    Notes
    -----
    Clients fall into cells as a multinomial; a cell of c clients has its bit set in
    Bin(c, q*) + Bin(N - c, p*) reports, independently of the others'. With longitudinal reports the
    clients' responses are still independent of each other, and each client is taken to report once.
    """
    correction = noise / noise.sum()

    def draw(shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
        clients = rng.multinomial(n_reports, shares / shares.sum(), size=n_draws)
        ones = rng.binomial(clients, params.q_star)
        ones += rng.binomial(n_reports - clients, params.p_star)
        rate = (ones / n_reports - params.p_star) / (params.q_star - params.p_star)
        return np.asarray(rate - (rate.sum(axis=1, keepdims=True) - 1) * correction)

    return draw
