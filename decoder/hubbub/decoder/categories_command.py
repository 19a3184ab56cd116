"""`hubbub-decoder decode` for metrics whose values the registry lists: no candidates to bring."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from hubbub.client.metrics import Metric
from hubbub.decoder import categories_output as results
from hubbub.decoder.categories_decoding import decode_categories
from hubbub.decoder.inputs import Input
from hubbub.decoder.multiple_testing import Correction
from hubbub.decoder.output import stdout_console
from hubbub.decoder.usage import Given


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command's options that say what to do with the estimates; see its --help."""

    alpha: float
    correction: Correction
    detected_only: bool
    output: str | None
    rows: int


def refuse_candidates(metric: Metric, given: Given) -> None:
    """Refuse strings to look for where the registry says what there is.

    Raises
    ------
    click.UsageError
    """
    for name in given.names("candidates", "map"):
        raise click.UsageError(
            f"{name}: must be left out; metrics.{metric.name}.type = "
            f"{metric.kind.name!r} says which values there are."
        )


def show_categories(metric: Metric, taken: Input, wanted: Wanted) -> None:
    """Decode the reports of an enum, boolean or ordinal metric, and give out the result."""
    decoding = decode_categories(
        taken.counts, metric, alpha=wanted.alpha, correction=wanted.correction
    )
    chosen, findings = wanted.detected_only, taken.findings
    if wanted.output == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
        sys.stdout.write(results.to_csv(decoding, detected_only=chosen))
        if decoding.known_rates.suspicious or (findings and findings.suspicious):
            click.echo(
                "warning: some reports don't look honest; run without --output - for more",
                err=True,
            )
        return
    if wanted.output:
        results.write(decoding, wanted.output, detected_only=chosen, findings=findings)
    results.print_table(
        decoding, stdout_console(), detected_only=chosen, limit=wanted.rows, findings=findings
    )
