"""How often the intervals of tables hold the truth, and independence is rejected.

A hundred values by twenty, for many and few clients, with and without partners; three fields; a
thousand strings by yes or no, which are hashed; and smaller tables. Counts are drawn by their
distribution; one trial is one population with partners of its own, and one sample of it.
docs/understand/joint.md has the table.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluation.drawn_counts import draw_cells, draw_counts
from evaluation.studies.study import Study, mean, means
from evaluation.tables import (
    HASHED,
    PARTNERS,
    JointExperiment,
    JointOutcome,
    JointScore,
    joint_population,
    judge_counts,
)
from hubbub.decoder import CohortCounts
from hubbub.protocol import UNARY, RapporParams, Subset

KINDS = ("cells", "common_cells", "margins", "conditionals", "strength")
"""The intervals of a score."""


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """A table by Zipf's law, whose clients report once; only the counts are drawn."""

    sizes: str  # as `joint_population` takes them
    reports: int
    epsilon: float  # of a client's only report: f = 0, p = 1 / (e^epsilon + 1), q = 1/2
    partners: int  # percent of the clients who hold the partners of their first field's value

    @property
    def name(self) -> str:
        """A short name that says all of it, such as joint-100x20-1M-eps4-partners30."""
        size = f"{self.reports / 1e6:g}M-eps{self.epsilon:g}"
        tied = f"partners{self.partners}" if self.partners else "independent"
        return f"joint-{self.sizes}-{size}-{tied}"

    @property
    def work(self) -> float:
        return 5e6 + 10 * self.reports

    def experiment(self, run: int) -> JointExperiment:
        """Return a run's population, whose partners and strings are of this run alone."""
        seed = zlib.crc32(self.name.encode()) + (run << 32)
        strings = HASHED if "s" in self.sizes else None
        rng = np.random.default_rng([seed, PARTNERS])
        population = joint_population(
            self.sizes, "zipf:1", self.partners / 100, rng, strings, f"run {run} "
        )
        size = population.metric_type.filter_size(strings or {})
        rare = 1 / (math.exp(self.epsilon) + 1)
        params = RapporParams(**size, f=0.0, p=rare, q=0.5)
        return JointExperiment(population, params, self.reports, seed=seed)

    def run(self, number: int) -> JointOutcome:
        experiment = self.experiment(number)
        return judge_counts(experiment, draw_tuples(experiment, np.random.default_rng(number)))


class SubsetTable(DrawnTable):
    """The same, reported by subset selection of the best size."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return f"{DrawnTable.name.fget(self)}-subsets"  # type: ignore[attr-defined]

    def experiment(self, run: int) -> JointExperiment:
        """Return a run's population."""
        plain = DrawnTable.experiment(self, run)
        cells = plain.population.metric_type.width or 0
        size = max(round(cells / (math.exp(self.epsilon) + 1)), 1)
        chance = size / (size + (cells - size) * math.exp(-self.epsilon))
        response = Subset(cells, size, chance)
        params = RapporParams(
            plain.params.k, 1, 1, f=0.0, p=response.other_chance, q=response.chance
        )
        return replace(plain, params=params, response=response)


def draw_tuples(experiment: JointExperiment, rng: np.random.Generator) -> CohortCounts:
    """Draw the counts of an experiment's clients."""
    people, params, reports = experiment.population, experiment.params, experiment.reports
    if experiment.response != UNARY:
        a_type = people.metric_type
        cells = [a_type.cell(a_type.digits(value)) for value in people.values]
        return draw_cells(experiment.metric, cells, people.shares, reports, rng)
    return draw_counts(people.values, people.shares, params, reports, rng, people.metric_type)


CASES = (
    *(DrawnTable("100x20", reports, epsilon, partners)
      for reports in (1_000_000, 30_000) for epsilon in (2, 4, 8) for partners in (0, 10, 30)),
    *(DrawnTable(sizes, 1_000_000, 4, 30) for sizes in ("10x10x2", "1000sx2")),
    *(DrawnTable("6x5", reports, epsilon, partners)
      for reports in (3_000, 30_000) for epsilon in (2, 4) for partners in (0, 30)),
    *(DrawnTable("8x5x2", 100_000, 4, partners) for partners in (0, 30)),
    *(SubsetTable("6x5", 3_000, 2, partners) for partners in (0, 30)),
    *(SubsetTable("8x5x2", 100_000, 4, partners) for partners in (0, 30)),
)  # fmt: skip


def shares_held(trials: Sequence[JointOutcome], kind: str) -> list[float]:
    """Return every trial's share of intervals that hold the truth, nan where there are none."""
    return [getattr(trial.score, kind).share for trial in trials]


def _held(kind: str) -> Callable[[object, Sequence[JointOutcome]], object]:
    return lambda _case, trials: mean(shares_held(trials, kind))


def _wrong(score: JointScore) -> float:
    return score.wrong_departures / max(score.departures, 1)


STUDY = Study(
    "Tables: 95% intervals that hold the truth, and trials that reject independence",
    """Shares of the 95% intervals that hold the truth, and of the trials that reject independence.

    A trial's figure is one observation. "wrong" is the share of false ones among the cells that are
    said to depart from independence.
    """,
    lambda: CASES,
    {
        "case": lambda case, _: case.name,
        **{kind.replace("_", " "): _held(kind) for kind in KINDS},
        **means("rejected", of=lambda trial: trial.score),
        "wrong": lambda _, trials: mean([_wrong(trial.score) for trial in trials]),
        "variation": lambda _, trials: mean([each.score.total_variation for each in trials]),
        "refit": lambda _, trials: mean([each.score.total_variation_refit for each in trials]),
        "s": lambda _, trials: f"{np.median([trial.seconds for trial in trials]):.2f}",
    },
    runs=400,
)
