"""A plan for a joint metric as a result: its parameters, its table's errors, what parts would do.

Formats, column names and curves are those of strings' plans, where they mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hubbub.decoder.results.result import Table, Types, headings
from hubbub.planning.joint import (
    GIVEN_SHARE,
    JointComparison,
    JointPlan,
    JointPoint,
    joint_by_epsilon,
    joint_by_reports,
)
from hubbub.planning.planned import (
    PlannedResult,
    Points,
    entry_text,
    finite_or_nan,
    reports_text,
    share_text,
)
from hubbub.planning.tables import (
    TEST_LEVEL,
    cell_reports_needed,
    error_reports_needed,
)
from hubbub.protocol.metric_types.joint import MOST_FIELDS
from hubbub.protocol.params import RapporParams

_WIDTH = 100


@dataclass(frozen=True, slots=True, repr=False)
class JointPlanResult(PlannedResult[JointPlan]):
    """What was planned, and its question.

    Attributes
    ----------
    std_error : float or None
        Of an empty cell, that reports should have.
    """

    comparison: JointComparison
    share: float | None
    name: str
    std_error: float | None = None

    columns: ClassVar[Types] = {
        "name": str,
        **dict.fromkeys(("k", "h", "m"), int),
        **dict.fromkeys(("f", "p", "q", "epsilon_permanent", "epsilon_report", "reports"), float),
        **dict.fromkeys(("detectable_share", "reports_needed", "oue_ratio", "std_error"), float),
        **dict.fromkeys((f"margin_std_error_{i + 1}" for i in range(MOST_FIELDS)), float),
        **dict.fromkeys(("conditional_std_error", "total_variation", "partner_share"), float),
        "hashed": bool,
    }
    curves: ClassVar[Mapping[str, str]] = {
        "detectable_share": "detected cell",
        "std_error": "standard error",
    }
    y_axis: ClassVar[str] = "share (%)"

    def achieved(self, plan: JointPlan) -> Mapping[str, object]:
        """Return the table's errors."""
        margins = [*plan.margins, math.nan, math.nan, math.nan][:MOST_FIELDS]
        return {
            "std_error": plan.std_error,
            **{f"margin_std_error_{i + 1}": error for i, error in enumerate(margins)},
            "conditional_std_error": plan.conditional,
            "total_variation": plan.total_variation,
            "partner_share": finite_or_nan(plan.association),
            "hashed": plan.hashed,
        }

    def bits(self, plan: JointPlan) -> tuple[RapporParams, int | None]:
        """Return the parameters, and the number of cells unless they are hashed."""
        return plan.params, None if plan.hashed else self.comparison.question.cells

    def reports_needed(self, plan: JointPlan) -> float:
        """Return how many reports a plan's parameters need for the target."""
        return cell_reports_needed(plan.params, self.target, self.comparison.question)

    def question(self) -> Mapping[str, object]:
        """Return the table's sizes, error rate and power, and what parts of the epsilons do."""
        question, split = self.comparison.question, self.comparison.split
        return {
            "cells": list(question.sizes),
            "alpha": question.alpha,
            "power": question.power,
            "std_error": self.std_error,
            "given_share": GIVEN_SHARE,
            "test_level": TEST_LEVEL,
            "margin_std_errors_apart": list(split.margins),
            "cell_variance_side_by_side": split.cell_ratio,
        }

    def by_epsilon(self) -> Points:
        """Return limits and errors over epsilons of a report."""
        return _points(joint_by_epsilon(self.comparison), "epsilon_report")

    def by_reports(self) -> Points:
        """Return limits and errors over N."""
        return _points(joint_by_reports(self.comparison), "reports")

    def table(self) -> Table:
        """Return the plans for people."""
        rows = [
            (
                plan.name,
                *map(str, plan.params[:3]),
                *(f"{number:.6g}" for number in plan.params[3:]),
                f"{plan.params.epsilon_permanent:.4g}",
                f"{plan.params.epsilon_report:.4g}",
                share_text(plan.limit),
                reports_text(self.reports_needed(plan)),
                _percents((plan.std_error,)),
                "-" if math.isnan(plan.total_variation) else f"{plan.total_variation:.3f}",
                f"{plan.oue_ratio:.2f}",
            )
            for plan in self.plans
        ]
        parameters = ("k", "h", "m", "f", "p", "q", "ε permanent", "ε report")
        achieved = ("cell", f"reports for {self.target:.3%}", "std. error", "total variation")
        return Table(
            f"Smallest cell of {self._sizes()} that {self.comparison.best.reports:,.0f} reports "
            "show",
            headings("parameters", *parameters, *achieved, "variance / OUE"),
            tuple(rows),
            styles=tuple("bold" if plan is self.subject else "" for plan in self.plans),
        )

    def sentences(self) -> Iterator[str]:
        """Yield what is seen of cells, margins and their association, and what parts would do."""
        question, plan = self.comparison.question, self.subject
        where = f"among {question.cells:,} cells with probability {question.power:g}"
        basis = f"(alpha {question.alpha:g}, Bonferroni)"
        if plan.limit < math.inf:
            yield f"A cell that {plan.limit:.3%} are in is detected {where} {basis}."
        else:
            yield f"No cell is detected {where} {basis}."
        if self.std_error is not None and not math.isclose(
            self.std_error, plan.std_error, rel_tol=1e-3
        ):
            needed = error_reports_needed(plan.params, self.std_error, question)
            wanted = _percents((self.std_error,))
            yield f"An error of {wanted} takes {reports_text(needed)} reports."
        if plan.hashed:
            yield (
                f"{question.cells:,} cells are hashed into {plan.params.k:,} bits: margins add up "
                "the errors of as many cells as they have."
            )
        else:
            yield from self._about_table(plan)
        if self.comparison.given:
            yield f"The best parameters show {share_text(self.comparison.best.limit)}."
        size = plan.params.k // 8
        yield f"A report has {size:,} bytes." if size > 1 else "A report has 1 byte."

    def entry(self) -> str:
        """Return the entry of a joint metric, with fields to be filled in."""
        best = self.comparison.best
        keys = ("k", "h", "m") if best.hashed else ()
        fields: list[str] = []
        for i, size in enumerate(self.comparison.question.sizes):
            fields += ["", f"[[metrics.{self.name}.fields]]", f'name = "field_{i + 1}"']
            fields += ['type = "boolean"'] if size == 2 else ['type = "enum"', *_categories(size)]
        return entry_text(best.params, self.name, "joint", keys, after=fields)

    def describe(self, across: str, at: str, share: str) -> str:
        """Return a picture's alternative text."""
        return f"Smallest cell that is detected, by {across}: {share} at {at}; and its error."

    def _sizes(self) -> str:
        return " x ".join(map(str, self.comparison.question.sizes))

    def _about_table(self, plan: JointPlan) -> Iterator[str]:
        """Yield the errors of sums over cells, and the comparison with parts of the epsilons."""
        question, split = self.comparison.question, self.comparison.split
        fields = len(question.sizes)
        part = {2: "half", 3: "a third of"}[fields]
        yield (
            f"Standard errors: of a rare cell {_percents((plan.std_error,))}; of a rare value of "
            f"each field {_percents(plan.margins)};"
        )
        yield (
            "of an average value of the last field among those with a value of the first that "
            f"{GIVEN_SHARE:.0%} have {_percents((plan.conditional,))}."
        )
        yield (
            "If fields are independent, each by Zipf's law, the nearest possible table is off by "
            f"{plan.total_variation:.3f} (total variation) on average."
        )
        if fields == 2:
            found = (
                f"shows with probability {question.power:g} that a value's partner goes with it "
                f"for {plan.association:.1%} of the clients."
                if math.isfinite(plan.association)
                else "shows nothing."
            )
            yield f"The test of independence (level {TEST_LEVEL:g}) {found}"
        yield (
            f"As {fields} metrics apart, with {part} the epsilons each, rare values would have "
            f"errors of {_percents(split.margins)}, and no table."
        )
        yield (
            f"Side by side in one report, with {part} the epsilons each, cells would vary "
            f"{split.cell_ratio:.1f} times as much as they do at best."
        )


def _percents(errors: tuple[float, ...]) -> str:
    return ", ".join(f"{100 * error:.3g}%" for error in errors)


def _points(points: list[JointPoint], across: str) -> Points:
    return [
        {across: point.at, "detectable_share": point.limit, "std_error": point.std_error}
        for point in points
    ]


def _categories(size: int) -> list[str]:
    """Return lines with as many categories, which are numbers."""
    lines, line = [f"categories = [  # {size} texts"], "   "
    for text in (f' "{i + 1}",' for i in range(size)):
        if len(line) + len(text) > _WIDTH:
            lines.append(line)
            line = "   "
        line += text
    return [*lines, line, "]"]
