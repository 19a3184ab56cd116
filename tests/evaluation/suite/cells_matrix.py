"""Cases of tables and of categories, beside the matrix of listed strings.

A hundred values by twenty, at usual epsilons and for many and few clients, with and without
partners, so that tables, their tests and what the tests miss are measured; three fields; and a
thousand strings by yes or no, which are hashed. Every client of a table reports once.

Categories, a table of one field, as subsets and as single bits. Two of each are held by nobody.
Clients answer once, or in several periods with new coins, so that intervals are measured that must
know of a client's repeated answers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.suite.bounds import CaseResult, CellsTrial, TableBounds, judge_enum, judge_table
from hubbub.planning import subset_params, subset_within
from hubbub.protocol import UNARY, EnumType, RapporParams, Response
from hubbub.simulations import (
    HASHED,
    PARTNERS,
    CategoryExperiment,
    JointExperiment,
    JointScore,
    Population,
    Score,
    family_shares,
    joint_population,
    made_up,
    parse_sizes,
    run_categories,
    run_joint,
)

_MILLION, _FEW = 1_000_000, 30_000
"""Reports of many clients, and of few."""
_THOUSAND = 1_000
_FAMILY = "zipf:1"
_EMPTY = 2
"""Categories that nobody has: whatever is detected of them is false."""

_INDEPENDENT = TableBounds(rejected=(0.03, 0.07))
"""About the test's level, .05."""
_NO_BOUNDS = TableBounds()
_PROMISED = {
    (_MILLION, 2, 30): TableBounds(refit_variation=0.24, rejected=(0.98, 1.0)),
    (_MILLION, 4, 30): TableBounds(0.155, 0.13, rejected=(0.98, 1.0)),
    (_MILLION, 8, 30): TableBounds(0.04, 0.04, rejected=(0.98, 1.0)),
    (_FEW, 4, 10): TableBounds(rejected=(0.28, 1.0)),
    (_FEW, 4, 30): TableBounds(rejected=(0.98, 1.0)),
}
"""Of the table of 100 by 20, by reports, epsilon, and percent of clients with partners."""


@dataclass(frozen=True, slots=True)
class JointCase:
    """One line of the suite's table; every client reports once."""

    sizes: str  # as `parse_sizes` takes them
    reports: int
    epsilon: float  # of a client's only report: f = 0, p = 1 / (e^epsilon + 1), q = 1/2
    partners: int  # percent of the clients who hold the partners of their first field's value
    bounds: TableBounds = _NO_BOUNDS  # what is promised of it

    @property
    def name(self) -> str:
        """A short name that says all of it, such as joint-100x20-1M-eps4-partners30."""
        size = f"{self.reports / _MILLION:g}M-eps{self.epsilon:g}"
        tied = f"partners{self.partners}" if self.partners else "independent"
        return f"joint-{self.sizes}-{size}-{tied}"

    @property
    def work(self) -> float:
        return 5.0 * _MILLION + 10 * self.reports

    def seed(self, run: int) -> int:
        return zlib.crc32(self.name.encode()) + (run << 32)

    def experiment(self, run: int) -> JointExperiment:
        """Return a run's population, whose partners and strings are of this run alone."""
        sizes = parse_sizes(self.sizes)
        strings = any(size.strings for size in sizes)
        population = joint_population(
            sizes,
            _FAMILY,
            self.partners / 100,
            np.random.default_rng([self.seed(run), PARTNERS]),
            HASHED if strings else None,
            f"run {run} ",
        )
        size = population.metric_type.filter_size(HASHED if strings else {})
        rare = 1 / (math.exp(self.epsilon) + 1)
        params = RapporParams(**size, f=0.0, p=rare, q=0.5)
        return JointExperiment(population, params, self.reports, seed=self.seed(run))

    def run(self, number: int) -> CellsTrial[JointScore]:
        experiment = self.experiment(number)
        outcome = run_joint(experiment)
        return CellsTrial(len(experiment.population.values), outcome.score, outcome.seconds)

    def judge(self, trials: Sequence[CellsTrial[JointScore]]) -> CaseResult:
        return judge_table(self.name, trials, self.bounds)


def joint_cases() -> tuple[JointCase, ...]:
    """Return the cases, in the table's order."""
    tables = tuple(
        JointCase("100x20", reports, epsilon, partners, _bounds(reports, epsilon, partners))
        for reports in (_MILLION, _FEW)
        for epsilon in (2, 4, 8)
        for partners in (0, 10, 30)
    )
    return (
        *tables,
        JointCase("10x10x2", _MILLION, 4, 30, TableBounds(rejected=(0.98, 1.0))),
        JointCase("1000sx2", _MILLION, 4, 30, TableBounds(rejected=(0.98, 1.0))),
    )


def quick_joint_cases() -> tuple[JointCase, ...]:
    """Return the few that continuous integration runs."""
    return tuple(case for case in joint_cases() if case.name.startswith("joint-10x10x2"))


def _bounds(reports: int, epsilon: int, partners: int) -> TableBounds:
    return _PROMISED.get((reports, epsilon, partners), _NO_BOUNDS) if partners else _INDEPENDENT


@dataclass(frozen=True, slots=True)
class EnumCase:
    """One line of the suite's table."""

    categories: int  # categories, clients: Those that nobody is in included; who reports
    clients: int
    epsilon: float  # of a report
    # "subset", of the best size, or "bits": p = 1 / (e^epsilon + 1), q = 1/2
    response: str = "subset"
    periods: int = 1  # in each of which every client reports once

    @property
    def name(self) -> str:
        """A short name that says all of it, such as enum-20-100k-eps2-subset-6periods."""
        size = f"{self.clients // _THOUSAND}k-eps{self.epsilon:g}"
        often = f"-{self.periods}periods" if self.periods > 1 else ""
        return f"enum-{self.categories}-{size}-{self.response}{often}"

    @property
    def work(self) -> float:
        return float(self.clients * self.periods)

    @property
    def population(self) -> Population:
        """Shares by Zipf's law; the last categories are empty."""
        shares = np.zeros(self.categories)
        shares[:-_EMPTY] = family_shares(_FAMILY, self.categories - _EMPTY)
        return made_up(shares, "category ")

    def experiment(self, run: int) -> CategoryExperiment:
        """Return a numbered run, with a seed of its own."""
        params, response = self._response()
        return CategoryExperiment(
            self.population,
            params,
            self.clients,
            response,
            days=self.periods,
            period_days=1,
            seed=zlib.crc32(self.name.encode()) + (run << 32),
        )

    def _response(self) -> tuple[RapporParams, Response]:
        if self.response == "subset":
            subset = subset_within(self.categories, self.epsilon)
            return subset_params(subset), subset
        size = EnumType(self.population.values).filter_size({})
        rare = 1 / (math.exp(self.epsilon) + 1)
        return RapporParams(**size, f=0.0, p=rare, q=0.5), UNARY

    def run(self, number: int) -> CellsTrial[Score]:
        outcome = run_categories(self.experiment(number))
        return CellsTrial(self.categories, outcome.score, outcome.seconds)

    def judge(self, trials: Sequence[CellsTrial[Score]]) -> CaseResult:
        return judge_enum(self.name, trials)


def enum_cases() -> tuple[EnumCase, ...]:
    """Return the cases, in the table's order."""
    many = 100 * _THOUSAND
    return (
        EnumCase(4, many, 1),
        EnumCase(20, many, 1),
        EnumCase(20, many, 2),
        EnumCase(100, many, 4),
        EnumCase(20, 10 * _THOUSAND, 4, periods=6),
        EnumCase(20, 10 * _THOUSAND, 4, "bits", periods=6),
    )


def quick_enum_cases() -> tuple[EnumCase, ...]:
    """Return the few that continuous integration runs."""
    return tuple(case for case in enum_cases() if case.response == "subset" and case.epsilon == 4)
