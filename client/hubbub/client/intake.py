"""From `record` to reports in memory: encode, ask the ledger, keep until the disk takes over.

All of it happens on the caller's thread and takes microseconds: no file, no network, no waiting.
What a maintainer must not break: no raw value is kept, and nothing is lost without being counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import NamedTuple

from hubbub.client.encoder import Encoder
from hubbub.client.errors import (
    EncodingError,
    HubbubError,
    MetricError,
    UnknownCategoryError,
    UnknownMetricError,
)
from hubbub.client.forks import no_fork
from hubbub.client.kinds import Value
from hubbub.client.ledger import Ledger, Spend, Spending
from hubbub.client.metrics import Metric, Registry
from hubbub.client.wire import Report

_SECONDS_A_DAY = 86_400
_MOST_SPENDS = 1024


class Settings(NamedTuple):
    """How reports travel; see `Telemetry`."""

    batch_size: int
    batch_seconds: float
    max_outbox_bytes: int
    connect_timeout: float
    read_timeout: float


class Entry(NamedTuple):
    """A report that waits in memory, and what it costs."""

    report: Report
    spend: Spend


class _Recipe(NamedTuple):
    """What `record` needs of a metric, at hand."""

    encoder: Encoder
    ends: float
    spends: dict[int, Spend]


class Intake:
    """Takes values, and holds their reports until `drain`.

    Parameters
    ----------
    registry : Registry
    max_pending : int
        Beyond so many reports in memory the oldest are dropped, and counted.
    development : bool
        Raise for what an app's author should mend: unknown metrics and categories, bad values.

    Attributes
    ----------
    changed : threading.Condition
        Notified when the first or the `enough`-th report waits, and at every change of state.
    disabled : str or None
        Why nothing is recorded, if so.
    recorded, delivered : int
    dropped : Counter of str
    """

    def __init__(
        self, registry: Registry, max_pending: int, enough: int, *, development: bool = False
    ) -> None:
        self.registry = registry
        self.disabled: str | None = None
        self._max_pending = max_pending
        self._enough = enough
        self._development = development
        self._recipes: dict[str, _Recipe] = {}
        self._ledger = Ledger(registry)
        self.start_afresh()

    def start_afresh(self) -> None:
        """Set everything that a thread may hold; a forked child starts here too.

        Locks are replaced, never acquired, because their owner may not exist in the child; the
        parent's reports stay the parent's, or they would be sent twice under two batch ids.
        """
        self.changed = threading.Condition()
        self.pending: deque[Entry] = deque()
        self.dropped: Counter[str] = Counter()
        self.recorded = self.delivered = 0

    def open(self, secret: bytes, ledger: Ledger) -> None:
        """Begin to record, with a client's secret and what it has spent so far."""
        self._recipes = {
            name: _Recipe(Encoder(metric, secret), _end_of_day(metric), {})
            for name, metric in self.registry.items()
        }
        self._ledger = ledger

    @property
    def is_open(self) -> bool:
        """Whether a secret is at hand."""
        return bool(self._recipes)

    def disable(self, reason: str) -> None:
        """Stop recording; logged, because it means that no data comes any more."""
        if self.disabled is None:
            log("ERROR", f"hubbub is off: {reason}")
        self.disabled = reason

    def take(self, metric: str, value: Value) -> None:
        """Record a value; see `Telemetry.record`."""
        try:
            if self.disabled is not None:
                raise _NotRecordedError("closed" if self.disabled == "closed" else "disabled")
            entry = self.prepare(metric, value)
            with self.changed:
                if reason := self._refusal(entry):
                    raise _NotRecordedError(reason)
                self._ledger.add(entry.spend)
                self.recorded += 1
                self._keep(entry)
        except Exception as error:  # an app must never fail because of telemetry
            if self._development and isinstance(error, (EncodingError, MetricError)):
                raise
            self._drop_for(error)

    def prepare(self, metric: str, value: Value) -> Entry:
        """Return the report of a value as `take` would keep it, without keeping or spending.

        Raises
        ------
        HubbubError
            If the value wouldn't be recorded: the reason.
        """
        recipe = self._recipes.get(metric)
        if recipe is None:
            self.registry[metric]  # raises, and names those that there are
            raise _NotRecordedError("disabled")
        encoder = recipe.encoder
        bits = encoder.true_bits(value)
        spend = recipe.spends.get(bits)
        if spend is None:
            if len(recipe.spends) >= _MOST_SPENDS:
                recipe.spends.clear()
            digest = encoder.value_digest(bits)
            spend = Spend(encoder.metric.name, encoder.metric.version, digest)
            recipe.spends[bits] = spend
        return Entry(encoder.report(bits), spend)

    def refusal(self, entry: Entry) -> str | None:
        """Return why a prepared report wouldn't be recorded; None if it would."""
        with self.changed:
            return self._refusal(entry)

    def drain(self) -> list[Entry]:
        """Take all reports that wait, for the disk."""
        with self.changed:
            entries = list(self.pending)
            self.pending.clear()
            return entries

    def give_back(self, entries: list[Entry]) -> None:
        """Put reports back in front, because the disk couldn't take them just now."""
        with self.changed:
            self.pending.extendleft(reversed(entries))
            while len(self.pending) > self._max_pending:
                self._drop_oldest()

    def refresh(self, ledger: Ledger) -> None:
        """Replace the ledger by the stored one, which knows what other processes spent."""
        with self.changed:
            for entry in self.pending:
                ledger.add(entry.spend)
            self._ledger = ledger

    def spending(self) -> Spending:
        """Return the account, including what waits in memory."""
        with self.changed:
            return self._ledger.spending()

    def drop(self, reason: str, count: int = 1, detail: object = "") -> None:
        """Count a loss; log each reason once, without any value."""
        with self.changed:
            first = reason not in self.dropped
            self.dropped[reason] += count
            self.changed.notify_all()
        if first:
            log("WARNING", f"hubbub dropped a report ({reason}) {detail}")

    def _refusal(self, entry: Entry) -> str | None:
        if time.time() >= self._recipes[entry.spend.metric].ends:
            return "expired metric"
        return self._ledger.refusal(entry.spend)

    def _keep(self, entry: Entry) -> None:
        if len(self.pending) >= self._max_pending:
            self._drop_oldest()
        self.pending.append(entry)
        waiting = len(self.pending)
        if waiting == 1 or waiting == self._enough:  # noqa: PLR1714 (faster, on the caller's time)
            self.changed.notify_all()

    def _drop_oldest(self) -> None:
        self.pending.popleft()
        self.dropped["no room in memory"] += 1

    def _drop_for(self, error: Exception) -> None:
        """Count a call that wasn't recorded; own messages name no value and may be logged."""
        if isinstance(error, _NotRecordedError):
            self.drop(str(error))
        elif isinstance(error, HubbubError):
            self.drop(_KINDS_OF_MISTAKE.get(type(error), "bad value"), detail=self._detail(error))
        else:
            self.drop("internal error", detail=type(error).__name__)

    def _detail(self, error: HubbubError) -> str:
        """Return what may be logged: no metric name, for it is the value if both were swapped."""
        if isinstance(error, UnknownMetricError):
            return f"metric: must be one of: {', '.join(sorted(self.registry))}"
        return str(error)


class _NotRecordedError(HubbubError):
    """A call that is in order but isn't recorded; its text is the reason."""


_KINDS_OF_MISTAKE: dict[type[HubbubError], str] = {
    UnknownMetricError: "unknown metric",
    UnknownCategoryError: "unknown category",
}


def log(level: str, message: str) -> None:
    """Tell the app's log; logging is imported for those who have something to read."""
    with no_fork():
        import logging

    logging.getLogger("hubbub.client").log(getattr(logging, level), message)


def _end_of_day(metric: Metric) -> float:
    """Return the moment, in seconds since the epoch, when a metric's last day is over (UTC)."""
    days = metric.expires.toordinal() - _EPOCH + 1
    return float(days * _SECONDS_A_DAY)


_EPOCH = 719_163  # date(1970, 1, 1).toordinal()
