"""Connections that dawdle, made from within one event loop: each gets its time and no more."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import web

from hubbub.collector.serving.listening import Connections, Room, listening, room_within
from unit.collector.event_loop import in_event_loop

_SECONDS = 60.0
_LARGE = bytes(2**26)


class _Serving(NamedTuple):
    connections: Connections
    port: int
    turned_away: list[None]


@contextlib.asynccontextmanager
async def _serving(
    *, most: int = 100, send_seconds: float = _SECONDS, tls: ssl.SSLContext | None = None
) -> AsyncIterator[_Serving]:
    turned_away: list[None] = []

    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=_LARGE)

    connections = Connections(
        answer,
        most=most,
        idle_seconds=_SECONDS,
        handshake_seconds=1.0 if tls else 0.0,
        send_seconds=send_seconds,
        turned_away=lambda: turned_away.append(None),
    )
    async with listening(connections, "127.0.0.1", 0, tls=tls, tls_seconds=1.0) as listener:
        yield _Serving(connections, urlsplit(listener.address).port or 0, turned_away)


@in_event_loop
async def test_client_that_does_not_take_its_answer_is_given_up() -> None:
    async with _serving(send_seconds=0.2) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\nHost: collector\r\n\r\n")
            await _until(lambda: serving.connections.open == 1)
            await _until(lambda: serving.connections.open == 0)


@in_event_loop
async def test_client_that_takes_its_answer_gets_all_of_it() -> None:
    async with _serving() as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(_LARGE)
        writer.close()


# Sockets of connections that are turned away are closed by their end.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@in_event_loop
async def test_connections_count_before_their_handshake_and_no_longer_than_it_may_take() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with _serving(most=3, tls=server) as serving:
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                address = ("127.0.0.1", serving.port)
                stack.enter_context(socket.create_connection(address))
            await _until(lambda: len(serving.turned_away) == 7)
            assert serving.connections.open == 0

        async def connects() -> bool:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", serving.port, ssl=client, server_hostname="127.0.0.1"
                )
                writer.close()
                return True
            return False

        async with asyncio.timeout(_SECONDS):
            while not await connects():
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("files", "expected"),
    [(10**6, Room(4096, 1024)), (5376, Room(4096, 1024)), (1024, Room(576, 192)), (64, Room(1, 1))],
)
def test_fewer_connections_are_let_in_than_files_can_be_opened(files: int, expected: Room) -> None:
    assert room_within(files, 4096) == expected
    assert sum(expected) + 256 <= max(files, 258)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
