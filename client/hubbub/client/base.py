"""What every kind of `Telemetry` shares: start-up, recording, and telling people what goes on.

Drivers add the part that takes time: threads (`telemetry`) or asyncio (`aio`) bring reports to the
disk, and from there to the collector. Modules that only some apps need, or only with consent, are
imported where they are used, so that importing the client stays cheap.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from hubbub.client import consent as consents
from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import ReplacedSecretError, StateError, UnavailableError
from hubbub.client.forks import no_fork
from hubbub.client.intake import FORGOTTEN, REPLACED, Entry, Intake, Settings, log
from hubbub.client.ledger import Spending, Verdict
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Batch, Report, batch_to_json

if TYPE_CHECKING:
    from pathlib import Path

    from hubbub.client.delivery import Settled
    from hubbub.client.disk import Disk
    from hubbub.client.outbox import Outbox
    from hubbub.client.state import State
    from hubbub.client.transport import Answer, DeliveryError


_NAMES_REPORTS = 422  # whose detail may quote a cohort, which doesn't belong into a log


class Status(NamedTuple):
    """What a `Telemetry` has done so far in this process.

    Attributes
    ----------
    recorded, delivered : int
        Reports made here, and reports that the collector acknowledged to this process.
    waiting : int
        Reports still to be sent, in memory and, when this process last looked, on disk (also those
        of earlier runs and other processes).
    stale : int
        Reports of an earlier answer, in place of a value beyond `max_values` or the budget.
    dropped : mapping of str to int
        Reports or calls dropped, by reason.
    disabled : str or None
        Why nothing is recorded at all, if so.
    last_error : DeliveryError or None
        Why a batch was last not delivered, and when.
    """

    recorded: int
    delivered: int
    waiting: int
    stale: int
    dropped: Mapping[str, int]
    disabled: str | None
    last_error: DeliveryError | None


class Preview(NamedTuple):
    """What `record` would send for a value.

    Attributes
    ----------
    report : Report
        Drawn as `record` would draw it; another call draws anew.
    body : bytes
        The bytes that would go over the wire if this report travelled alone (before compression).
    words : str
        The same for people.
    refusal : str or None
        Why it wouldn't be sent, if so.
    stale : bool
        Whether the report is of an earlier answer, because there is no room for another value.
    epsilon_report, epsilon_permanent : float
    """

    report: Report
    body: bytes
    words: str
    refusal: str | None
    stale: bool
    epsilon_report: float
    epsilon_permanent: float


class BaseTelemetry:
    """Start-up, recording and accounts; see `Telemetry` for the parameters."""

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
        on_error: Callable[[DeliveryError], object] | None = None,
    ) -> None:
        if not 1 <= batch_size <= max_pending:
            raise ValueError(f"batch_size = {batch_size}: must be between 1 and max_pending")
        with no_fork():
            import logging  # noqa: F401 - so that `record` never waits for an import
            from pathlib import Path

            from hubbub.client.transport import check_endpoint, check_ingest_key

        self._endpoint = endpoint
        check_endpoint(endpoint)
        check_ingest_key(ingest_key)
        self._ingest_key = ingest_key
        self._on_error = on_error
        self._registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._folder = Path(state_dir).expanduser()
        self._settings = Settings(
            batch_size, batch_seconds, max_outbox_bytes, connect_timeout, read_timeout
        )
        self._intake = Intake(self._registry, max_pending, batch_size, development=development)
        self._closed = self._withdrawn = False
        self._on_disk = 0
        self._last_error: DeliveryError | None = None
        self._refusal = consents.refusal(consent, os.environ)
        if self._refusal:
            self._intake.disabled = self._refusal
        else:
            self._open_state()
        self._prepare()
        _instances.add(self)

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason; waits for nothing."""
        intake = self._intake
        with intake.changed:
            return Status(
                recorded=intake.recorded,
                delivered=intake.delivered,
                waiting=len(intake.pending) + (0 if intake.disabled else self._on_disk),
                stale=intake.stale,
                dropped=dict(intake.dropped),
                disabled=intake.disabled or intake.unavailable,
                last_error=self._last_error,
            )

    def ledger(self) -> Spending:
        """Return what this client has spent of its privacy, by metric and in total.

        Without consent, what the state directory says; nothing is made there.

        Raises
        ------
        StateError, UnavailableError
            If recording is off and the state can't be read.
        """
        if self._intake.is_open:
            return self._intake.spending()
        from hubbub.client.state import read_account

        return read_account(self._folder, self._registry).ledger.spending()

    def explain(self, people: int = 1) -> str:
        """Return in words what is asked, what it can reveal, and what has been spent.

        Parameters
        ----------
        people : int
            How many share this device; as a group they have `people` times the epsilon.
        """
        from hubbub.client import words

        return words.explain(self._registry, self.ledger(), people)

    def preview(self, metric: str, value: Value) -> Preview:
        """Return exactly what `record` would send, by the same code, without spending anything.

        Works without consent too, with a secret that is thrown away; so it can be shown before.

        Raises
        ------
        UnknownMetricError, EncodingError
            If the metric isn't registered, or the value isn't one of its type.
        """
        from hubbub.client import words

        intake = self._intake if self._intake.is_open else self._throwaway_intake()
        report, decision = intake.preview(metric, value)
        entry_metric = self._registry[metric]
        refused = decision.refusal if decision.verdict is Verdict.REFUSED else None
        refusal = self._intake.disabled or self._intake.unavailable or refused
        stale = decision.verdict is Verdict.STALE
        return Preview(
            report=report,
            body=batch_to_json(Batch((report,))),
            words=words.describe_preview(entry_metric, report, refusal, decision.verdict),
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

        if deleted := replace_secret(self._folder):
            self._intake.drop(REPLACED, deleted)
        if self._intake.is_open:
            self._open_state()

    def set_consent(self, consent: bool) -> None:
        """Take the user's new answer: begin to record, or stop at once.

        When consent is withdrawn, reports that weren't sent are deleted, and counted; the secret
        and the account stay (`forget` deletes them, too). DO_NOT_TRACK and HUBBUB_DISABLED in the
        environment refuse for the user whatever the answer.

        Parameters
        ----------
        consent : bool

        Notes
        -----
        Waits for the state at most a second; what can't be done in that time is done later, before
        anything is sent.
        """
        if self._closed:
            return
        intake, former = self._intake, self._refusal
        self._refusal = consents.refusal(consent, os.environ)
        if self._refusal is not None:
            if intake.disabled in {None, former}:
                intake.disable(self._refusal, "INFO")
            intake.drop_pending(consents.WITHDRAWN)
            if intake.is_open:
                self._withdraw()
            else:
                self._discard_unsent()
        elif former is not None and intake.disabled == former:
            if self._withdrawn:  # what was to be deleted isn't to be sent now
                self._discard_unsent()
            intake.disabled = None
            if not self._intake.is_open:
                self._open_state()
            self._resume()

    def _prepare(self) -> None:
        """Make ready what the driver needs; called once, at the end of construction."""
        raise NotImplementedError

    def _start_afresh(self) -> None:
        """Set everything that a thread or task holds; a forked child starts here too."""
        raise NotImplementedError

    def _withdraw(self) -> None:
        """Have the outbox emptied; recording has stopped."""
        raise NotImplementedError

    def _resume(self) -> None:
        """Begin to deliver; recording has begun."""
        raise NotImplementedError

    def _forget(self) -> str:
        from hubbub.client.state import delete_state
        from hubbub.client.words import describe_forgetting

        try:
            spending = self.ledger()
        except (StateError, UnavailableError):
            spending = None
        self._intake.disable(FORGOTTEN, "INFO")
        self._intake.drop_pending(FORGOTTEN)
        self._intake.shut()
        self._on_disk = 0
        delete_state(self._folder)
        return describe_forgetting(spending)

    def _open_state(self) -> None:
        """Open the state, or note why it can't be, for good or for now."""
        from hubbub.client.state import SHORT_PATIENCE, open_state

        try:
            self._take_over(open_state(self._folder, self._registry, SHORT_PATIENCE))
            with closing(self._open_disk()) as disk:
                disk.forget_periods()
        except StateError as error:
            self._intake.disable(str(error))
        except UnavailableError as error:
            self._note_unavailable(error)

    def _take_over(self, state: State) -> None:
        """Begin to record with a state that was opened."""
        self._on_disk = state.waiting
        self._intake.open(state.secret, state.account)
        if state.discarded:
            self._intake.drop("restored state", state.discarded)

    def _note_unavailable(self, error: UnavailableError) -> None:
        if self._intake.unavailable is None:
            log("WARNING", f"hubbub can't use its state, and will try again: {error}")
        self._intake.unavailable = f"{error}; will try again"

    def _throwaway_intake(self) -> Intake:
        from hubbub.client.account import Account

        intake = Intake(self._registry, 1, 1, development=True)
        intake.open(os.urandom(SECRET_BYTES), Account(self._registry))
        return intake

    def _open_disk(self, former: bytes | None = None) -> Disk:
        """Open the database, and the state too where that is still to be done.

        Parameters
        ----------
        former : bytes, optional
            A secret that isn't the database's any more.

        Raises
        ------
        StateError, UnavailableError
        """
        with no_fork():
            from hubbub.client.disk import Disk
            from hubbub.client.state import open_state

        secret = self._intake.secret
        if secret is None or secret == former:  # else this process has replaced it itself
            state = open_state(self._folder, self._registry)
            secret = state.secret
            self._take_over(state)
        disk = Disk(self._folder, self._registry, self._settings, secret)
        self._intake.unavailable = None
        return disk

    def _bring_to_disk(self, disk: Disk, entries: list[Entry]) -> bool:
        """Delete what is to be deleted, then absorb reports; False if that must be tried again."""
        if self._withdrawn:
            try:
                self._clear_outbox(disk)
            except UnavailableError as error:
                self._note_unavailable(error)
                self._intake.give_back(entries)
                return False
        if self._refusal is not None:  # recorded just before the consent was withdrawn
            if entries:
                self._intake.drop(consents.WITHDRAWN, len(entries))
            return True
        return not entries or self._absorb(disk, entries)

    def _absorb(self, disk: Disk, entries: list[Entry]) -> bool:
        """Bring reports to the disk; False if that must be tried again later.

        Raises
        ------
        StateError
            If the state can't be trusted any more; the reports are counted as lost.
        """
        intake = self._intake
        try:
            absorbed = disk.absorb(entries)
        except UnavailableError as error:
            self._note_unavailable(error)
            intake.give_back(entries)
            return False
        except Exception as error:
            reason = REPLACED if isinstance(error, ReplacedSecretError) else "disabled"
            if entries:
                intake.drop(reason, len(entries))
            raise
        intake.unavailable = None
        intake.refresh(absorbed.account)
        self._on_disk = absorbed.waiting
        intake.stale += absorbed.stale
        for reason, count in absorbed.refused.items():
            intake.drop(reason, count)
        return True

    def _discard_unsent(self) -> None:
        """Delete the unsent reports of former runs, if there is a state and it can be used."""
        with no_fork():
            from hubbub.client.state import discard_unsent

        try:
            discarded = discard_unsent(self._folder)
        except UnavailableError:
            self._withdrawn = True  # to be done before anything is sent
            return
        except StateError:
            return
        self._withdrawn, self._on_disk = False, 0
        if discarded:
            self._intake.drop(consents.WITHDRAWN, discarded)

    def _clear_outbox(self, disk: Disk) -> None:
        """Delete what wasn't sent when the consent was withdrawn."""
        self._withdrawn = False
        try:
            disk.outbox.clear(time.time())
        except UnavailableError:
            self._withdrawn = True
            raise
        self._count(disk.outbox)
        self._on_disk = disk.outbox.waiting()

    def _count(self, outbox: Outbox, settled: Settled | None = None) -> None:
        """Take over what a step dropped or settled."""
        if settled is not None:
            with self._intake.changed:
                self._intake.delivered += settled.delivered
            if settled.refused:
                self._intake.drop(settled.reason, settled.refused)
            if settled.gone and self._refusal is not None:
                self._intake.drop(consents.WITHDRAWN, settled.gone)
        for reason, count in outbox.dropped.items():
            self._intake.drop(reason, count)
        outbox.dropped.clear()

    def _note(self, answer: Answer) -> None:
        """Keep, log and tell why an attempt failed, if it did."""
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


_instances: weakref.WeakSet[BaseTelemetry] = weakref.WeakSet()


def _restart_in_child() -> None:
    for instance in list(_instances):
        instance._intake.start_afresh()
        instance._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)
