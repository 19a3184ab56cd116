"""Stored segments -> counts: the decoder's one place that reads the collector's database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from hubbub.client.metrics import Metric
from hubbub.collector.store import MetricVersion, open_store
from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.decoder.errors import UndecodableError


async def load_counts(
    store_url: str,
    metric: Metric,
    since: dt.date | None = None,
    until: dt.date | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CohortCounts:
    """Count a metric's stored reports of the days `since` to `until`, both included.

    Parameters
    ----------
    store_url : str
    metric : Metric
        Only reports of its version are read.
    since, until : datetime.date, optional
        UTC days.
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
    async with open_store(store_url, create=False) as store:
        await store.check(metric)
        total = await store.count(key, since, until)
        async for records in store.segments(key, since, until):
            counts += count_records(records, metric.params)
            progress(counts.total, total)
        versions = await store.versions(metric.name)
    if not counts.total:
        raise UndecodableError(
            f"no reports of {metric.name} version {metric.version} from {since or 'the start'} to "
            f"{until or 'now'}; versions in the store: {versions or 'none'}"
        )
    return counts
