"""The seam below a store: a database's connections, transactions, tables of days, and errors.

All that is the same in every database is written against this class and SQLAlchemy.

Each batch id is taken once: a batch is stored in the transaction that takes its id, or not. An id
is looked for in the tables of all days and inserted into one of them, and no two such transactions
of different days run in parallel: no constraint reaches over tables. A day is forgotten by
dropping its table. The order in which ids came shows in where they lie, so those of a day that is
over are copied in their own order. Reports leave the same traces, so those of a closed day move to
`segments` itself, mixed, and their table is dropped with its file. Invariants: ids are inserted
only in transactions of `begin`; a day that has a sorted table takes no more ids (`taking_day`);
names hold all that is known of a table, so that no list can disagree with what is there; the
message of an error comes from the database without the
statement, its values, or the password in the address.
"""

from __future__ import annotations

import abc
import datetime as dt
import re
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hubbub.protocol import Records, joined, shuffled
from hubbub.storage.errors import StoreError, UnreachableError
from hubbub.storage.reports import MetricVersion, NewBatch
from hubbub.storage.schema import segments

_PASSING = ("08", "57P", "53300", "25006")
"""PostgreSQL's states of errors of a connection, of a start or stop, of too many connections, and
of a server that takes no writes because it recovers."""

_Item = TypeVar("_Item")


Row = dict[str, Any]
"""The columns of a segment."""

PREFIX = "batch_ids_"
"""Begins the names of the tables of ids, and no others."""

_NAME = re.compile(rf"(?:{PREFIX}(\d{{8}})(_sorted)?|segments_(\d{{8}}))")


class DayTable(NamedTuple):
    """A table of one day's ids or segments."""

    name: str  # it needs no quotes in SQL
    day: dt.date
    holds_ids: bool
    is_sorted: bool = False  # the day takes no more ids, which lie in their own order or will


def id_table(day: dt.date, *, is_sorted: bool = False) -> DayTable:
    """Return a table of one day's ids, whether it exists or not."""
    return DayTable(f"{PREFIX}{day:%Y%m%d}{'_sorted' * is_sorted}", day, True, is_sorted)


def segment_table(day: dt.date) -> DayTable:
    """Return the table to which a day's reports come, whether it exists or not."""
    return DayTable(f"segments_{day:%Y%m%d}", day, holds_ids=False)


def parse_tables(names: Iterable[str]) -> list[DayTable]:
    """Return the tables of days among these names; pass over all others."""
    tables = []
    for match in filter(None, map(_NAME.fullmatch, names)):
        try:
            day = dt.date.fromisoformat(match[1] or match[3])
        except ValueError:
            continue
        tables.append(DayTable(match[0], day, match[1] is not None, match[2] is not None))
    return tables


def taking_day(day: dt.date, tables: Iterable[DayTable]) -> dt.date:
    """Return this day, or the next one that isn't closed if a clock is behind."""
    closed = {table.day for table in tables if table.is_sorted}
    while day in closed:
        day += dt.timedelta(days=1)
    return day


class IdTransaction(NamedTuple):
    """A transaction in which ids may be taken."""

    connection: AsyncConnection
    day: dt.date  # under which the ids are kept


class Database(abc.ABC):
    """An open database.

    Errors of its driver become `StoreError` by `translate_errors`.

    `reading` and `writing`: where transactions that only read, and those that write, begin.
    """

    # Where its files grow; None: on a server, which watches its own disk.
    folder: Path | None = None
    _insert: Callable[[sa.Table], Any]  # its dialect's

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

    def make(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that makes the tables, while no other process does."""
        return self.write()

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return an INSERT that passes over rows whose key is there."""
        insert: sa.Insert = self._insert(table).on_conflict_do_nothing()
        return insert

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
    async def backup(self, target: Path) -> None:
        """Copy all there is at one moment to a new file (raises StoreError if that is refused)."""

    async def close(self) -> None:
        """Close all connections."""
        await self.writing.dispose()
        await self.reading.dispose()

    @abc.abstractmethod
    def begin(self, day: dt.date) -> AbstractAsyncContextManager[IdTransaction]:
        """Begin a transaction in which ids of a day are taken; it is durable when it is left.

        If the day is closed, they are those of the next one that isn't. Meanwhile none runs that
        takes ids of another day, in any process.
        """

    @abc.abstractmethod
    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Insert ids in this order, each of them once, and return those that no table had."""

    @abc.abstractmethod
    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Take the ids of batches and insert segments of those that are new; return their ids.

        `batches`: by their ids. `day` and `received`: the day of the reports and that of the ids.
        """

    @abc.abstractmethod
    async def day_tables(self) -> Sequence[DayTable]:
        """Return the tables of days there are."""

    async def merge_target(self, connection: AsyncConnection, day: dt.date) -> sa.Table:  # noqa: ARG002
        """Return where to insert segments made of others of a day."""
        return segments

    async def prepare(self, day: dt.date) -> None:  # noqa: B027 (a single writer need not)
        """Make a day's tables, so that its first batch doesn't have to."""

    @abc.abstractmethod
    async def sort(self, table: DayTable) -> None:
        """Close a day, copy its ids in their own order, and drop the table where they came to.

        Transactions of other days don't wait for long. What is interrupted goes on, or is done
        again, with the next call.
        """

    @abc.abstractmethod
    async def drop(self, table: DayTable, *, if_empty: bool = False) -> None:
        """Drop a table, if it is there, without keeping other transactions for long.

        `if_empty`: leave it if there are rows. Raises `StoreError` if others use it.
        """

    async def forget(self, before: dt.date) -> int:
        """Forget the ids of the batches of all days before one; return how many days there were.

        Such a batch would be counted again if a client still sent it.
        """
        old = [it for it in await self.day_tables() if it.holds_ids and it.day < before]
        for table in old:
            await self.drop(table)
        return len({table.day for table in old})

    async def drop_empty(self, today: dt.date) -> None:
        """Drop empty tables to which nothing comes any more.

        Today's and tomorrow's are made early; those beyond by a clock that was ahead.
        """
        for table in await self.day_tables():
            is_over = not table.holds_ids and table.day < today
            if is_over or table.day > today + dt.timedelta(days=1):
                await self.drop(table, if_empty=True)

    async def sort_closed(self, before: dt.date) -> None:
        """Sort the ids of all days before one."""
        for table in await self.day_tables():
            if table.holds_ids and not table.is_sorted and table.day < before:
                await self.sort(table)


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


def pooled_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    """Pool the records of many batches, shuffled so that nothing shows which is whose."""
    pools: dict[MetricVersion, list[Records]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).append(records)
    return [segment_row(key, day, pool) for key, pool in pools.items()]


def segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    """Return a new row for records of several origins, shuffled together."""
    return row_of(key, day, shuffled(joined(pool)), is_mixed=False)


def row_of(key: MetricVersion, day: dt.date, records: Records, *, is_mixed: bool) -> Row:
    """Return a row for records that were shuffled, under a new key.

    `is_mixed`: whether they were mixed with all others of their day, which a negative key marks.
    """
    drawn = secrets.randbits(63)
    return {
        "segment_id": -1 - drawn if is_mixed else drawn,
        "metric": key.metric,
        "version": key.version,
        "slice": key.slice,
        "day": day,
        "reports": records.reports,
        "records": records.data,
    }
