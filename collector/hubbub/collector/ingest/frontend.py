"""The public routes: POST /v1/reports, the probes, and the description of both.

A request is admitted, read, checked, handed to the group commit and answered; nothing about its
sender is read, kept or logged. Invariants: the probes never pass the load limiter, and an answer
200 or 201 means that the reports are durable.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from hubbub.collector.access.admission import Admission, LoadLimiter
from hubbub.collector.config.settings import Settings
from hubbub.collector.errors import BatchError, QuarantineFullError, RefusalError, StoreError
from hubbub.collector.ingest.body import read_body
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.ingest.openapi import openapi_document
from hubbub.collector.ingest.reader import BatchReader, UnregisteredError
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.ingest.rollout import Rollout
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import problem, refusal, unexpected
from hubbub.collector.store import MetricVersion, NewBatch, Store
from hubbub.protocol.registry import Registry

_GOOD_FOR_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_MOST_LOOKERS = 16
_REPORTS_PATH = "/v1/reports"
_JSON = "application/json"
_DUPLICATE = b'{"accepted": %d, "duplicate": true}'
_NOT_READY = "not ready"
_STORE_FAILED = "the store failed; send the same batch again"
"""Strangers read these: why is in the log and in the metrics."""

_ACCEPTED = b'{"accepted": %d}'
_QUARANTINED = b'{"accepted": %d, "quarantined": %d}'

_log = logging.getLogger("hubbub.collector")
_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Frontend:
    """Answers the public listener's requests.

    Attributes
    ----------
    draining : bool
        Set it to close each connection with its next answer, and to be ready no more.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        reader: BatchReader,
        store: Store,
        commit: GroupCommit,
        limiter: LoadLimiter,
        validator: ReportValidator,
        metrics: Metrics,
    ) -> None:
        self.draining = False
        self._admission = Admission(settings)
        self._commit = commit
        self._limiter = limiter
        self._validator = validator
        self._count = metrics.request
        self._count_shed = metrics.shed
        self._count_duplicates = metrics.duplicates
        self._count_key = metrics.key_refused
        self._count_seconds = metrics.answered
        self._store = store
        self._looking, self._lookers = asyncio.Lock(), 0
        self._rollout = Rollout(store)
        self._readiness = Readiness(settings, store, commit)
        self.use(settings, registry, reader)
        self._routes: dict[str, dict[str, _Handler]] = {
            _REPORTS_PATH: {"POST": self._post_reports},
            "/livez": {"GET": self._get_livez, "HEAD": self._get_livez},
            "/readyz": {"GET": self._get_readyz, "HEAD": self._get_readyz},
            "/openapi.json": {"GET": self._get_description, "HEAD": self._get_description},
        }

    def use(self, settings: Settings, registry: Registry, reader: BatchReader) -> None:
        """Go by these keys, this reader and the description of its registry from now on."""
        self._settings = settings
        self._admission.use(settings)
        self._reader = reader
        self._description = json.dumps(openapi_document(settings, registry)).encode()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; every failure becomes a problem document that quotes no secret."""
        begun = time.perf_counter()
        try:
            answer = await self._handler(request)(request)
        except RefusalError as error:
            self._count(error.status, error.reason)
            if error.status == 429:
                self._count_shed(error.reason)
            if error.key is not None:
                self._count_key(error.key, error.reason)
            answer = refusal(error)
        except StoreError as error:
            self._count(503, "store")
            _log.debug("the store failed: %s", error)
            answer = problem(503, _STORE_FAILED, retry_after=self._settings.retry_after_seconds)
        except ConnectionError:
            self._count(499, "gone")
            raise
        except Exception as error:
            self._count(500, "unexpected")
            answer = unexpected(error, _log)
        if request.path == _REPORTS_PATH:
            self._count_seconds(time.perf_counter() - begun)
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
            settings = self._settings
            body = await read_body(request, slot, settings.max_body_bytes, settings.body_seconds)
            batch, refused = await self._read(body, request.content_type)
            self._validator.check(batch)
            apart = batch.n_quarantined if refused else 0
            reports = sum([records.reports for records in batch.records.values()]) + apart
            try:
                is_new = await self._store_once(batch, key, reports, id(request.transport))
            except QuarantineFullError as error:
                raise refused or error from None
            if is_new:
                self._count(201, "quarantined" if apart else "stored")
                body = _QUARANTINED % (reports, apart) if apart else _ACCEPTED % reports
                return web.Response(body=body, status=201, content_type=_JSON)
            self._count(200, "duplicate")
            return web.Response(body=_DUPLICATE % reports, content_type=_JSON)
        finally:
            slot.release()

    async def _read(
        self, body: bytes, content_type: str
    ) -> tuple[NewBatch, UnregisteredError | None]:
        """Read a batch; put its sender off if another collector knows what this one doesn't yet.

        Returns
        -------
        batch : NewBatch
        refused : UnregisteredError, optional
            How it is refused if there is no room for what is to be kept apart; None: nothing is.
        """
        try:
            return self._reader.read(body, content_type), None
        except BatchError as error:
            unknown = {MetricVersion(*one) for one in error.unknown}
            if unknown and await self._rollout.has_any(unknown, self._reader.declared):
                detail = "reports: of a metric or version that this collector doesn't know yet"
                wait = self._settings.retry_after_seconds
                raise RefusalError(503, "newer", detail, retry_after=wait) from error
            if isinstance(error, UnregisteredError):
                return error.batch, error
            raise

    async def _store_once(
        self, batch: NewBatch, key: str | None, reports: int, connection: int
    ) -> bool:
        """Store a batch at the expense of its key; return whether it was new.

        One that is stored already costs no quota, and is acknowledged again without any: its sender
        never got the answer.
        """
        try:
            self._admission.spend(key, reports)
        except RefusalError as error:
            if error.status == 429 and self._admission.may_repeat(key, reports):
                # One at a time, and few who wait, so that those without quota keep nobody else from
                # the store or from a slot.
                if self._lookers >= _MOST_LOOKERS:
                    raise
                async with self._looked_up():
                    is_known = await self._store.knows(batch.batch_id)
                if is_known:
                    self._count_duplicates(1)
                    return False
            raise
        try:
            is_new = await self._commit.submit(batch, connection)
        except QuarantineFullError:
            # What was acknowledged before is so again, whatever room there is now.
            if not await self._store.knows(batch.batch_id):
                raise
            self._count_duplicates(1)
            is_new = False
        if not is_new:
            self._admission.refund(key, reports)
        return is_new

    @asynccontextmanager
    async def _looked_up(self) -> AsyncIterator[None]:
        self._lookers += 1
        try:
            async with self._looking:
                yield
        finally:
            self._lookers -= 1

    async def _get_livez(self, _request: web.BaseRequest) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _get_readyz(self, _request: web.BaseRequest) -> web.Response:
        if self.draining or not await self._readiness():
            return problem(503, _NOT_READY, retry_after=self._settings.retry_after_seconds)
        return web.json_response({"status": "ready"})

    async def _get_description(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(body=self._description, content_type=_JSON)


class Readiness:
    """The answer to GET /readyz.

    Orchestrators ask every few seconds, and anyone may, so an answer is cached for a moment and is
    no more than yes or no. The reason is logged when it changes.
    """

    def __init__(self, settings: Settings, store: Store, commit: GroupCommit) -> None:
        self._settings = settings
        self._store = store
        self._commit = commit
        self._reason: str | None = None
        self._asked_at = -float("inf")
        self._asking = asyncio.Lock()

    async def __call__(self) -> bool:
        """Return whether reports can be taken."""
        async with self._asking:
            if time.monotonic() - self._asked_at > _GOOD_FOR_SECONDS:
                reason = await self._ask()
                if reason != self._reason:
                    _log.warning("ready again" if reason is None else f"not ready: {reason}")
                self._reason = reason
                self._asked_at = time.monotonic()
            return self._reason is None

    async def _ask(self) -> str | None:
        """Return None, or why reports can't be taken."""
        try:
            if self._store.folder is not None:
                least = self._settings.min_free_bytes
                if shutil.disk_usage(self._store.folder).free < least:
                    return f"disk: fewer than min_free_bytes = {least} are free"
        except OSError:
            return "disk: the store's folder can't be reached"
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
