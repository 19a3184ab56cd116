"""The admin listener: a status page, metrics for Prometheus, export and deletion of records.

Every path needs a token whose scopes allow it: "read" the page, its data and the metrics, "export"
the records, "delete" to delete. Invariant: Basic credentials open nothing but what "read" allows,
because a browser adds them to requests that other sites make. Only a service that has this listener
imports this module, and so aiohttp, the page's templates and the exposition for Prometheus.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import cast

import msgspec
from aiohttp import web

from hubbub.collector.access import Gate
from hubbub.collector.config import Scope, Settings
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.publishing import Watch
from hubbub.collector.operations.status import CONTENT_SECURITY_POLICY, render
from hubbub.collector.problems import Answer, RefusalError, problem, refusal, unexpected
from hubbub.collector.serving.app import check_strictly
from hubbub.collector.serving.connections import Connections, Limits, listening, to_response
from hubbub.collector.serving.service import ServiceFiles
from hubbub.protocol import Registry
from hubbub.storage import MetricVersion, Store, StoreError

# Headers of an export: the width of its records, and the last day of which only counts are kept.
_RECORD_BYTES = "Hubbub-Record-Bytes"
_LAST_COUNTED = "Hubbub-Last-Counted-Day"

_SEND_SECONDS = 60.0  # a segment is at most some megabytes: a minute even at 100 kB/s
_EXPORTS = 2
"""At once: each holds one of the store's few connections until its client has read it all."""

_REFRESH = range(5, 3601)
"""Seconds: each reads the store, so not below five; an hour is as good as by hand."""
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_log = logging.getLogger("hubbub.collector.operations.admin")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Admin:
    """The routes of the admin listener.

    `in_force`: returns the settings and the registry that are in force; asked on each request, so
    that tokens can be exchanged. `store`: open for as long as the application runs.
    """

    def __init__(
        self, in_force: Callable[[], tuple[Settings, Registry]], store: Store, metrics: Metrics
    ) -> None:
        self._in_force = in_force
        self._watch = Watch(in_force, store, metrics)
        self._store = store
        self._exports = asyncio.Semaphore(_EXPORTS)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_problems, self._guard], client_max_size=0)
        app.cleanup_ctx.append(self._publishing)
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/", self._get_page)
        app.router.add_get("/status.json", self._get_status)
        app.router.add_get("/metrics", self._get_metrics)
        records = r"/v1/metrics/{metric}/versions/{version:\d{1,9}}/records"
        app.router.add_get(records, self._get_records, allow_head=False)
        app.router.add_delete("/v1/metrics/{metric}", self._delete_metric)
        return app

    async def _publishing(self, _app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch.run(), name="publish")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse requests without a token that allows them, whether or not the path exists."""
        scope = _needed_scope(request)
        authorization = _bearer(request.headers.get("Authorization"), scope)
        today = dt.datetime.now(dt.UTC).date()
        gate = Gate(self._in_force()[0].admin_tokens, "admin")
        request["token"] = gate.admit(authorization, today, scope)
        return await handler(request)

    async def _get_page(self, request: web.Request) -> web.Response:
        asked, refresh = request.query.get("refresh"), None
        if asked is not None:
            if not _is_number(asked) or int(asked) not in _REFRESH:
                expected = f"must be seconds from {_REFRESH.start} to {_REFRESH.stop - 1}"
                raise _malformed(f"refresh = {asked[:20]!r}: {expected}")
            refresh = int(asked)
        text = render(await self._watch.status(), refresh)
        return web.Response(text=text, content_type="text/html")

    async def _get_status(self, _request: web.Request) -> web.Response:
        body = msgspec.json.encode(await self._watch.status())
        return web.Response(body=body, content_type="application/json")

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        body, content_type = self._watch.exposition()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _widths(self, metric: str, asked: str) -> dict[int, int]:
        """Return the width of records of a metric's version, or of all; 404 if there is none."""
        known = {it.version: it.width for it in await self._store.declared() if it.metric == metric}
        if not known:
            raise RefusalError(404, "not_found", f"metric = {metric[:80]!r}: was never registered")
        found = {version: n for version, n in known.items() if asked in {"all", str(version)}}
        if not found:
            expected = f"must be one of: {', '.join(map(str, sorted(known)))}"
            raise RefusalError(404, "not_found", f"version of {metric}: {expected}")
        return found

    async def _get_records(self, request: web.Request) -> web.StreamResponse:
        """Send the records of one version, one segment after the other."""
        since, until = (_day(request, name) for name in ("since", "until"))
        if since and until and since > until:
            raise _malformed(f"since = {since}: must not be after until = {until}")
        metric = request.match_info["metric"]
        ((version, width),) = (await self._widths(metric, request.match_info["version"])).items()
        key = MetricVersion(metric, version)
        _log.info("%s exports %s version %d", request["token"], metric, version)
        response = web.StreamResponse(headers={_RECORD_BYTES: str(width)})
        response.content_type = "application/octet-stream"
        if self._exports.locked():
            detail = f"records: {_EXPORTS} exports are under way already; try again later"
            raise RefusalError(429, "exports", detail)
        records = self._store.records(key, since, until)
        async with self._exports, aclosing(records) as segments:
            # The first is fetched before the answer begins, so that a fault still has a status.
            segment = await anext(segments, None)
            # Only now, so that it includes what was counted while the first was read.
            if counted := await self._store.last_counted(key, since, until):
                response.headers[_LAST_COUNTED] = str(counted)
            await response.prepare(request)
            while segment is not None:
                async with asyncio.timeout(_SEND_SECONDS):
                    await response.write(segment)
                segment = await anext(segments, None)
        await response.write_eof()
        return response

    async def _delete_metric(self, request: web.Request) -> web.Response:
        """Delete the reports of a metric, of one version or of all."""
        metric, asked = request.match_info["metric"], request.query.get("version", "")
        if asked != "all" and not _is_number(asked):
            raise _malformed(f"version = {asked[:20]!r}: must be a number or 'all'")
        await self._widths(metric, asked)
        deleted = await self._store.delete(metric, None if asked == "all" else int(asked))
        _log.info(
            "%s deleted %d reports of %s version %s", request["token"], deleted, metric, asked
        )
        return web.json_response({"deleted": deleted})


def _needed_scope(request: web.Request) -> Scope:
    if request.method == "DELETE":
        return "delete"
    return "export" if request.path.startswith("/v1/") else "read"


def _bearer(authorization: str | None, scope: Scope) -> str | None:
    """Return the header as if the token in a browser's Basic credentials had come as a Bearer."""
    if scope != "read" or authorization is None or authorization[:6].lower() != "basic ":
        return authorization
    try:
        pair = base64.b64decode(authorization[6:], validate=True).decode("utf-8")
    except ValueError:  # of Base64, of ASCII or of UTF-8
        return authorization
    return "Bearer " + pair.partition(":")[2]


def _day(request: web.Request, name: str) -> dt.date | None:
    text = request.query.get(name)
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        raise _malformed(f"{name} = {str(text)[:20]!r}: must be a day like 2026-11-21") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _malformed(detail: str) -> RefusalError:
    return RefusalError(400, "malformed", detail)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.popall("Server", None)  # aiohttp's name and version
    if response.status == 401 and _needed_scope(request) == "read":
        response.headers.add("WWW-Authenticate", 'Basic realm="hubbub", charset="UTF-8"')


@web.middleware
async def _problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure with a problem document."""
    try:
        check_strictly(request)
        if request.body_exists:
            raise RefusalError(413, "too_large", f"body: {request.method} takes none")
        return await handler(request)
    except RefusalError as error:
        answer = to_response(refusal(error))
        if request.body_exists:  # it isn't read, so it would be taken for the next request
            answer.force_close()
        return answer
    except StoreError as error:
        return _unless_begun(request, problem(503, str(error)))
    except web.HTTPException as error:
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        detail = f"{request.method} {request.path[:80]}: {error.reason}"
        return to_response(problem(error.status, detail, headers=allow))
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        return _unless_begun(request, unexpected(error, _log))


def _unless_begun(request: web.Request, answer: Answer) -> web.Response:
    if request.writer.output_size:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError
    return to_response(answer)


_CONNECTIONS = 64  # operators and scrapers are few
_REQUEST_BYTES = 2**16  # requests here have no bodies, and short heads
_BACKLOG = 128  # asyncio's own is 100; these come seldom together


@asynccontextmanager
async def running_admin_listener(
    port: int, files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[str]:
    """Serve operators on a port of `admin_host`, and give the address.

    Raises `HubbubError` if the address can't be listened on.
    """
    settings = files.current.settings
    admin = _Admin(lambda: files.current, store, metrics)
    runner = web.AppRunner(admin.application(), access_log=None)
    await runner.setup()
    # The application's requests and answers, but not its connections.
    server = cast("web.Server", runner.server)
    limits = Limits(
        _CONNECTIONS,
        _CONNECTIONS,
        _CONNECTIONS * _REQUEST_BYTES,
        settings.header_seconds,
        settings.body_seconds,
    )
    connections = Connections(
        server.request_handler,
        limits,
        metrics,
        "admin_connections",
        request_factory=server.request_factory,
    )
    try:
        async with listening(
            connections, settings.admin_host, port, kind="admin-", backlog=_BACKLOG
        ) as listener:
            yield listener.address
    finally:
        await runner.cleanup()
