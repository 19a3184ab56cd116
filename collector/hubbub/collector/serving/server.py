"""From settings to a running service, until SIGTERM or SIGINT; SIGHUP reads all files again.

One process does everything; or, with several workers, a supervisor does the upkeep and serves the
admin listener while the workers take reports. Each worker is a fresh interpreter. It reads from its
standard input what to do, and drains when that ends, for whatever reason. To its standard output it
writes where it listens or why it can't start, and then a beat of its event loop every so often. One
that ends is replaced; one that is silent is stopped or hangs, keeps the connections that the kernel
gives it waiting, and is killed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
import json
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

from hubbub.collector.config import Settings
from hubbub.collector.operations.logs import configure, lifecycle
from hubbub.collector.operations.metrics import Metrics, forget_gauges, share, shared_directory
from hubbub.collector.serving.connections import reserved_port
from hubbub.collector.serving.service import (
    Addresses,
    ServiceFiles,
    answering_not_ready,
    on_hangup,
    running_ingest,
    stop_event,
)
from hubbub.protocol import HubbubError, Registry
from hubbub.reporting import registry_ends
from hubbub.storage import Maintenance, StoreError, open_store, running_maintenance, why_to_wait

_LOOK_SECONDS = 1.0
"""How soon a collector serves once its store can be used."""
_START_SECONDS = 60.0  # a start takes a second; waiting for a busy store comes before
_PAUSE_SECONDS = 1.0  # a worker that fails at its start is tried again once a second
_KILL_SECONDS = 10.0  # beyond drain_seconds, to commit and to close the store
_BEAT_SECONDS = 0.1
_MISSED_BEATS = 50
"""A worker that has missed so many, in five seconds, hangs and is killed."""


def run(
    settings: Settings, reread: Callable[[], Settings], announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    `reread`: returns the settings as they are configured when it is called; can be pickled.
    `announce`: called with a line for each address, as soon as connections are accepted. Raises
    `HubbubError` if the registry is wrong or an address can't be listened on. Raises `StoreError`
    if the store can't be used.
    """
    files = ServiceFiles(settings, reread)
    with _sole_collector(settings.store):
        asyncio.run(_serve(files, announce))
    lifecycle.info("stopped")


async def _serve(files: ServiceFiles, announce: Callable[[str], None]) -> None:
    settings, registry, _ = files.current
    stop = stop_event()
    if not await _store_is_ready(settings, stop):
        return
    async with AsyncExitStack() as stack:
        directory = None
        if settings.workers > 1:
            directory = stack.enter_context(shared_directory())
            port = stack.enter_context(reserved_port(settings.host, settings.port))
            probe_port = settings.probe_port
            if probe_port is not None:
                probes = reserved_port(settings.probe_host, probe_port, "probe-")
                probe_port = stack.enter_context(probes)
            files.reserve(port, probe_port)
        metrics = Metrics(directory)
        store = await stack.enter_async_context(open_store(settings.store, create=True))
        await store.declare(registry.values())
        # What a service needs once, however many workers it has: upkeep and the admin listener.
        for finding in registry_ends(registry, dt.datetime.now(dt.UTC).date()):
            lifecycle.warning(finding.text, code=finding.code, about=finding.label)
        maintenance = Maintenance(
            store,
            deduplication_days=settings.deduplication_days,
            retention_days=settings.retention_days,
            seconds=settings.upkeep_seconds,
            report_days=settings.report_days,
            observe=lambda step, succeeded: metrics.upkeep(step, succeeded=succeeded),
        )
        await stack.enter_async_context(running_maintenance(maintenance))
        admin = None
        if settings.admin_port is not None:
            from hubbub.collector.serving.admin import running_admin_listener  # noqa: PLC0415

            admin = await stack.enter_async_context(
                running_admin_listener(settings.admin_port, files, store, metrics)
            )
        if directory is None:
            ingest = await stack.enter_async_context(running_ingest(files, store, metrics))
            addresses = ingest.addresses
            on_hangup(partial(files.reload, ingest.use, metrics))
        else:
            workers = _Workers(files, directory)
            addresses = await stack.enter_async_context(workers.running())

            async def use(_settings: Settings, registry: Registry) -> None:
                await store.declare(registry.values())
                workers.hang_up()  # each says what it has reloaded

            on_hangup(partial(files.reload, use, metrics, is_logged=False))
        announce(f"listening on {addresses.public}")
        if admin:
            announce(f"admin on {admin}")
        if addresses.probes:
            announce(f"probes on {addresses.probes}")
        lifecycle.info("started", address=addresses.public, admin=admin, probes=addresses.probes)
        await stop.wait()


async def _store_is_ready(settings: Settings, stop: asyncio.Event) -> bool:
    """Wait for a store that can't be used yet; return whether to go on.

    Meanwhile probes are answered: alive, but not ready.

    Raises `StoreError` if the store won't be usable.
    """
    warned = None
    async with AsyncExitStack() as stack:
        while why := await why_to_wait(settings.store):
            if stop.is_set():
                return False
            if warned is None:
                await stack.enter_async_context(answering_not_ready(settings))
            if why != warned:
                lifecycle.warning(f"waiting: {why}")
            warned = why
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
    return not stop.is_set()


@contextlib.contextmanager
def _sole_collector(url: str) -> Iterator[None]:
    """Keep other collectors from the store at an address, if only one may use it.

    The lock is on a file next to SQLite's, because closing that anywhere in this process would give
    up SQLite's own locks. It goes with the process, however that ends, and keeps no tools out; the
    file stays. Raises `StoreError` if another collector has the store.
    """
    path = url.removeprefix("sqlite:///")
    if path in {url, "", ":memory:"} or "?" in path:
        yield
        return
    file = Path(path).resolve()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError, PermissionError):  # as the store will say
            lock = stack.enter_context(file.with_name(f"{file.name}-lock").open("ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError.at(
                    url,
                    "another collector serves it; an SQLite file takes one collector, which may "
                    "have several workers, and a PostgreSQL takes several collectors",
                ) from None
        yield


# The supervisor's side of workers


class WorkerError(HubbubError):
    """A worker process didn't start."""


class _Workers:
    """The worker processes behind one port.

    `files`: what is in force there is so for a worker that replaces another, even if a file has
    changed. `counters`: the directory where all processes count.
    """

    def __init__(self, files: ServiceFiles, counters: Path) -> None:
        self._files = files
        self._counters = counters
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Addresses]:
        """Start all workers, and yield where they listen; ends when all have drained.

        Raises `WorkerError` if one can't start.
        """
        settings = self._files.current.settings
        numbers = range(settings.workers)
        watchers: list[asyncio.Task[None]] = []
        try:
            addresses = await asyncio.gather(*map(self._start, numbers))
            watchers = [asyncio.create_task(self._watch(number)) for number in numbers]
            yield addresses[0]
        finally:
            self._stopping.set()
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_seconds + _KILL_SECONDS):
                    await asyncio.gather(*(it.wait() for it in self._processes.values()))
            self._signal(signal.SIGKILL)
            await asyncio.gather(*watchers)

    def hang_up(self) -> None:
        """Let each worker read the registry, the keys and the certificate again."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _start(self, number: int) -> Addresses:
        code = f"from {__name__} import work; work()"
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, stdin=PIPE, stdout=PIPE
            )
        except OSError as error:
            raise WorkerError(f"worker didn't start: {error.strerror}") from error
        self._processes[number] = process
        task = pickle.dumps((self._files, self._counters, str(number)))
        cast("asyncio.StreamWriter", process.stdin).write(task)
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await _said_by(process).readline()
        except TimeoutError:
            process.kill()
            raise WorkerError("worker didn't start: took too long") from None
        found = json.loads(line) if line else "it ended without an answer"
        if isinstance(found, str):
            raise WorkerError(f"worker didn't start: {found}")
        return Addresses(*found)

    async def _watch(self, number: int) -> None:
        """Replace a worker whenever it ends by itself."""
        while True:
            exit_code = await self._end_of(self._processes[number])
            forget_gauges(self._counters, str(number))
            if self._stopping.is_set():
                return
            lifecycle.error("worker ended and is replaced", exit_code=exit_code)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _PAUSE_SECONDS)
                return
            try:
                await self._start(number)
            except WorkerError as error:
                lifecycle.error("worker not replaced", fault=str(error))

    async def _end_of(self, process: Process) -> int:
        """Wait until a worker has ended; kill it if it misses beats.

        They are counted in looks and not in seconds: when all processes were stopped together, and
        go on, none has missed any.
        """
        missed = 0
        while True:
            try:
                async with asyncio.timeout(_BEAT_SECONDS):
                    beats = await _said_by(process).read(_MISSED_BEATS)
            except TimeoutError:
                missed += 1
                if missed >= _MISSED_BEATS and not self._stopping.is_set():
                    lifecycle.error("worker is stopped or hangs and is killed")
                    process.kill()
                    missed = 0
                continue
            if not beats:
                return await process.wait()
            missed = 0


def _said_by(process: Process) -> asyncio.StreamReader:
    return cast("asyncio.StreamReader", process.stdout)  # as it is a pipe


# A worker's side


def work() -> None:
    """Run a worker process."""
    try:
        files, counters, name = pickle.load(sys.stdin.buffer)  # noqa: S301 (a supervisor's)
    except (EOFError, pickle.UnpicklingError):  # the supervisor has ended
        return
    configure(files.current.settings.log_level)
    try:
        share(counters, name)
        asyncio.run(_work(files, Metrics(counters)))
    except HubbubError as error:
        _say(json.dumps(str(error)))


async def _work(files: ServiceFiles, metrics: Metrics) -> None:
    stop = stop_event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    async with (
        open_store(files.current.settings.store, create=True) as store,
        running_ingest(files, store, metrics) as ingest,
    ):
        on_hangup(partial(files.reload, ingest.use, metrics))
        _say(json.dumps(ingest.addresses) + "\n")
        heart = asyncio.create_task(_heartbeat())  # to the end of the last request
        await stop.wait()
    heart.cancel()


async def _heartbeat() -> None:
    os.set_blocking(sys.stdout.fileno(), False)  # a supervisor that is stopped stops no worker
    while True:
        _say(".")
        await asyncio.sleep(_BEAT_SECONDS)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the supervisor has ended, which ends this process, too
        os.write(sys.stdout.fileno(), text.encode())
