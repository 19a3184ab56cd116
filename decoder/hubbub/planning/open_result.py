"""A plan for open strings as a result: the parameters of a step, and what they find unlisted.

Formats, column names and curves are those of listed strings' plans, where they mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hubbub.decoder.open_strings.search import LONGEST_END
from hubbub.decoder.results.result import Table, Types, headings
from hubbub.planning.limits import detection_power
from hubbub.planning.open_strings import (
    OpenComparison,
    OpenPlan,
    OpenPoint,
    open_by_epsilon,
    open_by_reports,
    open_reports_needed,
)
from hubbub.planning.planned import (
    PlannedResult,
    Points,
    entry_text,
    finite_or_nan,
    reports_text,
    share_text,
)
from hubbub.protocol.params import RapporParams


@dataclass(frozen=True, slots=True, repr=False)
class OpenPlanResult(PlannedResult[OpenPlan]):
    """What was planned, and its question; m is the cohorts of each step, as in metrics.toml."""

    comparison: OpenComparison
    share: float | None
    name: str

    columns: ClassVar[Types] = {
        **dict.fromkeys(("name", "steps"), str),
        **dict.fromkeys(("k", "h", "m"), int),
        **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
        **dict.fromkeys(("detectable_share", "share_if_listed"), float),
        **dict.fromkeys(("reports_needed", "oue_ratio"), float),
    }
    curves: ClassVar[Mapping[str, str]] = {
        "detectable_share": "unlisted",
        "share_if_listed": "if listed",
    }

    def achieved(self, plan: OpenPlan) -> Mapping[str, object]:
        """Return the steps, and what a list would show."""
        return {
            "steps": " ".join(map(str, plan.steps)),
            "share_if_listed": finite_or_nan(plan.if_listed),
        }

    def reports_needed(self, plan: OpenPlan) -> float:
        """Return how many reports, of all steps together, a plan's parameters need."""
        question = self.comparison.question
        return open_reports_needed(plan.steps, plan.params, self.target, question)

    def question(self) -> Mapping[str, object]:
        """Return error rate, power, and what else sets bits."""
        question = self.comparison.question
        return {
            "effective_candidates": question.candidates,
            "alpha": question.alpha,
            "power": question.power,
            "concentration": question.concentration,
        }

    def by_epsilon(self) -> Points:
        """Return limits over epsilons of a report."""
        return _points(open_by_epsilon(self.comparison), "epsilon_report")

    def by_reports(self) -> Points:
        """Return limits over N."""
        return _points(open_by_reports(self.comparison), "reports")

    def bits(self, plan: OpenPlan) -> tuple[RapporParams, int | None]:
        """Return the parameters with the cohorts of all steps."""
        return plan.params._replace(m=plan.n_steps * plan.params.m), None

    def fixed(self) -> str:
        """Return what given parameters and the best have in common, in words."""
        return "these steps and epsilons"

    def entry(self) -> str:
        """Return the entry of an open string metric."""
        best = self.comparison.best
        steps = f"steps = {list(best.steps)}"
        return entry_text(best.params, self.name, "open-string", ("k", "m"), before=[steps])

    def describe(self, across: str, at: str, share: str) -> str:
        """Return a picture's alternative text."""
        return (
            f"Smallest share that is found without a list, by {across}: {share} at {at}; with a "
            "list, smaller ones."
        )

    def table(self) -> Table:
        """Return the plans for people."""
        rows = [
            (
                plan.name,
                ", ".join(map(str, plan.steps)),
                str(plan.params.k),
                str(plan.params.m),
                *(f"{number:.6g}" for number in plan.params[3:]),
                f"{plan.params.epsilon_permanent:.4g}",
                f"{plan.params.epsilon_report:.4g}",
                share_text(plan.limit),
                share_text(plan.if_listed),
                reports_text(self.reports_needed(plan)),
                f"{plan.oue_ratio:.2f}",
            )
            for plan in self.plans
        ]
        parameters = ("steps", "k", "m a step", "f", "p", "q", "ε permanent", "ε report")
        achieved = ("share", "if listed", f"reports for {self.target:.3%}", "variance / OUE")
        return Table(
            f"Smallest share that {self.comparison.best.reports:,.0f} reports show unlisted",
            headings("parameters", *parameters, *achieved),
            tuple(rows),
            styles=tuple("bold" if plan is self.subject else "" for plan in self.plans),
        )

    def sentences(self) -> Iterator[str]:
        """Yield what the plan finds, and what a report shows."""
        question, plan = self.comparison.question, self.subject
        params, in_step = plan.params, plan.reports / plan.n_steps
        if plan.limit < math.inf:
            yield (
                f"A string held by {plan.limit:.3%} is found with probability {question.power:g}, "
                "if it looks like others that are held,"
            )
            yield (
                f"though nobody listed it (alpha {question.alpha:g}); {share_text(plan.if_listed)} "
                "if 100,000 strings were listed and all clients reported theirs whole."
            )
        else:
            yield f"No share is found with probability {question.power:g}."
        if self.share is not None and not math.isclose(self.share, plan.limit, rel_tol=1e-3):
            power = detection_power(params, in_step, self.share, question)
            yield (
                f"One held by {self.share:.3%} is found with probability {power:.2f}; "
                f"{reports_text(self.reports_needed(plan))} reports make it {question.power:g}."
            )
        if self.comparison.given:
            spent = f"One report spends an epsilon of {params.epsilon_report:.4g}, "
            if math.isinf(params.epsilon_permanent):
                yield f"{spent}and nothing bounds what several spend: it must be the only one."
            else:
                permanent = f"{params.epsilon_permanent:.4g}"
                yield f"{spent}all reports from one permanent response together {permanent}."
            yield f"The best parameters show {share_text(self.comparison.best.limit)}."
        yield (
            f"Each of {plan.n_steps} steps has {in_step:,.0f} reports, "
            f"{in_step / params.m:,.0f} in each cohort. A client answers one step."
        )
        yield (
            f"Its cohort is one of {plan.n_steps * params.m:,}, {plan.pseudonym_bits:.1f} bits of "
            "a pseudonym that each of its reports shows: no more than needed."
        )
        yield (
            f"Strings of more than {plan.steps[-1] + LONGEST_END} bytes can't be found; ends "
            f"beyond {plan.steps[-1]} bytes are guessed, so rare or odd ones are missed."
        )


def _points(points: list[OpenPoint], across: str) -> Points:
    return [
        {across: point.at, "detectable_share": point.limit, "share_if_listed": point.if_listed}
        for point in points
    ]
