"""The admin listener: a status page, the same as JSON, and metrics for Prometheus.

Every path needs an admin token. Only a service that has this listener imports this module, and so
the page's template and the exposition for Prometheus.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from hubbub.collector.access import Gate
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.publishing import Watch
from hubbub.collector.operations.status import CONTENT_SECURITY_POLICY, render
from hubbub.collector.problems import Answer, RefusalError, refusal
from hubbub.collector.serving.app import App, reading
from hubbub.collector.serving.connections import Connections, Limits, listening
from hubbub.collector.serving.service import ServiceFiles
from hubbub.storage import Store

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CONNECTIONS = 64  # operators and scrapers are few
_REQUEST_BYTES = 2**16  # requests here have no bodies, and short heads
_BACKLOG = 128  # asyncio's own is 100; these come seldom together


class _Admin(App):
    """The routes of the admin listener.

    `files`: whose tokens in force are asked on each request, so that they can be exchanged.
    """

    def __init__(self, files: ServiceFiles, watch: Watch, metrics: Metrics) -> None:
        routes = {
            "/": reading(self._get_page),
            "/status.json": reading(self._get_status),
            "/metrics": reading(self._get_metrics),
        }
        super().__init__(routes, metrics, files.current.settings)
        self._files = files
        self._watch = watch

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; a browser that gets a 401 asks for the token."""
        response = await super().handle(request)
        response.headers.update(_HEADERS)
        if response.status == 401:
            response.headers.add("WWW-Authenticate", 'Basic realm="hubbub", charset="UTF-8"')
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        """Refuse requests without a token, whether or not the path exists."""
        gate = Gate(self._files.current.settings.admin_tokens, "admin")
        gate.admit(_bearer(request.headers.get("Authorization")), dt.datetime.now(dt.UTC).date())
        return await super()._answer(request)

    def _refuse(self, error: RefusalError) -> Answer:
        return refusal(error)  # which isn't counted among those of clients

    async def _get_page(self, _request: web.BaseRequest) -> Answer:
        text = render(await self._watch.status())
        return Answer(200, text.encode(), "text/html; charset=utf-8")

    async def _get_status(self, _request: web.BaseRequest) -> Answer:
        return Answer(200, msgspec.json.encode(await self._watch.status()))

    async def _get_metrics(self, _request: web.BaseRequest) -> Answer:
        return Answer(200, *self._watch.exposition())


def _bearer(authorization: str | None) -> str | None:
    """Return the header as if the token in a browser's Basic credentials had come as a Bearer."""
    if authorization is None or authorization[:6].lower() != "basic ":
        return authorization
    try:
        pair = base64.b64decode(authorization[6:], validate=True).decode("utf-8")
    except ValueError:  # of Base64, of ASCII or of UTF-8
        return authorization
    return "Bearer " + pair.partition(":")[2]


@asynccontextmanager
async def running_admin_listener(
    port: int, files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[str]:
    """Serve operators on a port of `admin_host`, and give the address.

    Raises `HubbubError` if the address can't be listened on.
    """
    settings = files.current.settings
    watch = Watch(lambda: files.current[:2], store, metrics)
    limits = Limits(
        _CONNECTIONS,
        _CONNECTIONS,
        _CONNECTIONS * _REQUEST_BYTES,
        settings.header_seconds,
        settings.body_seconds,
    )
    admin = _Admin(files, watch, metrics)
    connections = Connections(admin.handle, limits, metrics, "admin_connections")
    publishing = asyncio.create_task(watch.run(), name="publish")
    try:
        async with listening(
            connections, settings.admin_host, port, kind="admin-", backlog=_BACKLOG
        ) as listener:
            yield listener.address
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
