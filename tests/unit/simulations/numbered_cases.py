"""Cases that other processes can import, as the tests of a folder can't be."""

import os
from dataclasses import dataclass

import numpy as np

from evaluation.laboratory import seed_of


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case whose score is a number that follows from its name and the trial's."""

    name: str
    work: float = 1.0

    def run(self, number: int) -> float:
        return float(np.random.default_rng(seed_of(self.name, number)).random())


@dataclass(frozen=True, slots=True)
class Threads:
    """A case that returns on how many threads a trial may compute."""

    name: str = "threads"
    work: float = 1.0

    def run(self, number: int) -> str | None:  # noqa: ARG002
        return os.environ.get("OMP_NUM_THREADS")
