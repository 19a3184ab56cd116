"""One serving process put together: store, group commit, routes and listener.

Invariant: it ends in this order. Accept nothing new, answer what is under way, stop the writer,
close the store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hubbub.collector.access.admission import Admission
from hubbub.collector.access.load_limiter import LoadLimiter
from hubbub.collector.config.settings import Settings
from hubbub.collector.errors import StoreError
from hubbub.collector.ingest.commit import Commit, GroupCommit, running_group_commit
from hubbub.collector.ingest.frontend import Frontend, Limits
from hubbub.collector.ingest.openapi import openapi_document
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.readiness import Readiness
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.operations.logs import LIFE, get_logger
from hubbub.collector.operations.metrics import Metrics
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
from hubbub.protocol.errors import HubbubError
from hubbub.protocol.registry import Registry

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
        limiter: LoadLimiter,
        validator: ReportValidator,
        listener: Listener,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.listener = listener
        self._settings = settings
        self._source = source
        self._store = store
        self._frontend = frontend
        self._limiter = limiter
        self._validator = validator
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
        self._validator.use(registry)
        self._frontend.reader = reader
        self._frontend.description = _description(settings, registry)
        _life.info("reloaded", metrics=len(registry))

    async def drain(self) -> None:
        """Accept nothing new and wait for what is under way, as long as is allowed."""
        _life.info("draining")
        self._frontend.draining = True
        self.listener.stop_accepting()
        if not await self._limiter.wait_until_empty(self._settings.drain_seconds):
            _life.warning("gave up requests that didn't end within drain_seconds")


def _description(settings: Settings, registry: Registry) -> bytes:
    return json.dumps(openapi_document(settings, registry)).encode()


async def make_reader(settings: Settings, registry: Registry, store: Store) -> BatchReader:
    """Declare a registry's metrics in the store and return the reader of their batches."""
    await store.declare(registry.values())
    return BatchReader(registry, await store.declared(), settings.max_reports)


@asynccontextmanager
async def running_ingest(
    settings: Settings, source: RegistrySource, store: Store, metrics: Metrics, port: int
) -> AsyncIterator[Ingest]:
    """Serve the public routes as long as the context is open; leaving it drains.

    Parameters
    ----------
    settings : Settings
    source : RegistrySource
    store : Store
    metrics : Metrics
    port : int
        Where to listen, which may have been reserved for several processes.
    """
    tls, registry = None, source.current
    if not allow_open_files(settings.max_connections + _OTHER_FILES):
        _life.warning("the limit of open files is too low for max_connections")
    if settings.tls_certificate and settings.tls_key:
        tls = tls_context(settings.tls_certificate, settings.tls_key)
    reader = await make_reader(settings, registry, store)
    limiter = LoadLimiter(
        settings.max_requests, settings.max_waiting_bytes, settings.retry_after_seconds
    )
    validator = ReportValidator(registry, settings, metrics)
    async with running_group_commit(store, _observer(metrics, validator)) as commit:
        frontend = Frontend(
            reader,
            Admission(settings),
            limiter,
            commit,
            validator,
            Limits(settings.max_body_bytes, settings.body_seconds, settings.retry_after_seconds),
            metrics,
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
            turned_away=lambda: metrics.shed("connections"),
        )
        shared = settings.workers > 1
        gauges = asyncio.create_task(_update_gauges(metrics, commit, connections))
        try:
            async with listening(
                connections,
                settings.host,
                port,
                tls=tls,
                tls_seconds=settings.header_seconds,
                shared=shared,
            ) as listener:
                _tune_interpreter()
                ingest = Ingest(
                    settings, source, store, frontend, limiter, validator, listener, tls
                )
                try:
                    yield ingest
                finally:
                    await ingest.drain()
        finally:
            gauges.cancel()


def _observer(metrics: Metrics, validator: ReportValidator) -> Callable[[Commit], None]:
    """Return what counts a transaction once its batches have been answered."""

    def observe(commit: Commit) -> None:
        stored = 0
        for batch in commit.batches:
            for key, records in batch.records.items():
                metrics.reports(key.metric, key.version, records.reports)
                stored += records.reports
        for _ in range(commit.duplicates):
            metrics.duplicate()
        metrics.committed(len(commit.batches), stored, commit.seconds)
        validator.flag(commit.batches)

    return observe


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


async def _update_gauges(metrics: Metrics, commit: GroupCommit, connections: Connections) -> None:
    while True:
        metrics.queue_depth(commit.depth)
        metrics.connections(connections.open)
        await asyncio.sleep(_GAUGE_SECONDS)
