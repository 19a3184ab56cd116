"""Turns: work of many connections shares an event loop with what must not wait for long.

asyncio runs all that is ready before it looks again at what has come, so that a millisecond of work
for each of a thousand connections would keep everybody else, probes included, for a second. Here
work is done at once as long as little of it has been done since the loop last looked; all else
waits in line, and is done for as long each time. Invariants: who waits is served in order, and
whoever has more to do goes to the end of the line.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SHARE_SECONDS = 0.005
"""Of work between two looks: a thousand ordinary requests wait for each other as they would
anyway, and a probe that comes waits for twice that."""


class Turns:
    """The line of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._begun_at: float | None = None  # the first work since the loop looked

    @property
    def is_long(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def may_begin(self) -> bool:
        """Return whether to work at once: nobody waits, and there is time left."""
        if self._waiting:
            return False
        now = time.perf_counter()
        if self._begun_at is None:
            self._begin(now)
            return True
        return now - self._begun_at < SHARE_SECONDS

    def wait(self, work: Callable[[], None]) -> None:
        """Do some work when its turn comes, and not now."""
        self._waiting.append(work)
        if self._begun_at is None:
            self._begin(time.perf_counter())

    def _begin(self, now: float) -> None:
        self._begun_at = now
        self._loop.call_soon(self._go_on)  # which is first after the next look

    def _go_on(self) -> None:
        """Work for those who wait, as long as there is time."""
        self._begun_at = None
        if not self._waiting:
            return
        now = time.perf_counter()
        self._begin(now)
        until = now + SHARE_SECONDS
        while self._waiting:
            self._waiting.popleft()()
            if time.perf_counter() >= until:
                break
