"""The families of metrics that a collector keeps, and their totals over all of its processes.

Pure functions from what each process counted to what Prometheus and the admin page show.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from hubbub.collector.operations.counters import CounterName, ProcessCounters


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
_COUNTER, _GAUGE, _HISTOGRAM = FamilyType.COUNTER, FamilyType.GAUGE, FamilyType.HISTOGRAM

FAMILIES: Mapping[str, Family] = {
    "requests": Family(_COUNTER, "hubbub_requests", "Requests answered", ("status", "reason"), 256),
    "reports": Family(
        _COUNTER, "hubbub_reports", "Reports stored and acknowledged", ("metric", "version"), 4096
    ),
    "duplicates": Family(_COUNTER, "hubbub_duplicate_batches", "Batches that were stored already"),
    "shed": Family(
        _COUNTER, "hubbub_shed", "Requests and connections turned away", ("reason",), 64
    ),
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
    "overflow": Family(
        _COUNTER, "hubbub_uncounted", "Events for which no place was left to count them"
    ),
    "upkeep_success": Family(
        FamilyType.LATEST,
        "hubbub_upkeep_last_success_timestamp_seconds",
        "When a background task last succeeded",
        ("task",),
        64,
    ),
    "upkeep_failure": Family(
        FamilyType.LATEST,
        "hubbub_upkeep_last_failure_timestamp_seconds",
        "When a background task last failed",
        ("task",),
        64,
    ),
    "queue_depth": Family(_GAUGE, "hubbub_queue_depth_batches", "Batches waiting for a commit"),
    "connections": Family(_GAUGE, "hubbub_connections", "Open connections"),
    "processes": Family(_GAUGE, "hubbub_processes", "Processes that take reports"),
    "store_size": Family(
        FamilyType.LATEST, "hubbub_store_size_bytes", "Bytes that the store takes"
    ),
    "sampled": Family(
        FamilyType.LATEST,
        "hubbub_sampled_reports",
        "Latest reports looked at for signs of forgery",
        ("metric", "version"),
        4096,
    ),
    "cohort_ratio": Family(
        FamilyType.LATEST,
        "hubbub_cohort_ratio",
        "Share of the most conspicuous cohort in the sample, as a multiple of an equal one",
        ("metric", "version"),
        4096,
    ),
    "clients_must_send": Family(
        FamilyType.LATEST,
        "hubbub_cohort_clients_must_send",
        "Reports of the sample that one client must have sent for such a cohort to be chance",
        ("metric", "version"),
        4096,
    ),
    "repeated": Family(
        FamilyType.LATEST,
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
            if not counted.alive and type_ in {FamilyType.GAUGE, FamilyType.LATEST}:
                continue
            before = totals.get(name, 0.0)
            totals[name] = max(before, number) if type_ is FamilyType.LATEST else before + number
    return MetricValues(totals)
