"""Listed categories, and the mean of a bounded number, as goals.

A report has a noisy bit for each category, or is a subset of them (`responses`). Either way a
category is in a binomial number of reports, so what shows it is exact; where clients repeat a
permanent response it is that of as many clients as know a share as well. Of numbers a report is a
window of cells: all shares and errors are parts of the range from `low` to `high`, for the number
that is known worst, and the limit is the least difference of two such means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from scipy import special

from hubbub.inference import PlanError
from hubbub.planning.goals import (
    Curve,
    Goal,
    Plan,
    PlanSearch,
    SearchSpace,
    category_lines,
    entry_text,
    limit_finding,
    percents,
)
from hubbub.planning.joint import TableErrors, bit_limit, bit_power, bit_reports_needed
from hubbub.planning.limits import DetectionTest
from hubbub.planning.noise import (
    Budget,
    exact_subset,
    exact_window,
    hybrid_variance,
    subset_of,
    subset_params,
    subset_variance,
    subset_within,
    window_of,
    window_params,
    window_within,
    worst_variance,
)
from hubbub.planning.search import fitted_curve, least_noise_rate
from hubbub.protocol import (
    MOST_BITS,
    UNARY,
    EnumType,
    Metric,
    NumberType,
    OrdinalType,
    RapporParams,
    Response,
    Subset,
    Window,
    counted,
)
from hubbub.reporting import Finding


@dataclass(frozen=True, slots=True)
class CategoriesGoal(Goal):
    """The rarest of some categories that reports show (`categories_goal`)."""

    categories: int  # how many there are
    by_subset: bool = False  # whether a report is a subset of them; else it has a bit for each

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the smallest share of a category that N reports show."""
        return bit_limit(params, self.clients(n_reports), self.test)

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of an empty category's share."""
        if self.by_subset:
            of_one = math.sqrt(subset_variance(subset_of(params, self.categories)))
        else:
            of_one = TableErrors(params, self.categories, self.test.reports_each).of_cell()
        return of_one / math.sqrt(self.clients(n_reports))

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which N reports show a category of a share."""
        return bit_power(params, self.clients(n_reports), share, self.test)

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return about how many reports show a category of a share."""
        return bit_reports_needed(params, share, self.test) / self.clients(1.0)

    def response(self, params: RapporParams) -> Response:
        """Return the subset, or noise of each bit."""
        return subset_of(params, self.categories) if self.by_subset else UNARY

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:  # noqa: ARG002
        """Return the best subset, or a bit per category with the least noise."""
        k = -(-self.categories // 8) * 8
        if k > most_bits:
            raise PlanError(
                f"categories = {self.categories:,}: must be at most {most_bits:,}, one for each bit"
            )
        if self.by_subset:
            return [SearchSpace.of(subset_params(subset_within(self.categories, budget.report)))]
        return [SearchSpace(1, (k,), lambda _: (1,), (k, 1), least_noise_rate(1, budget))]

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return a category's limit and error."""
        named = (("detectable_share", "detected category", self.limit),
                 ("std_error", "standard error", self.error))  # fmt: skip
        if not self.by_subset:
            rate = partial(least_noise_rate, 1)
            return {key: fitted_curve(label, of, found.best, rate) for key, label, of in named}
        return {
            key: Curve(label, of, found.best.params, self._best_subset) for key, label, of in named
        }

    def _best_subset(self, budget: Budget) -> RapporParams:
        return subset_params(exact_subset(self.categories, budget.report))

    def asked(self, found: PlanSearch) -> Mapping[str, object]:  # noqa: ARG002
        """Return the number of categories, error rate and power."""
        test = self.test
        return {"categories": self.categories, "alpha": test.alpha, "power": test.power}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest of {self.categories:,} categories that {reports} reports show"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which category is detected, among how many."""
        share = f"A category of {plan.limit:.3%}" if plan.limit < math.inf else "No category"
        return limit_finding(
            plan,
            f"{share} is detected among {self.categories:,} with probability {self.test.power:g} "
            f"(alpha {self.test.alpha:g}, Bonferroni); the share of one that nobody is in has the "
            f"standard error {percents(plan.std_error)}.",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what a report is."""
        size = found.subject.params.k // 8
        text = f"A report has {counted(size, 'byte')}."
        response = self.response(found.subject.params)
        if isinstance(response, Subset):
            text += (
                f" It names {response.width} of the {self.categories} categories, the client's own "
                f"with probability {response.chance:g}."
            )
        yield Finding("report_bytes", "", text, size)

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters, and the number of categories."""
        return params, self.categories

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of an enum, with categories to be filled in."""
        lines = category_lines(self.categories)
        response = self.response(params)
        if not isinstance(response, Subset):
            return entry_text(params, name, "enum", (), self.schedule, after=lines)
        noise = {"response": "subset", "size": response.width, "q": response.chance}
        return entry_text(params, name, "enum", (), self.schedule, noise=noise, after=lines)


def categories_goal(categories: int, alpha: float = 0.05, power: float = 0.9) -> CategoriesGoal:
    """Return the goal of so many categories, with a bit for each; alpha is Bonferroni's."""
    if not 2 <= categories <= MOST_BITS:
        raise PlanError(f"categories = {categories}: must be 2 to {MOST_BITS:,}")
    return CategoriesGoal(DetectionTest(categories, alpha, power), categories)


def listed_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> CategoriesGoal:
    """Return the goal of a metric's categories, with its response."""
    if not isinstance(metric.type, EnumType | OrdinalType):
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be 'enum' or 'ordinal' to be "
            "planned as categories"
        )
    goal = categories_goal(metric.type.width, alpha, power)
    by_subset = isinstance(metric.response, Subset)
    return CategoriesGoal(goal.test, goal.categories, by_subset)


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

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return how many reports, of each collection, show a difference."""
        needed = (self._threshold + float(special.ndtri(self.test.power))) * math.sqrt(2)
        return (needed * self.error(params, 1.0) / share) ** 2 if share <= 1 else math.inf

    @property
    def _threshold(self) -> float:
        return -float(special.ndtri(self.test.level / 2))

    def response(self, params: RapporParams) -> Window:
        """Return the window."""
        return window_of(params)

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:  # noqa: ARG002
        """Return the best window."""
        window = window_within(budget.report, min(MOST_CELLS, most_bits))
        return [SearchSpace.of(window_params(window, self.groups))]

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return the difference that is shown, and the mean's error."""
        best, within = found.best.params, partial(_best_window, self.groups)
        return {
            "detectable_share": Curve("difference that is shown", self.limit, best, within),
            "std_error": Curve("standard error", self.error, best, within),
        }

    def asked(self, found: PlanSearch) -> Mapping[str, object]:  # noqa: ARG002
        """Return bounds, error rate and power, and whether the variance is asked."""
        test = self.test
        bounds = {"low": self.low, "high": self.high, "variance": self.variance}
        return {**bounds, "alpha": test.alpha, "power": test.power}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"The mean of a number from {self.low:g} to {self.high:g}, {reports} reports"

    def about_limit(self, plan: Plan) -> Finding:
        """Return the mean's error, and which difference is shown."""
        size, error = self.high - self.low, plan.std_error
        shown = "No difference"
        if plan.limit < math.inf:
            shown = f"A difference of {plan.limit * size:.3g}"
        return limit_finding(
            plan,
            f"The mean has a standard error of {error * size:.3g} at most, {percents(error)} of "
            f"the range. {shown} between two such means is shown with probability "
            f"{self.test.power:g} (alpha {self.test.alpha:g}, two-sided).",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what a report is, and how it compares."""
        plan = found.subject
        window = self.response(plan.params)
        ratio = worst_variance(window) / hybrid_variance(self.epsilon_report(plan.params))
        text = (
            f"An estimate varies {ratio:.2f} times as much as the hybrid mechanism's (Wang et al. "
            "2019)."
        )
        yield Finding("hybrid_ratio", "", text, ratio)
        if self.variance:
            error = self.variance_error(plan.std_error)
            size = (self.high - self.low) ** 2
            text = (
                "Half of the clients report the square: the variance has a standard error of "
                f"{error * size:.3g} at most, {percents(error)} of the range's square."
            )
            yield Finding("variance_error", "", text, error)
        size = plan.params.k // 8
        text = f"A report has {counted(size, 'byte')}."
        yield Finding("report_bytes", "", text, size)

    def oue_ratio(self, params: RapporParams) -> float:  # noqa: ARG002
        """Return nan: a mean isn't a share."""
        return math.nan

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
        raise PlanError(
            f"metrics.{metric.name}.type = {number.name!r}: must be 'number' to be planned as one"
        )
    if number.cells % 8:
        raise PlanError(
            f"metrics.{metric.name}.cells = {number.cells}: must be a multiple of 8 to be planned"
        )
    return number_goal(number.low, number.high, number.variance, alpha, power)


def _best_window(groups: int, budget: Budget) -> RapporParams:
    return window_params(exact_window(budget.report, MOST_CELLS), groups)
