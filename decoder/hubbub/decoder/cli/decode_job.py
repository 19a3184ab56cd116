"""`hubbub-decoder decode`, after its options are understood: read, decode, write the result.

The metric's type does the decoding, and asks the job for what it needs. Fewer reports than a
release needs don't get past the job. Candidates are read before reports, so that the mistakes that
are quickly found come first.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import click
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.candidates.cache import read_candidates
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.cli.options import STORE, InputOptions, check_candidates
from hubbub.decoder.cli.progress import pass_counter, progress_bar
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.errors import InputError
from hubbub.decoder.formats.writers import needs_provenance, write_results
from hubbub.decoder.rappor.csv_files import read_counts, read_params
from hubbub.decoder.rappor.map_files import is_uneven, read_map
from hubbub.decoder.reports.anomalies import AnomalyDetector
from hubbub.decoder.reports.loading import (
    ReportInput,
    SpoolFor,
    load_counts,
    load_days,
    load_file,
    require_enough,
    require_reports,
)
from hubbub.decoder.reports.packed import ReportSpool
from hubbub.decoder.results.provenance import (
    Provenance,
    Source,
    canonical,
    counts_source,
    digest,
    file_source,
    strings_source,
)
from hubbub.decoder.type_decoder import OutputOptions, decoder_of
from hubbub.protocol.errors import ParameterError
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry

_UNEVEN = (
    "some bits occur in the map far more often than others; p-values take them to be equally "
    "likely, and are too small where their hash doesn't make them so"
)


def run(inputs: InputOptions, outputs: OutputOptions) -> None:
    """Decode the inputs, and write what is wanted; raises what `cli_errors` or click shows."""
    job = DecodeJob(inputs, outputs, _metric(inputs))
    decoder = decoder_of(job.metric)
    refusal = decoder.refusal(job)
    if refusal:
        raise click.UsageError(refusal)
    # Last digits depend on how many threads linear algebra takes; results must not depend on cores.
    with threadpool_limits(1):
        result = decoder.decode(job)
        write_results(result, outputs.files, spreadsheet_safe=outputs.spreadsheet_safe)


def _metric(inputs: InputOptions) -> Metric:
    """Return what is decoded; a params.csv stands for a metric of strings in no registry."""
    if inputs.metric is not None:
        return Registry.load(inputs.metrics or "")[inputs.metric]
    path = inputs.params or ""
    params: RapporParams = read_params(Path(path))
    if inputs.counts is None:
        try:
            params = RapporParams(*params)
        except ParameterError as error:
            raise InputError(f"{path}: {error}; only --counts may have other parameters") from error
    return Metric(
        application="",
        name=path,
        version=1,
        type=StringType(),
        params=params,
        description="",
        owner="",
        expires=dt.date.max,
    )


def list_candidates(
    candidates: str | None,
    map_file: str | None,
    params: RapporParams,
    cache: Path | None = None,
    source: str = "the parameters",
) -> tuple[Candidates, tuple[str, ...]]:
    """Read a list of candidates ("-": standard input), or a map; also notes for the reader.

    Parameters
    ----------
    cache : Path, optional
        Directory in which hashed lists are kept.
    source : str
        The file that the parameters are from.

    Raises
    ------
    CandidateError, InputError
        If it can't be read, or holds something else.
    """
    if map_file is not None:
        found = read_map(Path(map_file), params, source)
        notes = (_UNEVEN,) if is_uneven(found.candidates.positions(slice(None)), params) else ()
        return found.candidates, (*_repeats(found.repeats), *notes)
    listed = read_candidates(candidates or "-", cache)
    return listed.hashed(params), (*listed.notes, *_repeats(listed.repeats))


def _repeats(left_out: int) -> tuple[str, ...]:
    return (f"{left_out:,} repeated candidates left out",) if left_out else ()


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """What the command line asks for, as a type's decoder sees it (`type_decoder.Job`)."""

    inputs: InputOptions
    outputs: OutputOptions
    metric: Metric

    def named(self, *options: str) -> list[str]:
        """Return those of some options that were given, as a person wrote them."""
        return self.inputs.names(*options)

    def candidates(self) -> Candidates:
        """Read the list or map, and print notes about it; a usage error if there is neither."""
        check_candidates(self.inputs)
        cache = Path(self.outputs.candidate_cache) if self.outputs.candidate_cache else None
        inputs = self.inputs
        source = inputs.params or inputs.metrics or ""
        listed, notes = list_candidates(
            inputs.candidates, inputs.map, self.metric.params, cache, source
        )
        for note in notes:
            click.echo(f"note: {note}", err=True)
        return listed

    def reports(self, spool_for: SpoolFor = lambda _total: None) -> ReportInput:
        """Count the reports of the store, the file of reports, or the file of counts."""
        metric, needed = self.metric, self.outputs.min_reports
        if self.inputs.counts is not None:
            counts = read_counts(Path(self.inputs.counts), metric.params)
            require_enough(self.inputs.counts, counts.total, needed)
            return ReportInput(counts)
        detector = AnomalyDetector(metric)
        spool: ReportSpool | None = None

        def remembered(total: int) -> ReportSpool | None:
            nonlocal spool
            spool = spool_for(total)
            return spool

        with progress_bar("counting reports") as bar:
            if self.inputs.reports is not None:
                path = self.inputs.reports
                counts = load_file(
                    Path(path), metric, detector=detector, spool_for=remembered, progress=bar
                )
                require_enough(path, counts.total, needed)
            else:
                since, until = self._days()
                loading = load_counts(
                    self.inputs.store or STORE,
                    metric,
                    since,
                    until,
                    detector=detector,
                    spool_for=remembered,
                    progress=bar,
                )
                counts = asyncio.run(loading)
                require_reports(metric, counts.total, needed, since, until)
            return ReportInput(counts, detector.result(), spool.finish() if spool else None)

    def reports_by_day(self) -> tuple[dict[dt.date, CohortCounts], ReportInput]:
        """Count the reports of the store day by day, and together."""
        detector = AnomalyDetector(self.metric)
        with progress_bar("counting reports") as bar:
            loading = load_days(
                self.inputs.store or STORE,
                self.metric,
                *self._days(),
                detector=detector,
                progress=bar,
            )
            by_day = asyncio.run(loading)
        return by_day, ReportInput(reduce(add, by_day.values()), detector.result())

    def pass_counter(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show the likelihood's passes on a terminal."""
        return pass_counter("maximising the likelihood")

    def provenance(
        self, reports: ReportInput, *, method: str, strings: Sequence[str] = ()
    ) -> Provenance | None:
        """Return where a result comes from, unless no output says it.

        Candidates are named by the digest of `strings` if they came through a pipe, which is read
        only once.
        """
        inputs, outputs = self.inputs, self.outputs
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
            since, until = self._days()
            days = f"{since or 'the first'} to {until or 'the last'}"
        parameters = self.metric.params._asdict()
        return Provenance(
            metric=Path(self.metric.name).name,
            metric_version=self.metric.version if inputs.metric else None,
            parameters=parameters,
            parameters_sha256=digest(canonical(parameters)),
            settings={
                "alpha": f"{outputs.alpha:g}",
                "correction": outputs.correction,
                "method": method,
                "min_reports": f"{outputs.min_reports}",
            },
            days=days,
            sources=(*sources, counts_source("counts", reports.counts)),
        )

    def _days(self) -> tuple[dt.date | None, dt.date | None]:
        since, until = self.inputs.since, self.inputs.until
        return since and since.date(), until and until.date()
