"""Counts of joint metrics, drawn as many clients' reports would be, and tables of known shares."""

from collections.abc import Mapping, Sequence

import numpy as np

from factories import make_metric
from hubbub.client import RapporParams
from hubbub.inference import (
    FieldLabels,
    FloatArray,
    JointEstimates,
    estimate_categories,
    one_hot_estimates,
)
from hubbub.protocol import (
    BooleanType,
    CohortCounts,
    EnumType,
    Field,
    JointType,
    Metric,
    StringType,
)

NAMES = ("crash", "driver", "place")
BY_SITE = JointType((Field("site", StringType()), Field("secure", BooleanType())))


def noise(epsilon: float, k: int = 64, m: int = 1) -> RapporParams:
    return RapporParams(k, 1, m, 0.0, 1 / (np.exp(epsilon) + 1), 0.5)


def enum_type(shape: Sequence[int]) -> JointType:
    fields = (
        Field(name, EnumType(tuple(f"{name} {i}" for i in range(n))))
        for name, n in zip(NAMES, shape, strict=False)
    )
    return JointType(tuple(fields))


def enum_metric(shape: Sequence[int], epsilon: float = 4.0) -> Metric:
    return make_metric(metric_type=enum_type(shape), params=noise(epsilon), one_time=True)


def fields_of(shape: Sequence[int]) -> tuple[FieldLabels, ...]:
    return tuple(
        FieldLabels(name, tuple(f"{name} {i}" for i in range(n)))
        for name, n in zip(NAMES, shape, strict=False)
    )


def draw_cells(
    shares: FloatArray, n_reports: int, params: RapporParams, rng: np.random.Generator
) -> CohortCounts:
    """Return the counts of one report per client, one bit per cell."""
    clients = np.zeros(params.k, dtype=np.int64)
    clients[: shares.size] = rng.multinomial(n_reports, shares.ravel())
    ones = rng.binomial(clients, params.q_star)
    ones += rng.binomial(n_reports - clients, params.p_star)
    return CohortCounts(np.array([n_reports]), ones[None, :])


def draw_table(
    shares: FloatArray, n_reports: int, rng: np.random.Generator, epsilon: float = 4.0
) -> JointEstimates:
    metric = enum_metric(shares.shape, epsilon)
    counts = draw_cells(shares, n_reports, metric.params, rng)
    cells = estimate_categories(counts, metric)
    return one_hot_estimates(fields_of(shares.shape), cells, n_reports)


def known_table(shares: FloatArray, variance: float = 1e-12) -> JointEstimates:
    """Return estimates that are the shares themselves, with independent noise of this size."""
    covariance = variance * np.eye(shares.size)
    return JointEstimates(fields_of(shares.shape), shares.ravel(), covariance, covariance)


def draw_tuples(
    clients: Mapping[tuple[str, bool], int], metric: Metric, rng: np.random.Generator
) -> CohortCounts:
    """Return the counts of one report per client of a metric of type `BY_SITE`."""
    params = metric.params
    reports = np.zeros(params.m, dtype=np.int64)
    true = np.zeros((params.m, params.k), dtype=np.int64)
    for (site, secure), number in clients.items():
        of_cohorts = rng.multinomial(number, np.full(params.m, 1 / params.m))
        reports += of_cohorts
        for cohort in np.flatnonzero(of_cohorts).tolist():
            bits = metric.type.bits({"site": site, "secure": secure}, cohort, params)
            true[cohort, bits.bit_length() - 1] += of_cohorts[cohort]
    ones = rng.binomial(true, params.q_star)
    return CohortCounts(reports, ones + rng.binomial(reports[:, None] - true, params.p_star))
