"""A proxy before PostgreSQL that breaks or holds a connection at a chosen round trip."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_SOCKET = ".s.PGSQL.5432"
_ROUND_TRIPS = b"QSc"
"""What the server says that it is ready after: a simple query, "sync", the end of what is copied.

Not a query that copies: what it reads is sent with it, without waiting for an answer.
"""

_READY = b"Z\x00\x00\x00\x05"


class Fault(Enum):
    """What happens at the round trip."""

    LOSE_REQUEST = auto()  # the server never sees it
    LOSE_ANSWER = auto()  # the server has done it, and nobody learns of it
    HOLD_ANSWER = auto()  # until it is released


class CuttingProxy:
    """A running proxy.

    `url`: where clients connect. `round_trips`: how many there were since it was armed. `held`: set
    as long as an answer is held.
    """

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self._target = target
        self.held = asyncio.Event()
        self._released = asyncio.Event()
        self._served: set[asyncio.Task[None]] = set()
        self.arm(0, Fault.LOSE_REQUEST)

    def arm(self, at: int, fault: Fault) -> None:
        """Let a fault happen once, at the round trip with this number; 0: at none."""
        self.round_trips = 0
        self._at, self._fault = at, fault
        self.held.clear()
        self._released.clear()

    def release(self) -> None:
        """Pass on the answer that is held."""
        self._released.set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to stand between one client and the server."""
        self._served.add(asyncio.create_task(self._serve(reader, writer)))

    async def wait_closed(self) -> None:
        """Wait until all connections have ended, as their clients have."""
        if self._served:
            await asyncio.wait(self._served)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stand between one client and the server, until one of them or a fault ends it."""
        from_server, to_server = await asyncio.open_unix_connection(self._target)
        may_answer, is_ready = asyncio.Event(), asyncio.Event()
        may_answer.set()
        answering = asyncio.create_task(_answer(from_server, writer, may_answer, is_ready))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            kind = b""  # the first message has none
            while True:
                length = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(length) - 4)
                is_copying = kind == b"Q" and b"FROM STDIN" in body
                is_trip = kind != b"" and kind in _ROUND_TRIPS and not is_copying
                self.round_trips += is_trip
                is_chosen = is_trip and self.round_trips == self._at
                if is_chosen and self._fault is Fault.LOSE_REQUEST:
                    break
                if is_chosen:
                    may_answer.clear()
                    is_ready.clear()
                to_server.write(kind + length + body)
                if is_chosen:
                    await is_ready.wait()
                    if self._fault is Fault.LOSE_ANSWER:
                        break
                    self.held.set()
                    await self._released.wait()
                    may_answer.set()
                kind = await reader.readexactly(1)
        to_server.close()
        if not may_answer.is_set():
            answering.cancel()
        await asyncio.wait([answering])
        writer.close()


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    may_answer: asyncio.Event,
    is_ready: asyncio.Event,
) -> None:
    """Pass on what the server says until it ends the connection.

    That it is ready is passed on when it may be. It may ask before for what is to be copied.
    """
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            if data[-6:-1] == _READY:
                is_ready.set()
                await may_answer.wait()
            writer.write(data)
        writer.close()


@asynccontextmanager
async def cutting_proxy(url: str, folder: Path) -> AsyncIterator[CuttingProxy]:
    """Run a proxy before the server at an address, on a socket in a folder."""
    (host,) = parse_qs(urlsplit(url).query)["host"]
    proxy = CuttingProxy(url.replace(host, str(folder)), f"{host}/{_SOCKET}")
    server = await asyncio.start_unix_server(proxy.serve, folder / _SOCKET)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.wait_closed()
