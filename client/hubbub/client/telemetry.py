"""What an app calls: `Telemetry(...).record("homepage", url)`.

Values are encoded on the caller's thread, so that no raw value ever waits in a queue; a daemon
thread batches the reports and sends them. After start-up nothing here raises into the app or waits
for the network: trouble is counted, logged once, and visible in `status()`.
"""

from __future__ import annotations

import atexit
import datetime as dt
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubbub.client.encoder import Encoder
from hubbub.client.errors import EncodingError, StateError, UnknownMetricError
from hubbub.client.metrics import Registry
from hubbub.client.state import load_or_create_secret
from hubbub.client.transport import HttpSender, Outcome
from hubbub.client.wire import Batch, Report, batch_to_json

_log = logging.getLogger("hubbub.client")
_EXIT_SECONDS = 2.0
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 300.0


@dataclass(frozen=True, slots=True)
class Status:
    """What a `Telemetry` has done so far in this process.

    Attributes
    ----------
    recorded, delivered, waiting : int
        Reports made, reports that the collector acknowledged, reports still to be sent.
    dropped : mapping of str to int
        Reports or calls dropped, by reason.
    disabled : str or None
        Why nothing is recorded at all, if so.
    """

    recorded: int
    delivered: int
    waiting: int
    dropped: Mapping[str, int]
    disabled: str | None


class Telemetry:
    """Records values and delivers their noisy reports in the background.

    Parameters
    ----------
    metrics : Registry, str or Path
        The registry, or the metrics.toml to read it from.
    endpoint : str
        The collector's base address.
    state_dir : str or Path
        Where this client's secret lives; it must survive updates of the app.
    batch_size : int
        Send as soon as so many reports wait.
    batch_seconds : float
        Send at the latest so long after the first waiting report.
    max_waiting : int
        Beyond so many unsent reports the oldest are dropped (and counted).
    timeout : float
        Seconds for connecting and for each read.

    Raises
    ------
    MetricError, ValueError
        At construction only, for a registry or argument that can't work. A damaged secret doesn't
        raise: it disables the object, and `status().disabled` says why.
    """

    _changed: threading.Condition
    _waiting: deque[Report]
    _dropped: Counter[str]
    _recorded: int
    _delivered: int
    _in_flight: int
    _oldest: float | None
    _thread: threading.Thread | None
    _hurry: bool
    _closed: bool
    _abandon: bool

    def __init__(
        self,
        metrics: Registry | str | Path,
        endpoint: str,
        state_dir: str | Path,
        *,
        batch_size: int = 100,
        batch_seconds: float = 60.0,
        max_waiting: int = 10_000,
        timeout: float = 10.0,
    ) -> None:
        if not 1 <= batch_size <= max_waiting:
            raise ValueError(f"batch_size = {batch_size}: must be between 1 and max_waiting")
        self._registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._sender = HttpSender(endpoint, timeout)
        self._batch_size = batch_size
        self._batch_seconds = batch_seconds
        self._max_waiting = max_waiting
        self._disabled: str | None = None
        self._encoders: dict[str, Encoder] = {}
        try:
            secret = load_or_create_secret(state_dir)
            self._encoders = {n: Encoder(metric, secret) for n, metric in self._registry.items()}
        except StateError as error:
            self._disabled = str(error)
            _log.error("hubbub is off: %s", error)
        self._start_afresh()
        _instances.add(self)

    def record(self, metric: str, value: str) -> None:
        """Report a value, in noise. Returns at once and never raises."""
        try:
            report = self._encode(metric, value)
            if report is not None:
                self._enqueue(report)
        except EncodingError as error:
            self._drop("bad value", str(error))
        except UnknownMetricError as error:
            self._drop("unknown metric", str(error))
        except Exception as error:  # an app must never fail because of telemetry
            self._drop("internal error", type(error).__name__)

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        with self._changed:
            self._hurry = bool(self._waiting)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._pending(), timeout)

    def close(self, timeout: float = _EXIT_SECONDS) -> None:
        """Flush for at most `timeout` seconds, then stop; later calls of `record` are dropped."""
        with self._changed:
            self._closed = True
        self.flush(timeout)
        with self._changed:
            abandoned, self._abandon = self._pending(), True
            self._waiting.clear()
            self._changed.notify_all()
        if abandoned:
            self._drop("not delivered before close", count=abandoned)
        _instances.discard(self)

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason."""
        with self._changed:
            return Status(
                recorded=self._recorded,
                delivered=self._delivered,
                waiting=self._pending(),
                dropped=dict(self._dropped),
                disabled=self._disabled,
            )

    def _encode(self, metric: str, value: str) -> Report | None:
        if self._disabled:
            self._drop("disabled")
            return None
        if dt.datetime.now(dt.UTC).date() > self._registry[metric].expires:
            self._drop("expired metric")
            return None
        return self._encoders[metric].encode(value)

    def _enqueue(self, report: Report) -> None:
        with self._changed:
            if self._closed:
                lost = "closed"
            else:
                lost = "queue full" if len(self._waiting) >= self._max_waiting else ""
                if lost:
                    self._waiting.popleft()
                self._recorded += 1
                self._oldest = self._oldest or time.monotonic()
                self._waiting.append(report)
                self._ensure_thread()
                self._changed.notify_all()
        if lost:
            self._drop(lost)

    def _drop(self, reason: str, detail: str = "", count: int = 1) -> None:
        """Count a loss; log each reason once, without the value."""
        with self._changed:
            first = reason not in self._dropped
            self._dropped[reason] += count
        if first:
            _log.warning("hubbub dropped a report (%s) %s", reason, detail)

    def _ensure_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="hubbub", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            outcome = self._deliver(batch)
            with self._changed:
                if outcome is Outcome.DELIVERED:
                    self._delivered += len(batch.reports)
                self._in_flight = 0
                self._changed.notify_all()
            if outcome is Outcome.REFUSED:
                self._drop("refused by the collector", count=len(batch.reports))

    def _next_batch(self) -> Batch | None:
        """Wait for a batch that is due; None once there is nothing left to do."""
        with self._changed:
            while not self._due():
                if self._closed and not self._waiting:
                    return None
                self._changed.wait(self._seconds_until_due())
            size = min(self._batch_size, len(self._waiting))
            batch = Batch(tuple(self._waiting.popleft() for _ in range(size)))
            self._in_flight = size
            self._oldest = time.monotonic() if self._waiting else None
            return batch

    def _due(self) -> bool:
        if not self._waiting:
            self._hurry = False
            return False
        full = len(self._waiting) >= self._batch_size
        return full or self._hurry or self._seconds_until_due() == 0

    def _seconds_until_due(self) -> float | None:
        if self._oldest is None:
            return None
        return max(0.0, self._oldest + self._batch_seconds - time.monotonic())

    def _deliver(self, batch: Batch) -> Outcome | None:
        """Repeat one batch, under one id, until it is settled; None if it was given up."""
        body = batch_to_json(batch)
        delay = _FIRST_DELAY
        while not self._abandon:
            outcome = self._sender.send(body)
            if outcome is not Outcome.RETRY:
                return outcome
            with self._changed:
                self._changed.wait_for(lambda: self._abandon, _jitter(delay))
            delay = min(2 * delay, _LONGEST_DELAY)
        return None

    def _pending(self) -> int:
        return len(self._waiting) + self._in_flight

    def _start_afresh(self) -> None:
        """Set everything that a thread holds or waits for; a forked child starts here too.

        Locks are replaced, never acquired, because their owner may not exist in the child; the
        parent's reports stay the parent's, or they would be sent twice under two batch ids.
        """
        self._changed = threading.Condition()
        self._waiting = deque()
        self._dropped = Counter()
        self._recorded = self._delivered = self._in_flight = 0
        self._oldest = None
        self._thread = None
        self._hurry = self._closed = self._abandon = False


_instances: weakref.WeakSet[Telemetry] = weakref.WeakSet()


def _jitter(delay: float) -> float:
    """Return a uniform time in [0, delay): full jitter keeps clients from retrying in step."""
    return delay * int.from_bytes(os.urandom(4), "little") / 2**32


@atexit.register
def _close_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for instance in list(_instances):
        instance.close(max(0.0, deadline - time.monotonic()))


def _restart_in_child() -> None:
    for instance in list(_instances):
        instance._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)
