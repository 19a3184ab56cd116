"""Connections of a collector in the test's own event loop: clients that do as they like."""

import asyncio
import contextlib
import gzip
import json
import secrets
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import trustme

from hubbub.client import batch_to_json
from hubbub.collector import Connections, room_within
from hubbub.collector.serving import connections
from service.posting import make_batch
from unit.collector.event_loop import in_event_loop
from unit.collector.serving import running

_SECONDS = 60.0
_GET = b"GET /livez HTTP/1.1\r\nHost: collector\r\n\r\n"
_POST = b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


class _Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        """Read one answer, past interim ones, and return its status."""
        async with asyncio.timeout(_SECONDS):
            while (status := await self._one()) < 200:
                pass
            return status

    async def _one(self) -> int:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        await self.reader.readexactly(int(fields.get("content-length", 0)))
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """Return all that comes until the connection is closed."""
        async with asyncio.timeout(_SECONDS):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


class _Serving(NamedTuple):
    connections: Connections
    port: int
    stack: contextlib.AsyncExitStack

    async def client(
        self, sent: bytes = b"", source: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> _Client:
        """Connect, and send something."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0), ssl=tls, limit=2**22
        )
        self.stack.callback(writer.close)
        writer.write(sent)
        return _Client(reader, writer)


@pytest.fixture
def serve(metrics_file, store_url):
    @contextlib.asynccontextmanager
    async def serving(**settings: object) -> AsyncIterator[_Serving]:
        """Serve; afterwards all connections are gone, and nothing that was counted is left."""
        given = {"host": "127.0.0.1", "header_seconds": _SECONDS, **settings}
        async with running(metrics_file, store_url, **given) as ingest:
            port = urlsplit(ingest.addresses.public).port or 0
            async with contextlib.AsyncExitStack() as stack:
                yield _Serving(ingest.connections, port, stack)
            await _until(lambda: not ingest.connections.open)
            await _until(lambda: ingest.connections.held == 0)
            assert not ingest.connections.reading

    return serving


@pytest.fixture
def tls_files(tmp_path: Path) -> tuple[dict[str, object], ssl.SSLContext]:
    authority, client = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(client)
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    files = {"tls_certificate": tmp_path / "certificate.pem", "tls_key": tmp_path / "key.pem"}
    return {**files}, client


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@in_event_loop
async def test_chunks_that_go_wrong_end_a_body_that_is_arriving(serve):
    async with serve() as serving:
        client = await serving.client(_POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n")
        await _until(lambda: bool(serving.connections.reading))
        client.writer.write(b"no size\r\n")
        assert await client.status() == 400
        assert b"201" not in await client.rest()


@pytest.mark.parametrize("is_tls", [False, True])
@in_event_loop
async def test_batches_in_small_pieces_and_pipelined_are_stored_and_answered_in_order(
    serve, tls_files, is_tls
):
    files, context = tls_files
    bodies = [batch_to_json(make_batch(n)) for n in (1, 300, 2)]
    sent = b"".join(_POST + b"Content-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies) + _GET
    async with serve(**files if is_tls else {}) as serving:
        client = await serving.client(tls=context if is_tls else None)
        for start in range(0, len(sent), 1_000):
            client.writer.write(sent[start : start + 1_000])
            await asyncio.sleep(0)
        assert [await client.status() for _ in range(4)] == [201, 201, 201, 200]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"Content-Length: 9\r\n\r\nbegun", 408),
        (b"Content-Length: 1048577\r\n\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"80000\r\n%b\r\n" % bytes(2**19) * 3, 413),
    ],
    ids=["waited for", "large", "large in chunks"],
)
@in_event_loop
async def test_body_that_does_not_come_in_time_or_is_too_large_is_refused(serve, sent, status):
    async with serve(body_seconds=0.5) as serving:
        client = await serving.client(_POST + sent)
        assert await client.status() == status


@in_event_loop
async def test_answer_is_heard_by_a_client_that_sends_its_body_slowly(serve):
    """Who doesn't listen before all is sent would never learn why he was refused."""
    async with serve() as serving:
        client = await serving.client(_POST.replace(b"/v1", b"/v0") + b"Content-Length: 60\r\n\r\n")
        for _ in range(60):
            client.writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await client.status() == 404


@in_event_loop
async def test_clients_that_read_no_answers_are_bounded_and_cut(serve):
    async with serve(body_seconds=0.5) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as silent:
            silent.setblocking(False)
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while serving.connections.open or not serving.connections.requests_count:
                with contextlib.suppress(OSError):
                    silent.send(_GET * 1_000)
                await asyncio.sleep(0.001)
                assert serving.connections.held < 2**18


@pytest.mark.parametrize(
    "request_bytes",
    [
        _GET.replace(b"Host", b"Content-Length: 100000\r\nHost") + bytes(100_000),
        b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"X:y\r\n" * 100 + b"\r\n",
        _POST + b"Content-Length: 100000\r\n\r\n" + bytes(100_000),
    ],
    ids=["bodies that nobody reads", "many small fields", "bodies"],
)
@in_event_loop
async def test_memory_for_pipelining_clients_is_bounded(serve, request_bytes):
    most = 2**20
    async with serve(max_waiting_bytes=most) as serving:
        for _ in range(20):
            await serving.client(request_bytes * (2**20 // len(request_bytes)))
        for _ in range(300):
            await asyncio.sleep(0.01)
            assert serving.connections.held <= serving.connections.limits.most_bytes
        client = await serving.client(_GET)
        assert await client.status() in {200, 429}


@in_event_loop
async def test_body_that_has_been_arriving_for_the_longest_makes_room(serve, caplog):
    """So who sends all but the last byte of many, and then nothing, keeps nobody out.

    Nothing is logged, or strangers could fill a disk.
    """
    async with serve(max_waiting_bytes=200_000) as serving:
        head = _POST + b"Content-Length: %d\r\n\r\n"
        clients = []
        for n in range(2):
            clients.append(await serving.client(head % 100_000 + b"x" * 80_000))
            await _until(lambda n=n: serving.connections.held >= 80_000 * (n + 1))  # type: ignore[misc]
        body = batch_to_json(make_batch(5)).ljust(50_000)
        client = await serving.client(head % len(body) + body)
        assert await client.status() == 201
        assert await clients[0].rest() == b""
        clients[1].writer.write(b"x" * 20_000)
        assert await clients[1].status() == 400
    assert not caplog.records


@in_event_loop
async def test_inflated_body_that_there_is_no_room_for_is_refused(serve):
    async with serve(max_waiting_bytes=100_000) as serving:
        body = gzip.compress(json.dumps({"batch_id": "0" * 32}).encode().ljust(200_000))
        head = _POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        assert await (await serving.client(head % len(body) + body)).status() == 429


@in_event_loop
async def test_body_that_compression_makes_no_smaller_may_be_as_large_as_any(serve):
    async with serve() as serving:
        body = gzip.compress(b"\0" + secrets.token_bytes(2**20 - 2**10))
        head = _POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        assert await (await serving.client(head % len(body) + body)).status() == 400  # no JSON


@in_event_loop
async def test_connection_that_has_been_idle_the_longest_makes_room(serve):
    async with serve(max_connections=3) as serving:
        clients = []
        for n in range(3):
            clients.append(await serving.client())
            await _until(lambda n=n: serving.connections.open == n + 1)  # type: ignore[misc]
        clients[0].writer.write(_GET)  # so that it is the one that was idle last
        assert await clients[0].status() == 200
        new = await serving.client(_GET)
        assert await new.status() == 200
        assert await clients[1].rest() == b""
        for client in (clients[0], clients[2], new):
            client.writer.write(_GET)
            assert await client.status() == 200
        assert serving.connections.open == 3


@in_event_loop
async def test_busy_connections_are_never_closed_for_others(serve):
    body = batch_to_json(make_batch())
    async with serve(max_connections=1) as serving:
        client = await serving.client(_POST + b"Content-Length: %d\r\n\r\n{" % len(body))
        await _until(lambda: bool(serving.connections.reading))
        assert await (await serving.client()).rest() == b""
        client.writer.write(body[1:])
        assert await client.status() == 201


@in_event_loop
async def test_one_address_takes_no_room_of_others(serve):
    async with serve(max_connections=10, max_connections_per_address=3) as serving:
        for n in range(20):
            await serving.client(source=f"127.0.0.{1 + n % 2}")
        await asyncio.sleep(0.1)
        assert serving.connections.open == 6


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: x"])
@in_event_loop
async def test_head_takes_no_longer_than_it_may(serve, begun):
    async with serve(header_seconds=0.3) as serving:
        client = await serving.client(begun)
        assert await client.rest() == b""
        client = await serving.client(_GET + begun)
        assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"])
@in_event_loop
async def test_handshake_takes_no_longer_than_it_may(serve, tls_files, begun):
    async with serve(header_seconds=0.3, **tls_files[0]) as serving:
        assert await (await serving.client(begun)).rest() == b""


@in_event_loop
async def test_handshakes_make_room_for_each_other(serve, tls_files, monkeypatch):
    monkeypatch.setattr(connections, "_MOST_HANDSHAKES", 3)
    files, context = tls_files
    async with serve(**files) as serving:
        first = await serving.client()
        for _ in range(3):
            await serving.client()
        assert await first.rest() == b""
        client = await serving.client(_GET, tls=context)
        assert await client.status() == 200


@in_event_loop
async def test_connections_without_tls_are_closed_at_once(serve, tls_files):
    async with serve(**tls_files[0]) as serving:
        assert (await (await serving.client(_GET)).rest())[:1] in {b"", b"\x15"}  # an alert


@in_event_loop
async def test_clients_that_leave_as_soon_as_they_have_sent_something_are_no_errors(serve, caplog):
    """The connection is lost before, while or after aiohttp hands the request on."""
    async with serve() as serving:
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", serving.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(_POST + b"Content-Length: 9\r\n\r\nbegun")
                for _ in range(secrets.randbelow(6)):
                    await asyncio.sleep(0)
        await _until(lambda: not serving.connections.held)
    assert not caplog.records


@in_event_loop
async def test_client_that_leaves_before_its_answer_leaves_nothing(serve):
    async with serve() as serving:
        client = await serving.client(_POST + b"Content-Length: 9\r\n\r\nbegun")
        await _until(lambda: bool(serving.connections.reading))
        client.writer.transport.abort()
        await _until(lambda: not serving.connections.held)


def test_a_network_counts_as_one_address():
    for address in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:1::"):
        assert connections.one_address(address) == "2001:db8::/64"
    assert connections.one_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert connections.one_address("fe80::1%eth0") == "fe80::/64"
    assert connections.one_address("192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize(
    ("files", "expected"),
    [(10**6, (4096, 1024)), (5376, (4096, 1024)), (1024, (576, 192)), (64, (1, 1))],
)
def test_fewer_connections_are_let_in_than_files_can_be_opened(files, expected):
    assert room_within(files, 4096) == expected
    assert sum(expected) + 256 <= max(files, 258)
