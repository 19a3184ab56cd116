"""Which share of forged reports plants a string that nobody holds among open strings.

`python -m evaluation.planted RUNS` prints the table of docs/poisoning.md: a million honest reports
of first names at epsilon 4, and forged ones on top.
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np

from hubbub.inference.counts import CohortCounts, count_records
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.populations import census_first_names
from hubbub.simulations.simulated_clients.attacks import Attack, AttackKind, forge
from hubbub.simulations.simulated_clients.clients import as_records
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

HONEST = 1_000_000
TYPE = OpenStringType((4, 7), 256)
PARAMS = RapporParams(256, 1, 768, 0.0, 1 / (math.exp(4) + 1), 0.5)
SHARES = (0.0005, 0.001, 0.002, 0.004)


class Planting(NamedTuple):
    """What forgers do: at all steps, or at the last alone."""

    string: str
    kind: AttackKind
    last_step_only: bool = False


PLANTINGS = {
    "Marlisa, its bits always set": Planting("Marlisa", AttackKind.MAXIMAL_GAIN),
    "Marlisa, as an honest client that holds it": Planting("Marlisa", AttackKind.FALSE_VALUE),
    "Qxzvjk, its bits always set": Planting("Qxzvjk", AttackKind.MAXIMAL_GAIN),
    "Michaelson, at the last step alone, its bits always set": Planting(
        "Michaelson", AttackKind.MAXIMAL_GAIN, last_step_only=True
    ),
}


def forged_counts(planting: Planting, share: float, rng: np.random.Generator) -> CohortCounts:
    """Return the counts of forged reports that are a share of all."""
    n = round(HONEST * share / (1 - share))
    # Forgers choose their cohorts as they like.
    drawn = n * (len(TYPE.steps) + 1) * 2 if planting.last_step_only else n
    attack = Attack(planting.kind, share)
    cohorts, bits = forge(attack, drawn, (planting.string,), PARAMS, rng, TYPE)
    chosen = np.arange(drawn)
    if planting.last_step_only:
        chosen = np.flatnonzero(cohorts >= len(TYPE.steps) * TYPE.cohorts)[:n]
    return count_records(as_records(cohorts[chosen], bits[chosen]), PARAMS)


def main(runs: int) -> None:
    """Print how often a planted string is detected."""
    people = census_first_names()
    assert not {planting.string for planting in PLANTINGS.values()} & set(people.values)
    plan = ReportingPlan(people, PARAMS, HONEST, open_type=TYPE)
    honest = [sample_population(plan, np.random.SeedSequence(run)).counts for run in range(runs)]
    print("| planted | " + " | ".join(f"{share:.2%}" for share in SHARES) + " |")
    print("|" + "---|" * (1 + len(SHARES)))
    for name, planting in PLANTINGS.items():
        cells = []
        for share in SHARES:
            found = 0
            for run, counts in enumerate(honest):
                forged = forged_counts(planting, share, np.random.default_rng([run, 1]))
                decoded = decode_open_strings(counts + forged, PARAMS, TYPE).decoding
                found += planting.string in decoded.candidates
            cells.append(f"{found} of {runs}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
