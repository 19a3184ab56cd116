"""`hubbub-decoder decode`, after its options are understood: read, decode, give out.

Candidates are read before reports, so that the mistakes that are quickly told come first.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.client.kinds import StringKind
from hubbub.client.metrics import Metric, Registry
from hubbub.decoder.categories.command import refuse_options_of_strings, show_categories
from hubbub.decoder.cli.decode_command import STORE
from hubbub.decoder.cli.inputs import (
    Input,
    Listed,
    counted_reports,
    list_candidates,
    metric_of,
    reports_file,
    stored_reports,
)
from hubbub.decoder.cli.method import Choice, Method
from hubbub.decoder.cli.progress import pass_counter, progress_bar
from hubbub.decoder.cli.usage import Given, Wanted, check_candidates
from hubbub.decoder.decoding import Decoding, decode
from hubbub.decoder.html.report import write_report
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.output import parquet as parquet_output
from hubbub.decoder.output import strings as output
from hubbub.decoder.output.files import Rendering, utf8
from hubbub.decoder.output.giving_out import give_out, needs_provenance
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.provenance_of import provenance_of
from hubbub.decoder.rappor.csv_files import read_params
from hubbub.decoder.reports.loading import SpoolFor
from hubbub.decoder.reports.scrutiny import Findings
from hubbub.decoder.trends.command import refuse_days_of, show_trends


def run(given: Given, wanted: Wanted) -> None:
    """Decode what is given, and give out what is wanted.

    Raises
    ------
    HubbubError, StoreError, DecoderError, OSError, click.UsageError
    """
    # Last digits depend on how many threads linear algebra takes; results must not depend on cores.
    with threadpool_limits(1):
        _run(given, wanted)


def _run(given: Given, wanted: Wanted) -> None:
    entry = _metric(given)
    if entry and not isinstance(entry.kind, StringKind):
        refuse_options_of_strings(entry, given, wanted)
        if wanted.by:
            refuse_days_of(entry)
        taken = _reports(given, entry, wanted.min_reports, lambda _total: None)
        show_categories(entry, taken, given, wanted)
        return
    check_candidates(given)
    listed = _listed(given, entry, wanted)
    if entry and wanted.by:
        show_trends(entry, given.store or STORE, listed, given, wanted)
        return
    method = Method(wanted.method)
    if entry is None:
        params = read_params(Path(given.params or ""))
        taken = counted_reports(given.counts or "", params, min_reports=wanted.min_reports)
        choice = Choice(method, params, len(listed.candidates))
    else:
        choice = Choice(method, entry.params, len(listed.candidates))
        taken = _reports(given, entry, wanted.min_reports, choice.spool_for)
    decoding = _decoded(taken, listed, choice, wanted)
    _show_strings(entry, taken, decoding, given, wanted)


def _metric(given: Given) -> Metric | None:
    """Return the metric whose reports are decoded; None if there are only counts."""
    if given.metric is not None:
        return Registry.load(given.metrics or "")[given.metric]
    return metric_of(given.params or "") if given.reports is not None else None


def _listed(given: Given, entry: Metric | None, wanted: Wanted) -> Listed:
    params = entry.params if entry else read_params(Path(given.params or ""))
    cache = Path(wanted.candidate_cache) if wanted.candidate_cache else None
    listed = list_candidates(given.candidates, given.map, params, cache)
    for note in listed.notes:
        click.echo(f"note: {note}", err=True)
    return listed


def _reports(given: Given, entry: Metric, min_reports: int, spool_for: SpoolFor) -> Input:
    with progress_bar("counting reports") as bar:
        if given.reports is not None:
            return reports_file(
                given.reports, entry, min_reports=min_reports, progress=bar, spool_for=spool_for
            )
        days = (_date(given.since), _date(given.until))
        store = given.store or STORE
        return stored_reports(
            store, entry, *days, min_reports=min_reports, progress=bar, spool_for=spool_for
        )


def _date(moment: dt.datetime | None) -> dt.date | None:
    return moment.date() if moment else None


def _decoded(taken: Input, listed: Listed, choice: Choice, wanted: Wanted) -> Decoding:
    counted = decode(
        taken.counts,
        taken.params,
        listed.candidates,
        alpha=wanted.alpha,
        correction=Correction(wanted.correction),
    )
    with pass_counter("maximising the likelihood") as passed:
        return choice.complete(counted, taken.reports, listed.candidates, passed)


def _show_strings(
    entry: Metric | None, taken: Input, decoding: Decoding, given: Given, wanted: Wanted
) -> None:
    origin = None
    if needs_provenance(wanted.outputs):
        origin = provenance_of(
            given, wanted, entry, taken, method=decoding.summary.method, strings=decoding.candidates
        )
    chosen, findings = wanted.detected_only, taken.findings
    give_out(
        wanted.outputs,
        _renderings(decoding, findings, origin, detected_only=chosen),
        lambda: output.print_table(
            decoding,
            output.stdout_console(),
            detected_only=chosen,
            limit=wanted.rows,
            findings=findings,
        ),
        suspicious=bool(findings and findings.suspicious),
    )


def _renderings(
    decoding: Decoding,
    findings: Findings | None,
    origin: Provenance | None,
    *,
    detected_only: bool,
) -> dict[str, Rendering]:
    return {
        ".csv": utf8(lambda: output.csv_chunks(decoding, detected_only=detected_only)),
        ".json": utf8(
            lambda: output.json_chunks(
                decoding, detected_only=detected_only, findings=findings, provenance=origin
            )
        ),
        ".parquet": lambda file: parquet_output.write_strings(
            file, decoding, detected_only=detected_only, findings=findings, provenance=origin
        ),
        ".html": lambda file: write_report(file, decoding, findings=findings, provenance=origin),
    }
