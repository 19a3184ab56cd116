"""Which request goes where, and what becomes of those that fail.

Invariant: every failure becomes a problem document that quotes no secret, and is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from hubbub.collector.errors import RefusalError
from hubbub.collector.http1 import Head, Response
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import problem, refusal, unexpected
from hubbub.collector.serving.connections import Posting
from hubbub.storage.errors import StoreError

_STORE_FAILED = "the store failed; send the same batch again"
"""Strangers read this: why is in the log and in the metrics."""

_log = logging.getLogger("hubbub.collector")

Reply: TypeAlias = Response | Awaitable[Response] | Posting
Handler: TypeAlias = Callable[[Head], Reply]


class Routes:
    """What a listener answers (a `connections.Application`).

    Parameters
    ----------
    routes : mapping of str to mapping of str to callable
        What begins to answer, by path and method. Only the method POST takes a body.
    metrics : Metrics
        Where answers that aren't 2xx are counted.
    retry_after : float
        Seconds to wait while the store fails.

    Attributes
    ----------
    draining : bool
        Set it to close each connection with its next answer.
    """

    def __init__(
        self,
        routes: Mapping[str, Mapping[str, Handler]],
        metrics: Metrics,
        retry_after: float,
    ) -> None:
        self.draining = False
        self._routes = routes
        self._count = metrics.request
        self._count_shed = metrics.shed
        self._count_key = metrics.key_refused
        self._retry_after = retry_after

    def begin(self, head: Head) -> Reply:
        """Answer a request of which the head has come, or ask for its body.

        Raises
        ------
        RefusalError
            404 for another path, 405 for another method, 413 for a body that nobody takes, or as
            the path has it.
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

    def refuse(self, error: RefusalError) -> Response:
        """Count a refusal, and return its answer."""
        self._count(error.status, error.reason)
        if error.status == 429:
            self._count_shed(error.reason)
        if error.key is not None:
            self._count_key(error.key, error.reason)
        return refusal(error)

    def fail(self, error: Exception) -> Response:
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
