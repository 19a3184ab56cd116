"""Which share of forged reports plants a string that nobody holds among open strings.

A million honest reports of first names at epsilon 4, and forged ones on top
(docs/understand/attacks.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.studies.study import Study
from hubbub.inference.counts import CohortCounts, count_records
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.populations import census_first_names
from hubbub.simulations.simulated_clients.clients import Attack, AttackKind, as_records, forge
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

HONEST = 1_000_000
TYPE = OpenStringType((4, 7), 256)
PARAMS = RapporParams(256, 1, 768, 0.0, 1 / (math.exp(4) + 1), 0.5)
SHARES = (0.0005, 0.001, 0.002, 0.004)


@dataclass(frozen=True, slots=True)
class Planting:
    """What forgers do: at all steps, or at the last alone."""

    name: str
    string: str
    kind: AttackKind
    last_step_only: bool = False
    work = 1.0

    def run(self, number: int) -> tuple[bool, ...]:
        """Return whether the string is detected, for each share of forged reports."""
        people = census_first_names()
        assert self.string not in people.values
        plan = ReportingPlan(people, PARAMS, HONEST, open_type=TYPE)
        honest = sample_population(plan, np.random.SeedSequence(number)).counts
        found = []
        for share in SHARES:
            forged = self.forged_counts(share, np.random.default_rng([number, 1]))
            decoded = decode_open_strings(honest + forged, PARAMS, TYPE).decoding
            found.append(self.string in decoded.candidates)
        return tuple(found)

    def forged_counts(self, share: float, rng: np.random.Generator) -> CohortCounts:
        """Return the counts of forged reports that are a share of all."""
        n = round(HONEST * share / (1 - share))
        # Forgers choose their cohorts as they like.
        drawn = n * (len(TYPE.steps) + 1) * 2 if self.last_step_only else n
        cohorts, bits = forge(Attack(self.kind, share), drawn, (self.string,), PARAMS, rng, TYPE)
        chosen = np.arange(drawn)
        if self.last_step_only:
            chosen = np.flatnonzero(cohorts >= len(TYPE.steps) * TYPE.cohorts)[:n]
        return count_records(as_records(cohorts[chosen], bits[chosen]), PARAMS)


CASES = (
    Planting("Marlisa, its bits always set", "Marlisa", AttackKind.MAXIMAL_GAIN),
    Planting("Marlisa, as an honest client that holds it", "Marlisa", AttackKind.FALSE_VALUE),
    Planting("Qxzvjk, its bits always set", "Qxzvjk", AttackKind.MAXIMAL_GAIN),
    Planting(
        "Michaelson, at the last step alone, its bits always set",
        "Michaelson",
        AttackKind.MAXIMAL_GAIN,
        last_step_only=True,
    ),
)
"""Of names that nobody holds: one that looks like a name, one that doesn't, a longer one."""


def _detected(place: int) -> Callable[[object, Sequence[tuple[bool, ...]]], str]:
    return lambda _case, trials: f"{sum(trial[place] for trial in trials)} of {len(trials)}"


STUDY = Study(
    "Trials in which a planted name is detected, by the share of forged reports",
    "How often a planted name is detected, by the share of forged reports.",
    lambda: CASES,
    {
        "planted": lambda case, _: case.name,
        **{f"{share:.2%}": _detected(place) for place, share in enumerate(SHARES)},
    },
    runs=2,
)
