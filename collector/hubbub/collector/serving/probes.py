"""What orchestrators ask: whether a process is alive, and whether it can take reports."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping

from hubbub.collector.config.settings import Settings
from hubbub.collector.http1 import Head, Response
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.problems import problem
from hubbub.collector.serving.routes import Handler
from hubbub.storage import Store
from hubbub.storage.errors import StoreError

_GOOD_FOR_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_NOT_READY = "not ready"
"""Strangers read this: why is in the log and in the metrics."""

_ALIVE = Response(200, b'{"status": "alive"}')
_READY = Response(200, b'{"status": "ready"}')
_log = logging.getLogger("hubbub.collector")


class Probes:
    """Answers GET /livez and GET /readyz.

    Orchestrators ask every few seconds, and anyone may, so an answer is cached for a moment and is
    no more than yes or no. The reason is logged when it changes.

    Attributes
    ----------
    draining : bool
        Set it to be ready no more.
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

    async def _get_readyz(self, _head: Head) -> Response:
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


def _get_livez(_head: Head) -> Response:
    return _ALIVE
