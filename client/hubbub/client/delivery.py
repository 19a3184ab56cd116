"""What a process does with its database: reports come in, batches go out when they are due.

`DeliveryScheduler` decides what is sent when. It knows the disk and the clock but neither network
nor threads, so that tests play a day of trouble in a moment, and threads and asyncio share it.
`ClientStore` gives it a connection to the database, and charges for reports as it stores them.
"""

from __future__ import annotations

import enum
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hubbub.client.encoder import Encoder
from hubbub.client.ledger import (
    NOT_SAMPLED,
    REPLACED_BY_NEWER,
    REPORTED_TODAY,
    Account,
    Charges,
    Recording,
)
from hubbub.client.outbox import (
    LeasedBatch,
    Outbox,
    delete_waiting,
    is_sent,
    round_robin,
    spool,
)
from hubbub.client.recorder import RecorderSettings
from hubbub.client.storage import (
    BUSY_SECONDS,
    Storage,
    count_waiting,
    forget_periods,
    load_account,
    save_definitions,
    save_memory,
    save_periods,
    save_rows,
)
from hubbub.client.switch import NO_SWITCH, Switch, claim_fetch, keep_switch, load_switch
from hubbub.client.transport import Answer, Outcome, refusal_reason
from hubbub.protocol.registry import Registry

if TYPE_CHECKING:
    from hubbub.protocol.switch import SwitchFile

MAX_AGE = 13 * 86_400.0
"""Seconds: a day less than the collector remembers batch ids."""
_LEASE_MARGIN = 30.0  # for a process that was suspended or starved between a lease and its answer
_FIRST_DELAY = 1.0  # doubled after each failure: a collector that restarts is back within seconds
_LONGEST_DELAY = 300.0  # reports come within five minutes of a collector's return
_LONGEST_REQUESTED_DELAY = 86_400.0  # what a faulty Retry-After can cost at most: a day
_LONGEST_WAIT = _LONGEST_REQUESTED_DELAY + _LONGEST_DELAY
_IDLE = 3600.0  # seconds between looks if nothing waits; whoever spools wakes the sender
_PAUSE = 0.5  # the shortest wait
_LOOK_AGAIN = 60.0  # the longest, before looking for batches that other processes lease


class DeliveryResult(NamedTuple):
    """What became of a batch's reports by an answer."""

    delivered: int = 0  # reports
    refused: int = 0
    reason: str = ""  # why they were refused, or given up
    gone: int = 0  # reports that should be sent, or sent again, but have been deleted meanwhile


class Fetch(enum.Enum):
    """What is to be done instead of sending a batch."""

    SWITCH = "ask for the switch"


class DeliveryScheduler:
    """Decides what this process does next at the network.

    `batch_size`: reports that make a batch due at once. `batch_seconds`: seconds after which fewer
    are due. Each wait is drawn between half and one and a half of it, so that clients don't all
    send at the same time. `clock`: seconds since the epoch. `chance`: uniform in [0, 1), for
    jitter. `daily`: metrics of which one report is sent a day. `claim_fetch`: returns whether the
    switch is to be asked for at a moment; then nobody does for a day.
    """

    def __init__(
        self,
        outbox: Outbox,
        batch_size: int,
        batch_seconds: float,
        clock: Callable[[], float],
        chance: Callable[[], float],
        daily: Collection[str] = (),
        claim_fetch: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self._outbox = outbox
        self._daily = set(daily)
        self._batch_size = batch_size
        self._batch_seconds = batch_seconds
        self._clock = clock
        self._chance = chance
        self._claim_fetch = claim_fetch
        self._may_fetch = False
        self._failures = 0
        self._not_before = 0.0
        self._asked_to_wait_until = 0.0
        self._batch_due: float | None = None

    def next(self, *, hurry: bool = False) -> LeasedBatch | Fetch | float:
        """Return a batch to send now, or the seconds until it is worth asking again.

        Or to fetch the switch: after the collector has answered, so at a time at which this client
        shows itself anyway, or where it would have, but for the switch (see `ask`).

        `hurry`: don't wait for a full batch.
        """
        now = self._clock()
        spooled = self._outbox.spooled(now)
        wait = self._until_due(spooled, now)
        if now < self._not_before <= now + _LONGEST_WAIT:
            self._outbox.trim(now)
            return self._not_before - now
        may_fetch, self._may_fetch = self._may_fetch, False
        if may_fetch and self._claim_fetch(now):
            return Fetch.SWITCH
        least = 1 if hurry or wait <= 0 else self._batch_size
        batch = self._outbox.lease(now, least, self._batch_size)
        if spooled >= least:
            wait, self._batch_due = _IDLE, None
        if batch is None and self._outbox.has_batches():  # another process is sending
            wait = min(wait, _LOOK_AGAIN)
        return batch or max(min(wait, self._outbox.rest(now)), _PAUSE)

    def ask(self) -> None:
        """Fetch the switch, unless that was done of late, though nothing is sent: all may be off.

        Without that a client of which everything is off would never learn that it is on again.
        """
        self._may_fetch = True

    def reset_backoff(self) -> None:
        """Try again at once, unless the collector asked to wait."""
        self._failures = 0
        self._not_before = self._asked_to_wait_until
        self._outbox.end_waits()

    def settle(self, batch: LeasedBatch, answer: Answer) -> DeliveryResult:
        """Let an answer take effect."""
        if answer.unknown:
            named = {index for index in answer.refused if index < batch.reports}
            is_there = self._outbox.put_off(
                batch, answer.unknown, named, self._clock(), self._chance
            )
            self._failures = 0
            self._not_before = self._asked_to_wait_until = 0.0
            self._may_fetch = True
            gone = 0 if is_there else batch.reports - len(named)
            reason = refusal_reason(answer) if named else ""
            return DeliveryResult(0, len(named), reason, gone)
        sent = self._daily & {report.metric for report in batch.batch.reports}
        if sent and (answer.may_be_stored or not answer.is_to_be_repeated):
            self._outbox.note_sent(sent, self._clock())
        if answer.outcome is Outcome.RETRY:
            self._back_off(answer.retry_after)
            is_there = self._outbox.release(batch, may_be_stored=answer.may_be_stored)
            return DeliveryResult(gone=0 if is_there else batch.reports)
        self._failures = 0
        self._not_before = self._asked_to_wait_until = 0.0
        self._may_fetch = True
        if answer.outcome is Outcome.DELIVERED:
            self._outbox.remove(batch)
            return DeliveryResult(batch.reports)
        named = {index for index in answer.refused if index < batch.reports}
        refused = named or range(batch.reports)
        self._outbox.remove(batch, refused)
        return DeliveryResult(0, len(refused), refusal_reason(answer))

    def _until_due(self, spooled: int, now: float) -> float:
        """Return the seconds until a batch is due, however small; 0 or less: now."""
        if not spooled:
            self._batch_due = None
            return _IDLE
        if self._batch_due is None:
            self._batch_due = now + self._batch_seconds * (0.5 + self._chance())
        wait = self._batch_due - now
        return wait if wait <= 1.5 * self._batch_seconds else 0.0  # the clock was set back

    def _back_off(self, asked: float | None) -> None:
        now = self._clock()
        bound = min(_FIRST_DELAY * 2.0**self._failures, _LONGEST_DELAY)
        self._failures = min(self._failures + 1, 30)
        requested = min(asked or 0.0, _LONGEST_REQUESTED_DELAY)
        self._asked_to_wait_until = now + requested
        self._not_before = now + requested + bound * self._chance()


def system_chance() -> float:
    """Return a uniform number in [0, 1) from the operating system."""
    return int.from_bytes(os.urandom(7), "little") / 2**56


class CommitResult(NamedTuple):
    """What a transaction stored."""

    account: Account  # as it is stored now
    charges: Charges
    waiting: int  # reports that are on disk now
    switch: Switch  # as it is stored now


class ClientStore:
    """A connection to the database, and what the client does with it.

    `folder`: the state directory. `secret`: the client's; the database must belong to it. `clock`:
    seconds since the epoch. `chance`: uniform in [0, 1), for jitter. `patience`: seconds to wait
    for other connections' transactions. Raises `StateError` if the database is missing or damaged.
    Raises `UnavailableError` if it can't be opened for now.
    """

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        settings: RecorderSettings,
        secret: bytes,
        clock: Callable[[], float] = lambda: time.time(),  # noqa: PLW0108 (found when called)
        chance: Callable[[], float] = system_chance,
        *,
        patience: float = BUSY_SECONDS,
    ) -> None:
        # Twice, for a batch may go out once more as JSON, as `HttpSender` says.
        lease = 2 * (settings.connect_timeout + settings.read_timeout) + _LEASE_MARGIN
        self._registry = registry
        self.secret = secret
        self._clock = clock
        self._encoders = {name: Encoder(metric, secret) for name, metric in registry.items()}
        self._origin = settings.origin
        self._switch_key = settings.switch_key
        self._storage = Storage(folder, registry.application, patience=patience)
        self.outbox = Outbox(
            self._storage,
            secret,
            settings.origin,
            settings.max_outbox_bytes,
            MAX_AGE,
            lease,
            switch=self._switch,
        )
        self._daily = {name for name, metric in registry.items() if metric.reports_per_day}
        self.scheduler = DeliveryScheduler(
            self.outbox,
            settings.batch_size,
            settings.batch_seconds,
            clock,
            chance,
            self._daily,
            self._claim_fetch,
        )

    def close(self) -> None:
        """Close the connection."""
        self.outbox.close()
        self._storage.close()

    def commit_reports(self, recordings: Sequence[Recording]) -> CommitResult:
        """Charge recordings to the stored account, and draw and spool their reports.

        All in one transaction: what is charged is stored, and no report leaves that isn't charged.
        """
        with self._storage.transaction(self.secret) as connection:
            account = load_account(connection, self._registry)
            before = account.copy()
            now = self._clock()
            switch = self._switch(connection)
            by_reason = switch.sort(recordings)
            due, refused = self._due_today(connection, by_reason.pop(None), now)
            for recording in by_reason.get(NOT_SAMPLED, ()):
                account.wait(recording)
            charges = account.charge(round_robin(due))
            charges.refused.update(refused)
            charges.refused.update({why: len(off) for why, off in by_reason.items() if why})
            reports = [
                self._encoders[cached.answer.metric].report(cached.response)
                for cached in round_robin(charges.admitted)
            ]
            answers = {cached.answer for cached in charges.admitted}
            save_rows(connection, map(account.ledger.row, answers))
            save_definitions(connection, [self._registry[answer.metric] for answer in answers])
            save_memory(connection, self._registry, before.memory, account.memory)
            save_periods(connection, before.periods, account.periods)
            replaced = sum(
                delete_waiting(connection, name, self._origin)
                for name in self._daily & {answer.metric for answer in answers}
            )
            spool(connection, reports, self._registry, self._origin, now)
            forget_periods(connection, now)
            waiting = count_waiting(connection, self._origin)
        self.outbox.dropped.update({REPLACED_BY_NEWER: replaced} if replaced else {})
        return CommitResult(account, charges, waiting, switch)

    def _due_today(
        self, connection: sqlite3.Connection, recordings: Sequence[Recording], now: float
    ) -> tuple[Sequence[Recording], Counter[str]]:
        """Return the recordings without those that `reports_per_day` forbids, and these by reason.

        It goes by this moment and not by those of the recordings, for it is reports that arrive on
        one day which it bounds.
        """
        names = [recording.own.answer.metric for recording in recordings]
        newest = {name: index for index, name in enumerate(names) if name in self._daily}
        if not newest:
            return recordings, Counter()
        sent = {name for name in newest if is_sent(connection, name, now)}
        due, refused = [], Counter[str]()
        for index, name in enumerate(names):
            if name in sent:
                refused[REPORTED_TODAY] += 1
            elif newest.get(name, index) != index:
                refused[REPLACED_BY_NEWER] += 1
            else:
                due.append(recordings[index])
        return due, refused

    def load_switch(self) -> Switch:
        """Return what is off."""
        with self._storage.transaction(self.secret) as connection:
            return self._switch(connection)

    def keep_switch(self, file: SwitchFile) -> bool:
        """Obey a checked switch from now on, unless a signed one is later; return whether so."""
        with self._storage.transaction(self.secret) as connection:
            return keep_switch(connection, file, self._switch_key or "")

    def _switch(self, connection: sqlite3.Connection) -> Switch:
        if self._switch_key is None:
            return NO_SWITCH
        return load_switch(connection, self.secret, self._switch_key)

    def _claim_fetch(self, now: float) -> bool:
        if self._switch_key is None:
            return False
        with self._storage.transaction(self.secret) as connection:
            return claim_fetch(connection, now, self._switch_key)

    def forget_periods(self) -> None:
        """Delete the answers of past periods."""
        with self._storage.transaction(self.secret) as connection:
            forget_periods(connection, self._clock())
