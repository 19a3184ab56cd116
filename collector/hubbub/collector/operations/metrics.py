"""What the collector counts about itself, for Prometheus and for the admin page.

The request path calls the methods of `Metrics`, so counting is a look-up and an addition, nothing
more; `publishing` says what of it is shown when. Invariants: no label holds what a client chose, or
a cohort. Names of metrics come from the registry, those of keys from the configuration, statuses
and reasons from the code; anything else is counted as "other", and each family has a bound on its
sets of labels.
"""

from __future__ import annotations

import enum
import re
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from hubbub.collector.operations.counters import CounterName, Counters, ProcessCounters
from hubbub.protocol.registry import Registry

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OTHER = "other"
_PEAK_SECONDS = 600.0
"""What is high for a moment is shown for as long at least, whenever the numbers are published."""


_ANSWERS = {
    "200": ("duplicate",),
    "201": ("stored",),
    "400": ("malformed", "incomplete"),
    "401": ("key_missing", "key_malformed", "key_unknown", "key_expired"),
    "413": ("too_large",),
    "415": ("media_type", "encoding"),
    "422": ("invalid", "unregistered", "improbable", "impossible"),
    "429": ("quota", "shed_requests", "shed_bytes"),
    "500": ("unexpected",),
    "503": ("store",),
}
"""The answers to batches by their reasons, which are counted from 0 on (see `Metrics.begin`)."""
_OF_KEYS = ("key_expired", "too_large", "quota")
"""Those that are counted by the name of an ingest key as well."""


class FamilyType(enum.Enum):
    """How the numbers of several processes are aggregated."""

    COUNTER = "added up, those of ended processes too"
    GAUGE = "added up over the processes that live"
    LATEST = "the largest of the processes that live"
    HISTOGRAM = "bucket by bucket like counters"


class Family(NamedTuple):
    """One family of metrics."""

    type: FamilyType
    exposed: str  # its name for Prometheus
    help: str
    labels: tuple[str, ...] = ()
    most: int = 1  # label sets that are counted separately; further ones count as "other"
    bounds: tuple[float, ...] = ()  # upper bounds of a histogram's buckets


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The usual bounds of prometheus_client, from an SSD's commit on."""
_COUNTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
"""Two per decade, from a lone batch to the largest transactions."""
_COUNTER, _GAUGE = FamilyType.COUNTER, FamilyType.GAUGE
_LATEST, _HISTOGRAM = FamilyType.LATEST, FamilyType.HISTOGRAM

FAMILIES: Mapping[str, Family] = {
    "requests": Family(_COUNTER, "hubbub_requests", "Requests answered", ("status", "reason"), 256),
    "request_seconds": Family(
        _HISTOGRAM,
        "hubbub_request_seconds",
        "Time from the head of a request that was let in to its answer",
        bounds=_SECONDS,
    ),
    "reports": Family(
        _COUNTER, "hubbub_reports", "Reports stored and acknowledged", ("metric", "version"), 4096
    ),
    "duplicates": Family(_COUNTER, "hubbub_duplicate_batches", "Batches that were stored already"),
    "shed": Family(
        _COUNTER, "hubbub_shed", "Requests and connections turned away", ("reason",), 64
    ),
    "key_refusals": Family(
        _COUNTER,
        "hubbub_key_refusals",
        "Requests refused because of their ingest key",
        ("key", "reason"),
        1024,
    ),
    "improbable": Family(
        _COUNTER,
        "hubbub_improbable_reports",
        "Reports whose number of set bits is improbable under the mechanism",
        ("metric",),
        4096,
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
    "switch_failing": Family(
        _GAUGE,
        "hubbub_switch_failing",
        "Processes that serve an old switch, as its file is wrong",
    ),
    "overflow": Family(
        _COUNTER, "hubbub_uncounted", "Events for which no place was left to count them"
    ),
    "upkeep_success": Family(
        _LATEST,
        "hubbub_upkeep_last_success_timestamp_seconds",
        "When a background task last succeeded; until it does, when the collector started",
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
    "queue_depth": Family(
        _GAUGE, "hubbub_queue_depth_batches", "Most batches that waited for a commit of late"
    ),
    "connections": Family(
        _GAUGE, "hubbub_connections", "Most connections that were open at once of late"
    ),
    "processes": Family(_GAUGE, "hubbub_processes", "Processes that take reports"),
    "build": Family(
        _LATEST,
        "hubbub_build_info",
        "1, with the version of hubbub, the store's schema and a digest of the registry",
        ("version", "schema", "registry"),
    ),
    "expiry": Family(
        _LATEST,
        "hubbub_expiry_timestamp_seconds",
        "When the certificate, a key or a token is no longer good",
        ("type", "name"),
    ),
    "registry_findings": Family(
        _LATEST,
        "hubbub_registry_findings",
        "What `hubbub-collector check` finds in the registry, by its code",
        ("code",),
    ),
    "unmixed_days": Family(
        _LATEST, "hubbub_unmixed_days", "Closed days whose reports aren't mixed yet"
    ),
    "slices": Family(
        _LATEST,
        "hubbub_slices",
        "Different slices stored today, in hundreds; after 256 of them a process counts new ones "
        "as other",
        ("metric", "version"),
    ),
    "store_size": Family(
        _LATEST, "hubbub_store_size_bytes", "Bytes that the store takes, in whole MiB"
    ),
    "store_free": Family(
        _LATEST,
        "hubbub_store_free_bytes",
        "Bytes free on the disk under an SQLite store, in whole MiB",
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


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """How often each range of values was seen."""

    bounds: tuple[float, ...]  # upper bounds of all ranges but the last, which has none
    counts: tuple[float, ...]
    total: float  # the sum of all values

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

    def histogram(self, family: str) -> HistogramFamily:
        """Return a histogram; all zero if nothing was counted."""
        bounds = FAMILIES[family].bounds
        names = (*map(str, bounds), "+Inf")
        counts = tuple(self.of(family, name) for name in names)
        return HistogramFamily(bounds, counts, self.of(family, "sum"))


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


class _Peak(NamedTuple):
    """The most of a number in a period, and in the one before."""

    period: int
    previous: float
    highest: float


_NO_PEAK = _Peak(-1, 0.0, 0.0)  # of no period


class Metrics:
    """The counters, gauges and histograms of one collector process.

    `directory`: `counters.shared_directory()` if several processes serve together: each counts for
    itself, and one of them publishes the totals. None: this is the only process. `begun`: what is
    there from the start, though nothing was counted. Raises `CounterError` if the directory has no
    room.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._counters = Counters(directory)
        self._values = self._counters.values
        self._slots: dict[tuple[object, ...], int] = {}
        self._sizes: dict[str, int] = {}
        self._peaks: dict[str, _Peak] = {}
        self.begun: set[CounterName] = set()
        for family in ("duplicates", "queue_depth", "connections", "processes"):
            self._slot(family)  # published from the start
        self._values[self._slot("reload_failing")] = 0
        self._values[self._slot("switch_failing")] = 0
        self._values[self._slot("reload_success")] = time.time()
        self._histograms: dict[str, int] = {}
        """The slot of each one's first bucket; the others and the sum follow it."""
        for family in (name for name, it in FAMILIES.items() if it.type is _HISTOGRAM):
            buckets = (*map(str, FAMILIES[family].bounds), "+Inf", "sum")
            names = [CounterName(family, (bucket,)) for bucket in buckets]
            self._histograms[family] = self._counters.slots(names)

    def begin(
        self, registry: Registry, keys: Iterable[str] = (), tasks: Collection[str] = ()
    ) -> None:
        """Let the series of all that can be expected begin with 0, or with the start.

        Otherwise Prometheus sees a series first with what it was moved by, and never that it moved;
        and of a task that never succeeds it sees nothing.

        `registry`: whose metrics may be reported. `keys`: the names of ingest keys. `tasks`: what
        runs in the background.
        """
        expected: list[tuple[object, ...]] = [
            ("requests", status, reason)
            for status, reasons in _ANSWERS.items()
            for reason in reasons
        ]
        expected += [("shed", reason) for reason in (*_ANSWERS["429"], "connections")]
        expected += [("improbable", it.name) for it in registry.values()]
        expected += [("reports", it.name, it.version) for it in registry.values()]
        expected += [("key_refusals", key, reason) for key in keys for reason in _OF_KEYS]
        expected += [("upkeep", task, result) for task in tasks for result in ("done", "failed")]
        started = [("upkeep_success", task) for task in tasks]
        for member in [*expected, *started]:
            self._slot(*member)
            self.begun.add(CounterName(str(member[0]), tuple(map(str, member[1:]))))
        for slot in map(self._slots.__getitem__, started):
            self._values[slot] = self._values[slot] or time.time() // 60 * 60

    def request(self, status: int, reason: str) -> None:
        """Count a request that was answered.

        `reason`: a word of the code's own, such as "stored" or "unknown_metric".
        """
        self._values[self._slot("requests", status, reason)] += 1

    def reports(self, metric: str, version: int, n: int) -> None:
        """Count reports that were stored and acknowledged."""
        self._values[self._slot("reports", metric, version)] += n

    def answered(self, seconds: float) -> None:
        """Count how long a request that was let in took."""
        self._observe("request_seconds", seconds)

    def key_refused(self, key: str, reason: str) -> None:
        """Count a request that was refused because of an ingest key, whose name this is."""
        self._values[self._slot("key_refusals", key, reason)] += 1

    def improbable(self, metric: str, n: int) -> None:
        """Count reports whose number of set bits is improbable under the mechanism."""
        self._values[self._slot("improbable", metric)] += n

    def duplicates(self, n: int) -> None:
        """Count batches that were stored already."""
        self._values[self._slot("duplicates")] += n

    def shed(self, reason: str) -> None:
        """Count a request or connection that was turned away to protect the others."""
        self._values[self._slot("shed", reason)] += 1

    def committed(self, batches: int, reports: int, seconds: float) -> None:
        """Count a transaction: how much it held, and how long it took to be durable."""
        self._observe("commit_seconds", seconds)
        self._observe("commit_batches", batches)
        self._observe("commit_reports", reports)

    def _observe(self, family: str, number: float) -> None:
        bounds, first = FAMILIES[family].bounds, self._histograms[family]
        self._values[first + bisect_left(bounds, number)] += 1
        self._values[first + len(bounds) + 1] += number

    def upkeep(self, task: str, *, succeeded: bool) -> None:
        """Count a run of a task in the background, such as "merge" or "tidy"."""
        self._values[self._slot("upkeep", task, "done" if succeeded else "failed")] += 1
        last, other = "upkeep_success", "upkeep_failure"
        if not succeeded:
            last, other = other, last
        # To the minute: a run takes longer if reports came since the one before. Of two in the same
        # minute the later one is still later.
        minute = time.time() // 60 * 60
        before = self._values[self._slot(other, task)] if (other, task) in self._slots else 0.0
        self._values[self._slot(last, task)] = max(minute, before + 1)

    def reloaded(self, *, succeeded: bool) -> None:
        """Count that the registry, the keys and the certificate were read again."""
        self._values[self._slot("reloads", "done" if succeeded else "failed")] += 1
        self._values[self._slot("reload_failing")] = not succeeded
        if succeeded:
            self._values[self._slot("reload_success")] = time.time()

    def switch_read(self, *, succeeded: bool) -> None:
        """Set whether the switch's file is in order."""
        self._values[self._slot("switch_failing")] = not succeeded

    def queue_depth(self, batches: int) -> None:
        """Set how many batches wait to be committed in this process."""
        self._peak("queue_depth", batches)

    def connections(self, n: int) -> None:
        """Set how many connections are open in this process, which so takes reports."""
        self._peak("connections", n)
        self._values[self._slot("processes")] = 1

    def _peak(self, family: str, number: float) -> None:
        period, before = int(time.time() / _PEAK_SECONDS), self._peaks.get(family, _NO_PEAK)
        if before.period != period:
            before = _Peak(period, before.highest if before.period == period - 1 else 0.0, 0.0)
        peak = self._peaks[family] = before._replace(highest=max(before.highest, number))
        self._values[self._slot(family)] = max(peak.previous, peak.highest)

    def snapshot(self) -> MetricValues:
        """Return the totals of all processes."""
        return aggregate(self._counters.read())

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
