"""Which request goes where, what becomes of those that fail, and the probes of orchestrators.

Invariant: every failure becomes a problem document that quotes no secret, and is counted.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from hubbub.collector.config.settings import Settings
from hubbub.collector.http1 import Head, HttpResponse
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import RefusalError, problem, refusal, unexpected
from hubbub.collector.serving.connections import Posting
from hubbub.storage import Store
from hubbub.storage.errors import StoreError

_GOOD_FOR_SECONDS = 1.0  # however many probes ask, the store is asked once a second
_PATIENCE_SECONDS = 5.0  # orchestrators give a probe up after 1 to 10 seconds
_STORE_FAILED = "the store failed; send the same batch again"
_NOT_READY = "not ready"
"""Strangers read these: why is in the log and in the metrics."""

_ALIVE = HttpResponse(200, b'{"status": "alive"}')  # the process answers: no more is said
_READY = HttpResponse(200, b'{"status": "ready"}')  # reports are taken
_log = logging.getLogger("hubbub.collector")

Reply: TypeAlias = HttpResponse | Awaitable[HttpResponse] | Posting
Handler: TypeAlias = Callable[[Head], Reply]

_PREFLIGHT = (
    ("Access-Control-Allow-Methods", "POST"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
    ("Access-Control-Max-Age", "86400"),
)


def preflight(_head: Head) -> HttpResponse:
    """Answer a browser that asks whether a page may send; `origin_fields` says which may."""
    return HttpResponse(200, b"", fields=_PREFLIGHT)


class Routes:
    """What a listener answers (a `connections.Application`).

    `routes`: what begins to answer, by path and method. Only the method POST takes a body.
    `metrics`: where answers that aren't 2xx are counted. `retry_after`: seconds to wait while the
    store fails. `origins`: of web pages that may read answers, with spaces between them.
    `draining`: set it to close each connection with its next answer.
    """

    def __init__(
        self,
        routes: Mapping[str, Mapping[str, Handler]],
        metrics: Metrics,
        retry_after: float,
        origins: str = "",
    ) -> None:
        self.draining = False
        self._routes = routes
        self._count = metrics.request
        self._count_shed = metrics.shed
        self._count_key = metrics.key_refused
        self._retry_after = retry_after
        self._origins = frozenset(origins.split())

    def begin(self, head: Head) -> Reply:
        """Answer a request of which the head has come, or ask for its body.

        Raises `RefusalError`: 404 for another path, 405 for another method, 413 for a body that
        nobody takes, or as the path has it.
        """
        handlers = self._routes.get(head.path)
        if handlers is None:
            raise RefusalError(404, "not_found", f"{head.path[:80]!r}: no such path")
        handler = handlers.get(head.method)
        if handler is None:
            allowed = ",".join(handlers)
            detail = f"{head.method[:20]}: must be one of: {allowed}"
            raise RefusalError(405, "method", detail, headers={"Allow": allowed})
        if head.has_body and head.method != "POST":
            raise RefusalError(413, "too_large", f"body: {head.method} takes none")
        return handler(head)

    def origin_fields(self, head: Head) -> Mapping[str, str]:
        """Let a page of an allowed origin read the answer; say nothing if none is allowed."""
        if not self._origins:
            return {}
        origin = head.fields.get("origin", "")
        allowed = {"Access-Control-Allow-Origin": origin} if origin in self._origins else {}
        return {"Vary": "Origin", "Access-Control-Expose-Headers": "Retry-After", **allowed}

    def refuse(self, error: RefusalError) -> HttpResponse:
        """Count a refusal, and return its answer."""
        self._count(error.status, error.reason)
        if error.status == 429:
            self._count_shed(error.reason)
        if error.key is not None:
            self._count_key(error.key, error.reason)
        return refusal(error)

    def fail(self, error: Exception) -> HttpResponse:
        """Count an error that is no refusal, and return its answer."""
        if isinstance(error, StoreError):
            self._count(503, "store")
            _log.debug("the store failed: %s", error)
            return problem(503, _STORE_FAILED, retry_after=self._retry_after)
        self._count(500, "unexpected")
        return unexpected(error, _log)

    def leave(self) -> None:
        """Count a client that left before its answer."""
        self._count(499, "gone")


class Probes:
    """Answers GET /livez and GET /readyz.

    Orchestrators ask every few seconds, and anyone may, so an answer is cached for a moment and is
    no more than yes or no. The reason is logged when it changes.

    `draining`: set it to be ready no more.
    """

    def __init__(self, settings: Settings, store: Store, commit: GroupCommit) -> None:
        self.draining = False
        self._settings = settings
        self._store = store
        self._commit = commit
        self._reason: str | None = None
        self._asked_at = -float("inf")
        self._asking = asyncio.Lock()

    @property
    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """What to answer at which path."""
        return {
            "/livez": {"GET": _get_livez, "HEAD": _get_livez},
            "/readyz": {"GET": self._get_readyz, "HEAD": self._get_readyz},
        }

    async def is_ready(self) -> bool:
        """Return whether reports can be taken."""
        async with self._asking:
            if time.monotonic() - self._asked_at > _GOOD_FOR_SECONDS:
                reason = await self._ask()
                if reason != self._reason:
                    _log.warning("ready again" if reason is None else f"not ready: {reason}")
                self._reason = reason
                self._asked_at = time.monotonic()
            return self._reason is None

    async def _get_readyz(self, _head: Head) -> HttpResponse:
        if self.draining or not await self.is_ready():
            return problem(503, _NOT_READY, retry_after=self._settings.retry_after_seconds)
        return _READY

    async def _ask(self) -> str | None:
        """Return None, or why reports can't be taken."""
        try:
            if self._store.database.folder is not None:
                least = self._settings.min_free_bytes
                if shutil.disk_usage(self._store.database.folder).free < least:
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


def _get_livez(_head: Head) -> HttpResponse:
    return _ALIVE


def refuse_for_now(_head: Head) -> HttpResponse:
    """Answer while there is no store yet (raises RefusalError: 503)."""
    raise RefusalError(503, "store", _NOT_READY, retry_after=_PATIENCE_SECONDS)


NOT_READY: Mapping[str, Mapping[str, Handler]] = {
    "/livez": {"GET": _get_livez, "HEAD": _get_livez},
    "/readyz": {"GET": refuse_for_now, "HEAD": refuse_for_now},
}
"""The probes of a collector that waits for its store."""
