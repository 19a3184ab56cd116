"""Two groups: how often intervals of differences hold the truth, and what is said to differ.

A trial draws both groups' people and their reports anew; the truth is the populations'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.drawn_counts import draw_cells, draw_counts
from evaluation.laboratory import Case, Figure, seed_of
from evaluation.studies.categories import LOOSE, PAPER, TIGHT
from evaluation.studies.cells import number_metric
from evaluation.studies.study import Study
from factories import make_metric, make_params
from hubbub.inference import (
    BoolArray,
    Comparison,
    FloatArray,
    Groups,
    ReportGroup,
    compare_categories,
    compare_numbers,
    compare_strings,
    decode,
    hashed,
)
from hubbub.protocol import BooleanType, EnumType, RapporParams
from hubbub.simulations import family_shares


class ComparedRows(NamedTuple):
    """One trial's rows; counts."""

    # rows, held, ratios_held: Of all rows, intervals of differences and of ratios that hold the
    # truth
    rows: int
    held: int
    ratios_held: int
    # marked, marked_held: Rows that are said to differ, and their intervals that hold the truth
    marked: int
    marked_held: int
    false: int  # rows that are said to differ, and don't
    # planned, found: By what the comparison says of its power: the chance that rows that differ are
    # found, added up; and how many were
    planned: float
    found: int

    @classmethod
    def of(cls, found: Comparison[Any], control: FloatArray, treatment: FloatArray) -> ComparedRows:
        """Count the rows of a comparison whose true values are these."""
        truth = treatment - control
        held = _between(truth, found.low, found.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = treatment / control
        ratios_held = _between(ratio, found.ratio_low, found.ratio_high) | np.isnan(ratio)
        sure = np.abs(truth) >= found.least_difference
        return cls(
            held.size,
            int(held.sum()),
            int(ratios_held.sum()),
            int(found.differs.sum()),
            int((held & found.differs).sum()),
            int((found.differs & (truth == 0)).sum()),
            int(sure.sum()),
            int((sure & found.differs).sum()),
        )


def _between(truth: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    return np.asarray((low <= truth) & (truth <= high))


def moved(shares: FloatArray, changed: int, factor: float, rng: np.random.Generator) -> FloatArray:
    """Return shares of which some are others; they descend.

    In pairs, the smaller one grows by a factor at the cost of the larger one; all others stay.
    """
    treatment = shares.copy()
    which = np.sort(rng.choice(min(len(shares), 5 * changed or 1), changed, replace=False))
    for larger, smaller in zip(which[::2], which[1::2], strict=True):
        more = (factor - 1) * shares[smaller]
        treatment[smaller] += more
        treatment[larger] -= more
    return treatment


@dataclass(frozen=True, slots=True)
class ComparedStrings:
    """Listed strings, and others that nobody listed."""

    params: RapporParams
    control: int
    treatment: int
    # of 400 strings by Zipf's law, how many are candidates; besides 100 that nobody has
    listed: int = 400
    changed: int = 8  # strings with other shares: of each two, one doubles at the cost of the other
    others: bool = False  # whether the treatment's unlisted strings are others than the control's

    @property
    def name(self) -> str:
        others = ", others unlisted" if self.others else ""
        return f"strings, {self.listed} of 400 listed, {self.changed} differ{others}"

    @property
    def work(self) -> float:
        return 5e6

    def run(self, number: int) -> ComparedRows:
        rng = np.random.default_rng(seed_of(f"{self}", number))
        names = [f"run {number} v{i}" for i in range(400)]
        elsewhere = [*names[: self.listed], *(f"else {name}" for name in names[self.listed :])]
        shares = family_shares("zipf:1", 400)
        treatment = moved(shares, self.changed, 2.0, rng)
        listed = names[: self.listed] + [f"absent {i}" for i in range(100)]
        groups = Groups(
            ReportGroup(draw_counts(names, shares, self.params, self.control, rng)),
            ReportGroup(
                draw_counts(
                    elsewhere if self.others else names,
                    treatment,
                    self.params,
                    self.treatment,
                    rng,
                )
            ),
        )
        candidates = hashed(listed, self.params)
        pooled = decode(groups.together, self.params, candidates)
        found = compare_strings(groups, pooled, candidates)
        rows = [listed.index(name) for name in found.names]
        known = [
            np.append(each[: len(listed) - 100], np.zeros(100)) for each in (shares, treatment)
        ]
        return ComparedRows.of(found, known[0][rows], known[1][rows])


@dataclass(frozen=True, slots=True)
class ComparedCategories:
    """An enum of shares by Zipf's law, of which some grow by half; or a boolean of two."""

    categories: int
    params: RapporParams
    control: int
    treatment: int
    changed: int = 4

    @property
    def name(self) -> str:
        kind = "boolean" if self.categories == 2 else f"enum of {self.categories}"
        return f"{kind}, {self.changed} differ"

    @property
    def work(self) -> float:
        return float(self.categories**2)

    def run(self, number: int) -> ComparedRows:
        rng = np.random.default_rng(seed_of(f"{self}", number))
        shares = family_shares("zipf:1", self.categories)
        treatment = moved(shares, self.changed, 1.5, rng)
        metric_type = (
            BooleanType()
            if self.categories == 2
            else EnumType(tuple(map(str, range(self.categories))))
        )
        metric = make_metric(metric_type=metric_type, params=self.params)
        values = [False, True] if self.categories == 2 else [*map(str, range(self.categories))]
        drawn = [
            ReportGroup(draw_counts(values, each, metric.params, reports, rng, metric.type))
            for each, reports in ((shares, self.control), (treatment, self.treatment))
        ]
        return ComparedRows.of(compare_categories(Groups(*drawn), metric), shares, treatment)


@dataclass(frozen=True, slots=True)
class ComparedNumbers:
    """A mean and a variance; the treatment's numbers are larger by so much, on a range of 60."""

    shift: float
    control: int
    treatment: int

    @property
    def name(self) -> str:
        return f"numbers, means differ by {self.shift:g}"

    @property
    def work(self) -> float:
        return 1.0

    def run(self, number: int) -> ComparedRows:
        rng = np.random.default_rng(seed_of(f"{self}", number))
        metric = number_metric(2.0, variance=True)
        values = np.array([10.0, 20.0, 40.0])
        shares = np.array([0.5, 0.3, 0.2])
        drawn, truth = [], []
        for numbers, reports in ((values, self.control), (values + self.shift, self.treatment)):
            drawn.append(ReportGroup(draw_cells(metric, numbers.tolist(), shares, reports, rng)))
            mean = float(numbers @ shares)
            truth.append(np.array([mean, float(numbers**2 @ shares) - mean**2]).round(9))
        return ComparedRows.of(compare_numbers(Groups(*drawn), metric), *truth)


WIDE = make_params(128, 2, 16, f=0.0, p=0.25, q=0.75)
CASES: tuple[Case[ComparedRows], ...] = (
    ComparedStrings(WIDE, 100_000, 100_000),
    ComparedStrings(WIDE, 100_000, 100_000, changed=0),
    ComparedStrings(WIDE, 30_000, 300_000),
    ComparedStrings(WIDE, 100_000, 100_000, listed=150),
    ComparedStrings(WIDE, 100_000, 300_000, listed=150, others=True),
    ComparedStrings(make_params(64, 2, 8, f=0.25, p=0.25, q=0.75), 1_000_000, 100_000, listed=50),
    ComparedCategories(20, PAPER, 100_000, 100_000),
    ComparedCategories(20, PAPER, 100_000, 100_000, changed=0),
    ComparedCategories(20, LOOSE, 30_000, 300_000),
    ComparedCategories(100, TIGHT, 100_000, 50_000, changed=10),
    ComparedCategories(2, PAPER, 20_000, 20_000, changed=2),
    ComparedNumbers(0.0, 100_000, 100_000),
    ComparedNumbers(0.5, 100_000, 30_000),
    ComparedNumbers(2.0, 3_000, 3_000),
)


def pooled(of: str, among: str) -> Callable[[object, Sequence[ComparedRows]], Figure]:
    """Return a column: the share of some rows of all trials that are of a kind."""

    def figure(_case: object, trials: Sequence[ComparedRows]) -> Figure:
        rows = np.array([getattr(trial, among) for trial in trials], dtype=np.float64)
        counted = np.array([getattr(trial, of) for trial in trials], dtype=np.float64)
        return Figure.of_ratio((counted / np.maximum(rows, 1)).tolist(), rows)

    return figure


def false_share(_case: object, trials: Sequence[ComparedRows]) -> Figure:
    """Return the false discovery rate: the mean share of marked rows that don't differ."""
    return Figure.of([trial.false / max(trial.marked, 1) for trial in trials])


def _reports(case: object) -> str:
    sizes = [getattr(case, side, math.nan) for side in ("control", "treatment")]
    return " and ".join(f"{size:,}" for size in sizes)


STUDY = Study(
    "Differences of two groups: 95% intervals that hold the truth, and false differences",
    """Shares of the 95% intervals that hold the truth, of all rows' differences, of their ratios,
    and of the differences of rows that are said to differ; the false discovery rate; and of the
    rows whose true difference is at least the stated least one, how many are found (at least .9 is
    promised). Rows of all trials count together.""",
    lambda: CASES,
    {
        "case": lambda case, _: case.name,
        "reports": lambda case, _: _reports(case),
        "differences": pooled("held", "rows"),
        "ratios": pooled("ratios_held", "rows"),
        "given they differ": pooled("marked_held", "marked"),
        "false share": false_share,
        "found": pooled("found", "planned"),
        "rows": lambda _, trials: sum(trial.rows for trial in trials),
        "marked": lambda _, trials: sum(trial.marked for trial in trials),
    },
    runs=200,
)
