"""What the plan says of joint tables, and what comes out (docs/measured/planning.md).

Tables are drawn by the distribution of their counts and estimated. Errors are compared in units of
what the theory says of each cell, value and conditional share, so that one number stands for all of
a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from evaluation.studies.joint import draw_tuples
from evaluation.studies.study import Study
from evaluation.tables import JointExperiment, joint_population
from hubbub.inference import (
    CategoryEstimates,
    FloatArray,
    assess_independence,
    estimate_categories,
    one_hot_estimates,
)
from hubbub.planning import (
    TEST_LEVEL,
    Budget,
    CellErrors,
    Plan,
    partner_table,
    plan,
    table_goal,
    typical_table,
)
from hubbub.protocol import MOST_BITS

_SURE = 5.0  # standard errors that a value's share must have for ratios to be about normal


class PlannedErrors(NamedTuple):
    """What one collection showed."""

    # cells, margins, conditionals: Mean squared error over what the theory says is its variance
    cells: float
    margins: float
    conditionals: float
    total_variation: float  # of the possible table that is nearest to the estimates
    found: bool  # whether a cell with the limit's share was detected
    # whether the test of independence rejected where partners have the share that it is to find
    rejected: bool


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table, the two epsilons and the number of its reports, and what the planner chooses."""

    sizes: tuple[int, ...]
    budget: Budget
    reports: int
    plan: Plan

    @classmethod
    def of(cls, sizes: tuple[int, ...], budget: Budget, reports: int) -> PlannedTable:
        chosen = plan(table_goal(sizes), budget, n_reports=reports, most_bits=MOST_BITS).best
        return cls(sizes, budget, reports, chosen)

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.sizes))
        return f"{size}-{self.reports}-{self.budget.permanent:g}-{self.budget.report:g}"

    @property
    def work(self) -> float:
        return float(math.prod(self.sizes) ** 2)

    @property
    def partner_share(self) -> float:
        """The share of partners that the test should find; infinite where it can't."""
        return float(self.plan.figures["partner_share"])

    def run(self, number: int) -> PlannedErrors:
        rng = np.random.default_rng([number, self.reports])
        table = typical_table(self.sizes)
        estimates = self._estimate(table, rng)[1]
        found, true = estimates.unbiased.reshape(self.sizes), table
        errors, scale = CellErrors(self.plan.params, table.size), 1 / np.sqrt(self.reports)
        of_cells = np.array([errors.of_cell(share) for share in true.ravel()]) * scale
        margins, conditionals = [], []
        for axis, size in enumerate(self.sizes):
            mine, truth = _margin(found, axis), _margin(true, axis)
            expected = np.array([errors.of_margin(size, share) for share in truth]) * scale
            margins.append((mine - truth) / expected)
        first, last = self.sizes[0], self.sizes[-1]
        for row, row_found in zip(_pairs(true), _pairs(found), strict=True):
            given = float(row.sum())
            if given < _SURE * errors.of_margin(first, given) * scale:
                continue
            shares = row / given
            expected = [errors.of_conditional(first, last, given, share) for share in shares]
            conditionals.append((row_found / row_found.sum() - shares) / np.array(expected) / scale)
        return PlannedErrors(
            float(np.mean(((estimates.unbiased - true.ravel()) / of_cells) ** 2)),
            float(np.mean(np.concatenate(margins) ** 2)),
            float(np.mean(np.concatenate(conditionals) ** 2)) if conditionals else math.nan,
            float(np.abs(estimates.share - true.ravel()).sum() / 2),
            self._is_found(rng),
            self._is_rejected(rng),
        )

    def _estimate(
        self, table: FloatArray, rng: np.random.Generator
    ) -> tuple[JointExperiment, CategoryEstimates]:
        sizes = "x".join(map(str, self.sizes))
        population = joint_population(sizes, "uniform", 0.0, np.random.default_rng(0))
        people = replace(population, shares=table.ravel())
        experiment = JointExperiment(people, self.plan.params, self.reports)
        return experiment, estimate_categories(draw_tuples(experiment, rng), experiment.metric)

    def _is_found(self, rng: np.random.Generator) -> bool:
        limit = self.plan.limit
        if not limit < 1:
            return False
        table = typical_table(self.sizes)
        table.flat[-1] = 0.0
        table *= (1 - limit) / table.sum()
        table.flat[-1] = limit
        estimates = self._estimate(table, rng)[1]
        level = table_goal(self.sizes).test.level
        return bool(estimates.log_p_value[-1] <= np.log(level))

    def _is_rejected(self, rng: np.random.Generator) -> bool:
        if not self.partner_share < 1:
            return False
        experiment, cells = self._estimate(partner_table(self.sizes, self.partner_share), rng)
        fields = experiment.population.fields
        estimates = one_hot_estimates(fields, cells, self.reports)
        return assess_independence(estimates).p_value <= TEST_LEVEL


def _margin(table: FloatArray, axis: int) -> FloatArray:
    return np.asarray(np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1).sum(axis=1))


def _pairs(table: FloatArray) -> FloatArray:
    return np.asarray(table.reshape(table.shape[0], -1, table.shape[-1]).sum(axis=1))


def cases() -> tuple[PlannedTable, ...]:
    """Return two fields and three, at usual epsilons, for many and few clients."""
    once, million = math.inf, 1_000_000
    return tuple(
        PlannedTable.of(sizes, Budget(*epsilons), reports)
        for sizes, epsilons, reports in (
            ((100, 20), (once, 2.0), million),
            ((100, 20), (once, 4.0), million),
            ((100, 20), (once, 8.0), million),
            ((100, 20), (once, 4.0), 30_000),
            ((100, 20), (6.0, 3.0), million),
            ((20, 5), (once, 1.0), million),
            ((10, 2), (once, 4.0), 10_000),
            ((10, 10, 10), (once, 4.0), million),
        )
    )


def _mean(name: str) -> Callable[[PlannedTable, Sequence[PlannedErrors]], float]:
    return lambda _case, trials: float(np.mean([getattr(trial, name) for trial in trials]))


def _root(name: str) -> Callable[[PlannedTable, Sequence[PlannedErrors]], str]:
    return lambda case, trials: f"{math.sqrt(_mean(name)(case, trials)):.3f}"


def _variation(case: PlannedTable, trials: Sequence[PlannedErrors]) -> str:
    measured = _mean("total_variation")(case, trials)
    return f"{case.plan.figures['total_variation']:.4f}, {measured:.4f}"


def _if_tested(case: PlannedTable, text: str) -> str:
    return text if math.isfinite(case.partner_share) else ""


STUDY = Study(
    "Tables that are collected with the planner's parameters",
    """Collect typical tables with the planner's parameters, and compare errors with its own.

    \\b
    cells, margins, conditional  root mean square error of all of a table's, in predicted errors
    total variation              of the nearest possible table: predicted, and the mean
    found       how often a cell with the limit's share was detected; predicted is 0.9
    rejected    how often independence was, where partners have the share that should be found with
                probability 0.9
    """,
    cases,
    {
        "table": lambda case, _: " x ".join(map(str, case.sizes)),
        "epsilons": lambda case, _: f"{case.budget.permanent:g}, {case.budget.report:g}",
        "reports": lambda case, _: case.reports,
        "cells": _root("cells"),
        "margins": _root("margins"),
        "conditional": _root("conditionals"),
        "total variation": _variation,
        "cell": lambda case, _: f"{case.plan.limit:.3%}",
        "found": lambda case, trials: f"{_mean('found')(case, trials):.3f}",
        "partners": lambda case, _: _if_tested(case, f"{case.partner_share:.1%}"),
        "rejected": lambda case, trials: _if_tested(case, f"{_mean('rejected')(case, trials):.3f}"),
    },
    runs=100,
)
