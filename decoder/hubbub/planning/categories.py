"""Categories that the registry lists as a goal: how well each one's share is known.

A report has a noisy bit for each category, or is a subset of them (`responses`). Either way a
category is in a binomial number of reports, so what shows it is exact; where clients repeat a
permanent response it is that of as many clients as know a share as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hubbub.inference.errors import PlanError
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
    subset_of,
    subset_params,
    subset_variance,
    subset_within,
)
from hubbub.planning.search import fitted_curve, least_noise_rate
from hubbub.protocol.metric_types.enums import EnumType, OrdinalType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_BITS, RapporParams
from hubbub.protocol.plurals import counted
from hubbub.protocol.responses import UNARY, Response, Subset
from hubbub.reporting.estimates import Finding


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
