"""Stored reports -> counts: the decoder's one place that reads what the collector stored.

A database and an exported directory of Parquet files answer the same questions, so that everything
after this module is the same for both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hubbub.client.metrics import Metric
from hubbub.collector.exchange.parquet import count_rows, read_records
from hubbub.collector.exchange.parquet_reader import SCHEME, ParquetReader
from hubbub.collector.exchange.partitions import ReportFileError, check_definition, partition_of
from hubbub.collector.store import MetricVersion, Reader, open_store
from hubbub.collector.store.records import Records, record_width
from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.scrutiny import Scrutiny


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
    scrutiny: Scrutiny | None = None,
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
    scrutiny : Scrutiny, optional
        Gets to see the same records.
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
    counts = empty_counts(metric.params)
    async with open_reader(store_url) as store:
        await store.check(metric)
        total = await store.count(key, since, until)
        async for records in store.segments(key, since, until):
            counts += count_records(records, metric.params)
            if scrutiny:
                scrutiny.add(Records(record_width(metric.params.k), records))
            progress(counts.total, total)
        versions = await store.versions(metric.name)
    if not counts.total:
        raise UndecodableError(
            f"no reports of {metric.name} version {metric.version} from {since or 'the start'} to "
            f"{until or 'now'}; versions in the store: {versions or 'none'}"
        )
    return counts


def load_file(
    path: Path,
    metric: Metric,
    *,
    scrutiny: Scrutiny | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CohortCounts:
    """Count the reports of one Parquet file, whoever wrote it.

    Parameters
    ----------
    path : Path
        Its columns `cohort` and `bits` are read; bit j is bit j%8 of byte j//8.
    metric : Metric
    scrutiny, progress
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
    params, counts = metric.params, empty_counts(metric.params)
    total = count_rows(path)
    for records in read_records(path, params.k, params.m):
        counts += count_records(records.data, params)
        if scrutiny:
            scrutiny.add(records)
        progress(counts.total, total)
    return counts
