"""The collector's listeners: aiohttp's connections, within bounds of number, bytes and time.

aiohttp speaks HTTP, and reads ahead on each connection. Here what has come and isn't answered is
counted, per connection and in all, with what aiohttp makes of it; and it is parsed in turns, so
that a thousand busy connections don't keep a probe waiting. Invariant: what strangers can make a
process hold is bounded by `Limits`. Requests beyond the bound are refused; a connection that sends
too much by itself, or when all together hold a quarter more, is aborted.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from hubbub.collector.problems import Answer, RefusalError
from hubbub.protocol import HubbubError

_READ_BYTES = 2**14
"""Read of a connection at a time: what it says may take milliseconds to parse."""
_TLS_READ_BYTES = 2**12
"""Likewise of TLS: what OpenSSL keeps of memory for it, it keeps for good."""
_MOST_HANDSHAKES = 1024
"""At once, as each takes 50 kB; then the one that has taken the longest is given up."""
_AHEAD_BYTES = 2**16
"""Of requests that came before the one under way was answered: nobody needs more than one."""
_MESSAGE_BYTES, _FIELD_BYTES = 2**11, 400
"""What a parsed request, and each field of its head, weigh in memory; measured with Python 3.11."""
_SHARE_SECONDS = 0.005
"""Of parsing between two looks at the sockets: a probe that comes waits for twice that."""
_REQUEST_SECONDS = 0.0003
"""What a request that had to wait is expected to take, once it may begin."""
_CLOSE_SECONDS = 1.0
"""For clients of TLS to say goodbye, and for cancelled requests to end."""
_IPV6_BITS = 64
"""Whoever has one address of IPv6 has as many as these leave."""
_ACCEPTED = 64  # connections between two looks at the sockets: some milliseconds
_BACKLOG = 1024  # connections that wait for accept(): a second of a busy service's
_OTHER_FILES = 256  # the store's files, connections and pipes are some tens
_PAUSE_SECONDS = 60.0  # a shortage of files is logged once a minute, not once a connection

_log = logging.getLogger("hubbub.collector")


class ListenError(HubbubError):
    """An address that can't be listened on, or a certificate that can't be used."""


class NotHttpError(RefusalError):
    """What isn't HTTP, or could be read in two ways."""

    def __init__(self) -> None:
        super().__init__(400, "http", "not valid HTTP")


class Limits(NamedTuple):
    """Bounds on what strangers make a listener hold."""

    connections: int  # then the one that has been idle the longest makes room for a new one
    connections_per_address: int  # likewise; an address is kept only while it has connections
    request_bytes: int  # of one request
    total_bytes: int  # of all that isn't answered
    idle_seconds: float  # to send the head of the first request, and of the next
    send_seconds: float  # to receive an answer

    @property
    def most_bytes(self) -> int:
        """Bytes from which on connections are aborted; up to that, requests are answered 429."""
        return self.total_bytes * 5 // 4 + _AHEAD_BYTES


class Application(Protocol):
    """What answers requests."""

    def refuse(self, error: RefusalError) -> Answer:
        """Count a refusal, and return its answer."""

    def fail(self, error: BaseException | None) -> Answer:
        """Count and log an unexpected error, and return its answer."""

    def shed(self, reason: str) -> RefusalError:
        """Return the refusal of what there is no room for."""

    def turned_away(self) -> None:
        """Count a connection that was closed without an answer for want of room."""

    def left(self) -> None:
        """Count a client that left before its answer."""


class Connections(web.Server):
    """Makes a protocol for each new connection, and room for it where there is none."""

    def __init__(
        self,
        application: Application,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        request_factory: Callable[..., web.BaseRequest] | None = None,
    ) -> None:
        super().__init__(handler, request_factory=self._begin)
        self._make = request_factory or self._make_request
        self.application = application
        self.limits = limits
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(_READ_BYTES))  # each connection takes what it needs
        self.line = _Line(self.loop)
        self.held = 0
        self.reading: dict[Connection, StreamReader] = {}  # bodies that arrive, the oldest first
        self.open = 0
        self._open_of: dict[str, int] = {}  # by address
        self._idle: dict[Connection, None] = {}  # the longest first
        self._handshakes: dict[Connection, None] = {}  # likewise

    def __call__(self) -> Any:
        """Return the protocol of a new connection."""
        connection = Connection(self)
        return _Tls(connection, self.tls) if self.tls else connection

    def _begin(self, message: Any, payload: Any, protocol: Any, *others: Any) -> web.BaseRequest:
        self._idle.pop(protocol, None)
        return self._make(message, payload, protocol, *others)

    def admit(self, connection: Connection) -> bool:
        """Count a connection in, if there is room or can be made."""
        address = connection.address
        is_full = self._open_of.get(address, 0) >= self.limits.connections_per_address
        if is_full or self.open >= self.limits.connections:
            self.application.turned_away()
            others = (it for it in self._idle if not is_full or it.address == address)
            oldest = next(others, None)
            if oldest is None:
                return False
            oldest.cut()
        self.open += 1
        self._open_of[address] = self._open_of.get(address, 0) + 1
        self._idle[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self._idle.pop(connection, None)
        self._handshakes.pop(connection, None)
        self.open -= 1
        self._open_of[connection.address] -= 1
        if not self._open_of[connection.address]:
            del self._open_of[connection.address]

    def note_handshake(self, connection: Connection) -> None:
        """Count a connection among those whose handshake isn't over."""
        self._handshakes[connection] = None
        if len(self._handshakes) > _MOST_HANDSHAKES:
            self.application.turned_away()
            next(iter(self._handshakes)).cut()

    def note_open(self, connection: Connection) -> None:
        """Count a connection among those that have begun to speak HTTP."""
        self._handshakes.pop(connection, None)

    def note_idle(self, connection: Connection) -> None:
        """Count a connection among those that can make room."""
        self._idle[connection] = None

    def make_room(self, connection: Connection) -> None:
        """Give up the body that has been arriving for the longest, or else refuse this one."""
        oldest = next((it for it in self.reading if it is not connection), connection)
        oldest.give_up(self.application.shed("bytes"))
        if self.held > self.limits.most_bytes:
            connection.cut()

    async def close(self) -> None:
        """Close all, and give up what is under way after a moment."""
        await self.shutdown(_CLOSE_SECONDS)


class _Line:
    """Work that shares the event loop: at most `_SHARE_SECONDS` of it between two looks.

    asyncio runs all that is ready before it looks again at what has come.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[[], object], float]] = deque()
        self._until: float | None = None  # when the share since the last look is used up

    async def turn(self) -> None:
        """Wait until a request may begin."""
        if not self.takes_now():
            turn = self._loop.create_future()
            self.wait(partial(_wake, turn), _REQUEST_SECONDS)
            await turn

    def takes_now(self) -> bool:
        """Return whether to work at once."""
        until = self._until or self._begin()
        return not self._waiting and time.perf_counter() < until

    def wait(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do some work in its turn; `seconds`: what it will take later on."""
        self._waiting.append((work, seconds))

    def _begin(self) -> float:
        self._until = time.perf_counter() + _SHARE_SECONDS
        self._loop.call_soon(self._go_on)  # which comes after the next look
        return self._until

    def _go_on(self) -> None:
        self._until = None
        if not self._waiting:
            return
        until = self._begin()
        while self._waiting and time.perf_counter() < until:
            work, seconds = self._waiting.popleft()
            until -= seconds
            work()


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


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
        # Reading stops when two requests wait; that more may come in one read.
        self._max_msg_queue_size, self._msg_queue_resume_size = 2, 0
        self.address = ""
        self.refusal: RefusalError | None = None  # of the next request
        self.listener = listener
        self._raw: asyncio.Transport | None = None
        self._is_open = False
        self._came = b""  # and waits for its turn
        self._weights: deque[int] = deque()  # of requests that aren't answered
        self._rest = 0  # bytes of a head that hasn't come whole
        self._unsent = 0  # bytes of answers, and of TLS itself
        self._discards = False  # the rest of a body that was refused
        self._is_fresh = False  # a request that came in its turn
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
            self.listener.note_open(self)
            cast("Any", transport).set_read_buffer_limits(_READ_BYTES, 0)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop answering."""
        if self._is_open and self._request_in_progress:
            self.listener.application.left()
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(exc)
        if self.listener.tls is None:
            self.end()

    def end(self) -> None:
        """Count it out, but for what a request that is still under way holds."""
        if self._is_open:
            self._is_open = False
            self.listener.forget(self)
        if not self._request_in_progress:
            self._release_all()

    def cut(self) -> None:
        """Close at once."""
        self.end()
        if self._raw is not None:
            self._raw.abort()

    # What comes

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the buffer has its size)
        """Return where to put what comes."""
        return self.listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come, now or in its turn."""
        data = bytes(self.listener.buffer[:nbytes])
        if not self._discards:
            self._hold(nbytes)
        if self.listener.tls is not None or not (self._came or not self.listener.line.takes_now()):
            self.data_received(data)
            return
        if self._came:  # once is as much as most have to send
            self._pause_transport_reading()
        else:
            self.listener.line.wait(self._take_turn)
        self._came += data

    def _take_turn(self) -> None:
        data, self._came = self._came, b""
        if self.transport is not None and not self.transport.is_closing():
            self.data_received(data)
            if not (self._reading_paused or self._buffer_paused):
                self._resume_transport_reading()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and weigh the requests in it."""
        before = len(self._messages)
        super().data_received(data)
        for message, _ in islice(self._messages, before, None):
            if not self._is_open:  # it has just been cut
                break
            self._discards, self._is_fresh = False, True
            size = 0
            if isinstance(message, RawRequestMessage):
                size = _MESSAGE_BYTES + _FIELD_BYTES * len(message.raw_headers)
            elif body := self.listener.reading.get(self):
                body.set_exception(NotHttpError())
            self._weights.append(self._rest + size)
            self._rest = 0
            self._add(size)

    async def turn(self) -> None:
        """Wait until a request may begin; the first of a read has had its turn."""
        if not self._is_fresh:
            await self.listener.line.turn()
        self._is_fresh = False

    def _hold(self, size: int) -> None:
        """Count bytes that have come for the last request, or for the next head."""
        if not self._is_open:
            return
        if self._weights:
            self._weights[-1] += size
        else:
            self._rest += size
        self._add(size)

    def _add(self, size: int) -> None:
        self.listener.held += size
        weights, limits = self._weights, self.listener.limits
        ahead = self._rest + sum(islice(weights, 1, None))
        if ahead > _AHEAD_BYTES or (weights and weights[0] > limits.request_bytes + _AHEAD_BYTES):
            self.listener.application.refuse(self.listener.application.shed("bytes"))
            self.cut()
        elif self.listener.held > limits.total_bytes:
            self.listener.make_room(self)

    def hold(self, size: int) -> None:
        """Count what was made of a request's body as held, too (raises RefusalError: 429)."""
        if self.listener.held + size > self.listener.limits.total_bytes:
            raise self.listener.application.shed("bytes")
        self._hold(size)

    def give_up(self, error: RefusalError) -> None:
        """Refuse the body that is arriving, or else the next request."""
        body = self.listener.reading.pop(self, None)
        if body is None:
            self.refusal = error
            return
        body.set_exception(error)
        self._discards = True
        if self._weights:
            self.listener.held -= self._weights[0]
            self._weights[0] = 0

    # What goes

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; count it until the client has taken it."""
        self.hold_unsent(resp.content_length or 0)
        try:
            finished = await super().finish_response(request, resp, start_time)
            if self._paused and self.transport is not None:
                await self._drain_helper()
        except ConnectionError:
            finished = resp, True
        if request.content.exception() is not None:
            _empty(request.content)
        self.hold_unsent(0)
        if self._weights:
            self.listener.held -= self._weights.popleft()
        if not self._is_open:
            self._release_all()
        elif not request.content.is_eof():
            self._discards = True
        elif not self._weights:
            self.listener.note_idle(self)
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
        application = self.listener.application
        answer = application.fail(exc) if status >= 500 else application.refuse(NotHttpError())
        response = to_response(answer)
        response.force_close()
        return response

    def _release_all(self) -> None:
        self.listener.held -= self._rest + sum(self._weights) + self._unsent
        self._rest = self._unsent = 0
        self._weights.clear()


class _Tls(SSLProtocol):
    """TLS on a connection, with a small buffer, and counted before there is a request."""

    max_size = _TLS_READ_BYTES
    _ssl_reading_paused: bool
    _ssl_buffer: bytes
    _ssl_buffer_view: memoryview

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        listener = connection.listener
        super().__init__(
            listener.loop,
            connection,
            context,
            cast("Any", None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("Any", listener.limits.idle_seconds),
            ssl_shutdown_timeout=_CLOSE_SECONDS,
        )
        # asyncio's has 256 KiB for each connection.
        self._ssl_buffer, self._ssl_buffer_view = b"", listener.buffer[:_TLS_READ_BYTES]
        self._connection = connection
        self._raw: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the handshake, if there is room."""
        raw = cast("asyncio.Transport", transport)
        if self._connection.begin(raw):
            self._raw = raw
            raw.set_write_buffer_limits(0)
            self._connection.listener.note_handshake(self._connection)
            super().connection_made(raw)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it out."""
        self._raw = None
        super().connection_lost(exc)
        self._connection.end()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come, now or in its turn."""
        line = self._connection.listener.line
        if self._raw is None or line.takes_now():
            self._take(nbytes)
        else:
            self._raw.pause_reading()
            line.wait(partial(self._take_turn, bytes(self._ssl_buffer_view[:nbytes])))

    def get_buffer(self, n: int) -> memoryview:  # noqa: ARG002 (the buffer has its size)
        """Return where to put what comes."""
        return self._ssl_buffer_view

    def _take_turn(self, data: bytes) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._ssl_buffer_view[: len(data)] = data
            self._take(len(data))
        if self._raw is not None and not self._ssl_reading_paused:
            self._raw.resume_reading()

    def _take(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        if self._connection.transport is not None:  # who asks for new keys, and takes no answer
            self._connection.hold_unsent(self._connection.transport.get_write_buffer_size())


def _empty(body: StreamReader) -> None:
    """Drop what has come of a body that was given up, and its error.

    The error leads to the frame that was reading it, and back to it: such a circle would be freed
    only when Python looks for circles, which is seldom and doesn't depend on their bytes.
    """
    body.set_exception(cast("Any", None))
    body.read_nowait()
    body.feed_eof()


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


@asynccontextmanager
async def listening(
    connections: Connections,
    host: str,
    port: int,
    *,
    kind: str = "",
    shared: bool = False,
    backlog: int = _BACKLOG,
) -> AsyncIterator[Listener]:
    """Listen as long as the context is open.

    `port`: 0 lets the system choose. `kind`: what the names of its settings begin with. `shared`:
    whether other processes listen on the same port. Raises `ListenError` if the address can't be
    bound.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_LoopTrouble())
    try:
        server = await loop.create_server(
            connections, host, port, backlog=_ACCEPTED, reuse_port=shared or None
        )
        for listened in server.sockets:  # as many as asyncio accepts at a time may wait, and more
            with listened.dup() as same:
                same.listen(backlog)
    except (OSError, ValueError) as error:  # a name that can't be one raises a ValueError
        raise _cannot_bind(host, port, error, kind) from error
    try:
        scheme = "https" if connections.tls else "http"
        yield Listener(_address_of(scheme, server.sockets[0].getsockname()), server.close)
    finally:
        server.close()
        await asyncio.sleep(0)  # what has been accepted gets to its connection
        await connections.close()


class Listener(NamedTuple):
    """An address on which connections are accepted, and how to stop that."""

    address: str
    stop_accepting: Callable[[], None]


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
            # As asyncio does, so that a port whose last connections still linger can be had again.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            yield int(reserved.getsockname()[1])
    except (OSError, ValueError) as error:
        raise _cannot_bind(host, port, error, kind) from error


def _address_of(scheme: str, name: Sequence[Any]) -> str:
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


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


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context (TLS 1.2 or newer); raises `ListenError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which would cost us more than who asks for it
    context.num_tickets = 0  # marks by which whoever sees the network could know a client again
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a certificate for new connections from now on (raises `ListenError`)."""
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
