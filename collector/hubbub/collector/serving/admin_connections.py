"""The connections of the admin listener: aiohttp's, within bounds of number, time and bytes.

aiohttp does the protocol, and by itself reads requests ahead, 32 of them with their bodies on each
connection. This adds a problem document for malformed HTTP, and a log that repeats nothing of what
a client sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from hubbub.collector.http1 import HttpResponse
from hubbub.collector.problems import UNEXPECTED, problem

_LINGER_SECONDS = 2.0  # for the rest of a refused request, so that its client reads the answer
_LARGE_ANSWER = 2**14  # bytes: less fits into the kernel's buffer, so nobody waits for its reader
_CLOSE_SECONDS = 1.0  # as the listener has
_MOST_BYTES = 2**16
"""That may come on a connection before an answer: requests here have no bodies, and short heads."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class AdminConnections(web.Server):
    """Makes a protocol for each new connection, or turns it away.

    `handler`: answers a request. `most`: connections that may be open at once; further ones are
    closed without an answer. `idle_seconds`: how long a connection may take to send the head of its
    first request, and of the next. `send_seconds`: how long a client may take to receive an answer.
    `turned_away`: called for each connection that was turned away. `request_factory`: makes the
    requests that an application's handler takes.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        most: int,
        idle_seconds: float,
        send_seconds: float,
        turned_away: Callable[[], None],
        request_factory: Callable[..., web.BaseRequest] | None = None,
    ) -> None:
        super().__init__(handler, request_factory=request_factory)
        self._logger = quiet_logger()
        self._idle_seconds = idle_seconds
        self._most = most
        self._open = 0
        self._expected = 0
        self._send_seconds = send_seconds
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        if self._open + self._expected >= self._most:
            self._turned_away()
            # The only way to refuse here; the socket is closed with the exception.
            raise ConnectionAbortedError("too many connections")
        self._expected += 1
        connection = _AdminConnection(
            self,
            loop=self._loop,
            access_log=None,  # type: ignore[arg-type]  # which turns it off
            logger=self._logger,
            keepalive_timeout=self._idle_seconds,
            lingering_time=_LINGER_SECONDS,
        )
        connection.send_seconds = self._send_seconds
        return connection

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection in."""
        self._open += 1
        self._expected -= 1
        super().connection_made(handler, transport)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Count a connection out."""
        self._open -= 1
        super().connection_lost(handler, exc)

    async def close(self) -> None:
        """Close everything; requests under way are given up."""
        self.pre_shutdown()
        await self.shutdown(_CLOSE_SECONDS)


class _AdminConnection(web.RequestHandler):
    """aiohttp's side of a connection, with problem documents for what can't be parsed."""

    send_seconds: float
    _received = 0  # bytes since the last answer
    _sending: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take what has come, or cut the connection of who floods it."""
        self._received += len(data)
        if self._received <= _MOST_BYTES:
            super().data_received(data)
        elif self.transport is not None:
            self.transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; abort if it isn't received, because closing would wait for ever."""
        self._received = 0
        transport = self.transport
        if not isinstance(transport, asyncio.Transport):
            return await super().finish_response(request, resp, start_time)
        if transport.get_write_buffer_size() or (resp.content_length or 0) > _LARGE_ANSWER:
            self._give_time(transport)
        finished = await super().finish_response(request, resp, start_time)
        self._stop_timer()
        if transport.get_write_buffer_size():
            self._give_time(transport)
        return finished

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._stop_timer()
        super().connection_lost(exc)

    def _give_time(self, transport: asyncio.Transport) -> None:
        self._stop_timer()
        self._sending = self._loop.call_later(self.send_seconds, _abort_if_stuck, transport)

    def _stop_timer(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

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
        answer = aiohttp_response(problem(status, detail))
        answer.force_close()
        return answer


class _Answer(web.Response):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


def aiohttp_response(response: HttpResponse) -> web.Response:
    """Return an answer as aiohttp wants it."""
    return _Answer(
        body=response.body,
        status=response.status,
        content_type=response.content_type,
        headers=dict(response.fields),
    )


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
