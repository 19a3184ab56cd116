"""Connections within bounds: their number, their time, and the answer to malformed HTTP.

aiohttp does the protocol. This adds a bound on open connections, a problem document for what isn't
HTTP, and a log that repeats nothing of what a client sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from aiohttp import web

from hubbub.collector.problems import UNEXPECTED, problem

_LINGER_SECONDS = 2.0
_LARGE_ANSWER = 2**14

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """Makes a protocol for each new connection, or turns it away.

    Parameters
    ----------
    handler : coroutine function
        Answers a request.
    most : int
        Connections that may be open at once; further ones are closed without an answer.
    idle_seconds : float
        How long a connection may take to send the head of its first request, and of the next.
    handshake_seconds : float
        How long a TLS handshake may take; 0 without TLS.
    send_seconds : float
        How long a client may take to receive an answer.
    turned_away : callable
        Called for each connection that was turned away.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        most: int,
        idle_seconds: float,
        handshake_seconds: float = 0.0,
        send_seconds: float,
        turned_away: Callable[[], None],
    ) -> None:
        super().__init__(handler)
        self._logger = quiet_logger()
        self._idle_seconds = idle_seconds
        self._most = most
        self._open = 0
        self._expected = 0
        self._send_seconds = send_seconds
        self._handshake_seconds = handshake_seconds
        self._handshakes: deque[asyncio.TimerHandle] = deque()
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> int:
        """Number of open connections."""
        return self._open

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        if self._open + self._expected >= self._most:
            self._turned_away()
            # The only way to refuse before a handshake; the socket is closed with the exception.
            raise ConnectionAbortedError("too many connections")
        # Counted as expected until it is a connection, or its handshake has failed.
        self._expected += 1
        if self._handshake_seconds:
            give_up = self._loop.call_later(self._handshake_seconds, self._give_up_oldest)
            self._handshakes.append(give_up)
        connection = _Connection(
            self,
            loop=self._loop,
            access_log=None,  # type: ignore[arg-type]  # which turns it off
            logger=self._logger,
            keepalive_timeout=self._idle_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,  # `ingest.body` does it, within bounds
        )
        connection.send_seconds = self._send_seconds
        return connection

    def _give_up_oldest(self) -> None:
        self._handshakes.popleft()
        self._expected -= 1

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection in."""
        self._open += 1
        if not self._handshake_seconds:
            self._expected -= 1
        elif self._handshakes:  # whichever: only their number matters
            self._handshakes.pop().cancel()
            self._expected -= 1
        super().connection_made(handler, transport)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Count a connection out."""
        self._open -= 1
        super().connection_lost(handler, exc)


class _Connection(web.RequestHandler):
    """aiohttp's side of a connection, with problem documents for what can't be parsed."""

    send_seconds: float

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; abort if it isn't received, because closing would wait for ever."""
        transport = self.transport
        if not isinstance(transport, asyncio.Transport):
            return await super().finish_response(request, resp, start_time)
        if transport.get_write_buffer_size() or (resp.content_length or 0) > _LARGE_ANSWER:
            self._loop.call_later(self.send_seconds, _abort_if_stuck, transport)
        finished = await super().finish_response(request, resp, start_time)
        if transport.get_write_buffer_size():
            self._loop.call_later(self.send_seconds, _abort_if_stuck, transport)
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Answer bytes that aren't HTTP, or a failure of the handler."""
        if status >= 500:
            self.log_exception("request failed", exc_info=exc)
        detail = UNEXPECTED if status >= 500 else "not valid HTTP"
        answer = problem(status, detail)
        answer.force_close()
        return answer


def _abort_if_stuck(transport: asyncio.Transport) -> None:
    if transport.get_write_buffer_size():
        transport.abort()


def quiet_logger() -> logging.Logger:
    """Return a logger for aiohttp that passes on nothing of what clients sent."""
    logger = logging.getLogger("hubbub.collector.http")
    logger.addFilter(_without_client)
    return logger


def _without_client(record: logging.LogRecord) -> bool:
    """Reduce a record of the HTTP library to the kind of error it was.

    A client that went away before its answer is no error; it is counted elsewhere (499).
    """
    error = record.exc_info[0] if record.exc_info else None
    if error and issubclass(error, ConnectionError):
        return False
    record.msg = f"request failed: {error.__name__}" if error else "request failed"
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
