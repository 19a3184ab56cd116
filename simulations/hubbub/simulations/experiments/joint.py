"""One experiment with a joint metric: a population of tuples, its reports, its table, a result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.counts import CohortCounts
from hubbub.inference.joint.decoding import JointDecoding, decode_joint
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.reporting.blocks import Line, Page, Section, Table, headings
from hubbub.reporting.charts import HeatMap, Labels, XYChart
from hubbub.simulations.experiments.result import (
    SimulationResult,
    cell,
    estimates_chart,
    origin,
    simulation_result,
    tried,
)
from hubbub.simulations.experiments.scoring import (
    COMMON,
    Coverage,
    DecodedShares,
    JointScore,
    score_joint,
)
from hubbub.simulations.populations import JointPopulation
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

PARTNERS, _PEOPLE = range(2)
"""Parts of an experiment that draw random numbers of their own: who is whose partner; clients."""


@dataclass(frozen=True, slots=True)
class JointExperiment:
    """What is tried: clients, each of whom reports its tuple once, and by which response."""

    population: JointPopulation
    params: RapporParams
    reports: int
    alpha: float = 0.05
    correction: Correction = Correction.BH
    seed: int = 0
    response: Response = UNARY

    @property
    def plan(self) -> ReportingPlan:
        """Who reports: everybody once."""
        return ReportingPlan(self.population, self.params, self.reports, response=self.response)

    @property
    def metric(self) -> Metric:
        """The metric that is reported."""
        return self.plan.metric._replace(mode="one-time")


@dataclass(frozen=True, slots=True)
class JointOutcome:
    """How an experiment went."""

    decoding: JointDecoding
    score: JointScore
    seconds: float  # CPU time from the counts to the table with all its tests


def run_joint(
    experiment: JointExperiment,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> JointOutcome:
    """Draw and count all reports in memory, decode and score them.

    The same experiment gives the same table and score, whatever the number of workers.
    """
    seed = np.random.SeedSequence([experiment.seed, _PEOPLE])
    sample = sample_population(experiment.plan, seed, workers=workers, progress=progress)
    return judge_table(experiment, sample.counts)


def judge_table(experiment: JointExperiment, counts: CohortCounts) -> JointOutcome:
    """Decode counts and compare the table with the truth."""
    population = experiment.population
    started = time.process_time()
    decoding = decode_joint(
        counts,
        experiment.metric,
        population.fields,
        alpha=experiment.alpha,
        correction=experiment.correction,
    )
    seconds = time.process_time() - started
    return JointOutcome(decoding, score_joint(decoding, population.shares), seconds)


_ON_MAP = 20  # as in decoded tables
_INTERVALS = {
    "cells": "cells",
    "common_cells": f"cells above {COMMON:.1%}",
    "margins": "margins",
    "conditionals": "conditional shares",
    "strength": "Cramer's V",
}


def joint_result(
    experiment: JointExperiment, outcome: JointOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what was found of a population of tuples."""
    table, population = outcome.decoding.table, experiment.population
    facts = {
        **origin(options, experiment.params, experiment.seed),
        "reports": experiment.reports,
        "cells": len(population.values),
        "score": _score_json(outcome.score),
        "independence": [asdict(each) for each in table.independence] if table else None,
    }
    true = _map(experiment, "true-table", "The true table", population.shares)
    refit = outcome.decoding.cells.refit
    decoded = _map(experiment, "refit-table", "The decoded table, refit", refit)
    cells = _cells_chart(experiment, outcome)
    coverage, sentences = _coverage_table(outcome.score), _sentences(experiment, outcome.score)
    sections = [
        Section("How good it was", tuple(sentences[1:]), tables=(coverage,)),
        Section("The table", charts=(true, decoded)),
        Section("Cells", charts=(cells,)),
        tried(options, experiment.params),
    ]
    return simulation_result(
        facts,
        (coverage, *map(Line, sentences)),
        Page("A simulated population of several fields", sentences[0], sections),
        {"truth.png": (true,), "refit.png": (decoded,), "estimates.png": (cells,)},
    )


def _cells_chart(experiment: JointExperiment, outcome: JointOutcome) -> XYChart:
    population, cells = experiment.population, outcome.decoding.cells
    shares = DecodedShares(
        cells.share, cells.std_error, cells.low, cells.high, cells.p_value, cells.detected, {}
    )
    names = tuple(
        ", ".join(each.labels[i] for each, i in zip(population.fields, place, strict=True))
        for place in np.ndindex(population.shape)
    )
    title = f"{experiment.reports:,} reports, {len(names):,} cells"
    return estimates_chart(names, population.shares, shares, title, "cells")


def _map(experiment: JointExperiment, name: str, title: str, shares: FloatArray) -> HeatMap:
    """Draw the first two fields' commonest values; they are in the order of their truth."""
    population = experiment.population
    others = tuple(range(2, len(population.shape)))
    table = 100 * np.nan_to_num(shares).reshape(population.shape).sum(axis=others)
    rows, columns = (field.labels[:_ON_MAP] for field in population.fields[:2])
    y, x = (field.name for field in population.fields[:2])
    described = (
        f"Shares of all reports: {len(rows)} of {len(table):,} values of {y} and "
        f"{len(columns)} of {table.shape[1]:,} of {x}, the commonest."
    )
    return HeatMap(
        Labels(name, title, described, x, y),
        rows,
        columns,
        table[:_ON_MAP, :_ON_MAP],
        table.sum(axis=1)[:_ON_MAP],
        table.sum(axis=0)[:_ON_MAP],
    )


def _coverage_table(score: JointScore) -> Table:
    rows = tuple(
        (what, f"{found.intervals:,}", cell(found.share))
        for what, found in ((_INTERVALS[name], getattr(score, name)) for name in _INTERVALS)
    )
    heads = headings("95% intervals of", "how many", "share that holds the truth")
    return Table("Coverage", heads, rows)


def _sentences(experiment: JointExperiment, score: JointScore) -> list[str]:
    names = " by ".join(str(size) for size in experiment.population.shape)
    seeded = f"{experiment.reports:,} reports of a table of {names} values; seed {experiment.seed}."
    distance = (
        f"Total variation {score.total_variation:.4f} of the constrained shares and "
        f"{score.total_variation_refit:.4f} of the refit ones; {score.detected:,} cells were "
        "detected."
    )
    if math.isnan(score.p_value):
        return [seeded, distance, "Too few values are known for a table and its tests."]
    verdict = "rejected" if score.rejected else "not rejected"
    tested = (
        f"Independence was {verdict} (p = {score.p_value:.2g}); {score.departures:,} cells "
        f"are said to depart from it, {score.wrong_departures:,} of them wrongly."
    )
    return [seeded, distance, tested]


def _score_json(score: JointScore) -> dict[str, object]:
    found = {**asdict(score), "rejected": score.rejected}
    for name in _INTERVALS:
        own: Coverage = getattr(score, name)
        found[name] = {**asdict(own), "share": own.share}
    return found
