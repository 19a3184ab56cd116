"""Listed strings that the decoder is measured on: who holds what, what is looked for, what reports.

Made-up strings are new in every trial. An error that one set of strings causes by the way it
happens to hash would otherwise stand in every trial, and look like a property of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Self

import numpy as np

from hubbub.decoder import CohortCounts, Decoding, count_records
from hubbub.inference import FloatArray, IntArray
from hubbub.protocol import RapporParams, Registry
from hubbub.simulations import (
    METRICS,
    DecodedShares,
    Population,
    ReportingPlan,
    Scenario,
    Score,
    SimulatedClients,
    as_records,
    census_first_names,
    census_names,
    family_shares,
    make_scenario,
    sample_population,
    score,
)

LOOSE = RapporParams(k=128, h=1, m=64, f=0.2, p=0.05, q=0.75)
PAPER = RapporParams(k=128, h=2, m=64, f=0.5, p=0.25, q=0.75)
"""As the paper's figures: epsilon 2.1 a report."""
SMALL = RapporParams(k=32, h=1, m=16, f=0.25, p=0.2, q=0.8)
CROWDED = RapporParams(k=8, h=2, m=32, f=0.5, p=0.25, q=0.75)
uniform = partial(family_shares, "uniform")
zipf = partial(family_shares, "zipf:1")


@dataclass(frozen=True, slots=True)
class CollectedCounts:
    """A collector's counts, and the truth."""

    counts: CohortCounts
    candidates: tuple[str, ...]
    truth: FloatArray  # shape (n,); each candidate's share of the collected reports


def collect(
    scenario: Scenario,
    params: RapporParams,
    clients: int,
    seed: np.random.SeedSequence,
    periods: int = 1,
) -> CollectedCounts:
    """Let so many clients of a scenario report once, or in each period, and count the reports."""
    # Counts don't separate the days of a period.
    days = 1 if periods > 1 else 0
    plan = ReportingPlan(scenario.population, params, clients, periods, period_days=days)
    sample = sample_population(plan, seed)
    truth = scenario.candidates_share(sample.holders)
    return CollectedCounts(sample.counts, scenario.candidates, truth)


def score_decoding(truth: FloatArray, decoding: Decoding) -> Score:
    """Compare a decoding with the truth, both of shape (n,)."""
    return score(truth, DecodedShares.of(decoding), decoding.constrained_share)


@dataclass(frozen=True, slots=True)
class StringsCase:
    """A population, and how it reports."""

    name: str
    params: RapporParams
    reports: int  # one of each client
    scenario: Callable[[int], Scenario]  # makes the scenario of a trial's number

    @classmethod
    def made_up(
        cls,
        name: str,
        params: RapporParams,
        reports: int,
        shares: FloatArray,
        unlisted_every: int = 0,
        absent: int = 0,
    ) -> Self:
        """Return a case of strings that differ from trial to trial (see `made_up`)."""
        scenario = partial(made_up, shares, unlisted_every=unlisted_every, absent=absent)
        return cls(name, params, reports, scenario)

    @property
    def work(self) -> float:
        return float(self.reports)

    def collect(self, number: int) -> CollectedCounts:
        """Draw the people of a trial and count their reports."""
        return self.collect_reports(number)[1]

    def collect_reports(self, number: int) -> tuple[bytes, CollectedCounts]:
        """Draw the people of a trial; return their reports as they are stored, and counted."""
        rng = np.random.default_rng(number)
        scenario = self.scenario(number)
        values, shares = scenario.population.values, scenario.population.shares
        held = rng.choice(len(shares), size=self.reports, p=shares)
        records = draw_records(values, held, self.params, rng)
        truth = scenario.candidates_share(np.bincount(held, minlength=len(values)))
        return records, CollectedCounts(
            count_records(records, self.params), scenario.candidates, truth
        )


def made_up(shares: FloatArray, seed: int, unlisted_every: int = 0, absent: int = 0) -> Scenario:
    """Return a scenario of strings that no other seed has.

    shares: shape (v,): The strings' shares of the population.
    unlisted_every: One string of so many is not a candidate, the first among them; 0 lists all, 1
    none.
    absent: Candidates that nobody holds.
    """
    held = tuple(f"world {seed} string {i}" for i in range(len(shares)))
    order = np.arange(len(shares))
    listed = order[order % unlisted_every > 0] if unlisted_every else order
    nobody = tuple(f"world {seed} absent {i}" for i in range(absent))
    candidates = (*(held[i] for i in listed.tolist()), *nobody)
    return Scenario(Population(held, shares), candidates, listed)


@cache
def census(_number: int) -> Scenario:
    """Return the demonstration's scenario: first names, among all names of the census."""
    return make_scenario(census_first_names(), missing=0, absent=census_names())


DEMO_CASE = StringsCase(
    "census, the demo's", Registry.parse(METRICS)["first_name"].params, 500_000, census
)


def draw_records(
    values: tuple[str, ...], held: IntArray, params: RapporParams, rng: np.random.Generator
) -> bytes:
    """Let one simulated client report each held value; return the reports as they are stored."""
    return as_records(*SimulatedClients(values, params, rng).report(held))


def count_simulated(
    values: tuple[str, ...], held: IntArray, params: RapporParams, rng: np.random.Generator
) -> CohortCounts:
    return count_records(draw_records(values, held, params, rng), params)
