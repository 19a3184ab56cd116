"""Joint tables drawn by the exact law of their counts, estimated, and set beside the plan's errors.

Errors are compared in units of what the theory says of each cell, value and conditional share, so
that one number stands for all of a table.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.decoder import CohortCounts
from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import (
    CategoryEstimates,
    estimate_categories,
)
from hubbub.inference.joint.independence import assess_independence
from hubbub.inference.joint.one_hot import one_hot_estimates
from hubbub.inference.joint.table import FieldLabels
from hubbub.planning.goals import Plan
from hubbub.planning.joint import TableGoal, table_goal
from hubbub.planning.noise import Budget
from hubbub.planning.search import plan
from hubbub.planning.tables import (
    TEST_LEVEL,
    TableErrors,
    partner_table,
    typical_table,
)
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.joint import Field, JointType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_BITS

_SURE = 5.0  # standard errors that a value's share must have for ratios to be about normal


@dataclass(frozen=True, slots=True)
class JointSetting:
    """A table, and the two epsilons and the number of its reports."""

    sizes: tuple[int, ...]
    budget: Budget
    reports: int

    @property
    def goal(self) -> TableGoal:
        """The goal with the planner's usual error rates."""
        return table_goal(self.sizes)

    @property
    def plan(self) -> Plan:
        """What the planner chooses."""
        return plan(self.goal, self.budget, n_reports=self.reports, most_bits=MOST_BITS).best


class JointTrial(NamedTuple):
    """What one collection showed.

    Attributes
    ----------
    cells, margins, conditionals : float
        Mean squared error over what the theory says is its variance.
    total_variation : float
        Of the possible table that is nearest to the estimates.
    found : bool
        Whether a cell with the limit's share was detected.
    rejected : bool
        Whether the test of independence rejected where partners have the share that it is to find.
    """

    cells: float
    margins: float
    conditionals: float
    total_variation: float
    found: bool
    rejected: bool


def run_trial(setting: JointSetting, plan: Plan, seed: int) -> JointTrial:
    """Collect a typical table once, one with a cell at the limit, and one with partners."""
    rng = np.random.default_rng([seed, setting.reports])
    table = typical_table(setting.sizes)
    estimates = _estimate(setting, plan, table, rng)
    found, true = estimates.unbiased.reshape(setting.sizes), table
    errors, scale = TableErrors(plan.params, table.size), 1 / np.sqrt(setting.reports)
    of_cells = np.array([errors.of_cell(share) for share in true.ravel()]) * scale
    margins, conditionals = [], []
    for axis, size in enumerate(setting.sizes):
        mine, truth = _margin(found, axis), _margin(true, axis)
        expected = np.array([errors.of_margin(size, share) for share in truth]) * scale
        margins.append((mine - truth) / expected)
    first, last = setting.sizes[0], setting.sizes[-1]
    pairs, pairs_found = _pairs(true), _pairs(found)
    for row, row_found in zip(pairs, pairs_found, strict=True):
        given = float(row.sum())
        if given < _SURE * errors.of_margin(first, given) * scale:
            continue
        shares = row / given
        expected = [errors.of_conditional(first, last, given, share) for share in shares]
        conditionals.append((row_found / row_found.sum() - shares) / np.array(expected) / scale)
    return JointTrial(
        float(np.mean(((estimates.unbiased - true.ravel()) / of_cells) ** 2)),
        float(np.mean(np.concatenate(margins) ** 2)),
        float(np.mean(np.concatenate(conditionals) ** 2)) if conditionals else float("nan"),
        float(np.abs(estimates.share - true.ravel()).sum() / 2),
        _is_found(setting, plan, rng),
        _is_rejected(setting, plan, rng),
    )


def _margin(table: FloatArray, axis: int) -> FloatArray:
    return np.asarray(np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1).sum(axis=1))


def _pairs(table: FloatArray) -> FloatArray:
    """Return the table of the first and the last field."""
    return np.asarray(table.reshape(table.shape[0], -1, table.shape[-1]).sum(axis=1))


def _metric(plan: Plan, sizes: tuple[int, ...]) -> Metric:
    fields = tuple(
        Field(f"field_{i}", EnumType(tuple(map(str, range(size))))) for i, size in enumerate(sizes)
    )
    once = plan.params.f == 0
    return Metric("com.example.planning", "joint", 1, JointType(fields), plan.params, "What goes "
                  "together", "planning@example.com", dt.date(2099, 12, 31), once)  # fmt: skip


def _estimate(
    setting: JointSetting, plan: Plan, table: FloatArray, rng: np.random.Generator
) -> CategoryEstimates:
    """Draw a table's counts by their exact law, and estimate it as the decoder does."""
    params, n = plan.params, setting.reports
    clients = np.zeros((1, params.k), dtype=np.int64)
    clients[0, : table.size] = rng.multinomial(n, table.ravel())
    ones = rng.binomial(clients, params.q_star) + rng.binomial(n - clients, params.p_star)
    counts = CohortCounts(np.array([n]), ones)
    return estimate_categories(counts, _metric(plan, setting.sizes))


def _is_found(setting: JointSetting, plan: Plan, rng: np.random.Generator) -> bool:
    if not plan.limit < 1:
        return False
    table = typical_table(setting.sizes)
    table.flat[-1] = 0.0
    table *= (1 - plan.limit) / table.sum()
    table.flat[-1] = plan.limit
    estimates = _estimate(setting, plan, table, rng)
    return bool(estimates.log_p_value[-1] <= np.log(setting.goal.test.level))


def _is_rejected(setting: JointSetting, plan: Plan, rng: np.random.Generator) -> bool:
    if not plan.figures["partner_share"] < 1:
        return False
    cells = _estimate(
        setting, plan, partner_table(setting.sizes, plan.figures["partner_share"]), rng
    )
    labels = tuple(
        FieldLabels(f"field_{i}", tuple(map(str, range(size))))
        for i, size in enumerate(setting.sizes)
    )
    estimates = one_hot_estimates(labels, cells, setting.reports, plan.params)
    return assess_independence(estimates).p_value <= TEST_LEVEL
