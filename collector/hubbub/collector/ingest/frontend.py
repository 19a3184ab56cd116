"""The public routes: POST /v1/reports, the probes, and the description of both.

A request is let in, read, checked, handed to the group commit and answered; nothing about who sent
it is looked at, kept or logged. What a maintainer must not break: the probes never pass the gate,
and an answer 200 or 201 means that the reports are durable.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from hubbub.collector.access.admission import Admission
from hubbub.collector.access.shedding import Gate, Visit
from hubbub.collector.errors import RefusalError, StoreError
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.ingest.inflating import inflated
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.scrutiny import Scrutiny
from hubbub.collector.operations.instruments import Instruments
from hubbub.collector.problems import problem, refusal
from hubbub.collector.store import NewBatch

_JSON = "application/json"
_DUPLICATE = b'{"accepted": %d, "duplicate": true}'
_ACCEPTED = b'{"accepted": %d}'

_log = logging.getLogger("hubbub.collector")
_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Limits(NamedTuple):
    """Bounds on a single request.

    Attributes
    ----------
    body_bytes : int
        Before and after decompression.
    body_seconds : float
        From the end of the head to the end of the body.
    retry_after : float
        Seconds that a client is told to wait when the store fails.
    """

    body_bytes: int
    body_seconds: float
    retry_after: float


class Frontend:
    """Answers the public listener's requests.

    Parameters
    ----------
    reader : BatchReader
        May be replaced while running (the attribute `reader`).
    admission : Admission
    gate : Gate
    commit : GroupCommit
    scrutiny : Scrutiny
    limits : Limits
    instruments : Instruments
    readiness : coroutine function
        Returns None if requests can be served, otherwise the reason why not.
    description : bytes
        The OpenAPI document as JSON (the attribute `description`).
    """

    def __init__(
        self,
        reader: BatchReader,
        admission: Admission,
        gate: Gate,
        commit: GroupCommit,
        scrutiny: Scrutiny,
        limits: Limits,
        instruments: Instruments,
        readiness: Callable[[], Awaitable[str | None]],
        description: bytes,
    ) -> None:
        self.reader = reader
        self.description = description
        self.draining = False
        self._admission = admission
        self._gate = gate
        self._commit = commit
        self._scrutiny = scrutiny
        self._limits = limits
        self._count = instruments.request
        self._count_shed = instruments.shed
        self._readiness = readiness
        self._routes: dict[str, dict[str, _Handler]] = {
            "/v1/reports": {"POST": self._post_reports},
            "/livez": {"GET": self._get_livez, "HEAD": self._get_livez},
            "/readyz": {"GET": self._get_readyz, "HEAD": self._get_readyz},
            "/openapi.json": {"GET": self._get_description, "HEAD": self._get_description},
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; every failure becomes a problem document that quotes no secret."""
        try:
            answer = await self._handler(request)(request)
        except RefusalError as error:
            self._count(error.status, error.reason)
            if error.status == 429:
                self._count_shed(error.reason)
            answer = refusal(error)
        except StoreError as error:
            self._count(503, "store")
            answer = problem(503, str(error), retry_after=self._limits.retry_after)
        except ConnectionError:
            self._count(499, "gone")
            raise
        except Exception as error:
            self._count(500, "unexpected")
            answer = _unexpected(error)
        # A body that wasn't read to its end can't be told from the next request.
        if self.draining or not request.content.is_eof():
            answer.force_close()
        return answer

    def _handler(self, request: web.BaseRequest) -> _Handler:
        handlers = self._routes.get(request.path)
        if handlers is None:
            raise RefusalError(404, "not_found", f"{request.path[:80]!r}: no such path")
        handler = handlers.get(request.method)
        if handler is None:
            allowed = ",".join(handlers)
            raise RefusalError(
                405,
                "method",
                f"{request.method[:20]}: must be one of: {allowed}",
                headers={"Allow": allowed},
            )
        return handler

    async def _post_reports(self, request: web.BaseRequest) -> web.Response:
        key = self._admission.key(request.headers.get("Authorization"))
        visit = self._gate.enter()
        try:
            body = self._body_at_hand(request, visit)
            if body is None:
                body = await self._body_to_come(request, visit)
            if encoding := request.headers.get("Content-Encoding"):
                body = inflated(body, encoding, self._limits.body_bytes)
                visit.hold(len(body))
            batch = self.reader.read(body, request.content_type)
            self._scrutiny.check(batch)
            reports = _size(batch)
            self._admission.spend(key, reports)
            if await self._commit.submit(batch):
                self._count(201, "stored")
                return web.Response(body=_ACCEPTED % reports, status=201, content_type=_JSON)
            self._count(200, "duplicate")
            return web.Response(body=_DUPLICATE % reports, content_type=_JSON)
        finally:
            visit.end()

    def _body_at_hand(self, request: web.BaseRequest, visit: Visit) -> bytes | None:
        """Return a body that came with the head, as small ones do, without waiting."""
        content = request.content
        if not content.is_eof():
            return None
        try:
            body = content.read_nowait()
        except web.RequestPayloadError:
            raise _incomplete() from None
        self._check(len(body), visit)
        while not content.at_eof():  # taking some may have let more in
            more = content.read_nowait()
            self._check(len(body) + len(more), visit)
            body += more
        return body

    async def _body_to_come(self, request: web.BaseRequest, visit: Visit) -> bytes:
        """Read a body as it arrives; at most the allowed bytes are ever held."""
        if (request.content_length or 0) > self._limits.body_bytes:
            raise self._too_large()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer proper hasn't begun
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._pieces(request, visit)
        except TimeoutError:
            seconds = self._limits.body_seconds
            detail = f"body: must arrive within {seconds:g} seconds"
            raise RefusalError(408, "slow", detail) from None

    async def _pieces(self, request: web.BaseRequest, visit: Visit) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := await request.content.readany():
                size += len(piece)
                self._check(size, visit)
                pieces.append(piece)
        except web.RequestPayloadError:
            raise _incomplete() from None
        return b"".join(pieces)

    def _check(self, size: int, visit: Visit) -> None:
        """Refuse a body that is too large by itself, or beside all others."""
        if size > self._limits.body_bytes:
            raise self._too_large()
        visit.hold(size)

    def _too_large(self) -> RefusalError:
        detail = f"body: must be at most {self._limits.body_bytes} bytes"
        return RefusalError(413, "too_large", detail)

    async def _get_livez(self, _request: web.BaseRequest) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _get_readyz(self, _request: web.BaseRequest) -> web.Response:
        reason = "draining" if self.draining else await self._readiness()
        if reason:
            return problem(503, reason, retry_after=self._limits.retry_after)
        return web.json_response({"status": "ready"})

    async def _get_description(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(body=self.description, content_type=_JSON)


def _size(batch: NewBatch) -> int:
    return sum([records.reports for records in batch.records.values()])


def _incomplete() -> RefusalError:
    return RefusalError(400, "incomplete", "body: incomplete")


def _unexpected(error: Exception) -> web.Response:
    # Without the exception's text, which may quote the request.
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("unexpected %s\n%s", type(error).__name__, frames)
    return problem(500, "unexpected error; it has been logged")
