"""Several worker processes behind one port, watched by their supervisor.

Each is a fresh interpreter (spawned, so that it inherits nothing) with a pipe to the supervisor: it
sends its address or why it can't start, and drains when the other end closes, for whatever reason.
A worker that dies is replaced. Each counts the beats of its event loop in memory that it shares
with the supervisor; one whose count stands still is stopped or hangs, keeps the connections that
the kernel gives it waiting, and is killed and replaced. Workers import this module and not
`server`, so they carry neither the admin listener nor its templates.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple, Self

from hubbub.collector.operations.logs import configure, lifecycle
from hubbub.collector.operations.metrics import Metrics, forget_gauges, share
from hubbub.collector.serving.service import (
    Addresses,
    Ports,
    ServiceFiles,
    on_hangup,
    running_ingest,
    stop_event,
)
from hubbub.protocol import HubbubError
from hubbub.storage import open_store

_START_SECONDS = 60.0  # a start takes a second; a store's migration comes before
_PAUSE_SECONDS = 1.0  # a worker that fails at its start is tried again once a second
_KILL_SECONDS = 10.0  # beyond drain_seconds, to commit and to close the store
_BEAT_SECONDS = 0.1  # so soon it is seen that a worker has ended
_MISSED_BEATS = 50
"""A worker that has missed so many, in five seconds, hangs and is killed."""


_spawn = multiprocessing.get_context("spawn")


class WorkerError(HubbubError):
    """A worker process didn't start."""


class _Worker(NamedTuple):
    """A worker process, the supervisor's end of its pipe, and how often its heart has beaten."""

    process: SpawnProcess
    pipe: Connection
    beats: ctypes.c_ulong


class Workers:
    """The worker processes; an asynchronous context that ends when all have drained.

    `files`: what is in force there is so for a worker that replaces another, even if a file has
    changed. `counters`: the directory where all processes count. `ports`: the ports that they
    share, reserved by the supervisor. `addresses`: where they listen.
    """

    def __init__(self, files: ServiceFiles, counters: Path, ports: Ports) -> None:
        self._settings = files.current.settings
        self._files = files
        self._counters = counters
        self._ports = ports
        self._workers: dict[int, _Worker] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.addresses = Addresses("", None)

    async def __aenter__(self) -> Self:
        """Start all workers (raises WorkerError if one can't)."""
        numbers = range(self._settings.workers)
        try:
            addresses = await asyncio.gather(*map(self._start, numbers))
        except WorkerError:
            await self._stop()
            raise
        self.addresses = addresses[0]
        self._watchers = [asyncio.create_task(self._watch(number)) for number in numbers]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._stop()

    async def hang_up(self) -> None:
        """Let each worker read the registry, the keys and the certificate again."""
        for process, *_ in self._workers.values():
            if process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGHUP)

    async def _start(self, number: int) -> Addresses:
        ours, theirs = _spawn.Pipe()
        beats = _spawn.RawValue(ctypes.c_ulong, 0)
        process = _spawn.Process(
            target=_work,
            args=(self._files, self._counters, str(number), self._ports, theirs, beats),
            daemon=True,
        )
        try:
            process.start()
        except OSError as error:  # it ended before it had read what to do
            raise WorkerError(f"worker didn't start: {error.strerror}") from error
        finally:
            theirs.close()
        self._workers[number] = _Worker(process, ours, beats)
        return await asyncio.to_thread(_await_start, ours)

    async def _watch(self, number: int) -> None:
        """Replace a worker whenever it ends by itself."""
        while True:
            await self._end_of(self._workers[number])
            forget_gauges(self._counters, str(number))
            if self._stopping.is_set():
                return
            exit_code = self._workers[number].process.exitcode
            lifecycle.error("worker ended and is replaced", exit_code=exit_code)
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _PAUSE_SECONDS)
                    return
                try:
                    await self._start(number)
                    break
                except WorkerError as error:
                    lifecycle.error("worker not replaced", fault=str(error))
                    forget_gauges(self._counters, str(number))

    async def _end_of(self, worker: _Worker) -> None:
        """Wait until a worker has ended; kill it if it misses beats.

        They are counted in looks and not in seconds: when all processes were stopped together, and
        go on, none has missed any.
        """
        before, missed = worker.beats.value, 0
        while worker.process.is_alive():
            await asyncio.sleep(_BEAT_SECONDS)
            missed = missed + 1 if worker.beats.value == before else 0
            before = worker.beats.value
            if missed >= _MISSED_BEATS and not self._stopping.is_set():
                lifecycle.error("worker is stopped or hangs and is killed")
                worker.process.kill()
                missed = 0
        worker.pipe.close()

    async def _stop(self) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds + _KILL_SECONDS):
                await asyncio.gather(*map(self._end_of, self._workers.values()))
        for worker in self._workers.values():
            worker.process.kill()
        await asyncio.gather(*self._watchers)


def _await_start(pipe: Connection) -> Addresses:
    """Return the addresses that a new worker sends (raises WorkerError if it sends a fault)."""
    try:
        sent: Addresses | str = pipe.recv() if pipe.poll(_START_SECONDS) else "took too long"
    except (EOFError, OSError):
        sent = "it ended without an answer"
    if isinstance(sent, str):
        raise WorkerError(f"worker didn't start: {sent}")
    return sent


def _work(
    files: ServiceFiles,
    counters: Path,
    name: str,
    ports: Ports,
    pipe: Connection,
    beats: ctypes.c_ulong,
) -> None:
    """Run a worker process."""
    settings = files.current.settings
    configure(settings.log_level)
    try:
        share(counters, name)
        asyncio.run(_serve(files, counters, ports, pipe, beats))
    except HubbubError as error:
        with contextlib.suppress(OSError):
            pipe.send(str(error))


async def _serve(
    files: ServiceFiles, counters: Path, ports: Ports, pipe: Connection, beats: ctypes.c_ulong
) -> None:
    stop = stop_event()
    heart = asyncio.create_task(_heartbeat(beats))  # to the end of the last request
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    async with (
        open_store(files.current.settings.store, create=True) as store,
        running_ingest(files, store, Metrics(counters), ports) as ingest,
    ):
        on_hangup(ingest.reload)
        with contextlib.suppress(OSError):  # the supervisor has ended, which is a reason to stop
            pipe.send(ingest.addresses)
        await stop.wait()
    heart.cancel()


async def _heartbeat(beats: ctypes.c_ulong) -> None:
    while True:
        beats.value += 1
        await asyncio.sleep(_BEAT_SECONDS)
