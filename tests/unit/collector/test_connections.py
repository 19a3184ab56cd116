"""Connections within one event loop: requests in any pieces, and clients that do as they like."""

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from hubbub.collector.access.admission import LoadLimiter
from hubbub.collector.http1 import Head, HttpResponse
from hubbub.collector.problems import RefusalError, refusal
from hubbub.collector.serving import connections
from hubbub.collector.serving.connections import Connections, Posting
from hubbub.collector.serving.listening import Room, listening, room_within
from parameters import examples
from unit.collector.event_loop import in_event_loop

_SECONDS = 60.0
_LARGE = bytes(2**26)
_MOST_BODY = 100_000
_LATER = {"/later": 0.001, "/much-later": 0.3}
_GET = b"GET / HTTP/1.1\r\nHost: collector\r\n\r\n"


class _Echo:
    """Answers with what was asked, at once, later or after the body; as the path says."""

    def __init__(self, limiter: LoadLimiter, body_seconds: float) -> None:
        self.draining = False
        self._body_seconds = body_seconds
        self.refused: list[str] = []
        self.left = 0
        self._limiter = limiter

    def begin(self, head: Head) -> HttpResponse | Awaitable[HttpResponse] | Posting:
        if head.path == "/no":
            raise RefusalError(404, "not_found", "no")
        if head.path == "/large":
            return HttpResponse(200, _LARGE)
        if head.method == "POST":
            wait = _LATER.get(head.path, 0.0)
            return _EchoPosting(self._limiter, wait, self._body_seconds)
        if head.path == "/later":
            return self._answer_later(head)
        return HttpResponse(200, head.path.encode(), "text/plain", (("X-Method", head.method),))

    def origin_fields(self, _head: Head) -> dict[str, str]:
        return {}

    def refuse(self, error: RefusalError) -> HttpResponse:
        self.refused.append(error.reason)
        return refusal(error)

    def fail(self, error: Exception) -> HttpResponse:
        raise AssertionError from error

    def leave(self) -> None:
        self.left += 1

    @staticmethod
    async def _answer_later(head: Head) -> HttpResponse:
        await asyncio.sleep(0.001)
        return HttpResponse(200, head.path.encode(), "text/plain")


class _EchoPosting:
    most = _MOST_BODY

    def __init__(self, limiter: LoadLimiter, wait: float, seconds: float) -> None:
        slot = limiter.acquire()
        self.seconds = seconds
        self.hold, self.release = slot.hold, slot.release
        self._wait = wait

    async def answer(self, body: bytes) -> HttpResponse:
        if self._wait:
            await asyncio.sleep(self._wait)
        return HttpResponse(201, body, "application/octet-stream")


class _Serving(NamedTuple):
    connections: Connections
    echo: _Echo
    limiter: LoadLimiter
    port: int
    turned_away: list[None]

    async def is_left_empty(self) -> bool:
        """Wait until no connection is open; return whether all that was counted was given back."""
        await _until(lambda: not self.connections.open)
        return await self.limiter.wait_until_empty(_SECONDS) and self.limiter.held == 0

    async def exchange(self, sent: bytes, *, ends: bool = False) -> bytes:
        """Send this on a new connection, and perhaps that nothing follows; return all that comes.

        Then nothing that was counted for it is left.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        if ends:
            writer.write_eof()
        answer = b""
        async with asyncio.timeout(_SECONDS):
            with contextlib.suppress(ConnectionError):
                answer = await reader.read()
        writer.close()
        assert await self.is_left_empty()
        return answer


@contextlib.asynccontextmanager
async def _serving(
    *,
    most: int = 100,
    most_of_address: int = 100,
    most_bytes: int = 2**20,
    idle_seconds: float = _SECONDS,
    send_seconds: float = _SECONDS,
    body_seconds: float = _SECONDS,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[_Serving]:
    turned_away: list[None] = []
    limiter = LoadLimiter(100, most_bytes, 1.0)
    echo = _Echo(limiter, body_seconds)
    connections = Connections(
        echo,
        limiter,
        most=most,
        most_of_address=most_of_address,
        idle_seconds=idle_seconds,
        send_seconds=send_seconds,
        turned_away=lambda: turned_away.append(None),
        tls=tls,
    )
    async with listening(connections, "127.0.0.1", 0) as listener:
        port = urlsplit(listener.address).port or 0
        yield _Serving(connections, echo, limiter, port, turned_away)


class _Sent(NamedTuple):
    """A request and what is expected of its answer."""

    data: bytes
    status: int
    body: bytes | None
    closes: bool = False


def _as_chunks(body: bytes, cuts: list[int]) -> bytes:
    ends = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    chunks = [body[start:end] for start, end in pairwise(ends)]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)


_paths = st.sampled_from(["/", "/later", "/some/path?and=query"])
_bodies = st.one_of(st.binary(max_size=100), st.binary(min_size=5_000, max_size=5_000))
_fields = st.lists(
    st.tuples(st.sampled_from(["X-One", "X-Two"]), st.text("ab \t:,\xe4", max_size=20))
)


@st.composite
def _requests(draw: st.DrawFn) -> _Sent:
    path = draw(_paths)
    kind = draw(st.sampled_from(["GET", "HEAD", "POST", "chunks", "no", "no with body"]))
    method = {"chunks": "POST", "no": "GET", "no with body": "POST"}.get(kind, kind)
    path = "/no" if kind.startswith("no") else path
    fields = "".join(f"{name}:{text}\r\n" for name, text in draw(_fields)).encode("latin-1")
    head = f"{method} {path} HTTP/1.1\r\nHost: collector\r\n".encode() + fields
    body = b"" if kind in {"GET", "HEAD", "no"} else draw(_bodies)
    if kind == "chunks":
        sized = draw(st.sampled_from([b"", b"X-Trailer: x\r\n"]))
        chunked = _as_chunks(body, draw(st.lists(st.integers(0), max_size=5)))
        head += b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n" + sized + b"\r\n"
        return _Sent(head, 201, body)
    if body or draw(st.booleans()):
        head += b"Content-Length: %d\r\n" % len(body)
    data = head + b"\r\n" + body
    if kind.startswith("no"):
        return _Sent(data, 404, None)
    if kind == "POST":
        return _Sent(data, 201, body)
    return _Sent(data, 200, b"" if kind == "HEAD" else path.partition("?")[0].encode())


@examples(150)
@given(
    requests=st.lists(_requests(), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0), max_size=8),
    is_tls=st.booleans(),
    ends=st.booleans(),
)
def test_requests_in_any_pieces_are_answered_in_order(requests, cuts, is_tls, ends):
    """A refused body that hasn't come whole closes the connection, so no request follows it."""
    whole = b"".join(request.data for request in requests)
    places = sorted({cut % (len(whole) + 1) for cut in cuts} | {0, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(places)]

    async def run():
        server, client = _tls_contexts() if is_tls else (None, None)
        async with _serving(tls=server) as serving:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", serving.port, ssl=client, server_hostname="a" if client else None
            )
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            if ends and not is_tls:
                writer.write_eof()
            for request in requests:
                status, body, closes = await _read_answer(reader, request)
                assert status == request.status
                assert request.body is None or body == request.body
                if closes:
                    assert request.status == 404
                    break
            else:
                if ends and not is_tls:
                    assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            assert await serving.is_left_empty()

    asyncio.run(run())


async def _read_answer(reader: asyncio.StreamReader, request: _Sent) -> tuple[int, bytes, bool]:
    async with asyncio.timeout(_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        length = 0 if request.data.startswith(b"HEAD") else int(fields["content-length"])
        body = await reader.readexactly(length)
    return int(head.split()[1]), body, fields.get("connection") == "close"


_authority = trustme.CA()


def _tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    _authority.issue_cert("a").configure_cert(server)
    _authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\n\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \xb2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1e3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 300,
        b"GET / HTTP/1.1\r\nHost: a\r\nX:" + b" " * 8_000 + b"\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X:\r\n" * 101 + b"\r\n",
        b"GET http://\xff/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://\n/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
@in_event_loop
async def test_what_could_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(data):
    async with _serving() as serving:
        answer = await serving.exchange(data + _GET)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"not valid HTTP: " in answer
        assert b"\r\nConnection: close\r\n" in answer
        assert answer.count(b"Content-Length") == 1
        assert serving.echo.refused == ["http"]


_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "ends", "status", "refused"),
    [
        (b"Content-Length: 9\r\n\r\nbegun", False, 408, "slow"),
        (b"Content-Length: 9\r\n\r\nbegun", True, 400, "incomplete"),
        (b"Content-Length: 100001\r\n\r\n", False, 413, "too_large"),
        (_CHUNKED + b"8000\r\n%b\r\n" % bytes(2**15) * 4, False, 413, "too_large"),
    ],
    ids=["waited for", "cut off", "large", "large in chunks"],
)
@in_event_loop
async def test_body_that_does_not_come_whole_or_is_too_large_is_refused(
    sent, ends, status, refused
):
    async with _serving(body_seconds=0.3 if refused == "slow" else _SECONDS) as serving:
        answer = await serving.exchange(b"POST / HTTP/1.1\r\nHost: a\r\n" + sent, ends=ends)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert serving.echo.refused == [refused]


@in_event_loop
async def test_body_in_tiny_chunks_weighs_what_it_has():
    """As pieces of their own they would weigh thirty times as much as they say."""
    async with _serving() as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(50):
            writer.write(b"2\r\nab\r\n" * 500)
            await writer.drain()
        # While some of it waits its turn, that weighs what it is.
        await _until(lambda: 50_000 <= serving.limiter.held <= 50_000 + 300)
        pieces = [o for o in gc.get_objects() if isinstance(o, list) and len(o) > 1_000]
        assert not any(b"ab" in piece for piece in pieces)
        writer.write(b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
        assert await reader.readexactly(50_000) == b"ab" * 25_000
        writer.close()
        assert await serving.is_left_empty()


@in_event_loop
async def test_what_strangers_make_it_hold_is_bounded_by_one_budget():
    """Heads without an end, and bodies, and answers that nobody takes: 100,000 bytes in all."""
    async with _serving(most_bytes=100_000) as serving, contextlib.AsyncExitStack() as stack:
        begun = [
            b"GET / HTTP/1.1\r\nX: " + b"x" * 7_000,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n" + b"x" * 30_000,
            b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
        for turn in range(60):
            _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            stack.callback(writer.close)
            writer.write(begun[turn % 3])
            await asyncio.sleep(0.001)
            assert serving.limiter.held <= 100_000
        assert serving.limiter.held > 50_000
        await asyncio.sleep(0.5)  # in which bodies are given up
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(_GET)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await stack.aclose()
        assert await serving.is_left_empty()


@in_event_loop
async def test_client_that_does_not_take_its_answer_is_given_up():
    async with _serving(send_seconds=0.2, most_bytes=2**30) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as silent:
            silent.sendall(b"GET /large HTTP/1.1\r\nHost: collector\r\n\r\n")
            await _until(lambda: serving.connections.open == 1)
            assert await serving.is_left_empty()


@pytest.mark.parametrize("waits", [0.0, 1.0])
@in_event_loop
async def test_client_may_take_as_long_for_its_answer_as_for_that_and_not_for_the_next_head(waits):
    async with _serving(idle_seconds=0.3, most_bytes=2**30) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(waits)
        assert (await reader.read()).endswith(_LARGE)
        writer.close()


@in_event_loop
async def test_answer_that_was_taken_is_counted_no_more():
    async with _serving(most_bytes=2**30) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: collector\r\n\r\n")
        await _until(lambda: serving.limiter.held > 2**20)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(_LARGE))
        await _until(lambda: serving.limiter.held == 0)
        assert serving.connections.open == 1
        writer.close()


@in_event_loop
async def test_body_that_has_been_arriving_for_the_longest_makes_room():
    """So who sends all but the last byte of many, and then nothing, keeps nobody out."""
    async with _serving(most_bytes=200_000) as serving, contextlib.AsyncExitStack() as stack:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        clients = []
        for _ in range(2):
            clients.append(await asyncio.open_connection("127.0.0.1", serving.port))
            stack.callback(clients[-1][1].close)
            held = serving.limiter.held
            clients[-1][1].write(head % 100_000 + bytes(90_000))
            await _until(lambda held=held: serving.limiter.held == held + 90_000)  # type: ignore[misc]
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        stack.callback(writer.close)
        writer.write(head % 50_000 + bytes(50_000))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
        assert (await clients[0][0].read()).startswith(b"HTTP/1.1 429 ")
        clients[1][1].write(bytes(10_000))
        assert (await clients[1][0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
        assert serving.echo.refused == ["shed_bytes"]


@in_event_loop
async def test_what_there_is_no_room_for_is_refused_and_counted_as_that():
    async with _serving(most_bytes=5_000) as serving, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            stack.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 4_000)
            await _until(lambda: serving.limiter.held > 0)
        assert (await reader.read()).startswith(b"HTTP/1.1 429 ")
        assert (serving.echo.refused, serving.echo.left) == (["shed_bytes"], 0)


@in_event_loop
async def test_answer_is_heard_by_a_client_that_sends_its_body_slowly():
    """Who doesn't listen before all is sent would never learn why he was refused."""
    async with _serving() as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n")
        for _ in range(60):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
        writer.close()


@in_event_loop
async def test_last_answer_over_tls_ends_in_order_however_much_of_it_can_be_sent():
    """The word that nothing more comes is written with it, or it could be too late for that."""
    troubles: list[dict[str, object]] = []
    server, client = _tls_contexts()
    async with _serving(tls=server, most_bytes=2**30, send_seconds=5.0) as serving:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, it: troubles.append(it))
        request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        for _ in range(3):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", serving.port, ssl=client, server_hostname="a"
            )
            writer.write(request)
            assert (await reader.read()).endswith(_LARGE)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        assert await serving.is_left_empty()
    assert troubles == []


@in_event_loop
async def test_old_http_is_not_told_to_go_on():
    async with _serving() as serving:
        request = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na"
        assert (await serving.exchange(request)).startswith(b"HTTP/1.1 201 ")


@in_event_loop
async def test_one_who_has_a_network_is_one_address():
    assert {
        connections._one_address(address)
        for address in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:1::")
    } == {"2001:db8::/64"}
    assert connections._one_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert connections._one_address("fe80::1%eth0") == "fe80::/64"
    assert connections._one_address("192.0.2.1") == "192.0.2.1"


@in_event_loop
async def test_client_that_leaves_before_its_answer_is_counted():
    async with _serving() as serving:
        for begun in (b"\r\n\r\nwhole", b"\r\n\r\nbeg"):
            _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(b"POST /much-later HTTP/1.1\r\nHost: a\r\nContent-Length: 5" + begun)
            await _until(lambda: serving.limiter.held > 0)
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.transport.abort()
            assert await serving.is_left_empty()
        assert serving.echo.left == 2


@in_event_loop
async def test_connection_that_has_been_idle_the_longest_makes_room():
    async with _serving(most=3) as serving, contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(await asyncio.open_connection("127.0.0.1", serving.port))
            stack.callback(clients[-1][1].close)
            await _until(lambda: serving.connections.open == len(clients))
        reader, writer = clients[0]  # which is now the one that was idle last
        writer.write(_GET)
        await reader.readuntil(b"\r\n\r\n/")
        new, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        stack.callback(writer.close)
        with contextlib.suppress(ConnectionError):
            assert await clients[1][0].read() == b""
        for taken, sender in (clients[0], clients[2], (new, writer)):
            sender.write(_GET)
            await taken.readuntil(b"\r\n\r\n/")
        assert (serving.connections.open, len(serving.turned_away)) == (3, 1)


@in_event_loop
async def test_busy_connections_make_room_for_nobody():
    async with _serving(most=1) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab")
        await _until(lambda: serving.limiter.held > 0)
        late, other = await asyncio.open_connection("127.0.0.1", serving.port)
        with contextlib.suppress(ConnectionError):
            assert await late.read() == b""
        writer.write(b"c")
        assert (await reader.readuntil(b"\r\n\r\nabc")).startswith(b"HTTP/1.1 201 ")
        writer.close()
        other.close()
        assert await serving.is_left_empty()


@in_event_loop
async def test_one_address_takes_no_room_of_others():
    async with (
        _serving(most=10, most_of_address=3) as serving,
        contextlib.AsyncExitStack() as stack,
    ):
        for n in range(20):
            host = f"127.0.0.{1 + n % 2}"
            _, writer = await asyncio.open_connection(
                "127.0.0.1", serving.port, local_addr=(host, 0)
            )
            stack.callback(writer.close)
        await _until(lambda: len(serving.turned_away) == 14)
        assert serving.connections.open == 6


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"])
@in_event_loop
async def test_handshake_takes_no_longer_than_it_may(begun):
    server, _client = _tls_contexts()
    async with _serving(idle_seconds=0.3, tls=server) as serving:
        assert await serving.exchange(begun) == b""


@in_event_loop
async def test_what_is_not_tls_is_closed_at_once():
    server, _client = _tls_contexts()
    async with _serving(tls=server) as serving:
        assert (await serving.exchange(_GET))[:1] in {b"", b"\x15"}  # an alert


@in_event_loop
async def test_draining_closes_each_connection_with_its_next_answer():
    async with _serving() as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(_GET)
        assert b"Connection" not in await reader.readuntil(b"\r\n\r\n/")
        serving.echo.draining = True
        writer.write(_GET)
        assert b"\r\nConnection: close\r\n" in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    ("files", "expected"),
    [(10**6, Room(4096, 1024)), (5376, Room(4096, 1024)), (1024, Room(576, 192)), (64, Room(1, 1))],
)
def test_fewer_connections_are_let_in_than_files_can_be_opened(files, expected):
    assert room_within(files, 4096) == expected
    assert sum(expected) + 256 <= max(files, 258)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
