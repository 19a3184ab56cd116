"""What the plan says of joint tables, and what comes out (docs/measured/planning.md).

Tables are drawn by the distribution of their counts and estimated. Errors are compared in units of
what the theory says of each cell and value, so that one number stands for all of a table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from evaluation.studies.joint import draw_tuples
from evaluation.studies.study import Study
from evaluation.tables import JointExperiment, joint_population
from hubbub.inference import CategoryEstimates, FloatArray, estimate_categories
from hubbub.planning import Budget, Plan, cells_error, plan, table_goal
from hubbub.protocol import MOST_BITS


class PlannedErrors(NamedTuple):
    """What one collection showed."""

    # cells, margins: Mean squared error over what the theory says is its variance
    cells: float
    margins: float
    found: bool  # whether a cell with the limit's share was detected


def typical_table(sizes: tuple[int, ...]) -> FloatArray:
    """Return the table of independent fields by Zipf's law, of shape `sizes`."""
    shares = [1 / np.arange(1, size + 1) for size in sizes]
    return np.asarray(functools.reduce(np.multiply.outer, [x / x.sum() for x in shares]))


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

    def run(self, number: int) -> PlannedErrors:
        rng = np.random.default_rng([number, self.reports])
        true, params = typical_table(self.sizes), self.plan.params
        found = self._estimate(true, rng).unbiased.reshape(self.sizes)

        def in_errors(off: FloatArray, shares: FloatArray, summed: int) -> FloatArray:
            errors = [cells_error(params, true.size, summed, share) for share in shares.ravel()]
            return np.asarray(off.ravel() / errors * math.sqrt(self.reports))

        margins = [
            in_errors(_margin(found - true, axis), _margin(true, axis), true.size // size)
            for axis, size in enumerate(self.sizes)
        ]
        return PlannedErrors(
            float(np.mean(in_errors(found - true, true, 1) ** 2)),
            float(np.mean(np.concatenate(margins) ** 2)),
            self._is_found(rng),
        )

    def _estimate(self, table: FloatArray, rng: np.random.Generator) -> CategoryEstimates:
        sizes = "x".join(map(str, self.sizes))
        population = joint_population(sizes, "uniform", 0.0, np.random.default_rng(0))
        people = replace(population, shares=table.ravel())
        experiment = JointExperiment(people, self.plan.params, self.reports)
        return estimate_categories(draw_tuples(experiment, rng), experiment.metric)

    def _is_found(self, rng: np.random.Generator) -> bool:
        limit = self.plan.limit
        if not limit < 1:
            return False
        table = typical_table(self.sizes)
        table.flat[-1] = 0.0
        table *= (1 - limit) / table.sum()
        table.flat[-1] = limit
        estimates = self._estimate(table, rng)
        level = table_goal(self.sizes).test.level
        return bool(estimates.log_p_value[-1] <= np.log(level))


def _margin(table: FloatArray, axis: int) -> FloatArray:
    return np.asarray(np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1).sum(axis=1))


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


def _root(place: int) -> Callable[[PlannedTable, Sequence[PlannedErrors]], str]:
    return lambda _case, trials: f"{math.sqrt(np.mean([each[place] for each in trials])):.3f}"


STUDY = Study(
    "Tables that are collected with the planner's parameters",
    """Collect typical tables with the planner's parameters, and compare errors with its own.

    \\b
    cells, margins  root mean square error of all of a table's, in predicted errors
    found           how often a cell with the limit's share was detected; predicted is 0.9
    """,
    cases,
    {
        "table": lambda case, _: " x ".join(map(str, case.sizes)),
        "epsilons": lambda case, _: f"{case.budget.permanent:g}, {case.budget.report:g}",
        "reports": lambda case, _: case.reports,
        "cells": _root(0),
        "margins": _root(1),
        "cell": lambda case, _: f"{case.plan.limit:.3%}",
        "found": lambda _, trials: f"{np.mean([each.found for each in trials]):.3f}",
    },
    runs=100,
)
