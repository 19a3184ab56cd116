"""`hubbub-decoder decode`, after its options are understood: read, decode, write the result.

Candidates are read before reports, so that the mistakes that are quickly found come first.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.categories.decoding import decode_categories
from hubbub.decoder.categories.result import CategoriesResult
from hubbub.decoder.cli.inputs import (
    CandidateInput,
    ReportInput,
    counted_reports,
    list_candidates,
    metric_of,
    reports_file,
    stored_reports,
)
from hubbub.decoder.cli.options import STORE, InputOptions, OutputOptions, check_candidates
from hubbub.decoder.cli.progress import pass_counter, progress_bar
from hubbub.decoder.decoding import decode
from hubbub.decoder.formats.writers import needs_provenance, write_results
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.likelihood.choice import Choice, Method
from hubbub.decoder.rappor.csv_files import read_params
from hubbub.decoder.reports.anomalies import AnomalyDetector
from hubbub.decoder.reports.loading import SpoolFor, load_days
from hubbub.decoder.results.provenance import (
    Provenance,
    Source,
    build_provenance,
    file_source,
    strings_source,
)
from hubbub.decoder.results.result import Result
from hubbub.decoder.results.strings import StringsResult
from hubbub.decoder.trends.decoding import decode_days
from hubbub.decoder.trends.result import TrendsResult
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry


def run(inputs: InputOptions, outputs: OutputOptions) -> None:
    """Decode the inputs, and write what is wanted.

    Raises
    ------
    HubbubError, StoreError, DecoderError, OSError, click.UsageError
    """
    # Last digits depend on how many threads linear algebra takes; results must not depend on cores.
    with threadpool_limits(1):
        write_results(_result(inputs, outputs), outputs.files)


def _result(inputs: InputOptions, outputs: OutputOptions) -> Result:
    metric = None  # there are only counts
    if inputs.metric is not None:
        metric = Registry.load(inputs.metrics or "")[inputs.metric]
    elif inputs.reports is not None:
        metric = metric_of(inputs.params or "")
    if metric and not isinstance(metric.type, StringType):
        _refuse_options_of_strings(metric, inputs, outputs)
        return _categories(metric, inputs, outputs)
    check_candidates(inputs)
    params = metric.params if metric else read_params(Path(inputs.params or ""))
    cache = Path(outputs.candidate_cache) if outputs.candidate_cache else None
    listed = list_candidates(inputs.candidates, inputs.map, params, cache)
    for note in listed.notes:
        click.echo(f"note: {note}", err=True)
    if metric and outputs.by:
        return _trends(metric, listed, inputs, outputs)
    choice = Choice(Method(outputs.method), params, len(listed.candidates))
    if metric:
        reports = _reports(inputs, metric, outputs.min_reports, choice.spool_for)
    else:
        reports = counted_reports(inputs.counts or "", params, min_reports=outputs.min_reports)
    return _strings(metric, reports, listed, choice, inputs, outputs)


def _refuse_options_of_strings(
    metric: Metric, inputs: InputOptions, outputs: OutputOptions
) -> None:
    """Refuse strings to look for, and their method, where the registry says what there is."""
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    for name in inputs.names("candidates", "map"):
        raise click.UsageError(f"{name}: must be left out; {what} says which values there are.")
    if outputs.method == "likelihood":
        raise click.UsageError(
            f"--method likelihood: {what}; its bit counts say all that whole reports do. "
            "Leave --method out."
        )
    if outputs.by:
        raise click.UsageError(
            f"--by day: {what}; days can be compared for metrics of type 'string' only. "
            "Use --since and --until, a day at a time."
        )


def _categories(metric: Metric, inputs: InputOptions, outputs: OutputOptions) -> CategoriesResult:
    reports = _reports(inputs, metric, outputs.min_reports, lambda _total: None)
    decoding = decode_categories(
        reports.counts, metric, alpha=outputs.alpha, correction=Correction(outputs.correction)
    )
    origin = _provenance(inputs, outputs, metric, reports, method="inversion")
    return CategoriesResult(
        decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows
    )


def _trends(
    metric: Metric, listed: CandidateInput, inputs: InputOptions, outputs: OutputOptions
) -> TrendsResult:
    detector = AnomalyDetector(metric)
    with progress_bar("counting reports") as bar:
        loading = load_days(
            inputs.store or STORE, metric, *_days(inputs), detector=detector, progress=bar
        )
        by_day = asyncio.run(loading)
    trends = decode_days(
        by_day,
        metric.params,
        listed.candidates,
        alpha=outputs.alpha,
        correction=Correction(outputs.correction),
        min_reports=outputs.min_reports,
    )
    anomalies = detector.result()
    reports = ReportInput(metric.params, reduce(add, by_day.values()), anomalies)
    strings = trends.pooled.candidates
    origin = _provenance(
        inputs, outputs, metric, reports, method="least squares, day by day", strings=strings
    )
    return TrendsResult(trends, anomalies, origin, outputs.rows)


def _strings(
    metric: Metric | None,
    reports: ReportInput,
    listed: CandidateInput,
    choice: Choice,
    inputs: InputOptions,
    outputs: OutputOptions,
) -> StringsResult:
    counted = decode(
        reports.counts,
        reports.params,
        listed.candidates,
        alpha=outputs.alpha,
        correction=Correction(outputs.correction),
    )
    with pass_counter("maximising the likelihood") as passed:
        decoding = choice.complete(counted, reports.whole, listed.candidates, passed)
    method, strings = decoding.summary.method, decoding.candidates
    origin = _provenance(inputs, outputs, metric, reports, method=method, strings=strings)
    return StringsResult(decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows)


def _reports(
    inputs: InputOptions, metric: Metric, min_reports: int, spool_for: SpoolFor
) -> ReportInput:
    with progress_bar("counting reports") as bar:
        if inputs.reports is not None:
            return reports_file(
                inputs.reports, metric, min_reports=min_reports, progress=bar, spool_for=spool_for
            )
        return stored_reports(
            inputs.store or STORE,
            metric,
            *_days(inputs),
            min_reports=min_reports,
            progress=bar,
            spool_for=spool_for,
        )


def _days(inputs: InputOptions) -> tuple[dt.date | None, dt.date | None]:
    return (
        inputs.since.date() if inputs.since else None,
        inputs.until.date() if inputs.until else None,
    )


def _provenance(
    inputs: InputOptions,
    outputs: OutputOptions,
    metric: Metric | None,
    reports: ReportInput,
    *,
    method: str,
    strings: Sequence[str] = (),
) -> Provenance | None:
    """Return where a result comes from, unless no output says it.

    Candidates are named by the digest of `strings` if they came through a pipe, which is read only
    once.

    Raises
    ------
    OSError
        If a file that was read is gone.
    """
    if not needs_provenance(outputs.files):
        return None
    sources: list[Source] = []
    if inputs.candidates is not None:
        is_file = Path(inputs.candidates).is_file()
        sources.append(
            file_source("candidates", inputs.candidates)
            if is_file
            else strings_source("candidates", strings)
        )
    files = (
        ("params", inputs.params),
        ("map", inputs.map),
        ("counts file", inputs.counts),
        ("reports", inputs.reports),
    )
    sources += [file_source(role, path) for role, path in files if path is not None]
    days = "not known"
    if inputs.metric is not None and inputs.reports is None:
        since, until = _days(inputs)
        days = f"{since or 'the first'} to {until or 'the last'}"
    return build_provenance(
        reports.params,
        reports.counts,
        metric=Path(metric.name if metric else inputs.params or "").name,
        metric_version=metric.version if metric and inputs.metric else None,
        settings={
            "alpha": f"{outputs.alpha:g}",
            "correction": outputs.correction,
            "method": method,
            "min_reports": f"{outputs.min_reports}",
        },
        days=days,
        sources=sources,
    )
