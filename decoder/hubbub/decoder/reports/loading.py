"""Stored reports -> counts: the decoder's one place that reads what the collector stored.

A database and an exported directory of Parquet files answer the same questions, so that everything
after this module is the same for both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from hubbub.collector.exchange.parquet import count_rows, read_records
from hubbub.collector.exchange.parquet_reader import SCHEME, ParquetReader
from hubbub.collector.exchange.partitions import ReportFileError, check_definition, partition_of
from hubbub.collector.store import MetricVersion, Reader, open_store
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.reports.anomalies import AnomalyDetector
from hubbub.decoder.reports.counting import Counting
from hubbub.decoder.reports.packed import ReportSpool
from hubbub.protocol.metrics import Metric

SpoolFor = Callable[[int], ReportSpool | None]
"""From the number of reports to what keeps them; None if they aren't needed whole."""


@asynccontextmanager
async def open_reader(url: str) -> AsyncIterator[Reader]:
    """Open what the collector stored, or exported.

    Parameters
    ----------
    url : str
        A database's address, or "parquet:DIR" for a directory that the collector exported.

    Raises
    ------
    StoreError
        If it can't be opened for reading.
    """
    if url.startswith(SCHEME):
        yield ParquetReader(url.removeprefix(SCHEME))
        return
    async with open_store(url, create=False) as store:
        yield store


async def load_counts(
    store_url: str,
    metric: Metric,
    since: dt.date | None = None,
    until: dt.date | None = None,
    *,
    detector: AnomalyDetector | None = None,
    spool_for: SpoolFor = lambda _total: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CohortCounts:
    """Count a metric's stored reports of the days `since` to `until`, both included.

    Parameters
    ----------
    store_url : str
        As for `open_reader`.
    metric : Metric
        Only reports of its version are read.
    since, until : datetime.date, optional
        UTC days.
    detector : AnomalyDetector, optional
        Gets to see the same records.
    spool_for : callable
        Is told how many reports there are, and returns what keeps them, or None.
    progress : callable
        Called with the reports counted so far and the reports to count.

    Raises
    ------
    StoreError
        If the store can't be read, or its reports were made with other parameters.
    UndecodableError
        If there are no such reports.
    """
    key = MetricVersion(metric.name, metric.version)
    async with open_reader(store_url) as store:
        await store.check(metric)
        total = await store.count(key, since, until)
        done = partial(_tell, progress, total, 0)
        spool = spool_for(total)
        with Counting(metric.params, detector=detector, spool=spool, progress=done) as counting:
            async for records in store.segments(key, since, until):
                counting.add(records)
            counts = counting.result()
        versions = await store.versions(metric.name)
    if not counts.total:
        raise _no_reports(metric, since, until, versions)
    return counts


async def load_days(
    store_url: str,
    metric: Metric,
    since: dt.date | None = None,
    until: dt.date | None = None,
    *,
    detector: AnomalyDetector | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[dt.date, CohortCounts]:
    """Count a metric's stored reports of the days `since` to `until`, each day by itself.

    Parameters
    ----------
    store_url, metric, since, until, detector, progress
        As for `load_counts`.

    Returns
    -------
    dict of datetime.date to CohortCounts
        Days without reports are not in it; in ascending order.

    Raises
    ------
    StoreError
        If the store can't be read, or its reports were made with other parameters.
    UndecodableError
        If there are no such reports.
    """
    key = MetricVersion(metric.name, metric.version)
    by_day: dict[dt.date, CohortCounts] = {}
    done = 0
    async with open_reader(store_url) as store:
        await store.check(metric)
        total = await store.count(key, since, until)
        for day in sorted(await store.days(key)):
            if (since and day < since) or (until and day > until):
                continue
            tell = partial(_tell, progress, total, done)
            with Counting(metric.params, detector=detector, progress=tell) as counting:
                async for records in store.segments(key, day, day):
                    counting.add(records)
                counts = counting.result()
            if counts.total:
                by_day[day] = counts
            done += counts.total
        versions = await store.versions(metric.name)
    if not by_day:
        raise _no_reports(metric, since, until, versions)
    return by_day


def _no_reports(
    metric: Metric, since: dt.date | None, until: dt.date | None, versions: Sequence[int]
) -> UndecodableError:
    """Return the error that a store has none of a metric's reports, but maybe other versions'."""
    return UndecodableError(
        f"no reports of {metric.name} version {metric.version} from {since or 'the start'} to "
        f"{until or 'now'}; versions in the store: {versions or 'none'}"
    )


def load_file(
    path: Path,
    metric: Metric,
    *,
    detector: AnomalyDetector | None = None,
    spool_for: SpoolFor = lambda _total: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CohortCounts:
    """Count the reports of one Parquet file, whoever wrote it.

    Parameters
    ----------
    path : Path
        Its columns `cohort` and `bits` are read; bit j is bit j%8 of byte j//8.
    metric : Metric
    detector, spool_for, progress
        As of `load_counts`.

    Raises
    ------
    ReportFileError
        If it holds anything but reports of the metric's parameters, or stands in an exported
        directory that says otherwise.
    """
    partition = partition_of(path)
    if partition:
        if partition.key != (metric.name, metric.version):
            raise ReportFileError(
                f"{path}: reports of {partition.metric} version {partition.version}; expected "
                f"those of {metric.name} version {metric.version}"
            )
        check_definition(path.absolute().parents[3], metric)
    params, total = metric.params, count_rows(path)
    done, spool = partial(_tell, progress, total, 0), spool_for(total)
    with Counting(params, detector=detector, spool=spool, progress=done) as counting:
        for records in read_records(path, params.k, params.m):
            counting.add(records.data)
        return counting.result()


def _tell(progress: Callable[[int, int], None], total: int, before: int, done: int) -> None:
    progress(before + done, total)
