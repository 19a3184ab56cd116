"""Signals as an event loop sees them: SIGTERM and SIGINT end a process, SIGHUP reloads it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def on_hangup(reload: Callable[[], Awaitable[None]]) -> None:
    """Call a coroutine function on each SIGHUP, one call after the other."""
    loop = asyncio.get_running_loop()
    turn = asyncio.Lock()
    tasks: set[asyncio.Task[None]] = set()

    async def take_turn() -> None:
        async with turn:
            await reload()

    def begin() -> None:
        task = loop.create_task(take_turn())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)
