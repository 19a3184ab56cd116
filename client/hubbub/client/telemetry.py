"""The client that apps call: `Telemetry(...).record("homepage", url)`.

Two daemon threads deliver, which start with the first report: one stores, the other sends. Event
loops use the same threads: `AsyncTelemetry` awaits what `Telemetry` waits for. Values are encoded
on the caller's thread, so no raw value ever waits in a queue. After start-up nothing here raises
into the app or waits for disk or network: trouble is counted, logged once, and visible in
`status()`.

Modules that only some apps need, or only with consent, are imported where they are used, so that
importing the client stays cheap.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Self, TypeVar

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.forks import ORPHANED, after_fork, is_orphaned, no_fork, notice_fork
from hubbub.client.ledger import REPORTED_TODAY, Account, Spending, Verdict
from hubbub.client.recorder import CLOSED, FORGOTTEN, WITHDRAWN, Recorder, log
from hubbub.protocol.errors import StateError, UnavailableError
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import MEDIA_TYPE, Batch, Report, batch_to_compact

if TYPE_CHECKING:
    from pathlib import Path

    from hubbub.client.outbox import Outbox
    from hubbub.client.transport import DeliveryFailure
    from hubbub.protocol.switch import VerifyKey

_P = ParamSpec("_P")
_Result = TypeVar("_Result")

EXIT_SECONDS = 2.0  # what people still wait for when they close an app
SPOOL_SECONDS = 1.0  # a killed app loses at most the recordings of this time
IDLE_SECONDS = 3600.0
"""Nothing to do: a recording wakes the thread; this only bounds a lost wake-up."""
_WRITE_SECONDS = 0.3  # of EXIT_SECONDS, to store what wasn't sent
_SWITCHES = ("DO_NOT_TRACK", "HUBBUB_DISABLED")
_SWITCHED_OFF = frozenset({"", "0", "false", "no"})


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


class Status(NamedTuple):
    """Counters of a `Telemetry` in this process.

    Attributes
    ----------
    recorded, delivered : int
        Reports made here, and reports that the collector acknowledged to this process.
    waiting : int
        Reports still to be sent, in memory and, when this process last looked, on disk (also those
        of earlier runs and other processes).
    stale : int
        Reports of an earlier answer, in place of a value beyond `max_values` or the budget; counted
        when they are stored, about a second after the call.
    dropped : mapping of str to int
        Reports or calls dropped, by reason; what no room was left for, by calls of the last second
        or by other processes, when it would have been stored.
    disabled : str or None
        Why nothing is recorded at all, if so.
    last_error : DeliveryFailure or None
        Why a batch was last not delivered, and when.
    postponed : str or None
        Why reports are stored and not sent until the next start, if so.
    """

    recorded: int
    delivered: int
    waiting: int
    stale: int
    dropped: Mapping[str, int]
    disabled: str | None
    last_error: DeliveryFailure | None
    postponed: str | None = None


class Preview(NamedTuple):
    """The report that `record` would send for a value.

    Attributes
    ----------
    report : Report
        Drawn as `record` would draw it; each call draws another.
    media_type : str
    body : bytes
        The bytes and their form if this report were sent by itself: the compact one
        (docs/protocol, section 8).
    words : str
        The same for people.
    refusal : str or None
        Why it wouldn't be sent, if so.
    stale : bool
        Whether the report is of an earlier answer, because there is no room for another value.
    epsilon_report, epsilon_permanent : float
    """

    report: Report
    media_type: str
    body: bytes
    words: str
    refusal: str | None
    stale: bool
    epsilon_report: float
    epsilon_permanent: float


class BaseTelemetry:
    """All but what is waited for; see `Telemetry` for the parameters."""

    _writer: threading.Thread | None
    _started: bool

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
        timeout: float = 10.0,
        ingest_key: str | None = None,
        dimensions: Mapping[str, str] | None = None,
        switch: str | bool | None = None,
        switch_key: str | None = None,
    ) -> None:
        _check_arguments(
            metrics,
            state_dir,
            {
                "batch_size": batch_size,
                "batch_seconds": batch_seconds,
                "max_pending": max_pending,
                "max_outbox_bytes": max_outbox_bytes,
                "timeout": timeout,
            },
        )
        # Refuse impossible settings before anything is opened.
        if not 1 <= batch_size <= max_pending:
            raise ValueError(f"batch_size = {batch_size}: must be between 1 and max_pending")
        with no_fork():
            import logging  # noqa: F401 - so that `record` never waits for an import
            from pathlib import Path

            from hubbub.client.delivery import DeliveryLoop, DeliverySettings
            from hubbub.client.transport import (
                HttpSender,
                is_in_the_clear,
                origin_of,
                switch_address,
            )

        self._sender = HttpSender(endpoint, timeout, ingest_key)
        self._switch_address = switch_address(switch, endpoint)
        self._switch_key: VerifyKey | None = None
        if switch_key is not None:
            with no_fork():
                from hubbub.protocol.switch import VerifyKey

            self._switch_key = VerifyKey.parse(switch_key)
            self._switch_key.require()
        registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._registry = registry.with_dimensions(dimensions or {}, strict=development)
        try:
            self._folder = Path(state_dir).expanduser()
        except RuntimeError as error:  # no home directory
            raise ValueError(f"state_dir = {os.fspath(state_dir)!r}: {error}") from error
        self._recorder = Recorder(self._registry, max_pending, batch_size, development=development)
        self._recorder.waits = not development
        settings = DeliverySettings(
            batch_size,
            batch_seconds,
            max_outbox_bytes,
            timeout,
            origin_of(endpoint),
            switch_key=None if self._switch_address is None else str(self._switch_key or ""),
        )
        self._delivery = DeliveryLoop(self._recorder, self._folder, settings)
        self._reset_after_fork()
        if is_in_the_clear(endpoint):
            sent = "reports and the ingest key" if ingest_key else "reports"
            log(
                "WARNING",
                f"endpoint = {origin_of(endpoint)!r}: {sent} travel in the clear: use https",
            )
        # The state is opened, and old reports are sent, only with consent.
        self._development = development
        refusal = self._delivery.refusal = consent_refusal(consent, os.environ)
        if refusal:
            self._recorder.disabled = refusal
        else:
            self._delivery.open_state(raises=development)
        _instances.add(self)
        if self._delivery.on_disk and not self._recorder.disabled:
            self._start()

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        notice_fork()
        self._recorder.record(metric, value)
        recorder = self._recorder
        if not self._started and (recorder.pending or recorder.unavailable or recorder.asks):
            self._start()
        if self._delivery.postponed and not (self._writer and self._writer.is_alive()):
            self._delivery.store_now()

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason; waits for nothing."""
        recorder = self._recorder
        with recorder.changed:
            # Reports on disk when this is closed are left to the next run.
            is_usable = recorder.disabled in {None, CLOSED}
            return Status(
                recorded=recorder.recorded,
                delivered=recorder.delivered,
                waiting=recorder.unstored + (self._delivery.on_disk if is_usable else 0),
                stale=recorder.stale,
                dropped=dict(recorder.dropped),
                disabled=recorder.disabled or recorder.unavailable,
                last_error=self._delivery.last_error,
                postponed=self._delivery.postponed,
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

        return read_account(self._folder, self._registry).spending()

    def explain(self) -> str:
        """Return in words what is asked, what it can reveal, and what has been spent."""
        from hubbub.client import explanations

        return explanations.explain(self._registry, self.ledger())

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

        recorder = self._recorder
        if recorder.secret is None:
            recorder = Recorder(self._registry, 1, 1, development=True)
            recorder.answers_all = True
            recorder.open(os.urandom(SECRET_BYTES), Account(self._registry))
        # The report by `record`'s own code, and whether it would be sent.
        report, decision = recorder.preview(metric, value)
        entry_metric = self._registry[metric]
        refusal = self._recorder.disabled or self._recorder.unavailable or decision.refusal or None
        if refusal is None and is_reported_today(self._folder, self._registry, metric):
            refusal = REPORTED_TODAY
        stale = decision.verdict is Verdict.STALE
        return Preview(
            report=report,
            media_type=MEDIA_TYPE,
            body=batch_to_compact(Batch((report,))),
            words=explanations.describe_preview(entry_metric, report, refusal, decision.verdict),
            refusal=refusal,
            stale=stale,
            epsilon_report=entry_metric.epsilon_report,
            epsilon_permanent=entry_metric.epsilon_permanent,
        )

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
        recorder, delivery = self._recorder, self._delivery
        if delivery.closed:
            return
        former, delivery.refusal = delivery.refusal, consent_refusal(consent, os.environ)
        if delivery.refusal is not None:
            if recorder.disabled in {None, former}:
                recorder.disable(delivery.refusal, "INFO")
            recorder.drop_pending(WITHDRAWN)
            if recorder.secret is None:
                delivery.discard_unsent()
                return
            with recorder.changed:
                delivery.withdrawn = True
                recorder.notify()
            if delivery.on_disk:
                self._start()
        elif former is not None and recorder.disabled == former:
            if delivery.withdrawn:  # what should have been deleted mustn't be sent now
                delivery.discard_unsent()
            recorder.disabled = None
            if recorder.secret is None:
                delivery.open_state(raises=self._development)
            delivery.retry()
            if delivery.on_disk and not recorder.disabled:
                self._start()

    def _forget(self) -> str:
        from hubbub.client.explanations import describe_forgetting
        from hubbub.client.state import delete_state

        self._close(0)
        try:
            spending = self.ledger()
        except (StateError, UnavailableError):
            spending = None
        self._recorder.disable(FORGOTTEN, "INFO")
        self._recorder.drop_pending(FORGOTTEN)
        self._recorder.shut()
        self._delivery.on_disk = 0
        delete_state(self._folder, self._registry.application)
        return describe_forgetting(spending)

    def _flush(self, timeout: float) -> bool:
        return self._flush_until(self._delivery.is_settled, timeout)

    def _close(self, timeout: float) -> None:
        deadline = time.monotonic() + max(timeout, EXIT_SECONDS)
        self._send_what_waits(timeout)
        self._delivery.close(CLOSED)
        self._join(deadline)

    def _send_what_waits(self, timeout: float) -> None:
        if timeout > 0 and self._started:
            self._flush_until(self._delivery.is_idle, timeout)

    def _flush_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Send what waits, now; return whether a state was reached in time."""
        notice_fork()
        if self._recorder.disabled or self._delivery.closed:
            return False
        self._start()
        if not self._started:  # what can be done without threads is done
            return False
        with self._recorder.changed:
            self._delivery.begin_flush()
            in_time = self._recorder.changed.wait_for(reached, timeout)
            self._delivery.end_flush()
            return in_time

    def _end(self) -> None:
        self._delivery.postponed = (
            "Python is shutting down; reports are stored, and sent after the next start"
        )
        self._delivery.close()

    def _join(self, deadline: float) -> None:
        if self._writer is not None:
            self._writer.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        with self._recorder.changed:
            if self._started or self._delivery.closed:
                return
            self._started = True  # before a signal handler records and begins this once more
            try:
                if self._writer is None:
                    self._writer = self._start_thread(self._write, "hubbub disk")
                self._start_thread(self._send, "hubbub network")
                self._delivery.postponed = None
            except RuntimeError as error:  # too many threads, or Python is shutting down
                self._started = False
                if self._delivery.postponed is None:
                    log(
                        "WARNING",
                        f"hubbub stores reports, to send them after the next start: {error}",
                    )
                self._delivery.postponed = (
                    f"{error}; reports are stored, and sent after the next start"
                )

    def _start_thread(self, work: Callable[[Outbox], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=self._with_store, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _with_store(self, work: Callable[[Outbox], None]) -> None:
        """Do a thread's work with its own connection, as long as the state can be trusted."""
        while True:
            try:
                with closing(self._delivery.open()) as outbox:
                    work(outbox)
                return
            except UnavailableError as error:
                self._delivery.note_unavailable(error)
                self._pause(self._delivery.RETRY_DISK_SECONDS)
            except Exception as error:  # an app must never fail because of telemetry
                if not self._delivery.closed:
                    self._delivery.fail(error)
                return
            if self._delivery.closed:
                return

    def _write(self, outbox: Outbox) -> None:
        """Store reports until closed (one thread)."""
        delivery = self._delivery
        while True:
            self._wait(lambda: self._recorder.pending or delivery.withdrawn or delivery.closed)
            self._wait(delivery.is_time_to_store, SPOOL_SECONDS)
            done = delivery.store(outbox) is not None
            has_more = bool(self._recorder.pending) or delivery.withdrawn
            if delivery.closed and not (done and has_more):
                return
            if not done:
                self._pause(delivery.RETRY_DISK_SECONDS)

    def _send(self, outbox: Outbox) -> None:
        """Bring batches to the collector until closed (another thread)."""
        delivery, recorder = self._delivery, self._recorder
        while not delivery.closed:
            # Before the disk is read, or a report would be overlooked.
            seen, seconds = delivery.changes, IDLE_SECONDS
            if not (recorder.disabled or delivery.withdrawn):
                try:
                    seconds = self._send_once(outbox, seen)
                except UnavailableError:
                    seconds = delivery.RETRY_DISK_SECONDS
            if seconds:
                self._wait(partial(delivery.is_time_to_send, seen), seconds)

    def _send_once(self, outbox: Outbox, seen: int) -> float:
        """Send a batch or ask for the switch, if that is due; return seconds until the next."""
        from hubbub.client.delivery import Fetch

        delivery = self._delivery
        step = delivery.next_step(outbox)
        if isinstance(step, float):
            delivery.end_sending(seen)
            return step
        with no_fork():
            self._sender.prepare()
        if isinstance(step, Fetch):
            got = self._sender.fetch(self._switch_address or "")
            delivery.obey(outbox, got, self._switch_key)
            return 0.0
        answer = self._sender.send(step.batch)
        delivery.settle(outbox, step, answer)
        if answer.is_to_be_repeated:
            delivery.end_sending(seen)
        return 0.0

    def _wait(self, until: Callable[[], object], seconds: float | None = None) -> None:
        with self._recorder.changed:
            self._recorder.changed.wait_for(until, seconds)

    def _pause(self, seconds: float) -> None:
        self._wait(lambda: self._delivery.closed, seconds)

    def _reset_after_fork(self) -> None:
        self._writer = None
        self._started = False


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
    timeout : float
        Seconds for connecting, and for an answer.
    ingest_key : str, optional
        The key that the collector demands from this app. It comes with the app, so it identifies
        the app and not the user; it is sent with each batch, and never logged.
    dimensions : mapping of str to str, optional
        Facts about the app that reports carry in the clear, such as its platform, as named in
        metrics.toml. A value that it doesn't list is "other", or with `development` an error.
    switch : str or bool, optional
        Where to ask, at most once a day and only when something is sent anyway, whether metrics are
        off for now: an address, or True for the collector's own. By default nothing is asked. It
        can't turn anything on or raise an epsilon.
    switch_key : str, optional
        Public key, as `hubbub-collector token --switch` prints it: then only a switch that is
        signed with it is obeyed. Needs the extra: pip install 'hubbub[switch]'.

    Raises
    ------
    MetricError, SwitchError, ValueError
        At construction only, for a registry or argument that can't work.
    StateError, UnavailableError
        At construction with `development` only. Otherwise trouble with the state doesn't raise: if
        it is damaged, another application's, or its directory can't be one, the object is disabled
        and `status().disabled` says why; if it can't be used for now (a full disk, too many open
        files, no permission), it is tried again until it can.

    Examples
    --------
    >>> with Telemetry("metrics.toml", "https://telemetry.example.com", "state") as telemetry:
    ...     print(telemetry.preview("theme", "dark").refusal)
    None
    """

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        return self._flush(timeout)

    def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send what waits, for at most `timeout` seconds and until an attempt fails, then stop.

        What is left stays on disk. Later calls of `record` are dropped.
        """
        self._close(timeout)

    def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means.

        Raises
        ------
        StateError, UnavailableError
            If a file can't be removed.
        """
        return self._forget()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()


class AsyncTelemetry(BaseTelemetry):  # its constructor is the base's: numpydoc ignore=PR02
    """`Telemetry` for event loops: what takes time is done by threads, and awaited.

    Takes the parameters of `Telemetry`. Leaving its context, ``async with AsyncTelemetry(...) as
    telemetry``, closes it: that flushes for up to two seconds, and what is left stays on disk for
    the next start.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     endpoint = "https://telemetry.example.com"
    ...     async with AsyncTelemetry("metrics.toml", endpoint, "state") as telemetry:
    ...         return telemetry.preview("theme", "dark").refusal
    >>> print(asyncio.run(main()))
    None
    """

    async def flush(self, timeout: float = 10.0) -> bool:
        """See `Telemetry.flush`."""
        return await _off_loop(self._flush, timeout)

    async def close(self, timeout: float = EXIT_SECONDS) -> None:
        """See `Telemetry.close`; goes on if it is cancelled."""
        await _off_loop(self._close, timeout)

    async def forget(self) -> str:
        """See `Telemetry.forget`."""
        return await _off_loop(self._forget)

    async def __aenter__(self) -> Self:
        """Return the object itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()


async def _off_loop(work: Callable[_P, _Result], *args: _P.args, **kwargs: _P.kwargs) -> _Result:
    """Do work on a thread, or on this one if there can be no other."""
    import asyncio

    try:
        future = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    except RuntimeError:  # too many threads, or Python is shutting down
        return work(*args, **kwargs)
    return await future


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


@atexit.register
def _close_all() -> None:
    """Send what waits and end all threads; who still records stores that without them."""
    deadline = time.monotonic() + EXIT_SECONDS
    instances = [instance for instance in _instances if not instance._delivery.closed]
    for instance in instances:
        instance._send_what_waits(max(0.0, deadline - _WRITE_SECONDS - time.monotonic()))
        instance._end()
    for instance in instances:
        instance._join(deadline)


def _restart_in_child() -> None:
    for instance in list(_instances):
        instance._recorder.reset_after_fork()
        instance._delivery.reset_after_fork()
        instance._reset_after_fork()
        if is_orphaned():
            instance._recorder.disable(ORPHANED)


after_fork(_restart_in_child)
