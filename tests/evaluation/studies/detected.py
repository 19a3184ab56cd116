"""How often intervals of *detected* rows hold the truth, of every metric type.

Of names near the limit those are detected whose noise was upward, so that intervals that hold on
the whole may fail those that people look at. A trial draws its people and their reports anew; the
truth is the population's.
docs/measured/estimates.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.drawn_counts import draw_counts
from evaluation.laboratory import Case, Figure, seed_of
from evaluation.studies.categories import LOOSE, PAPER, TIGHT, CategoryCase, make_case
from evaluation.studies.joint import DrawnTable, SubsetTable, draw_tuples
from evaluation.studies.study import Study
from factories import make_params
from hubbub.inference import BoolArray, FloatArray, decode, decode_categories, decode_joint
from hubbub.protocol import BooleanType, EnumType, OrdinalType, RapporParams, Subset
from hubbub.simulations import family_shares

_NEAR = 1.5
"""Times the limit of detection: below it a detection is partly luck."""


@dataclass(frozen=True, slots=True)
class Held:
    """How many intervals there are, and how many of them hold the truth."""

    held: int
    rows: int

    @classmethod
    def of(cls, held: BoolArray) -> Held:
        return cls(int(held.sum()), held.size)


@dataclass(frozen=True, slots=True)
class DetectedCoverage:
    """One trial's intervals."""

    all: Held
    detected: Held
    near: Held  # of the detected, those whose true share is at most 1.5 limits of detection

    @classmethod
    def of(
        cls, truth: FloatArray, low: FloatArray, high: FloatArray, detected: BoolArray, limit: float
    ) -> DetectedCoverage:
        known = ~np.isnan(low)
        held = (low <= truth) & (truth <= high)
        near = detected & (truth <= _NEAR * limit)
        return cls(*(Held.of(held[rows]) for rows in (known, detected, near)))


class DetectedCategories(CategoryCase):
    """A metric with listed values."""

    __slots__ = ()

    def run(self, number: int) -> DetectedCoverage:  # type: ignore[override]
        found = decode_categories(self.draw(np.random.default_rng(number)), self.metric)
        return DetectedCoverage.of(
            self.shares, *found.interval, found.detected, found.summary.detection_limit
        )


@dataclass(frozen=True, slots=True)
class DetectedCells:
    """A joint metric."""

    table: DrawnTable

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def work(self) -> float:
        return self.table.work

    def run(self, number: int) -> DetectedCoverage:
        experiment = self.table.experiment(number)
        counts = draw_tuples(experiment, np.random.default_rng(number))
        population = experiment.population
        found = decode_joint(counts, experiment.metric, population.fields)
        cells, limit = found.cells, found.source.summary.detection_limit
        return DetectedCoverage.of(population.shares, cells.low, cells.high, cells.detected, limit)


@dataclass(frozen=True, slots=True)
class DetectedStrings:
    """Listed strings, most of which somebody has."""

    params: RapporParams
    family: str
    unique: int
    absent: int
    reports: int

    @property
    def name(self) -> str:
        return f"strings, {self.family} {self.unique}, {self.absent} absent"

    @property
    def work(self) -> float:
        return 5e6

    def run(self, number: int) -> DetectedCoverage:
        rng = np.random.default_rng(seed_of(self.name, number))
        names = [f"run {number} v{i}" for i in range(self.unique + self.absent)]
        shares = np.append(family_shares(self.family, self.unique), np.zeros(self.absent))
        counts = draw_counts(names, shares, self.params, self.reports, rng)
        found = decode(counts, self.params, names)
        return DetectedCoverage.of(
            shares, found.low, found.high, found.detected, found.summary.detection_limit
        )


def _case(case: CategoryCase, shares: str = "") -> DetectedCategories:
    name = f"{case.name}{shares and f', {shares}'}"
    return DetectedCategories(name, case.metric, case.shares, case.n_reports)


def enum(n: int, family: str, n_reports: int, noise: RapporParams | Subset) -> DetectedCategories:
    """Return an enum of shares of a family; nobody is in a fifth of the categories."""
    present = n - n // 5
    shares = np.append(family_shares(family, present), np.zeros(n - present))
    return _case(make_case(EnumType(tuple(map(str, range(n)))), shares, n_reports, noise), family)


def ordinal(n: int, n_reports: int, noise: RapporParams | Subset) -> DetectedCategories:
    """Return a bell of buckets."""
    shares = np.exp(-0.5 * ((np.arange(n) - 0.45 * n) / (0.15 * n)) ** 2)
    edges = tuple(float(edge) for edge in np.arange(1, n) * 10)
    return _case(make_case(OrdinalType(edges), shares / shares.sum(), n_reports, noise))


def boolean(true: float, n_reports: int, noise: RapporParams) -> DetectedCategories:
    """Return a boolean of which so many say yes."""
    case = make_case(BooleanType(), np.array([1 - true, true]), n_reports, noise)
    return _case(case, f"{true:.0%} true")


def subset(n: int, epsilon: float) -> Subset:
    """Return the best response of so many cells."""
    size = max(round(n / (math.exp(epsilon) + 1)), 1)
    return Subset(n, size, size / (size + (n - size) * math.exp(-epsilon)))


ONE_TIME = make_params(8, 1, 1, f=0.0, p=1 / (math.exp(2) + 1), q=0.5)
SHARP = make_params(8, 1, 1, f=0.0, p=0.02, q=0.9)
CASES: tuple[Case[DetectedCoverage], ...] = (
    *(enum(n, family, n_reports, noise)
      for n, n_reports, noise in (
          (4, 500, LOOSE), (4, 1_000, PAPER), (10, 3_000, ONE_TIME), (20, 500, SHARP),
          (20, 3_000, LOOSE), (20, 20_000, PAPER), (100, 3_000, SHARP), (100, 30_000, ONE_TIME),
          (100, 100_000, TIGHT), (100, 1_000_000, PAPER),
          (4, 1_000, subset(4, 1.0)), (20, 3_000, subset(20, 2.0)), (100, 30_000, subset(100, 2.0)))
      for family in ("zipf:1", "exponential")),
    *(ordinal(n, n_reports, noise)
      for n, n_reports, noise in (
          (12, 1_000, LOOSE), (12, 3_000, subset(12, 1.5)), (60, 20_000, PAPER))),
    *(boolean(true, n_reports, noise)
      for true, n_reports, noise in (
          (0.01, 500, LOOSE), (0.05, 500, LOOSE), (0.1, 1_000, PAPER), (0.3, 20_000, TIGHT),
          (0.95, 500, LOOSE))),
    *(DetectedCells(DrawnTable(sizes, reports, epsilon, 30))
      for sizes, reports, epsilon in (
          ("6x5", 3_000, 2), ("6x5", 30_000, 4), ("20x10", 30_000, 4), ("8x5x2", 100_000, 4),
          ("20sx4", 30_000, 4), ("100sx2", 300_000, 2), ("8sx6s", 30_000, 4))),
    *(DetectedCells(SubsetTable(sizes, reports, epsilon, 30))
      for sizes, reports, epsilon in (("6x5", 3_000, 2), ("8x5x2", 100_000, 4))),
    *(DetectedStrings(make_params(64, 2, m, f=0.0, p=0.25, q=0.75), "zipf:1", unique, absent, n)
      for m, unique, absent, n in ((16, 40, 60, 30_000), (64, 100, 1_000, 300_000))),

)  # fmt: skip


def pooled(trials: Sequence[DetectedCoverage], of: str) -> Figure:
    """Return the share of all trials' intervals of a kind that hold the truth."""
    counted = [getattr(trial, of) for trial in trials]
    rows = np.array([each.rows for each in counted], dtype=np.float64)
    return Figure.of_ratio([each.held / max(each.rows, 1) for each in counted], rows)


def _held(of: str) -> Callable[[object, Sequence[DetectedCoverage]], object]:
    return lambda _case, trials: pooled(trials, of)


def _regime(case: object) -> str:
    if not isinstance(case, DetectedCategories):
        return ""
    return f"{case.n_reports:,}; " + ", ".join(f"{x:g}" for x in case.metric.params[3:6])


STUDY = Study(
    "Detected rows: 95% intervals that hold the truth given detection",
    """Shares of the 95% intervals that hold the truth: of all rows, of the detected ones, and of
    those of them that are near the limit of detection. Rows of all trials count together.""",
    lambda: CASES,
    {
        "case": lambda case, _: case.name,
        "reports; f, p, q": lambda case, _: _regime(case),
        "all": _held("all"),
        "detected": _held("detected"),
        "near the limit": _held("near"),
        "detected rows": lambda _, trials: sum(trial.detected.rows for trial in trials),
        "near rows": lambda _, trials: sum(trial.near.rows for trial in trials),
    },
    runs=1_000,
)
