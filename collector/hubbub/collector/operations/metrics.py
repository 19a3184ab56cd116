"""What the collector counts about itself, for Prometheus and for the admin page.

The request path calls these methods some hundred thousand times a second, so each adds to a counter
whose slot was looked up before. Invariant: no label holds what a client chose. Names of metrics
come from the registry, statuses and reasons from the code; anything else is counted as "other", and
each family has a bound on its sets of labels.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from hubbub.collector.operations.counters import CounterName, Counters
from hubbub.collector.operations.metric_families import (
    FAMILIES,
    SAMPLED,
    FamilyType,
    MetricValues,
    aggregate,
)

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OTHER = "other"


class Metrics:
    """The counters, gauges and histograms of one collector process.

    Parameters
    ----------
    directory : Path, optional
        `counters.shared_directory()` if several processes serve together: each counts for itself,
        and one of them publishes the totals. None: this is the only process.

    Raises
    ------
    CounterError
        If the directory has no room.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._counters = Counters(directory)
        self._values = self._counters.values
        self._slots: dict[tuple[object, ...], int] = {}
        self._sizes: dict[str, int] = {}
        self._duplicates = self._slot("duplicates")
        self._queue = self._slot("queue_depth")
        self._connections = self._slot("connections")
        self._processes = self._slot("processes")
        self._size = self._slot("store_size")
        self._seconds = self._histogram("commit_seconds")
        self._batches = self._histogram("commit_batches")
        self._reports = self._histogram("commit_reports")
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_PrometheusCollector(self))
        ProcessCollector(registry=self._registry)

    def request(self, status: int, reason: str) -> None:
        """Count a request that was answered.

        Parameters
        ----------
        status : int
        reason : str
            A word of the code's own, such as "stored" or "unknown_metric".
        """
        try:
            self._values[self._slots["requests", status, reason]] += 1
        except KeyError:
            self._values[self._slot("requests", status, reason)] += 1

    def reports(self, metric: str, version: int, n: int) -> None:
        """Count reports that were stored and acknowledged."""
        try:
            self._values[self._slots["reports", metric, version]] += n
        except KeyError:
            self._values[self._slot("reports", metric, version)] += n

    def improbable(self, metric: str, cohort: int, n: int) -> None:
        """Count reports whose number of set bits is improbable under the mechanism."""
        try:
            self._values[self._slots["improbable", metric, cohort]] += n
        except KeyError:
            self._values[self._slot("improbable", metric, cohort)] += n

    def duplicate(self) -> None:
        """Count a batch that was stored already."""
        self._values[self._duplicates] += 1

    def shed(self, reason: str) -> None:
        """Count a request or connection that was turned away to protect the others."""
        try:
            self._values[self._slots["shed", reason]] += 1
        except KeyError:
            self._values[self._slot("shed", reason)] += 1

    def committed(self, batches: int, reports: int, seconds: float) -> None:
        """Count a transaction: how much it held, and how long it took to be durable."""
        _observe(self._values, self._seconds, FAMILIES["commit_seconds"].bounds, seconds)
        _observe(self._values, self._batches, FAMILIES["commit_batches"].bounds, batches)
        _observe(self._values, self._reports, FAMILIES["commit_reports"].bounds, reports)

    def upkeep(self, task: str, *, succeeded: bool) -> None:
        """Count a run of a task in the background, such as "merge" or "tidy"."""
        self._values[self._slot("upkeep", task, "done" if succeeded else "failed")] += 1
        last = "upkeep_success" if succeeded else "upkeep_failure"
        self._values[self._slot(last, task)] = time.time()

    def sampled(
        self,
        metric: str,
        version: int,
        *,
        reports: int,
        cohort_ratio: float,
        clients_must_send: float,
        repeated: int,
    ) -> None:
        """Set what a version's latest reports look like; one process does it for all.

        Parameters
        ----------
        metric : str
        version : int
        reports : int
            Reports that were looked at.
        cohort_ratio : float
            The most conspicuous cohort's size as a multiple of the mean.
        clients_must_send : float
            See `poisoning.balance.Balance`.
        repeated : int
            Reports that are equal to more others than is plausible.
        """
        numbers = (reports, cohort_ratio, clients_must_send, repeated)
        for family, number in zip(SAMPLED, numbers, strict=True):
            self._values[self._slot(family, metric, version)] = number

    def queue_depth(self, batches: int) -> None:
        """Set how many batches wait to be committed in this process."""
        self._values[self._queue] = batches

    def connections(self, n: int) -> None:
        """Set how many connections are open in this process, which so takes reports."""
        self._values[self._connections] = n
        self._values[self._processes] = 1

    def store_size(self, size: int) -> None:
        """Set how many bytes the store takes; one process does it for all."""
        self._values[self._size] = size

    def snapshot(self) -> MetricValues:
        """Return the totals of all processes."""
        return aggregate(self._counters.read())

    def exposition(self) -> tuple[bytes, str]:
        """Return the totals of all processes in Prometheus' format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def close(self) -> None:
        """Release the memory; nothing can be counted afterwards."""
        self._counters.close()

    def _slot(self, family: str, *labels: object) -> int:
        """Return the slot of a counter, and remember it in `_slots`."""
        if (family, *labels) in self._slots:
            return self._slots[family, *labels]
        words = tuple(text if _WORD.fullmatch(text := str(label)) else _OTHER for label in labels)
        if self._sizes.get(family, 0) >= FAMILIES[family].most:
            # Not remembered: the table of slots must stay bounded, too.
            return self._counters.slot(CounterName(family, tuple(_OTHER for _ in labels)))
        self._sizes[family] = self._sizes.get(family, 0) + 1
        slot = self._slots[family, *labels] = self._counters.slot(CounterName(family, words))
        return slot

    def _histogram(self, family: str) -> int:
        """Reserve the buckets and the sum of a histogram, one after the other."""
        buckets = (*map(str, FAMILIES[family].bounds), "+Inf", "sum")
        return self._counters.slots([CounterName(family, (bucket,)) for bucket in buckets])


def _observe(
    values: memoryview[float], first: int, bounds: tuple[float, ...], number: float
) -> None:
    values[first + bisect_left(bounds, number)] += 1
    values[first + len(bounds) + 1] += number


class _PrometheusCollector(Collector):
    """The totals in the form of prometheus_client."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        values = self._metrics.snapshot()
        for name, family in FAMILIES.items():
            if family.type is FamilyType.HISTOGRAM:
                exposed = HistogramMetricFamily(family.exposed, family.help)
                histogram = values.histogram(name)
                exposed.add_metric([], list(histogram.cumulative()), histogram.total)
                yield exposed
                continue
            is_counter = family.type is FamilyType.COUNTER
            make = CounterMetricFamily if is_counter else GaugeMetricFamily
            simple = make(family.exposed, family.help, labels=family.labels)
            for labels, number in values.by(name):
                simple.add_metric(list(labels), number)
            yield simple
