"""One serving process put together: store, group commit, routes and listener.

What a maintainer must not break is the order of the end: accept nothing new, answer what is under
way, then stop the writer, then close the store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hubbub.client.errors import HubbubError
from hubbub.client.metrics import Registry
from hubbub.collector.access.admission import Admission
from hubbub.collector.access.shedding import Gate
from hubbub.collector.config.settings import Settings
from hubbub.collector.errors import StoreError
from hubbub.collector.ingest.commit import Commit, GroupCommit, running_group_commit
from hubbub.collector.ingest.frontend import Frontend, Limits
from hubbub.collector.ingest.openapi import openapi_document
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.readiness import Readiness
from hubbub.collector.ingest.scrutiny import Scrutiny
from hubbub.collector.operations.instruments import Instruments
from hubbub.collector.operations.logs import LIFE, get_logger
from hubbub.collector.serving.connections import Connections
from hubbub.collector.serving.listening import (
    Listener,
    allow_open_files,
    listening,
    load_certificate,
    tls_context,
)
from hubbub.collector.serving.registry_source import RegistrySource
from hubbub.collector.store import Store

_GAUGE_SECONDS = 1.0
_OBJECTS_A_COLLECTION = 20_000
_SWITCH_SECONDS = 0.0005
_OTHER_FILES = 256
_life = get_logger(LIFE)


class Ingest:
    """The public side of a serving process; use `running_ingest`.

    Attributes
    ----------
    listener : Listener
    """

    def __init__(
        self,
        settings: Settings,
        source: RegistrySource,
        store: Store,
        frontend: Frontend,
        gate: Gate,
        scrutiny: Scrutiny,
        listener: Listener,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.listener = listener
        self._settings = settings
        self._source = source
        self._store = store
        self._frontend = frontend
        self._gate = gate
        self._scrutiny = scrutiny
        self._tls = tls

    async def reload(self) -> None:
        """Read the registry and the certificate again; on any fault keep what there is."""
        settings = self._settings
        try:
            registry = self._source.read()
            reader = await make_reader(settings, registry, self._store)
            if self._tls and settings.tls_certificate and settings.tls_key:
                load_certificate(self._tls, settings.tls_certificate, settings.tls_key)
        except (HubbubError, StoreError) as error:
            _life.error("not reloaded", fault=str(error))
            return
        self._source.current = registry
        self._scrutiny.use(registry)
        self._frontend.reader = reader
        self._frontend.description = _description(settings, registry)
        _life.info("reloaded", metrics=len(registry))

    async def drain(self) -> None:
        """Accept nothing new and wait for what is under way, as long as is allowed."""
        _life.info("draining")
        self._frontend.draining = True
        self.listener.stop_accepting()
        if not await self._gate.wait_until_empty(self._settings.drain_seconds):
            _life.warning("gave up requests that didn't end within drain_seconds")


def _description(settings: Settings, registry: Registry) -> bytes:
    return json.dumps(openapi_document(settings, registry)).encode()


async def make_reader(settings: Settings, registry: Registry, store: Store) -> BatchReader:
    """Declare a registry's metrics in the store and return the reader of their batches."""
    await store.declare(registry.values())
    return BatchReader(registry, await store.declared(), settings.max_reports)


@asynccontextmanager
async def running_ingest(
    settings: Settings, source: RegistrySource, store: Store, instruments: Instruments, port: int
) -> AsyncIterator[Ingest]:
    """Serve the public routes as long as the context is open; leaving it drains.

    Parameters
    ----------
    settings : Settings
    source : RegistrySource
    store : Store
    instruments : Instruments
    port : int
        Where to listen, which may have been reserved for several processes.
    """
    tls, registry = None, source.current
    if not allow_open_files(settings.max_connections + _OTHER_FILES):
        _life.warning("the limit of open files is too low for max_connections")
    if settings.tls_certificate and settings.tls_key:
        tls = tls_context(settings.tls_certificate, settings.tls_key)
    reader = await make_reader(settings, registry, store)
    gate = Gate(settings.max_requests, settings.max_waiting_bytes, settings.retry_after_seconds)
    scrutiny = Scrutiny(registry, settings, instruments)
    async with running_group_commit(store, _observer(instruments, scrutiny)) as commit:
        frontend = Frontend(
            reader,
            Admission(settings),
            gate,
            commit,
            scrutiny,
            Limits(settings.max_body_bytes, settings.body_seconds, settings.retry_after_seconds),
            instruments,
            Readiness(
                store,
                settings.store,
                settings.min_free_bytes,
                settings.retry_after_seconds,
                lambda: commit.refused_at,
            ),
            _description(settings, registry),
        )
        connections = Connections(
            frontend.handle,
            most=settings.max_connections,
            idle_seconds=settings.header_seconds,
            handshake_seconds=settings.header_seconds if tls else 0.0,
            send_seconds=settings.body_seconds,
            turned_away=lambda: instruments.shed("connections"),
        )
        shared = settings.workers > 1
        gauges = asyncio.create_task(_tell_gauges(instruments, commit, connections))
        try:
            async with listening(
                connections,
                settings.host,
                port,
                tls=tls,
                tls_seconds=settings.header_seconds,
                shared=shared,
            ) as listener:
                _tune_the_interpreter()
                ingest = Ingest(settings, source, store, frontend, gate, scrutiny, listener, tls)
                try:
                    yield ingest
                finally:
                    await ingest.drain()
        finally:
            gauges.cancel()


def _observer(instruments: Instruments, scrutiny: Scrutiny) -> Callable[[Commit], None]:
    """Return what counts a transaction once its batches have been answered."""

    def observe(commit: Commit) -> None:
        stored = 0
        for batch in commit.batches:
            for key, records in batch.records.items():
                instruments.reports(key.metric, key.version, records.reports)
                stored += records.reports
        for _ in range(commit.duplicates):
            instruments.duplicate()
        instruments.committed(len(commit.batches), stored, commit.seconds)
        scrutiny.flag(commit.batches)

    return observe


def _tune_the_interpreter() -> None:
    """Suit it to an event loop that is always busy, and a thread that writes.

    Requests make some hundred objects each, nearly all of which go by themselves; looking for
    cycles among them as often as is usual takes a tenth of the time, so it is done seldom, and no
    more among what the start left. The writer, which needs the interpreter for moments only, may
    interrupt the event loop ten times as soon as usual: the slowest answers come a third sooner.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    sys.setswitchinterval(_SWITCH_SECONDS)


async def _tell_gauges(
    instruments: Instruments, commit: GroupCommit, connections: Connections
) -> None:
    while True:
        instruments.queue_depth(commit.depth)
        instruments.connections(connections.open)
        await asyncio.sleep(_GAUGE_SECONDS)
