"""What every kind of `Telemetry` shares: start-up, recording, and telling people what goes on.

Drivers add the part that takes time: threads (`telemetry`) or asyncio (`aio`) bring reports to the
disk, and from there to the collector. Modules that only some apps need, or only with consent, are
imported where they are used, so that importing the client stays cheap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from hubbub.client import consent as consents
from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import BusyError, StateError
from hubbub.client.intake import Entry, Intake, Settings, log
from hubbub.client.kinds import Value
from hubbub.client.ledger import Ledger, Spending
from hubbub.client.metrics import Registry
from hubbub.client.transport import check_endpoint, check_ingest_key
from hubbub.client.wire import Batch, Report, batch_to_json

if TYPE_CHECKING:
    from pathlib import Path

    from hubbub.client.delivery import Settled
    from hubbub.client.disk import Disk
    from hubbub.client.outbox import Outbox


class Status(NamedTuple):
    """What a `Telemetry` has done so far in this process.

    Attributes
    ----------
    recorded, delivered : int
        Reports made here, and reports that the collector acknowledged to this process.
    waiting : int
        Reports still to be sent, in memory and on disk (also those of earlier runs).
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
    epsilon_report, epsilon_permanent : float
    """

    report: Report
    body: bytes
    words: str
    refusal: str | None
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
    ) -> None:
        if not 1 <= batch_size <= max_pending:
            raise ValueError(f"batch_size = {batch_size}: must be between 1 and max_pending")
        from pathlib import Path

        self._endpoint = endpoint
        check_endpoint(endpoint)
        check_ingest_key(ingest_key)
        self._ingest_key = ingest_key
        self._registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._folder = Path(state_dir).expanduser()
        self._settings = Settings(
            batch_size, batch_seconds, max_outbox_bytes, connect_timeout, read_timeout
        )
        self._intake = Intake(self._registry, max_pending, batch_size, development=development)
        if reason := consents.refusal(consent, os.environ):
            self._intake.disabled = reason
        else:
            self._open_state()
        self._prepare()

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason."""
        on_disk = 0 if self._intake.disabled else self._waiting_on_disk()
        intake = self._intake
        with intake.changed:
            return Status(
                recorded=intake.recorded,
                delivered=intake.delivered,
                waiting=len(intake.pending) + on_disk,
                dropped=dict(intake.dropped),
                disabled=intake.disabled,
            )

    def ledger(self) -> Spending:
        """Return what this client has spent of its privacy, by metric and in total."""
        return self._intake.spending()

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
        entry = intake.prepare(metric, value)
        entry_metric = self._registry[metric]
        refusal = self._intake.disabled or intake.refusal(entry)
        return Preview(
            report=entry.report,
            body=batch_to_json(Batch((entry.report,))),
            words=words.describe_preview(entry_metric, entry.report, refusal),
            refusal=refusal,
            epsilon_report=entry_metric.epsilon_report,
            epsilon_permanent=entry_metric.epsilon_permanent,
        )

    def reset(self) -> None:
        """Draw a new secret: this client becomes another one, and every answer costs anew.

        What was spent stays in the ledger, which counts the reset.

        Raises
        ------
        StateError
            If the state can't be read or written.
        """
        from hubbub.client.state import replace_secret

        replace_secret(self._folder)
        self._open_state()

    def _prepare(self) -> None:
        """Make ready what the driver needs; called once, at the end of construction."""
        raise NotImplementedError

    def _forget(self) -> str:
        from hubbub.client.state import delete_state
        from hubbub.client.words import describe_forgetting

        spending = self.ledger()
        self._intake.disable("forgotten")
        self._intake.drain()
        delete_state(self._folder)
        return describe_forgetting(spending)

    def _open_state(self) -> None:
        from hubbub.client.state import open_state

        try:
            secret, ledger = open_state(self._folder, self._registry)
        except StateError as error:
            self._intake.disable(str(error))
        else:
            self._intake.open(secret, ledger)

    def _throwaway_intake(self) -> Intake:
        intake = Intake(self._registry, 1, 1, development=True)
        intake.open(os.urandom(SECRET_BYTES), Ledger(self._registry))
        return intake

    def _open_disk(self) -> Disk:
        from hubbub.client.disk import Disk

        return Disk(self._folder, self._registry, self._settings)

    def _waiting_on_disk(self) -> int:
        try:
            with closing(self._open_disk()) as disk:
                return disk.outbox.waiting()
        except (StateError, BusyError):
            return 0

    def _absorb(self, disk: Disk, entries: list[Entry]) -> bool:
        """Bring reports to the disk; False if that must be tried again later."""
        intake = self._intake
        try:
            ledger, refused = disk.absorb(entries)
        except BusyError as error:
            log("INFO", f"hubbub will try again to write its outbox: {error}")
            intake.give_back(entries)
            return False
        intake.refresh(ledger)
        for reason, count in refused.items():
            intake.drop(reason, count)
        return True

    def _count(self, outbox: Outbox, settled: Settled | None = None) -> None:
        """Take over what a step dropped or settled."""
        if settled is not None:
            with self._intake.changed:
                self._intake.delivered += settled.delivered
            if settled.refused:
                self._intake.drop("refused by the collector", settled.refused)
        for reason, count in outbox.dropped.items():
            self._intake.drop(reason, count)
        outbox.dropped.clear()
