"""A listening address: sockets, TLS, connections within bounds, and an orderly shutdown.

aiohttp does the protocol. This adds a bound on open connections and on their time, a problem
document for malformed HTTP, and a log that repeats nothing of what a client sent. Several processes
may listen on one port (SO_REUSEPORT): the kernel shares new connections out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from hubbub.collector.problems import UNEXPECTED, problem
from hubbub.protocol.errors import HubbubError

_LINGER_SECONDS = 2.0
_LARGE_ANSWER = 2**14
_BACKLOG = 1024
_OTHER_FILES = 256
_PAUSE_SECONDS = 60.0
_CLOSE_SECONDS = 1.0

_log = logging.getLogger("hubbub.collector")

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
    request_factory : callable, optional
        Makes the requests that an application's handler takes.
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
        request_factory: Callable[..., web.BaseRequest] | None = None,
    ) -> None:
        super().__init__(handler, request_factory=request_factory)
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


class ListenError(HubbubError):
    """An address that can't be listened on, or a certificate that can't be used."""


class Listener:
    """An address on which connections are accepted; use `listening`."""

    def __init__(self, server: asyncio.Server, connections: Connections, scheme: str) -> None:
        self._server = server
        self._connections = connections
        self.address = address_of(scheme, server.sockets[0].getsockname())

    def stop_accepting(self) -> None:
        """Accept no new connections; those that are open stay."""
        self._server.close()

    async def close(self) -> None:
        """Close everything; requests under way are given up."""
        self._server.close()
        await asyncio.sleep(0)  # what has been accepted gets to its connection
        self._connections.pre_shutdown()
        await self._connections.shutdown(_CLOSE_SECONDS)


@asynccontextmanager
async def listening(
    connections: Connections,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    tls_seconds: float = 10.0,
    shared: bool = False,
    backlog: int = _BACKLOG,
) -> AsyncIterator[Listener]:
    """Listen as long as the context is open.

    Parameters
    ----------
    connections : Connections
    host : str
    port : int
        0 lets the system choose.
    tls : ssl.SSLContext, optional
    tls_seconds : float
        How long a TLS handshake may take.
    shared : bool
        Whether other processes listen on the same port.
    backlog : int
        Connections that may wait to be accepted. As many are accepted at once, and open for a
        moment, before those that are too many are turned away.

    Raises
    ------
    ListenError
        If the address can't be bound.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_LoopTrouble())
    try:
        server = await loop.create_server(
            connections,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=tls_seconds if tls else None,
            backlog=backlog,
            reuse_port=shared or None,
        )
    except OSError as error:
        raise _cannot_bind(host, port, error) from error
    listener = Listener(server, connections, "https" if tls else "http")
    try:
        yield listener
    finally:
        await listener.close()


@contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Bind a port for others to share, without listening on it; yield its number.

    Raises
    ------
    ListenError
        If the address can't be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port:
            # Alone, as another collector that shares the port would get some of its reports.
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        with contextlib.closing(socket.socket(family, kind, protocol)) as reserved:
            # As asyncio does, so that a port whose last connections still linger can be had again.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            yield int(reserved.getsockname()[1])
    except OSError as error:
        raise _cannot_bind(host, port, error) from error


class _LoopTrouble:
    """Logs what goes wrong in an event loop, but not each time that no file can be opened.

    asyncio tells of that a thousand times a second while connections wait to be accepted; and each
    time it has itself called back to accept again, which fails if the socket is closed by then.
    """

    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context["message"]
        if "._start_serving(" in message:
            return
        if "accept() out of system resource" not in message:
            loop.default_exception_handler(context)
        elif loop.time() > self._logged_at + _PAUSE_SECONDS:
            self._logged_at = loop.time()
            _log.error("connections wait because no more files can be opened")


class Room(NamedTuple):
    """How many connections may be open, and how many may wait to be accepted."""

    most: int
    backlog: int


def room_for_connections(most: int) -> Room:
    """Raise this process's limit of open files for so many connections, as far as is allowed.

    Returns
    -------
    Room
        What fits into the limit, beside some files of other uses.
    """
    needed = most + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return room_within(needed if soft == resource.RLIM_INFINITY else soft, most)


def room_within(files: int, most: int) -> Room:
    """Return the room for at most so many connections within a limit of open files."""
    left = max(2, files - _OTHER_FILES)
    backlog = min(_BACKLOG, max(1, left // 4))
    return Room(min(most, left - backlog), backlog)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context (TLS 1.2 or newer).

    Raises
    ------
    ListenError
        If the files can't be read, or don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a certificate for new connections from now on (raises as `tls_context`)."""
    for path in (certificate, key):
        if not path.is_file():
            raise ListenError(f"{path}: no such file; expected a certificate or key as PEM")
    try:
        # First into another: a pair that doesn't match would take the key from the one in use.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key, password=_no_password
        )
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ListenError(f"tls_certificate {certificate}, tls_key {key}: {reason}") from error


def _no_password() -> str:
    """Refuse to ask the terminal for an encrypted key's password."""
    raise ValueError("the key must not be encrypted")


def address_of(scheme: str, name: Sequence[Any]) -> str:
    """Return the base address of a socket's name."""
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _cannot_bind(host: str, port: int, error: OSError) -> ListenError:
    return ListenError(f"--host {host} --port {port}: {error.strerror}")
