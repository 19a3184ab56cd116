"""Counts of a joint metric whose cells have a bit each -> the table's estimates.

The cells are estimated as categories are. How such estimates scatter is exact where the bits of
reports are independent given the clients' values; where they are sets of fixed size, it is the
normal distribution of the exact covariance. They scatter about a population's shares, whatever is
asked for: fields that are independent there are nearly so in the reports.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import CategoryEstimates, noise_variance, subset_noise
from hubbub.inference.joint.table import Draws, FieldLabels, JointEstimates, normal_draws
from hubbub.inference.repeated_reports import ONCE, Estimand, RepeatedReports
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import Subset


def one_hot_estimates(
    fields: tuple[FieldLabels, ...],
    cells: CategoryEstimates,
    n_reports: int,
    metric: Metric,
    repeats: RepeatedReports = ONCE,
) -> JointEstimates:
    """Return the estimates of cells as those of a table."""
    if isinstance(metric.response, Subset):
        draw = subset_draws(n_reports, metric.response, repeats)
    else:
        noise = noise_variance(cells.share, n_reports, metric.params, repeats)
        draw = one_hot_draws(n_reports, metric.params, noise, repeats)
    return JointEstimates(fields, cells.unbiased, cells.covariance, draw)


def one_hot_draws(
    n_reports: int, params: RapporParams, noise: FloatArray, repeats: RepeatedReports = ONCE
) -> Draws:
    """Return a function that draws estimates of cells with a bit each.

    `noise`, shape (n,): d, by which estimates are made to add up to 1 (`estimate_categories`).

    Notes
    -----
    Clients fall into cells as a multinomial; a cell of c clients has its bit set in
    Bin(c, q*) + Bin(N - c, p*) reports, independently of the others'. Where clients report again,
    N / D clients are drawn, and their permanent responses, each of which makes D reports.
    """
    correction = noise / noise.sum()
    n_clients = max(1, round(n_reports / repeats.clients))
    n_responses = max(1, round(n_reports / repeats.responses))

    def draw(shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
        clients = rng.multinomial(n_clients, shares / shares.sum(), size=n_draws)
        if n_responses == n_reports:
            held = np.rint(clients * (n_reports / n_clients)).astype(np.int64)
            ones = rng.binomial(held, params.q_star)
            ones += rng.binomial(n_reports - held, params.p_star)
        else:
            held = np.rint(clients * (n_responses / n_clients)).astype(np.int64)
            permanent = rng.binomial(held, 1 - params.f1)
            permanent += rng.binomial(n_responses - held, params.f0)
            set_in = np.rint(permanent * (n_reports / n_responses)).astype(np.int64)
            ones = rng.binomial(set_in, params.q)
            ones += rng.binomial(n_reports - set_in, params.p)
        rate = (ones / n_reports - params.p_star) / (params.q_star - params.p_star)
        return np.asarray(rate - (rate.sum(axis=1, keepdims=True) - 1) * correction)

    return draw


def subset_draws(n_reports: int, response: Subset, repeats: RepeatedReports = ONCE) -> Draws:
    """Return a function that draws estimates of cells that are reported as sets of fixed size.

    `response`: the metric's.
    """
    noise = subset_noise(response)
    of_people = replace(repeats, estimand=Estimand.POPULATION)

    def draw(shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
        shares = shares / shares.sum()
        covariance = noise.covariance(shares, n_reports)
        covariance += of_people.sampling_covariance(shares, n_reports)
        return normal_draws(covariance)(shares, rng, n_draws)

    return draw
