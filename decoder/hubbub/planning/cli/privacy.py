"""`hubbub-decoder privacy`: what a registry's metrics reveal, with the theorem behind each figure.

Only what --help needs is imported at once.
"""

from __future__ import annotations

import click

from hubbub.reporting.command_line import Count, cli_errors, only_files

_WIDTH_OFF_TERMINAL = 150  # columns: its widest table isn't wrapped in a file
_MOST_REPORTS = 1_000_000_000  # far more than a client sends in its life


@click.command()
@click.argument("metrics")
@click.option(
    "--days",
    default=365,
    show_default=True,
    type=Count(1),
    help="Number of days, with one report on each.",
)
@click.option(
    "--values",
    default=1,
    show_default=True,
    type=Count(1),
    help="Distinct values of a metric in these days, for histories that change at the same times.",
)
@click.option(
    "--reports",
    type=Count(1),
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
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    if reports is not None and reports > _MOST_REPORTS:  # sums would take minutes, or overflow
        raise click.BadParameter(
            f"{reports:,} must be at most {_MOST_REPORTS:,}, whose bounds hold for more, too",
            param_hint="'--reports'",
        )
    from hubbub.planning.histories import LifetimeBudget  # noqa: PLC0415
    from hubbub.planning.privacy import (  # noqa: PLC0415
        Situation,
        group_figures,
        metric_figures,
        registry_figures,
    )
    from hubbub.planning.privacy_result import privacy_estimates  # noqa: PLC0415
    from hubbub.protocol.registry import Registry  # noqa: PLC0415 - see `hubbub.decoder.cli.group`
    from hubbub.reporting.formats.writers import write_results  # noqa: PLC0415

    with cli_errors():
        registry = Registry.load(metrics)
        situation = Situation(days, values, reports, delta)
        together = registry_figures(registry, situation)
        budget = LifetimeBudget.of(registry)
        figures = {name: metric_figures(registry[name], situation, budget) for name in registry}
        of_groups = group_figures(registry, situation)
        result = privacy_estimates(registry, situation, figures, together, of_groups)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)
