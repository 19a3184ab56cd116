"""A plan for listed strings as a result: its rivals, what they detect, their curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from hubbub.decoder.results.result import Table, Types, headings
from hubbub.planning.limits import (
    Method,
    detection_limit,
    detection_power,
    fewest_cohorts,
    reports_needed,
)
from hubbub.planning.planned import (
    PlannedResult,
    Points,
    entry_text,
    reports_text,
    share_text,
)
from hubbub.planning.search import (
    Comparison,
    Plan,
    Point,
    limit_by_epsilon,
    limit_by_reports,
)


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult(PlannedResult[Plan]):
    """The result of a search, and its question."""

    comparison: Comparison
    share: float | None
    name: str

    columns: ClassVar[Types] = {
        "name": str,
        **dict.fromkeys(("k", "h", "m"), int),
        **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
        **dict.fromkeys(("detectable_share", "reports_needed", "oue_ratio"), float),
    }
    curves: ClassVar[Mapping[str, str]] = {
        "detectable_share": "best",
        "paper": "the RAPPOR paper's default",
    }

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, in the order of the table."""
        found = self.comparison
        plans = (found.given, found.best, found.simple, found.paper, *found.by_hashes)
        return tuple(plan for plan in plans if plan)

    def reports_needed(self, plan: Plan) -> float:
        """Return how many reports a plan's parameters need for the target."""
        return reports_needed(plan.params, self.target, self.comparison.question)

    def question(self) -> Mapping[str, object]:
        """Return candidates, error rate, power, method, and what else sets bits."""
        question = self.comparison.question
        return {
            "candidates": question.candidates,
            "alpha": question.alpha,
            "power": question.power,
            "method": question.method.value,
            "concentration": question.concentration,
        }

    def by_epsilon(self) -> Points:
        """Return limits over epsilons of a report."""
        return _points(limit_by_epsilon(self.comparison), "epsilon_report")

    def by_reports(self) -> Points:
        """Return limits over N."""
        return _points(limit_by_reports(self.comparison), "reports")

    def marked(self) -> list[tuple[str, Plan]]:
        """Return the best, and what was given."""
        found = self.comparison
        if found.given:
            return [("the best", found.best), (found.given.name, found.given)]
        return [("this plan", found.best)]

    def entry(self) -> str:
        """Return the entry of a string metric."""
        return entry_text(self.comparison.best.params, self.name, "string")

    def describe(self, across: str, at: str, share: str) -> str:
        """Return a picture's alternative text."""
        return (
            f"Smallest share that is detected, by {across}: {share} at {at} with the best "
            "parameters; the RAPPOR paper's default needs more."
        )

    def table(self) -> Table:
        """Return the plans for people."""
        found = self.comparison
        rows = []
        for plan in self.plans:
            params = plan.params
            rows.append(
                (
                    plan.name,
                    *map(str, params[:3]),
                    *(f"{number:.6g}" for number in params[3:]),
                    f"{params.epsilon_permanent:.4g}",
                    f"{params.epsilon_report:.4g}",
                    share_text(plan.limit),
                    reports_text(self.reports_needed(plan)),
                    f"{plan.oue_ratio:.2f}",
                )
            )
        parameters = ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report")
        achieved = ("share", f"reports for {self.target:.3%}", "variance / OUE")
        return Table(
            f"Smallest share that {found.best.reports:,.0f} reports show",
            headings("parameters", *parameters, *achieved),
            tuple(rows),
            styles=tuple("bold" if plan is self.subject else "" for plan in self.plans),
        )

    def sentences(self) -> Iterator[str]:
        """Yield what the plan detects, and what it is beside the others."""
        found, question, subject = self.comparison, self.comparison.question, self.subject
        params, n_reports = subject.params, subject.reports
        if subject.limit < math.inf:
            yield (
                f"A string held by {subject.limit:.3%} is detected among "
                f"{question.candidates:,.0f} candidates with probability {question.power:g} "
                f"(alpha {question.alpha:g}, Bonferroni; method {question.method.value})."
            )
        else:
            yield (
                f"No share is detected among {question.candidates:,.0f} candidates with "
                f"probability {question.power:g} (alpha {question.alpha:g}, Bonferroni; method "
                f"{question.method.value})."
            )
        if self.share is not None and not math.isclose(self.share, subject.limit, rel_tol=1e-3):
            power = detection_power(params, n_reports, self.share, question)
            needed = reports_needed(params, self.share, question)
            yield (
                f"One held by {self.share:.3%} is found with probability {power:.2f}; "
                f"{reports_text(needed)} reports make it {question.power:g}."
            )
        if found.given:
            yield from self._against_best(found.given)
        elif found.paper:
            yield (
                f"The RAPPOR paper's default at the same epsilons needs a share "
                f"{found.paper.limit / subject.limit:.2f} times as large."
            )
        yield (
            f"An estimate varies {subject.oue_ratio:.2f} times as much as with optimal unary "
            "encoding (Wang et al. 2017), which knows the list of strings before it asks."
        )
        in_each = n_reports / params.m
        yield f"A report has {params.k // 8} bytes; {in_each:,.0f} are in each cohort."

    def _against_best(self, given: Plan) -> Iterator[str]:
        """Yield what the given parameters spend, give away, and can't do."""
        best, question = self.comparison.best, self.comparison.question
        params = given.params
        yield (
            f"One report spends an epsilon of {params.epsilon_report:.4g}, all reports from one "
            f"permanent response together {params.epsilon_permanent:.4g}."
        )
        method = Method.LIKELIHOOD if question.method is Method.REGRESSION else Method.REGRESSION
        other = detection_limit(params, given.reports, replace(question, method=method))
        yield f"With method {method.value} the limit is {share_text(other)}."
        if given.limit <= best.limit:
            yield "The search finds no better parameters at the same epsilons."
        elif given.limit < math.inf:
            needed = reports_needed(best.params, given.limit, question)
            yield (
                f"The best parameters at the same epsilons show {best.limit:.3%}, a share "
                f"{given.limit / best.limit:.2f} times as small, or the same share from "
                f"{reports_text(needed)} reports instead of {given.reports:,.0f}."
            )
        else:
            yield f"The best parameters at the same epsilons show {best.limit:.3%}."
        fewest = fewest_cohorts(params.k, params.h, question.level)
        if params.m < fewest:
            yield (
                f"m = {params.m}: below {fewest} cohorts no test at this level works as the theory "
                "takes it to; less is found than stated here."
            )


def _points(points: list[Point], across: str) -> Points:
    return [
        {across: point.at, "detectable_share": point.best, "paper": point.paper} for point in points
    ]
