"""Connections to PostgreSQL for its most frequent transaction, which asyncpg is told of directly.

What SQLAlchemy does for a short statement takes longer than to send it and to read its answer.
Invariants: nobody gets a connection that is in a transaction; one that was closed while it was
unused is replaced before anything was asked of it, and nothing else is ever repeated; a context is
left without an error only if the server said that it has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg


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
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], most: int, seconds: float
    ) -> None:
        self._connect = connect
        self._seconds = seconds
        self._turns = asyncio.Semaphore(most)
        self._unused: list[asyncpg.Connection] = []

    @asynccontextmanager
    async def begin(self, statement: str) -> AsyncIterator[asyncpg.Connection]:
        """Begin a transaction by this statement, and commit it unless an error leaves the context.

        Parameters
        ----------
        statement : str
            Begins with BEGIN. What else is in it costs no round trip of its own.
        """
        async with asyncio.timeout(self._seconds):
            await self._turns.acquire()
        try:
            connection = await self._begin(statement)
            try:
                yield connection
                await _commit(connection)
            except BaseException:
                await _roll_back(connection)
                raise
            finally:
                self._keep(connection)
        finally:
            self._turns.release()

    async def _begin(self, statement: str) -> asyncpg.Connection:
        """Begin on a connection that is unused, or on a new one if all of these are dead."""
        while True:
            was_unused = bool(self._unused)
            connection = self._unused.pop() if was_unused else await self._connect()
            try:
                await connection.execute(statement)
            except BaseException as error:
                if was_unused and connection.is_closed() and isinstance(error, Exception):
                    continue
                # One that waits for a lock in vain is in a transaction nevertheless.
                await _roll_back(connection)
                self._keep(connection)
                raise
            else:
                return connection

    def _keep(self, connection: asyncpg.Connection) -> None:
        if not connection.is_closed():
            self._unused.append(connection)

    async def close(self) -> None:
        """Close those that are unused."""
        while self._unused:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._unused.pop().close(timeout=self._seconds)


async def _commit(connection: asyncpg.Connection) -> None:
    """Commit; after a statement that failed the server rolls back instead, which is no error."""
    done = await connection.execute("COMMIT")
    if done != "COMMIT":
        raise asyncpg.TransactionRollbackError(f"the transaction ended in {done}")


async def _roll_back(connection: asyncpg.Connection) -> None:
    """End the transaction that a connection may be in, and if that fails the connection."""
    try:
        await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise
