"""The public routes: POST /v1/reports, the probes, and the description of both.

A request is let in, read, checked, handed to the group commit and answered; nothing about who sent
it is looked at, kept or logged. Invariants: the probes never pass the load limiter, and an answer
200 or 201 means that the reports are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from hubbub.collector.access.admission import Admission
from hubbub.collector.access.load_limiter import LoadLimiter
from hubbub.collector.errors import RefusalError, StoreError
from hubbub.collector.ingest.body import read_body
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import problem, refusal, unexpected

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
    limiter : LoadLimiter
    commit : GroupCommit
    validator : ReportValidator
    limits : Limits
    metrics : Metrics
    readiness : coroutine function
        Returns None if requests can be served, otherwise the reason why not.
    description : bytes
        The OpenAPI document as JSON (the attribute `description`).
    """

    def __init__(
        self,
        reader: BatchReader,
        admission: Admission,
        limiter: LoadLimiter,
        commit: GroupCommit,
        validator: ReportValidator,
        limits: Limits,
        metrics: Metrics,
        readiness: Callable[[], Awaitable[str | None]],
        description: bytes,
    ) -> None:
        self.reader = reader
        self.description = description
        self.draining = False
        self._admission = admission
        self._limiter = limiter
        self._commit = commit
        self._validator = validator
        self._limits = limits
        self._count = metrics.request
        self._count_shed = metrics.shed
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
            answer = unexpected(error, _log)
        # The rest of a body that wasn't read to its end would be taken for the next request.
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
        slot = self._limiter.acquire()
        try:
            limits = self._limits
            body = await read_body(request, slot, limits.body_bytes, limits.body_seconds)
            batch = self.reader.read(body, request.content_type)
            self._validator.check(batch)
            reports = sum([records.reports for records in batch.records.values()])
            self._admission.spend(key, reports)
            if await self._commit.submit(batch):
                self._count(201, "stored")
                return web.Response(body=_ACCEPTED % reports, status=201, content_type=_JSON)
            self._count(200, "duplicate")
            return web.Response(body=_DUPLICATE % reports, content_type=_JSON)
        finally:
            slot.release()

    async def _get_livez(self, _request: web.BaseRequest) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _get_readyz(self, _request: web.BaseRequest) -> web.Response:
        reason = "draining" if self.draining else await self._readiness()
        if reason:
            return problem(503, reason, retry_after=self._limits.retry_after)
        return web.json_response({"status": "ready"})

    async def _get_description(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(body=self.description, content_type=_JSON)
