"""From a request to a batch, stored and answered; what is refused; and what takes no reports.

What is cheap to check is checked first: the key, the type and the room before there is a body.
Nothing about a request's sender is read, kept or logged. Invariants: an answer 200 or 201 means the
reports are durable; every failure becomes a problem document that quotes no secret, and is counted.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files as resources
from typing import TypeAlias, cast

from aiohttp import HttpVersion11, web

from hubbub.collector.access import Gate, Quotas
from hubbub.collector.config import Settings
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.ingest.reader import (
    BatchReader,
    check_media_type,
    decompress,
    is_gzip,
    too_large,
)
from hubbub.collector.ingest.validator import ReportValidator, SliceLimit
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import Answer, RefusalError, problem, refusal, unexpected
from hubbub.collector.serving.connections import Connection, NotHttpError, to_response
from hubbub.storage import NewBatch, Store, StoreError

_LARGE = 2**14
"""A body from so many bytes on takes up to a tenth of a second to check: one at a time."""
_STORE_FAILED = "the store failed; send the same batch again"
"""Strangers read this: why is in the log and in the metrics."""

_LOOK_SECONDS = 1.0  # however many probes ask, the store is asked once a second
_PATIENCE_SECONDS = 5.0  # for the store's answer, which takes milliseconds
_HANGS_SECONDS = 30.0  # a look takes up to _PATIENCE_SECONDS, and longer on a busy machine
_DRAIN_LOOK_SECONDS = 0.01  # at the end, which nobody waits for so closely
_NOT_READY = "not ready"
"""Strangers read this: why is in the log and in the metrics."""

_GIVEN_ONCE = {b"authorization", b"content-encoding", b"content-length", b"content-type", b"host"}
_HOST = re.compile(r"[!$&'()*+;=:\[\]%._~0-9A-Za-z-]*", re.ASCII)

_log = logging.getLogger("hubbub.collector")

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[Answer]]
Routes: TypeAlias = Mapping[str, Mapping[str, Handler]]


def check_strictly(request: web.BaseRequest) -> None:
    """Refuse what aiohttp takes and somebody in between could have read in another way.

    Raises `RefusalError`: 400.
    """
    headers = request.headers
    names = [name.lower() for name, _ in request.raw_headers]
    is_doubled = len(names) > len(set(names)) and any(names.count(it) > 1 for it in _GIVEN_ONCE)
    coding = headers.get("Transfer-Encoding")
    is_mixed = coding is not None and (
        coding.lower() != "chunked"
        or "Content-Length" in headers
        or request.version != HttpVersion11
    )
    if is_doubled or is_mixed or not _HOST.fullmatch(headers.get("Host", "")):
        raise NotHttpError()


class App:
    """The routes of a listener.

    `routes`: what answers, by path and method. Only the method POST takes a body. `metrics`: where
    answers that aren't 2xx are counted. `origins`: of pages that may read the answers (CORS).
    `draining`: set it to close each connection with its next answer.
    """

    def __init__(
        self, routes: Routes, metrics: Metrics, settings: Settings, origins: str = ""
    ) -> None:
        self.draining = False
        self._routes = routes
        self._metrics = metrics
        self._retry_after = settings.retry_after_seconds
        self._origins = frozenset(origins.split())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        # Where the next request begins: aiohttp drops what comes with an Upgrade it doesn't know.
        is_clear = "Upgrade" not in request.headers
        try:
            check_strictly(request)
            answer = await self._answer(request)
        except RefusalError as error:
            answer = self._refuse(error)
            is_clear = is_clear and not isinstance(error, NotHttpError)
        except ConnectionError:
            answer = problem(400, "body: incomplete")
        except StoreError as error:
            self._metrics.count("requests", 503, "store")
            _log.debug("the store failed: %s", error)
            answer = problem(503, _STORE_FAILED, retry_after=self._retry_after)
        except Exception as error:
            self._metrics.count("requests", 500, "unexpected")
            answer = unexpected(error, _log)
        if request.transport is None:
            self._metrics.count("requests", 499, "gone")
        response = to_response(answer)
        if self._origins:  # a page of an allowed one may read the answer
            response.headers["Vary"] = "Origin"
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"
            if (origin := request.headers.get("Origin")) in self._origins:
                response.headers["Access-Control-Allow-Origin"] = origin
        if self.draining or not (is_clear and request.content.is_eof()):
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        path, method = request.path, request.method
        handlers = self._routes.get(path)
        if handlers is None:
            raise RefusalError(404, "not_found", f"{path[:80]!r}: no such path")
        handler = handlers.get(method)
        if handler is None:
            allowed = ",".join(handlers)
            detail = f"{method[:20]}: must be one of: {allowed}"
            raise RefusalError(405, "method", detail, headers={"Allow": allowed})
        if method != "POST" and request.body_exists:
            raise RefusalError(413, "too_large", f"body: {method} takes none")
        return await handler(request)

    def _refuse(self, error: RefusalError) -> Answer:
        self._metrics.count("requests", error.status, error.reason)
        if error.status == 429:
            self._metrics.count("shed", error.reason)
        if error.key is not None:
            self._metrics.count("key_refusals", error.key, error.reason)
        return refusal(error)


def reading(handler: Handler) -> Mapping[str, Handler]:
    """Return the methods of a path that is only read."""
    return {"GET": handler, "HEAD": handler}


def always(answer: Answer) -> Handler:
    """Return what answers every request alike."""

    async def handler(_request: web.BaseRequest) -> Answer:
        return answer

    return handler


async def refuse_for_now(_request: web.BaseRequest) -> Answer:
    """Answer while there is no store yet (raises RefusalError: 503)."""
    raise RefusalError(503, "store", _NOT_READY, retry_after=_PATIENCE_SECONDS)


PREFLIGHT = always(
    Answer(
        200,
        b"",
        fields=(
            ("Access-Control-Allow-Methods", "POST"),
            ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
            ("Access-Control-Max-Age", "86400"),
        ),
    )
)
"""For a browser that asks whether a page may send."""
OPENAPI = always(Answer(200, resources("hubbub.collector").joinpath("openapi.json").read_bytes()))
_ALIVE = Answer(200, b'{"status": "alive"}')
NOT_READY: Routes = {"/livez": reading(always(_ALIVE)), "/readyz": reading(refuse_for_now)}
"""The probes of a collector that waits for its store."""


class Probes:
    """Answers GET /livez and GET /readyz.

    Orchestrators ask every few seconds, and anyone may, so an answer is what `watch` found out last
    and no more than yes or no. It may be asked from any thread, so also while the event loop that
    takes reports is busy. The reason is logged when it changes. `draining`: set it to be ready no
    more.
    """

    def __init__(self, settings: Settings, store: Store, commit: GroupCommit) -> None:
        self.draining = False
        self.routes: Routes = {
            "/livez": reading(self._get_livez),
            "/readyz": reading(self._get_readyz),
        }
        self._settings = settings
        self._store = store
        self._commit = commit
        self._reason: str | None = None
        self._looked_at = time.monotonic()

    async def watch(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Find out whether reports can be taken."""
        reason = await self._ask()
        if reason != self._reason:
            _log.warning("ready again" if reason is None else f"not ready: {reason}")
        self._reason, self._looked_at = reason, time.monotonic()

    @property
    def _hangs(self) -> bool:
        return time.monotonic() - self._looked_at > _HANGS_SECONDS

    async def _get_livez(self, _request: web.BaseRequest) -> Answer:
        return problem(503, "hangs") if self._hangs else _ALIVE

    async def _get_readyz(self, _request: web.BaseRequest) -> Answer:
        if self.draining or self._reason is not None or self._hangs:
            return problem(503, _NOT_READY, retry_after=self._settings.retry_after_seconds)
        return Answer(200, b'{"status": "ready"}')

    async def _ask(self) -> str | None:
        """Return None, or why reports can't be taken."""
        # After a pause a refusal counts no more: only new reports can show whether the store takes
        # them again, and an instance that isn't ready gets none.
        if time.monotonic() - self._commit.refused_at < self._settings.retry_after_seconds:
            return "store: refuses reports"
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._store.ping()
        except (StoreError, TimeoutError):
            return "store: can't be reached"
        return None


class Reports:
    """Answers POST /v1/reports."""

    def __init__(
        self, settings: Settings, commit: GroupCommit, validator: ReportValidator, metrics: Metrics
    ) -> None:
        self._quotas = Quotas(settings.workers)
        self._commit = commit
        self._validator = validator
        self._metrics = metrics
        self._under_way = 0
        self._large = asyncio.Lock()

    def use(self, settings: Settings, reader: BatchReader, slice_limit: SliceLimit) -> None:
        """Go by these keys, this reader and this limit from now on."""
        self._settings = settings
        self._gate = Gate(settings.ingest_keys, "ingest", anonymous=settings.anonymous)
        self._quotas.use(settings.ingest_keys)
        self._reader = reader
        self._slice_limit = slice_limit

    async def post(self, request: web.BaseRequest) -> Answer:
        """Store a batch.

        Raises `RefusalError`: 401 without a good key, 415 for a type or encoding that isn't known,
        429 if too many requests are under way or the key's quota is used up, and what is wrong with
        the body. Raises `StoreError`.
        """
        headers = request.headers
        today = dt.datetime.now(dt.UTC).date()
        key = self._gate.admit(headers.get("Authorization"), today)
        media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        check_media_type(media_type)
        is_compressed = is_gzip(headers.get("Content-Encoding", ""))
        connection = cast("Connection", request.protocol)
        if not connection.listener.has_room_for(0):
            raise self._shed()
        self._under_way += 1
        begun = time.perf_counter()
        try:
            body = await self._read(request, connection)
            if len(body) < _LARGE and not is_compressed:
                batch = self._batch(body, media_type)
            else:
                async with self._large:
                    try:
                        if is_compressed:
                            came = len(body)
                            body = decompress(body, self._settings.max_body_bytes)
                            grown = len(body) - came
                            if not connection.listener.has_room_for(grown):
                                raise self._shed()
                            connection.hold(grown)
                        batch = self._batch(body, media_type)
                    finally:
                        await asyncio.sleep(0)  # a look at the sockets before the next
            return await self._store(batch, key)
        finally:
            self._metrics.observe("request_seconds", time.perf_counter() - begun)
            self._under_way -= 1

    async def wait_until_over(self, seconds: float) -> bool:
        """Wait until no request is under way, or some seconds; return whether none is."""
        until = time.monotonic() + seconds
        while self._under_way and time.monotonic() < until:
            await asyncio.sleep(_DRAIN_LOOK_SECONDS)
        return not self._under_way

    def _shed(self) -> RefusalError:
        """Return the refusal of what there is no room for.

        Clients are asked to wait between once and twice as long, at random, so that they don't all
        come back at the same moment.
        """
        wait = self._settings.retry_after_seconds * (1 + secrets.randbelow(1001) / 1000)
        return RefusalError(429, "shed_bytes", "too busy; see Retry-After", retry_after=wait)

    async def _read(self, request: web.BaseRequest, connection: Connection) -> bytes:
        """Return a body that comes in time, and isn't too large (raises RefusalError)."""
        most, seconds = self._settings.max_body_bytes, self._settings.body_seconds
        content, body = request.content, bytearray()
        if (request.content_length or 0) > most:
            raise too_large(most)
        if content.is_eof():  # it came with the head
            data = content.read_nowait()
            if len(data) > most:
                raise too_large(most)
            return data
        expects = request.headers.get("Expect", "").lower()
        if expects == "100-continue" and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer begins after it
        connection.listener.reading[connection] = content
        try:
            async with asyncio.timeout(seconds):
                while not content.at_eof():
                    if not connection.connected:  # aiohttp would raise a RuntimeError
                        raise ConnectionResetError
                    body += await content.readany()
                    if len(body) > most:
                        raise too_large(most)
            return bytes(body)
        except TimeoutError:
            detail = f"body: must arrive within {seconds:g} seconds"
            raise RefusalError(408, "slow", detail) from None
        except web.RequestPayloadError:
            raise NotHttpError() from None
        finally:
            connection.listener.reading.pop(connection, None)
            body.clear()  # an error, aiohttp's future and this frame may hold each other for long

    def _batch(self, body: bytes, media_type: str) -> NewBatch:
        batch = self._reader.read(body, media_type)
        self._validator.check(batch)
        return batch

    async def _store(self, batch: NewBatch, key: str | None) -> Answer:
        """Store a batch at the expense of its key."""
        reports = sum([records.reports for records in batch.records.values()])
        sections = 1 + len(batch.records) - len({(it.metric, it.version) for it in batch.records})
        self._quotas.spend(key, reports, sections)
        batch = self._slice_limit.applied(batch, dt.datetime.now(dt.UTC).date())
        if await self._commit.submit(batch):
            self._metrics.count("requests", 201, "stored")
            return Answer(201, b'{"accepted": %d}' % reports)
        self._metrics.count("requests", 200, "duplicate")
        return Answer(200, b'{"accepted": %d, "duplicate": true}' % reports)
