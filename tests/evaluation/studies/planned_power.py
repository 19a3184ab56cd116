"""Random requests to the planner: how often is found what it says is found nine times in ten?

Each request is planned, collected by the exact law of its counts, decoded as a user
would, and asked for strings or categories that have just the planned share. Strings' shares follow
Zipf's law over the list, as a plan takes them to, with up to six moved to
the limit; the whole list is decoded, at the plan's own error rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from evaluation.drawn_counts import draw_cells, draw_counts
from evaluation.studies.study import Study
from hubbub.decoder import CohortCounts, Correction, decode
from hubbub.inference import FloatArray, IntArray, estimate_categories, hashed
from hubbub.planning import (
    Budget,
    CategoriesGoal,
    DetectionTest,
    Goal,
    Plan,
    Schedule,
    StringsGoal,
    categories_goal,
    plan,
)
from hubbub.protocol import UNARY, Metric, RapporParams, Registry

REQUESTS = 20
_SEED = 31
_MOST_PLANTED, _MOST_MASS = 6, 0.3
_COLLECTIONS = 6  # of categories in a trial, which take no time


class Planted(NamedTuple):
    """What has the planned share and was found, of how many."""

    found: int
    planted: int


def share_found(trials: Sequence[Planted]) -> float:
    return sum(trial.found for trial in trials) / sum(trial.planted for trial in trials)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the planner."""

    goal: Goal
    budget: Budget
    reports: int  # one of each client

    @property
    def name(self) -> str:
        n = f"{self.goal.test.candidates:,.0f}"
        if isinstance(self.goal, CategoriesGoal):
            what = f"{n} categories, {'subset' if self.goal.by_subset else 'unary'}"
        else:
            what = f"{n} strings"
        return f"{what}; {self.reports:,}; {self.budget.permanent:g}, {self.budget.report:g}"

    @property
    def work(self) -> float:
        return 1e5 + self.reports

    @property
    def plan(self) -> Plan:
        return _planned(self)

    def run(self, number: int) -> Planted:
        rng = np.random.default_rng([number, self.reports])
        if isinstance(self.goal, CategoriesGoal):
            return self._categories(rng)
        return self._strings(rng)

    def _strings(self, rng: np.random.Generator) -> Planted:
        n = int(self.goal.test.candidates)
        shares, planted = zipf_with(n, self.plan.limit)
        order = rng.permutation(n)  # who is planted differs from trial to trial
        shares, planted = shares[np.argsort(order)], order[planted]
        names, params, alpha = _names(n), self.plan.params, self.goal.test.alpha
        counts = self._counts(shares, rng)
        found = decode(counts, params, names, alpha=alpha, correction=Correction.BONFERRONI)
        return Planted(int(found.detected[planted].sum()), len(planted))

    def _counts(self, shares: FloatArray, rng: np.random.Generator) -> CohortCounts:
        """Draw counts of strings of one hash, each client in a cohort of its own choice."""
        params = self.plan.params
        clients = np.repeat(np.arange(len(shares)), rng.multinomial(self.reports, shares))
        cohorts = rng.integers(0, params.m, self.reports)
        of_cohorts = np.bincount(cohorts, minlength=params.m)
        bits = _bit_numbers(len(shares), params)[clients, cohorts]
        true = np.bincount(bits, minlength=params.m * params.k).reshape(params.m, params.k)
        ones = rng.binomial(true, params.q_star)
        ones += rng.binomial(of_cohorts[:, None] - true, params.p_star)
        return CohortCounts(of_cohorts, ones)

    def _categories(self, rng: np.random.Generator) -> Planted:
        n = int(self.goal.test.candidates)
        limit, metric = self.plan.limit, metric_of(self.plan)
        shares = np.full(n, (1 - limit) / (n - 1))
        shares[-1] = limit
        found = 0
        for _ in range(_COLLECTIONS):
            if metric.response == UNARY:
                values = [str(i + 1) for i in range(n)]
                counts = draw_counts(values, shares, metric.params, self.reports, rng, metric.type)
            else:
                counts = draw_cells(metric, range(n), shares, self.reports, rng)
            log_p = estimate_categories(counts, metric).log_p_value[-1]
            found += int(log_p <= math.log(self.goal.test.level))
        return Planted(found, _COLLECTIONS)


def zipf_with(n: int, limit: float) -> tuple[FloatArray, IntArray]:
    """Return Zipf's law with the strings nearest to a limit moved to it, and which these are."""
    shares = 1 / np.arange(1, n + 1)
    shares /= shares.sum()
    count = max(1, min(_MOST_PLANTED, int(_MOST_MASS / limit), n // 4))
    rank = int(np.searchsorted(-shares, -limit))
    first = max(0, min(rank - count // 2, n - count))
    planted = np.arange(first, first + count)
    shares[planted] = 0.0
    shares *= (1 - count * limit) / shares.sum()
    shares[planted] = limit
    return shares, planted


def metric_of(plan: Plan) -> Metric:
    entry = plan.goal.entry(plan.params, "planned")
    return Registry.parse(f'application = "com.example.study"\n{entry}')["planned"]


@cache
def _planned(request: Request) -> Plan:
    return plan(request.goal, request.budget, n_reports=request.reports).best


@lru_cache(maxsize=4)
def _names(n: int) -> tuple[str, ...]:
    return tuple(f"string {i}" for i in range(n))


@lru_cache(maxsize=2)
def _bit_numbers(n: int, params: RapporParams) -> IntArray:
    numbers = hashed(_names(n), params).numbers(slice(0, n))
    return np.asarray(numbers[:, 0, :], dtype=np.int64)


def requests() -> tuple[Request, ...]:
    """Return twenty random ones: strings in either mode, and categories."""
    return tuple(_request(number) for number in range(REQUESTS))


def _request(number: int) -> Request:
    rng = np.random.default_rng([_SEED, number])
    kind = number % 5
    reports = round(float(10 ** rng.uniform(4.3, 6.0)), -2)
    once = Budget(math.inf, round(float(rng.uniform(1, 5)), 2))
    if kind == 4:  # categories by bits and by subset, by turns
        goal = categories_goal(int(rng.integers(3, 60)))
        by_subset = number % 10 == 4
        schedule = Schedule("once")
        asked = CategoriesGoal(goal.test, goal.categories, by_subset, schedule=schedule)
        return Request(asked, once, int(reports))
    test = DetectionTest(round(float(10 ** rng.uniform(2, 4.3))))
    budget = once
    if kind == 2:
        permanent = round(float(rng.uniform(2, 7)), 2)
        budget = Budget(permanent, round(permanent * float(rng.uniform(0.25, 0.8)), 2))
    return Request(StringsGoal(test), budget, int(reports))


def _found(_case: Request, trials: Sequence[Planted]) -> str:
    found, planted = share_found(trials), sum(trial.planted for trial in trials)
    return f"{found:.3f} ± {math.sqrt(found * (1 - found) / planted):.3f}"


def _mean(_cases: Sequence[Request], scores: Sequence[Sequence[Planted]]) -> tuple[str, ...]:
    found = [share_found(trials) for trials in scores]
    text = f"From {min(found):.3f} to {max(found):.3f}, {np.mean(found):.3f} on average."
    return (f"{text} Promised is 0.9.",)


STUDY = Study(
    "How often random requests find what they promise nine times in ten",
    """Plan random requests, collect and decode, and count how often what has the share is found.

    \\b
    request    what is looked for; reports; permanent epsilon, epsilon of a report
    share      that the planner promises to be found with probability 0.9
    found      how often it was, with the standard error of sampling
    """,
    requests,
    {
        "request": lambda case, _: case.name,
        "k, h, m": lambda case, _: ", ".join(map(str, case.plan.params[:3])),
        "share": lambda case, _: f"{case.plan.limit:.3%}",
        "found": _found,
    },
    runs=150,
    notes=_mean,
)
