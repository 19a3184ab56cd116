"""Deliver recordings from memory to disk and from disk to the collector, step by step.

`DeliveryLoop` stores what was recorded, and decides what is sent when. It knows the disk and the
clock but neither network nor threads: two threads of `telemetry` drive it, one that stores and one
that sends, and tests play a day of trouble in a moment. Invariants: what is charged is stored, and
no report leaves that isn't charged; and what came to the disk after the sender had looked is seen
before anything counts as settled.
"""

from __future__ import annotations

import enum
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hubbub.client.encoder import Encoder
from hubbub.client.forks import no_fork
from hubbub.client.ledger import REPLACED_BY_NEWER, REPORTED_TODAY, Account, Charges, Recording
from hubbub.client.outbox import (
    PATIENCE,
    LeasedBatch,
    Outbox,
    count_waiting,
    delete_waiting,
    is_sent,
    spool,
)
from hubbub.client.recorder import WITHDRAWN, Recorder, log
from hubbub.client.schedule import NOT_SAMPLED, Switch
from hubbub.client.state import (
    SHORT_PATIENCE,
    State,
    discard_unsent,
    forget_periods,
    load_account,
    open_state,
    save_account,
)
from hubbub.client.transport import Answer, DeliveryFailure, Outcome, refusal_reason
from hubbub.protocol.errors import StateError, SwitchError, UnavailableError

if TYPE_CHECKING:
    from hubbub.protocol.switch import VerifyKey

_LEASE_MARGIN = 30.0  # for a process that was suspended or starved between a lease and its answer
_FIRST_DELAY = 1.0  # doubled after each failure: a collector that restarts is back within seconds
_LONGEST_DELAY = 300.0  # reports come within five minutes of a collector's return
_LONGEST_REQUESTED_DELAY = 86_400.0  # what a faulty Retry-After can cost at most: a day
_LONGEST_WAIT = _LONGEST_REQUESTED_DELAY + _LONGEST_DELAY
_IDLE = 3600.0  # seconds between looks if nothing waits; storing wakes the sender
_PAUSE = 0.5  # the shortest wait, and while `flush` waits for what another process may be sending
_LOOK_AGAIN = 60.0  # the longest, before looking for batches that other processes lease
_NAMES_REPORTS = 422  # whose detail may quote a cohort, which doesn't belong in a log


class DeliverySettings(NamedTuple):
    """How reports travel; see `Telemetry`."""

    batch_size: int
    batch_seconds: float
    max_outbox_bytes: int
    timeout: float
    origin: str = ""
    switch_key: str | None = None  # None: obeys no switch; empty: an unsigned one


class Fetch(enum.Enum):
    """A document to fetch instead of sending a batch."""

    SWITCH = "ask for the switch"


def system_chance() -> float:
    """Return a uniform number in [0, 1) from the operating system."""
    return int.from_bytes(os.urandom(7), "little") / 2**56


class DeliveryLoop:
    """The state that storing and sending share, and the next step of each.

    `clock`: seconds since the epoch. `chance`: uniform in [0, 1): each wait for a fuller batch is
    drawn between half and one and a half of `batch_seconds`, so that clients don't all send at the
    same time. `refusal`: why consent is missing, if so. `on_disk`: unsent reports there, when this
    process last looked. `withdrawn`: whether reports on disk are to be deleted before anything is
    sent. `closed`: whether storing and sending are to end, storing once nothing waits. `changes`:
    how often there came something that might be sent, or another reason to look. `postponed`: why
    reports are stored and not sent, if so.
    """

    RETRY_DISK_SECONDS = 5.0
    """A full or locked disk is seldom freed sooner, and each try wakes it."""

    def __init__(
        self,
        recorder: Recorder,
        folder: Path,
        settings: DeliverySettings,
        clock: Callable[[], float] = lambda: time.time(),  # noqa: PLW0108 (found when called)
        chance: Callable[[], float] = system_chance,
    ) -> None:
        self.recorder = recorder
        self.settings = settings
        self.refusal: str | None = None
        self.on_disk = 0
        self.withdrawn = self.closed = False
        self.last_error: DeliveryFailure | None = None
        self._folder = folder
        self._clock = clock
        self._chance = chance
        self._daily = {name for name, m in recorder.registry.items() if m.reports_per_day}
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget what the parent's threads were doing, and replace the locks that they may hold."""
        self.postponed: str | None = None
        self._storing = threading.Lock()
        self._store_again_at = 0.0
        self.is_flushing = self._retries = self._is_storing = False
        self.changes = self._quiet_at = 0
        self._may_fetch = False
        self._failures = 0
        self._not_before = self._asked_to_wait_until = 0.0
        self._batch_due: float | None = None

    # For the driver, under the recorder's lock.

    def close(self, reason: str | None = None) -> None:
        """End storing and sending, and, if there is a reason, recording."""
        with self.recorder.changed:
            self.closed = True
            self.recorder.disabled = self.recorder.disabled or reason
            self.recorder.notify()

    def begin_flush(self) -> None:
        """Store and send without waiting for more, until `end_flush`."""
        with self.recorder.changed:
            self.is_flushing = True
            self.retry()

    def end_flush(self) -> None:
        """Wait for full batches again."""
        self.is_flushing = False

    def retry(self) -> None:
        """Look at once whether something can be sent, whatever failed before."""
        with self.recorder.changed:
            self._retries = True
            self.changes += 1
            self.recorder.notify()

    def end_sending(self, seen: int) -> None:
        """Note that no more can be sent now, of what there was when `changes` was `seen`."""
        with self.recorder.changed:
            self._quiet_at = seen
            self.recorder.notify()

    def is_time_to_store(self) -> bool:
        """Whether to store without waiting for more recordings."""
        is_full = len(self.recorder.pending) >= self.settings.batch_size
        return is_full or self.is_flushing or self.withdrawn or self.closed

    def is_time_to_send(self, seen: int) -> bool:
        """Whether to look again, though the time to wait isn't over."""
        return self.recorder.asks or self.closed or self.changes != seen

    def is_idle(self) -> bool:
        """Whether all is on disk and no more can be sent now."""
        if self.recorder.disabled is not None:
            return True
        is_stored = not self.recorder.pending and not self._is_storing
        return is_stored and self._quiet_at == self.changes

    def is_settled(self) -> bool:
        """Whether nothing waits anywhere."""
        return self.recorder.disabled is not None or (self.is_idle() and not self.on_disk)

    # Opening the state.

    def open_state(self, *, raises: bool = False) -> None:
        """Open the state, or note why that is impossible, for good or for now.

        `raises`: raise it, too, unless another process is using the state.
        """
        try:
            self._take_over(self._open_state(SHORT_PATIENCE))
            with closing(self.open()) as outbox:
                self._forget_periods(outbox)
                self.recorder.obey(outbox.load_switch())
        except StateError as error:
            self.recorder.disable(str(error))
            if raises:
                raise
        except UnavailableError as error:
            self.note_unavailable(error)
            if raises and not error.is_busy:
                raise

    def open(self, *, patience: float = PATIENCE) -> Outbox:
        """Open the outbox, and the state too unless it is open (raises as `Outbox`)."""
        secret = self.recorder.secret
        if secret is None:
            state = self._open_state(patience)
            secret = state.secret
            self._take_over(state)
        settings = self.settings
        outbox = Outbox(
            self._folder,
            self.recorder.registry.application,
            secret,
            origin=settings.origin,
            max_bytes=settings.max_outbox_bytes,
            # To connect, send and read; twice, because `HttpSender` may send a batch as JSON, too.
            lease_seconds=6 * settings.timeout + _LEASE_MARGIN,
            switch_key=settings.switch_key,
            patience=patience,
        )
        self.recorder.unavailable = None
        return outbox

    def note_unavailable(self, error: UnavailableError) -> None:
        """Note that the state can't be used for now; log it once."""
        if self.recorder.unavailable is None:
            log("WARNING", f"hubbub can't use its state, and will try again: {error}")
        self.recorder.unavailable = f"{error}; will try again"

    def fail(self, error: Exception) -> None:
        """Turn the client off, because its state can't be trusted, or by a mistake of ours."""
        is_known = isinstance(error, StateError)
        self.recorder.disable(str(error) if is_known else f"internal error: {error!r}")
        self.recorder.drop_pending("disabled")

    def discard_unsent(self) -> None:
        """Delete the unsent reports of earlier runs, if there is a state and it can be used."""
        try:
            discarded = discard_unsent(self._folder, self.recorder.registry.application)
        except UnavailableError:
            self.withdrawn = True  # to be done before anything is sent
            return
        except StateError:
            return
        self.withdrawn, self.on_disk = False, 0
        self.changes += 1
        self.recorder.drop(WITHDRAWN, discarded)

    def _open_state(self, patience: float) -> State:
        return open_state(self._folder, self.recorder.registry, self.settings.origin, patience)

    def _take_over(self, state: State) -> None:
        self.on_disk = state.waiting
        self.recorder.open(state.secret, state.account)
        self.recorder.drop("restored state", state.discarded)

    # Storing.

    def store(self, outbox: Outbox) -> Charges | None:
        """Delete what was withdrawn, then store what waits in memory.

        Returns what became of the recordings; None if the disk can't be used for now. Raises
        `StateError` if the state can't be trusted any more; the recordings are counted as lost.
        """
        with self._storing:
            return self._store(outbox)

    def store_now(self) -> None:
        """Store what waits, on this thread, unless another thread, or this one, is at it."""
        recorder = self.recorder
        while recorder.pending and time.monotonic() >= self._store_again_at:
            if recorder.disabled or not self._storing.acquire(blocking=False):
                return
            stored = False
            try:
                with closing(self.open(patience=SHORT_PATIENCE)) as outbox:
                    stored = self._store(outbox) is not None
            except UnavailableError as error:
                self.note_unavailable(error)
            except Exception as error:  # an app must never fail because of telemetry
                self.fail(error)
            finally:
                if not stored:
                    self._store_again_at = time.monotonic() + self.RETRY_DISK_SECONDS
                self._storing.release()

    def _store(self, outbox: Outbox) -> Charges | None:
        recorder, charges = self.recorder, Charges([], 0, Counter())
        changed = False
        with recorder.changed:
            self._is_storing = True
        try:
            with recorder.changed:
                recordings, encoders = recorder.drain(), recorder.encoders()
            withdrawn = self.withdrawn
            if withdrawn:
                self._clear(outbox)
            if self.refusal is not None:  # recorded just before consent was withdrawn
                recorder.give_up(WITHDRAWN)
            elif recordings:
                charges = self._commit(outbox, recordings, encoders)
            changed = withdrawn or bool(recordings)
        except UnavailableError as error:
            self.note_unavailable(error)
            recorder.requeue()
            return None
        except Exception:
            recorder.give_up("disabled")
            raise
        finally:
            with recorder.changed:
                self._is_storing = False
                self.changes += changed
                recorder.notify()
        return charges

    def _commit(
        self, outbox: Outbox, recordings: Sequence[Recording], encoders: Mapping[str, Encoder]
    ) -> Charges:
        """Charge recordings to the stored account, and draw and spool their reports.

        All in one transaction: what is charged is stored, and no report leaves that isn't charged.
        """
        registry = self.recorder.registry
        with outbox.transaction() as connection:
            now = self._clock()
            account = load_account(connection, registry)
            before, switch = account.copy(), outbox.switch(connection)

            # Recordings that are off, or may not be reported today, aren't charged.
            due, refused = self._due(connection, switch, account, recordings, now)
            charges = account.charge(due)
            charges.refused.update(refused)

            # Each admitted recording has a report, drawn now.
            reports = [
                encoders[cached.answer.metric].report(cached.response)
                for cached in charges.admitted
            ]
            answers = {cached.answer for cached in charges.admitted}
            save_account(connection, registry, before, account, answers)

            # With reports_per_day the newest report replaces those that no collector can have seen.
            replaced = sum(
                delete_waiting(connection, name, outbox.origin)
                for name in self._daily & {answer.metric for answer in answers}
            )
            spool(connection, reports, registry, outbox.origin, now)
            forget_periods(connection, now)
            waiting = count_waiting(connection, outbox.origin)
        with self.recorder.changed:  # so that `status` counts each of them once
            self.recorder.settle(account, charges)
            self.on_disk = waiting
        self.recorder.obey(switch)
        self.recorder.drop(REPLACED_BY_NEWER, replaced)
        self._count_dropped(outbox)
        return charges

    def _due(
        self,
        connection: sqlite3.Connection,
        switch: Switch,
        account: Account,
        recordings: Sequence[Recording],
        now: float,
    ) -> tuple[list[Recording], Counter[str]]:
        """Return the recordings that may be charged, and how many others there are, by reason."""
        allowed, refused = [], Counter[str]()
        for recording in recordings:
            why = switch.refusal(*recording.key)
            if why is None:
                allowed.append(recording)
                continue
            refused[why] += 1
            if why == NOT_SAMPLED:
                account.wait(recording)

        # With reports_per_day: the newest, unless one may have arrived on this day already. It is
        # this moment's day and not the recording's, for it bounds what arrives on one day.
        names = [recording.own.answer.metric for recording in allowed]
        newest = {name: index for index, name in enumerate(names) if name in self._daily}
        sent = {name for name in newest if is_sent(connection, name, now)}
        due = []
        for index, name in enumerate(names):
            if name in sent:
                refused[REPORTED_TODAY] += 1
            elif newest.get(name, index) != index:
                refused[REPLACED_BY_NEWER] += 1
            else:
                due.append(allowed[index])
        return due, refused

    def _clear(self, outbox: Outbox) -> None:
        """Delete what wasn't sent before consent was withdrawn."""
        self.withdrawn = False  # another no may come meanwhile
        try:
            self.recorder.drop(WITHDRAWN, outbox.clear(self._clock()))
        except UnavailableError:
            self.withdrawn = True
            raise
        self.on_disk = outbox.waiting()

    def _forget_periods(self, outbox: Outbox) -> None:
        with outbox.transaction() as connection:
            forget_periods(connection, self._clock())

    def _count_dropped(self, outbox: Outbox) -> None:
        for reason, count in outbox.dropped.items():
            self.recorder.drop(reason, count)
        outbox.dropped.clear()

    # Sending.

    def next_step(self, outbox: Outbox) -> LeasedBatch | Fetch | float:
        """Return the batch to send now, or the seconds until there may be one."""
        with self.recorder.changed:
            retries, self._retries = self._retries, False
        if retries:
            self.reset_backoff(outbox)
        if self.recorder.take_question():
            self.recorder.obey(outbox.load_switch())  # another process may have asked
            self.ask()
        at_once = self.is_flushing
        step = self.schedule(outbox, at_once=at_once)
        self._count_dropped(outbox)
        if isinstance(step, float):
            self.on_disk = outbox.waiting()
            if at_once and self.on_disk:  # another process may have spooled them since
                step = min(step, _PAUSE)
            if self.recorder.has_old_period():
                self._forget_periods(outbox)
        return step

    def schedule(self, outbox: Outbox, *, at_once: bool = False) -> LeasedBatch | Fetch | float:
        """Return a batch to send now, or the seconds until it is worth asking again.

        Or to fetch the switch: after the collector has answered, so at a time at which this client
        shows itself anyway, or where it would have, but for the switch (see `ask`).

        `at_once`: don't wait for a full batch.
        """
        # When is a batch due, by its time?
        now, settings = self._clock(), self.settings
        spooled = outbox.spooled(now)
        wait = self._until_due(spooled, now)
        # Not before the end of a back-off, unless the clock was set back.
        if now < self._not_before <= now + _LONGEST_WAIT:
            outbox.trim(now)
            return self._not_before - now
        may_fetch, self._may_fetch = self._may_fetch, False
        if may_fetch and outbox.claim_fetch(now):
            return Fetch.SWITCH
        # Is there a full batch, or any if it is time?
        least = 1 if at_once or wait <= 0 else settings.batch_size
        batch = outbox.lease(now, least, settings.batch_size)
        if spooled >= least:
            wait, self._batch_due = _IDLE, None
        if batch is None and outbox.has_batches():  # another process is sending
            wait = min(wait, _LOOK_AGAIN)
        return batch or max(min(wait, outbox.seconds_put_off(now)), _PAUSE)

    def ask(self) -> None:
        """Fetch the switch, unless that was done today, though nothing is sent: all may be off.

        Without that a client of which everything is off would never learn that it is on again.
        """
        self._may_fetch = True

    def reset_backoff(self, outbox: Outbox) -> None:
        """Try again at once, unless the collector asked to wait."""
        self._failures = 0
        self._not_before = self._asked_to_wait_until
        outbox.end_waits()

    def settle(self, outbox: Outbox, batch: LeasedBatch, answer: Answer) -> None:
        """Let the collector's answer to a batch take effect."""
        now = self._clock()
        if (error := answer.error) is not None:
            self.last_error = error
            detail = "status 422" if error.status == _NAMES_REPORTS else error.detail
            log("DEBUG", f"hubbub didn't deliver a batch ({error.kind}): {detail}")
        named = {index for index in answer.refused if index < batch.reports}
        settled: Collection[int] = ()
        if answer.is_to_be_repeated:
            self._back_off(answer.retry_after)
        else:
            # Any word from the collector itself ends the back-off.
            self._failures = 0
            self._not_before = self._asked_to_wait_until = 0.0
            self._may_fetch = True
            settled = named if answer.unknown else named or range(batch.reports)
            outbox.put_off(answer.unknown, now, self._chance)
        may_have_arrived = answer.may_be_stored or answer.outcome is not Outcome.RETRY
        sent = self._daily & {report.metric for report in batch.batch.reports}
        is_there = outbox.settle(
            batch,
            settled,
            may_be_stored=answer.may_be_stored,
            sent=sent if may_have_arrived else (),
            now=now,
        )
        is_delivered = answer.outcome is Outcome.DELIVERED
        delivered, refused = len(settled) * is_delivered, len(settled) * (not is_delivered)
        with self.recorder.changed:
            self.recorder.delivered += delivered
        self.recorder.drop(refusal_reason(answer), refused)
        # Deleted while it was sent?
        if self.refusal is not None and answer.outcome is Outcome.RETRY and not is_there:
            self.recorder.drop(WITHDRAWN, batch.reports - refused)
        self._count_dropped(outbox)
        self.on_disk = outbox.waiting()

    def obey(self, outbox: Outbox, answer: bytes | Answer, key: VerifyKey | None) -> None:
        """Let a switch take effect; go on as before if there is none that may be obeyed."""
        if not isinstance(answer, bytes):
            detail = answer.error.detail if answer.error else ""
            log("DEBUG", f"hubbub has no new switch: {detail}")
            return
        with no_fork():
            from hubbub.protocol.switch import SwitchFile

        try:
            file = SwitchFile.parse(answer)
            with no_fork():
                file.check(self.recorder.registry.application, key, self._clock())
        except SwitchError as error:
            log("WARNING", f"hubbub goes on with the switch as before: {error}")
            return
        if not outbox.keep_switch(file.body, file.document.issued):
            log("WARNING", "hubbub goes on with the switch as before: a later one is obeyed")
        self.recorder.obey(outbox.load_switch())

    def _until_due(self, spooled: int, now: float) -> float:
        """Return the seconds until a batch is due, however small; 0 or less: now."""
        if not spooled:
            self._batch_due = None
            return _IDLE
        seconds = self.settings.batch_seconds
        if self._batch_due is None:
            self._batch_due = now + seconds * (0.5 + self._chance())
        wait = self._batch_due - now
        return wait if wait <= 1.5 * seconds else 0.0  # the clock was set back

    def _back_off(self, asked: float | None) -> None:
        now = self._clock()
        bound = min(_FIRST_DELAY * 2.0**self._failures, _LONGEST_DELAY)
        self._failures = min(self._failures + 1, 30)
        requested = min(asked or 0.0, _LONGEST_REQUESTED_DELAY)
        self._asked_to_wait_until = now + requested
        self._not_before = now + requested + bound * self._chance()
