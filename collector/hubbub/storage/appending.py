"""Connections to PostgreSQL for its most frequent transaction, which asyncpg is told of directly.

What SQLAlchemy does for a short statement takes longer than to send it and to read its answer.
Invariants: nobody gets a connection that is in a transaction; one that was closed while it was
unused is replaced before anything was asked of it, and nothing else is ever repeated; and `commit`
returns only if the server said that it has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from hubbub.storage.receiving import ReceivingConnection


class AppendingConnections:
    """Some connections, which are opened when they are needed.

    Parameters
    ----------
    connect : coroutine function
        Opens one.
    most : int
        As many are used at once. Who needs another waits.
    seconds : float
        For how long.
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

        Parameters
        ----------
        statements : str
            BEGIN, and what costs no round trip of its own: COPY FROM STDIN, for instance.
        data : bytes
            What that reads.
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

    Parameters
    ----------
    before : str
        The statement.
    data : bytes
        What it reads, if it is COPY FROM STDIN.
    """
    statements = f"{before}; COMMIT"
    done = await (connection.copy(statements, data) if data else connection.execute(statements))
    if done != "COMMIT":
        raise asyncpg.TransactionRollbackError(f"the transaction ended in {done}")


async def _roll_back(connection: ReceivingConnection) -> None:
    """End the transaction that a connection may be in, and if that fails the connection."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise
