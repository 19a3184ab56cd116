"""A table of several fields as a goal: a bit per cell or hashes, and how well it will be known.

Cells have a bit each while they fit, and are hashed otherwise; noise is the least that both
epsilons allow. Where cells are hashed, a cell is found as a listed string is, among as many
candidates as there are cells. Invariant: the tuple is one value, so both epsilons are those of a
string with as many hashes, whichever field changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from hubbub.inference.errors import PlanError
from hubbub.planning.goals import Curve, Goal, Plan, PlanSearch, SearchSpace, limit_finding
from hubbub.planning.limits import DetectionTest, equivalent_reports
from hubbub.planning.noise import Budget, rare_rate
from hubbub.planning.search import fitted_curve, least_noise_rate
from hubbub.planning.strings import StringsGoal
from hubbub.planning.tables import (
    MOST_REPORTS,
    TEST_LEVEL,
    TableErrors,
    association_limit,
    bit_limit,
    bit_power,
    bit_reports_needed,
    expected_total_variation,
)
from hubbub.planning.wording import category_lines, entry_text, percents
from hubbub.protocol.metric_types.joint import (
    FEWEST_FIELDS,
    MOST_FIELDS,
    JointType,
    number_of_values,
)
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.plurals import counted
from hubbub.reporting.blocks import Types
from hubbub.reporting.estimates import Finding

GIVEN_SHARE = 0.1
"""Share of the clients among whom conditional shares are stated: a value that is common, but not
the commonest."""

_FEWEST_VALUES, _MOST_VALUES = 2, 4096  # of a field: a boolean's, and as many as a report has bits
_MARGINS = [f"margin_std_error_{i + 1}" for i in range(MOST_FIELDS)]


@dataclass(frozen=True, slots=True)
class TableGoal(Goal):
    """The rarest cell of a table of two or three fields that reports show (`table_goal`)."""

    sizes: tuple[int, ...]  # how many values each field has

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.sizes)

    def is_hashed(self, params: RapporParams) -> bool:
        """Return whether cells are hashed with some parameters.

        As the registry has it: where all cells have a bit, there is one hash and one cohort.

        Raises `PlanError` if there are hashes or cohorts although each cell has a bit.
        """
        if params.k < self.cells:
            return True
        if (params.h, params.m) != (1, 1):
            raise PlanError(
                f"h = {params.h}, m = {params.m}: must be 1 where each of {self.cells:,} cells has "
                "a bit"
            )
        return False

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the smallest share of a cell that N reports show."""
        if self.is_hashed(params):
            return super(TableGoal, self).limit(params, n_reports)
        return bit_limit(params, self.clients(n_reports), self.test)

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of an empty cell's share."""
        if self.is_hashed(params):
            return super(TableGoal, self).error(params, n_reports)
        return self._errors(params).of_cell() / math.sqrt(self.clients(n_reports))

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which N reports show a cell of a share."""
        if self.is_hashed(params):
            return super(TableGoal, self).power(params, n_reports, share)
        return bit_power(params, self.clients(n_reports), share, self.test)

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return about how many reports detect a cell of a share."""
        if self.is_hashed(params):
            return super(TableGoal, self).reports_needed(params, share)
        return bit_reports_needed(params, share, self.test) / self.clients(1.0)

    def figures(self, params: RapporParams, n_reports: float) -> Mapping[str, Any]:
        """Return the errors of sums over cells (nan if these are hashed), and whether they are.

        The error of an average value of the last field among those with a value of the first that
        `GIVEN_SHARE` have; the expected total variation of the typical table; and the share of
        clients with a partner value that the test of independence finds (`tables.partner_table`).
        """
        names = (*_MARGINS, "conditional_std_error", "total_variation", "partner_share")
        figures: dict[str, Any] = dict.fromkeys(names, math.nan)
        figures["hashed"] = self.is_hashed(params)
        if figures["hashed"]:
            return figures
        clients, each = self.clients(n_reports), self.test.reports_each
        errors, scale = self._errors(params), 1 / math.sqrt(clients)
        first, last = self.sizes[0], self.sizes[-1]
        for name, size in zip(_MARGINS, self.sizes, strict=False):
            figures[name] = scale * errors.of_margin(size)
        conditional = errors.of_conditional(first, last, GIVEN_SHARE, 1 / last)
        figures["conditional_std_error"] = scale * conditional
        once = equivalent_reports(params, clients, each)
        figures["total_variation"] = expected_total_variation(params, once, self.sizes)
        figures["partner_share"] = association_limit(params, once, self.sizes, self.test.power)
        return figures

    def _errors(self, params: RapporParams) -> TableErrors:
        return TableErrors(params, self.cells, self.test.reports_each)

    def margins(self, plan: Plan) -> tuple[float, ...]:
        """Return the errors of a rare value's share of each field."""
        return tuple(plan.figures[name] for name in _MARGINS[: len(self.sizes)])

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:
        """Return a bit per cell with the least noise if there are so many; else one hash."""
        if n_reports > MOST_REPORTS:
            raise PlanError(
                f"reports = {n_reports:g}: must be at most {MOST_REPORTS:g} for a table"
            )
        if self.cells > most_bits:
            return [StringsGoal(self.test).hashed(1, n_reports, most_bits)]
        k = -(-self.cells // 8) * 8
        return [SearchSpace(1, (k,), lambda _: (1,), (k, 1), least_noise_rate(1, budget))]

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return a cell's limit and error."""
        rate = partial(least_noise_rate, 1)
        return {
            "detectable_share": fitted_curve("detected cell", self.limit, found.best, rate),
            "std_error": fitted_curve("standard error", self.error, found.best, rate),
        }

    @property
    def columns(self) -> Types:
        """The table's errors, and whether its cells are hashed."""
        errors = (*_MARGINS, "conditional_std_error", "total_variation", "partner_share")
        return {**dict.fromkeys(errors, float), "hashed": bool}

    def shown(self, plan: Plan) -> Mapping[str, str]:
        """Return the total variation."""
        variation = plan.figures["total_variation"]
        return {"total variation": "-" if math.isnan(variation) else f"{variation:.3f}"}

    def asked(self, found: PlanSearch) -> Mapping[str, object]:
        """Return the table's sizes, error rate and power, and what parts of the epsilons do."""
        split = split_epsilons(self.sizes, found.budget, found.best.reports)
        return {
            "cells": list(self.sizes),
            "alpha": self.test.alpha,
            "power": self.test.power,
            "given_share": GIVEN_SHARE,
            "test_level": TEST_LEVEL,
            "margin_std_errors_apart": list(split.margins),
            "cell_variance_side_by_side": split.cell_ratio,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest cell of {' x '.join(map(str, self.sizes))} that {reports} reports show"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which cell is detected, among how many."""
        cell = f"A cell that {plan.limit:.3%} are in" if plan.limit < math.inf else "No cell"
        return limit_finding(
            plan,
            f"{cell} is detected among {self.cells:,} cells with probability "
            f"{self.test.power:g} (alpha {self.test.alpha:g}, Bonferroni).",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what is seen of margins and their association, and what parts would do."""
        plan = found.subject
        if self.is_hashed(plan.params):
            text = (
                f"{self.cells:,} cells are hashed into {plan.params.k:,} bits: margins add up "
                "the errors of as many cells as they have."
            )
            yield Finding("hashed", "", text, True)
        else:
            yield from self._about_sums(
                plan, split_epsilons(self.sizes, found.budget, plan.reports)
            )
        size = plan.params.k // 8
        text = f"A report has {counted(size, 'byte')}."
        yield Finding("report_bytes", "", text, size)

    def _about_sums(self, plan: Plan, split: Split) -> Iterator[Finding]:
        """Yield the errors of sums over cells, and the comparison with parts of the epsilons."""
        fields, figures = len(self.sizes), plan.figures
        part = {2: "half", 3: "a third of"}[fields]
        text = (
            f"Standard errors: {percents(plan.std_error)} for a rare cell; "
            f"{percents(*self.margins(plan))} for a rare value of each field; "
            f"{percents(figures['conditional_std_error'])} for an average value of the last field, "
            f"among those with a value of the first field that {GIVEN_SHARE:.0%} have."
        )
        yield Finding("std_error", "", text, plan.std_error)
        text = (
            "If the fields are independent and each follows Zipf's law, the closest possible "
            f"table is off by {figures['total_variation']:.3f} (total variation) on average."
        )
        yield Finding("total_variation", "", text, figures["total_variation"])
        if fields == 2:
            partners = figures["partner_share"]
            shows = (
                f"notices with probability {self.test.power:g} if {partners:.1%} of the clients "
                "hold a value together with its partner."
                if math.isfinite(partners)
                else "shows nothing."
            )
            text = f"The test of independence (level {TEST_LEVEL:g}) {shows}"
            yield Finding("partner_share", "", text, partners)
        text = (
            f"As {fields} separate metrics, with {part} the epsilons each, rare values would "
            f"have errors of {percents(*split.margins)}, and there would be no table."
        )
        yield Finding("margin_std_errors_apart", "", text, list(split.margins))
        text = (
            f"Side by side in one report, with {part} the epsilons each, cells would vary "
            f"{split.cell_ratio:.1f} times as much as they do at best."
        )
        yield Finding("cell_variance_side_by_side", "", text, split.cell_ratio)

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters, and the number of cells unless they are hashed."""
        return params, None if self.is_hashed(params) else self.cells

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a joint metric, with fields to be filled in."""
        keys = ("k", "h", "m") if self.is_hashed(params) else ()
        fields: list[str] = []
        for i, size in enumerate(self.sizes):
            fields += ["", f"[[metrics.{name}.fields]]", f'name = "field_{i + 1}"']
            fields += (
                ['type = "boolean"'] if size == 2 else ['type = "enum"', *category_lines(size)]
            )
        return entry_text(params, name, "joint", keys, self.schedule, after=fields)


class Split(NamedTuple):
    """Fields that share the epsilons instead, an equal part each."""

    # Standard errors of a value's share of each field that nobody has, as metrics apart.
    margins: tuple[float, ...]
    # How much more an empty cell's estimate varies if each report has all fields side by side.
    cell_ratio: float


def split_epsilons(sizes: tuple[int, ...], budget: Budget, n_reports: float) -> Split:
    """Return what fields with equal parts of a budget would be."""
    part = Budget(budget.permanent / len(sizes), budget.report / len(sizes))
    apart, together = (_least_variance(each) for each in (part, budget))
    # Of a field's values that have a bit each, the sum is known (see TableErrors).
    margins = (math.sqrt(apart * (1 - 1 / size) / n_reports) for size in sizes)
    return Split(tuple(margins), apart ** len(sizes) / together)


def table_goal(sizes: tuple[int, ...], alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a table, whose cells are tested as strings of which Zipf's law holds.

    `sizes`: how many values each field has. `alpha`: chance of even one false cell among the
    detected (Bonferroni). `power`: probability with which a cell of the limit's share is to be
    detected. Raises `PlanError` if a number is out of range.
    """
    shown = "x".join(map(str, sizes))
    if not FEWEST_FIELDS <= len(sizes) <= MOST_FIELDS:
        raise PlanError(
            f"cells = {shown}: must be {FEWEST_FIELDS} or {MOST_FIELDS} numbers of values, "
            "as 100x20"
        )
    if not all(_FEWEST_VALUES <= size <= _MOST_VALUES for size in sizes):
        raise PlanError(
            f"cells = {shown}: each field must have {_FEWEST_VALUES} to {_MOST_VALUES:,} values"
        )
    return TableGoal(DetectionTest(math.prod(sizes), alpha, power), sizes)


def joint_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a joint metric's table.

    `metric`: of type `joint`. `alpha` and `power`: as `table_goal` has them. Raises `PlanError` if
    it is of another type, or has a field of strings, which have no number.
    """
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    if not isinstance(metric.type, JointType):
        raise PlanError(f"{what}: must be 'joint' to be planned as a table")
    sizes = tuple(number_of_values(each.type) for each in metric.type.fields)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise PlanError(
            f"{what}: has a field of strings, so there are as many cells as tuples that are looked "
            "for; plan it as strings"
        )
    return table_goal(known, alpha, power)


def _least_variance(budget: Budget) -> float:
    q_star = least_noise_rate(1, budget)
    p_star = rare_rate(1, budget.report, q_star)
    return p_star * (1 - p_star) / (q_star - p_star) ** 2
