"""Take plausible reports of a checked batch, in a bounded number of slices per day.

`poisoning` finds how many set bits are plausible for a metric; improbable reports are counted, or
refused if so configured. Invariants: whatever is counted of reports is counted once they are
durable; a collector process adds at most `MOST_STORED` slices a day to a version, and what comes
beyond them is stored under what the registry lists of it.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping

from hubbub.collector.config import Settings
from hubbub.collector.ingest.commit import Commit
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import RefusalError
from hubbub.protocol import (
    MOST_SLICES,
    Metric,
    Records,
    Registry,
    SetBits,
    improbable,
    joined,
    parse_slice,
    plausible_set_bits,
    slice_of,
)
from hubbub.storage import MetricVersion, NewBatch, SliceSizes, Store, pools

MOST_STORED = 4 * MOST_SLICES
"""Four times what is published: new slices of a day have room before they are large enough."""

_DAY = dt.timedelta(days=1)
_TAIL = 1e-9  # at a million reports a day an honest one is flagged once in three years


class ReportValidator:
    """Compares set bits with what is plausible for the registry's current versions."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._refuses = settings.improbable_reports == "refuse"
        self._metrics = metrics
        self._bounds: Mapping[MetricVersion, SetBits] = {}

    def use(self, registry: Registry) -> None:
        """Use a registry from now on."""
        self._bounds = {
            MetricVersion(metric.name, metric.version): plausible_set_bits(
                metric.params, metric.type, _TAIL, metric.response
            )
            for metric in registry.values()
        }

    def check(self, batch: NewBatch) -> None:
        """Refuse a batch with impossible reports, or with improbable ones if so configured.

        Raises `RefusalError`: 422, saying how many reports of which metric.
        """
        for key, records in batch.records.items():
            bounds = self._bounds.get(key.whole)
            if bounds and bounds.cells is None and not self._refuses:
                continue
            if bounds and (found := int(improbable(records, bounds).sum())):
                reason = "improbable" if bounds.cells is None else "impossible"
                detail = f"reports: {found} of {key.metric} with {_fault(bounds)}"
                raise RefusalError(422, reason, detail)

    def observe(self, commit: Commit) -> None:
        """Count a transaction and its reports, and which are improbable, once it is answered."""
        self._metrics.observe("commit_seconds", commit.seconds)
        pools: dict[MetricVersion, list[Records]] = {}
        for batch in commit.batches:
            for key, records in batch.records.items():
                self._metrics.count("reports", key.metric, key.version, n=records.reports)
                pools.setdefault(key, []).append(records)
        for key, pool in pools.items():
            bounds = self._bounds.get(key.whole)
            if bounds and (found := int(improbable(joined(pool), bounds).sum())):
                self._metrics.count("improbable_reports", key.metric, n=found)


def _fault(bounds: SetBits) -> str:
    if bounds.cells is None:
        return f"an improbable number of set bits; must be between {bounds.low} and {bounds.high}"
    return f"impossible bits; must be exactly {bounds.low} of the first {bounds.cells}"


class SliceLimit:
    """Bounds the slices of a day of each version with a dimension that has a pattern.

    Anyone can make up values that a pattern matches, and each would have rows of its own. Slices
    that were published of the day before have their places from the start, so that made-up ones
    don't take them. It decides without asking the store, or the time of an answer would show who
    else has sent a slice.
    """

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
