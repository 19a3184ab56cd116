"""A plan as estimates: one row for each set of parameters, two curves, an entry for metrics.toml.

The same columns, documents, sentences and pictures for every goal; what a goal has of its own it
adds itself. Invariant: nan and "never" stand for what isn't finite, in all formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubbub.planning.differences import MODE_COLUMNS, mode_figures
from hubbub.planning.goals import (
    Goal,
    Plan,
    PlanSearch,
    Schedule,
    epsilon_text,
    is_one_time,
    percents,
    reports_text,
    share_text,
)
from hubbub.planning.histories import link_information, right_links, value_ratio
from hubbub.planning.search import against_epsilon, against_reports, reports_for
from hubbub.protocol import RapporParams, counted
from hubbub.reporting import (
    Estimates,
    Finding,
    Labels,
    Level,
    Line,
    Series,
    Table,
    Types,
    XYChart,
    as_lines,
    columns_from,
    headings,
)

_SAME = 1e-3  # relative: numbers that print alike, so that a sentence about one is enough
_NUMBERS = ("k", "h", "m", "f", "p", "q", "f0", "f1")
_COLUMNS: Types = {
    "name": str,
    **dict.fromkeys(("k", "h", "m"), int),
    **dict.fromkeys(("f", "p", "q", "f0", "f1"), float),
    **dict.fromkeys(("epsilon_permanent", "epsilon_report", "reports"), float),
    **dict.fromkeys(("detectable_share", "reports_needed", "oue_ratio", "std_error"), float),
}
_LINKING: Types = dict.fromkeys(("linking_information", "linking_information_known"), float)


def plan_estimates(
    comparison: PlanSearch,
    name: str,
    share: float | None = None,
    std_error: float | None = None,
) -> Estimates:
    """Return what was planned: a row for each plan, the curves, and what the best one means.

    `share` is to be found, by default the limit of the plan in question; `std_error` is what an
    absent value's share should have.
    """
    asked = _Asked(comparison, share, std_error)
    goal = asked.goal
    own = {key: type(value) for key, value in comparison.best.figures.items()}
    by_epsilon, by_reports = against_epsilon(comparison), against_reports(comparison)
    findings = (*asked.findings(), *asked.linking_findings())
    types = {**_COLUMNS, **own, **_LINKING, **(MODE_COLUMNS if goal.schedule else {})}
    given = comparison.given
    best = [Line("The best parameters at these epsilons:\n", wraps=False)] if given else []
    return Estimates(
        columns=columns_from(types, [asked.row(plan) for plan in comparison.plans]),
        keys=("name",),
        findings=findings,
        metadata={
            "question": {
                "epsilon_permanent": comparison.budget.permanent,
                "epsilon_report": comparison.budget.report,
                **goal.asked(comparison),
                "share": asked.target,
                "std_error": std_error,
            },
            "by_epsilon_report": by_epsilon,
            "by_reports": by_reports,
        },
        view=(
            asked.modes_table() if goal.schedule else asked.table(),
            Line(""),
            *as_lines(findings, wraps=True),
            Line(""),
            *best,
            Line(goal.entry(comparison.best.params, name)),
        ),
        charts=tuple(_charts(comparison, by_epsilon, by_reports)),
    )


def _charts(
    found: PlanSearch,
    by_epsilon: Sequence[Mapping[str, float]],
    by_reports: Sequence[Mapping[str, float]],
) -> Iterator[XYChart]:
    """Yield the limit against epsilon and against N, with plans as points."""
    reports, spent = f"{found.best.reports:,.0f} reports", f"epsilon {found.budget.report:g}"
    charts = (
        ("by-epsilon", reports, "epsilon of a report", "epsilon_report", by_epsilon),
        ("by-reports", f"{spent} per report", "reports", "reports", by_reports),
    )
    marked = {("the best" if found.given else "this plan"): found.best}
    if found.given:
        marked[found.given.name] = found.given
    for name, title, across, key, points in charts:
        at = np.array([point[key] for point in points])
        limits = np.array([100 * point["detectable_share"] for point in points])
        series = [Series("best", at, limits)]
        for label, plan in marked.items():
            x, y = np.array([getattr(plan, key)]), np.array([100 * plan.limit])
            series.append(Series(label, x, y, "points"))
        description = (
            f"Smallest share that reports show, by {across}: {100 * found.best.limit:.3g}% at "
            f"{getattr(found.best, key):,.6g}."
        )
        labels = Labels(name, title, description, across, "smallest detectable share (%)")
        yield XYChart(labels, tuple(series), log_x=True, log_y=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A comparison and what it was made for; the arguments of `plan_estimates`."""

    comparison: PlanSearch
    share: float | None
    std_error: float | None

    @property
    def goal(self) -> Goal:
        """That of the plan that the result is about."""
        return self.comparison.subject.goal

    @property
    def target(self) -> float:
        """The share for which reports are counted: the wanted one, or a plan's limit."""
        if self.share is not None:
            return self.share
        limit = self.comparison.subject.limit
        return limit if limit < 1 else self.comparison.best.limit

    def row(self, plan: Plan) -> Mapping[str, object]:
        """Return a plan's cells, with nan for what isn't finite."""
        cells: dict[str, object] = {
            "name": plan.name,
            **{name: getattr(plan.params, name) for name in _NUMBERS},
            "epsilon_permanent": plan.params.epsilon_permanent,
            "epsilon_report": plan.epsilon_report,
            "reports": plan.reports,
            "detectable_share": plan.limit,
            "reports_needed": plan.goal.reports_needed(plan.params, self.target),
            "oue_ratio": plan.oue_ratio,
            "std_error": plan.std_error,
            **plan.figures,
            **self._linking(plan.params),
            **(self._of_mode(plan) if plan.goal.schedule else {}),
        }
        return {
            key: math.nan if isinstance(value, float) and math.isinf(value) else value
            for key, value in cells.items()
        }

    def _of_mode(self, plan: Plan) -> dict[str, Any]:
        return mode_figures(plan, self.comparison.subject.reports)

    def modes_table(self) -> Table:
        """Return what each mode and response achieves and reveals, for people."""
        schedule, rows = self.goal.schedule, []
        assert schedule is not None  # noqa: S101 - of all plans with modes
        for plan in self.comparison.plans:
            found = self._of_mode(plan)
            linked = "-"
            if not math.isnan(found["linked_share"]):
                linked = f"{100 * found['linked_share']:.3g}% right"
            elif not math.isnan(found["value_ratio"]):
                linked = f"by value, ≤ x {found['value_ratio']:.3g}"
            known = [found[f"error_{of}"] for of in ("day", "period", "year")]
            spent = [found[f"epsilon_{of}"] for of in ("period", "year", "life")]
            rows.append(
                (
                    plan.name,
                    share_text(plan.limit),
                    *("-" if math.isnan(error) else percents(error) for error in known),
                    *map(epsilon_text, spent),
                    linked,
                )
            )
        period = counted(schedule.period_days, "day")
        errors = ("error: day", period, "year")
        epsilons = (f"ε: {period}", "year, one value", "life, any values")
        return Table(
            self.goal.title(f"{self.comparison.best.reports:,.0f}"),
            headings("mode, response", "shows", *errors, *epsilons, "linked"),
            tuple(rows),
            styles=self._styles(),
        )

    def table(self) -> Table:
        """Return the plans for people."""
        found, rows = self.comparison, []
        own = [self.goal.shown(plan) for plan in found.plans]
        for plan, more in zip(found.plans, own, strict=True):
            params = plan.params
            permanent = f"{params.f0:.6g}, {params.f1:.6g}"
            if params.is_symmetric:
                permanent = f"{params.f:.6g}"
            rows.append(
                (
                    plan.name,
                    *map(str, params[:3]),
                    permanent,
                    *(f"{number:.6g}" for number in (params.p, params.q)),
                    f"{params.epsilon_permanent:.4g}",
                    f"{plan.epsilon_report:.4g}",
                    share_text(plan.limit),
                    reports_text(plan.goal.reports_needed(params, self.target)),
                    percents(plan.std_error),
                    *more.values(),
                    "-" if math.isnan(plan.oue_ratio) else f"{plan.oue_ratio:.2f}",
                )
            )
        parameters = ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report")
        achieved = ("share", f"reports for {self.target:.3%}", "std. error", *own[0])
        return Table(
            self.goal.title(f"{found.best.reports:,.0f}"),
            headings("parameters", *parameters, *achieved, "variance / OUE"),
            tuple(rows),
            styles=self._styles(),
        )

    def _styles(self) -> tuple[str, ...]:
        found = self.comparison
        return tuple("bold" if plan is found.subject else "" for plan in found.plans)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of the result's plan, and its comparison with the best."""
        found, goal, subject = self.comparison, self.goal, self.comparison.subject
        params, power = subject.params, goal.test.power
        yield goal.about_limit(subject)
        if self.share is not None and not math.isclose(self.share, subject.limit, rel_tol=_SAME):
            chance = goal.power(params, subject.reports, self.share)
            needed = goal.reports_needed(params, self.share)
            text = (
                f"{goal.sought} {self.share:.3%} is found with probability {chance:.2f}; with "
                f"{reports_text(needed)} reports, {power:g}."
            )
            yield Finding("power", "", text, chance)
        error = self.std_error
        if error is not None and not math.isclose(error, subject.std_error, rel_tol=_SAME):
            needed = reports_for(goal, params, None, error)
            text = f"An error of {percents(error)} takes {reports_text(needed)} reports."
            yield Finding("reports_for_error", "", text, needed)
        if found.given:
            yield from self._against_best(found.given, found.best)
        if goal.schedule:
            yield from self._mode_findings(goal.schedule)
        yield from goal.remarks(found)

    def _mode_findings(self, schedule: Schedule) -> Iterator[Finding]:
        """Yield what the recommended mode reveals, and how far its reports are linked."""
        subject = self.comparison.subject
        spent, ratio = subject.epsilon_report, value_ratio(subject.epsilon_report)
        life = schedule.max_periods * spent
        text = (
            f"A client answers once in {counted(schedule.period_days, 'day')}, on a day of its "
            f"own, and spends an epsilon of {spent:.4g} each time, {life:.4g} in "
            f"{counted(schedule.max_periods, 'period')} over all versions, whatever its values are."
        )
        yield Finding("epsilon_life", "", text, life)
        text = (
            "Reports of two periods have nothing in common but the value (and dimensions): they "
            f"are at most {ratio:.3g} times as likely from one client as from two, "
            "cosh^2(epsilon/2)."
        )
        yield Finding("value_ratio", "", text, ratio)
        repeated = [plan for plan in self.comparison.plans if plan.goal.test.reports_each > 1]
        if repeated:
            text = (
                f"Longitudinal clients report {counted(schedule.reports_each, 'time')} in "
                f"{counted(schedule.period_days, 'day')}, with an epsilon of "
                f"{repeated[0].epsilon_report:.4g} per report; their response is drawn again for "
                "each period (period), or once for each value (value), and then changes can be "
                "seen."
            )
            yield Finding("longitudinal", "", text, repeated[0].epsilon_report)

    def _against_best(self, given: Plan, best: Plan) -> Iterator[Finding]:
        """Yield what the given parameters spend, and what the best would show."""
        spent = f"One report spends an epsilon of {given.epsilon_report:.4g}, "
        permanent = given.params.epsilon_permanent
        if math.isinf(permanent):
            text = f"{spent}but nothing bounds what several spend: it must be the only one."
            yield Finding("epsilon_unbounded", "", text, permanent, Level.WARNING)
        else:
            text = f"{spent}and all reports from one permanent response together {permanent:.4g}."
            yield Finding("epsilon_permanent", "", text, permanent)
        if given.limit <= best.limit:
            text = "The search finds no better parameters at the same epsilons."
        elif given.limit < math.inf:
            needed = self.goal.reports_needed(best.params, given.limit)
            text = (
                f"The best parameters at the same epsilons show {best.limit:.3%}, a share "
                f"{given.limit / best.limit:.2f} times smaller, or the same share from "
                f"{reports_text(needed)} reports instead of {given.reports:,.0f}."
            )
        else:
            text = f"The best parameters at the same epsilons show {best.limit:.3%}."
        yield Finding("best_limit", "", text, best.limit)

    def _linking(self, params: RapporParams) -> Mapping[str, float]:
        if is_one_time(params):
            return dict.fromkeys(_LINKING, math.nan)
        bits, width = self.goal.all_bits(params)
        nats = [link_information(bits, width, known=known) for known in (False, True)]
        return dict(zip(_LINKING, nats, strict=True))

    def linking_findings(self) -> Iterator[Finding]:
        """Yield how well daily reports are linked by their content, if there is more than one."""
        subject = self.comparison.subject
        params, width = self.goal.all_bits(subject.params)
        if is_one_time(params):
            return
        clients = max(round(self.goal.groups * self.goal.clients(subject.reports)), 1)
        information = link_information(params, width)
        two, many = (right_links(params, width, clients, known=known) for known in (False, True))
        text = (
            f"Anyone who links the shuffled daily reports of {clients:,} clients by their content "
            f"alone is right for {100 * two:.3g}% of them from two days, and for at most "
            f"{100 * many:.3g}% from many ({information:.3g} nats per pair, against ln(clients/m) "
            f"= {math.log(clients / params.m):.3g}; docs/understand/proofs.md, Linking by "
            "content)."
        )
        yield Finding("linked_share", "", text, two)
