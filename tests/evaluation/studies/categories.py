"""How often the intervals of categories hold the truth (docs/measured/estimates.md).

Counts are drawn by their distribution. One trial is one sample; the truth is that of the population
it is drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from evaluation.drawn_counts import draw_cells, draw_counts
from evaluation.studies.study import Study, means
from factories import make_metric, make_params
from hubbub.client import Metric, RapporParams
from hubbub.decoder import CohortCounts
from hubbub.inference import (
    Z_CONFIDENCE,
    BoolArray,
    FloatArray,
    OrdinalEstimates,
    estimate_categories,
    estimate_ordinal,
)
from hubbub.protocol import UNARY, BooleanType, EnumType, MetricType, OrdinalType, Subset, Value

LOOSE = make_params(8, 1, 1, f=0.2, p=0.05, q=0.75)
PAPER = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
TIGHT = make_params(8, 1, 1, f=0.5, p=0.4, q=0.6)
_NEAR = 2.0  # standard errors from 0


@dataclass(frozen=True, slots=True)
class CategoryCoverage:
    """One trial: shares of intervals that hold the truth; nan where there are none.

    `near` is of shares above 0 by at most 2 standard errors.
    """

    all: float
    absent: float
    near: float
    differences: float
    cumulative: float = math.nan
    quantiles: float = math.nan


@dataclass(frozen=True, slots=True)
class CategoryCase:
    """A metric, its number of reports, and the shares of the people they are drawn from."""

    name: str
    metric: Metric
    shares: FloatArray
    n_reports: int

    @property
    def work(self) -> float:
        return float(len(self.shares) ** 2)

    @property
    def edges(self) -> tuple[float, ...]:
        """Between the buckets of an ordinal metric."""
        metric_type = self.metric.type
        return metric_type.edges if isinstance(metric_type, OrdinalType) else ()

    @property
    def values(self) -> Sequence[Value]:
        metric_type = self.metric.type
        if isinstance(metric_type, EnumType):
            return metric_type.categories
        return (self.edges[0] - 1, *self.edges) if self.edges else (False, True)

    def draw(self, rng: np.random.Generator) -> CohortCounts:
        metric = self.metric
        if metric.response != UNARY:
            return draw_cells(metric, range(len(self.shares)), self.shares, self.n_reports, rng)
        return draw_counts(
            self.values, self.shares, metric.params, self.n_reports, rng, metric.type
        )

    def run(self, number: int) -> CategoryCoverage:
        estimates = estimate_categories(self.draw(np.random.default_rng(number)), self.metric)
        truth, interval = self.shares, estimates.intervals()
        held = (interval.low <= truth) & (truth <= interval.high)
        near = (truth > 0) & (truth < _NEAR * estimates.std_error)
        weights = np.eye(len(truth))[:-1] - np.eye(len(truth))[1:]
        difference, error = estimates.contrast(weights)
        differences = np.abs(difference - weights @ truth) <= Z_CONFIDENCE * error
        ordinal = _in_order(self, estimate_ordinal(estimates, self.edges)) if self.edges else {}
        return CategoryCoverage(
            all=_share(held),
            absent=_share(held[truth == 0]),
            near=_share(held[near]),
            differences=_share(differences),
            **ordinal,
        )


def make_case(
    metric_type: MetricType, shares: FloatArray, n_reports: int, noise: RapporParams | Subset
) -> CategoryCase:
    """Return a case named after its type and size."""
    name = metric_type.name
    if not isinstance(metric_type, BooleanType):
        name = f"{name} of {len(shares)}"
    if isinstance(noise, Subset):
        name = f"{name}, subsets"
        metric = make_metric(metric_type=metric_type, response=noise, mode="one-time")
        return CategoryCase(name, metric, shares, n_reports)
    return CategoryCase(name, make_metric(metric_type=metric_type, params=noise), shares, n_reports)


def enum(n: int, n_reports: int, noise: RapporParams | Subset) -> CategoryCase:
    """Half of the people in the first category, a quarter in the second ...; two are empty."""
    shares = 0.5 ** np.arange(1.0, n + 1)
    shares[-2:] = 0
    return make_case(EnumType(tuple(map(str, range(n)))), shares / shares.sum(), n_reports, noise)


def boolean(true: float, n_reports: int, noise: RapporParams) -> CategoryCase:
    """So many of the people say yes."""
    return make_case(BooleanType(), np.array([1 - true, true]), n_reports, noise)


def ordinal(n: int, n_reports: int, noise: RapporParams | Subset) -> CategoryCase:
    """A bell in the middle, nobody in the last two buckets."""
    shares = np.exp(-0.5 * ((np.arange(n) - 0.45 * n) / (0.15 * n)) ** 2)
    shares[-2:] = 0
    edges = tuple(float(edge) for edge in np.arange(1, n) * 10)
    return make_case(OrdinalType(edges), shares / shares.sum(), n_reports, noise)


CASES = tuple(
    make(size, n_reports, noise)
    for make, size in ((enum, 4), (enum, 20), (enum, 100), (ordinal, 12), (ordinal, 60))
    for n_reports, noise in ((1_000, LOOSE), (20_000, PAPER), (100_000, TIGHT), (5_000_000, LOOSE))
) + tuple(
    boolean(true, n_reports, noise)
    for true in (0.0, 0.01, 0.3)
    for n_reports, noise in ((1_000, LOOSE), (20_000, PAPER), (100_000, TIGHT))
)


def _in_order(case: CategoryCase, found: OrdinalEstimates) -> dict[str, float]:
    below, edges = np.cumsum(case.shares)[:-1], np.array(case.edges)
    low, high = found.interval.low[:-1], found.interval.high[:-1]
    bounds = np.concatenate([[-np.inf], edges, [np.inf]])
    right = []
    for quantile in found.quantiles:
        bucket = int(np.searchsorted(below, quantile.level))
        right.append(quantile.low <= bounds[bucket] and bounds[bucket + 1] <= quantile.high)
    return {
        "cumulative": _share((low <= below) & (below <= high)),
        "quantiles": float(np.mean(right)),
    }


def _share(held: BoolArray) -> float:
    return float(held.mean()) if held.size else math.nan


def _label(case: CategoryCase) -> str:
    is_boolean = isinstance(case.metric.type, BooleanType)
    return f"True {case.shares[1]:.0%}" if is_boolean else case.name


STUDY = Study(
    "Categories: 95% intervals that hold the truth",
    "Shares of the 95% intervals of enum, ordinal and boolean metrics that hold the truth.",
    lambda: CASES,
    {
        "type": lambda case, _: _label(case),
        "f, p, q": lambda case, _: ", ".join(f"{x:g}" for x in case.metric.params[3:6]),
        "reports": lambda case, _: case.n_reports,
        **means(*(field.name for field in fields(CategoryCoverage))),
    },
    runs=2_000,
)
