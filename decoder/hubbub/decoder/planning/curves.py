"""How the detectable share depends on what one may choose: epsilon, and the number of reports."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.errors import PlanError
from hubbub.decoder.planning.limits import detection_limit
from hubbub.decoder.planning.noise import Budget, paper_within
from hubbub.decoder.planning.plans import Comparison
from hubbub.decoder.planning.search import limit_at_epsilon

_POINTS = 25


@dataclass(frozen=True, slots=True)
class Point:
    """Detectable shares at one epsilon or number of reports; infinite: none, nan: not defined.

    Attributes
    ----------
    at : float
    best, paper : float
        Of the best plan and of the RAPPOR paper's default at the same epsilons.
    """

    at: float
    best: float
    paper: float


def limit_by_epsilon(found: Comparison) -> list[Point]:
    """Return limits over epsilons of a report, with k, h and m of the plans and noise of its own.

    From a quarter of the budget's to four times, or the permanent epsilon.
    """
    spent = found.budget.report
    highest = min(4 * spent, found.budget.permanent)
    points = []
    for epsilon in np.geomspace(spent / 4, highest, _POINTS).tolist():
        budget = Budget(found.budget.permanent, min(epsilon, found.budget.permanent))
        best = limit_at_epsilon(found.best, budget, found.question)
        points.append(Point(epsilon, best, _paper_at(found, budget)))
    return points


def limit_by_reports(found: Comparison) -> list[Point]:
    """Return limits over N, from a hundredth of the plan's to a hundred times, at fixed noise."""
    n_reports = found.best.reports
    points = []
    for n in np.geomspace(n_reports / 100, n_reports * 100, _POINTS).tolist():
        best = detection_limit(found.best.params, n, found.question)
        paper = detection_limit(found.paper.params, n, found.question) if found.paper else math.nan
        points.append(Point(n, best, paper))
    return points


def _paper_at(found: Comparison, budget: Budget) -> float:
    if not found.paper:
        return math.nan
    try:
        params = paper_within(found.paper.params.k, found.paper.params.m, budget)
    except PlanError:
        return math.nan
    return detection_limit(params, found.best.reports, found.question)
