"""What an app calls: `Telemetry(...).record("homepage", url)`.

Values are encoded on the caller's thread, so that no raw value ever waits in a queue; one daemon
thread puts reports on disk, another sends them. Both start with the first report. After start-up
nothing here raises into the app or waits for disk or network: trouble is counted, logged once, and
visible in `status()`.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from hubbub.client.base import BaseTelemetry
from hubbub.client.errors import ReplacedSecretError, StateError, UnavailableError
from hubbub.client.forks import no_fork
from hubbub.client.intake import Entry
from hubbub.protocol.metric_types.base import Value

if TYPE_CHECKING:
    from typing import Self

    from hubbub.client.disk import Disk
    from hubbub.client.transport import HttpSender

_EXIT_SECONDS = 2.0
_WRITE_SECONDS = 0.3  # of them, for what wasn't sent to get to the disk
_SPOOL_SECONDS = 1.0  # a killed app loses at most what it recorded so long ago
_RETRY_DISK_SECONDS = 5.0
_IDLE_SECONDS = 3600.0


class Telemetry(BaseTelemetry):
    """Records values and delivers their noisy reports in the background.

    As a context, ``with Telemetry(...) as telemetry``, it is closed at the end.

    Parameters
    ----------
    metrics : Registry, str or Path
        The registry, or the metrics.toml to read it from.
    endpoint : str
        The collector's base address.
    state_dir : str or Path
        Where this client's secret, ledger and outbox live; it must survive updates of the app.
        Several processes of one user may share it.
    consent : bool
        Whether the user agrees. If not, or not yet (or if DO_NOT_TRACK or HUBBUB_DISABLED is set in
        the environment), there is no state, no file and no thread, and nothing is recorded, until
        `set_consent` says otherwise. It also takes the answer no, which deletes what wasn't sent.
    development : bool
        Let `record` raise for an unknown metric or category and for a value of the wrong type, so
        that an app's author notices; otherwise they are dropped and counted.
    batch_size : int
        Send as soon as so many reports wait.
    batch_seconds : float
        Send about so long after the first waiting report (half to one and a half of it).
    max_pending : int
        Beyond so many reports in memory, on their way to the disk, the oldest are dropped.
    max_outbox_bytes : int
        Beyond so much on disk the oldest are dropped.
    connect_timeout, read_timeout : float
        Seconds for connecting, and for an answer.
    ingest_key : str, optional
        The key that the collector asks of this app. It comes with the app, so it names the app and
        not the user, and isn't secret from the user; it is sent with each batch, and never logged.
    on_error : callable, optional
        Called with a `DeliveryError`, on the thread that sends, whenever a batch wasn't delivered.
        What it raises is logged and goes no further.

    Raises
    ------
    MetricError, ValueError
        At construction only, for a registry or argument that can't work. Damaged state doesn't
        raise: it disables the object, and `status().disabled` says why. State that can't be used
        for now (a full disk, too many open files) is tried again until it can.
    """

    _sender: HttpSender
    _writer: threading.Thread | None
    _started: bool
    _hurry: bool
    _rush: bool
    _opening: threading.Lock
    _writing: bool
    _outbox_empty: bool
    _absorbed: int

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        self._intake.take(metric, value)
        if not self._started and (self._intake.pending or self._intake.unavailable):
            self._start()

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        if self._intake.disabled or self._closed:
            return False
        self._start()
        with self._intake.changed:
            self._rush = self._hurry = True
            self._outbox_empty = False
            self._intake.changed.notify_all()
            settled = self._intake.changed.wait_for(self._is_settled, timeout)
            self._hurry = False
            return settled

    def close(self, timeout: float = _EXIT_SECONDS) -> None:
        """Flush for at most `timeout` seconds, then stop; what is left stays on disk.

        Later calls of `record` are dropped.
        """
        deadline = time.monotonic() + max(timeout, _EXIT_SECONDS)
        self._flush_and_stop(timeout)
        self._join(deadline)

    def _flush_and_stop(self, timeout: float) -> None:
        if timeout > 0 and self._started:
            self.flush(timeout)
        with self._intake.changed:
            self._closed = True
            self._intake.disabled = self._intake.disabled or "closed"
            self._intake.changed.notify_all()

    def _join(self, deadline: float) -> None:
        """Let the writer bring what waits to the disk."""
        if self._writer is not None:
            self._writer.join(max(0.0, deadline - time.monotonic()))
        _to_be_closed.discard(self)

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means.

        Raises
        ------
        StateError
            If a file can't be removed.
        """
        self.close(0)
        return self._forget()

    def _prepare(self) -> None:
        from hubbub.client.transport import HttpSender

        settings = self._settings
        self._sender = HttpSender(
            self._endpoint, settings.connect_timeout, settings.read_timeout, self._ingest_key
        )
        self._start_afresh()
        _to_be_closed.add(self)
        if self._on_disk and not self._intake.disabled:
            self._start()

    def _withdraw(self) -> None:
        with self._intake.changed:
            self._withdrawn = True
            self._intake.changed.notify_all()
        if self._on_disk:
            self._start()

    def _resume(self) -> None:
        with self._intake.changed:
            self._rush = True
            self._intake.changed.notify_all()
        if self._on_disk and not self._intake.disabled:
            self._start()

    def _start(self) -> None:
        with self._intake.changed:
            if self._started or self._closed:
                return
            self._started = True
            try:
                self._writer = _daemon(self._write, "hubbub disk")
                _daemon(self._send, "hubbub network")
            except RuntimeError as error:  # too many threads, or Python is shutting down
                self._intake.disable(str(error))

    def _write(self) -> None:
        """Bring reports to the disk until closed (one thread)."""
        self._with_disk(self._write_for_ever)

    def _send(self) -> None:
        """Bring batches to the collector until closed (another thread)."""
        self._with_disk(self._send_for_ever)

    def _with_disk(self, work: Callable[[Disk], None]) -> None:
        """Do a thread's work with a connection of its own, as long as the state can be trusted."""
        former = None
        while True:
            try:
                with self._opening:
                    disk = self._open_disk(former)
                former = disk.secret
                with closing(disk):
                    return work(disk)
            except UnavailableError as error:
                self._note_unavailable(error)
                self._pause(_RETRY_DISK_SECONDS)
            except ReplacedSecretError:
                continue
            except Exception as error:  # an app must never fail because of telemetry
                if not self._closed:
                    known = isinstance(error, StateError)
                    self._intake.disable(str(error) if known else f"internal error: {error!r}")
                    self._intake.drop_pending("disabled")
                return None
            if self._closed:
                return None

    def _write_for_ever(self, disk: Disk) -> None:
        changed = self._intake.changed
        while True:
            with changed:
                changed.wait_for(self._has_work)
                changed.wait_for(self._is_time_to_write, _SPOOL_SECONDS)
                self._writing = True
                entries = self._intake.drain(disk.secret)
            done = self._write_once(disk, entries)
            with changed:
                self._writing = False
                self._outbox_empty = self._outbox_empty and not entries
                self._absorbed += 1
                changed.notify_all()
                left = self._intake.pending or self._withdrawn
                if self._closed and not (left and done):
                    return
            if not done:
                self._pause(_RETRY_DISK_SECONDS)

    def _write_once(self, disk: Disk, entries: list[Entry]) -> bool:
        try:
            return self._bring_to_disk(disk, entries)
        finally:
            self._writing = False

    def _send_for_ever(self, disk: Disk) -> None:
        while not self._closed:
            absorbed = self._absorbed  # read before the disk is, or a report would be overlooked
            if self._intake.disabled or self._withdrawn:
                self._rest(_IDLE_SECONDS, absorbed)
                continue
            if self._rush:
                self._rush = False
                disk.courier.rush()
            try:
                pause = self._step(disk, absorbed)
            except UnavailableError:
                pause = _RETRY_DISK_SECONDS
            self._rest(pause, absorbed)

    def _step(self, disk: Disk, absorbed: int) -> float:
        """Bring one parcel to the collector, if any is due; return the pause."""
        step = disk.courier.next(hurry=self._hurry)
        self._count(disk.outbox)
        if not isinstance(step, float):
            with no_fork():
                self._sender.prepare()
            answer = self._sender.send(step.body)
            self._note(answer)
            self._count(disk.outbox, disk.courier.settle(step, answer))
            self._on_disk = disk.outbox.waiting()
            return 0.0
        self._on_disk = disk.outbox.waiting()
        if self._intake.has_old_period():
            disk.forget_periods()
        with self._intake.changed:
            self._outbox_empty = self._on_disk == 0 and absorbed == self._absorbed
            self._intake.changed.notify_all()
        return step

    def _rest(self, seconds: float, absorbed: int) -> None:
        """Wait until something changes that a courier would care about."""
        with self._intake.changed:
            self._intake.changed.wait_for(
                lambda: self._closed or self._rush or absorbed != self._absorbed, seconds
            )

    def _pause(self, seconds: float) -> None:
        """Wait, whatever happens but closing: the disk is in trouble, and others notify often."""
        with self._intake.changed:
            self._intake.changed.wait_for(lambda: self._closed, seconds)

    def _has_work(self) -> bool:
        return bool(self._intake.pending) or self._withdrawn or self._closed

    def _is_time_to_write(self) -> bool:
        enough = len(self._intake.pending) >= self._settings.batch_size
        return enough or self._hurry or self._withdrawn or self._closed

    def _is_settled(self) -> bool:
        busy = self._intake.pending or self._writing or not self._outbox_empty
        return not busy or self._intake.disabled is not None

    def _start_afresh(self) -> None:
        """Set everything that a thread holds or waits for; a forked child starts here too."""
        self._writer = None
        self._started = self._closed = False
        self._hurry = self._rush = self._writing = False
        self._opening = threading.Lock()
        self._outbox_empty = True
        self._absorbed = 0


_to_be_closed: weakref.WeakSet[Telemetry] = weakref.WeakSet()


def _daemon(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@atexit.register
def _close_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for instance in list(_to_be_closed):
        instance._flush_and_stop(max(0.0, deadline - _WRITE_SECONDS - time.monotonic()))
    for instance in list(_to_be_closed):
        instance._join(deadline)
