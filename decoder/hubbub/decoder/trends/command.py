"""`hubbub-decoder decode --by day`: a store's days, decoded with one set of candidates."""

from __future__ import annotations

import asyncio
import datetime as dt

import click

from hubbub.client.metrics import Metric
from hubbub.decoder.cli.inputs import Input, Listed
from hubbub.decoder.cli.progress import progress_bar
from hubbub.decoder.cli.usage import Given, Wanted
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.output.files import Rendering, utf8
from hubbub.decoder.output.giving_out import give_out, needs_provenance
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.provenance_of import provenance_of
from hubbub.decoder.output.strings import stdout_console
from hubbub.decoder.reports.scrutiny import Findings, Scrutiny
from hubbub.decoder.trends import output as trends_output
from hubbub.decoder.trends.decoding import Trends, decode_days
from hubbub.decoder.trends.loading import load_days
from hubbub.decoder.trends.report import write_trends_report


def show_trends(metric: Metric, store: str, listed: Listed, given: Given, wanted: Wanted) -> None:
    """Decode a metric's days, and give out the result.

    Raises
    ------
    StoreError, DecoderError, OSError
    """
    since, until = (day.date() if day else None for day in (given.since, given.until))
    scrutiny = Scrutiny(metric)
    with progress_bar("counting reports") as bar:
        loading = load_days(store, metric, since, until, scrutiny=scrutiny, progress=bar)
        by_day = asyncio.run(loading)
    trends = decode_days(
        by_day,
        metric.params,
        listed.candidates,
        alpha=wanted.alpha,
        correction=Correction(wanted.correction),
        min_reports=wanted.min_reports,
    )
    findings = scrutiny.result()
    origin = None
    if needs_provenance(wanted.outputs):
        taken = Input(metric.params, _together(by_day), findings)
        strings = trends.pooled.candidates
        origin = provenance_of(given, wanted, metric, taken, method="least squares, day by day",
                               strings=strings)  # fmt: skip
    give_out(
        wanted.outputs,
        _renderings(trends, findings, origin),
        lambda: trends_output.print_table(
            trends, stdout_console(), limit=wanted.rows, findings=findings
        ),
        suspicious=findings.suspicious,
    )


def refuse_days_of(metric: Metric) -> None:
    """Refuse --by for metrics without candidates.

    Raises
    ------
    click.UsageError
    """
    raise click.UsageError(
        f"--by day: metrics.{metric.name}.type = {metric.kind.name!r}; days can be compared for "
        "metrics of type 'string' only. Use --since and --until, a day at a time."
    )


def _together(by_day: dict[dt.date, CohortCounts]) -> CohortCounts:
    first, *others = by_day.values()
    return sum(others, start=first)


def _renderings(
    trends: Trends, findings: Findings, origin: Provenance | None
) -> dict[str, Rendering]:
    return {
        ".csv": utf8(lambda: trends_output.csv_chunks(trends)),
        ".json": utf8(
            lambda: [trends_output.to_json(trends, findings=findings, provenance=origin)]
        ),
        ".parquet": lambda file: trends_output.write_parquet(
            file, trends, findings=findings, provenance=origin
        ),
        ".html": lambda file: write_trends_report(
            file, trends, findings=findings, provenance=origin
        ),
    }
