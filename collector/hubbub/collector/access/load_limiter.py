"""The bound on requests under way and the bytes that they hold; beyond it the newest are shed.

Requests that were let in are served to their end; a request too many is answered 429 before its
body is read. Invariant: the probes of an orchestrator never pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from hubbub.collector.errors import RefusalError


class LoadLimiter:
    """Counts the requests under way and the bytes that they hold.

    Parameters
    ----------
    max_requests : int
    max_bytes : int
    retry_after : float
        Seconds. Shed clients are told to wait between once and twice as long, at random, so that
        they don't all come back at the same moment.
    """

    def __init__(self, max_requests: int, max_bytes: int, retry_after: float) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._retry_after = retry_after
        self._requests = 0
        self._bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def acquire(self) -> Slot:
        """Let a request in; its slot must be released.

        Raises
        ------
        RefusalError
            429, if there are too many already.
        """
        if self._requests >= self._max_requests:
            raise self._full("requests", f"{self._requests} requests are under way already")
        self._requests += 1
        self._empty.clear()
        return Slot(self)

    def hold(self, size: int) -> None:
        """Count more bytes as held (raises RefusalError: 429, if there are too many)."""
        if self._bytes + size > self._max_bytes:
            raise self._full("bytes", f"{self._bytes} bytes are under way already")
        self._bytes += size

    def release(self, size: int) -> None:
        """Count a request and its bytes out."""
        self._requests -= 1
        self._bytes -= size
        if not self._requests:
            self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no request is under way, or some seconds; return whether none is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self._requests

    def _full(self, reason: str, detail: str) -> RefusalError:
        wait = self._retry_after * (1 + secrets.randbelow(1001) / 1000)
        return RefusalError(429, f"shed_{reason}", f"too busy: {detail}", retry_after=wait)


class Slot:
    """The place of one request among those that a `LoadLimiter` has let in."""

    __slots__ = ("_held", "_limiter")

    def __init__(self, limiter: LoadLimiter) -> None:
        self._limiter = limiter
        self._held = 0

    def hold(self, size: int) -> None:
        """Set how many bytes this request holds (raises RefusalError: 429, if too many)."""
        self._limiter.hold(size - self._held)
        self._held = size

    def release(self) -> None:
        """Give the slot and its bytes back."""
        self._limiter.release(self._held)
