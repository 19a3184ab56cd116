"""What it costs if the steps of open strings hash alike: false names that each hands to the next.

A million clients' domains at epsilon 4, hashed as the protocol says, and with each step's cohorts
numbered from 0 (docs/understand/open-strings.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evaluation.studies.study import Study, means
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


class FoundDomains(NamedTuple):
    """Right and false names of a trial; of the false the share, and those of the last length."""

    found: int
    false: int
    share: float
    of_the_length_of_the_last_prefix: int


@dataclass(frozen=True, slots=True)
class HashingCase:
    """A way to hash the steps."""

    name: str
    metric_type: type[OpenStringType]
    work = 1.0

    def run(self, number: int) -> FoundDomains:
        """Search a trial's domains."""
        people, metric_type = domain_names(), self.metric_type(STEPS, COHORTS)
        plan = ReportingPlan(people, PARAMS, CLIENTS, open_type=metric_type)
        counts = sample_population(plan, np.random.SeedSequence(number)).counts
        decoding = decode_open_strings(counts, PARAMS, metric_type).decoding
        names = [decoding.candidates[row] for row in decoding.largest_detected()]
        held = set(people.values)
        wrong = [name for name in names if name not in held]
        of_length = sum(len(name.encode()) == STEPS[-1] for name in wrong)
        share = len(wrong) / max(len(names), 1)
        return FoundDomains(len(names) - len(wrong), len(wrong), share, of_length)


STUDY = Study(
    "Domains that are found, by how steps are hashed",
    "Found and false names, and of the false those that are as long as the last step.",
    lambda: (HashingCase("apart", OpenStringType), HashingCase("alike", HashedAlike)),
    {"steps are hashed": lambda case, _: case.name, **means(*FoundDomains._fields)},
    runs=8,
)
