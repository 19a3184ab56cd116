"""What all plans are as results: a row a set of parameters, an entry for metrics.toml, two curves.

A subclass says what its question was and what its parameters achieve; columns, documents, blocks
and pictures that mean the same have the same names in all of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from hubbub.decoder.linking import link_information, right_links
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
)
from hubbub.planning.noise import Budget
from hubbub.protocol.params import RapporParams

Points = Sequence[Mapping[str, float]]
"""What is achieved at some epsilons or numbers of reports, under the names that JSON has."""


class AnyPlan(Protocol):
    """Parameters, and what they achieve."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    @property
    def params(self) -> RapporParams:
        """Its parameters."""

    @property
    def reports(self) -> float:
        """N."""

    @property
    def limit(self) -> float:
        """Share that N reports show with the question's power; infinite if none."""

    @property
    def oue_ratio(self) -> float:
        """How much more an absent value's estimate varies than the best one-hot noise's."""


_Plan = TypeVar("_Plan", bound=AnyPlan)
_Plan_co = TypeVar("_Plan_co", bound=AnyPlan, covariant=True)


class AnyComparison(Protocol[_Plan_co]):
    """What was planned within a budget, beside parameters that were to be evaluated."""

    @property
    def budget(self) -> Budget:
        """What may be spent."""

    @property
    def best(self) -> _Plan_co:
        """What was chosen."""

    @property
    def given(self) -> _Plan_co | None:
        """What was to be evaluated."""


class PlannedResult(Result, Generic[_Plan]):
    """A plan, and its question.

    Attributes
    ----------
    comparison : AnyComparison
    share : float or None
        A share that is to be found; None: the limit of the plan that the result is about.
    name : str
        Of the metric.
    """

    __slots__ = ()
    comparison: AnyComparison[_Plan]
    share: float | None
    name: str

    columns: ClassVar[Types]
    """Of the rows, in order; nan stands for what isn't finite."""
    curves: ClassVar[Mapping[str, str]]
    """What the curves' points have under these names, and what a picture calls it."""
    linking_columns: ClassVar[Types] = dict.fromkeys(
        ("linking_information", "linking_information_known"), float
    )
    """Of all plans: nats that a report has about another, and about the permanent response."""
    y_axis: ClassVar[str] = "smallest detectable share (%)"
    """What a picture shows."""

    @property
    def subject(self) -> _Plan:
        """The plan that the result is about: the given one, or the best that was found."""
        return self.comparison.given or self.comparison.best

    @property
    def target(self) -> float:
        """The share for which reports are counted: the wanted one, or a plan's limit."""
        if self.share is not None:
            return self.share
        limit = self.subject.limit
        return limit if limit < 1 else self.comparison.best.limit

    @property
    def plans(self) -> tuple[_Plan, ...]:
        """All plans, in the order of the table."""
        given, best = self.comparison.given, self.comparison.best
        return (given, best) if given else (best,)

    @property
    def types(self) -> Types:
        """The columns."""
        return {**self.columns, **self.linking_columns}

    def parts(self) -> Iterator[Columns]:
        """Yield the plans, in the order of the table."""
        rows = [
            {
                "name": plan.name,
                **plan.params._asdict(),
                "epsilon_permanent": finite_or_nan(plan.params.epsilon_permanent),
                "epsilon_report": plan.params.epsilon_report,
                "reports": plan.reports,
                "detectable_share": finite_or_nan(plan.limit),
                "reports_needed": finite_or_nan(self.reports_needed(plan)),
                "oue_ratio": plan.oue_ratio,
                **self.achieved(plan),
                **self._linking(plan),
            }
            for plan in self.plans
        ]
        yield columns_of(self.types, rows)

    def document(self) -> Mapping[str, object]:
        """Return "question", "rows", "by_epsilon_report" and "by_reports"."""
        budget = self.comparison.budget
        return {
            "question": {
                "epsilon_permanent": budget.permanent,
                "epsilon_report": budget.report,
                **self.question(),
                "share": self.target,
            },
            "rows": ROWS,
            "by_epsilon_report": self.by_epsilon(),
            "by_reports": self.by_reports(),
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the table, what it means, and the metrics.toml entry of the best plan."""
        yield self.table()
        yield Line("")
        for text in (*self.sentences(), *self._linked()):
            yield Line(text, wraps=False)
        yield Line("")
        if self.comparison.given:
            yield Line(f"The best parameters at {self.fixed()}:\n", wraps=False)
        yield Line(self.entry())

    def picture(self) -> tuple[XYChart, ...]:
        """Return the curves against epsilon and against N, with plans as points."""
        best, budget = self.comparison.best, self.comparison.budget
        n_reports, epsilon = f"{best.reports:,.0f} reports", f"epsilon {budget.report:g} a report"
        return (
            self._chart(
                Labels("by-epsilon", n_reports, "", "epsilon of a report"),
                [(point["epsilon_report"], point) for point in self.by_epsilon()],
                lambda plan: plan.params.epsilon_report,
            ),
            self._chart(
                Labels("by-reports", epsilon, "", "reports"),
                [(point["reports"], point) for point in self.by_reports()],
                lambda plan: plan.reports,
            ),
        )

    def marked(self) -> list[tuple[str, _Plan]]:
        """Return plans that a picture shows as points, and what it calls them."""
        return [(plan.name, plan) for plan in self.plans]

    def fixed(self) -> str:
        """Return what given parameters and the best have in common, in words."""
        return "these epsilons"

    def achieved(self, plan: _Plan) -> Mapping[str, object]:  # noqa: ARG002
        """Return what a row has beyond what all plans have."""
        return {}

    def bits(self, plan: _Plan) -> tuple[RapporParams, int | None]:
        """Return a plan's parameters with all cohorts, and how many categories; None: hashed."""
        return plan.params, None

    def _linking(self, plan: _Plan) -> Mapping[str, float]:
        params, width = self.bits(plan)
        nats = [
            math.nan if _one_time(params) else link_information(params, width, known=known)
            for known in (False, True)
        ]
        return dict(zip(self.linking_columns, nats, strict=True))

    def _linked(self) -> Iterator[str]:
        """Yield how well daily reports are linked by their content, if there is more than one."""
        params, width = self.bits(self.subject)
        if _one_time(params):
            return
        clients = max(round(self.subject.reports), 1)
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

    @abstractmethod
    def reports_needed(self, plan: _Plan) -> float:
        """Return how many reports a plan's parameters need for the target; infinite if none do."""

    @abstractmethod
    def question(self) -> Mapping[str, object]:
        """Return what was asked, besides epsilons and share."""

    @abstractmethod
    def by_epsilon(self) -> Points:
        """Return points with `epsilon_report` and the curves' names."""

    @abstractmethod
    def by_reports(self) -> Points:
        """Return points with `reports` and the curves' names."""

    @abstractmethod
    def table(self) -> Table:
        """Return the plans for people."""

    @abstractmethod
    def sentences(self) -> Iterator[str]:
        """Yield what the plan that the result is about means."""

    @abstractmethod
    def entry(self) -> str:
        """Return the metrics.toml entry of the best plan."""

    @abstractmethod
    def describe(self, across: str, at: str, share: str) -> str:
        """Return a picture's alternative text.

        Parameters
        ----------
        across : str
            What the x axis has.
        at, share : str
            Where the plan is.
        """

    def _chart(
        self,
        labels: Labels,
        points: Sequence[tuple[float, Mapping[str, float]]],
        place: Callable[[_Plan], float],
    ) -> XYChart:
        at = np.array([x for x, _ in points])
        series = [
            Series(label, at, np.array([100 * point[key] for _, point in points]))
            for key, label in self.curves.items()
        ]
        for name, plan in self.marked():
            x, y = np.array([place(plan)]), np.array([100 * plan.limit])
            series.append(Series(name, x, y, "points"))
        best = self.comparison.best
        description = self.describe(labels.x, f"{place(best):,.6g}", f"{100 * best.limit:.3g}%")
        words = replace(labels, description=description, y=self.y_axis)
        return XYChart(words, tuple(series), log_x=True, log_y=True)


def entry_text(
    params: RapporParams, name: str, metric_type: str, keys: Sequence[str] = ("k", "h", "m"),
    *, before: Sequence[str] = (), after: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in.

    Parameters
    ----------
    metric_type : str
        The registry's `type`.
    keys : sequence of str
        Which of k, h and m the type needs.
    before, after : sequence of str
        Lines of the type's own, before the parameters and at the end.
    """
    noise = {"f": params.f, "p": params.p, "q": params.q}
    one_time = _one_time(params)
    if one_time and params.f:
        del noise["p"], noise["q"]
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        f'type = "{metric_type}"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *(['mode = "one-time"'] if one_time else []),
        *before,
        *(f"{key} = {getattr(params, key)}" for key in keys),
        *(f"{key} = {value!r}" for key, value in noise.items()),
        *after,
    ]
    return "\n".join(lines)


def _one_time(params: RapporParams) -> bool:
    """Whether one of the two responses is left out, so that a second report must not be made."""
    return params.f == 0 or (params.p, params.q) == (0.0, 1.0)


def reports_text(reports: float) -> str:
    """Return a number of reports, which may be infinite."""
    return f"{reports:,.0f}" if reports < math.inf else "never"


def share_text(share: float) -> str:
    """Return a share in percent, which may be infinite."""
    return f"{share:.3%}" if share < math.inf else "none"


def finite_or_nan(value: float) -> float:
    """Return nan for what isn't finite, as the columns have it."""
    return value if math.isfinite(value) else math.nan
