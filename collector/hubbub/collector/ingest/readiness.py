"""Whether reports can be stored now: the store answers and takes them, and its disk has room.

Orchestrators ask every few seconds, and anyone may, so an answer is cached for a moment.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import make_url

from hubbub.collector.errors import StoreError
from hubbub.collector.store import Store

_GOOD_FOR_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0


class Readiness:
    """The answer to GET /readyz.

    Parameters
    ----------
    store : Store
    store_url : str
    min_free_bytes : int
        Free disk space below which a file store isn't ready.
    pause : float
        Seconds for which a refusal of the store counts. After that, only new reports can show
        whether it takes them again, and an instance that isn't ready gets none.
    refused_at : callable
        Returns when the store refused the latest transaction (`time.monotonic`), -inf if it didn't.
    """

    def __init__(
        self,
        store: Store,
        store_url: str,
        min_free_bytes: int,
        pause: float,
        refused_at: Callable[[], float],
    ) -> None:
        self._store = store
        # Where a file store lies; a database server watches its own disk.
        url = make_url(store_url)
        is_file = url.get_backend_name() == "sqlite"
        self._folder = Path(url.database or "").absolute().parent if is_file else None
        self._min_free_bytes = min_free_bytes
        self._pause = pause
        self._refused_at = refused_at
        self._reason: str | None = None
        self._looked_at = -float("inf")
        self._looking = asyncio.Lock()

    async def __call__(self) -> str | None:
        """Return None, or why reports can't be taken."""
        async with self._looking:
            if time.monotonic() - self._looked_at > _GOOD_FOR_SECONDS:
                self._reason = (
                    self._disk_fault() or self._refusal_fault() or await self._store_fault()
                )
                self._looked_at = time.monotonic()
            return self._reason

    def _disk_fault(self) -> str | None:
        if self._folder is None:
            return None
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return "disk: the store's folder can't be reached"
        if free >= self._min_free_bytes:
            return None
        return f"disk: {free} bytes free; must be at least {self._min_free_bytes}"

    def _refusal_fault(self) -> str | None:
        is_fresh = time.monotonic() - self._refused_at() < self._pause
        return "store: refuses reports" if is_fresh else None

    async def _store_fault(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._store.ping()
        except (StoreError, TimeoutError):
            return "store: can't be reached"
        return None
