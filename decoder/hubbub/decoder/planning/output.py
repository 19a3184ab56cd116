"""A plan as people and programs want it: tables, the metrics.toml entry, CSV, JSON, a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hubbub.client.params import RapporParams
from hubbub.decoder.errors import PlanError
from hubbub.decoder.output.cells import cell, csv_line, finite_fields
from hubbub.decoder.output.files import Rendering, utf8
from hubbub.decoder.planning.curves import Point, limit_by_epsilon, limit_by_reports
from hubbub.decoder.planning.limits import detection_power, reports_needed
from hubbub.decoder.planning.plans import Comparison, Plan


@dataclass(frozen=True, slots=True)
class Answer:
    """A search's result, and what was asked.

    Attributes
    ----------
    comparison : Comparison
    share : float or None
        A share that is to be found; None: the best plan's limit.
    """

    comparison: Comparison
    share: float | None

    @property
    def target(self) -> float:
        """The share for which reports are counted."""
        return self.comparison.best.limit if self.share is None else self.share

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, in the order of the table."""
        found = self.comparison
        others = (found.simple, found.paper)
        return (found.best, *(plan for plan in others if plan), *found.by_hashes)


def renderings(answer: Answer) -> dict[str, Rendering]:
    """Return the ways to write a plan, by suffix."""
    return {
        ".csv": utf8(lambda: _csv(answer)),
        ".json": utf8(lambda: [_json(answer)]),
        ".png": lambda file: _plot(answer, file, "png"),
        ".svg": lambda file: _plot(answer, file, "svg"),
    }


def show(answer: Answer, console: Console, name: str) -> None:
    """Print the table, what it means, and the metrics.toml entry of the best plan."""
    console.print(Group(_table(answer), Text()))
    for line in _findings(answer):
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
    console.print(entry(answer.comparison.best.params, name), highlight=False, markup=False)


def entry(params: RapporParams, name: str) -> str:
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in."""
    noise = {"f": params.f, "p": params.p, "q": params.q}
    one_time = params.f == 0 or (params.p, params.q) == (0.0, 1.0)
    if one_time and params.f:
        del noise["p"], noise["q"]
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        'type = "string"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *(['mode = "one-time"'] if one_time else []),
        *(f"{key} = {getattr(params, key)}" for key in ("k", "h", "m")),
        *(f"{key} = {value!r}" for key, value in noise.items()),
    ]
    return "\n".join(lines)


def _table(answer: Answer) -> Table:
    found = answer.comparison
    reports = f"{found.best.reports:,.0f} reports"
    table = Table(title=f"Smallest share that {reports} show", title_justify="left")
    table.add_column("parameters")
    for heading in ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report", "share", "reports for",
                    "variance"):  # fmt: skip
        table.add_column(heading, justify="right")
    table.columns[-2].header = f"reports for {answer.target:.3%}"
    table.columns[-1].header = "variance / OUE"
    for plan in answer.plans:
        params = plan.params
        table.add_row(
            plan.name,
            *map(str, params[:3]),
            *(f"{number:.6g}" for number in params[3:]),
            f"{params.epsilon_permanent:.4g}",
            f"{params.epsilon_report:.4g}",
            _share(plan.limit),
            _reports(reports_needed(params, answer.target, found.question)),
            f"{plan.oue_ratio:.2f}",
            style="bold" if plan is found.best else None,
        )
    return table


def _findings(answer: Answer) -> Iterator[str]:
    found, question = answer.comparison, answer.comparison.question
    best = found.best
    yield (
        f"A string held by {best.limit:.3%} is detected among {question.candidates:,.0f} "
        f"candidates with probability {question.power:g} (alpha {question.alpha:g}, Bonferroni; "
        f"method {question.method.value})."
    )
    if answer.share is not None and not math.isclose(answer.share, best.limit, rel_tol=1e-3):
        power = detection_power(best.params, best.reports, answer.share, question)
        needed = reports_needed(best.params, answer.share, question)
        yield (
            f"One held by {answer.share:.3%} is found with probability {power:.2f}; "
            f"{_reports(needed)} reports make it {question.power:g}."
        )
    if found.paper:
        yield (
            f"The RAPPOR paper's default at the same epsilons needs a share "
            f"{found.paper.limit / best.limit:.2f} times as large."
        )
    yield (
        f"An estimate varies {best.oue_ratio:.2f} times as much as with optimal unary encoding "
        "(Wang et al. 2017), which knows the list of strings before it asks."
    )
    yield f"A report has {best.params.k // 8} bytes; {_per_cohort(best):,.0f} are in each cohort."


def _per_cohort(plan: Plan) -> float:
    return plan.reports / plan.params.m


def _row(plan: Plan, answer: Answer) -> dict[str, object]:
    params = plan.params
    return {
        "name": plan.name,
        **params._asdict(),
        "epsilon_permanent": params.epsilon_permanent,
        "epsilon_report": params.epsilon_report,
        "reports": plan.reports,
        "detectable_share": plan.limit,
        "reports_needed": reports_needed(params, answer.target, answer.comparison.question),
        "oue_ratio": plan.oue_ratio,
    }


def _csv(answer: Answer) -> Iterator[str]:
    rows = [finite_fields(_row(plan, answer)) for plan in answer.plans]
    yield csv_line(list(rows[0]))
    for row in rows:
        yield csv_line(["" if value is None else cell(value) for value in row.values()])  # type: ignore[arg-type]


def _json(answer: Answer) -> str:
    found, question = answer.comparison, answer.comparison.question
    document = {
        "question": {
            "epsilon_permanent": found.budget.permanent,
            "epsilon_report": found.budget.report,
            "candidates": question.candidates,
            "alpha": question.alpha,
            "power": question.power,
            "method": question.method.value,
            "concentration": question.concentration,
            "share": answer.target,
        },
        "rows": [finite_fields(_row(plan, answer)) for plan in answer.plans],
        "by_epsilon_report": _points(limit_by_epsilon(found), "epsilon_report"),
        "by_reports": _points(limit_by_reports(found), "reports"),
    }
    document["question"] = finite_fields(document["question"])  # type: ignore[arg-type]
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _points(points: list[Point], across: str) -> list[dict[str, object]]:
    return [
        finite_fields({across: point.at, "detectable_share": point.best, "paper": point.paper})
        for point in points
    ]


def _plot(answer: Answer, file: BinaryIO, form: str) -> None:
    """Draw the curves.

    Raises
    ------
    PlanError
        If matplotlib isn't installed.
    """
    try:
        from hubbub.decoder.planning.plot import draw  # noqa: PLC0415 - an extra that only plots need
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise PlanError(
            f"a plot (.{form}) needs matplotlib: pip install 'hubbub[simulations]', "
            "or write .json or .csv"
        ) from error
    draw(answer.comparison, file, form)


def _share(share: float) -> str:
    return f"{share:.3%}" if share < math.inf else "none"


def _reports(reports: float) -> str:
    return f"{reports:,.0f}" if reports < math.inf else "never"
