"""One experiment with an enum metric: a population, its reports, each category's share, a result.

The truth is the population that clients are drawn from, as it is of tables: a category's interval
allows for who happens to be a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
from hubbub.inference.repeated_reports import ONCE, RepeatedReports, RepeatSource
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.plurals import counted
from hubbub.protocol.responses import UNARY, Response
from hubbub.reporting.blocks import Line, Page, Section, Table, headings
from hubbub.simulations.experiments.result import (
    SimulationResult,
    cell,
    estimates_chart,
    origin,
    simulation_result,
    tried,
)
from hubbub.simulations.experiments.scoring import DecodedShares, Score, score
from hubbub.simulations.populations import Population
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

_PEOPLE = 0
"""Part of the experiment that draws random numbers of its own."""


@dataclass(frozen=True, slots=True)
class CategoryExperiment:
    """What is tried."""

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
        """Who reports, how often, and how."""
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
    """Draw and count all reports in memory, decode and score them.

    The same experiment gives the same shares and score, whatever the number of workers.
    """
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
        f"{plan.reports:,} reports, {often}, at epsilon {each:.4g} a report; {size}.",
        f"{found.detected:,} detected; total variation {found.total_variation:.4f}, {over_all}.",
        f"95% intervals hold the truth for {found.interval_coverage:.1%} of the categories.",
    ]
