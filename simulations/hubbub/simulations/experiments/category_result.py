"""An enum's experiment as a result: each category's true share beside the estimated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from hubbub.protocol.responses import UNARY
from hubbub.reporting.blocks import Line, Page, Section, Table, headings
from hubbub.simulations.experiments.categories import CategoryExperiment, CategoryOutcome
from hubbub.simulations.experiments.charts import estimates_chart
from hubbub.simulations.experiments.result import (
    SimulationResult,
    cell,
    origin,
    simulation_result,
    tried,
)

_ROWS = 50


def category_result(
    experiment: CategoryExperiment, outcome: CategoryOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what was found of a population in categories.

    Parameters
    ----------
    experiment : CategoryExperiment
    outcome : CategoryOutcome
    options : mapping
        Of the command, as they are to be shown.
    """
    metric, reports = experiment.metric, experiment.plan.reports
    drawn = {} if experiment.response == UNARY else experiment.response.definition()
    facts = {
        **origin(options, experiment.params, experiment.seed),
        **drawn,
        "mode": experiment.mode,
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
    found, plan, each = outcome.score, experiment.plan, experiment.metric.epsilon_report
    n_categories = len(experiment.population.values)
    size = f"{n_categories:,} categories; seed {experiment.seed}"
    distance = f"total variation {found.total_variation:.4f} of them"
    often = {
        "once": f"{plan.reports_each} of each client, one a period of {plan.period_days} days",
        "longitudinal": f"{plan.reports_each} of each client",
        "one-time": "one of each client",
    }[experiment.mode]
    return [
        f"{plan.reports:,} reports, {often}, at epsilon {each:.4g} a report; {size}.",
        f"{found.detected:,} were detected; {distance}, {found.total_variation_all:.4f} of all.",
        f"95% intervals hold the truth for {found.interval_coverage:.1%} of the categories.",
    ]
