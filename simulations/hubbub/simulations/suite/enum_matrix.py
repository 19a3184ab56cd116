"""Cases of enum metrics, beside the matrix of listed strings: sets of categories, and single bits.

Two categories of each are held by nobody. Clients answer once, or in several periods with new
coins, so that intervals are measured that must know of a client's repeated answers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.planning.noise import subset_params, subset_within
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.simulations.experiments.categories import CategoryExperiment, run_categories
from hubbub.simulations.populations import Population, family_shares, made_up
from hubbub.simulations.suite.bounds import CaseResult, EnumTrial, judge_enum

_THOUSAND = 1_000
_FAMILY = "zipf:1"
_EMPTY = 2
"""Categories that nobody has: whatever is detected of them is false."""


@dataclass(frozen=True, slots=True)
class EnumCase:
    """One line of the suite's table.

    Attributes
    ----------
    categories, clients : int
        Those that nobody is in included; who reports.
    epsilon : float
        Of a report.
    response : str
        "subset", of the best size, or "bits": p = 1 / (e^epsilon + 1), q = 1/2.
    periods : int
        In each of which every client reports once.
    """

    categories: int
    clients: int
    epsilon: float
    response: str = "subset"
    periods: int = 1

    @property
    def name(self) -> str:
        """A short name that says all of it, such as enum-20-100k-eps2-subset-6periods."""
        size = f"{self.clients // _THOUSAND}k-eps{self.epsilon:g}"
        often = f"-{self.periods}periods" if self.periods > 1 else ""
        return f"enum-{self.categories}-{size}-{self.response}{often}"

    @property
    def work(self) -> float:
        """About how long a run takes, as that of listed cases."""
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

    def run(self, number: int) -> EnumTrial:
        """Decode a numbered run's categories, and score them."""
        outcome = run_categories(self.experiment(number))
        return EnumTrial(self.categories, outcome.score, outcome.seconds)

    def judge(self, trials: Sequence[EnumTrial]) -> CaseResult:
        """Sum up the runs and say which bounds they break."""
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
