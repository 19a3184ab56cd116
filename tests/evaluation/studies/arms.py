"""Two arms of an experiment, of which one value is more common in the treatment.

A value of a known share gains `more` at the cost of all others, in proportion to their shares; a
number's mean rises by so much of its range. Reports can be drawn day by day.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from evaluation.drawn_counts import draw_cells, draw_counts
from factories import make_metric
from hubbub.client import Metric, RapporParams
from hubbub.decoder import CohortCounts
from hubbub.inference import (
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
from hubbub.planning import MOST_CELLS, window_within
from hubbub.protocol import EnumType, NumberType
from hubbub.simulations import family_shares

TARGET = "target"
"""The value that is more common, where names are free."""


class Arms(Protocol):
    """What is drawn, and how it is compared.

    name: What arms are of.
    target: The row that differs.
    metric: Whose reports they are.
    share: The target's in the control.
    """

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def share(self) -> float: ...

    def draw(self, more: float, reports: int, rng: Generator, number: int) -> CohortCounts:
        """Draw reports of a trial's arm, whose target has so much more."""
        ...

    def compare(self, groups: Groups, number: int, *, sequential: bool) -> Comparison[Any]:
        """Compare a trial's arms, by a single look or by one of several."""
        ...


def mixed(share: float, others: int) -> FloatArray:
    return np.append(share, (1 - share) * family_shares("zipf:1", others))


@dataclass(frozen=True, slots=True)
class StringArms:
    """Strings by Zipf's law, all of them listed, and 100 candidates that nobody has."""

    params: RapporParams
    share: float = 0.05
    strings: int = 200
    target: str = TARGET

    @property
    def name(self) -> str:
        return f"{self.strings} strings"

    @property
    def metric(self) -> Metric:
        return make_metric(params=self.params)

    def _names(self, number: int) -> list[str]:
        return [self.target, *(f"run {number} v{i}" for i in range(1, self.strings))]

    def draw(self, more: float, reports: int, rng: Generator, number: int) -> CohortCounts:
        shares = mixed(self.share + more, self.strings - 1)
        return draw_counts(self._names(number), shares, self.params, reports, rng)

    def compare(self, groups: Groups, number: int, *, sequential: bool) -> Comparison[Any]:
        absent = [f"run {number} absent {i}" for i in range(100)]
        candidates = hashed([*self._names(number), *absent], self.params)
        pooled = decode(groups.together, self.params, candidates)
        return compare_strings(groups, pooled, candidates, sequential=sequential)


@dataclass(frozen=True, slots=True)
class CategoryArms:
    """An enum: its first category is the target, all others follow Zipf's law."""

    categories: int
    params: RapporParams
    share: float = 0.2

    @property
    def name(self) -> str:
        return f"enum of {self.categories}"

    @property
    def target(self) -> str:
        return "0"

    @property
    def metric(self) -> Metric:
        names = tuple(map(str, range(self.categories)))
        return make_metric(metric_type=EnumType(names), params=self.params)

    def draw(self, more: float, reports: int, rng: Generator, number: int) -> CohortCounts:  # noqa: ARG002
        metric, names = self.metric, [*map(str, range(self.categories))]
        shares = mixed(self.share + more, self.categories - 1)
        return draw_counts(names, shares, metric.params, reports, rng, metric.type)

    def compare(self, groups: Groups, number: int, *, sequential: bool) -> Comparison[Any]:  # noqa: ARG002
        return compare_categories(groups, self.metric, sequential=sequential)


@cache
def _number_metric(epsilon: float, variance: bool) -> Metric:
    window = window_within(epsilon, MOST_CELLS)
    a_type = NumberType(0.0, 60.0, window.cells, window.width, variance)
    return make_metric(metric_type=a_type, response=window, mode="one-time")


@dataclass(frozen=True, slots=True)
class NumberArms:
    """A number from 0 to 60, half of whose clients are at each end: the most that it may vary."""

    epsilon: float
    variance: bool = False
    target: str = "mean"
    share: float = 0.5

    @property
    def name(self) -> str:
        return f"numbers at epsilon {self.epsilon:g}"

    @property
    def metric(self) -> Metric:
        return _number_metric(self.epsilon, self.variance)

    def draw(self, more: float, reports: int, rng: Generator, number: int) -> CohortCounts:  # noqa: ARG002
        high = self.share + more
        return draw_cells(self.metric, [0.0, 60.0], np.array([1 - high, high]), reports, rng)

    def compare(self, groups: Groups, number: int, *, sequential: bool) -> Comparison[Any]:  # noqa: ARG002
        return compare_numbers(groups, self.metric, sequential=sequential)


def draw_arms(
    arms: Arms, more: float, sizes: tuple[int, int], rng: Generator, number: int
) -> Groups:
    """Return reports of both arms.

    arms: What they are of.
    more: What the treatment's target has more.
    sizes: Reports of the control and of the treatment.
    rng: The coins.
    number: The trial's.
    """
    control, treatment = (
        ReportGroup(arms.draw(each, reports, rng, number))
        for each, reports in zip((0.0, more), sizes, strict=True)
    )
    return Groups(control, treatment)
