"""Goals whose values the registry lists: categories, tables of fields, the mean of a number.

A report has a noisy bit for each category or cell, or is a subset of the categories. Either way a
category is in a binomial number of reports, so what shows it is exact; where clients repeat a
permanent response it is that of as many clients as know a share as well. A table with more cells
than bits is hashed: a cell is found as a listed string is. Of numbers a report is a window of
cells: all shares and errors are parts of the range from `low` to `high`, for the number that is
known worst, and the limit is the least difference of two such means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy import special

from hubbub.inference import PlanError
from hubbub.planning.goals import (
    Goal,
    Plan,
    SearchSpace,
    category_lines,
    entry_text,
    percents,
    wrong_type,
)
from hubbub.planning.limits import MOST_REPORTS, DetectionTest, cells_error
from hubbub.planning.noise import (
    Budget,
    subset_of,
    subset_params,
    subset_variance,
    subset_within,
    window_of,
    window_params,
    window_within,
    worst_variance,
)
from hubbub.planning.search import least_noise_rate
from hubbub.planning.strings import StringsGoal
from hubbub.protocol import (
    FEWEST_FIELDS,
    MOST_BITS,
    MOST_FIELDS,
    UNARY,
    EnumType,
    JointType,
    Metric,
    NumberType,
    OrdinalType,
    RapporParams,
    Response,
    Subset,
    Window,
    number_of_values,
)
from hubbub.reporting import Finding


@dataclass(frozen=True, slots=True)
class CategoriesGoal(Goal):
    """The rarest of some categories that reports show (`categories_goal`)."""

    categories: int  # how many there are
    by_subset: bool = False  # whether a report is a subset of them; else it has a bit for each

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of an empty category's share."""
        if not self.by_subset:
            return super(CategoriesGoal, self).error(params, n_reports)
        of_one = subset_variance(subset_of(params, self.categories))
        return math.sqrt(of_one / self.clients(n_reports))

    def response(self, params: RapporParams) -> Response:
        """Return the subset, or noise of each bit."""
        return subset_of(params, self.categories) if self.by_subset else UNARY

    def space(
        self,
        budget: Budget,
        n_reports: float,  # noqa: ARG002
        most_bits: int,
    ) -> SearchSpace | RapporParams:
        """Return the best subset, or a bit per category with the least noise."""
        if -(-self.categories // 8) * 8 > most_bits:
            raise PlanError(
                f"categories = {self.categories:,}: must be at most {most_bits:,}, one for each bit"
            )
        if self.by_subset:
            return subset_params(subset_within(self.categories, budget.report))
        return _bit_each(self.categories, budget)

    def asked(self) -> Mapping[str, object]:
        """Return the number of categories, error rate and power."""
        return {"categories": self.categories, **super(CategoriesGoal, self).asked()}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest of {self.categories:,} categories that {reports} reports show"

    def about_limit(self, plan: Plan) -> str:
        """Return which category is detected, among how many."""
        share = f"A category of {plan.limit:.3%}" if plan.limit < math.inf else "No category"
        return (
            f"{share} is detected among {self.categories:,} with probability {self.test.power:g} "
            f"(alpha {self.test.alpha:g}, Bonferroni); the share of an empty one has the "
            f"standard error {percents(plan.std_error)}."
        )

    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield what a subset is."""
        response = self.response(plan.params)
        if isinstance(response, Subset):
            text = (
                f"A report names {response.width} of the {self.categories} categories, the "
                f"client's own with probability {response.chance:g}."
            )
            yield Finding("subset", "", text, response.width)

    def width(self, params: RapporParams) -> int:  # noqa: ARG002
        """Return the number of categories."""
        return self.categories

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of an enum, with categories to be filled in."""
        lines = category_lines(self.categories)
        response = self.response(params)
        if not isinstance(response, Subset):
            return entry_text(params, name, "enum", (), self.schedule, after=lines)
        noise = {"response": "subset", "size": response.width, "q": response.chance}
        return entry_text(params, name, "enum", (), self.schedule, noise=noise, after=lines)


def _bit_each(cells: int, budget: Budget) -> SearchSpace:
    """Return a bit for each cell, with the least noise."""
    k = -(-cells // 8) * 8
    return SearchSpace((k,), lambda _: (1,), (k, 1), least_noise_rate(budget))


def categories_goal(categories: int, alpha: float = 0.05, power: float = 0.9) -> CategoriesGoal:
    """Return the goal of so many categories, with a bit for each; alpha is Bonferroni's."""
    if not 2 <= categories <= MOST_BITS:
        raise PlanError(f"categories = {categories}: must be 2 to {MOST_BITS:,}")
    return CategoriesGoal(DetectionTest(categories, alpha, power), categories)


def listed_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> CategoriesGoal:
    """Return the goal of a metric's categories, with its response."""
    if not isinstance(metric.type, EnumType | OrdinalType):
        raise wrong_type(metric, "must be 'enum' or 'ordinal' to be planned as categories")
    goal = categories_goal(metric.type.width, alpha, power)
    by_subset = isinstance(metric.response, Subset)
    return CategoriesGoal(goal.test, goal.categories, by_subset)


_FEWEST_VALUES, _MOST_VALUES = 2, 4096  # of a field: a boolean's, and as many as a report has bits
_MARGINS = [f"margin_std_error_{i + 1}" for i in range(MOST_FIELDS)]


@dataclass(frozen=True, slots=True)
class TableGoal(Goal):
    """The rarest cell of a table of two or three fields that reports show (`table_goal`)."""

    sizes: tuple[int, ...]  # how many values each field has

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.sizes)

    def width(self, params: RapporParams) -> int | None:
        """Return the number of cells, unless they are hashed for want of bits."""
        if params.k < self.cells:
            return None
        if (params.h, params.m) != (1, 1):
            raise PlanError(
                f"h = {params.h}, m = {params.m}: must be 1 where each of {self.cells:,} cells has "
                "a bit"
            )
        return self.cells

    def figures(self, params: RapporParams, n_reports: float) -> Mapping[str, Any]:
        """Return the error of a rare value of each field, nan if cells are hashed."""
        figures: dict[str, Any] = dict.fromkeys(_MARGINS, math.nan)
        figures["hashed"] = self.width(params) is None
        if not figures["hashed"]:
            clients, each = self.clients(n_reports), self.test.reports_each
            for name, size in zip(_MARGINS, self.sizes, strict=False):
                error = cells_error(params, self.cells, self.cells // size, reports_each=each)
                figures[name] = error / math.sqrt(clients)
        return figures

    def space(self, budget: Budget, n_reports: float, most_bits: int) -> SearchSpace:
        """Return a bit per cell with the least noise if there are so many; else one hash."""
        if n_reports > MOST_REPORTS:
            raise PlanError(
                f"reports = {n_reports:g}: must be at most {MOST_REPORTS:g} for a table"
            )
        if self.cells > most_bits:
            return StringsGoal(self.test).space(budget, n_reports, most_bits)
        return _bit_each(self.cells, budget)

    def asked(self) -> Mapping[str, object]:
        """Return the table's sizes, error rate and power."""
        return {"cells": list(self.sizes), **super(TableGoal, self).asked()}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest cell of {' x '.join(map(str, self.sizes))} that {reports} reports show"

    def about_limit(self, plan: Plan) -> str:
        """Return which cell is detected, among how many."""
        cell = f"A cell that {plan.limit:.3%} are in" if plan.limit < math.inf else "No cell"
        return (
            f"{cell} is detected among {self.cells:,} cells with probability "
            f"{self.test.power:g} (alpha {self.test.alpha:g}, Bonferroni)."
        )

    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield how well sums over cells are known."""
        if plan.figures["hashed"]:
            text = (
                f"{self.cells:,} cells are hashed into {plan.params.k:,} bits: margins add up "
                "the errors of as many cells as they have."
            )
            yield Finding("hashed", "", text, True)
        else:
            margins = [plan.figures[name] for name in _MARGINS[: len(self.sizes)]]
            text = (
                f"Standard errors: {percents(plan.std_error)} for a rare cell; "
                f"{percents(*margins)} for a rare value of each field."
            )
            yield Finding("std_error", "", text, plan.std_error)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a joint metric, with fields to be filled in."""
        keys = () if self.width(params) else ("k", "h", "m")
        fields: list[str] = []
        for i, size in enumerate(self.sizes):
            fields += ["", f"[[metrics.{name}.fields]]", f'name = "field_{i + 1}"']
            fields += (
                ['type = "boolean"'] if size == 2 else ['type = "enum"', *category_lines(size)]
            )
        return entry_text(params, name, "joint", keys, self.schedule, after=fields)


def table_goal(sizes: tuple[int, ...], alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a table, whose cells are tested as strings of which Zipf's law holds."""
    shown = "x".join(map(str, sizes))
    if not FEWEST_FIELDS <= len(sizes) <= MOST_FIELDS:
        raise PlanError(
            f"cells = {shown}: must be {FEWEST_FIELDS} or {MOST_FIELDS} numbers of values, "
            "as 100x20"
        )
    if not all(_FEWEST_VALUES <= size <= _MOST_VALUES for size in sizes):
        raise PlanError(
            f"cells = {shown}: each field must have {_FEWEST_VALUES} to {_MOST_VALUES:,} values"
        )
    return TableGoal(DetectionTest(math.prod(sizes), alpha, power), sizes)


def joint_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a joint metric's table; `PlanError` if it has a field of strings."""
    if not isinstance(metric.type, JointType):
        raise wrong_type(metric, "must be 'joint' to be planned as a table")
    sizes = tuple(number_of_values(each.type) for each in metric.type.fields)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        reason = "has a field of strings, so there are as many cells as tuples that are looked for"
        raise wrong_type(metric, f"{reason}; plan it as strings")
    return table_goal(known, alpha, power)


MOST_CELLS = 32
"""More cells lower the variance by under 1% up to epsilon 6 (docs/understand/planning.md)."""


@dataclass(frozen=True, slots=True)
class NumberGoal(Goal):
    """The mean of a number between two bounds (`number_goal`)."""

    low: float  # the bounds
    high: float
    # Whether half of the clients report the square, so that the variance is estimated as well.
    variance: bool = False
    sought: ClassVar[str] = "A difference of"

    @property
    def groups(self) -> int:
        """One, or two: those of the number and those of its square."""
        return 2 if self.variance else 1

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of the mean as a part of the range."""
        worst = worst_variance(self.response(params))
        return math.sqrt(worst / self.clients(n_reports))

    def variance_error(self, error: float) -> float:
        """Return the largest standard error of the variance, as a part of the range's square.

        `error`: that of the mean, e, and of the mean of squares: the estimate b - a^2 + e^2 of
        numbers of the mean mu has the variance e^2 + 4 mu^2 e^2 + 2 e^4, with mu <= 1.
        """
        return error * math.sqrt(5 + 2 * error**2)

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the least difference of two means that is shown, as a part of the range."""
        needed = (self._threshold + float(special.ndtri(self.test.power))) * math.sqrt(2)
        difference = needed * self.error(params, n_reports)
        return difference if difference <= 1 else math.inf

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which a difference is shown."""
        z = share / (math.sqrt(2) * self.error(params, n_reports))
        return float(special.ndtr(z - self._threshold))

    @property
    def _threshold(self) -> float:
        return -float(special.ndtri(self.test.level / 2))

    def response(self, params: RapporParams) -> Window:
        """Return the window."""
        return window_of(params)

    def space(self, budget: Budget, n_reports: float, most_bits: int) -> RapporParams:  # noqa: ARG002
        """Return the best window."""
        window = window_within(budget.report, min(MOST_CELLS, most_bits))
        return window_params(window, self.groups)

    def asked(self) -> Mapping[str, object]:
        """Return bounds, error rate and power, and whether the variance is asked."""
        bounds = {"low": self.low, "high": self.high, "variance": self.variance}
        return {**bounds, **super(NumberGoal, self).asked()}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"The mean of a number from {self.low:g} to {self.high:g}, {reports} reports"

    def about_limit(self, plan: Plan) -> str:
        """Return the mean's error, and which difference is shown."""
        size, error = self.high - self.low, plan.std_error
        shown = "No difference"
        if plan.limit < math.inf:
            shown = f"A difference of {plan.limit * size:.3g}"
        return (
            f"The mean has a standard error of {error * size:.3g} at most, {percents(error)} of "
            f"the range. {shown} between two such means is shown with probability "
            f"{self.test.power:g} (alpha {self.test.alpha:g}, two-sided)."
        )

    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield the variance's error."""
        if self.variance:
            error = self.variance_error(plan.std_error)
            size = (self.high - self.low) ** 2
            text = (
                "Half of the clients report the square: the variance has a standard error of "
                f"{error * size:.3g} at most, {percents(error)} of the range's square."
            )
            yield Finding("variance_error", "", text, error)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a number."""
        window = self.response(params)
        variance = {"variance": True} if self.variance else {}
        noise = {"low": self.low, "high": self.high, "cells": window.cells,
                 "window": window.width, "q": window.chance, **variance}  # fmt: skip
        return entry_text(params, name, "number", (), self.schedule, noise=noise)


def number_goal(
    low: float, high: float, variance: bool = False, alpha: float = 0.05, power: float = 0.9
) -> NumberGoal:
    """Return the goal of a number's mean; alpha: chance of a difference between equal means."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise PlanError(f"low = {low:g}, high = {high:g}: must be finite, and high above low")
    return NumberGoal(DetectionTest(1, alpha, power), low, high, variance)


def mean_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> NumberGoal:
    """Return the goal of a number metric's mean."""
    number = metric.type
    if not isinstance(number, NumberType):
        raise wrong_type(metric, "must be 'number' to be planned as one")
    if number.cells % 8:
        raise PlanError(
            f"metrics.{metric.name}.cells = {number.cells}: must be a multiple of 8 to be planned"
        )
    return number_goal(number.low, number.high, number.variance, alpha, power)
