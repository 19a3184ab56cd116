"""One run of a case: draw people, let clients report, and keep the truth beside the reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubbub.decoder import CohortCounts, count_records
from hubbub.inference.arrays import IntArray
from hubbub.protocol.params import RapporParams
from hubbub.simulations.scenarios import Collected, Scenario
from hubbub.simulations.simulated_clients.clients import SimulatedClients, as_records


@dataclass(frozen=True, slots=True)
class Case:
    """A population, and how it reports.

    Attributes
    ----------
    name : str
    params : RapporParams
    reports : int
    scenario : callable
        Makes a seed's scenario.
    """

    name: str
    params: RapporParams
    reports: int
    scenario: Callable[[int], Scenario]


def collect(case: Case, seed: int) -> Collected:
    """Draw the people of a seed and count their reports."""
    return collect_reports(case, seed)[1]


def collect_reports(case: Case, seed: int) -> tuple[bytes, Collected]:
    """Draw the people of a seed; return their reports as they are stored, and counted."""
    rng = np.random.default_rng(seed)
    scenario = case.scenario(seed)
    values, shares = scenario.population.values, scenario.population.shares
    held = rng.choice(len(shares), size=case.reports, p=shares)
    records = draw_records(values, held, case.params, rng)
    truth = scenario.candidates_share(np.bincount(held, minlength=len(values)))
    return records, Collected(count_records(records, case.params), scenario.candidates, truth)


def draw_records(
    values: tuple[str, ...], held: IntArray, params: RapporParams, rng: np.random.Generator
) -> bytes:
    """Let one simulated client report each held value; return the reports as they are stored."""
    return as_records(*SimulatedClients(values, params, rng).report(held))


def count_simulated(
    values: tuple[str, ...], held: IntArray, params: RapporParams, rng: np.random.Generator
) -> CohortCounts:
    """Let one simulated client report each held value, and count the reports."""
    return count_records(draw_records(values, held, params, rng), params)
