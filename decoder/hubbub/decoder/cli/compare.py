"""`hubbub-decoder compare`: the options, and what each of them means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hubbub.decoder.cli import shared
from hubbub.decoder.options import (
    DecodeOptions,
    check_options,
    where_of,
)
from hubbub.reporting.command_line import cli_errors

if TYPE_CHECKING:
    from hubbub.reporting.estimates import Estimates


@click.command()
@click.argument("metric")
@shared.metrics
@shared.store
@click.option(
    "--control",
    required=True,
    metavar="GROUP",
    help="The group to compare with: FIRST..LAST, UTC days of --store; DIMENSION=VALUE of the app, "
    "such as arm=control; another store's URL; or several of these in the order URL@arm=control"
    "@FIRST..LAST.",
)
@click.option("--treatment", required=True, metavar="GROUP", help="The group that is compared.")
@click.option(
    "--candidates",
    metavar="FILE",
    help="For strings: those to look for, one per line, as for decode.",
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
    help="Treatment's clients over the control's as they were assigned, such as 1: groups of other "
    "sizes are a warning.",
)
@click.option(
    "--quantiles",
    is_flag=True,
    help="For ordinals: compare quantiles instead of the buckets' shares.",
)
@click.option(
    "--sequential",
    is_flag=True,
    help="Look as often as you like while reports come in, and stop when you like: intervals and "
    "q-values hold at all looks together, and are wider for it.",
)
def compare(control: str, treatment: str, sample_ratio: float | None, **options: Any) -> None:
    """Compare two groups of reports: two periods, two releases, two arms.

    For every string that is detected in both groups together, every category, or every mean, this
    shows both shares, their difference and their ratio with 95% intervals, and whether the groups
    differ, at a controlled rate of false discoveries.

    \b
      hubbub-decoder compare homepage --metrics metrics.toml --candidates urls.txt \\
          --control 2026-11-01..2026-11-07 --treatment 2026-11-08..2026-11-14

    \b
      hubbub-decoder compare crash --metrics metrics.toml \\
          --control arm=control --treatment arm=new-cache

    Groups of different clients, such as arms of an experiment, are compared best; two periods of
    the same clients can be compared, too, with intervals that are wider than they need be.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    shared.check_alpha(options["alpha"])
    with cli_errors():
        files, safe = options.pop("files"), options.pop("spreadsheet_safe")
        options["where"] = where_of(options["where"])
        chosen = DecodeOptions.of({**options, "method": "regression"})
        check_options(chosen)

        def compared(*, provenance: bool) -> Estimates:
            from hubbub.decoder.cli.progress import OnTerminal  # noqa: PLC0415 - see `cli.group`
            from hubbub.decoder.comparing import CompareOptions  # noqa: PLC0415
            from hubbub.decoder.comparing import compare as compare_groups  # noqa: PLC0415

            groups = CompareOptions(control, treatment, chosen, sample_ratio)
            return compare_groups(groups, OnTerminal(), provenance=provenance)

        shared.write_estimates(compared, files, spreadsheet_safe=safe)
