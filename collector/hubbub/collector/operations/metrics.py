"""What the collector counts about itself, for Prometheus and for the admin page.

The request path calls the methods of `Metrics`, so counting is a look-up and an addition, nothing
more. Invariant: no label holds what a client chose. Names of metrics come from the registry,
statuses and reasons from the code; anything else is counted as "other", and each family has a bound
on its sets of labels.
"""

from __future__ import annotations

import enum
import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from hubbub.collector.operations.counters import CounterName, Counters, ProcessCounters

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OTHER = "other"
_COHORTS_A_METRIC = 1024


class FamilyType(enum.Enum):
    """How the numbers of several processes are aggregated."""

    COUNTER = "added up, those of ended processes too"
    GAUGE = "added up over the processes that live"
    LATEST = "the largest of the processes that live"
    HISTOGRAM = "bucket by bucket like counters"


class Family(NamedTuple):
    """One family of metrics.

    Attributes
    ----------
    type : FamilyType
    exposed : str
        Its name for Prometheus.
    help : str
    labels : tuple of str
    most : int
        Label sets that are counted separately; further ones count as "other".
    bounds : tuple of float
        Upper bounds of a histogram's buckets.
    """

    type: FamilyType
    exposed: str
    help: str
    labels: tuple[str, ...] = ()
    most: int = 1
    bounds: tuple[float, ...] = ()


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
_COUNTER, _GAUGE = FamilyType.COUNTER, FamilyType.GAUGE
_LATEST, _HISTOGRAM = FamilyType.LATEST, FamilyType.HISTOGRAM

FAMILIES: Mapping[str, Family] = {
    "requests": Family(_COUNTER, "hubbub_requests", "Requests answered", ("status", "reason"), 256),
    "reports": Family(
        _COUNTER, "hubbub_reports", "Reports stored and acknowledged", ("metric", "version"), 4096
    ),
    "duplicates": Family(_COUNTER, "hubbub_duplicate_batches", "Batches that were stored already"),
    "shed": Family(
        _COUNTER, "hubbub_shed", "Requests and connections turned away", ("reason",), 64
    ),
    "quarantined": Family(
        _COUNTER,
        "hubbub_quarantined_reports",
        "Reports kept apart, as the registry doesn't know their metric, version or width",
    ),
    "replayed": Family(
        _COUNTER, "hubbub_replayed_reports", "Reports that a mended registry took from quarantine"
    ),
    "quarantine_lost": Family(
        _COUNTER,
        "hubbub_quarantine_lost_reports",
        "Reports deleted after quarantine_days, as no registry took them",
    ),
    "quarantine": Family(_LATEST, "hubbub_quarantine_reports", "Reports in quarantine"),
    "improbable": Family(
        _COUNTER,
        "hubbub_improbable_reports",
        "Reports whose number of set bits is improbable under the mechanism",
        ("metric", "cohort"),
        8192,
    ),
    "upkeep": Family(
        _COUNTER, "hubbub_upkeep_runs", "Runs of background tasks", ("task", "result"), 64
    ),
    "reloads": Family(
        _COUNTER,
        "hubbub_reloads",
        "Times that a process read the registry, keys and certificate again",
        ("result",),
        4,
    ),
    "reload_failing": Family(
        _GAUGE,
        "hubbub_reload_failing",
        "Processes that go by an old registry, keys and certificate, as the new ones are wrong",
    ),
    "reload_success": Family(
        _LATEST,
        "hubbub_reload_last_success_timestamp_seconds",
        "When a process last read registry, keys and certificate, at its start or later",
    ),
    "overflow": Family(
        _COUNTER, "hubbub_uncounted", "Events for which no place was left to count them"
    ),
    "upkeep_success": Family(
        _LATEST,
        "hubbub_upkeep_last_success_timestamp_seconds",
        "When a background task last succeeded",
        ("task",),
        64,
    ),
    "upkeep_failure": Family(
        _LATEST,
        "hubbub_upkeep_last_failure_timestamp_seconds",
        "When a background task last failed",
        ("task",),
        64,
    ),
    "queue_depth": Family(_GAUGE, "hubbub_queue_depth_batches", "Batches waiting for a commit"),
    "connections": Family(_GAUGE, "hubbub_connections", "Open connections"),
    "processes": Family(_GAUGE, "hubbub_processes", "Processes that take reports"),
    "store_size": Family(_LATEST, "hubbub_store_size_bytes", "Bytes that the store takes"),
    "store_free": Family(
        _LATEST, "hubbub_store_free_bytes", "Bytes free on the disk under an SQLite store"
    ),
    "sampled": Family(
        _LATEST,
        "hubbub_sampled_reports",
        "Latest reports looked at for signs of forgery",
        ("metric", "version"),
        4096,
    ),
    "cohort_ratio": Family(
        _LATEST,
        "hubbub_cohort_ratio",
        "Share of the most conspicuous cohort in the sample, as a multiple of an equal one",
        ("metric", "version"),
        4096,
    ),
    "clients_must_send": Family(
        _LATEST,
        "hubbub_cohort_clients_must_send",
        "Reports of the sample that one client must have sent for such a cohort to be chance",
        ("metric", "version"),
        4096,
    ),
    "repeated": Family(
        _LATEST,
        "hubbub_repeated_reports",
        "Reports of the sample that are equal to more others than is plausible",
        ("metric", "version"),
        4096,
    ),
    "commit_seconds": Family(
        _HISTOGRAM, "hubbub_commit_seconds", "Time until a transaction is durable", bounds=_SECONDS
    ),
    "commit_batches": Family(
        _HISTOGRAM, "hubbub_commit_batches", "Batches in a transaction", bounds=_COUNTS
    ),
    "commit_reports": Family(
        _HISTOGRAM, "hubbub_commit_reports", "Reports in a transaction", bounds=_COUNTS
    ),
}

SAMPLED = ("sampled", "cohort_ratio", "clients_must_send", "repeated")
"""What each version's latest reports look like."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often each range of values was seen.

    Attributes
    ----------
    bounds : tuple of float
        Upper bounds of all ranges but the last, which has none.
    counts : tuple of float
    total : float
        The sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Yield each bound and how many values are at most that."""
        names = (*map(str, self.bounds), "+Inf")
        return zip(names, accumulate(self.counts), strict=True)

    def quantile(self, share: float) -> float | None:
        """Return the bound under which this share of the values lies.

        None without values; infinite if they lie above the last bound.
        """
        if not self.count:
            return None
        below = zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True)
        return next(bound for bound, count in below if count >= share * self.count)


@dataclass(frozen=True, slots=True)
class MetricValues:
    """The totals at one moment."""

    numbers: Mapping[CounterName, float]

    def by(self, family: str) -> list[tuple[tuple[str, ...], float]]:
        """Return the label values and the number of each member of a family, sorted."""
        return sorted((name.labels, n) for name, n in self.numbers.items() if name.family == family)

    def total(self, family: str) -> float:
        """Return the sum of a family."""
        return sum(number for name, number in self.numbers.items() if name.family == family)

    def of(self, family: str, *labels: str) -> float:
        """Return one number; 0 if nothing was counted."""
        return self.numbers.get(CounterName(family, labels), 0.0)

    def histogram(self, family: str) -> Histogram:
        """Return a histogram; all zero if nothing was counted."""
        bounds = FAMILIES[family].bounds
        names = (*map(str, bounds), "+Inf")
        counts = tuple(self.of(family, name) for name in names)
        return Histogram(bounds, counts, self.of(family, "sum"))


def aggregate(counters: Iterable[ProcessCounters]) -> MetricValues:
    """Aggregate what several processes counted."""
    totals: dict[CounterName, float] = {}
    for counted in counters:
        for name, number in counted.numbers.items():
            type_ = FAMILIES[name.family].type
            if not counted.alive and type_ in {_GAUGE, _LATEST}:
                continue
            before = totals.get(name, 0.0)
            totals[name] = max(before, number) if type_ is _LATEST else before + number
    return MetricValues(totals)


class Metrics(Collector):
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
        self._improbable_cohorts: defaultdict[str, set[int]] = defaultdict(set)
        for family in ("duplicates", "queue_depth", "connections", "processes", "store_size"):
            self._slot(family)  # published from the start
        self._values[self._slot("reload_failing")] = 0
        self._values[self._slot("reload_success")] = time.time()
        self._histograms: dict[str, int] = {}
        """The slot of each one's first bucket; the others and the sum follow it."""
        for family in ("commit_seconds", "commit_batches", "commit_reports"):
            buckets = (*map(str, FAMILIES[family].bounds), "+Inf", "sum")
            names = [CounterName(family, (bucket,)) for bucket in buckets]
            self._histograms[family] = self._counters.slots(names)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def request(self, status: int, reason: str) -> None:
        """Count a request that was answered.

        Parameters
        ----------
        status : int
        reason : str
            A word of the code's own, such as "stored" or "unknown_metric".
        """
        self._values[self._slot("requests", status, reason)] += 1

    def reports(self, metric: str, version: int, n: int) -> None:
        """Count reports that were stored and acknowledged."""
        self._values[self._slot("reports", metric, version)] += n

    def improbable(self, metric: str, cohort: int, n: int) -> None:
        """Count reports whose number of set bits is improbable under the mechanism.

        A metric may have 65,535 cohorts. All beyond a thousand are counted as one, so that those
        who spread improbable reports of one metric leave room for what others count.
        """
        seen = self._improbable_cohorts[metric]
        if len(seen) >= _COHORTS_A_METRIC and cohort not in seen:
            self._values[self._slot("improbable", metric, _OTHER)] += n
            return
        seen.add(cohort)
        self._values[self._slot("improbable", metric, cohort)] += n

    def quarantined(self, n: int) -> None:
        """Count reports that were kept apart and acknowledged."""
        self._values[self._slot("quarantined")] += n

    def replayed(self, n: int) -> None:
        """Count reports that were taken out of quarantine."""
        self._values[self._slot("replayed")] += n

    def quarantine_lost(self, n: int) -> None:
        """Count reports in quarantine that nobody wanted in time."""
        self._values[self._slot("quarantine_lost")] += n

    def quarantine(self, reports: int) -> None:
        """Set how many reports are in quarantine; one process does it for all."""
        self._values[self._slot("quarantine")] = reports

    def duplicates(self, n: int) -> None:
        """Count batches that were stored already."""
        self._values[self._slot("duplicates")] += n

    def shed(self, reason: str) -> None:
        """Count a request or connection that was turned away to protect the others."""
        self._values[self._slot("shed", reason)] += 1

    def committed(self, batches: int, reports: int, seconds: float) -> None:
        """Count a transaction: how much it held, and how long it took to be durable."""
        for family, number in (
            ("commit_seconds", seconds),
            ("commit_batches", batches),
            ("commit_reports", reports),
        ):
            bounds, first = FAMILIES[family].bounds, self._histograms[family]
            self._values[first + bisect_left(bounds, number)] += 1
            self._values[first + len(bounds) + 1] += number

    def upkeep(self, task: str, *, succeeded: bool) -> None:
        """Count a run of a task in the background, such as "merge" or "tidy"."""
        self._values[self._slot("upkeep", task, "done" if succeeded else "failed")] += 1
        last = "upkeep_success" if succeeded else "upkeep_failure"
        self._values[self._slot(last, task)] = time.time()

    def reloaded(self, *, succeeded: bool) -> None:
        """Count that the registry, the keys and the certificate were read again."""
        self._values[self._slot("reloads", "done" if succeeded else "failed")] += 1
        self._values[self._slot("reload_failing")] = not succeeded
        if succeeded:
            self._values[self._slot("reload_success")] = time.time()

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
            See `poisoning.Balance`.
        repeated : int
            Reports that are equal to more others than is plausible.
        """
        numbers = (reports, cohort_ratio, clients_must_send, repeated)
        for family, number in zip(SAMPLED, numbers, strict=True):
            self._values[self._slot(family, metric, version)] = number

    def queue_depth(self, batches: int) -> None:
        """Set how many batches wait to be committed in this process."""
        self._values[self._slot("queue_depth")] = batches

    def connections(self, n: int) -> None:
        """Set how many connections are open in this process, which so takes reports."""
        self._values[self._slot("connections")] = n
        self._values[self._slot("processes")] = 1

    def store_size(self, size: int) -> None:
        """Set how many bytes the store takes; one process does it for all."""
        self._values[self._slot("store_size")] = size

    def store_free(self, size: int) -> None:
        """Set how many bytes are free under the store; one process does it for all."""
        self._values[self._slot("store_free")] = size

    def snapshot(self) -> MetricValues:
        """Return the totals of all processes."""
        return aggregate(self._counters.read())

    def exposition(self) -> tuple[bytes, str]:
        """Return the totals of all processes in Prometheus' format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """Yield the totals of all processes in the form of prometheus_client."""
        values = self.snapshot()
        for name, family in FAMILIES.items():
            if family.type is _HISTOGRAM:
                exposed = HistogramMetricFamily(family.exposed, family.help)
                histogram = values.histogram(name)
                exposed.add_metric([], list(histogram.cumulative()), histogram.total)
                yield exposed
                continue
            is_counter = family.type is _COUNTER
            make = CounterMetricFamily if is_counter else GaugeMetricFamily
            simple = make(family.exposed, family.help, labels=family.labels)
            for labels, number in values.by(name):
                simple.add_metric(list(labels), number)
            yield simple

    def _slot(self, *member: object) -> int:
        """Return the slot of a family's member (its name and labels); remember it in `_slots`."""
        slot = self._slots.get(member)
        if slot is not None:
            return slot
        family, *labels = map(str, member)
        words = tuple(label if _WORD.fullmatch(label) else _OTHER for label in labels)
        if self._sizes.get(family, 0) >= FAMILIES[family].most:
            # Not remembered: the table of slots must stay bounded, too.
            return self._counters.slot(CounterName(family, tuple(_OTHER for _ in labels)))
        self._sizes[family] = self._sizes.get(family, 0) + 1
        slot = self._slots[member] = self._counters.slot(CounterName(family, words))
        return slot
