"""A plan as estimates: one row for each set of parameters, a curve, an entry for metrics.toml.

The same columns, documents, sentences and chart for every goal; what a goal has of its own it
adds itself. Invariant: nan and "never" stand for what isn't finite, in all formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hubbub.planning.goals import (
    Plan,
    PlanSearch,
    Schedule,
    clients_text,
    epsilon_text,
    is_one_time,
    percents,
    reports_text,
    share_text,
)
from hubbub.planning.histories import linked_clients, value_ratio
from hubbub.planning.modes import MODE_COLUMNS, mode_figures
from hubbub.planning.search import against_reports, reports_for
from hubbub.protocol import counted
from hubbub.reporting import (
    Column,
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
    headings,
)

_SAME = 1e-3  # relative: numbers that print alike, so that a sentence about one is enough
_NUMBERS = ("k", "h", "m", "f", "p", "q", "f0", "f1")
_COLUMNS: Types = {
    "name": str,
    **dict.fromkeys(("k", "h", "m"), int),
    **dict.fromkeys(("f", "p", "q", "f0", "f1"), float),
    **dict.fromkeys(("epsilon_permanent", "epsilon_report", "reports"), float),
    **dict.fromkeys(("detectable_share", "reports_needed", "std_error"), float),
}


def plan_estimates(
    found: PlanSearch, name: str, share: float | None = None, std_error: float | None = None
) -> Estimates:
    """Return what was planned: a row for each plan, a curve, and what the best one means.

    `share` is to be found, by default the limit of the plan in question; `std_error` is what an
    absent value's share should have.
    """
    subject, goal = found.subject, found.subject.goal
    target = share if share is not None else subject.limit
    if math.isinf(target):
        target = found.best.limit
    modes = {
        plan.name: mode_figures(plan, schedule, subject.reports)
        for plan in found.plans
        if (schedule := plan.goal.schedule)
    }
    own = {key: type(value) for key, value in found.best.figures.items()}
    types = {**_COLUMNS, **own, **(MODE_COLUMNS if modes else {})}
    findings = (*_findings(found, share, std_error), *goal.remarks(subject), *_linking(subject))
    curve = against_reports(found)
    best = [Line("The best parameters at these epsilons:\n", wraps=False)] if found.given else []
    rows = [_row(plan, target) | modes.get(plan.name, {}) for plan in found.plans]
    rows = [
        {key: math.nan if value == math.inf else value for key, value in row.items()}
        for row in rows
    ]
    table = _modes_table(found, modes, goal.schedule) if goal.schedule else _table(found, target)
    return Estimates(
        columns={name: Column(of, [row[name] for row in rows]) for name, of in types.items()},
        keys=("name",),
        findings=findings,
        metadata={
            "question": {
                "epsilon_permanent": found.budget.permanent,
                "epsilon_report": found.budget.report,
                **goal.asked(),
                "share": target,
                "std_error": std_error,
            },
            "by_reports": curve,
        },
        view=(
            table,
            Line(""),
            *as_lines(findings, wraps=True),
            Line(""),
            *best,
            Line(goal.entry(found.best.params, name)),
        ),
        charts=(_chart(found, curve),),
    )


def _chart(found: PlanSearch, curve: Sequence[Mapping[str, float]]) -> XYChart:
    """Return the limit against N, with plans as points."""
    best = found.best
    at = np.array([point["reports"] for point in curve])
    limits = np.array([100 * point["detectable_share"] for point in curve])
    series = [Series("best", at, limits)]
    marked = {("the best" if found.given else "this plan"): best}
    if found.given:
        marked[found.given.name] = found.given
    for label, plan in marked.items():
        series.append(
            Series(label, np.array([plan.reports]), np.array([100 * plan.limit]), "points")
        )
    description = (
        f"Smallest share that reports show, by reports: {100 * best.limit:.3g}% at "
        f"{best.reports:,.6g}."
    )
    title = f"epsilon {found.budget.report:g} per report"
    labels = Labels("by-reports", title, description, "reports", "smallest detectable share (%)")
    return XYChart(labels, tuple(series), log_x=True, log_y=True)


def _row(plan: Plan, target: float) -> dict[str, Any]:
    return {
        "name": plan.name,
        **{name: getattr(plan.params, name) for name in _NUMBERS},
        "epsilon_permanent": plan.params.epsilon_permanent,
        "epsilon_report": plan.epsilon_report,
        "reports": plan.reports,
        "detectable_share": plan.limit,
        "reports_needed": plan.goal.reports_needed(plan.params, target),
        "std_error": plan.std_error,
        **plan.figures,
    }


def _modes_table(
    found: PlanSearch, modes: Mapping[str, Mapping[str, Any]], schedule: Schedule
) -> Table:
    """Return what each mode and response achieves and reveals, for people."""
    rows = []
    for plan in found.plans:
        figures = modes[plan.name]
        linked = "-"
        if not math.isnan(clients := figures["linked_clients"]):
            linked = f"most among {clients_text(clients)}"
        elif not math.isnan(figures["value_ratio"]):
            linked = f"by value, ≤ x {figures['value_ratio']:.3g}"
        errors = [figures[f"error_{of}"] for of in ("day", "period", "year")]
        spent = [figures[f"epsilon_{of}"] for of in ("period", "year", "life")]
        rows.append(
            (
                plan.name,
                share_text(plan.limit),
                *("-" if math.isnan(error) else percents(error) for error in errors),
                *map(epsilon_text, spent),
                linked,
            )
        )
    period = counted(schedule.period_days, "day")
    heads = headings(
        "mode, response", "shows", "error: day", period, "year",
        f"ε: {period}", "year, one value", "life, any values", "linked",
    )  # fmt: skip
    title = found.best.goal.title(f"{found.best.reports:,.0f}")
    return Table(title, heads, tuple(rows), styles=_styles(found))


def _table(found: PlanSearch, target: float) -> Table:
    """Return the plans for people."""
    rows = []
    for plan in found.plans:
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
                epsilon_text(params.epsilon_permanent),
                epsilon_text(plan.epsilon_report),
                share_text(plan.limit),
                reports_text(plan.goal.reports_needed(params, target)),
                percents(plan.std_error),
            )
        )
    heads = headings(
        "parameters", "k", "h", "m", "f", "p", "q", "ε permanent", "ε report",
        "share", f"reports for {target:.3%}", "std. error",
    )  # fmt: skip
    title = found.subject.goal.title(f"{found.best.reports:,.0f}")
    return Table(title, heads, tuple(rows), styles=_styles(found))


def _styles(found: PlanSearch) -> tuple[str, ...]:
    return tuple("bold" if plan is found.subject else "" for plan in found.plans)


def _findings(found: PlanSearch, share: float | None, std_error: float | None) -> Iterator[Finding]:
    """Yield what the result's plan finds, and its comparison with the best."""
    subject, goal = found.subject, found.subject.goal
    params, power = subject.params, goal.test.power
    yield Finding("detection_limit", "", goal.about_limit(subject), subject.limit)
    if share is not None and not math.isclose(share, subject.limit, rel_tol=_SAME):
        chance = goal.power(params, subject.reports, share)
        needed = goal.reports_needed(params, share)
        text = (
            f"{goal.sought} {share:.3%} is found with probability {chance:.2f}; with "
            f"{reports_text(needed)} reports, {power:g}."
        )
        yield Finding("power", "", text, chance)
    if std_error is not None and not math.isclose(std_error, subject.std_error, rel_tol=_SAME):
        needed = reports_for(goal, params, None, std_error)
        text = f"An error of {percents(std_error)} takes {reports_text(needed)} reports."
        yield Finding("reports_for_error", "", text, needed)
    if found.given:
        yield from _against_best(found.given, found.best)
    if goal.schedule:
        yield from _mode_findings(found, goal.schedule)
    text = f"A report has {counted(params.k // 8, 'byte')}."
    yield Finding("report_bytes", "", text, params.k // 8)


def _mode_findings(found: PlanSearch, schedule: Schedule) -> Iterator[Finding]:
    """Yield what the recommended mode reveals, and how far its reports are linked."""
    subject = found.subject
    spent, ratio = subject.epsilon_report, value_ratio(subject.epsilon_report)
    life = schedule.max_periods * spent
    text = (
        f"A client answers once in {counted(schedule.period_days, 'day')}, on a day of its "
        f"own, and spends an epsilon of {epsilon_text(spent)} each time, {epsilon_text(life)} in "
        f"{counted(schedule.max_periods, 'period')} over all versions, whatever its values are."
    )
    yield Finding("epsilon_life", "", text, life)
    text = (
        "Reports of two periods have nothing in common but the value (and dimensions): they "
        f"are at most {ratio:.3g} times as likely from one client as from two, "
        "cosh^2(epsilon/2)."
    )
    yield Finding("value_ratio", "", text, ratio)
    repeated = next((plan for plan in found.plans if plan.goal.test.reports_each > 1), None)
    if repeated:
        spent = repeated.epsilon_report
        text = (
            f"Longitudinal clients report every day, with an epsilon of {epsilon_text(spent)} per "
            "report; their response is drawn again for each period (period), or once for each "
            "value (value), and then changes can be seen."
        )
        yield Finding("longitudinal", "", text, spent)


def _against_best(given: Plan, best: Plan) -> Iterator[Finding]:
    """Yield what the given parameters spend, and what the best would show."""
    spent = f"One report spends an epsilon of {epsilon_text(given.epsilon_report)}, "
    permanent = given.params.epsilon_permanent
    if math.isinf(permanent):
        text = f"{spent}but nothing bounds what several spend: it must be the only one."
        yield Finding("epsilon_unbounded", "", text, permanent, Level.WARNING)
    else:
        bound = epsilon_text(permanent)
        text = f"{spent}and all reports from one permanent response together {bound}."
        yield Finding("epsilon_permanent", "", text, permanent)
    if given.limit <= best.limit:
        text = "The search finds no better parameters at the same epsilons."
    elif given.limit < math.inf:
        needed = given.goal.reports_needed(best.params, given.limit)
        text = (
            f"The best parameters at the same epsilons show {best.limit:.3%}, a share "
            f"{given.limit / best.limit:.2f} times smaller, or the same share from "
            f"{reports_text(needed)} reports instead of {given.reports:,.0f}."
        )
    else:
        text = f"The best parameters at the same epsilons show {best.limit:.3%}."
    yield Finding("best_limit", "", text, best.limit)


def _linking(plan: Plan) -> Iterator[Finding]:
    """Yield how well daily reports are linked by their content, if there is more than one."""
    if is_one_time(plan.params):
        return
    clients = linked_clients(*plan.goal.all_bits(plan.params))
    text = (
        "All reports of an answer hold the same permanent noise. Anyone who links the shuffled "
        "reports of two days by their content alone is right for more than half of them among up "
        f"to {clients_text(clients)} clients, and with more days among more."
    )
    yield Finding("linked_clients", "", text, clients)
