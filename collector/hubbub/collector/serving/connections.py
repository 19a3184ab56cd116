"""Connections that speak HTTP/1.1: bytes in, requests to an application, answers out.

All connections of a process read into one buffer, for each takes what it needs out of it before
another reads. What a connection has to keep is counted against one budget; while a request is under
way no more is read than shows that more has come. Work is done in turns. Invariants: what strangers
can make the process hold is bounded by the budget and by the number of connections; and how long
the process works before it looks at what else has come, by what one of them can make it do at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv6Address, IPv6Network
from typing import Protocol, cast

from hubbub.collector.access.admission import LoadLimiter
from hubbub.collector.http1 import (
    CONTINUE,
    HEAD_END,
    MOST_HEAD_BYTES,
    Chunks,
    Head,
    HttpError,
    HttpResponse,
    parse_head,
)
from hubbub.collector.problems import RefusalError
from hubbub.collector.serving.tls import TlsStream
from hubbub.collector.serving.turns import Turns

_READ_BYTES = 2**16  # one buffer for all connections: a usual batch in one read
_PIPELINED_BYTES = 2048
"""Read of what follows on a request that is under way: with none, nobody would see a client go.
And of what has to wait its turn: a request with a few reports."""

_TLS_READ_BYTES = 2**14
"""What this says can take OpenSSL ten milliseconds: it may be hundreds of keys to change."""

_LINGER_SECONDS = 2.0
"""For an answer to arrive, while the rest of its request is thrown away; longer while it comes."""

_IPV6_BITS = 64
"""Whoever has one address of IPv6 has as many as these leave."""

_SWEEP_SECONDS = 0.25  # idle_seconds are kept within a quarter of a second
_CLOSE_SECONDS = 1.0  # cancelled tasks end at once; one that doesn't must not hang the service


class Posting(Protocol):
    """A request whose body the application wants."""

    most: int  # bytes that the body may have
    seconds: float  # in which it must have arrived

    def hold(self, size: int) -> None:
        """Count so many bytes as held for it (raises RefusalError: 429)."""

    def answer(self, body: bytes) -> Awaitable[HttpResponse]:
        """Read the whole request at once, and return what then answers it.

        Both raise RefusalError.
        """

    def release(self) -> None:
        """End it, answered or not."""


class Application(Protocol):
    """What answers requests."""

    draining: bool  # whether each connection is to be closed with its next answer

    def begin(self, head: Head) -> HttpResponse | Awaitable[HttpResponse] | Posting:
        """Answer a request of which the head has come, or ask for its body.

        Raises `RefusalError`.
        """

    def origin_fields(self, head: Head) -> Mapping[str, str]:
        """Return what the answer, whatever it is, says to browsers about other origins."""

    def refuse(self, error: RefusalError) -> HttpResponse:
        """Count a refusal, and return its answer."""

    def fail(self, error: Exception) -> HttpResponse:
        """Count and log an error that nobody expected, and return its answer."""

    def leave(self) -> None:
        """Count a client that left before its answer."""


class Connections:
    """Makes a protocol for each new connection, and room for it where there is none.

    `limiter`: the budget of bytes. `most`: connections that may be open at once; then the one that
    has been idle the longest makes room for a new one. `most_of_address`: likewise of one address,
    which is kept in memory and only while it has connections. `idle_seconds`: how long a connection
    may take for a TLS handshake and to send the head of its first request, and of the next.
    `send_seconds`: how long a client may take to receive an answer. `turned_away`: called for each
    connection that is closed without an answer for want of room: the idle one, or the new one if
    none was idle.
    """

    def __init__(
        self,
        application: Application,
        limiter: LoadLimiter,
        *,
        most: int,
        most_of_address: int,
        idle_seconds: float,
        send_seconds: float,
        turned_away: Callable[[], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.application = application
        self.limiter = limiter
        self.send_seconds = send_seconds
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self._most = most
        self._most_of_address = most_of_address
        self._idle_seconds = idle_seconds
        self._turned_away = turned_away
        self._open: set[_Connection] = set()
        self._open_of: dict[str, int] = {}
        self._idle: dict[_Connection, float] = {}  # since when, the longest first
        self._idle_of: dict[str, dict[_Connection, None]] = {}
        self._with_bodies: dict[_Connection, None] = {}  # that haven't come whole, the oldest first
        self.turns = Turns()
        self._sweeping = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def __call__(self) -> _Connection:
        """Return the protocol of a new connection."""
        return _Connection(self)

    async def close(self) -> None:
        """Close all, and give up what is under way after a moment."""
        self._sweeping.cancel()
        tasks = [task for connection in list(self._open) if (task := connection.abort())]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def admit(self, connection: _Connection) -> bool:
        """Count a connection in, if there is room or can be made."""
        idle: dict[_Connection, float] | dict[_Connection, None] | None = None
        if self._open_of.get(connection.address, 0) >= self._most_of_address:
            idle = self._idle_of.get(connection.address, {})
        elif len(self._open) >= self._most:
            idle = self._idle
        if idle is not None:
            self._turned_away()
            oldest = next(iter(idle), None)
            if oldest is None:
                return False
            oldest.abort()
            self.forget(oldest)
        self._open.add(connection)
        self._open_of[connection.address] = self._open_of.get(connection.address, 0) + 1
        self.note_idle(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """Count a connection out, unless that was done."""
        if connection not in self._open:
            return
        self.note_busy(connection)
        self._open.remove(connection)
        left = self._open_of[connection.address] - 1
        if left:
            self._open_of[connection.address] = left
        else:
            del self._open_of[connection.address]

    def note_idle(self, connection: _Connection) -> None:
        """Count a connection among those that can make room, unless it is one of them."""
        if connection in self._open and connection not in self._idle:
            self._idle[connection] = self.loop.time()
            self._idle_of.setdefault(connection.address, {})[connection] = None

    def note_busy(self, connection: _Connection) -> None:
        """Count a connection no more among those that can make room."""
        if self._idle.pop(connection, None) is not None:
            of_address = self._idle_of[connection.address]
            del of_address[connection]
            if not of_address:
                del self._idle_of[connection.address]

    def note_body(self, connection: _Connection) -> None:
        """Count a connection among those whose bodies can make room."""
        self._with_bodies[connection] = None

    def forget_body(self, connection: _Connection) -> None:
        """Count a connection no more among those whose bodies can make room."""
        self._with_bodies.pop(connection, None)

    def make_room(self, error: RefusalError, but: _Connection) -> bool:
        """Give up the body that has been arriving for the longest; return whether there was one."""
        oldest = next((it for it in self._with_bodies if it is not but), None)
        if oldest is None:
            return False
        oldest.refuse(error)
        return True

    def _sweep(self) -> None:
        """Close what has been idle for too long; the longest come first."""
        self._sweeping = self.loop.call_later(_SWEEP_SECONDS, self._sweep)
        until = self.loop.time() - self._idle_seconds
        for connection, since in list(self._idle.items()):
            if since > until:
                break
            if not connection.is_full:
                connection.abort()
                self.forget(connection)


class _Connection(asyncio.BufferedProtocol):
    """One connection: its state between the bytes that come.

    It is idle, takes a body, answers, or lingers: throws away what comes after its last answer.
    """

    __slots__ = (
        "_answering", "_at_eof", "_body", "_came", "_came_late", "_chunks", "_connections", "_head",
        "_held", "_is_cut", "_is_last", "_left", "_lingers_until", "_posting", "_rest", "_sending",
        "_timer", "_tls", "_transport", "_waits_turn", "address", "is_full",
    )  # fmt: skip

    _transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self.address = ""
        self._connections = connections
        self._tls = TlsStream(connections.tls) if connections.tls else None
        self._came = b""  # that waits its turn, as it came
        self._rest = b""  # that has come and can't be used yet
        self._held = 0  # bytes of both, and of an answer, that are counted
        self._head: Head | None = None  # of the request that is under way
        self._posting: Posting | None = None
        self._body = bytearray()  # a list of pieces could weigh much more than what is in them
        self._left = 0  # bytes of the body that are still to come
        self._chunks: Chunks | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the body or the lingering
        self._sending: asyncio.TimerHandle | None = None  # of an answer that waits to be sent
        self._lingers_until = 0.0
        self._came_late = False  # something to throw away
        self._answering: asyncio.Task[None] | None = None
        self.is_full = False  # an answer waits to be sent
        self._is_cut = False  # by us, for want of room
        self._is_last = False  # the last answer was given: what comes is thrown away
        self._waits_turn = False  # what has come waits for what others have to do
        self._at_eof = False  # nothing more comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(0)
        name = transport.get_extra_info("peername")
        self.address = _one_address(name[0]) if isinstance(name, tuple) else ""
        if not self._connections.admit(self):
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the buffer has its size)
        """Return where to put what comes."""
        if self._is_busy() or self._connections.turns.is_long:
            return self._connections.buffer[:_PIPELINED_BYTES]
        if self._tls is not None:
            return self._connections.buffer[:_TLS_READ_BYTES]
        return self._connections.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come, now or in its turn."""
        data = self._connections.buffer[:nbytes]
        if self._is_last:
            self._came_late = True
        elif not self._waits_turn and self._connections.turns.may_begin():
            self._receive(data)
        else:
            self._came += data
            self._wait_turn()
            self._keep(self._rest)

    def eof_received(self) -> bool:
        """Stay open for the answers to what has come whole."""
        self._at_eof = True
        if self._is_last:
            self._transport.close()
        elif not self._is_busy():
            self._finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (whatever it was)
        """Give back all that was counted for it."""
        if not self._is_cut and (self._posting is not None or self._answering is not None):
            self._connections.application.leave()
        if self._answering is None:
            self._release()
        self._is_last = True
        self._stop_timer()
        self._stop_sending_timer()
        self._connections.limiter.keep(-self._held)
        self._held = 0
        self._connections.forget(self)

    def pause_writing(self) -> None:
        """Give a client some time to take an answer; what waits to be sent is counted."""
        self.is_full = True
        self._transport.pause_reading()
        seconds = self._connections.send_seconds
        self._sending = self._connections.loop.call_later(seconds, self._transport.abort)
        self._keep(self._rest)

    def resume_writing(self) -> None:
        """Go on, as the client has taken its answer."""
        self.is_full = False
        self._stop_sending_timer()
        self._keep(self._rest)
        if self._is_last:
            self._linger()
        else:
            if self._head is None:
                self._note_idle()
            self._go_on()

    def abort(self) -> asyncio.Task[None] | None:
        """Close at once; return what is still being answered, if anything is."""
        self._is_last = True
        self._transport.abort()
        return self._answering

    def _receive(self, came: memoryview | bytes) -> None:
        """Take what has come, now."""
        if self._tls is not None:
            try:
                came = self._tls.receive(memoryview(came))
            except ssl.SSLError:
                self._write(self._tls.to_send())
                self._end()
                return
            self._write(self._tls.to_send())
        self._take(self._rest + came)
        if self._tls is not None and self._tls.is_over and not self._at_eof:
            self.eof_received()

    def _take(self, data: bytes) -> None:
        """Take what has come, one request of it, as far as it can be used now."""
        while not (self._is_last or self._transport.is_closing()):
            if self._is_busy():
                if data:
                    self._transport.pause_reading()
                break
            if self._posting is not None:
                data = self._take_body(self._posting, data)
                if self._posting is not None and self._answering is None:
                    break
            else:
                while data.startswith(b"\r\n"):  # left over from the request before
                    data = data[2:]
                end = data.find(HEAD_END, 0, MOST_HEAD_BYTES)
                if end < 0:
                    if len(data) >= MOST_HEAD_BYTES:
                        self.refuse(_not_http(f"head: must be at most {MOST_HEAD_BYTES} bytes"))
                    break
                data = self._begin(data[:end], data[end + len(HEAD_END) :])
            if data and self._head is None and not self._is_last:
                self._wait_turn()  # for the next request: this one was answered at once
        self._keep(b"" if self._is_last else data)

    def _begin(self, data: bytes, rest: bytes) -> bytes:
        """Let the application begin with a request; return what is left of what came after it."""
        application = self._connections.application
        try:
            head = parse_head(data)
        except HttpError as error:
            self.refuse(_not_http(str(error)))
            return b""
        # Kept while the request is under way, and its fields can weigh twenty times what they say.
        self._head = head._replace(path="", fields=dict(application.origin_fields(head)))
        try:
            reply = application.begin(head)
        except RefusalError as error:
            reply = application.refuse(error)
        except Exception as error:
            reply = application.fail(error)
        if isinstance(reply, HttpResponse):
            # A body that has come whole is passed over, so that the connection can be used again.
            is_whole = head.length is not None and head.length <= len(rest)
            self._respond(reply, is_last=not is_whole)
            return rest[head.length :]
        self._connections.note_busy(self)
        if isinstance(reply, Awaitable):
            self._answer_by(reply)
        else:
            self._expect_body(reply, head)
        return rest

    def _expect_body(self, posting: Posting, head: Head) -> None:
        self._posting = posting
        self._chunks = Chunks() if head.length is None else None
        self._left = head.length or 0
        self._connections.note_body(self)
        if self._left > posting.most:
            self.refuse(_too_large(posting.most))
        elif head.expects_continue:
            self._write(self._encrypt(CONTINUE))

    def _take_body(self, posting: Posting, data: bytes) -> bytes:
        """Take what there is of a body, answer the request if that is all; return the rest."""
        try:
            if self._chunks is None:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                is_whole = not self._left
            else:
                pieces, data = self._chunks.take(data)
                piece, is_whole = b"".join(pieces), self._chunks.is_over
                if self._chunks.has_stopped:
                    self._wait_turn()
            size = len(self._body) + len(piece)
            if size > posting.most:
                raise _too_large(posting.most)
            self._hold(posting, size)
        except HttpError as error:
            self.refuse(_not_http(str(error)))
            return b""
        except RefusalError as error:
            self.refuse(error)
            return b""
        if is_whole:
            self._stop_timer()
            self._connections.forget_body(self)
            body = bytes(self._body) + piece if self._body else piece
            self._body = bytearray()
            self._answer_body(posting, body)
        else:
            self._body += piece
            if self._timer is None:
                loop = self._connections.loop
                self._timer = loop.call_later(posting.seconds, self._give_up_body, posting.seconds)
        return data

    def _hold(self, posting: Posting, size: int) -> None:
        """Count bytes of a body, for which older ones make room (raises RefusalError)."""
        while True:
            try:
                posting.hold(size)
                return
            except RefusalError as error:
                if not self._connections.make_room(error, self):
                    raise

    def _answer_body(self, posting: Posting, body: bytes) -> None:
        application = self._connections.application
        try:
            self._answer_by(posting.answer(body))
            return
        except RefusalError as error:
            response = application.refuse(error)
        except Exception as error:
            response = application.fail(error)
        self._respond(response, is_last=False)

    def _give_up_body(self, seconds: float) -> None:
        self._timer = None
        self.refuse(RefusalError(408, "slow", f"body: must arrive within {seconds:g} seconds"))

    def _answer_by(self, answer: Awaitable[HttpResponse]) -> None:
        self._answering = self._connections.loop.create_task(self._answer(answer))

    async def _answer(self, answer: Awaitable[HttpResponse]) -> None:
        application = self._connections.application
        try:
            response = await answer
        except RefusalError as error:
            response = application.refuse(error)
        except Exception as error:
            response = application.fail(error)
        finally:
            self._release()
            self._answering = None
        if not self._is_last:
            self._respond(response, is_last=False)
            self._go_on()

    def _release(self) -> None:
        self._connections.forget_body(self)
        if self._posting is not None:
            self._posting.release()
            self._posting = None

    def refuse(self, error: RefusalError) -> None:
        """Refuse a request of which more may come."""
        self._respond(self._connections.application.refuse(error), is_last=True)

    def _respond(self, response: HttpResponse, *, is_last: bool) -> None:
        """Give an answer.

        `is_last`: whether the connection must be closed, because what follows isn't another
        request.
        """
        head, self._head = self._head, None
        self._stop_timer()
        self._body = bytearray()
        self._release()
        keeps_alive = head is not None and head.keeps_alive
        self._is_last = is_last or not keeps_alive or self._connections.application.draining
        if head is not None and head.fields:
            response = response._replace(fields=(*response.fields, *head.fields.items()))
        is_head = head is not None and head.method == "HEAD"
        data = self._encrypt(response.to_bytes(with_body=not is_head, closes=self._is_last))
        if self._is_last and self._tls is not None:
            data += self._tls.end()
        self._write(data)
        self._note_idle()
        if self._is_last and not self.is_full:
            self._linger()

    def _encrypt(self, data: bytes) -> bytes:
        return self._tls.encrypt(data) if self._tls is not None else data

    def _write(self, data: bytes) -> None:
        if data:
            self._transport.write(data)

    def _note_idle(self) -> None:
        self._connections.note_busy(self)
        self._connections.note_idle(self)

    def _linger(self) -> None:
        """Throw away what comes, for a while: to close before that would reset the answer."""
        if self._transport.is_closing():
            return
        if self._at_eof:
            self._end()
            return
        try:
            self._transport.write_eof()
        except OSError:  # it has just left
            self._transport.abort()
            return
        self._lingers_until = self._connections.loop.time() + self._connections.send_seconds
        self._linger_on()

    def _linger_on(self) -> None:
        self._came_late = False
        self._came = b""
        self._keep(b"")
        self._transport.resume_reading()
        self._timer = self._connections.loop.call_later(_LINGER_SECONDS, self._end_lingering)

    def _end_lingering(self) -> None:
        if self._came_late and self._connections.loop.time() < self._lingers_until:
            self._linger_on()
        else:
            self._transport.abort()

    def _finish(self) -> None:
        if self._posting is not None:
            self.refuse(RefusalError(400, "incomplete", "body: incomplete"))
        else:
            self._end()

    def _end(self) -> None:
        if self._tls is not None and not self._is_last:
            self._write(self._tls.end())
        self._is_last = True
        self._transport.close()

    def _is_busy(self) -> bool:
        return self._answering is not None or self.is_full or self._waits_turn

    def _wait_turn(self) -> None:
        self._transport.pause_reading()
        if not self._waits_turn:
            self._waits_turn = True
            self._connections.turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_turn = False
        if self._is_last:
            return
        came, self._came = self._came, b""
        if came:
            self._receive(came)
        self._go_on()

    def _go_on(self) -> None:
        """Go on with what has come in the meantime."""
        if self._is_last or self._is_busy():
            return
        if self._rest or self._posting is not None:
            self._take(self._rest)
        if self._is_last or self._is_busy():
            return
        if self._at_eof:
            self._finish()
        else:
            self._transport.resume_reading()

    def _keep(self, rest: bytes) -> None:
        """Keep bytes for later, and count them, with what waits to be sent."""
        self._rest = rest
        size = len(rest) + len(self._came)
        if self._tls is not None:
            size += self._tls.held
        if self.is_full:
            size += self._transport.get_write_buffer_size()
        while size != self._held:
            error = self._connections.limiter.keep(size - self._held)
            if error is None:
                self._held = size
            elif not self._connections.make_room(error, self):
                self._shed(error)
                break

    def _shed(self, error: RefusalError) -> None:
        """Throw away what there is no room for: refuse it, or cut where no answer can be given."""
        self._rest = self._came = b""
        can_hear = self._tls is None or self._tls.is_open
        if can_hear and not (self._is_last or self.is_full or self._answering):
            self.refuse(error)
        else:
            self._connections.application.refuse(error)  # which counts it: nobody reads it
            self._is_cut = True
            self.abort()

    def _stop_sending_timer(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _one_address(address: str) -> str:
    if ":" not in address:
        return address
    full = IPv6Address(address.partition("%")[0])
    return str(full.ipv4_mapped or IPv6Network((full, _IPV6_BITS), strict=False))


def _not_http(detail: str) -> RefusalError:
    return RefusalError(400, "http", f"not valid HTTP: {detail}")


def _too_large(most: int) -> RefusalError:
    return RefusalError(413, "too_large", f"body: must be at most {most} bytes")
