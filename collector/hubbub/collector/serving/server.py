"""From settings to a running service, until SIGTERM or SIGINT; SIGHUP reads all files again.

One process does everything; or, with several workers, a supervisor does the upkeep and serves the
admin listener while the workers take reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hubbub.collector.config import Settings
from hubbub.collector.operations.logs import lifecycle
from hubbub.collector.operations.metrics import Metrics, shared_directory
from hubbub.collector.serving.connections import reserved_port
from hubbub.collector.serving.service import (
    Addresses,
    Ports,
    ServiceFiles,
    answering_not_ready,
    on_hangup,
    running_ingest,
    stop_event,
)
from hubbub.protocol import HubbubError
from hubbub.reporting import registry_ends
from hubbub.storage import (
    Maintenance,
    Store,
    StoreError,
    open_store,
    running_maintenance,
    why_to_wait,
)

Announce = Callable[[str], None]

_LOOK_SECONDS = 1.0
"""How soon a collector serves once its store can be used."""


def run(settings: Settings, reread: Callable[[], Settings], announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    `reread`: returns the settings as they are configured when it is called; can be pickled.
    `announce`: called with a line for each address, as soon as connections are accepted. Raises
    `HubbubError` if the registry is wrong or an address can't be listened on. Raises `StoreError`
    if the store can't be used.
    """
    serve = _serve_alone if settings.workers == 1 else _supervise
    files = ServiceFiles(settings, reread)
    with _sole_collector(settings.store):
        asyncio.run(serve(files, announce))
    lifecycle.info("stopped")


async def _serve_alone(files: ServiceFiles, announce: Announce) -> None:
    settings = files.current.settings
    stop = stop_event()
    if not await _store_is_ready(settings, stop):
        return
    metrics = Metrics()
    async with (
        open_store(settings.store, create=True) as store,
        _operations(files, store, metrics) as admin,
        running_ingest(files, store, metrics, Ports(settings.port, settings.probe_port)) as ingest,
    ):
        on_hangup(ingest.reload)
        _announce(announce, ingest.addresses, admin)
        await stop.wait()


async def _supervise(files: ServiceFiles, announce: Announce) -> None:
    from hubbub.collector.serving.workers import Workers  # noqa: PLC0415

    settings = files.current.settings
    stop = stop_event()
    if not await _store_is_ready(settings, stop):
        return
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        ports = Ports(stack.enter_context(reserved_port(settings.host, settings.port)), None)
        if settings.probe_port is not None:
            probes = reserved_port(settings.probe_host, settings.probe_port, "probe-")
            ports = ports._replace(probes=stack.enter_context(probes))
        metrics = Metrics(directory)
        store = await stack.enter_async_context(open_store(settings.store, create=True))
        await store.declare(files.current.registry.values())
        admin = await stack.enter_async_context(_operations(files, store, metrics))
        workers = await stack.enter_async_context(Workers(files, directory, ports))

        async def reload() -> None:
            try:
                found, _unheeded = files.read()
                await store.declare(found.registry.values())
            except HubbubError as error:  # what there is stays in force
                lifecycle.error("not reloaded", fault=str(error))
                metrics.reloaded(succeeded=False)
                return
            files.current = found
            metrics.reloaded(succeeded=True)
            await workers.hang_up()

        on_hangup(reload)
        _announce(announce, workers.addresses, admin)
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


@asynccontextmanager
async def _operations(
    files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[str | None]:
    """Run what a service needs once, however many workers it has: upkeep and the admin listener."""
    settings, registry, _ = files.current
    for finding in registry_ends(registry, dt.datetime.now(dt.UTC).date()):
        lifecycle.warning(finding.text, code=finding.code, about=finding.label)

    async with AsyncExitStack() as stack:
        maintenance = Maintenance(
            store,
            deduplication_days=settings.deduplication_days,
            retention_days=settings.retention_days,
            seconds=settings.upkeep_seconds,
            report_days=settings.report_days,
            observe=lambda step, succeeded: metrics.upkeep(step, succeeded=succeeded),
        )
        await stack.enter_async_context(running_maintenance(maintenance))
        if settings.admin_port is None:
            yield None
            return
        from hubbub.collector.serving.admin import running_admin_listener  # noqa: PLC0415

        yield await stack.enter_async_context(
            running_admin_listener(settings.admin_port, files, store, metrics)
        )


def _announce(announce: Announce, addresses: Addresses, admin: str | None) -> None:
    announce(f"listening on {addresses.public}")
    if admin:
        announce(f"admin on {admin}")
    if addresses.probes:
        announce(f"probes on {addresses.probes}")
    lifecycle.info("started", address=addresses.public, admin=admin, probes=addresses.probes)
