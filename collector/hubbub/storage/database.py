"""The seam below a store: a database's connections, transactions, errors, and space on disk.

All that is the same in every database is written against this class and SQLAlchemy. The tables of
days, which each database keeps in its own way, are `days.Days`. Invariant: the message of an error
comes from the database without the statement, its values, or the password in the address.
"""

from __future__ import annotations

import abc
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hubbub.storage.errors import StoreError, UnreachableError

_PASSING = ("08", "57P", "53300", "25006")
"""PostgreSQL's states of errors of a connection, of a start or stop, of too many connections, and
of a server that takes no writes because it recovers."""

Row = dict[str, Any]
"""The columns of a segment."""

_Item = TypeVar("_Item")


class Database(abc.ABC):
    """An open database.

    Errors of its driver become `StoreError` by `translate_errors`.

    `reading` and `writing`: where transactions that only read, and those that write, begin.
    """

    # Where its files grow; None: on a server, which watches its own disk.
    folder: Path | None = None

    def __init__(self, reading: AsyncEngine, writing: AsyncEngine) -> None:
        self.reading = reading
        self.writing = writing

    @property
    def dialect(self) -> str:
        """Its name, as in an address."""
        return self.reading.dialect.name

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that reads."""
        async with translate_errors(), self.reading.begin() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that writes; it is durable when the context is left."""
        async with translate_errors(), self.writing.begin() as connection:
            yield connection

    @abc.abstractmethod
    def migrate(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that may take long, while no other process migrates."""

    @abc.abstractmethod
    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return the dialect's INSERT that passes over rows whose key is there."""

    async def insert_rows(
        self, connection: AsyncConnection, table: sa.Table, rows: Sequence[Row]
    ) -> None:
        """Insert rows with records, in a transaction that has run a statement already."""
        if rows:
            await connection.execute(sa.insert(table), rows)

    @abc.abstractmethod
    async def reclaim_space(self) -> None:
        """Remove from the files what was deleted, as far as the database allows."""

    @abc.abstractmethod
    async def size_bytes(self) -> int:
        """Return the bytes that the store takes on disk."""

    @abc.abstractmethod
    async def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy all there is at one moment to a new file (raises StoreError if that is refused)."""

    async def close(self) -> None:
        """Close all connections."""
        await self.writing.dispose()
        await self.reading.dispose()


def pieces(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Split a sequence into pieces that one statement may name."""
    return (items[start : start + size] for start in range(0, len(items), size))


@asynccontextmanager
async def translate_errors(prefix: str = "store") -> AsyncIterator[None]:
    """Turn the database's own errors into StoreError, without SQL or values in the message."""
    try:
        yield
    except SQLAlchemyError as error:
        original = getattr(error, "orig", None)
        reason = type(error).__name__ if original is None else _reason(original)
        raise _class_for(original or error)(f"{prefix}: {reason}") from error
    except Exception as error:
        if not isinstance(error, (OSError, sqlite3.Error)) and not _is_of_asyncpg(error):
            raise
        raise _class_for(error)(f"{prefix}: {_reason(error)}") from error


def _class_for(error: BaseException) -> type[StoreError]:
    state = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    if state is None:
        return UnreachableError if isinstance(error, OSError) else StoreError
    # PgBouncer's states are the same for a server that is away, which passes, and for the pooling
    # of statements, which doesn't.
    if "pooling mode" in str(error):
        return StoreError
    return UnreachableError if state.startswith(_PASSING) else StoreError


def _reason(error: BaseException) -> str:
    """Return the message of a driver's error."""
    # SQLAlchemy wraps asyncpg's error, which knows its text without the DETAIL, which has values.
    if error.__cause__ is not None and _is_of_asyncpg(error.__cause__):
        error = error.__cause__
    if _is_of_asyncpg(error):
        # Without an SQLSTATE it is the driver's own, and may quote what was to be sent.
        message = error.args[0] if getattr(error, "sqlstate", None) and error.args else ""
        return str(message).splitlines()[0] if message else type(error).__name__
    return str(error) or type(error).__name__


def _is_of_asyncpg(error: BaseException) -> bool:
    # Compare names, because a process that uses only SQLite need not import it.
    return type(error).__module__.startswith("asyncpg")
