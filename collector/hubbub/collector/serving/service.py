"""One serving process put together: registry, store, group commit, routes, listeners and signals.

Invariant: it shuts down in this order. Accept nothing new, answer what is under way, stop the
writer, close the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime as dt
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hubbub.collector.config import Settings
from hubbub.collector.ingest.commit import running_group_commit
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.validator import ReportValidator, SliceLimit
from hubbub.collector.operations.logs import lifecycle
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import Answer
from hubbub.collector.serving.app import (
    NOT_READY,
    OPENAPI,
    PREFLIGHT,
    App,
    Probes,
    Reports,
    Routes,
    reading,
    refuse_for_now,
)
from hubbub.collector.serving.connections import (
    Connections,
    Limits,
    load_certificate,
    room_for_connections,
    tls_context,
)
from hubbub.protocol import (
    MOST_BYTES,
    HubbubError,
    Registry,
    SwitchError,
    SwitchFile,
    check_compatible,
)
from hubbub.storage import Store

_PROBE_BYTES = 2**20  # probes have short heads, and no bodies
_OBJECTS_A_COLLECTION = 20_000  # Python's own 700 takes a tenth of the time
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 2**18  # mallopt(3)
"""glibc raises its own threshold with each larger piece that is freed.

At 64 KiB a request faults in three pages, at 256 KiB one; a flood takes as much memory with either.
"""
_SWITCH_SECONDS = 0.0005  # a tenth of Python's own
RELOADED = ("ingest_keys", "anonymous", "admin_tokens")
"""The settings that are read again; a change of any other needs a restart."""


Use = Callable[[Settings, Registry], Awaitable[None]]
"""Puts keys and a registry in force; raises `HubbubError` if that can't be."""


class ActiveConfig(NamedTuple):
    """The configuration that a service uses."""

    settings: Settings
    registry: Registry
    switch: bytes | None  # the bytes of the switch's file, if there is one


class ServiceFiles:
    """The files of a service, and what they held when they were last in order.

    `reread`: returns the settings as they are configured now. Worker processes get a copy. Raises
    `MetricError, SwitchError` if the registry, or the switch, is wrong.
    """

    def __init__(self, settings: Settings, reread: Callable[[], Settings]) -> None:
        self._reread = reread
        self._configured = settings
        self.current = _load(settings)

    def reserve(self, port: int, probe_port: int | None) -> None:
        """Listen on these ports, which were reserved for several processes."""
        ports = {"port": port, "probe_port": probe_port}
        settings = self.current.settings.model_copy(update=ports)
        self.current = self.current._replace(settings=settings)

    async def reload(self, use: Use, metrics: Metrics, *, is_logged: bool = True) -> None:
        """Read the registry, the switch, the keys and the tokens again, and use them.

        On any fault, as if the registry changes what an existing version means, what was in force
        stays.
        """
        try:
            new = self._reread()
            update = {name: getattr(new, name) for name in RELOADED}
            found = _load(self.current.settings.model_copy(update=update))
            check_compatible(self.current.registry, found.registry)
            await use(found.settings, found.registry)
        except HubbubError as error:
            lifecycle.error("not reloaded", fault=str(error))
            metrics.reloaded(succeeded=False)
            return
        self.current = found
        metrics.reloaded(succeeded=True)
        if is_logged:
            keys = len(found.settings.ingest_keys)
            lifecycle.info("reloaded", metrics=len(found.registry), keys=keys)
            changed = {name for name, value in new if value != getattr(self._configured, name)}
            if unheeded := sorted(changed - update.keys()):
                lifecycle.warning("changed settings need a restart", settings=unheeded)


def _load(settings: Settings) -> ActiveConfig:
    registry = Registry.load(settings.metrics)
    switch = _read_switch(settings.switch, registry.application) if settings.switch else None
    return ActiveConfig(settings, registry, switch)


def _read_switch(path: Path, application: str) -> bytes:
    """Return the bytes of a switch's file.

    Raises `SwitchError` if it can't be read, isn't a switch that is obeyed now, or is another
    application's.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        SwitchFile.parse(data).check(application, None, time.time())
    except OSError as error:
        raise SwitchError(f"{path}: {error.strerror or error}") from error
    except SwitchError as error:
        raise SwitchError(f"{path}: {error}") from error
    return data


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def on_hangup(reload: Callable[[], Awaitable[None]]) -> None:
    """Call a coroutine function on each SIGHUP, one call after the other."""
    loop = asyncio.get_running_loop()
    turn = asyncio.Lock()
    tasks: set[asyncio.Task[None]] = set()

    async def take_turn() -> None:
        async with turn:
            await reload()

    def begin() -> None:
        task = loop.create_task(take_turn())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)


class Addresses(NamedTuple):
    """Where a process listens."""

    public: str  # where reports are taken
    probes: str | None  # where only probes are answered


class Ingest(NamedTuple):
    """The public side of a serving process."""

    use: Use
    addresses: Addresses
    connections: Connections


@asynccontextmanager
async def running_ingest(
    files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[Ingest]:
    """Serve the public routes as long as the context is open; leaving it drains."""
    settings, registry, _ = files.current
    most, backlog = room_for_connections(settings.max_connections)
    if most < settings.max_connections:
        lifecycle.warning("fewer connections, as the limit of open files is low", most=most)
    tls = tls_context(settings)
    validator = ReportValidator(settings, metrics)
    async with AsyncExitStack() as stack:
        commit = await stack.enter_async_context(running_group_commit(store, validator.observe))
        reports = Reports(settings, commit, validator, metrics)
        probes = Probes(settings, store, commit)

        async def use(settings: Settings, registry: Registry) -> None:
            await store.declare(registry.values())
            slice_limit = SliceLimit(registry.values())
            await slice_limit.load(store, dt.datetime.now(dt.UTC).date())
            reader = BatchReader(registry, await store.declared(), settings.max_reports)
            if tls:
                load_certificate(tls, settings)
            validator.use(registry)
            reports.use(settings, reader, slice_limit)

        await use(settings, registry)

        async def get_switch(_request: object) -> Answer:
            # Caches on the way keep it for at most five minutes.
            fields = (("Cache-Control", "max-age=300"),)
            return Answer(200, files.current.switch or b"", "text/plain; charset=utf-8", fields)

        routes: Routes = {
            "/v1/reports": {"POST": reports.post}
            | ({"OPTIONS": PREFLIGHT} if settings.cors_origins else {}),
            "/openapi.json": reading(OPENAPI),
            **({"/v1/switch": reading(get_switch)} if settings.switch else {}),
            **probes.routes,
        }
        limits = Limits(
            most,
            settings.max_connections_per_address,
            settings.max_waiting_bytes,
            settings.header_seconds,
            settings.body_seconds,
        )
        app = App(routes, metrics, settings, settings.cors_origins)
        connections = Connections(app.handle, limits, metrics, tls=tls)
        await probes.look()
        looking = asyncio.create_task(probes.watch())
        stack.callback(looking.cancel)
        probed = await stack.enter_async_context(
            _answering_probes(probes.routes, settings, metrics)
        )
        shared = settings.workers > 1
        address = await stack.enter_async_context(
            connections.listening(settings.host, settings.port, shared=shared, backlog=backlog)
        )
        _tune_interpreter()
        try:
            yield Ingest(use, Addresses(address, probed), connections)
        finally:
            lifecycle.info("draining")
            app.draining = probes.draining = True
            connections.stop_accepting()
            commit.end_waiting()
            if not await reports.wait_until_over(settings.drain_seconds):
                lifecycle.warning("gave up requests that didn't end within drain_seconds")


@asynccontextmanager
async def _answering_probes(
    routes: Routes, settings: Settings, metrics: Metrics
) -> AsyncIterator[str | None]:
    """Answer probes from a thread with an event loop of its own, which no flood keeps busy."""
    if (port := settings.probe_port) is None:
        yield None
        return
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with _few_listening(routes, settings, metrics, port) as address:
            loop = asyncio.get_running_loop()
            started.set_result((address, partial(loop.call_soon_threadsafe, stop.set)))
            await stop.wait()

    serving = asyncio.create_task(asyncio.to_thread(asyncio.run, serve()))
    either: list[asyncio.Future[Any]] = [serving, asyncio.wrap_future(started)]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        await serving  # raises
    address, stop_serving = started.result()
    try:
        yield address
    finally:
        stop_serving()
        await serving


@asynccontextmanager
async def answering_not_ready(settings: Settings) -> AsyncIterator[None]:
    """Answer probes, and 503 to reports, where a service will listen."""
    metrics = Metrics()
    public = {**NOT_READY, "/v1/reports": {"POST": refuse_for_now}}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            _few_listening(public, settings, metrics, settings.port, is_public=True)
        )
        if settings.probe_port is not None:
            await stack.enter_async_context(
                _few_listening(NOT_READY, settings, metrics, settings.probe_port)
            )
        yield


@asynccontextmanager
async def _few_listening(
    routes: Routes, settings: Settings, metrics: Metrics, port: int, *, is_public: bool = False
) -> AsyncIterator[str]:
    """Listen for orchestrators and who else reaches them."""
    app = App(routes, metrics, settings)
    limits = Limits.few(settings, _PROBE_BYTES)
    if is_public:
        host, connections = (
            settings.host,
            Connections(app.handle, limits, metrics, tls=tls_context(settings)),
        )
    else:
        host, connections = settings.probe_host, Connections(app.handle, limits, metrics, "probe-")
    async with connections.listening(host, port, shared=settings.workers > 1) as address:
        yield address


def _tune_interpreter() -> None:
    """Adapt the interpreter to a busy event loop and a thread that writes.

    Requests make some hundred objects each, nearly all of which are freed by reference counting.
    Collecting cycles among them at the usual rate takes a tenth of the time, so it is done seldom,
    and never among what the start left. The writer needs the interpreter for moments only and may
    interrupt the event loop ten times as soon as usual: the slowest answers come a third sooner.
    Larger bodies are mapped one by one, as they would leave holes among what small requests hold:
    under a flood a tenth of all memory.
    """
    with contextlib.suppress(AttributeError):  # other C libraries have no such knob
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    sys.setswitchinterval(_SWITCH_SECONDS)
