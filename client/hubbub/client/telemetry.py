"""What an app calls: `Telemetry(...).record("homepage", url)`.

Values are encoded on the caller's thread, so no raw value ever waits in a queue; one daemon thread
stores reports, another sends them. Both start with the first report. After start-up nothing here
raises into the app or waits for disk or network: trouble is counted, logged once, and visible in
`status()`.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from hubbub.client.base import (
    EXIT_SECONDS,
    IDLE_SECONDS,
    RETRY_DISK_SECONDS,
    SPOOL_SECONDS,
    BaseTelemetry,
)
from hubbub.client.errors import ReplacedSecretError, UnavailableError
from hubbub.client.forks import no_fork, notice_fork
from hubbub.protocol.metric_types.base import Value

if TYPE_CHECKING:
    from typing import Self

    from hubbub.client.delivery import ClientStore
    from hubbub.client.transport import HttpSender

_WRITE_SECONDS = 0.3  # of EXIT_SECONDS, to store what wasn't sent


class Telemetry(BaseTelemetry):  # its constructor is the base's: numpydoc ignore=PR02
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
        `set_consent` gives another answer. A no there deletes what wasn't sent.
    development : bool
        Let `record` raise for an unknown metric or category and for a value of the wrong type, so
        that an app's author notices; otherwise they are dropped and counted. Raise for a
        `state_dir` that can't be used, too. And don't wait for the first period of a metric with
        mode "once", so that the author sees a report.
    batch_size : int
        Send as soon as this many reports wait.
    batch_seconds : float
        Send about this long after the first waiting report (half to one and a half of it).
    max_pending : int
        Most reports in memory, on their way to the disk; beyond it the oldest are dropped.
    max_outbox_bytes : int
        Most bytes of reports on disk; beyond it the oldest are dropped.
    connect_timeout, read_timeout : float
        Seconds for connecting, and for an answer.
    ingest_key : str, optional
        The key that the collector demands from this app. It comes with the app, so it identifies
        the app and not the user; it is sent with each batch, and never logged.
    dimensions : mapping of str to str, optional
        What the app tells of itself, in the clear, such as its platform; those that metrics.toml
        names. A value that isn't told apart is "other", or with `development` an error.
    switch : str or bool, optional
        Where to ask, at most once a day and only when something is sent anyway, whether metrics are
        off for now: an address, or True for the collector's own. By default nothing is asked. It
        can't turn anything on or raise an epsilon.
    switch_key : str, optional
        Public key, as `hubbub-collector switch key` prints it: then only a switch that is signed
        with it is obeyed. Needs the extra: pip install 'hubbub[switch]'.
    on_error : callable, optional
        Called with a `DeliveryFailure`, on the thread that sends, for each failed attempt. What it
        raises is logged and goes no further.

    Raises
    ------
    MetricError, SwitchError, ValueError
        At construction only, for a registry or argument that can't work.
    OtherApplicationError
        At construction, if the state directory is another application's: they would report each
        other's answers. Without `development` other trouble with the state doesn't raise: if it is
        damaged, or its directory can't be one, the object is disabled and `status().disabled` says
        why; if it can't be used for now (a full disk, too many open files, no permission), it is
        tried again until it can.

    Examples
    --------
    >>> with Telemetry("metrics.toml", "https://telemetry.example.com", "state") as telemetry:
    ...     print(telemetry.preview("theme", "dark").refusal)
    None
    """

    _sender: HttpSender
    _writer: threading.Thread | None
    _started: bool
    _opening: threading.Lock

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        notice_fork()
        self._recorder.record(metric, value)
        recorder = self._recorder
        if not self._started and (recorder.pending or recorder.unavailable or recorder.asks):
            self._start()
        if self._postponed and not (self._writer and self._writer.is_alive()):
            self._store_now()

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        return self._hurry_until(self._is_settled, timeout)

    def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send what waits, for at most `timeout` seconds and until an attempt fails, then stop.

        What is left stays on disk. Later calls of `record` are dropped.
        """
        deadline = time.monotonic() + max(timeout, EXIT_SECONDS)
        self._send_what_waits(timeout)
        self._shut()
        self._join(deadline)

    def _send_what_waits(self, timeout: float) -> None:
        if timeout > 0 and self._started:
            self._hurry_until(self._is_idle, timeout)

    def _hurry_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Send what waits, now; return whether a state was reached in time."""
        notice_fork()
        if self._recorder.disabled or self._lanes.closed:
            return False
        self._start()
        if not self._started:  # what can be done without threads is done
            return False
        with self._recorder.changed:
            self._lanes.hurry()
            self._recorder.notify()
            in_time = self._recorder.changed.wait_for(reached, timeout)
            self._lanes.relax()
            return in_time

    def _end(self) -> None:
        with self._recorder.changed:
            self._lanes.close()
            self._postponed = (
                "Python is shutting down; reports are stored, and sent after the next start"
            )
            self._recorder.notify()

    def _join(self, deadline: float) -> None:
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
            self._endpoint,
            settings.connect_timeout,
            settings.read_timeout,
            self._ingest_key,
        )
        self._reset_after_fork()
        _to_be_closed.add(self)
        if self._lanes.on_disk and not self._recorder.disabled:
            self._start()

    def _is_to_be_resumed(self) -> bool:
        return self._lanes.on_disk > 0

    def _start(self) -> None:
        with self._recorder.changed:
            if self._started or self._lanes.closed:
                return
            self._started = True  # before a signal handler records and begins this once more
            try:
                if self._writer is None:
                    self._writer = self._start_thread(self._write, "hubbub disk")
                self._start_thread(self._send, "hubbub network")
                self._postponed = None
            except RuntimeError as error:  # too many threads, or Python is shutting down
                self._started = False
                self._postpone(error)

    def _start_thread(self, work: Callable[[ClientStore], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=self._with_store, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _with_store(self, work: Callable[[ClientStore], None]) -> None:
        """Do a thread's work with its own connection, as long as the state can be trusted."""
        former = None
        while True:
            try:
                with self._opening:
                    store = self._open_store(former)
                former = store.secret
                with closing(store):
                    work(store)
                return
            except UnavailableError as error:
                self._note_unavailable(error)
                self._pause(RETRY_DISK_SECONDS)
            except ReplacedSecretError:
                continue
            except Exception as error:  # an app must never fail because of telemetry
                if not self._lanes.closed:
                    self._fail(error)
                return
            if self._lanes.closed:
                return

    def _write(self, store: ClientStore) -> None:
        """Store reports until closed (one thread)."""
        while True:
            self._wait(self._has_work)
            self._wait(self._is_time_to_store, SPOOL_SECONDS)
            done = self._store_waiting(store)
            if self._lanes.closed and not (done and self._has_more()):
                return
            if not done:
                self._pause(RETRY_DISK_SECONDS)

    def _send(self, store: ClientStore) -> None:
        """Bring batches to the collector until closed (another thread)."""
        while not self._lanes.closed:
            seen = self._lanes.changes  # before the disk is read, or a report would be overlooked
            seconds = IDLE_SECONDS
            if self._may_send():
                try:
                    seconds = self._send_once(store, seen)
                except UnavailableError:
                    seconds = RETRY_DISK_SECONDS
            if seconds:
                self._wait(partial(self._is_time_to_send, seen), seconds)

    def _send_once(self, store: ClientStore, seen: int) -> float:
        """Send a batch or ask for the switch, if that is due; return seconds until the next."""
        with no_fork():
            from hubbub.client.delivery import Fetch

        step = self._next_step(store)
        if isinstance(step, float):
            self._note_end_of_sending(seen)
            return step
        with no_fork():
            self._sender.prepare()
        if isinstance(step, Fetch):
            self._obey(store, self._sender.fetch(self._switch_address or ""))
            return 0.0
        answer = self._sender.send(step.batch)
        self._note(answer)
        self._settle(store, step, answer)
        if answer.is_to_be_repeated:
            self._note_end_of_sending(seen)
        return 0.0

    def _has_more(self) -> bool:
        return bool(self._recorder.pending) or self._lanes.withdrawn

    def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        with self._recorder.changed:
            self._recorder.changed.wait_for(until, seconds)

    def _pause(self, seconds: float) -> None:
        self._wait(lambda: self._lanes.closed, seconds)

    def _reset_after_fork(self) -> None:
        self._writer = None
        self._started = False
        self._opening = threading.Lock()


_to_be_closed: weakref.WeakSet[Telemetry] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Send what waits and end all threads; who still records stores that without them."""
    deadline = time.monotonic() + EXIT_SECONDS
    instances = list(_to_be_closed)
    for instance in instances:
        instance._send_what_waits(max(0.0, deadline - _WRITE_SECONDS - time.monotonic()))
        instance._end()
    for instance in instances:
        instance._join(deadline)
