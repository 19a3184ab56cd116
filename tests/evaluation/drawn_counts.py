"""Bit counts drawn by their exact distribution, without any single report.

Given who holds what, all bits of all reports are independent coins, so each count is the sum of two
binomial numbers: of the clients whose true bit it is, and of the others. Clients report once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubbub.decoder import CohortCounts
from hubbub.inference.arrays import FloatArray
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.true_bits import true_bits


def draw_counts(
    values: Sequence[Value],
    shares: FloatArray,
    params: RapporParams,
    reports: int,
    rng: np.random.Generator,
    metric_type: MetricType | None = None,
) -> CohortCounts:
    """Let so many clients report once, and return what is counted.

    Parameters
    ----------
    values : sequence of values, length v
    shares : float64 array, shape (v,)
        Chance that a client holds each.
    params : RapporParams
    reports : int
    rng : numpy.random.Generator
    metric_type : MetricType, optional
        Of the values, if they aren't listed strings.
    """
    true_bits_of = true_bits(values, params, metric_type)
    of_cohorts = rng.multinomial(reports, np.full(params.m, 1 / params.m))
    true = np.empty((params.m, params.k), dtype=np.int64)
    for cohort, size in enumerate(of_cohorts.tolist()):
        held = rng.multinomial(size, shares)
        there = np.flatnonzero(held)
        packed = true_bits_of.take(there, np.full(len(there), cohort))
        true[cohort] = held[there] @ np.unpackbits(packed, axis=1, bitorder="little")
    ones = rng.binomial(true, params.q_star)
    return CohortCounts(of_cohorts, ones + rng.binomial(of_cohorts[:, None] - true, params.p_star))
