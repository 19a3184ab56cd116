"""Subset selection and windows beside what is best of the literature's responses.

What is measured is the scatter of the decoder's own estimates over populations that are drawn by
their exact distribution. Trials are many, so that a variance is known to a per cent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.drawn_counts import draw_cells
from evaluation.laboratory import Figure, seed_of
from evaluation.studies.study import Columns, Study, means
from factories import make_metric
from hubbub.client import Metric
from hubbub.inference import (
    FloatArray,
    NumberEstimates,
    cell_chances,
    cell_weights,
    estimate_categories,
    estimate_numbers,
)
from hubbub.protocol import EnumType, NumberType, Subset, Window

EPSILONS = (0.5, 1.0, 2.0, 4.0)
AT_ONCE = 20
"""Populations of numbers that a trial draws, and of four categories; of more it draws fewer."""
BUCKETS = 60
"""Of the range of numbers: the bell is as the study of categories has it of an ordinal of 60."""


def chance_of(cells: int, width: int, epsilon: float) -> float:
    """Return the q with which a subset or a window spends epsilon."""
    return width / (width + (cells - width) * math.exp(-epsilon))


class Scatter(NamedTuple):
    """One trial's mean squared errors, times the reports, and how many intervals held."""

    variance: float
    held: float


@dataclass(frozen=True, slots=True)
class SubsetCase:
    """Categories that are equally common, and what one report of each client may reveal."""

    categories: int  # d
    epsilon: float  # of a report
    n_reports: int = 100_000  # one of each client

    @property
    def name(self) -> str:
        return f"enum of {self.categories} at {self.epsilon:g}"

    @property
    def work(self) -> float:
        return float(self.categories**2)

    @property
    def response(self) -> Subset:
        """The best subset: of the sizes, that with the least variance."""
        d = self.categories
        sizes = range(1, max(d // 2, 1) + 1)
        responses = [Subset(d, w, chance_of(d, w, self.epsilon)) for w in sizes]
        return min(responses, key=lambda each: variance_of(each.chance, each.other_chance, 1 / d))

    def run(self, number: int) -> Scatter:
        d, rng = self.categories, np.random.default_rng(seed_of(self.name, number))
        a_type = EnumType(tuple(map(str, range(d))))
        metric = make_metric(metric_type=a_type, response=self.response, mode="one-time")
        truth, squares, held = np.full(d, 1 / d), [], []
        for _ in range(max(4 * AT_ONCE // d, 1)):
            counts = draw_cells(metric, range(d), truth, self.n_reports, rng)
            found = estimate_categories(counts, metric)
            low, high = found.intervals()
            squares.append(self.n_reports * (found.unbiased - truth) ** 2)
            held.append((low <= truth) & (truth <= high))
        return Scatter(float(np.mean(squares)), float(np.mean(held)))


def variance_of(own: float, other: float, share: float) -> float:
    rate = other + share * (own - other)
    return rate * (1 - rate) / (own - other) ** 2


def published(categories: int, epsilon: float) -> dict[str, float]:
    """Return N times the variance of an equal share, by the response's name.

    Generalized randomized response and optimal unary encoding (Wang et al. 2017), and subset
    selection (Ye and Barg 2018) of the size nearest to d / (e^eps + 1).
    """
    d, odds = categories, math.exp(epsilon)
    size = min(max(round(d / (odds + 1)), 1), d - 1)
    subset = Subset(d, size, chance_of(d, size, epsilon))
    return {
        "GRR": variance_of(odds / (odds + d - 1), 1 / (odds + d - 1), 1 / d),
        "SS": variance_of(subset.chance, subset.other_chance, 1 / d),
        "OUE": variance_of(0.5, 1 / (odds + 1), 1 / d),
    }


def _published(name: str) -> Callable[[Any, Sequence[Any]], object]:
    return lambda case, _scores: published(case.categories, case.epsilon)[name]


SUBSETS = Study(
    title="Enums by subset selection",
    explained=(
        "N times the variance of a share, all categories being equally common, beside the best of "
        "generalized randomized response, subset selection and optimal unary encoding as "
        "published; and how often 95% intervals hold the share."
    ),
    cases=lambda: [SubsetCase(d, epsilon) for d in (4, 10, 20, 100) for epsilon in EPSILONS[1:]],
    columns={
        "case": lambda case, _scores: case.name,
        "size": lambda case, _scores: case.response.width,
        "N variance": lambda _case, scores: Figure.of([each.variance for each in scores]),
        **{name: _published(name) for name in ("GRR", "SS", "OUE")},
        "over the best": lambda case, scores: _over(
            Figure.of([each.variance for each in scores]),
            min(published(case.categories, case.epsilon).values()),
        ),
        **means("held"),
    },
    runs=400,
)


def _over(figure: Figure, other: float) -> Figure:
    return Figure(figure.mean / other, figure.std_error / other, figure.runs)


WINDOWS = {0.5: (8, 4), 1.0: (8, 4), 2.0: (6, 2), 4.0: (8, 2)}
"""Cells and window that a byte has room for, and that are best for the worst number."""


def number_metric(epsilon: float, *, variance: bool = False) -> Metric:
    """Return a metric of numbers between 0 and 60."""
    cells, width = WINDOWS[epsilon]
    return make_metric(
        metric_type=NumberType(0.0, float(BUCKETS), cells, width, variance),
        response=Window(cells, width, chance_of(cells, width, epsilon)),
        mode="one-time",
    )


POPULATIONS = ("bell", "uniform", "bottom", "top", "middle", "near the bottom", "both ends")


def population(name: str) -> tuple[FloatArray, FloatArray]:
    """Return numbers between 0 and 60, and the share of clients that have each."""
    middles: FloatArray = np.arange(0.5, BUCKETS)
    if name == "bell":
        shares = np.exp(-0.5 * ((middles - 0.45 * BUCKETS) / (0.15 * BUCKETS)) ** 2)
        return middles, np.asarray(shares / shares.sum())
    if name == "uniform":
        return middles, np.full(BUCKETS, 1 / BUCKETS)
    single = {"bottom": 0.0, "top": BUCKETS, "middle": BUCKETS / 2, "near the bottom": 1.0}
    if name in single:
        return np.array([float(single[name])]), np.ones(1)
    return np.array([0.0, BUCKETS]), np.full(2, 0.5)


class MeanScatter(NamedTuple):
    """One trial's mean squared errors, in half ranges, times the reports; and intervals.

    `spread_held` is how often the interval of the variance holds it, with half of the clients asked
    for it.
    """

    variance: float
    hybrid: float
    held: float
    spread_held: float


@dataclass(frozen=True, slots=True)
class MeanCase:
    """Numbers, and what one report of each client may reveal."""

    people: str  # one of `POPULATIONS`
    epsilon: float  # one of `EPSILONS`
    n_reports: int = 1_000  # one of each client
    # whether the hybrid mechanism is run as well, for which each client is drawn
    hybrid: bool = True

    @property
    def name(self) -> str:
        return f"{self.people} at {self.epsilon:g}"

    @property
    def work(self) -> float:
        return float(self.n_reports)

    def run(self, number: int) -> MeanScatter:
        rng = np.random.default_rng(seed_of(self.name, number))
        values, shares = population(self.people)
        mean, half = float(values @ shares), BUCKETS / 2
        spread = float(values**2 @ shares) - mean**2
        ours, theirs, held, spread_held = [], [], [], []
        for _ in range(AT_ONCE):
            found = self._decoded(number_metric(self.epsilon), rng)
            ours.append(self.n_reports * ((found.unbiased[0] - mean) / half) ** 2)
            held.append(_holds(found, 0, mean))
            found = self._decoded(number_metric(self.epsilon, variance=True), rng)
            spread_held.append(_holds(found, 1, spread))
            if not self.hybrid:
                theirs.append(math.nan)
                continue
            people = rng.choice(values, size=self.n_reports, p=shares) / half - 1
            hybrid = hybrid_reports(people, self.epsilon, rng).mean()
            theirs.append(self.n_reports * (hybrid - (mean / half - 1)) ** 2)
        return MeanScatter(*(float(np.mean(each)) for each in (ours, theirs, held, spread_held)))

    def _decoded(self, metric: Metric, rng: np.random.Generator) -> NumberEstimates:
        values, shares = population(self.people)
        return estimate_numbers(
            draw_cells(metric, values.tolist(), shares, self.n_reports, rng), metric
        )


def _holds(found: NumberEstimates, statistic: int, truth: float) -> bool:
    room = 1e-9 * BUCKETS**2  # an end may be the truth itself, but for rounding
    return bool(found.low[statistic] - room <= truth <= found.high[statistic] + room)


def hybrid_reports(numbers: FloatArray, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """Return each client's report by the hybrid mechanism (Wang et al., ICDE 2019, section 3.3).

    Numbers, shape (n,), are in [-1, 1]. Above epsilon .61 a coin chooses the piecewise mechanism
    with chance 1 - e^(-eps/2), otherwise Duchi's, which answers one of two numbers.
    """
    n, odds, root = len(numbers), math.exp(epsilon), math.exp(epsilon / 2)
    size = (odds + 1) / (odds - 1)
    up = rng.random(n) < 0.5 + numbers / (2 * size)
    duchi = np.where(up, size, -size)
    if epsilon <= 0.61:
        return np.asarray(duchi)
    end = (root + 1) / (root - 1)
    left = (end + 1) / 2 * numbers - (end - 1) / 2
    inside = left + (end - 1) * rng.random(n)
    place = (end + 1) * rng.random(n)  # along both pieces outside, from the bottom up
    outside = np.where(place < left + end, place - end, place - 1)
    piecewise = np.where(rng.random(n) < root / (root + 1), inside, outside)
    return np.where(rng.random(n) < 1 - 1 / root, piecewise, duchi)


def _reports_ratio(_case: MeanCase, scores: Sequence[MeanScatter]) -> Figure:
    ours = Figure.of([each.variance for each in scores])
    theirs = Figure.of([each.hybrid for each in scores])
    ratio = ours.mean / theirs.mean
    relative = math.hypot(ours.std_error / ours.mean, theirs.std_error / theirs.mean)
    return Figure(ratio, ratio * relative, len(scores))


def exact_ratio(case: MeanCase) -> float:
    """Return the quotient of both variances by formula (Wang et al. 2019, equations 8 and 11).

    The variance of a population's mean is that of its responses, whose expectation given each
    number is known, less the square of the mean.
    """
    values, shares = population(case.people)
    cells, width = WINDOWS[case.epsilon]
    size = (cells, width, chance_of(cells, width, case.epsilon))
    squares = cell_chances(*size) @ cell_weights(*size) ** 2
    units = values / BUCKETS
    of_one = np.interp(units, np.linspace(0, 1, len(squares)), squares)
    ours = 4 * (float(of_one @ shares) - float(units @ shares) ** 2)
    numbers, odds, root = 2 * units - 1, math.exp(case.epsilon), math.exp(case.epsilon / 2)
    duchi = ((odds + 1) / (odds - 1)) ** 2 - numbers**2
    piecewise = numbers**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    mixed = 0.0 if case.epsilon <= 0.61 else 1 - 1 / root
    hybrid = mixed * piecewise + (1 - mixed) * duchi + numbers**2
    return ours / (float(hybrid @ shares) - float(numbers @ shares) ** 2)


_MEAN_COLUMNS: Columns = {
    "case": lambda case, _scores: case.name,
    **means("variance", "hybrid"),
    "reports against the hybrid": _reports_ratio,
    "exactly": lambda case, _scores: exact_ratio(case),
    **means("held", "spread_held"),
}


def _mean_cases() -> list[Any]:
    return [MeanCase(people, epsilon) for epsilon in EPSILONS for people in POPULATIONS]


MEANS = Study(
    title="Means of numbers by windows",
    explained=(
        "N times the variance of the mean of numbers between -1 and 1, of 1,000 reports, beside "
        "the hybrid mechanism's for the same people, and their quotient: so many reports say as "
        "much as one of the hybrid mechanism's; exactly: by both responses' formulas. Held: 95% "
        "intervals of the mean that hold it, and "
        "of the variance, with half of the clients asked for it."
    ),
    cases=_mean_cases,
    columns=_MEAN_COLUMNS,
    runs=200,
)
