"""The bound on what is under way: requests and bytes, beyond which the newest are sent away.

Whoever came first is served first and whole; who finds the house full is told at once to come back,
before anything is read of him. The probes of an orchestrator never pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from hubbub.collector.errors import RefusalError


class Gate:
    """Counts the requests under way and the bytes that they hold.

    Parameters
    ----------
    max_requests : int
    max_bytes : int
    retry_after : float
        Seconds; who is sent away is told between once and twice as many, drawn at random, so that
        a crowd doesn't come back in one moment.
    """

    def __init__(self, max_requests: int, max_bytes: int, retry_after: float) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._retry_after = retry_after
        self._requests = 0
        self._bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> Visit:
        """Let a request in; its `Visit` must be ended.

        Raises
        ------
        RefusalError
            429, if there are too many already.
        """
        if self._requests >= self._max_requests:
            raise self._full("requests", f"{self._requests} requests are under way already")
        self._requests += 1
        self._empty.clear()
        return Visit(self)

    def hold(self, size: int) -> None:
        """Count more bytes as held by a request (raises RefusalError: 429, if too many are)."""
        if self._bytes + size > self._max_bytes:
            raise self._full("bytes", f"{self._bytes} bytes are under way already")
        self._bytes += size

    def leave(self, size: int) -> None:
        """Count a request and its bytes out again."""
        self._requests -= 1
        self._bytes -= size
        if not self._requests:
            self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no request is under way, for so long at the most; return whether it is so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self._requests

    def _full(self, reason: str, detail: str) -> RefusalError:
        wait = self._retry_after * (1 + secrets.randbelow(1001) / 1000)
        return RefusalError(429, f"shed_{reason}", f"too busy: {detail}", retry_after=wait)


class Visit:
    """One request's stay inside a `Gate`."""

    __slots__ = ("_gate", "_held")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held = 0

    def hold(self, size: int) -> None:
        """Say how many bytes this request holds by now (raises RefusalError: 429, if too many)."""
        self._gate.hold(size - self._held)
        self._held = size

    def end(self) -> None:
        """Leave, and give back what was held."""
        self._gate.leave(self._held)
