"""A plan as a result: a row a set of parameters, the metrics.toml entry, curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hubbub.decoder.planning.limits import (
    Method,
    detection_limit,
    detection_power,
    fewest_cohorts,
    reports_needed,
)
from hubbub.decoder.planning.search import (
    Comparison,
    Plan,
    Point,
    limit_by_epsilon,
    limit_by_reports,
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
from hubbub.protocol.params import RapporParams

_TYPES: dict[str, type] = {
    "name": str,
    **dict.fromkeys(("k", "h", "m"), int),
    **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
    **dict.fromkeys(("detectable_share", "reports_needed", "oue_ratio"), float),
}


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult(Result):
    """The result of a search, and its question.

    Attributes
    ----------
    share : float or None
        A share that is to be found; None: the limit of the plan that the result is about.
    name : str
        Of the metric.
    """

    comparison: Comparison
    share: float | None
    name: str

    @property
    def subject(self) -> Plan:
        """The plan that the result is about: the given one, or the best that was found."""
        return self.comparison.given or self.comparison.best

    @property
    def target(self) -> float:
        """The share for which reports are counted."""
        return counted_share(self.share, self.subject.limit, self.comparison.best.limit)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, in the order of the table."""
        found = self.comparison
        plans = (found.given, found.best, found.simple, found.paper, *found.by_hashes)
        return tuple(plan for plan in plans if plan)

    @property
    def types(self) -> Types:
        """The columns; nan stands for what isn't finite."""
        return _TYPES

    def parts(self) -> Iterator[Columns]:
        """Yield the plans, in the order of the table."""
        rows = []
        for plan in self.plans:
            params = plan.params
            needed = reports_needed(params, self.target, self.comparison.question)
            rows.append(
                {
                    "name": plan.name,
                    **params._asdict(),
                    "epsilon_permanent": finite_or_nan(params.epsilon_permanent),
                    "epsilon_report": params.epsilon_report,
                    "reports": plan.reports,
                    "detectable_share": finite_or_nan(plan.limit),
                    "reports_needed": finite_or_nan(needed),
                    "oue_ratio": plan.oue_ratio,
                }
            )
        yield columns_of(_TYPES, rows)

    def document(self) -> Mapping[str, object]:
        """Return "question", "rows", "by_epsilon_report" and "by_reports"."""
        found, question = self.comparison, self.comparison.question
        return {
            "question": {
                "epsilon_permanent": found.budget.permanent,
                "epsilon_report": found.budget.report,
                "candidates": question.candidates,
                "alpha": question.alpha,
                "power": question.power,
                "method": question.method.value,
                "concentration": question.concentration,
                "share": self.target,
            },
            "rows": ROWS,
            "by_epsilon_report": _points(limit_by_epsilon(found), "epsilon_report"),
            "by_reports": _points(limit_by_reports(found), "reports"),
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the table, what it means, and the metrics.toml entry of the best plan."""
        yield _table(self)
        yield Line("")
        for text in _sentences(self):
            yield Line(text, wraps=False)
        yield Line("")
        if self.comparison.given:
            yield Line("The best parameters at these epsilons:\n", wraps=False)
        yield Line(entry(self.comparison.best.params, self.name))

    def picture(self) -> tuple[XYChart, ...]:
        """Return the detectable share against epsilon and against N, plans themselves as points."""
        found, best = self.comparison, self.comparison.best
        plans = [("this plan", best)]
        if found.given:
            plans = [("the best", best), (found.given.name, found.given)]
        of_reports, of_budget = f"{best.reports:,.0f} reports", f"{found.budget.report:g}"
        return (
            _chart(
                Labels("by-epsilon", of_reports, "", "epsilon of a report"),
                limit_by_epsilon(found),
                [(name, plan.params.epsilon_report, 100 * plan.limit) for name, plan in plans],
            ),
            _chart(
                Labels("by-reports", f"epsilon {of_budget} a report", "", "reports"),
                limit_by_reports(found),
                [(name, plan.reports, 100 * plan.limit) for name, plan in plans],
            ),
        )


def entry(params: RapporParams, name: str, steps: tuple[int, ...] = ()) -> str:
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in.

    Parameters
    ----------
    steps : tuple of int
        Of open strings; the parameters are those of one of them.
    """
    noise = {"f": params.f, "p": params.p, "q": params.q}
    one_time = params.f == 0 or (params.p, params.q) == (0.0, 1.0)
    if one_time and params.f:
        del noise["p"], noise["q"]
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        f'type = "{"open-string" if steps else "string"}"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *(['mode = "one-time"'] if one_time else []),
        *([f"steps = {list(steps)}"] if steps else []),
        *(f"{key} = {getattr(params, key)}" for key in (("k", "m") if steps else ("k", "h", "m"))),
        *(f"{key} = {value!r}" for key, value in noise.items()),
    ]
    return "\n".join(lines)


def _table(result: PlanResult) -> Table:
    found = result.comparison
    rows = []
    for plan in result.plans:
        params = plan.params
        rows.append(
            (
                plan.name,
                *map(str, params[:3]),
                *(f"{number:.6g}" for number in params[3:]),
                f"{params.epsilon_permanent:.4g}",
                f"{params.epsilon_report:.4g}",
                share_text(plan.limit),
                reports_text(reports_needed(params, result.target, found.question)),
                f"{plan.oue_ratio:.2f}",
            )
        )
    parameters = ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report")
    achieved = ("share", f"reports for {result.target:.3%}", "variance / OUE")
    return Table(
        f"Smallest share that {found.best.reports:,.0f} reports show",
        headings("parameters", *parameters, *achieved),
        tuple(rows),
        styles=tuple("bold" if plan is result.subject else "" for plan in result.plans),
    )


def _sentences(result: PlanResult) -> Iterator[str]:
    found, question, subject = result.comparison, result.comparison.question, result.subject
    params, n_reports = subject.params, subject.reports
    if subject.limit < math.inf:
        yield (
            f"A string held by {subject.limit:.3%} is detected among {question.candidates:,.0f} "
            f"candidates with probability {question.power:g} (alpha {question.alpha:g}, "
            f"Bonferroni; method {question.method.value})."
        )
    else:
        yield (
            f"No share is detected among {question.candidates:,.0f} candidates with probability "
            f"{question.power:g} (alpha {question.alpha:g}, Bonferroni; method "
            f"{question.method.value})."
        )
    if result.share is not None and not math.isclose(result.share, subject.limit, rel_tol=1e-3):
        power = detection_power(params, n_reports, result.share, question)
        needed = reports_needed(params, result.share, question)
        yield (
            f"One held by {result.share:.3%} is found with probability {power:.2f}; "
            f"{reports_text(needed)} reports make it {question.power:g}."
        )
    if found.given:
        yield from _against_best(result, found.given)
    elif found.paper:
        yield (
            f"The RAPPOR paper's default at the same epsilons needs a share "
            f"{found.paper.limit / subject.limit:.2f} times as large."
        )
    yield (
        f"An estimate varies {subject.oue_ratio:.2f} times as much as with optimal unary encoding "
        "(Wang et al. 2017), which knows the list of strings before it asks."
    )
    in_each = n_reports / params.m
    yield f"A report has {params.k // 8} bytes; {in_each:,.0f} are in each cohort."


def _against_best(result: PlanResult, given: Plan) -> Iterator[str]:
    """Yield what the given parameters spend, give away, and can't do."""
    best, question = result.comparison.best, result.comparison.question
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


def _points(points: list[Point], across: str) -> list[dict[str, object]]:
    return [
        {across: point.at, "detectable_share": point.best, "paper": point.paper} for point in points
    ]


def _chart(labels: Labels, points: list[Point], plans: list[tuple[str, float, float]]) -> XYChart:
    _, x, y = plans[0]
    description = (
        f"Smallest share that is detected, by {labels.x}: {y:.3g}% at {x:,.6g} with the best "
        "parameters; the RAPPOR paper's default needs more."
    )
    at = np.array([point.at for point in points])
    series = (
        Series("best", at, np.array([100 * point.best for point in points])),
        Series("the RAPPOR paper's default", at, np.array([100 * each.paper for each in points])),
        *(Series(name, np.array([a]), np.array([b]), "points") for name, a, b in plans),
    )
    words = replace(labels, description=description, y="smallest detectable share (%)")
    return XYChart(words, series, log_x=True, log_y=True)


def counted_share(share: float | None, limit: float, of_best: float) -> float:
    """Return the share for which reports are counted: the wanted one, or a plan's limit."""
    if share is not None:
        return share
    return limit if limit < 1 else of_best


def reports_text(reports: float) -> str:
    """Return a number of reports, which may be infinite."""
    return f"{reports:,.0f}" if reports < math.inf else "never"


def share_text(share: float) -> str:
    """Return a share in percent, which may be infinite."""
    return f"{share:.3%}" if share < math.inf else "none"


def finite_or_nan(value: float) -> float:
    """Return nan for what isn't finite, as the columns have it."""
    return value if math.isfinite(value) else math.nan
