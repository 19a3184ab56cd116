"""`hubbub-decoder privacy`, `hubbub-collector catalogue`: what a registry's metrics reveal.

Only what --help needs is imported at once; the figures need the decoder's packages.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path

import click

from hubbub.protocol import explain_missing_packages
from hubbub.reporting import cli_errors, only_files, whole_number

_WIDTH_OFF_TERMINAL = 150  # columns: its widest table isn't wrapped in a file
_MOST_REPORTS = 1_000_000_000  # far more than a client sends in its life


@click.command()
@click.argument("metrics")
@click.option(
    "--days",
    default=365,
    show_default=True,
    type=whole_number(1),
    help="Number of days, with one report on each.",
)
@click.option(
    "--values",
    default=1,
    show_default=True,
    type=whole_number(1),
    help="Distinct values of a metric in these days, for histories that change at the same times.",
)
@click.option(
    "--reports",
    type=whole_number(1),
    help="Reports of each metric that are shuffled each day, one per client. Also bounds what "
    "they reveal together, and predicts how well they can be linked.",
)
@click.option(
    "--delta",
    default=1e-6,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Probability that the bound for shuffled reports may fail.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    callback=only_files(".csv", ".json"),
    metavar="FILE",
    help="Also write .csv or .json; may be repeated.",
)
def privacy(
    metrics: str,
    days: int,
    values: int,
    reports: int | None,
    delta: float,
    outputs: tuple[str, ...],
) -> None:
    """Show what metrics reveal; METRICS is a metrics.toml.

    \b
      hubbub-decoder privacy metrics.toml
      hubbub-decoder privacy metrics.toml --days 30 --values 3 --reports 1e5

    Every figure is an upper bound, and its theorem is named below the tables. The exception is how
    well reports can be linked by their content, which predicts what the best attacker achieves. In
    a group of metrics, only the most expensive one counts.

    "Same times" compares histories whose values change at the same times. "Any history" compares
    all histories that record at the same times; with memory = "value", nothing bounds what a change
    reveals. "Known after" is how many of a client's reports show its permanent response, with the
    given probability, to someone who can link them. docs/understand/proofs.md explains all of it.
    """
    if reports is not None and reports > _MOST_REPORTS:  # sums would take minutes, or overflow
        raise click.BadParameter(
            f"{reports:,} must be at most {_MOST_REPORTS:,}, whose bounds hold for more, too",
            param_hint="'--reports'",
        )
    from hubbub.planning.histories import LifetimeBudget
    from hubbub.planning.privacy import (
        PlanAssumptions,
        group_figures,
        metric_figures,
        privacy_estimates,
        registry_figures,
    )
    from hubbub.protocol import Registry
    from hubbub.reporting import write_results

    with cli_errors():
        registry = Registry.load(metrics)
        assumptions = PlanAssumptions(days, values, reports, delta)
        together = registry_figures(registry, assumptions)
        budget = LifetimeBudget.of(registry)
        figures = {name: metric_figures(registry[name], assumptions, budget) for name in registry}
        of_groups = group_figures(registry, assumptions)
        result = privacy_estimates(registry, assumptions, figures, together, of_groups)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)


@click.command()
@click.argument(
    "metrics",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="METRICS...",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the pages; existing pages of the same names are replaced.",
)
def catalogue(metrics: tuple[Path, ...], output: Path) -> None:
    """Write web pages that explain METRICS to users, reviewers and data protection officers.

    \b
      hubbub-collector catalogue metrics.toml --output site
      hubbub-collector catalogue 2026.toml 2027.toml metrics.toml --output site

    Each metric gets a page: what is asked, why, by whom and until when; an example of what leaves a
    device; both epsilons and why they hold; what can be linked; its readers; and its versions. If
    you give several registries, the last one is in force and the others are its history, oldest
    first. The pages need no scripts and load nothing from other hosts.
    """
    explain_missing_packages("collector,decoder")
    from hubbub.planning.catalogue import pages
    from hubbub.protocol import Registry
    from hubbub.reporting import Estimates, atomic_write, cli_errors, write_html

    with cli_errors():
        history = [Registry.load(each) for each in metrics]
        found = pages(history, dt.datetime.now(dt.UTC).date())
        output.mkdir(parents=True, exist_ok=True)
        for name, page in found.items():
            atomic_write(output / name, partial(write_html, Estimates(page=page)))
    click.echo(f"Wrote {len(found)} pages; begin with {output / 'index.html'}")
