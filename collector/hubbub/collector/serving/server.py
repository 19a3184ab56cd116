"""From settings to a running service, until SIGTERM or SIGINT; SIGHUP reads the registry again.

One process does everything; or, with several workers, a supervisor does the upkeep and serves the
admin listener while the workers take reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from hubbub.collector.access.auth import AdminGate
from hubbub.collector.config.settings import Settings
from hubbub.collector.errors import StoreError
from hubbub.collector.operations.admin import make_admin_app
from hubbub.collector.operations.counters import shared_directory
from hubbub.collector.operations.logs import LIFECYCLE, get_logger
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.serving.listening import address_of, quiet_logger, reserved_port, start_site
from hubbub.collector.serving.service import RegistrySource, on_hangup, running_ingest, stop_event
from hubbub.collector.serving.workers import Workers
from hubbub.collector.store import Store, open_store
from hubbub.collector.store.upkeep import Upkeep, running_upkeep
from hubbub.protocol.errors import HubbubError

Announce = Callable[[str], None]

_CLOSE_SECONDS = 1.0
_lifecycle = get_logger(LIFECYCLE)


def run(settings: Settings, announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Parameters
    ----------
    settings : Settings
    announce : callable
        Called with a line for each address, as soon as connections are accepted.

    Raises
    ------
    HubbubError
        If the registry is wrong or an address can't be listened on.
    StoreError
        If the store can't be used.
    """
    serve = _serve_alone if settings.workers == 1 else _supervise
    asyncio.run(serve(settings, announce))
    _lifecycle.info("stopped")


async def _serve_alone(settings: Settings, announce: Announce) -> None:
    source = RegistrySource(settings.metrics)
    stop = stop_event()
    metrics = Metrics()
    async with (
        open_store(settings.store, create=True) as store,
        _operations(settings, source, store, metrics) as admin,
        running_ingest(settings, source, store, metrics, settings.port) as ingest,
    ):
        on_hangup(ingest.reload)
        _announce(announce, ingest.listener.address, admin)
        await stop.wait()


async def _supervise(settings: Settings, announce: Announce) -> None:
    source = RegistrySource(settings.metrics)
    stop = stop_event()
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        port = stack.enter_context(reserved_port(settings.host, settings.port))
        metrics = Metrics(directory)
        store = await stack.enter_async_context(open_store(settings.store, create=True))
        await store.declare(source.current.values())
        admin = await stack.enter_async_context(_operations(settings, source, store, metrics))
        workers = await stack.enter_async_context(
            Workers(settings, source, directory, port, metrics.snapshot)
        )

        async def reload() -> None:
            try:
                registry = source.read()
                await store.declare(registry.values())
            except (HubbubError, StoreError) as error:  # what there is stays in force
                _lifecycle.error("not reloaded", fault=str(error))
                return
            source.current = registry
            await workers.hang_up()

        on_hangup(reload)
        _announce(announce, workers.address, admin)
        await stop.wait()


@asynccontextmanager
async def _operations(
    settings: Settings, source: RegistrySource, store: Store, metrics: Metrics
) -> AsyncIterator[str | None]:
    """Run what a service needs once, however many workers it has: upkeep and the admin listener."""
    async with AsyncExitStack() as stack:
        upkeep = Upkeep(
            store,
            deduplication_days=settings.deduplication_days,
            retention_days=settings.retention_days,
            seconds=settings.upkeep_seconds,
            report_days=settings.report_days,
            observe=lambda step, succeeded: metrics.upkeep(step, succeeded=succeeded),
        )
        await stack.enter_async_context(running_upkeep(upkeep))
        if settings.admin_port is None:
            yield None
            return
        app = make_admin_app(
            lambda: AdminGate(settings.admin_tokens),
            lambda: source.current,
            store,
            metrics,
        )
        runner = web.AppRunner(
            app, access_log=None, logger=quiet_logger(), shutdown_timeout=_CLOSE_SECONDS
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await start_site(runner, settings.admin_host, settings.admin_port)
        yield address_of("http", runner.addresses[0])


def _announce(announce: Announce, address: str, admin: str | None) -> None:
    announce(f"listening on {address}")
    if admin:
        announce(f"admin on {admin}")
    _lifecycle.info("started", address=address, admin=admin)
