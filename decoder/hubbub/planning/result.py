"""A plan as a result: a row per set of parameters, two curves, and an entry for metrics.toml.

The same columns, documents, sentences and pictures for every goal; what a goal has of its own it
adds itself. Invariant: nan and "never" stand for what isn't finite, in all formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubbub.planning.linking import link_information, right_links
from hubbub.planning.search import (
    Comparison,
    Curve,
    Plan,
    PlanningGoal,
    against_epsilon,
    against_reports,
    reports_for,
)
from hubbub.planning.wording import is_one_time, percents, reports_text, share_text
from hubbub.protocol.params import RapporParams
from hubbub.reporting.charts import Labels, Series, XYChart
from hubbub.reporting.result import (
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

_SAME = 1e-3  # relative: numbers that print alike, so that a sentence about one is enough
_COLUMNS: Types = {
    "name": str,
    **dict.fromkeys(("k", "h", "m"), int),
    **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
    **dict.fromkeys(("detectable_share", "reports_needed", "oue_ratio", "std_error"), float),
}
_LINKING: Types = dict.fromkeys(("linking_information", "linking_information_known"), float)


class DescribedGoal(PlanningGoal, Protocol):
    """A goal that can be shown."""

    @property
    def columns(self) -> Types:
        """Columns of its own: of its figures, and of `row`."""

    def row(self, plan: Plan) -> Mapping[str, object]:
        """Return what its columns have beyond figures."""

    def shown(self, plan: Plan) -> Mapping[str, str]:
        """Return what the table for people has of its own, under its headings."""

    def asked(self, found: Comparison) -> Mapping[str, object]:
        """Return what was asked, besides epsilons and targets, and what doesn't depend on plans."""

    def title(self, reports: str) -> str:
        """Return what the table is about."""

    def about_limit(self, plan: Plan) -> Iterator[str]:
        """Yield what a plan finds."""

    def remarks(self, found: Comparison) -> Iterator[str]:
        """Yield what else the subject of a comparison means."""

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters of a report, and how many bits are categories; None: hashed."""

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the metrics.toml entry."""


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult(Result):
    """What was planned, and what for.

    Attributes
    ----------
    goal : DescribedGoal
        What is to be found.
    comparison : Comparison
        What the search found.
    name : str
        The metric's.
    share : float or None
        A share that is to be found; None: the limit of the plan that the result is about.
    std_error : float or None
        Of an absent value, that reports should have.
    """

    goal: DescribedGoal
    comparison: Comparison
    name: str
    share: float | None = None
    std_error: float | None = None

    @property
    def target(self) -> float:
        """The share for which reports are counted: the wanted one, or a plan's limit."""
        if self.share is not None:
            return self.share
        limit = self.comparison.subject.limit
        return limit if limit < 1 else self.comparison.best.limit

    @property
    def types(self) -> Types:
        """The columns: those of all plans, the goal's own, and how well reports are linked."""
        return {**_COLUMNS, **self.goal.columns, **_LINKING}

    def parts(self) -> Iterator[Columns]:
        """Yield the plans, in the order of the table."""
        rows = [
            {
                "name": plan.name,
                **plan.params._asdict(),
                "epsilon_permanent": plan.params.epsilon_permanent,
                "epsilon_report": plan.params.epsilon_report,
                "reports": plan.reports,
                "detectable_share": plan.limit,
                "reports_needed": self.goal.reports_needed(plan.params, self.target),
                "oue_ratio": plan.oue_ratio,
                "std_error": plan.std_error,
                **plan.figures,
                **self.goal.row(plan),
                **self._linking(plan.params),
            }
            for plan in self.comparison.plans
        ]
        yield columns_of(self.types, [_finite(row) for row in rows])

    def document(self) -> Mapping[str, object]:
        """Return "question", "rows", "by_epsilon_report" and "by_reports"."""
        found, curves = self.comparison, self.goal.curves(self.comparison)
        return {
            "question": {
                "epsilon_permanent": found.budget.permanent,
                "epsilon_report": found.budget.report,
                **self.goal.asked(found),
                "share": self.target,
                "std_error": self.std_error,
            },
            "rows": ROWS,
            "by_epsilon_report": against_epsilon(found, curves),
            "by_reports": against_reports(found, curves),
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the table, what it means, and the metrics.toml entry of the best plan."""
        yield self._table()
        yield Line("")
        for text in (*self._sentences(), *self._linked()):
            yield Line(text, wraps=False)
        yield Line("")
        if self.comparison.given:
            yield Line("The best parameters at these epsilons:\n", wraps=False)
        yield Line(self.goal.entry(self.comparison.best.params, self.name))

    def picture(self) -> tuple[XYChart, ...]:
        """Return the curves against epsilon and against N, with plans as points."""
        found, curves = self.comparison, self.goal.curves(self.comparison)
        n_reports = f"{found.best.reports:,.0f} reports"
        epsilon = f"epsilon {found.budget.report:g} a report"
        return (
            self._chart(
                ("by-epsilon", n_reports, "epsilon of a report", "epsilon_report"),
                curves,
                against_epsilon(found, curves),
                lambda plan: plan.params.epsilon_report,
            ),
            self._chart(
                ("by-reports", epsilon, "reports", "reports"),
                curves,
                against_reports(found, curves),
                lambda plan: plan.reports,
            ),
        )

    def _table(self) -> Table:
        """Return the plans for people."""
        found, rows = self.comparison, []
        own = [self.goal.shown(plan) for plan in found.plans]
        for plan, more in zip(found.plans, own, strict=True):
            params = plan.params
            rows.append(
                (
                    plan.name,
                    *map(str, params[:3]),
                    *(f"{number:.6g}" for number in params[3:]),
                    f"{params.epsilon_permanent:.4g}",
                    f"{params.epsilon_report:.4g}",
                    share_text(plan.limit),
                    reports_text(self.goal.reports_needed(params, self.target)),
                    percents(plan.std_error),
                    *more.values(),
                    f"{plan.oue_ratio:.2f}",
                )
            )
        parameters = ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report")
        achieved = ("share", f"reports for {self.target:.3%}", "std. error", *own[0])
        return Table(
            self.goal.title(f"{found.best.reports:,.0f}"),
            headings("parameters", *parameters, *achieved, "variance / OUE"),
            tuple(rows),
            styles=tuple("bold" if plan is found.subject else "" for plan in found.plans),
        )

    def _sentences(self) -> Iterator[str]:
        """Yield what the plan that the result is about finds, and what it is beside the best."""
        found, goal, subject = self.comparison, self.goal, self.comparison.subject
        params, power = subject.params, goal.question.power
        yield from goal.about_limit(subject)
        if self.share is not None and not math.isclose(self.share, subject.limit, rel_tol=_SAME):
            chance = goal.power(params, subject.reports, self.share)
            needed = goal.reports_needed(params, self.share)
            yield (
                f"One held by {self.share:.3%} is found with probability {chance:.2f}; "
                f"{reports_text(needed)} reports make it {power:g}."
            )
        error = self.std_error
        if error is not None and not math.isclose(error, subject.std_error, rel_tol=_SAME):
            needed = reports_for(goal, params, None, error)
            yield f"An error of {percents(error)} takes {reports_text(needed)} reports."
        if found.given:
            yield from self._against_best(found.given, found.best)
        yield from goal.remarks(found)

    def _against_best(self, given: Plan, best: Plan) -> Iterator[str]:
        """Yield what the given parameters spend, and what the best would show."""
        spent = f"One report spends an epsilon of {given.params.epsilon_report:.4g}, "
        permanent = given.params.epsilon_permanent
        if math.isinf(permanent):
            yield f"{spent}and nothing bounds what several spend: it must be the only one."
        else:
            yield f"{spent}all reports from one permanent response together {permanent:.4g}."
        if given.limit <= best.limit:
            yield "The search finds no better parameters at the same epsilons."
        elif given.limit < math.inf:
            needed = self.goal.reports_needed(best.params, given.limit)
            yield (
                f"The best parameters at the same epsilons show {best.limit:.3%}, a share "
                f"{given.limit / best.limit:.2f} times as small, or the same share from "
                f"{reports_text(needed)} reports instead of {given.reports:,.0f}."
            )
        else:
            yield f"The best parameters at the same epsilons show {best.limit:.3%}."

    def _linking(self, params: RapporParams) -> Mapping[str, float]:
        """Return the nats that a report has about another, and about the permanent response."""
        if is_one_time(params):
            return dict.fromkeys(_LINKING, math.nan)
        bits, width = self.goal.all_bits(params)
        nats = [link_information(bits, width, known=known) for known in (False, True)]
        return dict(zip(_LINKING, nats, strict=True))

    def _linked(self) -> Iterator[str]:
        """Yield how well daily reports are linked by their content, if there is more than one."""
        subject = self.comparison.subject
        params, width = self.goal.all_bits(subject.params)
        if is_one_time(params):
            return
        clients = max(round(subject.reports), 1)
        information = link_information(params, width)
        two, many = (right_links(params, width, clients, known=known) for known in (False, True))
        yield (
            f"By their content alone, shuffled daily reports of {clients:,} clients are linked: "
            f"{100 * two:.3g}% rightly from two days, at most {100 * many:.3g}% from many"
        )
        yield (
            f"({information:.3g} nats a pair, against ln(clients/m) = "
            f"{math.log(clients / params.m):.3g}; docs/privacy.md, Linking by content)."
        )

    def _chart(
        self,
        named: tuple[str, str, str, str],
        curves: Mapping[str, Curve],
        points: Sequence[Mapping[str, float]],
        place: Callable[[Plan], float],
    ) -> XYChart:
        """Return one picture.

        Parameters
        ----------
        named : tuple of str
            Its name and title, the x axis, and the points' key of that.
        curves : mapping of str to Curve
            Which keys of the points to draw.
        points : sequence of mapping
            What is drawn.
        place : callable
            Where a plan is on the x axis.
        """
        name, title, across, key = named
        found, at = self.comparison, np.array([point[key] for point in points])
        series = [
            Series(curve.label, at, np.array([100 * point[each] for point in points]))
            for each, curve in curves.items()
        ]
        marked = [("the best", found.best)] if found.given else [("this plan", found.best)]
        marked += [(found.given.name, found.given)] if found.given else []
        for label, plan in marked:
            x, y = np.array([place(plan)]), np.array([100 * plan.limit])
            series.append(Series(label, x, y, "points"))
        first, *others = (curve.label for curve in curves.values())
        description = (
            f"Smallest share that reports show ({first}), by {across}: "
            f"{100 * found.best.limit:.3g}% at {place(found.best):,.6g}; beside it: "
            f"{', '.join(others) or 'nothing'}."
        )
        measure = "share (%)" if "std_error" in curves else "smallest detectable share (%)"
        labels = Labels(name, title, description, across, measure)
        return XYChart(labels, tuple(series), log_x=True, log_y=True)


def _finite(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row with nan for what isn't finite."""
    return {
        key: math.nan if isinstance(value, float) and math.isinf(value) else value
        for key, value in row.items()
    }
