"""Tables of several fields with known truth: who holds which values, and how good a decoding was.

Each field has made-up values, whose shares are those of a family. Fields are independent but for a
share of the clients who hold the partners of their first field's value. Invariant: tuples are in
the order of cells, in which the last field changes fastest.

The truth of a table is that of the population, not of the clients who happened to be drawn: that is
what intervals are of, and at large epsilons who was drawn matters more than the noise.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hubbub.inference import (
    BoolArray,
    Decoding,
    FieldLabels,
    FloatArray,
    JointDecoding,
    TableAnalysis,
    decode_joint,
)
from hubbub.protocol import UNARY, CohortCounts, JointType, Metric, RapporParams, Response
from hubbub.simulations import Population, ReportingPlan, family_shares

_NAMES = ("first", "second", "third")
HASHED = {"k": 128, "m": 64}
"""Size of tuples that are hashed: the RAPPOR paper's k, and the largest of its m."""
PARTNERS = 0
"""The part of a trial's random numbers that draws who is whose partner."""


@dataclass(frozen=True, slots=True)
class JointPopulation:
    """Tuples of values and the probability that a client holds each."""

    metric_type: JointType  # of the metric that they are values of
    fields: tuple[FieldLabels, ...]  # as results show them
    values: tuple[dict[str, str], ...]  # all tuples, as an app records them
    shares: FloatArray  # shape (n,); sum to 1


def joint_population(
    sizes: str,
    family: str,
    partners: float,
    rng: np.random.Generator,
    size: Mapping[str, int] | None = None,
    prefix: str = "",
) -> JointPopulation:
    """Make up fields and the shares of all their tuples.

    `sizes`: numbers of values, such as 100x20, or 1000sx2 with a field of strings. Each value of
    the first field has a partner, drawn, in each other field, which the share `partners` of its
    clients hold. `size` is k, h and m as metrics.toml may give them; the `prefix` makes strings of
    different runs differ.
    """
    parts = sizes.split("x")
    names = _NAMES[: len(parts)]
    tables: list[dict[str, object]] = []
    fields = []
    for name, part in zip(names, parts, strict=True):
        numbers = range(1, int(part.removesuffix("s")) + 1)
        values = tuple(f"{prefix if part.endswith('s') else ''}{name} {i}" for i in numbers)
        kind = (
            {"type": "string"}
            if part.endswith("s")
            else {"type": "enum", "categories": list(values)}
        )
        tables.append({"name": name, **kind})
        fields.append(FieldLabels(name, values))
    margins = [family_shares(family, len(each.labels)) for each in fields]
    first, *others = margins
    shares = reduce(np.multiply.outer, margins)
    places = (np.arange(len(first)), *(rng.integers(len(each), size=len(first)) for each in others))
    tied = np.zeros(shares.shape)
    tied[places] = first
    tuples = itertools.product(*(each.labels for each in fields))
    return JointPopulation(
        JointType.from_table("joint", {"fields": tables, **(size or {})}),
        tuple(fields),
        tuple(dict(zip(names, held, strict=True)) for held in tuples),
        ((1 - partners) * shares + partners * tied).ravel(),
    )


@dataclass(frozen=True, slots=True)
class JointExperiment:
    """Clients that each report their tuple once, and the response that they use."""

    population: JointPopulation
    params: RapporParams
    reports: int
    seed: int = 0
    response: Response = UNARY

    @property
    def metric(self) -> Metric:
        """The metric that is reported, once."""
        people = self.population
        plan = ReportingPlan(
            Population(people.values, people.shares),
            self.params,
            self.reports,
            metric_type=people.metric_type,
            response=self.response,
        )
        return plan.metric._replace(mode="one-time")


@dataclass(frozen=True, slots=True)
class JointOutcome:
    """How an experiment went."""

    score: JointScore
    seconds: float  # CPU time from the counts to the table with all its tests


def judge_counts(experiment: JointExperiment, counts: CohortCounts) -> JointOutcome:
    """Decode counts and compare the table with the truth."""
    population = experiment.population
    started = time.process_time()
    decoding = decode_joint(counts, experiment.metric, population.fields)
    seconds = time.process_time() - started
    return JointOutcome(score_joint(decoding, population.shares), seconds)


COMMON = 0.002
"""Share from which on a cell counts as common."""
LEVEL = 0.05
"""Level at which independence is rejected."""
_ROUNDING_OF_PRODUCTS = 1e-12
"""Rounding of products of shares, against an independent table."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many 95% intervals hold the truth, of how many."""

    held: int
    intervals: int

    @property
    def share(self) -> float:
        """Share of the intervals; nan if there are none."""
        return self.held / self.intervals if self.intervals else math.nan


@dataclass(frozen=True, slots=True)
class JointScore:
    """Figures of one decoded table."""

    detected: int  # cells reported
    # Cells reported to depart from independence (as the decoder corrects for many tests); those of
    # them that don't, or depart the other way.
    departures: int
    wrong_departures: int
    # Half the summed distance between the true cells and the constrained shares, which are the
    # nearest possible to unbiased ones; all of it counts, also what isn't estimated.
    total_variation: float
    total_variation_refit: float  # the same of the column `refit`
    # Coverage of the 95% intervals of all cells; of those with a true share above `COMMON`; of all
    # fields' values; of shares given another field's value; of Cramer's V of each two fields.
    cells: Coverage
    common_cells: Coverage
    margins: Coverage
    conditionals: Coverage
    strength: Coverage
    p_value: float  # of the test that all fields are independent; nan if no table could be made

    @property
    def rejected(self) -> bool:
        """Whether independence was rejected at `LEVEL`."""
        return self.p_value <= LEVEL


def score_joint(decoding: JointDecoding, truth: FloatArray) -> JointScore:
    """Compare a table with the population's shares of cells, shape (n,)."""
    cells, table = decoding.cells, decoding.table
    held, known = _held(truth, cells.low, cells.high), ~np.isnan(cells.share)
    common = known & (truth > COMMON)
    departures = wrong = 0
    margins: list[BoolArray] = []
    conditionals: list[BoolArray] = []
    strength: list[BoolArray] = []
    p_value = math.nan
    if table is not None:
        own = truth[decoding.rows].reshape(table.estimates.shape)
        departures, wrong = _departures(table, own, decoding.summary.alpha)
        margins = [
            _held(_margin(own, axis), *each.interval) for axis, each in enumerate(table.margins)
        ]
        conditionals = [*_conditionals(table, own)]
        strength = [*_strengths(table, own)]
        p_value = table.independence[-1].p_value
    source = decoding.source
    if isinstance(source, Decoding):
        constrained = source.constrained_share
    else:
        constrained = source.estimates.share
    return JointScore(
        detected=int(cells.detected.sum()),
        departures=departures,
        wrong_departures=wrong,
        total_variation=_variation(constrained, truth),
        total_variation_refit=_variation(cells.refit, truth),
        cells=_coverage([held[known]]),
        common_cells=_coverage([held[common]]),
        margins=_coverage(margins),
        conditionals=_coverage(conditionals),
        strength=_coverage(strength),
        p_value=p_value,
    )


def true_strength(table: FloatArray, groups: Sequence[FloatArray]) -> float:
    """Return Cramer's V of a table of two fields, of which groups of values count as one.

    Groups have shapes (groups of rows, rows) and (groups of columns, columns): 1 where a value
    belongs to a group.
    """
    pooled = groups[0] @ table @ groups[1].T / table.sum()
    product = np.outer(pooled.sum(axis=1), pooled.sum(axis=0))
    phi_squared = float(((pooled - product) ** 2 / product).sum())
    return math.sqrt(phi_squared / (min(pooled.shape) - 1))


def _departures(table: TableAnalysis, truth: FloatArray, alpha: float) -> tuple[int, int]:
    """Return how many cells seem to depart from independence, and how many wrongly."""
    total = float(truth.sum())
    expected = reduce(
        np.multiply.outer, (_margin(truth, axis) / total for axis in range(truth.ndim))
    )
    residual = (truth - total * expected).ravel()
    residual[np.abs(residual) < _ROUNDING_OF_PRODUCTS] = 0.0
    surely = table.residuals.q_value <= alpha
    return int(surely.sum()), int((surely & (residual * table.residuals.residual <= 0)).sum())


def _margin(truth: FloatArray, axis: int) -> FloatArray:
    return np.asarray(truth.sum(axis=tuple(a for a in range(truth.ndim) if a != axis)))


def _conditionals(table: TableAnalysis, truth: FloatArray) -> Iterable[BoolArray]:
    for each in table.conditionals:
        pair = _pair(truth, each.given, each.of)
        given = pair.sum(axis=1, keepdims=True)
        share = np.divide(pair, given, out=np.full(pair.shape, np.nan), where=given > 0)
        known = ~np.isnan(each.share)
        yield _held(share[known], each.low[known], each.high[known])


def _strengths(table: TableAnalysis, truth: FloatArray) -> Iterable[BoolArray]:
    axes = {margin.name: axis for axis, margin in enumerate(table.margins)}
    for each in table.independence:
        if math.isnan(each.cramers_v):
            continue
        first, second = (axes[name] for name in each.fields)
        groups = [
            _groups(table, axis, size)
            for axis, size in zip((first, second), each.v_values, strict=True)
        ]
        strength = true_strength(_pair(truth, first, second), groups)
        yield np.array([each.v_low <= strength <= each.v_high])


def _groups(table: TableAnalysis, axis: int, size: int) -> FloatArray:
    order = np.argsort(-table.margins[axis].share, kind="stable")
    groups = np.zeros((size, len(order)))
    groups[np.minimum(np.arange(len(order)), size - 1), order] = 1
    return groups


def _pair(truth: FloatArray, rows: int, columns: int) -> FloatArray:
    others = tuple(axis for axis in range(truth.ndim) if axis not in {rows, columns})
    pair: FloatArray = truth.sum(axis=others)
    return pair if rows < columns else pair.T


def _held(truth: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    return (low <= truth) & (truth <= high)


def _coverage(held: Iterable[BoolArray]) -> Coverage:
    every = [each.ravel() for each in held]
    return Coverage(sum(int(each.sum()) for each in every), sum(map(len, every)))


def _variation(shares: FloatArray, truth: FloatArray) -> float:
    rest = float(truth.sum() - np.nansum(shares))
    return (float(np.abs(np.nan_to_num(shares) - truth).sum()) + abs(rest)) / 2
