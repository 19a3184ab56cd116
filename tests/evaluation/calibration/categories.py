"""How often the intervals of categories hold the truth.

`python -m evaluation.calibration.categories` prints it for many populations.
Counts are drawn with the law of clients who report once: shares by a multinomial, each bit's count
by two binomials, because given the values all bits are independent. One run is one population
sample; the truth is that of the population it is drawn from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import click
import numpy as np
from rich import box
from rich.table import Table

from factories import make_metric, make_params
from hubbub.client import Metric, RapporParams
from hubbub.decoder import CohortCounts
from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.ordinal import OrdinalEstimates, estimate_ordinal
from hubbub.inference.categories.shares import estimate_categories
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.reporting.formats.terminal import stdout_console

LOOSE = make_params(8, 1, 1, f=0.2, p=0.05, q=0.75)
PAPER = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
TIGHT = make_params(8, 1, 1, f=0.5, p=0.4, q=0.6)
_NEAR = 2.0  # standard errors from 0


@dataclass(frozen=True, slots=True)
class CategoryCase:
    """A metric, its number of reports, and the shares of the people they are drawn from."""

    name: str
    metric: Metric
    shares: FloatArray
    n_reports: int

    @property
    def edges(self) -> tuple[float, ...]:
        metric_type = self.metric.type
        return metric_type.edges if isinstance(metric_type, OrdinalType) else ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """One run: shares of intervals that hold the truth; nan where there are none.

    `near` is of shares above 0 by at most 2 standard errors; `mean` of the inner mean's standard
    error, with all values at the middle of their buckets; `mean_bounds` of its interval, with all
    values at the bottom.
    """

    all: float
    absent: float
    near: float
    differences: float
    cumulative: float
    quantiles: float
    mean: float
    mean_bounds: float


def make_case(
    metric_type: MetricType, shares: FloatArray, n_reports: int, noise: RapporParams
) -> CategoryCase:
    name = (
        metric_type.name
        if isinstance(metric_type, BooleanType)
        else f"{metric_type.name} of {len(shares)}"
    )
    return CategoryCase(name, make_metric(metric_type=metric_type, params=noise), shares, n_reports)


def enum(n: int, n_reports: int, noise: RapporParams) -> CategoryCase:
    """Half of the people in the first category, a quarter in the second ...; two are empty."""
    shares = 0.5 ** np.arange(1.0, n + 1)
    shares[-2:] = 0
    return make_case(EnumType(tuple(map(str, range(n)))), shares / shares.sum(), n_reports, noise)


def boolean(true: float, n_reports: int, noise: RapporParams) -> CategoryCase:
    return make_case(BooleanType(), np.array([1 - true, true]), n_reports, noise)


def ordinal(n: int, n_reports: int, noise: RapporParams) -> CategoryCase:
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


def draw_counts(case: CategoryCase, rng: np.random.Generator) -> CohortCounts:
    """Draw one report of each client."""
    params, n_reports = case.metric.params, case.n_reports
    held = rng.multinomial(n_reports, case.shares)
    true = np.zeros(params.k, dtype=np.int64)
    own = held[1:] if isinstance(case.metric.type, BooleanType) else held
    true[: len(own)] = own
    ones = rng.binomial(true, params.q_star) + rng.binomial(n_reports - true, params.p_star)
    return CohortCounts(np.array([n_reports]), ones[None, :])


def run(case: CategoryCase, seed: int) -> Coverage:
    estimates = estimate_categories(draw_counts(case, np.random.default_rng(seed)), case.metric)
    truth, interval = case.shares, estimates.intervals()
    held = (interval.low <= truth) & (truth <= interval.high)
    near = (truth > 0) & (truth < _NEAR * estimates.std_error)
    weights = np.eye(len(truth))[:-1] - np.eye(len(truth))[1:]
    difference, error = estimates.contrast(weights)
    differences = np.abs(difference - weights @ truth) <= Z_CONFIDENCE * error
    in_order = dict.fromkeys(("cumulative", "quantiles", "mean", "mean_bounds"), math.nan)
    if case.edges:
        in_order = _in_order(case, estimate_ordinal(estimates, case.edges))
    return Coverage(
        all=_share(held),
        absent=_share(held[truth == 0]),
        near=_share(held[near]),
        differences=_share(differences),
        **in_order,
    )


def measure(case: CategoryCase, runs: int, first_seed: int = 0) -> dict[str, FloatArray]:
    """Return every run's coverage by the field's name, shape (runs,)."""
    results = [run(case, first_seed + seed) for seed in range(runs)]
    return {f.name: np.array([getattr(x, f.name) for x in results]) for f in fields(Coverage)}


def _in_order(case: CategoryCase, found: OrdinalEstimates) -> dict[str, float]:
    below, edges = np.cumsum(case.shares)[:-1], np.array(case.edges)
    low, high = found.interval.low[:-1], found.interval.high[:-1]
    bounds = np.concatenate([[-np.inf], edges, [np.inf]])
    right = []
    for quantile in found.quantiles:
        bucket = int(np.searchsorted(below, quantile.level))
        right.append(quantile.low <= bounds[bucket] and bounds[bucket + 1] <= quantile.high)
    inner, mean = case.shares[1:-1] / case.shares[1:-1].sum(), found.inner_mean
    middle, bottom = inner @ (edges[:-1] + edges[1:]) / 2, inner @ edges[:-1]
    return {
        "cumulative": _share((low <= below) & (below <= high)),
        "quantiles": float(np.mean(right)),
        "mean": float(abs(mean.mean - middle) <= Z_CONFIDENCE * mean.std_error) if mean else np.nan,
        "mean_bounds": float(mean.low <= bottom <= mean.high) if mean else np.nan,
    }


def _share(held: np.typing.NDArray[np.bool_]) -> float:
    return float(held.mean()) if held.size else math.nan


def _cell(values: FloatArray) -> str:
    known = values[~np.isnan(values)]
    if len(known) < max(2, len(values) // 10):  # a share is now near 0 and now not
        return ""
    return f"{known.mean():.3f} ± {known.std(ddof=1) / math.sqrt(len(known)):.3f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--runs", default=2000, show_default=True, type=click.IntRange(2), help="A case.")
def main(runs: int) -> None:
    """Print the share of the 95% intervals that hold the truth, with its standard error."""
    table = Table(box=box.MARKDOWN)
    names = [f.name.replace("_", " ") for f in fields(Coverage)]
    for heading in ("type", "f, p, q", "reports", *names):
        table.add_column(heading, justify="right")
    for case in CASES:
        params, measured = case.metric.params, measure(case, runs)
        label = case.name if case.edges or len(case.shares) > 2 else f"True {case.shares[1]:.0%}"
        noise = f"{params.f:g}, {params.p:g}, {params.q:g}"
        table.add_row(label, noise, f"{case.n_reports:,}", *map(_cell, measured.values()))
    stdout_console(200).print(table)


if __name__ == "__main__":
    main(prog_name="evaluation.calibration.categories")
