"""The collector's own counters, for Prometheus and for the admin page.

The request path calls the methods of `Metrics`; `publishing` decides what is shown when. Several
processes count in files of one directory, by prometheus_client's multiprocess mode. Invariants: no
label holds what a client chose, or a cohort: names of metrics come from the registry, those of keys
from the configuration, statuses and reasons from the code. A worker that replaces another goes on
in its files, so that no total goes back and no number of ends fills the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from hubbub.protocol import HubbubError, Registry

PREFIX = "hubbub_"
"""Prefix of all families' names for Prometheus."""

_FILE_BYTES = 2**20
"""Per kind of number and process: room for some 6,000 series. It is written in full, so that a disk
that fills up later kills no process; beyond that a file grows without such a reserve."""

_DIRECTORY = "hubbub-counters-"
_STARTING_SECONDS = 60.0
"""A younger directory may be one that another collector has just made and not locked yet."""

_ANSWERS = {
    "200": ("duplicate",),
    "201": ("stored",),
    "400": ("malformed", "incomplete"),
    "401": ("key_missing", "key_malformed", "key_unknown", "key_expired"),
    "413": ("too_large",),
    "415": ("media_type", "encoding"),
    "422": ("invalid", "unregistered", "improbable", "impossible"),
    "429": ("quota", "shed_bytes"),
    "500": ("unexpected",),
    "503": ("store",),
}
"""The answers to batches by their reasons, which are counted from 0 on (see `Metrics.begin`)."""
_OF_KEYS = ("key_expired", "too_large", "quota")
"""Those that are counted by the name of an ingest key as well."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The usual bounds of prometheus_client, from an SSD's commit on."""


class Family(NamedTuple):
    """One family of metrics.

    `type`: counters and histograms add up all processes, ended ones too; of those that live,
    "livesum" is the sum and "livemax" the largest; a "fact" isn't counted, but known to the process
    that publishes. `bounds`: the upper bounds of a histogram's buckets.
    """

    type: Literal["counter", "histogram", "livesum", "livemax", "fact"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


FAMILIES: Mapping[str, Family] = {
    "requests": Family("counter", "Requests answered", ("status", "reason")),
    "request_seconds": Family(
        "histogram",
        "Time from the head of a request that was let in to its answer",
        bounds=_SECONDS,
    ),
    "reports": Family("counter", "Reports stored and acknowledged", ("metric", "version")),
    "shed": Family("counter", "Requests and connections turned away", ("reason",)),
    "key_refusals": Family(
        "counter", "Requests refused because of their ingest key", ("key", "reason")
    ),
    "improbable_reports": Family(
        "counter", "Reports whose number of set bits is improbable under the mechanism", ("metric",)
    ),
    "upkeep_runs": Family("counter", "Runs of background tasks", ("task", "result")),
    "reload_failing": Family(
        "livesum", "Processes that go by old files, as the new ones are wrong"
    ),
    "upkeep_last_success_timestamp_seconds": Family(
        "livemax",
        "When a background task last succeeded; until it does, when the collector started",
        ("task",),
    ),
    "build_info": Family(
        "fact",
        "1, with the version of hubbub, the store's schema and a digest of the registry",
        ("version", "schema", "registry"),
    ),
    "expiry_timestamp_seconds": Family(
        "fact", "When a key or a token is no longer good", ("type", "name")
    ),
    "registry_findings": Family(
        "fact", "What `hubbub-collector check` finds in the registry, by its code", ("code",)
    ),
    "unmixed_days": Family("fact", "Closed days whose reports aren't mixed yet"),
    "slices": Family(
        "fact",
        "Different slices stored today, in hundreds; after 256 of them a process counts new ones "
        "as other",
        ("metric", "version"),
    ),
    "store_size_bytes": Family("fact", "Bytes that the store takes, in whole MiB"),
    "store_free_bytes": Family(
        "fact", "Bytes free on the disk under an SQLite store, in whole MiB"
    ),
    "commit_seconds": Family("histogram", "Time until a transaction is durable", bounds=_SECONDS),
}
"""Families by name for Prometheus, without `PREFIX`."""


class MetricValues(dict[tuple[str, ...], float]):
    """The totals at one moment, by family and label values in its order.

    Those of a histogram are by family and upper bound, and by family and "sum".
    """

    def by(self, family: str) -> list[tuple[tuple[str, ...], float]]:
        """Return the label values and the number of each member of a family, sorted."""
        return sorted((name[1:], number) for name, number in self.items() if name[0] == family)

    def total(self, family: str) -> float:
        """Return the sum of a family."""
        return sum(number for name, number in self.items() if name[0] == family)

    def of(self, *name: str) -> float:
        """Return one number; 0 if nothing was counted."""
        return self.get(name, 0.0)

    def buckets(self, family: str) -> list[tuple[str, float]]:
        """Return how many values of a histogram are at most each bound; of "+Inf", all."""
        bounds = (*map(str, FAMILIES[family].bounds), "+Inf")
        return [(bound, self.of(family, bound)) for bound in bounds]


class CounterError(HubbubError):
    """There is no room to count in."""


@contextmanager
def shared_directory() -> Iterator[Path]:
    """Make a directory in which the processes of a collector count, removed when it ends.

    Those that killed collectors have left behind are removed first: their locks are free.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY}*"):
        with contextlib.suppress(OSError), _locked(left):
            if left.stat().st_mtime < time.time() - _STARTING_SECONDS:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_DIRECTORY) as path, _locked(Path(path)):
        share(Path(path), "supervisor")
        yield Path(path)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory (raises BlockingIOError if another process has it)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def share(directory: Path, process: str) -> None:
    """Let the `Metrics` that this process makes from now on count in a directory.

    `process`: its name, which one that replaces it takes on. Raises `CounterError` if there is no
    room.
    """
    try:
        for kind in ("counter", "histogram", "gauge_livesum", "gauge_livemax"):
            file = directory / f"{kind}_{process}.db"
            if not file.exists():
                file.write_bytes(bytes(_FILE_BYTES))
    except OSError as error:
        raise CounterError(f"counters: no room in {directory}: {error.strerror}") from error
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    values.ValueClass = values.MultiProcessValue(lambda: process)  # type: ignore[no-untyped-call]


def forget_gauges(directory: Path, process: str) -> None:
    """Stop counting the gauges of a process that has ended."""
    mark_process_dead(process, str(directory))  # type: ignore[no-untyped-call]


class Metrics:
    """The counters, gauges and histograms of one collector process.

    `directory`: after `share`, where all processes of a collector count; one of them publishes the
    totals. None: this is the only process. `begun`: what is there from the start, though nothing
    was counted.
    """

    def __init__(self, directory: Path | None = None) -> None:
        own = self._registry = CollectorRegistry(auto_describe=False)
        if directory is not None:
            self._registry = CollectorRegistry(auto_describe=False)
            MultiProcessCollector(self._registry, str(directory))  # type: ignore[no-untyped-call]
        self._families: dict[str, Any] = {}
        for name, (kind, text, labels, bounds) in FAMILIES.items():
            exposed = PREFIX + name
            if kind == "counter":
                self._families[name] = Counter(exposed, text, labels, registry=own)
            elif kind == "histogram":
                self._families[name] = Histogram(exposed, text, buckets=bounds, registry=own)
            elif kind != "fact":
                self._families[name] = Gauge(
                    exposed, text, labels, registry=own, multiprocess_mode=kind
                )
        self._members: dict[tuple[object, ...], Any] = {}
        self.begun: set[tuple[str, ...]] = set()

    def begin(
        self, registry: Registry, keys: Iterable[str] = (), tasks: Collection[str] = ()
    ) -> None:
        """Let the series of all that can be expected begin with 0, or with the start.

        Otherwise Prometheus sees a series first with what it was moved by, and never that it moved;
        and of a task that never succeeds it sees nothing.

        `registry`: whose metrics may be reported. `keys`: the names of ingest keys. `tasks`: what
        runs in the background.
        """
        for task in tasks:
            if ("upkeep_last_success_timestamp_seconds", task) not in self._members:
                self._of("upkeep_last_success_timestamp_seconds", task).set(time.time() // 60 * 60)
        expected: Iterable[tuple[str, ...]] = (
            *(("upkeep_last_success_timestamp_seconds", task) for task in tasks),
            *(("requests", it, reason) for it, reasons in _ANSWERS.items() for reason in reasons),
            *(("shed", reason) for reason in (*_ANSWERS["429"], "connections")),
            *(("improbable_reports", it.name) for it in registry.values()),
            *(("reports", it.name, str(it.version)) for it in registry.values()),
            *(("key_refusals", key, reason) for key in keys for reason in _OF_KEYS),
            *(("upkeep_runs", task, result) for task in tasks for result in ("done", "failed")),
        )
        for member in expected:
            self._of(*member)
            self.begun.add(member)

    def count(self, family: str, *labels: object, n: int = 1) -> None:
        """Count something once, or n times; `labels`: words of the code's or the files' own."""
        self._of(family, *labels).inc(n)

    def observe(self, family: str, seconds: float) -> None:
        """Count how long something took."""
        self._of(family).observe(seconds)

    def upkeep(self, task: str, *, succeeded: bool) -> None:
        """Count a run of a task in the background, such as "merge" or "tidy"."""
        self._of("upkeep_runs", task, "done" if succeeded else "failed").inc()
        if succeeded:
            # To the minute: a run takes longer if reports came since the one before.
            self._of("upkeep_last_success_timestamp_seconds", task).set(time.time() // 60 * 60)

    def reloaded(self, *, succeeded: bool) -> None:
        """Set whether the files were in order when they were last read again."""
        self._of("reload_failing").set(not succeeded)

    def snapshot(self) -> MetricValues:
        """Return the totals of all processes."""
        numbers = MetricValues()
        for metric in self._registry.collect():
            family = metric.name.removeprefix(PREFIX)
            for name, labels, number, *_ in metric.samples:
                part = name.removeprefix(metric.name)
                if part in {"", "_total"}:
                    numbers[family, *(labels[it] for it in FAMILIES[family].labels)] = number
                elif part in {"_bucket", "_sum"}:
                    numbers[family, labels.get("le", "sum")] = number
        return numbers

    def _of(self, *member: object) -> Any:
        """Return a family's member, by name and labels; kept, which halves the time to count."""
        if (found := self._members.get(member)) is None:
            family, *labels = map(str, member)
            found = self._families[family]
            found = self._members[member] = found.labels(*labels) if labels else found
        return found
