"""`hubbub-decoder decode` for metrics whose values the registry lists: no candidates to bring."""

from __future__ import annotations

import click

from hubbub.client.metrics import Metric
from hubbub.decoder.categories import output as results
from hubbub.decoder.categories.decoding import CategoryDecoding, decode_categories
from hubbub.decoder.categories.parquet import write_categories
from hubbub.decoder.categories.report import write_category_report
from hubbub.decoder.cli.inputs import Input
from hubbub.decoder.cli.usage import Given, Wanted
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.output.files import Rendering, utf8
from hubbub.decoder.output.giving_out import give_out, needs_provenance
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.provenance_of import provenance_of
from hubbub.decoder.output.strings import stdout_console
from hubbub.decoder.reports.scrutiny import Findings


def refuse_options_of_strings(metric: Metric, given: Given, wanted: Wanted) -> None:
    """Refuse strings to look for, and their method, where the registry says what there is.

    Raises
    ------
    click.UsageError
    """
    for name in given.names("candidates", "map"):
        raise click.UsageError(
            f"{name}: must be left out; metrics.{metric.name}.type = "
            f"{metric.kind.name!r} says which values there are."
        )
    if wanted.method == "likelihood":
        raise click.UsageError(
            f"--method likelihood: metrics.{metric.name}.type = {metric.kind.name!r}; its bit "
            "counts say all that whole reports do. Leave --method out."
        )


def show_categories(metric: Metric, taken: Input, given: Given, wanted: Wanted) -> None:
    """Decode the reports of an enum, boolean or ordinal metric, and give out the result."""
    decoding = decode_categories(
        taken.counts, metric, alpha=wanted.alpha, correction=Correction(wanted.correction)
    )
    origin = None
    if needs_provenance(wanted.outputs):
        origin = provenance_of(given, wanted, metric, taken, method="inversion")
    chosen, findings = wanted.detected_only, taken.findings
    give_out(
        wanted.outputs,
        _renderings(decoding, findings, origin, detected_only=chosen),
        lambda: results.print_table(
            decoding, stdout_console(), detected_only=chosen, limit=wanted.rows, findings=findings
        ),
        suspicious=decoding.known_rates.suspicious or bool(findings and findings.suspicious),
    )


def _renderings(
    decoding: CategoryDecoding,
    findings: Findings | None,
    origin: Provenance | None,
    *,
    detected_only: bool,
) -> dict[str, Rendering]:
    return {
        ".csv": utf8(lambda: [results.to_csv(decoding, detected_only=detected_only)]),
        ".json": utf8(
            lambda: [
                results.to_json(
                    decoding, detected_only=detected_only, findings=findings, provenance=origin
                )
            ]
        ),
        ".parquet": lambda file: write_categories(
            file, decoding, detected_only=detected_only, findings=findings, provenance=origin
        ),
        ".html": lambda file: write_category_report(
            file, decoding, findings=findings, provenance=origin
        ),
    }
