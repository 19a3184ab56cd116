"""A store's reports -> counts for each day, in one pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial

from hubbub.client.metrics import Metric
from hubbub.collector.store import MetricVersion
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.reports.counting import Counting
from hubbub.decoder.reports.loading import no_reports, open_reader
from hubbub.decoder.reports.scrutiny import Scrutiny


async def load_days(
    store_url: str,
    metric: Metric,
    since: dt.date | None = None,
    until: dt.date | None = None,
    *,
    scrutiny: Scrutiny | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[dt.date, CohortCounts]:
    """Count a metric's stored reports of the days `since` to `until`, each day by itself.

    Parameters
    ----------
    store_url, metric, since, until, scrutiny, progress
        As for `hubbub.decoder.reports.loading.load_counts`.

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
            with Counting(metric.params, scrutiny=scrutiny, progress=tell) as counting:
                async for records in store.segments(key, day, day):
                    counting.add(records)
                counts = counting.result()
            if counts.total:
                by_day[day] = counts
            done += counts.total
        versions = await store.versions(metric.name)
    if not by_day:
        raise no_reports(metric, since, until, versions)
    return by_day


def _tell(progress: Callable[[int, int], None], total: int, before: int, done: int) -> None:
    progress(before + done, total)
