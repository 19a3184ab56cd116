"""What a database offers to the store, whichever it is, and its errors as StoreError.

SQLite and PostgreSQL each have a module that opens one; all that differs between them is there,
behind the methods of `Database`. Invariant: the message of an error comes from the database without
the statement, its values, or the password in the address.
"""

from __future__ import annotations

import abc
import datetime as dt
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hubbub.collector.errors import StoreError

BUSY_SECONDS = 10.0
"""How long a transaction waits for others; shorter than clients wait for their answer."""


_Prepared = TypeVar("_Prepared")
_Result = TypeVar("_Result")


class Database(abc.ABC):
    """An open database.

    Attributes
    ----------
    reading, writing : AsyncEngine
        Where transactions that only read, and those that write, begin.
    insert : callable
        The dialect's INSERT, which knows ON CONFLICT DO NOTHING.
    """

    insert: Callable[..., Any]

    def __init__(self, reading: AsyncEngine, writing: AsyncEngine) -> None:
        self.reading = reading
        self.writing = writing

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that reads."""
        async with translated(), self.reading.begin() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that writes; it is durable when the context is left."""
        async with translated(), self.writing.begin() as connection:
            yield connection

    @abc.abstractmethod
    async def transact(
        self,
        prepare: Callable[[], _Prepared],
        write: Callable[[sa.Connection, _Prepared], _Result],
    ) -> _Result:
        """Prepare in a thread, then write in one transaction; it is durable when this returns.

        For the most frequent work: it takes as few turns of the event loop, which may be busy, as
        possible. Calls may overlap.
        """

    @abc.abstractmethod
    def migrate(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that may take long, while no other process migrates."""

    @abc.abstractmethod
    def insert_ids(
        self, connection: sa.Connection, ids: Sequence[bytes], day: dt.date
    ) -> set[bytes]:
        """Insert ids of batches in this order, and return those that weren't there.

        The one statement that SQLAlchemy doesn't build, because it is run for every batch.
        """

    @abc.abstractmethod
    def written(self, size: int) -> None:
        """Take note that about `size` bytes were committed."""

    @abc.abstractmethod
    async def tidy(self) -> None:
        """Remove from the files what was deleted, as far as the database allows."""

    @abc.abstractmethod
    async def size_bytes(self) -> int:
        """Return the bytes that the store takes on disk."""

    async def close(self) -> None:
        """Close all connections."""
        await self.writing.dispose()
        await self.reading.dispose()


@asynccontextmanager
async def translated(prefix: str = "store") -> AsyncIterator[None]:
    """Turn the database's own errors into StoreError, without SQL or values in the message."""
    try:
        yield
    except Exception as error:
        if (reason := _reason(error)) is None:
            raise
        raise StoreError(f"{prefix}: {reason}") from error


def parse_address(url: str) -> URL | None:
    """Return the parts of an address, or None if it isn't one."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        return None


def shown(url: str) -> str:
    """Return an address without its password."""
    url = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", url)


def _reason(error: BaseException) -> str | None:
    """Describe a database's error, or return None for any other error."""
    if isinstance(error, SQLAlchemyError):
        original = getattr(error, "orig", None)
        return type(error).__name__ if original is None else _reason_of_driver(original)
    if isinstance(error, (OSError, sqlite3.Error)) or _is_of_asyncpg(error):
        return _reason_of_driver(error)
    return None


def _reason_of_driver(error: BaseException) -> str:
    # SQLAlchemy wraps asyncpg's error, which knows its text without the DETAIL, which has values.
    if error.__cause__ is not None and _is_of_asyncpg(error.__cause__):
        error = error.__cause__
    if _is_of_asyncpg(error):
        # Without an SQLSTATE it is the driver's own, and may quote what was to be sent.
        message = error.args[0] if getattr(error, "sqlstate", None) and error.args else ""
        return str(message).splitlines()[0] if message else type(error).__name__
    return str(error) or type(error).__name__


def _is_of_asyncpg(error: BaseException) -> bool:
    # By name, because a process that uses only SQLite need not import it.
    return type(error).__module__.startswith("asyncpg")
