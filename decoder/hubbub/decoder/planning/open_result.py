"""An open string plan as a result: the parameters, what they find, the metrics.toml entry, curves.

Formats, column names and curves are those of listed strings' plans, where they mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hubbub.decoder.open_strings.search import LONGEST_END
from hubbub.decoder.planning.limits import detection_power
from hubbub.decoder.planning.open_strings import (
    OpenComparison,
    OpenPlan,
    OpenPoint,
    open_by_epsilon,
    open_by_reports,
    open_reports_needed,
)
from hubbub.decoder.planning.result import (
    counted_share,
    entry,
    finite_or_nan,
    reports_text,
    share_text,
)
from hubbub.decoder.results.charts import Labels, Series, XYChart
from hubbub.decoder.results.result import (
    ROWS,
    Block,
    Columns,
    Line,
    Result,
    Table,
    Types,
    columns_of,
    headings,
)

_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "steps"), str),
    **dict.fromkeys(("k", "h", "m"), int),
    **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
    **dict.fromkeys(("detectable_share", "share_if_listed", "reports_needed", "oue_ratio"), float),
}


@dataclass(frozen=True, slots=True, repr=False)
class OpenPlanResult(Result):
    """What was planned, and its question.

    Attributes
    ----------
    share : float or None
        A share that is to be found; None: the limit of the plan that the result is about.
    name : str
        Of the metric.
    """

    comparison: OpenComparison
    share: float | None
    name: str

    @property
    def subject(self) -> OpenPlan:
        """The plan that the result is about: the given one, or the best."""
        return self.comparison.given or self.comparison.best

    @property
    def target(self) -> float:
        """The share for which reports are counted."""
        return counted_share(self.share, self.subject.limit, self.comparison.best.limit)

    @property
    def plans(self) -> tuple[OpenPlan, ...]:
        """All plans, in the order of the table."""
        given, best = self.comparison.given, self.comparison.best
        return (given, best) if given else (best,)

    @property
    def types(self) -> Types:
        """The columns; nan stands for what isn't finite."""
        return _TYPES

    def parts(self) -> Iterator[Columns]:
        """Yield the plans; m is the cohorts of each step, as in metrics.toml."""
        rows = [
            {
                "name": plan.name,
                "steps": " ".join(map(str, plan.steps)),
                **plan.params._asdict(),
                "epsilon_permanent": finite_or_nan(plan.params.epsilon_permanent),
                "epsilon_report": plan.params.epsilon_report,
                "reports": plan.reports,
                "detectable_share": finite_or_nan(plan.limit),
                "share_if_listed": finite_or_nan(plan.if_listed),
                "reports_needed": finite_or_nan(self._needed(plan)),
                "oue_ratio": plan.oue_ratio,
            }
            for plan in self.plans
        ]
        yield columns_of(_TYPES, rows)

    def document(self) -> Mapping[str, object]:
        """Return "question", "rows", "by_epsilon_report" and "by_reports"."""
        found, question = self.comparison, self.comparison.question
        return {
            "question": {
                "epsilon_permanent": found.budget.permanent,
                "epsilon_report": found.budget.report,
                "effective_candidates": question.candidates,
                "alpha": question.alpha,
                "power": question.power,
                "concentration": question.concentration,
                "share": self.target,
            },
            "rows": ROWS,
            "by_epsilon_report": _points(open_by_epsilon(found), "epsilon_report"),
            "by_reports": _points(open_by_reports(found), "reports"),
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the table, what it means, and the metrics.toml entry of the best plan."""
        yield self._table()
        yield Line("")
        for text in self._sentences():
            yield Line(text, wraps=False)
        yield Line("")
        best = self.comparison.best
        if self.comparison.given:
            yield Line("The best parameters at these steps and epsilons:\n", wraps=False)
        yield Line(entry(best.params, self.name, best.steps))

    def picture(self) -> tuple[XYChart, ...]:
        """Return the detectable share against epsilon and against N."""
        found, best = self.comparison, self.comparison.best
        n_reports, budget = f"{best.reports:,.0f} reports", f"{found.budget.report:g}"
        return (
            _chart(
                Labels("by-epsilon", n_reports, "", "epsilon of a report"),
                open_by_epsilon(found),
                [(plan.name, plan.params.epsilon_report, plan.limit) for plan in self.plans],
            ),
            _chart(
                Labels("by-reports", f"epsilon {budget} a report", "", "reports"),
                open_by_reports(found),
                [(plan.name, plan.reports, plan.limit) for plan in self.plans],
            ),
        )

    def _needed(self, plan: OpenPlan) -> float:
        question = self.comparison.question
        return open_reports_needed(plan.steps, plan.params, self.target, question)

    def _table(self) -> Table:
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
                reports_text(self._needed(plan)),
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

    def _sentences(self) -> Iterator[str]:
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
                f"{reports_text(self._needed(plan))} reports make it {question.power:g}."
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


def _points(points: list[OpenPoint], across: str) -> list[dict[str, object]]:
    return [
        {across: point.at, "detectable_share": point.limit, "share_if_listed": point.if_listed}
        for point in points
    ]


def _chart(
    labels: Labels, points: list[OpenPoint], plans: list[tuple[str, float, float]]
) -> XYChart:
    _, x, y = plans[-1]
    description = (
        f"Smallest share that is found without a list, by {labels.x}: {100 * y:.3g}% at "
        f"{x:,.6g}; with a list, smaller ones."
    )
    at = np.array([point.at for point in points])
    series = (
        Series("unlisted", at, np.array([100 * point.limit for point in points])),
        Series("if listed", at, np.array([100 * point.if_listed for point in points])),
        *(Series(name, np.array([a]), np.array([100 * b]), "points") for name, a, b in plans),
    )
    words = replace(labels, description=description, y="smallest detectable share (%)")
    return XYChart(words, series, log_x=True, log_y=True)
