"""What every kind of `Telemetry` shares: consent, state, recording, and each step of delivery.

Subclasses drive two `lanes`: with two threads (`telemetry`), or with two tasks and a worker thread
(`aio`) that takes the steps at the disk. Modules that only some apps need, or only with
consent, are imported where they are used, so that importing the client stays cheap.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import (
    OtherApplicationError,
    ReplacedSecretError,
    StateError,
    UnavailableError,
)
from hubbub.client.forks import ORPHANED, after_fork, is_orphaned, no_fork
from hubbub.client.interface import Preview, Status
from hubbub.client.ledger import REPORTED_TODAY, Account, Spending, Verdict
from hubbub.client.recorder import (
    CLOSED,
    FORGOTTEN,
    REPLACED,
    WITHDRAWN,
    Lanes,
    Recorder,
    RecorderSettings,
    log,
)
from hubbub.protocol.errors import SwitchError
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from hubbub.client.delivery import ClientStore, Fetch
    from hubbub.client.outbox import LeasedBatch, Outbox
    from hubbub.client.state import State
    from hubbub.client.transport import Answer, DeliveryFailure
    from hubbub.protocol.switch import VerifyKey


EXIT_SECONDS = 2.0  # what people still wait for when they close an app
SPOOL_SECONDS = 1.0  # a killed app loses at most the recordings of this time
LOOK_AGAIN_SECONDS = 0.5  # while `flush` waits for what another process may be sending
RETRY_DISK_SECONDS = 5.0  # a full or locked disk is seldom freed sooner, and each try wakes it
IDLE_SECONDS = 3600.0
"""Nothing to do: whoever records wakes the thread, this only bounds a lost wake-up."""
_SWITCHES = ("DO_NOT_TRACK", "HUBBUB_DISABLED")
_SWITCHED_OFF = frozenset({"", "0", "false", "no"})
_NAMES_REPORTS = 422  # whose detail may quote a cohort, which doesn't belong in a log


def consent_refusal(consent: bool, environment: Mapping[str, str]) -> str | None:
    """Return why nothing may be recorded; None if recording is allowed.

    Parameters
    ----------
    consent : bool
        The user's answer to the app.
    environment : mapping
        DO_NOT_TRACK or HUBBUB_DISABLED, set to anything but 0, no or false, refuse for the user.
    """
    if not consent:
        return "no consent"
    for switch in _SWITCHES:
        if environment.get(switch, "").strip().lower() not in _SWITCHED_OFF:
            return f"{switch} is set"
    return None


class BaseTelemetry:
    """Start-up, recording and accounts; see `Telemetry` for the parameters."""

    _postponed: str | None
    _storing: threading.Lock
    _store_again_at: float

    def __init__(
        self,
        metrics: Registry | str | Path,
        endpoint: str,
        state_dir: str | Path,
        *,
        consent: bool = True,
        development: bool = False,
        batch_size: int = 100,
        batch_seconds: float = 60.0,
        max_pending: int = 10_000,
        max_outbox_bytes: int = 4 * 2**20,
        connect_timeout: float = 5.0,
        read_timeout: float = 10.0,
        ingest_key: str | None = None,
        dimensions: Mapping[str, str] | None = None,
        switch: str | bool | None = None,
        switch_key: str | None = None,
        on_error: Callable[[DeliveryFailure], object] | None = None,
    ) -> None:
        _check_arguments(
            metrics,
            state_dir,
            {
                "batch_size": batch_size,
                "batch_seconds": batch_seconds,
                "max_pending": max_pending,
                "max_outbox_bytes": max_outbox_bytes,
                "connect_timeout": connect_timeout,
                "read_timeout": read_timeout,
            },
        )
        if not 1 <= batch_size <= max_pending:
            raise ValueError(f"batch_size = {batch_size}: must be between 1 and max_pending")
        with no_fork():
            import logging  # noqa: F401 - so that `record` never waits for an import
            from pathlib import Path

            from hubbub.client.transport import (
                check_endpoint,
                check_ingest_key,
                is_in_the_clear,
                origin_of,
                switch_address,
            )

        self._endpoint = endpoint
        check_endpoint(endpoint)
        check_ingest_key(ingest_key)
        self._switch_address = switch_address(switch, endpoint)
        self._switch_key: VerifyKey | None = None
        if switch_key is not None:
            with no_fork():
                from hubbub.protocol.switch import VerifyKey

            self._switch_key = VerifyKey.parse(switch_key)
            self._switch_key.require()
        self._ingest_key = ingest_key
        self._on_error = on_error
        registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._registry = registry.telling(dimensions or {}, strict=development)
        try:
            self._folder = Path(state_dir).expanduser()
        except RuntimeError as error:  # no home directory
            raise ValueError(f"state_dir = {os.fspath(state_dir)!r}: {error}") from error
        self._settings = RecorderSettings(
            batch_size,
            batch_seconds,
            max_outbox_bytes,
            connect_timeout,
            read_timeout,
            origin_of(endpoint),
            switch_key=None if self._switch_address is None else str(self._switch_key or ""),
        )
        self._recorder = Recorder(self._registry, max_pending, batch_size, development=development)
        self._recorder.waits = not development
        if is_in_the_clear(endpoint):
            what = "reports and the ingest key" if ingest_key else "reports"
            log(
                "WARNING",
                f"endpoint = {origin_of(endpoint)!r}: {what} travel in the clear: use https",
            )
        self._lanes = Lanes(batch_size)
        self._last_error: DeliveryFailure | None = None
        self._development = development
        self._reset_storing()
        self._refusal = consent_refusal(consent, os.environ)
        if self._refusal:
            self._recorder.disabled = self._refusal
        else:
            self._open_state()
        self._prepare()
        _instances.add(self)

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason; waits for nothing."""
        recorder = self._recorder
        with recorder.changed:
            # What is on disk when this is closed is left to the next run.
            is_usable = recorder.disabled in {None, CLOSED}
            return Status(
                recorded=recorder.recorded,
                delivered=recorder.delivered,
                waiting=len(recorder.pending) + (self._lanes.on_disk if is_usable else 0),
                stale=recorder.stale,
                dropped=dict(recorder.dropped),
                disabled=recorder.disabled or recorder.unavailable,
                last_error=self._last_error,
                first_periods=recorder.first_periods(),
                postponed=self._why_postponed(),
            )

    def ledger(self) -> Spending:
        """Return what this client has spent of its privacy, by metric and in total.

        Without consent it is read from the state directory, where nothing is made.

        Raises
        ------
        StateError, UnavailableError
            If recording is off and the state can't be read.
        """
        if self._recorder.secret is not None:
            return self._recorder.spending()
        from hubbub.client.state import read_account

        return read_account(self._folder, self._registry).ledger.spending()

    def explain(self, people: int = 1) -> str:
        """Return in words what is asked, what it can reveal, and what has been spent.

        Parameters
        ----------
        people : int
            How many share this device; as a group they have `people` times the epsilon.
        """
        from hubbub.client import explanations

        return explanations.explain(self._registry, self.ledger(), people)

    def preview(self, metric: str, value: Value) -> Preview:
        """Return exactly what `record` would send, by the same code, without spending anything.

        Works before the user consents, too, with a secret that is thrown away.

        Raises
        ------
        UnknownMetricError, EncodingError
            If the metric isn't registered, or the value isn't one of its type.
        StateError, UnavailableError
            If the metric has ``reports_per_day = 1``, and the state can't be read.
        """
        from hubbub.client import explanations
        from hubbub.client.state import is_reported_today
        from hubbub.client.transport import RequestEncoder

        recorder = self._recorder
        if recorder.secret is None:
            recorder = Recorder(self._registry, 1, 1, development=True)
            recorder.answers_all = True
            recorder.open(os.urandom(SECRET_BYTES), Account(self._registry))
        report, decision = recorder.preview(metric, value)
        request = RequestEncoder().encode(Batch((report,)))
        entry_metric = self._registry[metric]
        refusal = self._recorder.disabled or self._recorder.unavailable or decision.refusal or None
        if refusal is None and is_reported_today(self._folder, self._registry, metric):
            refusal = REPORTED_TODAY
        stale = decision.verdict is Verdict.STALE
        return Preview(
            report=report,
            media_type=request.headers["Content-Type"],
            body=request.data,
            words=explanations.describe_preview(entry_metric, report, refusal, decision.verdict),
            refusal=refusal,
            stale=stale,
            epsilon_report=entry_metric.epsilon_report,
            epsilon_permanent=entry_metric.epsilon_permanent,
        )

    def reset(self) -> None:
        """Draw a new secret: this client becomes another one, and every answer costs anew.

        Reports that were not sent yet are deleted. What was spent stays in the ledger, which
        counts the reset.

        Raises
        ------
        StateError, UnavailableError
            If the state can't be read or written.
        """
        from hubbub.client.state import replace_secret

        if deleted := replace_secret(self._folder, self._registry.application):
            self._recorder.drop(REPLACED, deleted)
        if self._recorder.secret is not None:
            self._open_state()

    def set_consent(self, consent: bool) -> None:
        """Take the user's new answer: begin to record, or stop at once.

        When consent is withdrawn, unsent reports are deleted and counted; the secret and the
        account stay (`forget` deletes them, too). DO_NOT_TRACK and HUBBUB_DISABLED in the
        environment refuse for the user whatever the answer.

        Notes
        -----
        Waits for the state at most a second. What can't be done in that time is done before
        anything else is sent.
        """
        if self._lanes.closed:
            return
        recorder, former = self._recorder, self._refusal
        self._refusal = consent_refusal(consent, os.environ)
        if self._refusal is not None:
            if recorder.disabled in {None, former}:
                recorder.disable(self._refusal, "INFO")
            recorder.drop_pending(WITHDRAWN)
            if recorder.secret is not None:
                with recorder.changed:
                    self._lanes.withdraw()
                    recorder.notify()
                if self._lanes.on_disk:
                    self._start()
            else:
                self._discard_unsent()
        elif former is not None and recorder.disabled == former:
            if self._lanes.withdrawn:  # what should have been deleted mustn't be sent now
                self._discard_unsent()
            recorder.disabled = None
            if recorder.secret is None:
                with suppress(OtherApplicationError):  # which is known and logged by now
                    self._open_state()
            with recorder.changed:
                self._lanes.retry()
                recorder.notify()
            if self._is_to_be_resumed() and not recorder.disabled:
                self._start()

    def _prepare(self) -> None:
        raise NotImplementedError

    def _reset_after_fork(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _is_to_be_resumed(self) -> bool:
        raise NotImplementedError

    def _shut(self, reason: str = CLOSED) -> None:
        with self._recorder.changed:
            self._lanes.close()
            self._recorder.disabled = self._recorder.disabled or reason
            self._recorder.notify()

    def _why_postponed(self) -> str | None:
        return self._postponed

    def _postpone(self, reason: object) -> None:
        if self._postponed is None:
            log("WARNING", f"hubbub stores reports and sends them after the next start: {reason}")
        self._postponed = f"{reason}; reports are stored, and sent after the next start"

    def _store_now(self) -> None:
        """Store what waits, on this thread, unless another thread, or this one, is at it."""
        recorder = self._recorder
        while recorder.pending and time.monotonic() >= self._store_again_at:
            if recorder.disabled or not self._storing.acquire(blocking=False):
                return
            stored = False
            try:
                with closing(self._open_store(briefly=True)) as store:
                    stored = self._store_drained(store)
            except UnavailableError as error:
                self._note_unavailable(error)
            except ReplacedSecretError:
                stored = True  # the next turn opens the new one
            except Exception as error:  # an app must never fail because of telemetry
                self._fail(error)
            finally:
                if not stored:
                    self._store_again_at = time.monotonic() + RETRY_DISK_SECONDS
                self._storing.release()

    def _reset_storing(self) -> None:
        self._storing = threading.Lock()
        self._store_again_at = 0.0
        self._postponed = None

    def _fail(self, error: Exception) -> None:
        known = isinstance(error, StateError)
        self._recorder.disable(str(error) if known else f"internal error: {error!r}")
        self._recorder.drop_pending("disabled")

    def _forget(self) -> str:
        from hubbub.client.explanations import describe_forgetting
        from hubbub.client.state import delete_state

        try:
            spending = self.ledger()
        except (StateError, UnavailableError):
            spending = None
        self._recorder.disable(FORGOTTEN, "INFO")
        self._recorder.drop_pending(FORGOTTEN)
        self._recorder.shut()
        self._lanes.on_disk = 0
        delete_state(self._folder, self._registry.application)
        return describe_forgetting(spending)

    def _open_state(self) -> None:
        """Open the state, or note why that is impossible, for good or for now.

        Raises `OtherApplicationError` if it is another application's, which only the app's author
        can mend. Raises `StateError, UnavailableError` with `development`, unless it is in use by
        another process.
        """
        from hubbub.client.state import SHORT_PATIENCE, open_state

        try:
            origin = self._settings.origin
            self._take_over(open_state(self._folder, self._registry, origin, SHORT_PATIENCE))
            with closing(self._open_store()) as store:
                store.forget_periods()
                self._recorder.obey(store.load_switch())
        except StateError as error:
            self._recorder.disable(str(error))
            if self._development or isinstance(error, OtherApplicationError):
                raise
        except UnavailableError as error:
            self._note_unavailable(error)
            if self._development and not error.is_busy:
                raise

    def _take_over(self, state: State) -> None:
        self._lanes.on_disk = state.waiting
        self._recorder.open(state.secret, state.account)
        if state.discarded:
            self._recorder.drop("restored state", state.discarded)

    def _note_unavailable(self, error: UnavailableError) -> None:
        if self._recorder.unavailable is None:
            log("WARNING", f"hubbub can't use its state, and will try again: {error}")
        self._recorder.unavailable = f"{error}; will try again"

    def _open_store(self, former: bytes | None = None, *, briefly: bool = False) -> ClientStore:
        """Open the database, and the state too unless it is open.

        `former`: a secret that has been replaced. `briefly`: hardly wait for other processes'
        transactions. Raises `StateError, UnavailableError`.
        """
        with no_fork():
            from hubbub.client.delivery import ClientStore
            from hubbub.client.state import PATIENCE, SHORT_PATIENCE, open_state

        patience = SHORT_PATIENCE if briefly else PATIENCE
        secret = self._recorder.secret
        if secret is None or secret == former:  # else this process has replaced it itself
            state = open_state(self._folder, self._registry, self._settings.origin, patience)
            secret = state.secret
            self._take_over(state)
        store = ClientStore(self._folder, self._registry, self._settings, secret, patience=patience)
        self._recorder.unavailable = None
        return store

    def _store_waiting(self, store: ClientStore) -> bool:
        """Do what the storing lane has to do; return whether that was possible.

        Raises `StateError` if the state can't be trusted any more; the recordings are counted as
        lost.
        """
        with self._storing:
            return self._store_drained(store)

    def _store_drained(self, store: ClientStore) -> bool:
        changed = False
        with self._recorder.changed:
            self._lanes.begin_storing()
        try:
            changed = self._commit(store)
        except UnavailableError as error:
            self._note_unavailable(error)
            self._recorder.requeue()
            return False
        except Exception as error:
            replaced = isinstance(error, ReplacedSecretError)
            self._recorder.give_up(REPLACED if replaced else "disabled")
            raise
        finally:
            with self._recorder.changed:
                self._lanes.end_storing(changed=changed)
                self._recorder.notify()
        return True

    def _commit(self, store: ClientStore) -> bool:
        """Delete what was withdrawn, then store what waits; return whether there was any of it."""
        recorder = self._recorder
        recordings = recorder.drain(store.secret)
        withdrawn = self._lanes.withdrawn
        if withdrawn:
            self._clear_outbox(store)
        if self._refusal is not None:  # recorded just before consent was withdrawn
            recorder.give_up(WITHDRAWN)
        elif recordings:
            result = store.commit_reports(recordings)
            recorder.settle(result.account, result.charges)
            recorder.obey(result.switch)
            self._count_dropped(store.outbox)
            self._lanes.on_disk = result.waiting
        return withdrawn or bool(recordings)

    def _discard_unsent(self) -> None:
        """Delete the unsent reports of earlier runs, if there is a state and it can be used."""
        with no_fork():
            from hubbub.client.state import discard_unsent

        try:
            discarded = discard_unsent(self._folder, self._registry.application)
        except UnavailableError:
            self._lanes.withdraw()  # must be done before anything is sent
            return
        except StateError:
            return
        self._lanes.clear(0)
        self._recorder.drop(WITHDRAWN, discarded)

    def _clear_outbox(self, store: ClientStore) -> None:
        """Delete what wasn't sent before consent was withdrawn."""
        self._lanes.withdrawn = False  # another no may come meanwhile
        try:
            self._recorder.drop(WITHDRAWN, store.outbox.clear(time.time()))
        except UnavailableError:
            self._lanes.withdraw()
            raise
        self._lanes.on_disk = store.outbox.waiting()

    def _next_step(self, store: ClientStore) -> LeasedBatch | Fetch | float:
        """Return the batch to send now, or the seconds until there may be one."""
        with self._recorder.changed:
            retries = self._lanes.take_retry()
        if retries:
            store.scheduler.reset_backoff()
        if self._recorder.take_question():
            self._recorder.obey(store.load_switch())  # another process may have asked
            store.scheduler.ask()
        hurry = self._lanes.is_hurried
        step = store.scheduler.next(hurry=hurry)
        self._count_dropped(store.outbox)
        if isinstance(step, float):
            self._lanes.on_disk = store.outbox.waiting()
            if hurry and self._lanes.on_disk:  # another process may have spooled them since
                step = min(step, LOOK_AGAIN_SECONDS)
            if self._recorder.has_old_period():
                store.forget_periods()
        return step

    def _settle(self, store: ClientStore, batch: LeasedBatch, answer: Answer) -> None:
        """Let the collector's answer to a batch take effect."""
        settled = store.scheduler.settle(batch, answer)
        with self._recorder.changed:
            self._recorder.delivered += settled.delivered
        self._recorder.drop(settled.reason, settled.refused)
        if self._refusal is not None:
            self._recorder.drop(WITHDRAWN, settled.gone)
        self._count_dropped(store.outbox)
        self._lanes.on_disk = store.outbox.waiting()

    def _obey(self, store: ClientStore, answer: bytes | Answer) -> None:
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
                file.check(self._registry.application, self._switch_key, time.time())
        except SwitchError as error:
            log("WARNING", f"hubbub goes on with the switch as before: {error}")
            return
        if not store.keep_switch(file):
            log("WARNING", "hubbub goes on with the switch as before: a later one is obeyed")
        self._recorder.obey(store.load_switch())

    def _count_dropped(self, outbox: Outbox) -> None:
        for reason, count in outbox.dropped.items():
            self._recorder.drop(reason, count)
        outbox.dropped.clear()

    def _note_end_of_sending(self, seen: int) -> None:
        with self._recorder.changed:
            self._lanes.end_sending(seen)
            self._recorder.notify()

    def _may_send(self) -> bool:
        return not (self._recorder.disabled or self._lanes.withdrawn)

    def _has_work(self) -> bool:
        return self._lanes.has_work(len(self._recorder.pending))

    def _is_time_to_send(self, seen: int) -> bool:
        return self._recorder.asks or self._lanes.is_time_to_send(seen)

    def _is_time_to_store(self) -> bool:
        return self._lanes.is_time_to_store(len(self._recorder.pending))

    def _is_idle(self) -> bool:
        disabled = self._recorder.disabled is not None
        return disabled or self._lanes.is_idle(len(self._recorder.pending))

    def _is_settled(self) -> bool:
        disabled = self._recorder.disabled is not None
        return disabled or self._lanes.is_settled(len(self._recorder.pending))

    def _note(self, answer: Answer) -> None:
        """Keep, log and report why an attempt failed, if it did."""
        error = answer.error
        if error is None:
            return
        self._last_error = error
        detail = "status 422" if error.status == _NAMES_REPORTS else error.detail
        log("DEBUG", f"hubbub didn't deliver a batch ({error.kind}): {detail}")
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception as mistake:
                log("WARNING", f"on_error raised {type(mistake).__name__}")


def _check_arguments(metrics: object, state_dir: object, numbers: Mapping[str, object]) -> None:
    """Raise ValueError for what has another type than `Telemetry` takes, or can't be of use."""
    if not isinstance(metrics, (Registry, str, os.PathLike)):
        raise ValueError(f"metrics = {metrics!r}: must be a Registry or a path")
    if not isinstance(state_dir, (str, os.PathLike)) or not os.fspath(state_dir):
        raise ValueError(f"state_dir = {state_dir!r}: must be a path")
    for name, number in numbers.items():
        if not isinstance(number, (int, float)) or isinstance(number, bool) or not number >= 0:
            raise ValueError(f"{name} = {number!r}: must be a number, 0 or more")


_instances: weakref.WeakSet[BaseTelemetry] = weakref.WeakSet()


def _restart_in_child() -> None:
    for instance in list(_instances):
        instance._recorder.reset_after_fork()
        instance._lanes.reset_after_fork()
        instance._reset_storing()
        instance._reset_after_fork()
        if is_orphaned():
            instance._recorder.disable(ORPHANED)


after_fork(_restart_in_child)
