"""`hubbub-decoder compare`: the options, and what each of them means."""

from __future__ import annotations

from typing import Any

import click

from hubbub.decoder.cli import shared
from hubbub.decoder.options import (
    DecodeOptions,
    check_options,
    where_of,
)
from hubbub.reporting.command_line import cli_errors


@click.command()
@click.argument("metric")
@shared.metrics
@shared.store
@click.option(
    "--control",
    required=True,
    metavar="GROUP",
    help="The group to compare with: UTC days of --store, as FIRST..LAST; a DIMENSION=VALUE of "
    "the app, such as arm=control; another store's URL; or several of these in the order "
    "URL@arm=control@FIRST..LAST.",
)
@click.option(
    "--treatment",
    required=True,
    metavar="GROUP",
    help="The group to compare, given in the same way.",
)
@click.option(
    "--candidates",
    metavar="FILE",
    help="For strings: the list to look for, one per line, as for decode.",
)
@shared.where
@shared.alpha
@shared.correction
@shared.engine
@shared.master
@shared.output
@shared.spreadsheet_safe
@shared.rows
@shared.min_reports("Refuse to compare a group with fewer reports than this.")
@shared.reports_per_client
@click.option(
    "--sample-ratio",
    type=click.FloatRange(0, min_open=True),
    metavar="R",
    help="How many clients were assigned to the treatment for each one in the control, such as 1; "
    "warns if the groups' sizes don't fit.",
)
@click.option(
    "--sequential",
    is_flag=True,
    help="Allow any number of looks while reports come in, and stopping at any time: intervals "
    "are wider and q-values larger, and they hold for all looks together.",
)
def compare(control: str, treatment: str, sample_ratio: float | None, **options: Any) -> None:
    """Compare two groups of reports: two periods, two releases, two arms.

    For every category, every mean, or every string detected in the two groups together, this shows
    both shares, their difference and ratio with 95% intervals, and whether the groups differ, at a
    controlled false discovery rate.

    \b
      hubbub-decoder compare homepage --metrics metrics.toml --candidates urls.txt \\
          --control 2026-11-01..2026-11-07 --treatment 2026-11-08..2026-11-14

    \b
      hubbub-decoder compare crash --metrics metrics.toml \\
          --control arm=control --treatment arm=new-cache

    This works best for groups of different clients, such as the arms of an experiment. You can also
    compare two periods of the same clients, but the intervals are then wider than they need to be.
    """
    with cli_errors():
        files, safe = options.pop("files"), options.pop("spreadsheet_safe")
        options["where"] = where_of(options["where"])
        chosen = DecodeOptions(**options, method="regression")
        check_options(chosen)
        from hubbub.decoder import comparing
        from hubbub.decoder.pipeline import OnTerminal
        from hubbub.inference.parallel import one_thread
        from hubbub.reporting.formats import writers

        writers.check_output_option(files)
        groups = comparing.CompareOptions(control, treatment, chosen, sample_ratio)
        with one_thread():  # as `cli.decode`
            stated = writers.needs_provenance(files)
            found = comparing.compare(groups, OnTerminal(), provenance=stated)
            writers.write_results(found, files, spreadsheet_safe=safe)
