"""Scenarios whose truth is known: a population, and the candidates that the decoder looks for.

A scenario's clients report, the reports are counted, and each candidate's share of them is the
truth that a decoding is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.counts import CohortCounts
from hubbub.protocol.params import RapporParams
from hubbub.simulations.populations import Population
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

_SLACK = 1e-9
"""So that a share such as 0.1, which isn't a binary fraction, leaves out every tenth string."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A population and the strings that are looked for."""

    population: Population
    # Distinct: those of the population's values that are listed, in their order, then others.
    candidates: tuple[str, ...]
    listed: IntArray  # indices of the listed values

    def candidates_share(self, holders: IntArray) -> FloatArray:
        """Return each candidate's share of the reports, shape (n,).

        `holders`, shape (v,): reports of each value.
        """
        shares = np.zeros(len(self.candidates))
        shares[: len(self.listed)] = holders[self.listed] / max(int(holders.sum()), 1)
        return shares


@dataclass(frozen=True, slots=True)
class CollectedCounts:
    """What a collector would have counted, and what is true of it."""

    counts: CohortCounts
    candidates: tuple[str, ...]
    truth: FloatArray  # shape (n,); each candidate's share of the collected reports


def make_scenario(population: Population, missing: float, absent: tuple[str, ...]) -> Scenario:
    """List a population's values, but for some, and add candidates that nobody holds.

    `missing`: share of its values that are not listed, spread evenly over their order; of 0.1 the
    9th, 19th, 29th ..., as in google/rappor's regression tests; of 1 all. `absent`: further
    candidates; those that are values of the population are left out.
    """
    quotas = np.floor(np.arange(1, len(population.values) + 2) * missing + _SLACK)
    listed = np.flatnonzero(np.diff(quotas) <= 0)
    held = set(population.values)
    strings = [population.values[i] for i in listed.tolist()]
    return Scenario(population, (*strings, *(s for s in absent if s not in held)), listed)


def collect(
    scenario: Scenario,
    params: RapporParams,
    clients: int,
    seed: np.random.SeedSequence,
    periods: int = 1,
) -> CollectedCounts:
    """Let so many clients of a scenario report once, or in each period, and count the reports."""
    # Counts don't tell the days of a period apart.
    days = 1 if periods > 1 else 0
    plan = ReportingPlan(scenario.population, params, clients, periods, period_days=days)
    sample = sample_population(plan, seed)
    truth = scenario.candidates_share(sample.holders)
    return CollectedCounts(sample.counts, scenario.candidates, truth)
