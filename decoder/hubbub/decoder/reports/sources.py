"""A source of reports: a store, a file of reports, a file of counts; each is counted in one way.

`open_source` names it, `count` reads it. Invariant: a source that has fewer reports than are needed
is refused, whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hubbub.decoder.engines import Engine
from hubbub.decoder.options import STORE, SourceOptions
from hubbub.decoder.reports.loading import (
    CountedReports,
    SpoolFor,
    StoredReports,
    load_days,
    load_file,
    load_reports,
    load_sizes,
    require_enough,
)
from hubbub.inference.anomalies import AnomalyDetector
from hubbub.protocol.metrics import Metric
from hubbub.rappor.csv_files import read_counts

if TYPE_CHECKING:
    from hubbub.storage.slices import SliceSizes

_Loaded = TypeVar("_Loaded")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file of reports."""

    path: str


@dataclass(frozen=True, slots=True)
class CountsFile:
    """google/rappor's counts.csv: reports that were counted already."""

    path: str


Source = StoredReports | ParquetFile | CountsFile


def open_source(options: SourceOptions) -> Source:
    """Return the source that options name; the default store if they name none.

    `options`: checked: at most one place is named.
    """
    if options.counts is not None:
        return CountsFile(options.counts)
    if options.reports is not None:
        return ParquetFile(options.reports)
    return stored_reports(options)


def stored_reports(options: SourceOptions) -> StoredReports:
    """Return the reports of the store that options name, or of the default one."""
    return StoredReports(options.store or STORE, options.since, options.until, options.where)


def slice_sizes(source: StoredReports, metric: Metric) -> SliceSizes:
    """Return the number of stored reports, by day and slice, of whatever slices.

    `source`: where they are, and of which days. `metric`: only reports of its version are counted.
    Raises `StoreError` if the store can't be read.
    """
    return _run(load_sizes(source, metric))


def count(
    source: Source,
    metric: Metric,
    engine: Engine,
    *,
    by_day: bool = False,
    min_reports: int = 1,
    spool_for: SpoolFor = lambda _total, _counted: None,
    progress: Progress = lambda _done, _total: None,
) -> CountedReports:
    """Count a metric's reports, and look for what honest ones wouldn't show.

    `source`: where they are. `metric`: only reports of its version are read. `engine`: counts
    files, and keeps their reports whole if they are many. `by_day`: whether each day of a store is
    counted by itself as well. `min_reports`: fewer reports are refused; with `by_day`, days with
    fewer aren't kept whole. `spool_for`: returns what keeps whole reports, or None if they aren't
    needed (`SpoolFor`). `progress`: called with the reports counted so far and the reports to
    count. Raises `UndecodableError` if there are too few reports, or they are of other parameters.
    Raises `StoreError, ReportFileError, InputError, EngineError` if they can't be read.
    """
    if isinstance(source, CountsFile):
        counts = read_counts(source.path, metric.params)
        require_enough(source.path, counts.total, min_reports)
        return CountedReports(counts)
    detector = AnomalyDetector(metric)
    if isinstance(source, ParquetFile):
        reports = load_file(
            source.path,
            metric,
            engine=engine,
            detector=detector,
            spool_for=spool_for,
            progress=progress,
        )
        require_enough(source.path, reports.counts.total, min_reports)
        return reports
    if by_day:
        return _run(
            load_days(
                source,
                metric,
                min_reports=min_reports,
                engine=engine,
                detector=detector,
                spool_for=spool_for,
                progress=progress,
            )
        )
    reports = _run(
        load_reports(
            source,
            metric,
            engine=engine,
            detector=detector,
            spool_for=spool_for,
            progress=progress,
        )
    )
    total = reports.counts.total
    require_enough(source.named(metric), total, min_reports, "decode more days, or ")
    return reports


def _run(loading: Coroutine[None, None, _Loaded]) -> _Loaded:
    """Await it to its end; in a thread of its own where a loop is running, as in Jupyter."""
    import asyncio  # noqa: PLC0415 - files need no loop, and it takes long to import

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(loading)
    with ThreadPoolExecutor(1, "load") as thread:
        return thread.submit(asyncio.run, loading).result()
