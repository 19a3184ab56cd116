"""One serving process put together: registry, store, group commit, routes, listener and signals.

Invariant: it shuts down in this order. Accept nothing new, answer what is under way, stop the
writer, close the store.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files as resources
from typing import NamedTuple

from hubbub.collector.access.admission import LoadLimiter
from hubbub.collector.config.settings import Settings
from hubbub.collector.http1 import Head, HttpResponse
from hubbub.collector.ingest.commit import Commit, GroupCommit, running_group_commit
from hubbub.collector.ingest.frontend import Frontend
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.ingest.slice_limit import SliceLimit
from hubbub.collector.operations.logs import LIFECYCLE, get_logger
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.serving.connections import Connections
from hubbub.collector.serving.listening import Listener, listening, room_for_connections
from hubbub.collector.serving.routes import NOT_READY, Probes, Routes, preflight, refuse_for_now
from hubbub.collector.serving.switch import ServedSwitch, read_switch
from hubbub.collector.serving.tls import load_certificate, tls_context
from hubbub.protocol.errors import HubbubError
from hubbub.protocol.registry import Registry, check_compatible
from hubbub.storage import Store

_GAUGE_SECONDS = 1.0  # far shorter than a scrape's interval
_PROBE_CONNECTIONS = 64  # orchestrators keep one or two
_PROBE_BYTES = 2**20
"""For orchestrators and who else reaches that listener: some connections and short heads."""

_FILTER_SECONDS = 30.0
"""How long the first request may wait for filters of batch ids; without them it costs more."""

_OBJECTS_A_COLLECTION = 20_000
"""Python's own 700 takes a tenth of the time; see the function that sets it."""
_SWITCH_SECONDS = 0.0005
"""A tenth of Python's own: the loop waits that long for threads that compute."""
_OPENAPI = HttpResponse(200, resources("hubbub.collector").joinpath("openapi.json").read_bytes())
_lifecycle = get_logger(LIFECYCLE)


RELOADED = ("ingest_keys", "anonymous", "admin_tokens")
"""The settings that are read again; a change of any other needs a restart."""


class InForce(NamedTuple):
    """What a service goes by."""

    settings: Settings
    registry: Registry


class ServiceFiles:
    """The files of a service, and what they held when they were last in order.

    `reread`: returns the settings as they are configured now. Worker processes get a copy.
    `current`: set it to what `read` returned, once that is in force. Raises `MetricError,
    SwitchError` if the registry, or the switch, is wrong.
    """

    def __init__(self, settings: Settings, reread: Callable[[], Settings]) -> None:
        self._reread = reread
        self.current = InForce(settings, Registry.load(settings.metrics))
        if settings.switch:  # before there are processes that would serve it
            read_switch(settings.switch, self.current.registry.application)

    def read(self) -> tuple[InForce, list[str]]:
        """Read the registry, the keys and the tokens again.

        `unheeded`: other settings that have changed, which needs a restart. Raises `MetricError` if
        the registry is wrong, or changes what an existing version means. Raises `ConfigError` if
        the configuration can't work.
        """
        settings, before = self.current
        registry = Registry.load(settings.metrics)
        check_compatible(before, registry)
        found = self._reread()
        changed = {name: value for name, value in found if value != getattr(settings, name)}
        update = {name: value for name, value in changed.items() if name in RELOADED}
        in_force = InForce(settings.model_copy(update=update), registry)
        return in_force, sorted(changed.keys() - update.keys())


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


class Ports(NamedTuple):
    """Where a process listens, which may have been reserved for several."""

    public: int  # where reports are taken
    probes: int | None  # where only probes are answered


class Addresses(NamedTuple):
    """Where a process listens; as `Ports`."""

    public: str
    probes: str | None


def _describe(_head: Head) -> HttpResponse:
    return _OPENAPI


@dataclass(frozen=True)
class Ingest:
    """The public side of a serving process; use `running_ingest`."""

    files: ServiceFiles
    store: Store
    metrics: Metrics
    frontend: Frontend
    routes: Routes
    probes: Probes
    commit: GroupCommit
    limiter: LoadLimiter
    validator: ReportValidator
    tls: ssl.SSLContext | None
    listener: Listener
    addresses: Addresses

    async def reload(self) -> None:
        """Read registry, keys and certificate again; on any fault keep what there is."""
        try:
            found, unheeded = self.files.read()
            settings, registry = found
            reader, slice_limit = await _make_reader(settings, registry, self.store)
            if self.tls and settings.tls_certificate and settings.tls_key:
                load_certificate(self.tls, settings.tls_certificate, settings.tls_key)
        except HubbubError as error:
            _lifecycle.error("not reloaded", fault=str(error))
            self.metrics.reloaded(succeeded=False)
            return
        self.files.current = found
        self.validator.use(registry)
        self.frontend.use(settings, reader, slice_limit)
        self.metrics.reloaded(succeeded=True)
        _lifecycle.info("reloaded", metrics=len(registry), keys=len(settings.ingest_keys))
        if unheeded:
            _lifecycle.warning("changed settings need a restart", settings=unheeded)

    async def drain(self) -> None:
        """Accept nothing new and wait for what is under way, as long as is allowed."""
        _lifecycle.info("draining")
        self.routes.draining = self.probes.draining = True
        self.listener.stop_accepting()
        self.commit.end_waiting()
        seconds = self.files.current.settings.drain_seconds
        if not await self.limiter.wait_until_empty(seconds):
            _lifecycle.warning("gave up requests that didn't end within drain_seconds")


async def _make_reader(
    settings: Settings, registry: Registry, store: Store
) -> tuple[BatchReader, SliceLimit]:
    """Declare a registry's metrics in the store; return what reads and bounds their batches."""
    await store.declare(registry.values())
    slice_limit = SliceLimit(registry.values())
    await slice_limit.load(store, dt.datetime.now(dt.UTC).date())
    reader = BatchReader(
        registry,
        await store.declared(),
        settings.max_reports,
    )
    return reader, slice_limit


@asynccontextmanager
async def running_ingest(
    files: ServiceFiles, store: Store, metrics: Metrics, ports: Ports
) -> AsyncIterator[Ingest]:
    """Serve the public routes as long as the context is open; leaving it drains."""
    tls, (settings, registry) = None, files.current
    room = room_for_connections(settings.max_connections)
    if room.most < settings.max_connections:
        _lifecycle.warning("fewer connections, as the limit of open files is low", most=room.most)
    if settings.tls_certificate and settings.tls_key:
        tls = tls_context(settings.tls_certificate, settings.tls_key)
    reader, slice_limit = await _make_reader(settings, registry, store)
    limiter = LoadLimiter(
        settings.max_requests, settings.max_waiting_bytes, settings.retry_after_seconds
    )
    validator = ReportValidator(registry, settings, metrics)
    async with AsyncExitStack() as stack:
        commit = await stack.enter_async_context(
            running_group_commit(store, partial(_count, metrics, validator))
        )
        frontend = Frontend(
            settings, reader, slice_limit, store, commit, limiter, validator, metrics
        )
        probes = Probes(settings, store, commit)
        switch = ServedSwitch(settings.switch, registry.application) if settings.switch else None
        routes = Routes(
            {
                "/v1/reports": {"POST": frontend.begin}
                | ({"OPTIONS": preflight} if settings.cors_origins else {}),
                "/openapi.json": {"GET": _describe, "HEAD": _describe},
                **({"/v1/switch": {"GET": switch.get, "HEAD": switch.get}} if switch else {}),
                **probes.routes,
            },
            metrics,
            settings.retry_after_seconds,
            settings.cors_origins,
        )
        connections = Connections(
            routes,
            limiter,
            most=room.most,
            most_of_address=settings.max_connections_per_address,
            idle_seconds=settings.header_seconds,
            send_seconds=settings.body_seconds,
            turned_away=lambda: metrics.shed("connections"),
            tls=tls,
        )
        gauges = asyncio.create_task(_update_gauges(metrics, commit, connections, switch))
        stack.callback(gauges.cancel)
        probed = await stack.enter_async_context(_probed(settings, metrics, probes, ports.probes))
        listener = await stack.enter_async_context(
            listening(
                connections,
                settings.host,
                ports.public,
                scheme="https" if tls else "http",
                shared=settings.workers > 1,
                backlog=room.backlog,
            )
        )
        _tune_interpreter()
        ingest = Ingest(
            files,
            store,
            metrics,
            frontend,
            routes,
            probes,
            commit,
            limiter,
            validator,
            tls,
            listener,
            Addresses(listener.address, probed),
        )
        try:
            yield ingest
        finally:
            await ingest.drain()


@asynccontextmanager
async def _probed(
    settings: Settings, metrics: Metrics, probes: Probes, port: int | None
) -> AsyncIterator[str | None]:
    """Answer probes on a listener of their own, if there is to be one; yield its address.

    No flood of connections on the public one keeps an orchestrator from this one.
    """
    if port is None:
        yield None
        return
    routes = Routes(probes.routes, metrics, settings.retry_after_seconds)
    connections = _few_connections(routes, settings, metrics)
    async with listening(
        connections, settings.probe_host, port, kind="probe-", shared=settings.workers > 1
    ) as listener:
        yield listener.address


@asynccontextmanager
async def answering_not_ready(settings: Settings) -> AsyncIterator[None]:
    """Answer probes, and 503 to reports, where a service will listen."""
    metrics = Metrics()
    routes = Routes(
        {**NOT_READY, "/v1/reports": {"POST": refuse_for_now}},
        metrics,
        settings.retry_after_seconds,
        settings.cors_origins,
    )
    tls = None
    if settings.tls_certificate and settings.tls_key:
        tls = tls_context(settings.tls_certificate, settings.tls_key)
    async with AsyncExitStack() as stack:
        public = _few_connections(routes, settings, metrics, tls)
        await stack.enter_async_context(listening(public, settings.host, settings.port))
        if settings.probe_port is not None:
            probed = _few_connections(routes, settings, metrics)
            await stack.enter_async_context(
                listening(probed, settings.probe_host, settings.probe_port, kind="probe-")
            )
        yield


def _few_connections(
    routes: Routes, settings: Settings, metrics: Metrics, tls: ssl.SSLContext | None = None
) -> Connections:
    """Return connections for orchestrators and who else reaches them."""
    return Connections(
        routes,
        LoadLimiter(0, _PROBE_BYTES, settings.retry_after_seconds),
        most=_PROBE_CONNECTIONS,
        most_of_address=_PROBE_CONNECTIONS,
        idle_seconds=settings.header_seconds,
        send_seconds=settings.header_seconds,
        turned_away=lambda: metrics.shed("probe_connections"),
        tls=tls,
    )


def _count(metrics: Metrics, validator: ReportValidator, commit: Commit) -> None:
    """Count a transaction, once its batches have been answered."""
    stored = 0
    for batch in commit.batches:
        for key, records in batch.records.items():
            metrics.reports(key.metric, key.version, records.reports)
            stored += records.reports
    metrics.duplicates(commit.duplicates)
    metrics.committed(len(commit.batches), stored, commit.seconds)
    validator.flag(commit.batches)


def _tune_interpreter() -> None:
    """Adapt the interpreter to a busy event loop beside a thread that writes.

    Requests make some hundred objects each, nearly all of which are freed by reference counting.
    Collecting cycles among them at the usual rate takes a tenth of the time, so it is done seldom,
    and never among what the start left. The writer needs the interpreter for moments only and may
    interrupt the event loop ten times as soon as usual: the slowest answers come a third sooner.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    sys.setswitchinterval(_SWITCH_SECONDS)


async def _update_gauges(
    metrics: Metrics, commit: GroupCommit, connections: Connections, switch: ServedSwitch | None
) -> None:
    while True:
        if switch:
            _look_at(switch, metrics)
        metrics.queue_depth(commit.depth)
        metrics.connections(connections.open)
        await asyncio.sleep(_GAUGE_SECONDS)


def _look_at(switch: ServedSwitch, metrics: Metrics) -> None:
    """Serve the switch's file as it is now; on any fault go on with what there is."""
    try:
        if switch.look():
            metrics.switch_read(succeeded=True)
            _lifecycle.info("switch read")
    except HubbubError as error:
        metrics.switch_read(succeeded=False)
        _lifecycle.error("switch not read", fault=str(error))
