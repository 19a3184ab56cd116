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

from hubbub.collector.access import AdminGate
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

RECORD_BYTES_HEADER = "Hubbub-Record-Bytes"
"""The header of an export with the width of its records."""

LAST_COUNTED_HEADER = "Hubbub-Last-Counted-Day"
"""The header of an export with the last day of which only counts are kept, if there is one."""

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


def make_admin_app(
    in_force: Callable[[], tuple[Settings, Registry]], store: Store, metrics: Metrics
) -> web.Application:
    """Return the application for the admin listener.

    `in_force`: returns the settings and the registry that are in force; asked on each request, so
    that tokens can be exchanged. `store`: open for as long as the application runs.
    """
    admin = _Admin(in_force, store, metrics)
    app = web.Application(middlewares=[_problems, admin.guard], client_max_size=0)
    app.cleanup_ctx.append(admin.watched)
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/", admin.get_page)
    app.router.add_get("/status.json", admin.get_status)
    app.router.add_get("/metrics", admin.get_metrics)
    metric = "/v1/metrics/{metric}"
    app.router.add_get(metric + "/versions/{version}/records", admin.get_records, allow_head=False)
    app.router.add_delete(metric, admin.delete_metric)
    return app


class _Admin:
    def __init__(
        self, in_force: Callable[[], tuple[Settings, Registry]], store: Store, metrics: Metrics
    ) -> None:
        self._in_force = in_force
        self._watch = Watch(in_force, store, metrics)
        self._store = store
        self._exports = asyncio.Semaphore(_EXPORTS)

    async def watched(self, _app: web.Application) -> AsyncIterator[None]:
        """Publish while the application runs."""
        task = asyncio.create_task(self._watch.run(), name="publish")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @web.middleware
    async def guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse requests without a token that allows them, whether or not the path exists."""
        scope = _needed_scope(request)
        authorization = _bearer(request.headers.get("Authorization"), scope)
        today = dt.datetime.now(dt.UTC).date()
        gate = AdminGate(self._in_force()[0].admin_tokens)
        request["token"] = gate.admit(authorization, scope, today)
        return await handler(request)

    async def get_page(self, request: web.Request) -> web.Response:
        """Answer with the collector's status as a page."""
        asked, refresh = request.query.get("refresh"), None
        if asked is not None:
            if not _is_number(asked) or int(asked) not in _REFRESH:
                expected = f"must be seconds from {_REFRESH.start} to {_REFRESH.stop - 1}"
                raise RefusalError(400, "malformed", f"refresh = {asked[:20]!r}: {expected}")
            refresh = int(asked)
        text = render(await self._watch.status(), refresh)
        return web.Response(text=text, content_type="text/html")

    async def get_status(self, _request: web.Request) -> web.Response:
        """Answer with the same as JSON."""
        body = msgspec.json.encode(await self._watch.status())
        return web.Response(body=body, content_type="application/json")

    async def get_metrics(self, _request: web.Request) -> web.Response:
        """Answer with the metrics, as Prometheus reads them."""
        body, content_type = self._watch.exposition()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def get_records(self, request: web.Request) -> web.StreamResponse:
        """Send the records of one version, one segment after the other."""
        since, until = (_day(request, name) for name in ("since", "until"))
        if since and until and since > until:
            detail = f"since = {since}: must not be after until = {until}"
            raise RefusalError(400, "malformed", detail)
        metric, asked = request.match_info["metric"], request.match_info["version"]
        versions = {v.version: v for v in await self._store.declared() if v.metric == metric}
        if not _is_number(asked) or int(asked) not in versions:
            raise _unknown(metric, list(versions))
        key = MetricVersion(metric, int(asked))
        width = versions[key.version].width
        _log.info("%s exports %s version %d", request["token"], key.metric, key.version)
        response = web.StreamResponse(headers={RECORD_BYTES_HEADER: str(width)})
        response.content_type = "application/octet-stream"
        if self._exports.locked():
            detail = f"records: {_EXPORTS} exports are under way already; try again later"
            raise RefusalError(429, "exports", detail)
        records = self._store.records(key, since, until)
        async with self._exports, aclosing(records) as segments:
            # The first is fetched before the answer begins, so that a fault still has a status.
            first = await anext(segments, b"")
            # Only now: whatever isn't among the records because it was counted is told.
            if counted := await self._store.last_counted(key, since, until):
                response.headers[LAST_COUNTED_HEADER] = str(counted)
            await response.prepare(request)
            await _send(response, first)
            async for segment in segments:
                await _send(response, segment)
        await response.write_eof()
        return response

    async def delete_metric(self, request: web.Request) -> web.Response:
        """Delete the reports of a metric, of one version or of all."""
        metric = request.match_info["metric"]
        asked = request.query.get("version", "")
        if asked != "all" and not _is_number(asked):
            raise RefusalError(
                400, "malformed", f"version = {asked[:20]!r}: must be a number or 'all'"
            )
        version = None if asked == "all" else int(asked)
        known = {(it.metric, it.version) for it in await self._store.declared()}
        versions = sorted(version for name, version in known if name == metric)
        if not versions or version not in {None, *versions}:
            raise _unknown(metric, versions)
        deleted = await self._store.delete(metric, version)
        _log.info(
            "%s deleted %d reports of %s version %s", request["token"], deleted, metric, asked
        )
        return web.json_response({"deleted": deleted})


async def _send(response: web.StreamResponse, segment: bytes) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await response.write(segment)


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
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        detail = f"{name} = {text[:20]!r}: must be a day like 2026-11-21"
        raise RefusalError(400, "malformed", detail) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _unknown(metric: str, versions: list[int]) -> RefusalError:
    if not versions:
        return RefusalError(404, "not_found", f"metric = {metric[:80]!r}: was never registered")
    known = ", ".join(map(str, sorted(versions)))
    return RefusalError(404, "not_found", f"version of {metric}: must be one of: {known}")


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
    runner = web.AppRunner(make_admin_app(lambda: files.current, store, metrics), access_log=None)
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
