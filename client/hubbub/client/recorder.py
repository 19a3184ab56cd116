"""From `record` to recordings in memory: permanent responses that wait to be charged and stored.

All of this happens on the caller's thread and takes microseconds; it never waits for files or the
network. What the stored account has no room for isn't kept; what has room is charged when it is
stored, and its report drawn then. Invariant: no raw value is kept, and none is lost uncounted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import NamedTuple

from hubbub.client.encoder import Encoder, PermanentResponse
from hubbub.client.ledger import (
    ALREADY_REPORTED,
    CHANGED_DEFINITION,
    NOT_CHOSEN,
    REPLACED_BY_NEWER,
    REPORTED_IN_PERIOD,
    REPORTED_TODAY,
    WAITING,
    Account,
    AnswerKey,
    CachedResponse,
    Charges,
    Decision,
    Recording,
    Spending,
    Verdict,
)
from hubbub.client.schedule import NO_SWITCH, NOT_SAMPLED, SWITCHED_OFF, Switch, chosen
from hubbub.protocol.errors import (
    EncodingError,
    HubbubError,
    MetricError,
    UnknownCategoryError,
    UnknownMetricError,
)
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.metrics import SECONDS_A_DAY
from hubbub.protocol.registry import Group, Registry
from hubbub.protocol.wire import Report

CLOSED = "closed"
EXPIRED = "expired metric"
FORGOTTEN = "forgotten"
WITHDRAWN = "consent withdrawn"
_EPOCH = 719_163  # date(1970, 1, 1).toordinal()
_UNDRAWN = PermanentResponse(0, 0)
"""In place of a period's response that isn't drawn yet; known as an object."""
_EXPECTED = frozenset(
    {
        ALREADY_REPORTED,
        REPORTED_IN_PERIOD,
        WAITING,
        NOT_CHOSEN,
        SWITCHED_OFF,
        NOT_SAMPLED,
        EXPIRED,
        FORGOTTEN,
        WITHDRAWN,
        REPORTED_TODAY,
        REPLACED_BY_NEWER,
    }
)
_SWITCHED = frozenset({SWITCHED_OFF, NOT_SAMPLED})


class _PreparedMetric(NamedTuple):
    """The state of a metric that `record` needs."""

    encoder: Encoder
    ends: float  # its last day, in seconds since the epoch
    group: Group | None


class Recorder:
    """Takes values, and holds what is to be stored of them until `drain`.

    `max_pending`: beyond so many recordings in memory the oldest are dropped, and counted.
    `enough`: number of waiting recordings that is worth a notification. `development`: raise for
    what an app's author should fix: unknown metrics and categories, bad values. `waits`: whether a
    new client waits for its first period (mode "once"). `answers_all`: record as a client that is
    asked everything, at once: for previews and tests. `changed`: notified when the first or the
    `enough`-th recording waits, and at every change of state. `disabled`: why nothing is recorded,
    if so. `unavailable`: why the state can't be opened for now, if so. `secret`: the client's,
    once the state is open. `asks`: whether something wasn't recorded because of a switch that was
    last asked for a day ago.
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
        self.waits = True
        self.answers_all = False
        self.secret: bytes | None = None
        self._metrics: dict[str, _PreparedMetric] = {}
        self._account = Account(registry)
        self._switch = NO_SWITCH
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Set everything that threads share; a forked child starts here too.

        Locks are replaced: their owner may not exist in the child. Reports stay the parent's.
        """
        self.changed = threading.Condition()
        self.pending: deque[Recording] = deque()
        self._leaving: list[Recording] = []
        self.dropped: Counter[str] = Counter()
        self.recorded = self.delivered = self.stale = 0
        self.asks = False

    def open(self, secret: bytes, account: Account) -> None:
        """Begin to record, with a client's secret and what it has answered so far."""
        metrics = {
            name: _PreparedMetric(
                Encoder(metric, secret),
                (metric.expires.toordinal() - _EPOCH + 1.0) * SECONDS_A_DAY,
                self.registry.groups.get(metric.group),
            )
            for name, metric in self.registry.items()
        }
        with self.changed:
            self.secret, self._metrics, self._account = secret, metrics, account
            self.unavailable = None
        for name in sorted(account.unusable):
            log("ERROR", f"hubbub doesn't report metrics.{name}: {CHANGED_DEFINITION}")

    def encoders(self) -> dict[str, Encoder]:
        """Return the encoder of each metric, while the state is open."""
        return {name: prepared.encoder for name, prepared in self._metrics.items()}

    def shut(self) -> None:
        """Drop the secret and the account."""
        with self.changed:
            self.secret, self._metrics, self._account = None, {}, Account(self.registry)

    def obey(self, switch: Switch) -> None:
        """Record nothing that a switch has off, which replaces the one before."""
        with self.changed:
            self._switch = switch

    def take_question(self) -> bool:
        """Return whether it `asks`, once."""
        with self.changed:
            asks, self.asks = self.asks, False
            return asks

    def has_old_period(self) -> bool:
        """Whether the answer of a past period is still known."""
        with self.changed:
            return any(
                cached.end_day is not None and cached.end_day * SECONDS_A_DAY <= time.time()
                for cached in self._account.memory.values()
            )

    def notify(self) -> None:
        """Wake all threads that wait for a change."""
        with self.changed:
            self.changed.notify_all()

    def disable(self, reason: str, level: str = "ERROR") -> None:
        """Stop recording, and log it: no more data will come."""
        if self.disabled is None:
            log(level, f"hubbub is off: {reason}")
        with self.changed:
            self.disabled = reason
            self.notify()

    def record(self, metric: str, value: Value) -> None:
        """Record a value; see `Telemetry.record`."""
        try:
            with self.changed:
                if self.disabled is not None:
                    raise _NotRecordedError(CLOSED if self.disabled == CLOSED else "disabled")
                recording, decision = self._decide(metric, value, self._account)
                # A client of which all is off asks once a day whether it is on again.
                if decision.refusal in _SWITCHED and self._switch.is_due(time.time()):
                    self.asks = True
                    self.notify()
                if decision.verdict is Verdict.REFUSED:
                    raise _NotRecordedError(decision.refusal)
                # A period's response takes coins, which are drawn only for what isn't refused.
                if recording.own.response is _UNDRAWN:
                    response = self._prepared(metric).encoder.fresh_response(value)
                    recording = recording._replace(own=recording.own._replace(response=response))
                # It waits in memory, in place of the oldest if there is no room.
                self.recorded += 1
                if len(self.pending) >= self._max_pending:
                    self._drop_oldest()
                self.pending.append(recording)
                waiting = len(self.pending)
                if waiting == 1 or waiting == self._enough:  # noqa: PLR1714 (faster)
                    self.notify()
        except Exception as error:  # an app must never fail because of telemetry
            if self._development and isinstance(error, (EncodingError, MetricError)):
                raise
            self._drop_for(error)

    def preview(self, metric: str, value: Value) -> tuple[Report, Decision]:
        """Return a report as `record` would draw it, without spending (HubbubError if none)."""
        account = self._account_with_pending()
        with self.changed:
            _, decision = self._decide(metric, value, account)
            encoder = self._prepared(metric).encoder
            response = decision.cached.response
            if response is _UNDRAWN:
                response = encoder.fresh_response(value)
            return encoder.report(response), decision

    def drain(self) -> list[Recording]:
        """Take all that waits, to be stored: then `settle`, `requeue` or `give_up` follows."""
        with self.changed:
            # One by one: a signal handler or `__del__` may record between any two steps.
            self._leaving = [self.pending.popleft() for _ in range(len(self.pending))]
            return self._leaving

    @property
    def unstored(self) -> int:
        """How many recordings wait to be stored, or are being stored."""
        return len(self.pending) + len(self._leaving)

    def settle(self, account: Account, charges: Charges) -> None:
        """Note that what was drained is stored, and charged to this account."""
        with self.changed:
            self._leaving = []
            self._account = account  # which has the answers of other processes
            self.unavailable = None
            self.stale += charges.stale
            self.recorded -= charges.refused.total()
        for reason, count in charges.refused.items():
            self.drop(reason, count)

    def requeue(self) -> None:
        """Keep what couldn't be stored, in front of what came since."""
        with self.changed:
            self.pending.extendleft(reversed(self._leaving))
            self._leaving = []
            while len(self.pending) > self._max_pending:
                self._drop_oldest()

    def give_up(self, reason: str) -> None:
        """Count what was drained as lost."""
        with self.changed:
            count = len(self._leaving)
            self._leaving = []
        self.drop(reason, count)

    def spending(self) -> Spending:
        """Return the account, including what waits in memory."""
        return self._account_with_pending().spending()

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
            count = len([self.pending.popleft() for _ in range(len(self.pending))])
        self.drop(reason, count)

    def _prepared(self, metric: str) -> _PreparedMetric:
        prepared = self._metrics.get(metric)
        if prepared is None:
            self.registry[metric]  # raises for an unknown one, and names those that exist
            raise _NotRecordedError("state not available" if self.unavailable else "disabled")
        return prepared

    def _decide(self, metric: str, value: Value, account: Account) -> tuple[Recording, Decision]:
        """Make a recording of a value, and ask an account about it, without charging.

        A period's response takes coins, so it is drawn later, for recordings that aren't refused.
        """
        prepared, now = self._prepared(metric), time.time()
        encoder = prepared.encoder
        asked = encoder.metric
        period, begins, end_day, digest = None, True, None, b""
        if asked.memory == "period":
            encoder.check(value)
            response, period = _UNDRAWN, encoder.period(now)  # its number is given when admitted
            end_day = period.end_day
            at_once = self.answers_all or not self.waits
            begins = at_once or period.first_day == now // SECONDS_A_DAY
        else:
            bits = encoder.true_bits(value)
            response = encoder.permanent_response(bits)
            # A one-time metric has one answer, whatever it is; so nothing of the value is kept.
            if not asked.one_time:
                digest = encoder.value_digest(bits)
        own = CachedResponse(AnswerKey(asked.name, asked.version, digest), response, end_day)
        recording = Recording(own, now, period, begins)
        # First what no account is asked for: the metric's last day, the switch, its group.
        if now >= prepared.ends:
            return recording, Decision(Verdict.REFUSED, own, EXPIRED)
        why = self._switch.refusal(*recording.key)
        if prepared.group and self.secret and not self.answers_all:
            number = period.number if period else 0
            mine = chosen(prepared.group, asked.application, self.secret, number)
            if asked.name != mine:
                return recording, Decision(Verdict.REFUSED, own, why or NOT_CHOSEN)
        if why:
            waits = why == NOT_SAMPLED and account.is_new_to(asked)
            return recording, Decision(Verdict.WAITS if waits else Verdict.REFUSED, own, why)
        return recording, account.decide(recording)

    def _account_with_pending(self) -> Account:
        with self.changed:
            account, waiting = self._account, [*self._leaving, *self.pending]
        account = account.copy()  # the stored one never changes: it is replaced
        account.charge(waiting)
        return account

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
    with suppress(Exception):  # of the app's own handlers; at Python's very end nothing is imported
        import logging  # every `Telemetry` has done so at construction, so this waits for nothing

        logging.getLogger("hubbub.client").log(getattr(logging, level), message)
