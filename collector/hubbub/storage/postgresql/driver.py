"""What asyncpg is asked directly: COPY within a transaction, and the most frequent transaction.

What SQLAlchemy does for a short statement takes longer than to send it and to read its answer. And
a server writes the parameters of statements into its log as soon as somebody looks for slow ones
(`log_min_duration_statement`), each with its time, and so do extensions; what COPY reads is written
to a table and nowhere else. Ids are looked for among others before they are stored, so they are
copied into a temporary table, which the server neither logs nor keeps. Invariants: no batch id and
no record is ever the parameter of a statement, or part of its text; nobody gets a connection that
is in a transaction; one that was closed while it was unused is replaced before anything was asked
of it, and nothing else is ever repeated; and `commit` returns only if the server said that it has
committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.database import Row
from hubbub.storage.errors import StoreError
from hubbub.storage.id_tables import ID_BYTES

ARRIVED = "hubbub_arrived"
"""The temporary table: one row, with the ids of a transaction in the order in which it has them."""

MAKE_ARRIVED = f"CREATE TEMPORARY TABLE IF NOT EXISTS {ARRIVED} (ids uuid[])"
COPY_IDS = f"COPY {ARRIVED} FROM STDIN (FORMAT binary)"

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Signature, flags and extension of COPY's binary form (PostgreSQL's manual, COPY)."""
_TRAILER = b"\xff\xff"
_EPOCH = dt.date(2000, 1, 1)  # postgreSQL counts days from here
_UUID = 2950  # the type's number (pg_type.oid)
_LENGTH = struct.Struct(">i")
_ARRAY = struct.Struct(">iiiii")

_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    sa.BigInteger: struct.Struct(">q").pack,
    sa.Integer: _LENGTH.pack,
    sa.Date: lambda day: _LENGTH.pack((day - _EPOCH).days),
    sa.Text: str.encode,
    sa.LargeBinary: bytes,
}


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

        Returns what the server says of the last one.
        """
        self._check_open()
        try:
            return str(await self._protocol.copy_in(statements, None, data, None, None, None))
        except asyncpg.InternalClientError:
            # The server has ended the connection, which will be noticed in a moment.
            self.terminate()
            raise


class _Buffered(asyncio.BufferedProtocol):
    """Hands what comes to the driver's own protocol, as a copy: the buffer is free again at once.

    By itself asyncio makes room for 256 KiB each time it receives, and cuts it to what came, a few
    hundred bytes; asyncpg keeps this piece until the connection has received again. What the C
    library puts behind it meanwhile leaves no room there for the next 256 KiB, so that a
    collector's heap grew by such holes for as long as it ran (docs/measured/service.md).
    """

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


class AppendingConnections:
    """Some connections, which are opened when they are needed.

    `connect`: opens one. `most`: as many are used at once. Who needs another waits. `seconds`: for
    how long.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[ReceivingConnection]], most: int, seconds: float
    ) -> None:
        self._connect = connect
        self._seconds = seconds
        self._turns = asyncio.Semaphore(most)
        self._unused: list[ReceivingConnection] = []

    @asynccontextmanager
    async def begin(self, statements: str, data: bytes) -> AsyncIterator[ReceivingConnection]:
        """Begin a transaction, which is rolled back unless the context commits it.

        `statements`: BEGIN, and what costs no round trip of its own: COPY FROM STDIN, for instance.
        `data`: what that reads.
        """
        async with asyncio.timeout(self._seconds):
            await self._turns.acquire()
        try:
            connection = await self._begin(statements, data)
            try:
                yield connection
            except BaseException:
                await _roll_back(connection)
                raise
            else:
                if connection.is_in_transaction():
                    await _roll_back(connection)
            finally:
                self._keep(connection)
        finally:
            self._turns.release()

    async def _begin(self, statements: str, data: bytes) -> ReceivingConnection:
        """Begin on a connection that is unused, or on a new one if all of these are dead."""
        while True:
            was_unused = bool(self._unused)
            connection = self._unused.pop() if was_unused else await self._connect()
            try:
                await connection.copy(statements, data)
            except BaseException as error:
                if was_unused and connection.is_closed() and isinstance(error, Exception):
                    continue
                # One that waits for a lock in vain is in a transaction nevertheless.
                await _roll_back(connection)
                self._keep(connection)
                raise
            else:
                return connection

    def _keep(self, connection: ReceivingConnection) -> None:
        if not connection.is_closed():
            self._unused.append(connection)

    async def close(self) -> None:
        """Close those that are unused."""
        while self._unused:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._unused.pop().close(timeout=self._seconds)


async def commit(connection: ReceivingConnection, before: str = "", data: bytes = b"") -> None:
    """Run a statement and commit, in one round trip.

    After a statement that failed the server rolls back instead, which is no error of its own.

    `before`: the statement. `data`: what it reads, if it is COPY FROM STDIN.
    """
    statements = f"{before}; COMMIT"
    done = await (connection.copy(statements, data) if data else connection.execute(statements))
    if done != "COMMIT":
        raise asyncpg.TransactionRollbackError(f"the transaction ended in {done}")


async def _roll_back(connection: ReceivingConnection) -> None:
    try:
        await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise


async def driver_of(connection: AsyncConnection) -> ReceivingConnection:
    """Return asyncpg's connection of a transaction that SQLAlchemy has begun.

    SQLAlchemy begins it with its first statement.
    """
    driver = (await connection.get_raw_connection()).driver_connection
    if not isinstance(driver, ReceivingConnection) or not driver.is_in_transaction():
        raise StoreError("store: expected a transaction of PostgreSQL to copy in")
    return driver


def copied_ids(ids: Sequence[bytes]) -> bytes:
    """Return what `COPY_IDS` reads."""
    elements = [_LENGTH.pack(ID_BYTES) + each for each in ids]
    return _stream([[_ARRAY.pack(1, 0, _UUID, len(ids), 1) + b"".join(elements)]])


def copy_statement(table: sa.Table) -> str:
    """Return what stores rows in a table of segments, or the like."""
    return f"COPY {table.name} ({', '.join(table.columns.keys())}) FROM STDIN (FORMAT binary)"


def copied_rows(table: sa.Table, rows: Iterable[Row]) -> bytes:
    """Return what `copy_statement` reads."""
    encoders = [(column.name, _ENCODERS[type(column.type)]) for column in table.columns]
    return _stream([[encode(row[name]) for name, encode in encoders] for row in rows])


def _stream(rows: Iterable[Sequence[bytes]]) -> bytes:
    parts = [_HEADER]
    for row in rows:
        parts.append(struct.pack(">h", len(row)))
        for field in row:
            parts += (_LENGTH.pack(len(field)), field)
    parts.append(_TRAILER)
    return b"".join(parts)
