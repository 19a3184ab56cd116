"""From `record` to reports in memory: encode, ask the account, keep until they are on disk.

All of this happens on the caller's thread and takes microseconds; it never waits for files or the
network. Invariant: no raw value is kept, and no report is lost without being counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from hubbub.client.encoder import Encoder
from hubbub.client.errors import ReplacedSecretError
from hubbub.client.ledger import (
    ALREADY_REPORTED,
    CHANGED_DEFINITION,
    Account,
    AnswerKey,
    CachedResponse,
    Decision,
    Spending,
    Verdict,
    new_period_response,
    recall,
)
from hubbub.protocol.errors import (
    EncodingError,
    HubbubError,
    MetricError,
    UnknownCategoryError,
    UnknownMetricError,
)
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Report

CLOSED = "closed"
EXPIRED = "expired metric"
REPLACED = "secret replaced"
FORGOTTEN = "forgotten"
WITHDRAWN = "consent withdrawn"
_MOST_RESPONSES = 1024
_EXPECTED = frozenset({ALREADY_REPORTED, EXPIRED, FORGOTTEN, WITHDRAWN})


class Settings(NamedTuple):
    """How reports travel; see `Telemetry`."""

    batch_size: int
    batch_seconds: float
    max_outbox_bytes: int
    connect_timeout: float
    read_timeout: float
    origin: str = ""
    sealed: bool = False


class Entry(NamedTuple):
    """A report that waits in memory, the answer it was drawn from, and when it was recorded."""

    report: Report
    cached: CachedResponse
    recorded_at: float


class _PreparedMetric(NamedTuple):
    """What `record` needs to know of a metric."""

    encoder: Encoder
    ends: float
    responses: dict[int, CachedResponse]


class Recorder:
    """Takes values, and holds their reports until `drain`.

    Parameters
    ----------
    registry : Registry
    max_pending : int
        Beyond so many reports in memory the oldest are dropped, and counted.
    enough : int
        Number of waiting reports that is worth a notification.
    development : bool
        Raise for what an app's author should fix: unknown metrics and categories, bad values.

    Attributes
    ----------
    changed : threading.Condition
        Notified when the first or the `enough`-th report waits, and at every change of state.
    disabled : str or None
        Why nothing is recorded, if so.
    unavailable : str or None
        Why the state can't be opened for now, if so.
    secret : bytes or None
        The client's, once the state is open.
    recorded, delivered, stale : int
    dropped : Counter of str
    """

    def __init__(
        self, registry: Registry, max_pending: int, enough: int, *, development: bool = False
    ) -> None:
        self.registry = registry
        self.disabled: str | None = None
        self.unavailable: str | None = None
        self._max_pending = max_pending
        self._enough = enough
        self._development = development
        self.secret: bytes | None = None
        self._metrics: dict[str, _PreparedMetric] = {}
        self._account = Account(registry)
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Set everything that threads share; a forked child starts here too.

        Locks are replaced, never acquired, because their owner may not exist in the child; the
        parent's reports stay the parent's, or they would be sent twice under two batch ids.
        """
        self.changed = threading.Condition()
        self.pending: deque[Entry] = deque()
        self.dropped: Counter[str] = Counter()
        self.recorded = self.delivered = self.stale = 0

    def open(self, secret: bytes, account: Account) -> None:
        """Begin to record, with a client's secret and what it has answered so far."""
        if secret == self.secret:  # each thread opens the state that another has replaced
            self.refresh(account)
            return
        metrics = {
            name: _PreparedMetric(Encoder(metric, secret), _end_of_day(metric), {})
            for name, metric in self.registry.items()
        }
        with self.changed:
            lost = len(self.pending)  # of another secret
            self.pending.clear()
            self.secret, self._metrics, self._account = secret, metrics, account
            self.unavailable = None
        self.drop(REPLACED, lost)
        for name in sorted(account.unusable):
            log("ERROR", f"hubbub doesn't report metrics.{name}: {CHANGED_DEFINITION}")

    def shut(self) -> None:
        """Drop the secret and the account."""
        with self.changed:
            self.secret, self._metrics, self._account = None, {}, Account(self.registry)

    def has_old_period(self) -> bool:
        """Whether the answer of a past period is still known."""
        with self.changed:
            return any(
                cached.period is not None
                and not cached.forgotten
                and cached.period < self.registry[name].period(time.time())
                for name, cached in self._account.memory.items()
            )

    def disable(self, reason: str, level: str = "ERROR") -> None:
        """Stop recording, and log it: no more data will come."""
        if self.disabled is None:
            log(level, f"hubbub is off: {reason}")
        with self.changed:
            self.disabled = reason
            self.changed.notify_all()

    def record(self, metric: str, value: Value) -> None:
        """Record a value; see `Telemetry.record`."""
        try:
            with self.changed:
                if self.disabled is not None:
                    raise _NotRecordedError(CLOSED if self.disabled == CLOSED else "disabled")
                prepared, now = self._prepared(metric), time.time()
                decision = self._decide(prepared, value, now)
                if decision.verdict is Verdict.REFUSED:
                    raise _NotRecordedError(decision.refusal)
                self._account.enter(decision)
                self.recorded += 1
                self.stale += decision.verdict is Verdict.STALE
                report = prepared.encoder.report(decision.cached.response)
                if len(self.pending) >= self._max_pending:
                    self._drop_oldest()
                self.pending.append(Entry(report, decision.cached, now))
                waiting = len(self.pending)
                if waiting == 1 or waiting == self._enough:  # noqa: PLR1714 (faster)
                    self.changed.notify_all()
        except Exception as error:  # an app must never fail because of telemetry
            if self._development and isinstance(error, (EncodingError, MetricError)):
                raise
            self._drop_for(error)

    def preview(self, metric: str, value: Value) -> tuple[Report, Decision]:
        """Return the report of a value as `record` would keep it, without keeping or spending.

        Raises
        ------
        HubbubError
            If there could be none: the metric isn't registered, the value isn't of its type, or
            the state isn't open.
        """
        with self.changed:
            prepared = self._prepared(metric)
            decision = self._decide(prepared, value, time.time())
            return prepared.encoder.report(decision.cached.response), decision

    def drain(self, secret: bytes) -> list[Entry]:
        """Take all waiting reports, to be stored.

        Raises
        ------
        ReplacedSecretError
            If they were drawn with another secret than the database's.
        """
        with self.changed:
            if secret != self.secret:
                raise ReplacedSecretError("this process has replaced its secret")
            entries = list(self.pending)
            self.pending.clear()
            return entries

    def requeue(self, entries: list[Entry]) -> None:
        """Keep what couldn't be stored, in front of what came since."""
        with self.changed:
            self.pending.extendleft(reversed(entries))
            while len(self.pending) > self._max_pending:
                self._drop_oldest()

    def refresh(self, account: Account) -> None:
        """Replace the account by the stored one, which has the answers of other processes."""
        with self.changed:
            for entry, reports in _same_answers(self.pending):
                decision = account.decide(entry.cached, entry.recorded_at)
                if decision.verdict is not Verdict.REFUSED:
                    account.enter(decision, reports)
            self._account = account
            self.unavailable = None

    def spending(self) -> Spending:
        """Return the account, including what waits in memory."""
        with self.changed:
            return self._account.ledger.spending()

    def drop(self, reason: str, count: int = 1, detail: object = "") -> None:
        """Count a loss, if any; log each reason once, without any value."""
        if not count:
            return
        with self.changed:
            first = reason not in self.dropped
            self.dropped[reason] += count
            self.changed.notify_all()
        if first:
            level = "DEBUG" if reason in _EXPECTED else "WARNING"
            log(level, f"hubbub dropped a report ({reason}) {detail}")

    def drop_pending(self, reason: str) -> None:
        """Count all that waits in memory as lost."""
        with self.changed:
            count = len(self.pending)
            self.pending.clear()
        self.drop(reason, count)

    def _prepared(self, metric: str) -> _PreparedMetric:
        prepared = self._metrics.get(metric)
        if prepared is None:
            self.registry[metric]  # raises for an unknown one, and names those that exist
            raise _NotRecordedError("state not available" if self.unavailable else "disabled")
        return prepared

    def _decide(self, prepared: _PreparedMetric, value: Value, now: float) -> Decision:
        """Ask the account about a value, with a new answer of its own if it needs one."""
        encoder = prepared.encoder
        metric = encoder.metric
        if metric.memory == "period":
            former = self._account.memory.get(metric.name)
            cached = recall(former, metric, now)
            if cached is None:
                cached = new_period_response(metric, encoder.fresh_response(value), now)
            else:
                encoder.true_bits(value)  # refuses a value of the wrong type, whatever is reported
        else:
            cached = _response_of(prepared, encoder.true_bits(value))
        if now >= prepared.ends:
            return Decision(Verdict.REFUSED, cached, EXPIRED)
        return self._account.decide(cached, now)

    def _drop_oldest(self) -> None:
        self.pending.popleft()
        self.dropped["no room in memory"] += 1

    def _drop_for(self, error: Exception) -> None:
        """Count a call that wasn't recorded; our own messages name no value and may be logged."""
        if isinstance(error, _NotRecordedError):
            self.drop(str(error))
        elif isinstance(error, UnknownMetricError):
            # The name isn't logged: if the arguments were swapped, it is the value.
            known = ", ".join(sorted(self.registry))
            self.drop("unknown metric", detail=f"metric: must be one of: {known}")
        elif isinstance(error, UnknownCategoryError):
            self.drop("unknown category", detail=error)
        elif isinstance(error, HubbubError):
            self.drop("bad value", detail=error)
        else:
            self.drop("internal error", detail=type(error).__name__)


class _NotRecordedError(HubbubError):
    """A correct call that isn't recorded; its text is the reason."""


def log(level: str, message: str) -> None:
    """Write to the app's log."""
    import logging  # every `Telemetry` has done so at construction, so this waits for nothing

    logging.getLogger("hubbub.client").log(getattr(logging, level), message)


def _same_answers(entries: Iterable[Entry]) -> list[tuple[Entry, int]]:
    """Return one entry of each answer, the last, and how many there are.

    Callers of `record` wait meanwhile, so answers are compared by identity: equal ones are nearly
    always the same object.
    """
    last: dict[int, tuple[Entry, int]] = {}
    for entry in entries:
        key = id(entry.cached)
        last[key] = entry, last[key][1] + 1 if key in last else 1
    return list(last.values())


def _response_of(prepared: _PreparedMetric, bits: int) -> CachedResponse:
    cached = prepared.responses.get(bits)
    if cached is None:
        if len(prepared.responses) >= _MOST_RESPONSES:
            prepared.responses.clear()
        encoder = prepared.encoder
        metric = encoder.metric
        # A one-time metric has one answer, whatever it is; so nothing of the value is kept.
        digest = b"" if metric.one_time else encoder.value_digest(bits)
        key = AnswerKey(metric.name, metric.version, digest)
        cached = prepared.responses[bits] = CachedResponse(key, encoder.permanent_response(bits))
    return cached


def _end_of_day(metric: Metric) -> float:
    """Return when a metric's last day is over (UTC), in seconds since the epoch."""
    epoch = 719_163  # date(1970, 1, 1).toordinal()
    return float((metric.expires.toordinal() - epoch + 1) * SECONDS_A_DAY)
