"""What an app calls: `Telemetry(...).record("homepage", url)`.

Values are encoded on the caller's thread, so that no raw value ever waits in a queue; one daemon
thread puts reports on disk, another sends them. Both start with the first report. After start-up
nothing here raises into the app or waits for disk or network: trouble is counted, logged once, and
visible in `status()`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from hubbub.client.base import BaseTelemetry
from hubbub.client.errors import BusyError, StateError
from hubbub.client.forks import no_fork
from hubbub.client.kinds import Value
from hubbub.client.transport import HttpSender

if TYPE_CHECKING:
    from hubbub.client.disk import Disk

_EXIT_SECONDS = 2.0
_SPOOL_SECONDS = 1.0  # a killed app loses at most what it recorded so long ago
_RETRY_DISK_SECONDS = 5.0


class Telemetry(BaseTelemetry):
    """Records values and delivers their noisy reports in the background.

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
        Whether the user agrees. If not (or if DO_NOT_TRACK or HUBBUB_DISABLED is set in the
        environment) there is no state, no file and no thread, and nothing is recorded.
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

    Raises
    ------
    MetricError, ValueError
        At construction only, for a registry or argument that can't work. Damaged state doesn't
        raise: it disables the object, and `status().disabled` says why.
    """

    _sender: HttpSender
    _writer: threading.Thread | None
    _started: bool
    _closed: bool
    _hurry: bool
    _rush: bool
    _writing: bool
    _outbox_empty: bool
    _absorbed: int

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        self._intake.take(metric, value)
        if not self._started and self._intake.pending:
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
        if timeout > 0 and self._started:
            self.flush(timeout)
        with self._intake.changed:
            self._closed = True
            self._intake.disabled = self._intake.disabled or "closed"
            self._intake.changed.notify_all()
        if self._writer is not None:
            self._writer.join(_EXIT_SECONDS)
        _instances.discard(self)

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
        settings = self._settings
        self._sender = HttpSender(
            self._endpoint, settings.connect_timeout, settings.read_timeout, self._ingest_key
        )
        self._start_afresh()
        if not self._intake.disabled:
            _instances.add(self)
            if self._waiting_on_disk():
                self._start()

    def _start(self) -> None:
        with self._intake.changed:
            if self._started or self._closed or self._intake.disabled:
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
        try:
            with closing(self._open_disk()) as disk:
                work(disk)
        except Exception as error:  # an app must never fail because of telemetry
            if not self._closed:
                known = isinstance(error, StateError)
                self._intake.disable(str(error) if known else f"internal error: {error!r}")
                self._intake.drop("disabled", len(self._intake.drain()))

    def _write_for_ever(self, disk: Disk) -> None:
        changed = self._intake.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._intake.pending or self._closed)
                changed.wait_for(self._is_time_to_write, _SPOOL_SECONDS)
                self._writing = True
                entries = self._intake.drain()
            done = self._absorb(disk, entries)
            with changed:
                self._writing = False
                self._outbox_empty = self._outbox_empty and not entries
                self._absorbed += 1
                changed.notify_all()
                if self._closed and (not self._intake.pending or not done):
                    return
                if not done:
                    changed.wait(_RETRY_DISK_SECONDS)

    def _send_for_ever(self, disk: Disk) -> None:
        while not self._closed:
            if self._rush:
                self._rush = False
                disk.courier.rush()
            absorbed = self._absorbed  # read before the disk is, or a report would be overlooked
            try:
                pause = self._step(disk, absorbed)
            except BusyError:
                pause = _RETRY_DISK_SECONDS  # busy, or the disk is full
            self._rest(pause, absorbed)

    def _step(self, disk: Disk, absorbed: int) -> float:
        """Bring one parcel to the collector, if any is due; return the pause."""
        step = disk.courier.next(hurry=self._hurry)
        self._count(disk.outbox)
        if not isinstance(step, float):
            with no_fork():
                self._sender.prepare()
            answer = self._sender.send(step.body)
            self._count(disk.outbox, disk.courier.settle(step, answer))
            return 0.0
        empty = disk.outbox.waiting() == 0
        with self._intake.changed:
            self._outbox_empty = empty and absorbed == self._absorbed
            self._intake.changed.notify_all()
        return step

    def _rest(self, seconds: float, absorbed: int) -> None:
        """Wait until something changes that a courier would care about."""
        with self._intake.changed:
            self._intake.changed.wait_for(
                lambda: self._closed or self._rush or absorbed != self._absorbed, seconds
            )

    def _is_time_to_write(self) -> bool:
        enough = len(self._intake.pending) >= self._settings.batch_size
        return enough or self._hurry or self._closed

    def _is_settled(self) -> bool:
        busy = self._intake.pending or self._writing or not self._outbox_empty
        return not busy or self._intake.disabled is not None

    def _start_afresh(self) -> None:
        """Set everything that a thread holds or waits for; a forked child starts here too."""
        self._writer = None
        self._started = self._closed = False
        self._hurry = self._rush = self._writing = False
        self._outbox_empty = True
        self._absorbed = 0


_instances: weakref.WeakSet[Telemetry] = weakref.WeakSet()


def _daemon(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@atexit.register
def _close_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for instance in list(_instances):
        instance.close(max(0.0, deadline - time.monotonic()))


def _restart_in_child() -> None:
    for instance in list(_instances):
        instance._intake.start_afresh()
        instance._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)
