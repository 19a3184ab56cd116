"""A difference between two groups as a goal: how many reports each of them needs.

It wraps the goal of what is compared, whose responses, search and entry it keeps; a limit is the
least difference that the comparison of N reports in each group finds. Invariant: thresholds are
those of `hubbub.inference.comparison`, for a row that is the only one that differs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy import optimize, special

from hubbub.inference.comparison import number_scale, share_scale
from hubbub.inference.errors import PlanError
from hubbub.inference.testing.looks import EveryLook, Looks, OneLook
from hubbub.planning.categories import CategoriesGoal, listed_goal
from hubbub.planning.goals import Curve, Goal, Plan, PlanSearch, SearchSpace, limit_finding
from hubbub.planning.joint import MOST_REPORTS, TableErrors
from hubbub.planning.limits import (
    DetectionTest,
    detection_limit,
    string_errors,
)
from hubbub.planning.noise import Budget, subset_of, subset_variance, widest_variance
from hubbub.planning.numbers import NumberGoal, mean_goal
from hubbub.planning.search import fitted_curve
from hubbub.planning.strings import StringsGoal, string_params
from hubbub.protocol.metric_types.enums import EnumType, OrdinalType
from hubbub.protocol.metric_types.numbers import NumberType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.reporting.estimates import Finding

USUAL_ROWS = 20
"""Strings that are compared, unless somebody knows better."""
_LEAST, _STEPS, _CLOSE = 1e-6, 30, 1e-6
"""The least difference that is tried, and the steps from there; how close the found one is."""


@dataclass(frozen=True, slots=True)
class DifferenceGoal(Goal):
    """The least difference that is found between two groups of N reports each."""

    of: Goal  # what is compared
    # What the control has of the value that differs. Of numbers the population is taken that is
    # known worst.
    share: float
    sequential: bool  # whether the comparison may be looked at every day
    sought: ClassVar[str] = "A difference of"

    @property
    def groups(self) -> int:
        """As of what is compared."""
        return self.of.groups

    def over(self, reports_each: float) -> Self:
        """Return the goal if each client makes so many reports of a permanent response."""
        test = replace(self.test, reports_each=reports_each)
        return replace(self, test=test, of=self.of.over(reports_each))

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of a difference of 0."""
        return self._error(params, n_reports, 0.0)

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which a difference is found at this look."""
        z = self._needed_z(params, n_reports, share)
        found = float(special.ndtr(share / self._error(params, n_reports, share) - z))
        if isinstance(self.of, StringsGoal):  # which are first detected in both groups together
            clients, pooled = 2 * self.clients(n_reports), self.share + share / 2
            found *= _chance_of_detection(params, clients, pooled, self.of.test)
        return found

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the least difference that is found with the power; infinite if none."""

        def missing(difference: float) -> float:
            return self.test.power - self.power(params, n_reports, difference)

        low = 0.0
        for high in np.geomspace(_LEAST, 1.0 - self.share, _STEPS).tolist():
            if missing(high) <= 0:
                return float(optimize.brentq(missing, low, high, xtol=_LEAST, rtol=_CLOSE))
            low = high
        return math.inf

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return how many reports in each group find a difference."""

        def missing(log_reports: float) -> float:
            return self.test.power - self.power(params, math.exp(log_reports), share)

        high = math.log(MOST_REPORTS)
        if share > 1 - self.share or missing(high) > 0:
            return math.inf
        return math.exp(optimize.brentq(missing, math.log(10), high, xtol=1e-6))

    def _needed_z(self, params: RapporParams, n_reports: float, difference: float) -> float:
        error = np.array(self._error(params, n_reports, difference))
        return float(self._looks(params).critical_z(math.log(self.test.level), error))

    def _looks(self, params: RapporParams) -> Looks:
        if not self.sequential:
            return OneLook()
        if isinstance(self.of, NumberGoal):
            return EveryLook(number_scale(self.of.response(params)))
        return EveryLook(share_scale(params))

    def _error(self, params: RapporParams, n_reports: float, difference: float) -> float:
        both = sum(self._variance(params, self.share + more) for more in (0.0, difference))
        return math.sqrt(both / self.clients(n_reports))

    def _variance(self, params: RapporParams, share: float) -> float:
        """Return the variance of a share, or a mean, times the number of clients."""
        each = self.test.reports_each
        if isinstance(self.of, NumberGoal):
            return widest_variance(self.of.response(params))
        if isinstance(self.of, CategoriesGoal):
            if self.of.by_subset:
                return subset_variance(subset_of(params, self.of.categories), share)
            return TableErrors(params, self.of.categories, each).of_cell(share) ** 2
        # What nobody listed sets the same bits in both groups, so it doesn't scatter differences.
        # But each string that is fitted takes one of the k m bit rates from the others.
        known = replace(self.of.test, concentration=0.0)
        left = 1 - self.test.candidates / (params.k * params.m)
        variance = string_errors(params, 1.0, share, known).present ** 2
        return variance / left if left > 0 else math.inf

    def response(self, params: RapporParams) -> Response:
        """Return that of what is compared."""
        return self.of.response(params)

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:
        """Return those of what is compared."""
        spaces = self.of.spaces(budget, n_reports, most_bits)
        return [replace(each, rate=None) for each in spaces]  # known for values that nobody has

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return the difference that is found, and a difference's error."""
        named = (("detectable_share", "difference that is found", self.limit),
                 ("std_error", "standard error", self.error))  # fmt: skip
        if self.response(found.best.params) is UNARY:
            return {key: fitted_curve(label, of, found.best) for key, label, of in named}
        within = next(iter(self.of.curves(found).values())).within
        return {key: Curve(label, of, found.best.params, within) for key, label, of in named}

    def asked(self, found: PlanSearch) -> Mapping[str, object]:
        """Return what is compared, and how."""
        test = self.test
        return {
            **self.of.asked(found),
            "rows": test.candidates,
            "control": self.share,
            "alpha": test.alpha,
            "power": test.power,
            "sequential": self.sequential,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Least difference between two groups of {reports} reports each"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which difference is found, and how."""
        what = "the mean, in parts of the range,"
        if not isinstance(self.of, NumberGoal):
            what = f"a value that {self.share:.3%} of the control have"
        size = f"A difference of {plan.limit:.3%}" if plan.limit < math.inf else "No difference"
        return limit_finding(
            plan,
            f"{size} in {what} is found with probability {self.test.power:g} from "
            f"{plan.reports:,.0f} reports in each group, among {self.test.candidates:,.0f} rows "
            f"(false discovery rate {self.test.alpha:g}) even if no other row differs.",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what looking every day costs."""
        subject = found.subject
        if not self.sequential or subject.limit == math.inf:
            return
        once = replace(self, sequential=False)
        needed = once.reports_needed(subject.params, subject.limit)
        text = (
            "You may look every day and stop when you like: the difference is found by then "
            "with this probability, and often earlier. A single look, at a time fixed in advance, "
            f"needs {needed:,.0f} reports in each group, {needed / subject.reports:.0%} of these."
        )
        yield Finding("one_look_reports", "", text, needed)

    def oue_ratio(self, params: RapporParams) -> float:
        """Return that of what is compared."""
        return self.of.oue_ratio(params)

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return those of what is compared."""
        return self.of.all_bits(params)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return that of what is compared."""
        return self.of.entry(params, name)


@functools.lru_cache(maxsize=256)
def _detection_limit(
    params: RapporParams, n_clients: float, test: DetectionTest
) -> tuple[float, float]:
    limit = detection_limit(params, n_clients, test)
    if limit == math.inf:
        return limit, math.nan
    return limit, string_errors(params, n_clients, limit, test).present


def _chance_of_detection(
    params: RapporParams, n_clients: float, share: float, test: DetectionTest
) -> float:
    limit, error = _detection_limit(params, n_clients, test)
    if limit == math.inf:
        return 0.0
    return float(special.ndtr((share - limit) / error + special.ndtri(test.power)))


def difference_goal(
    metric: Metric,
    share: float,
    *,
    rows: float | None = None,
    candidates: float = 1e4,
    alpha: float = 0.05,
    power: float = 0.8,
    sequential: bool = False,
) -> DifferenceGoal:
    """Return the goal of a difference between two groups of a metric's reports.

    `share` is that of the differing value in the control; `rows` by default all categories, all
    statistics, or 20 strings. Raises `PlanError` if metrics of its type aren't compared.
    """
    if isinstance(metric.type, NumberType):
        of: Goal = mean_goal(metric, alpha, power)
        return DifferenceGoal(DetectionTest(rows or of.groups, alpha, power), of, 0.0, sequential)
    if not 0 <= share < 1:
        raise PlanError(f"share = {share:g}: must be at least 0 and below 1")
    if isinstance(metric.type, EnumType | OrdinalType):
        listed = listed_goal(metric, alpha, power)
        test = DetectionTest(rows or listed.categories, alpha, power)
        return DifferenceGoal(test, listed, share, sequential)
    if metric.type.width is not None:
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be 'string', 'enum', "
            "'ordinal' or 'number' for a comparison to be planned"
        )
    string_params(metric)
    of = StringsGoal(DetectionTest(candidates, alpha))
    return DifferenceGoal(DetectionTest(rows or USUAL_ROWS, alpha, power), of, share, sequential)
