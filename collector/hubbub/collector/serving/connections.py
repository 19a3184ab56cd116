"""The collector's listeners: aiohttp's connections, within bounds of number, bytes and time.

aiohttp speaks HTTP, and reads ahead on each connection. Here what has come and isn't answered is
counted with what aiohttp makes of it. Invariant: what strangers can make a process hold is bounded
by `Limits`: beyond `total_bytes` the body that has been arriving for the longest is given up, or
else new requests are refused, and connections aborted when all together hold a quarter more.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from ipaddress import IPv6Address, IPv6Network
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from aiohttp import StreamReader, web, web_protocol
from aiohttp.http import RawRequestMessage

from hubbub.collector.config import Settings
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import Answer, RefusalError, refusal, unexpected
from hubbub.protocol import HubbubError

_READ_BYTES = 2**14
"""Bytes read of a connection at a time, which may take milliseconds to parse."""
_TLS_READ_BYTES = 2**12
"""Likewise of TLS: what OpenSSL keeps of memory for it, it keeps for good."""
_MOST_HANDSHAKES = 1024
"""At once, as each takes 50 kB; then the one that has taken the longest is given up."""
_MESSAGE_BYTES, _FIELD_BYTES = 2**11, 400
"""Bytes of memory of a parsed request, and of each field of its head; with Python 3.11."""
_CLOSE_SECONDS = 1.0
"""For clients of TLS to close, and for cancelled requests to end."""
_IPV6_BITS = 64
"""Whoever has one address of IPv6 has as many as these leave."""
_ACCEPTED = 64  # connections between two looks at the sockets: some milliseconds
_BACKLOG = 1024  # connections that wait for accept(): a second of a busy service's
_FEW = 64  # connections of those who aren't clients
_OTHER_FILES = 256  # the store's files, connections and pipes are some tens
_PAUSE_SECONDS = 60.0  # a shortage of files is logged once a minute, not once a connection

web_protocol.MAX_MSG_QUEUE_SIZE = 2  # requests that are parsed ahead: no client needs more

_log = logging.getLogger("hubbub.collector")


class ListenError(HubbubError):
    """An address that can't be listened on, or a certificate that can't be used."""


class NotHttpError(RefusalError):
    """A request that isn't HTTP, or could be read in two ways."""

    def __init__(self) -> None:
        super().__init__(400, "http", "not valid HTTP")


class Limits(NamedTuple):
    """Bounds on what strangers make a listener hold."""

    connections: int  # then the one that has been idle the longest makes room for a new one
    connections_per_address: int  # likewise; an address is kept only while it has connections
    total_bytes: int  # of all that isn't answered
    idle_seconds: float  # to send the head of the first request, and of the next
    send_seconds: float  # to receive an answer

    @classmethod
    def few(cls, settings: Settings, total_bytes: int) -> Limits:
        """Return those for operators and orchestrators, who keep one or two connections."""
        return cls(_FEW, _FEW, total_bytes, settings.header_seconds, settings.header_seconds)

    @property
    def most_bytes(self) -> int:
        """Bytes from which on connections are aborted; up to that, requests are answered 429."""
        return self.total_bytes * 5 // 4 + 2 * _READ_BYTES  # small totals, too, refuse first


class Connections(web.Server):
    """Makes a protocol for each new connection, and room for it where there is none.

    `kind`: what the names of the listener's settings begin with.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        limits: Limits,
        metrics: Metrics,
        kind: str = "",
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(handler, request_factory=self._begin)
        self._kind = kind
        self.limits = limits
        self.metrics = metrics
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(_READ_BYTES))  # each connection takes what it needs
        self.held = 0
        self.reading: dict[Connection, StreamReader] = {}  # bodies that arrive, the oldest first
        self.open = 0
        self._open_of: dict[str, int] = {}  # by address
        self.idle: dict[Connection, None] = {}  # the longest first: these can make room
        self.handshakes: dict[Connection, None] = {}  # likewise, if they aren't over

    def __call__(self) -> Any:
        """Return the protocol of a new connection."""
        connection = Connection(self)
        return _Tls(connection, self.tls) if self.tls else connection

    def _begin(self, message: Any, payload: Any, protocol: Any, *others: Any) -> web.BaseRequest:
        self.idle.pop(protocol, None)
        return self._make_request(message, payload, protocol, *others)

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, *, shared: bool = False, backlog: int = _BACKLOG
    ) -> AsyncIterator[str]:
        """Listen as long as the context is open, and yield the address.

        `port`: 0 lets the system choose. `shared`: whether other processes listen on the same port.
        Raises `ListenError` if the address can't be bound.
        """
        self.loop.set_exception_handler(_LoopTrouble())
        try:
            server = await self.loop.create_server(
                self, host, port, backlog=_ACCEPTED, reuse_port=shared or None
            )
            for listened in server.sockets:  # as many as asyncio accepts at a time may wait, too
                with listened.dup() as same:
                    same.listen(backlog)
        except (OSError, ValueError) as error:  # a name that can't be one raises a ValueError
            raise _cannot_bind(host, port, error, self._kind) from error
        self.stop_accepting = server.close
        try:
            host, port = server.sockets[0].getsockname()[:2]
            scheme = "https" if self.tls else "http"
            yield f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        finally:
            server.close()
            await asyncio.sleep(0)  # what has been accepted gets to its connection
            await self.shutdown(_CLOSE_SECONDS)

    def turn_away(self) -> None:
        """Count a connection for which there is no room."""
        self.metrics.count("shed", f"{self._kind}connections".replace("-", "_"))

    def admit(self, connection: Connection) -> bool:
        """Count a connection in, if there is room or can be made."""
        address = connection.address
        is_full = self._open_of.get(address, 0) >= self.limits.connections_per_address
        if is_full or self.open >= self.limits.connections:
            self.turn_away()
            others = (it for it in self.idle if not is_full or it.address == address)
            oldest = next(others, None)
            if oldest is None:
                return False
            oldest.cut()
        self.open += 1
        self._open_of[address] = self._open_of.get(address, 0) + 1
        self.idle[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self.idle.pop(connection, None)
        self.handshakes.pop(connection, None)
        self.open -= 1
        self._open_of[connection.address] -= 1
        if not self._open_of[connection.address]:
            del self._open_of[connection.address]

    def has_room_for(self, size: int) -> bool:
        """Return whether so many bytes more may be held for a request."""
        return self.held + size <= self.limits.total_bytes

    def make_room(self, connection: Connection) -> None:
        """Give up the body that has been arriving for the longest, or else this connection."""
        oldest = next(iter(self.reading), None)
        if oldest is not None:
            del self.reading[oldest]
            self.metrics.count("shed", "bytes")
            oldest.cut()
            oldest.release()  # its request ends as soon as it finds out
        elif self.held > self.limits.most_bytes:
            self.metrics.count("shed", "bytes")
            connection.cut()


class Connection(web.RequestHandler, asyncio.BufferedProtocol):
    """aiohttp's side of a connection, which counts what it holds."""

    def __init__(self, listener: Connections) -> None:
        super().__init__(
            listener,
            loop=listener.loop,
            access_log=None,  # type: ignore[arg-type]  # which turns it off
            logger=_quiet,
            keepalive_timeout=listener.limits.idle_seconds,
            lingering_time=listener.limits.idle_seconds,
            read_bufsize=_READ_BYTES,
            auto_decompress=False,
        )
        self.address = ""
        self.listener = listener
        self._raw: asyncio.Transport | None = None
        self._is_open = False
        self._held = 0  # of what has come, with what became of it
        self._latest = 0  # of the latest read
        self._unsent = 0  # bytes of answers, and of TLS itself
        self._discards = False  # the rest of a body that was refused: its end ends the connection
        self._sending: asyncio.TimerHandle | None = None

    # Its beginning and end

    def begin(self, transport: asyncio.Transport) -> bool:
        """Count it in, or cut it off if there is no room."""
        self._raw = transport
        name = transport.get_extra_info("peername")
        self.address = one_address(name[0]) if isinstance(name, tuple) else ""
        self._is_open = self.listener.admit(self)
        if not self._is_open:
            transport.abort()
        return self._is_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak HTTP."""
        transport = cast("asyncio.Transport", transport)
        if self._raw is None and not self.begin(transport):
            return
        # An answer that waits to be sent stops the next; TLS takes 0 for always full.
        transport.set_write_buffer_limits(1, 0)
        if self.listener.tls is not None:
            self.listener.handshakes.pop(self, None)
            cast("Any", transport).set_read_buffer_limits(_READ_BYTES, 0)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop answering."""
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(exc)
        self.end()

    def end(self) -> None:
        """Count it out, but for what a request that is still under way holds."""
        if self._is_open:
            self._is_open = False
            self.listener.forget(self)
        if not self._request_in_progress:
            self.release()

    def cut(self) -> None:
        """Close at once."""
        self.end()
        if self._raw is not None:
            self._raw.abort()

    # Incoming data

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the buffer has its size)
        """Return where to put what comes."""
        return self.listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self._latest = nbytes
        self.hold(nbytes)
        if self._is_open:
            self.data_received(bytes(self.listener.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and weigh the requests in it."""
        before = len(self._messages)
        super().data_received(data)
        for message, _ in islice(self._messages, before, None):
            self._discards = False
            self.hold(_weight(message))
            if not isinstance(message, RawRequestMessage) and self in self.listener.reading:
                self.listener.reading[self].set_exception(NotHttpError())

    def hold(self, size: int) -> None:
        """Count bytes until the request under way, or else the next, is answered."""
        if self._is_open and not self._discards:
            self._held += size
            self.listener.held += size
            if self.listener.held > self.listener.limits.total_bytes:
                self.listener.make_room(self)

    def release(self, but: int = 0) -> None:
        """Count nothing as held any more, but so many bytes that have come."""
        self.listener.held -= self._held + self._unsent - but
        self._held, self._unsent = but, 0

    # Outgoing data

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; count it until the client has taken it."""
        self.hold_unsent(resp.content_length or 0)
        try:
            finished = await super().finish_response(request, resp, start_time)
            await request.writer.drain()
        except ConnectionError:
            finished = resp, True
        if request.content.exception() is not None:
            # Drop what has come of a body that was given up, and its error, which leads to the
            # frame that was reading it, and back to it: such a circle would be freed only when
            # Python looks for circles, which is seldom and doesn't depend on their bytes.
            request.content.set_exception(cast("Any", None))
            request.content.read_nowait()
            request.content.feed_eof()
        waiting = [_weight(message) + body.total_bytes for message, body in self._messages]
        self.release(sum(waiting, self._latest) if waiting and self._is_open else 0)
        if not request.content.is_eof():
            self._discards = True
        elif self._is_open and not waiting:
            self.listener.idle[self] = None
        return finished

    def hold_unsent(self, size: int) -> None:
        """Set how much waits to be sent."""
        self.listener.held += size - self._unsent
        self._unsent = size
        if size and self.listener.held > self.listener.limits.most_bytes:
            self.cut()

    def pause_writing(self) -> None:
        """Give a client some time to take an answer."""
        super().pause_writing()
        if self._raw is not None:
            seconds = self.listener.limits.send_seconds
            self._sending = self.listener.loop.call_later(seconds, self.cut)

    def resume_writing(self) -> None:
        """Go on, as the client has taken its answer."""
        if self._sending is not None:
            self._sending.cancel()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (which quotes the request)
    ) -> web.StreamResponse:
        """Answer bytes that aren't HTTP, or a failure of the handler."""
        answer = unexpected(exc, _log) if status >= 500 else refusal(NotHttpError())
        self.listener.metrics.count(
            "requests", answer.status, "unexpected" if status >= 500 else "http"
        )
        response = to_response(answer)
        response.force_close()
        return response


class _Tls(SSLProtocol):
    """TLS on a connection, with a small buffer, and counted before there is a request."""

    max_size = _TLS_READ_BYTES
    _ssl_buffer: bytes
    _ssl_buffer_view: memoryview

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        listener = connection.listener
        super().__init__(
            listener.loop,
            connection,
            context,
            cast("Any", None),  # nothing waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("Any", listener.limits.idle_seconds),
            ssl_shutdown_timeout=_CLOSE_SECONDS,
        )
        # asyncio's has 256 KiB for each connection.
        self._ssl_buffer, self._ssl_buffer_view = b"", listener.buffer[:_TLS_READ_BYTES]
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the handshake, if there is room."""
        raw = cast("asyncio.Transport", transport)
        if self._connection.begin(raw):
            raw.set_write_buffer_limits(0)
            listener = self._connection.listener
            listener.handshakes[self._connection] = None
            if len(listener.handshakes) > _MOST_HANDSHAKES:
                listener.turn_away()
                next(iter(listener.handshakes)).cut()
            super().connection_made(raw)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it out."""
        super().connection_lost(exc)
        self._connection.end()

    def get_buffer(self, n: int) -> memoryview:  # noqa: ARG002 (the buffer has its size)
        """Return where to put what comes."""
        return self._ssl_buffer_view

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        super().buffer_updated(nbytes)
        if self._connection.transport is not None:  # who asks for new keys, and takes no answer
            self._connection.hold_unsent(self._connection.transport.get_write_buffer_size())


def _weight(message: object) -> int:
    if isinstance(message, RawRequestMessage):
        return _MESSAGE_BYTES + _FIELD_BYTES * len(message.raw_headers)
    return 0


class _Response(web.Response):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)  # aiohttp's name and version


def to_response(answer: Answer) -> web.Response:
    """Return an answer as aiohttp sends it."""
    headers = {"Content-Type": answer.content_type, **dict(answer.fields)}
    return _Response(body=answer.body, status=answer.status, headers=headers)


def one_address(address: str) -> str:
    """Return the network that an address stands for."""
    if ":" not in address:
        return address
    full = IPv6Address(address.partition("%")[0])
    return str(full.ipv4_mapped or IPv6Network((full, _IPV6_BITS), strict=False))


# Listening


@contextmanager
def reserved_port(host: str, port: int, kind: str = "") -> Iterator[int]:
    """Bind a port for processes to share, without listening on it; yield its number."""
    try:
        family, sort, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port:
            # Alone, as another collector that shares the port would get some of its reports.
            with closing(socket.socket(family, sort, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        with closing(socket.socket(family, sort, protocol)) as reserved:
            # Like asyncio, so that a port whose last connections still linger can be had again.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            yield int(reserved.getsockname()[1])
    except (OSError, ValueError) as error:
        raise _cannot_bind(host, port, error, kind) from error


def _cannot_bind(host: str, port: int, error: OSError | ValueError, kind: str) -> ListenError:
    if isinstance(error, OSError):
        return ListenError(f"--{kind}host {host} --{kind}port {port}: {error.strerror}")
    return ListenError(f"--{kind}host {host[:80]!r}: must be a name or an address")


class _LoopTrouble:
    """Logs what goes wrong in an event loop, but not each time that no file can be opened."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context["message"]
        if "._start_serving(" in message:  # it calls back to accept again on a closed socket
            return
        if "accept() out of system resource" not in message:
            loop.default_exception_handler(context)
        elif loop.time() > self._logged_at + _PAUSE_SECONDS:
            self._logged_at = loop.time()
            _log.error("connections wait because no more files can be opened")


def room_for_connections(most: int) -> tuple[int, int]:
    """Raise this process's limit of open files for so many connections, as far as is allowed.

    Returns how many connections fit into the limit, and how many may wait to be accepted.
    """
    needed = most + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return room_within(needed if soft == resource.RLIM_INFINITY else soft, most)


def room_within(files: int, most: int) -> tuple[int, int]:
    """Return the room for at most so many connections within a limit of open files."""
    left = max(2, files - _OTHER_FILES)
    backlog = min(_BACKLOG, max(1, left // 4))
    return min(most, left - backlog), backlog


# TLS


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a server's TLS context (TLS 1.2 or newer), if it speaks TLS; raises `ListenError`."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which would cost us more than who asks for it
    context.num_tickets = 0  # marks by which whoever sees the network could know a client again
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Use the certificate for new connections from now on (raises `ListenError`)."""
    certificate, key = cast("Path", settings.tls_certificate), cast("Path", settings.tls_key)
    for path in (certificate, key):
        if not path.is_file():
            raise ListenError(f"{path}: no such file; expected a certificate or key as PEM")
    try:
        # First into another: a pair that doesn't match would take the key from the one in use.
        for into in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            into.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ListenError(f"tls_certificate {certificate}, tls_key {key}: {reason}") from error


def _no_password() -> str:
    raise ValueError("the key must not be encrypted")


# aiohttp's log


def _without_client(record: logging.LogRecord) -> bool:
    """Reduce a record of aiohttp to the kind of error it was, if it isn't a client's doing.

    Strangers could fill a disk with lines about refusals, which are counted, and lost connections.
    """
    error = record.exc_info[0] if record.exc_info else None
    if error and issubclass(error, ConnectionError | RefusalError):
        return False
    record.msg = f"request failed: {error.__name__}" if error else "request failed"
    record.args, record.exc_info, record.exc_text = (), None, None
    return True


_quiet = logging.getLogger("hubbub.collector.http")
_quiet.addFilter(_without_client)
