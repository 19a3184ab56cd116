"""Counts of open strings, drawn as many clients' reports would be."""

from collections.abc import Mapping

import numpy as np

from hubbub.client import RapporParams
from hubbub.protocol import CohortCounts, OpenStringType


def open_params(
    steps: tuple[int, ...], k: int = 64, m: int = 32, epsilon: float = 4.0
) -> RapporParams:
    return RapporParams(k, 1, (len(steps) + 1) * m, 0.0, 1 / (np.exp(epsilon) + 1), 0.5)


def draw_counts(
    clients: Mapping[str, int],
    params: RapporParams,
    steps: tuple[int, ...],
    rng: np.random.Generator,
) -> CohortCounts:
    """Return the counts of one report per client; the bits are the protocol's."""
    metric_type = OpenStringType(steps, params.m // (len(steps) + 1))
    reports = np.zeros(params.m, dtype=np.int64)
    true = np.zeros((params.m, params.k), dtype=np.int64)
    for value, number in clients.items():
        of_cohorts = rng.multinomial(number, np.full(params.m, 1 / params.m))
        reports += of_cohorts
        for cohort in np.flatnonzero(of_cohorts):
            bits = metric_type.bits(value, int(cohort), params)
            true[cohort, bits.bit_length() - 1] += of_cohorts[cohort]
    ones = rng.binomial(true, params.q_star)
    return CohortCounts(reports, ones + rng.binomial(reports[:, None] - true, params.p_star))
