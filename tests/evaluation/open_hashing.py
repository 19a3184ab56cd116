"""What it costs if the steps of open strings hash alike: false names that each hands to the next.

`python -m evaluation.open_hashing RUNS` prints the table of docs/open-strings.md: a million
clients' domains at epsilon 4, hashed as the protocol says, and with each step's cohorts numbered
from 0.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.populations import domain_names
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

CLIENTS = 1_000_000
STEPS, COHORTS = (4, 7, 10, 14), 256
PARAMS = RapporParams(256, 1, (len(STEPS) + 1) * COHORTS, 0.0, 1 / (math.exp(4) + 1), 0.5)


class HashedAlike(OpenStringType):
    """Open strings whose steps share the numbers with which cohorts are hashed."""

    __slots__ = ()

    def hashed_cohort(self, cohort: int) -> int:
        """Return the number of a cohort within its step."""
        return cohort % self.cohorts


def main(runs: int) -> None:
    """Print found and false names, and of the false those that are as long as the last step."""
    people = domain_names()
    print("| steps are hashed | found | false | share | of the length of the last prefix |")
    print("|---|---|---|---|---|")
    for label, kind in (("apart", OpenStringType), ("alike", HashedAlike)):
        metric_type = kind(STEPS, COHORTS)
        plan = ReportingPlan(people, PARAMS, CLIENTS, open_type=metric_type)
        found, false, of_length, shares = 0, 0, 0, []
        for run in range(runs):
            counts = sample_population(plan, np.random.SeedSequence(run)).counts
            decoding = decode_open_strings(counts, PARAMS, metric_type).decoding
            names = [decoding.candidates[row] for row in decoding.largest_detected()]
            wrong = [name for name in names if name not in set(people.values)]
            found, false = found + len(names) - len(wrong), false + len(wrong)
            of_length += sum(len(name.encode()) == STEPS[-1] for name in wrong)
            shares.append(len(wrong) / max(len(names), 1))
        print(f"| {label} | {found / runs:.1f} | {false / runs:.1f} | {np.mean(shares):.3f} "
              f"± {np.std(shares) / math.sqrt(runs):.3f} | {of_length / runs:.1f} |")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
