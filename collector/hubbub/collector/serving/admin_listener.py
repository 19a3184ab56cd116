"""The listener for operators: the admin application, on connections bounded as public ones are.

Only a service that has one imports this module, and so aiohttp, the page's templates and the
exposition for Prometheus.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aiohttp import web

from hubbub.collector.access.auth import AdminGate
from hubbub.collector.operations.admin import make_admin_app
from hubbub.collector.operations.admin_connections import AdminConnections, quiet_logger
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.serving.listening import listening
from hubbub.collector.serving.service import ServiceFiles
from hubbub.storage import Store

_CLOSE_SECONDS = 1.0
_CONNECTIONS = 64
_BACKLOG = 128


@asynccontextmanager
async def running_admin_listener(
    port: int, files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[str]:
    """Serve operators on a port of `admin_host`, and give the address.

    Raises
    ------
    HubbubError
        If the address can't be listened on.
    """
    settings = files.current.settings
    app = make_admin_app(
        lambda: AdminGate(files.current.settings.admin_tokens),
        lambda: files.current,
        store,
        metrics,
    )
    runner = web.AppRunner(
        app, access_log=None, logger=quiet_logger(), shutdown_timeout=_CLOSE_SECONDS
    )
    await runner.setup()
    try:
        # The application's requests and answers, but not its connections.
        server = cast("web.Server", runner.server)
        connections = AdminConnections(
            server.request_handler,
            request_factory=server.request_factory,
            most=_CONNECTIONS,
            idle_seconds=settings.header_seconds,
            send_seconds=settings.body_seconds,
            turned_away=lambda: metrics.shed("admin_connections"),
        )
        async with listening(
            connections, settings.admin_host, port, kind="admin-", backlog=_BACKLOG
        ) as listener:
            yield listener.address
    finally:
        await runner.cleanup()
