"""Connections to PostgreSQL that receive into one buffer, and can copy in a single round trip.

By itself asyncio makes room for 256 KiB each time it receives, and cuts it to what came, a few
hundred bytes; asyncpg keeps this piece until the connection has received again. What the C library
puts behind it meanwhile leaves no room there for the next 256 KiB, so that a collector's heap grew
by such holes for as long as it ran (docs/scale.md). Invariant: the buffer is free again as soon as
the driver was called, because the driver gets a copy.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

_BUFFER_BYTES = 64 * 1024
"""The server sends 8 KiB at a time; more has come if this process was busy meanwhile."""


class ReceivingConnection(asyncpg.Connection):  # type: ignore[misc] # it has no types
    """asyncpg's connection; give it to `asyncpg.connect` as `connection_class`."""

    __slots__ = ()

    def __init__(
        self, protocol: asyncio.Protocol, transport: asyncio.Transport, *others: Any
    ) -> None:
        super().__init__(protocol, transport, *others)
        transport.set_protocol(_Buffered(protocol))

    async def copy(self, statements: str, data: bytes) -> str:
        """Run statements of which one is COPY FROM STDIN, and let that read the data.

        asyncpg's public methods know no statements beside it, each of which would be a round trip.

        Returns
        -------
        str
            What the server says of the last one.
        """
        self._check_open()
        try:
            return str(await self._protocol.copy_in(statements, None, data, None, None, None))
        except asyncpg.InternalClientError:
            # The server has ended the connection, which will be noticed in a moment.
            self.terminate()
            raise


class _Buffered(asyncio.BufferedProtocol):
    """Hands what comes to the driver's own protocol."""

    def __init__(self, driver: asyncio.Protocol) -> None:
        self._driver = driver
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._driver.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._driver.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.connection_lost(exc)

    def pause_writing(self) -> None:
        self._driver.pause_writing()

    def resume_writing(self) -> None:
        self._driver.resume_writing()
