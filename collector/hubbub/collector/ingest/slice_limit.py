"""A bound on the slices of a metric's version that are stored on one day.

Anyone can make up values that a pattern matches, and each would have rows of its own. Invariant: a
collector process adds at most `MOST_STORED` slices a day to a version; what comes beyond them is
stored under what the registry lists of it. Slices that were published of the day before are among
them from the start, so that made-up ones don't take their places. It decides without asking the
store, or the time of an answer would tell who else has sent a slice.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable

from hubbub.protocol.dimensions import MOST_SLICES, parse_slice, slice_of
from hubbub.protocol.metrics import Metric
from hubbub.protocol.records import Records, joined
from hubbub.storage import MetricVersion, NewBatch, Store
from hubbub.storage.slices import SliceSizes, pools

MOST_STORED = 4 * MOST_SLICES
"""Four times what is published: new slices of a day have room before they are large enough."""

_DAY = dt.timedelta(days=1)


class SliceLimit:
    """Knows the slices of the day of each version with a dimension that has a pattern."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {
            metric.name: metric
            for metric in metrics
            if any(not dimension.values for dimension in metric.dimensions)
        }
        self._day = dt.date.min
        self._sizes: dict[MetricVersion, Counter[str]] = {}

    async def load(self, store: Store, today: dt.date) -> None:
        """Go on with what is stored of yesterday and today."""
        self._day = today
        for one in await store.declared():
            if one.metric in self._metrics:
                key = MetricVersion(one.metric, one.version)
                sizes = await store.slices(key, since=today - _DAY, until=today)
                self._sizes[key] = self._published(key, sizes, today - _DAY)
                self._sizes[key].update(sizes.get(today, {}))

    def applied(self, batch: NewBatch, today: dt.date) -> NewBatch:
        """Return a batch that brings no slices beyond those that today has room for."""
        if not any(key.slice and key.metric in self._metrics for key in batch.records):
            return batch
        if today != self._day:
            self._sizes = {
                key: self._published(key, {self._day: sizes}, self._day)
                for key, sizes in self._sizes.items()
            }
            self._day = today
        pools_of: dict[MetricVersion, list[Records]] = {}
        for key, records in batch.records.items():
            into = key._replace(slice=self._stored_as(key, records.reports)) if key.slice else key
            pools_of.setdefault(into, []).append(records)
        return batch._replace(records={key: joined(pool) for key, pool in pools_of.items()})

    def _stored_as(self, key: MetricVersion, reports: int) -> str:
        metric = self._metrics.get(key.metric)
        if metric is None:
            return key.slice
        sizes = self._sizes.setdefault(key.whole, Counter())
        if key.slice in sizes or len(sizes) < MOST_STORED:
            sizes[key.slice] += reports
            return key.slice
        listed = [dimension for dimension in metric.dimensions if dimension.values]
        return slice_of(listed, parse_slice(key.slice))

    def _published(self, key: MetricVersion, sizes: SliceSizes, day: dt.date) -> Counter[str]:
        found = pools(self._metrics[key.metric], sizes.get(day, {}))
        return Counter(dict.fromkeys(filter(None, found.values()), 0))
