"""The plan's share of open strings, and the one that most searches really find.

Populations are real lists of names, because how likely strings look decides what is looked for:
first names and surnames of the census, and domain names, with the parameters that the planner
chooses for them. Counts are drawn by their distribution.
docs/measured/planning.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from evaluation.drawn_counts import draw_counts
from evaluation.studies.open_populations import told_steps
from evaluation.studies.study import Study
from hubbub.inference import FloatArray, decode_open_strings
from hubbub.planning import PLAIN, Budget, OpenGoal, Plan, choose_steps, open_test, plan
from hubbub.protocol import OpenStringType
from hubbub.simulations import LISTS

_NAMES = 8
"""Length of names that the planner is told; of domains it is told their own, and their letters."""
_POWER = 0.9


class FoundNames(NamedTuple):
    """Strings that one search found, and how many of them nobody holds."""

    found: frozenset[str]
    n_false: int


@dataclass(frozen=True, slots=True)
class PlannedSearch:
    """A population, how many report, the epsilon of each one's only report, and the parameters."""

    population: str
    reports: int
    epsilon: float
    goal: OpenGoal
    plan: Plan

    @property
    def name(self) -> str:
        params, steps = self.plan.params, ".".join(map(str, self.goal.steps))
        size = f"{self.reports}-{self.epsilon:g}-{steps}-{params.k}x{params.m}"
        return f"{self.population}-{size}"

    @property
    def work(self) -> float:
        return float(self.reports)

    def run(self, number: int) -> FoundNames:
        people, reports = LISTS[self.population](), round(self.plan.reports)
        rng = np.random.default_rng([number, reports])
        metric_type = OpenStringType(self.goal.steps, self.plan.params.m)
        params = self.plan.params._replace(m=self.goal.groups * self.plan.params.m)
        counts = draw_counts(people.values, people.shares, params, reports, rng, metric_type)
        decoding = decode_open_strings(counts, params, metric_type).decoding
        rows = np.flatnonzero(decoding.detected).tolist()
        found = frozenset(decoding.candidates[row] for row in rows)
        return FoundNames(found, len(found - set(people.values)))


def _chosen(population: str, reports: int, epsilon: float) -> PlannedSearch:
    domains = population == "domains"
    steps = told_steps(LISTS[population]()) if domains else choose_steps(_NAMES, PLAIN)
    goal = OpenGoal(open_test(power=_POWER), steps)
    best = plan(goal, Budget(math.inf, epsilon), n_reports=reports).best
    return PlannedSearch(population, reports, epsilon, goal, best)


def cases() -> tuple[PlannedSearch, ...]:
    """Return all, with the planner's choices."""
    return (
        *(_chosen("census", n, eps) for eps in (2.0, 4.0) for n in (10**5, 10**6, 10**7)),
        _chosen("surnames", 10**6, 4.0),
        _chosen("surnames", 10**7, 4.0),
        _chosen("domains", 10**6, 4.0),
    )


@cache
def share_found(population: str, searches: tuple[FoundNames, ...], power: float) -> float:
    """Return the share that is found with a probability, by probit regression on shares."""
    people = LISTS[population]()
    times = [sum(x in each.found for each in searches) for x in people.values]
    found = np.array(times) / len(searches)
    scale = float(np.sort(people.shares)[-max(1, round(float(found.sum())))])
    x = people.shares / scale

    def loss(line: FloatArray) -> float:
        z = line[0] + line[1] * x
        likelihood = found * special.log_ndtr(z) + (1 - found) * special.log_ndtr(-z)
        return -float(likelihood.sum())

    fit = optimize.minimize(loss, np.array([-3.0, 3.0]), method="Nelder-Mead")
    return float((special.ndtri(power) - fit.x[0]) / fit.x[1] * scale)


def _measured(case: PlannedSearch, searches: Sequence[FoundNames]) -> float:
    return share_found(case.population, tuple(searches), _POWER)


def _mean(count: Callable[[FoundNames], int]) -> Callable[[object, Sequence[FoundNames]], str]:
    return lambda _case, searches: f"{np.mean([count(each) for each in searches]):.1f}"


def _shape(case: PlannedSearch, _searches: object) -> str:
    steps = ", ".join(map(str, case.goal.steps))
    return f"{steps}; {case.plan.params.k}, {case.plan.params.m}"


STUDY = Study(
    "Open strings: the plan's share, and the one that is found",
    """Find strings without a list, with the planner's parameters, and see how rare they may be.

    \\b
    predicted     share that the plan says is found with probability 0.9
    measured      share that is, by probit regression of "found" on the share
    ratio         measured over predicted
    right, false  strings found in a run that somebody holds, and that nobody holds
    """,
    cases,
    {
        "population": lambda case, _: case.population,
        "epsilon": lambda case, _: f"{case.epsilon:g}",
        "reports": lambda case, _: case.reports,
        "steps; k, m": _shape,
        "predicted": lambda case, _: f"{case.plan.limit:.3%}",
        "measured": lambda case, searches: f"{_measured(case, searches):.3%}",
        "ratio": lambda case, searches: f"{_measured(case, searches) / case.plan.limit:.2f}",
        "right": _mean(lambda each: len(each.found) - each.n_false),
        "false": _mean(lambda each: each.n_false),
    },
    runs=3,
)
