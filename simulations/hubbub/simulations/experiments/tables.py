"""One experiment with an enum or joint metric: a population, its reports, its shares, a result.

The truth is the population that clients are drawn from: an interval allows for who happens to be a
client.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.inference import (
    ONCE,
    CategoryDecoding,
    Correction,
    FloatArray,
    JointDecoding,
    RepeatedReports,
    RepeatSource,
    decode_categories,
    decode_joint,
)
from hubbub.inference.counts import CohortCounts
from hubbub.protocol import UNARY, EnumType, Metric, RapporParams, Response, counted
from hubbub.reporting import HeatMap, Labels, Line, Page, Section, Table, XYChart, headings
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
    Score,
    score,
    score_joint,
)
from hubbub.simulations.populations import JointPopulation, Population
from hubbub.simulations.simulated_clients.population_sampler import ReportingPlan, sample_population

_PEOPLE = 0
"""Part of the experiment that draws random numbers of its own."""


@dataclass(frozen=True, slots=True)
class CategoryExperiment:
    """A population of categories, and how it is reported."""

    population: Population  # its values are the metric's categories
    params: RapporParams
    reports: int  # clients: each reports once, once a day, or once a period
    response: Response = UNARY  # unary, or a subset of the population's size
    days: int = 1  # as of `ReportingPlan`
    period_days: int = 0
    change: float = 0.0
    alpha: float = 0.05
    correction: Correction = Correction.BH
    seed: int = 0

    @property
    def plan(self) -> ReportingPlan:
        """The clients that report, how often, and how."""
        return ReportingPlan(
            self.population,
            self.params,
            self.reports,
            self.days,
            self.change,
            enum=EnumType(self.population.values),
            response=self.response,
            period_days=self.period_days,
        )

    @property
    def repeats(self) -> RepeatedReports:
        """How often clients have reported."""
        each = float(self.plan.reports_each)
        if each == 1:
            return ONCE
        return RepeatedReports(1.0 if self.period_days else each, each, RepeatSource.GIVEN)


@dataclass(frozen=True, slots=True)
class CategoryOutcome:
    """How an experiment went."""

    decoding: CategoryDecoding  # what the decoder makes of the counts
    estimates: DecodedShares  # the same, as the unbiased shares of all categories
    score: Score
    seconds: float  # CPU time of the decoder


def run_categories(
    experiment: CategoryExperiment,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CategoryOutcome:
    """Draw, count, decode and score reports in memory; the same whatever the number of workers."""
    seed = np.random.SeedSequence([experiment.seed, _PEOPLE])
    sample = sample_population(experiment.plan, seed, workers=workers, progress=progress)
    started = time.process_time()
    decoding = decode_categories(
        sample.counts,
        experiment.plan.metric,
        alpha=experiment.alpha,
        correction=experiment.correction,
        repeats=experiment.repeats,
    )
    seconds = time.process_time() - started
    found = decoding.estimates
    estimates = DecodedShares(
        found.unbiased,
        found.std_error,
        decoding.interval.low,
        decoding.interval.high,
        np.exp(found.log_p_value),
        decoding.detected,
        {},
    )
    truth = experiment.population.shares
    scored = score(
        truth,
        estimates.share,
        estimates.low,
        estimates.high,
        estimates.detected,
        refit=found.share,
    )
    return CategoryOutcome(decoding, estimates, scored, seconds)


_ROWS = 50  # one page


def category_result(
    experiment: CategoryExperiment, outcome: CategoryOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what was found of a population in categories."""
    metric, reports = experiment.plan.metric, experiment.plan.reports
    drawn = {} if experiment.response == UNARY else experiment.response.definition()
    facts = {
        **origin(options, experiment.params, experiment.seed),
        **drawn,
        "mode": experiment.plan.mode,
        "reports": reports,
        "epsilon_report": metric.epsilon_report,
        "score": asdict(outcome.score),
    }
    title = f"{reports:,} reports, {len(experiment.population.values):,} categories"
    chart = estimates_chart(
        experiment.population.values,
        experiment.population.shares,
        outcome.estimates,
        title,
        "categories",
    )
    table, sentences = _table(experiment, outcome), _sentences(experiment, outcome)
    sections = [
        Section("How good it was", tuple(sentences[1:])),
        Section("Estimates", charts=(chart,), tables=(table,)),
        tried(options, experiment.params, **drawn),
    ]
    return simulation_result(
        facts,
        (table, *map(Line, sentences)),
        Page("A simulated population in categories", sentences[0], sections),
        {"estimates.png": (chart,)},
    )


def _table(experiment: CategoryExperiment, outcome: CategoryOutcome) -> Table:
    found = outcome.estimates
    columns = (experiment.population.shares, found.share, found.low, found.high)
    rows = zip(experiment.population.values, *(each.tolist() for each in columns), strict=True)
    return Table(
        "Categories",
        headings("category", "true share", "estimate", "low", "high"),
        tuple((name, *map(cell, shares)) for name, *shares in list(rows)[:_ROWS]),
    )


def _sentences(experiment: CategoryExperiment, outcome: CategoryOutcome) -> list[str]:
    found, plan, each = outcome.score, experiment.plan, experiment.plan.metric.epsilon_report
    n_categories = len(experiment.population.values)
    size = f"{n_categories:,} categories; seed {experiment.seed}"
    over_all = f"{found.total_variation_all:.4f} over all"
    often = {
        "once": f"{plan.reports_each} of each client, one in {counted(plan.period_days, 'day')}",
        "longitudinal": f"{plan.reports_each} of each client",
        "one-time": "one of each client",
    }[experiment.plan.mode]
    return [
        f"{plan.reports:,} reports, {often}, at epsilon {each:.4g} per report; {size}.",
        f"{found.detected:,} detected; total variation {found.total_variation:.4f}, {over_all}.",
        f"95% intervals hold the truth for {found.interval_coverage:.1%} of the categories.",
    ]


PARTNERS, _CLIENTS = range(2)
"""Parts of an experiment that draw random numbers of their own: who is whose partner; clients."""


@dataclass(frozen=True, slots=True)
class JointExperiment:
    """Clients that each report their tuple once, and the response that they use."""

    population: JointPopulation
    params: RapporParams
    reports: int
    alpha: float = 0.05
    correction: Correction = Correction.BH
    seed: int = 0
    response: Response = UNARY

    @property
    def plan(self) -> ReportingPlan:
        """Every client reports once."""
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
    """Draw, count, decode and score reports in memory; the same whatever the number of workers."""
    seed = np.random.SeedSequence([experiment.seed, _CLIENTS])
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
    coverage, sentences = (
        _coverage_table(outcome.score),
        _joint_sentences(experiment, outcome.score),
    )
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


def _joint_sentences(experiment: JointExperiment, score: JointScore) -> list[str]:
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
