"""The listening process: start, announce the address, serve, drain on SIGTERM.

Draining means: stop accepting, answer what has been received, commit it, leave. The HTTP library's
own log is stripped of everything that came from a client, because it quotes addresses and bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable

from aiohttp import web

_CLOSE_SECONDS = 1.0


async def serve(
    app: web.Application,
    host: str,
    port: int,
    *,
    drain_seconds: float = 30.0,
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Parameters
    ----------
    app : aiohttp.web.Application
    host : str
    port : int
        0 lets the system choose.
    drain_seconds : float
        How long requests under way may take to end.
    announce : callable
        Called once with the address, as soon as connections are accepted.

    Raises
    ------
    OSError
        If the address can't be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    requests = _Requests()
    app.middlewares.insert(0, requests.track)
    runner = web.AppRunner(
        app, access_log=None, logger=_quiet_logger(), shutdown_timeout=_CLOSE_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        announce(_address(runner))
        await stop.wait()
        await site.stop()
        await requests.drain(drain_seconds)
    finally:
        await runner.cleanup()


class _Requests:
    """The requests under way, for draining to wait until they have ended.

    The HTTP library's own shutdown throws away what still arrives of a body, so it may begin only
    after the last request.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._all_ended = asyncio.Event()
        self._draining = False

    @web.middleware
    async def track(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Count a request (as the outermost middleware)."""
        self._under_way += 1
        try:
            response = await handler(request)
            if self._draining:
                response.force_close()
            return response
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._all_ended.set()

    async def drain(self, seconds: float) -> None:
        """Wait until no request is under way, for so long at the most."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._under_way:
                    self._all_ended.clear()
                    await self._all_ended.wait()


def _address(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("hubbub.collector.http")
    logger.addFilter(_without_client)
    return logger


def _without_client(record: logging.LogRecord) -> bool:
    """Reduce a record of the HTTP library to the kind of error it was."""
    error = record.exc_info[0] if record.exc_info else None
    record.msg = f"request failed: {error.__name__}" if error else "request failed"
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
