"""What is decoded: the files that the command line names -> parameters, counts and candidates.

Reports come from a store, from a Parquet file, or as counts in google/rappor's form; candidates
from a list, which is hashed later, or from a map that says which bits they set. Fewer reports than
a release needs don't get past this module.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hubbub.decoder.candidates.cache import read_candidates
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.errors import InputError
from hubbub.decoder.rappor.csv_files import read_counts, read_params
from hubbub.decoder.rappor.map_files import is_uneven, read_map
from hubbub.decoder.reports.anomalies import AnomalyDetector, AnomalyReport
from hubbub.decoder.reports.loading import SpoolFor, load_counts, load_file
from hubbub.decoder.reports.packed import PackedReports, ReportSpool
from hubbub.decoder.reports.release import require_enough, require_reports
from hubbub.protocol.errors import ParameterError
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams

_UNEVEN = (
    "some bits occur in the map far more often than others; p-values take them to be equally "
    "likely, and are too small where their hash doesn't make them so"
)
Progress = Callable[[int, int], None]


class ReportInput(NamedTuple):
    """Reports, counted.

    Attributes
    ----------
    params : RapporParams
        With which they were made.
    counts : CohortCounts
    anomalies : AnomalyReport, optional
        None if there were only counts to look at.
    whole : PackedReports, optional
        The whole reports, if they were kept.
    """

    params: RapporParams
    counts: CohortCounts
    anomalies: AnomalyReport | None = None
    whole: PackedReports | None = None


class CandidateInput(NamedTuple):
    """What to look for.

    Attributes
    ----------
    candidates : Candidates
    notes : tuple of str
        What a reader should know of them.
    """

    candidates: Candidates
    notes: tuple[str, ...] = ()


def list_candidates(
    candidates: str | None, map_file: str | None, params: RapporParams, cache: Path | None = None
) -> CandidateInput:
    """Read a list of candidates ("-": standard input), or a map.

    Parameters
    ----------
    candidates, map_file : str, optional
    params : RapporParams
    cache : Path, optional
        Directory in which hashed lists are kept.

    Raises
    ------
    CandidateError, InputError
        If it can't be read, or holds something else.
    """
    if map_file is not None:
        found = read_map(Path(map_file), params)
        notes = (_UNEVEN,) if is_uneven(found.candidates.positions(slice(None)), params) else ()
        return CandidateInput(found.candidates, (*_repeats(found.repeats), *notes))
    listed = read_candidates(candidates or "-", cache)
    return CandidateInput(listed.hashed(params), (*listed.notes, *_repeats(listed.repeats)))


def _repeats(left_out: int) -> tuple[str, ...]:
    return (f"{left_out:,} repeated candidates left out",) if left_out else ()


def stored_reports(
    store: str,
    metric: Metric,
    since: dt.date | None,
    until: dt.date | None,
    *,
    min_reports: int,
    progress: Progress,
    spool_for: SpoolFor = lambda _total: None,
) -> ReportInput:
    """Count a metric's reports in a store or an exported directory; see `load_counts`.

    Raises
    ------
    StoreError
        If it can't be read, or holds reports of other parameters.
    UndecodableError
        If there are too few.
    """
    detector, keeper = AnomalyDetector(metric), _Keeper(spool_for)
    loading = load_counts(
        store, metric, since, until, detector=detector, spool_for=keeper, progress=progress
    )
    counts = asyncio.run(loading)
    require_reports(metric, counts.total, min_reports, since, until)
    return ReportInput(metric.params, counts, detector.result(), keeper.reports())


def reports_file(
    path: str,
    metric: Metric,
    *,
    min_reports: int,
    progress: Progress,
    spool_for: SpoolFor = lambda _total: None,
) -> ReportInput:
    """Count the reports of one Parquet file; see `load_file`.

    Raises
    ------
    StoreError
        If it can't be read, or holds reports of other parameters.
    UndecodableError
        If there are too few.
    """
    detector, keeper = AnomalyDetector(metric), _Keeper(spool_for)
    counts = load_file(Path(path), metric, detector=detector, spool_for=keeper, progress=progress)
    require_enough(path, counts.total, min_reports)
    return ReportInput(metric.params, counts, detector.result(), keeper.reports())


class _Keeper:
    """Remembers the spool that was asked for, to pack what it holds."""

    def __init__(self, spool_for: SpoolFor) -> None:
        self._spool_for = spool_for
        self._spool: ReportSpool | None = None

    def __call__(self, total: int) -> ReportSpool | None:
        self._spool = self._spool_for(total)
        return self._spool

    def reports(self) -> PackedReports | None:
        return self._spool.finish() if self._spool else None


def counted_reports(path: str, params: RapporParams, *, min_reports: int) -> ReportInput:
    """Read counts in google/rappor's form.

    Raises
    ------
    InputError
        If the file holds anything else.
    UndecodableError
        If there are too few reports.
    """
    counts = read_counts(Path(path), params)
    require_enough(path, counts.total, min_reports)
    return ReportInput(params, counts)


def metric_of(params_file: str) -> Metric:
    """Return what a params.csv says of reports, as a metric that stands in no registry.

    Raises
    ------
    InputError
        If the file holds anything else, or parameters that our reports can't have.
    """
    try:
        params = RapporParams(*read_params(Path(params_file)))
    except ParameterError as error:
        raise InputError(
            f"{params_file}: {error}; only --counts may have other parameters"
        ) from error
    return Metric(
        application="",
        name=params_file,
        version=1,
        type=StringType(),
        params=params,
        description="",
        owner="",
        expires=dt.date.max,
    )
