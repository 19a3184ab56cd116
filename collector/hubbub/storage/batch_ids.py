"""Batch ids, each taken once: a batch is stored in the transaction that takes its id, or not.

Each UTC day has a table whose primary key is the id. An id is looked for in the tables of all days
and inserted into one of them, in one transaction, and no two such transactions of different days
run beside each other: no constraint reaches over tables. A day is forgotten by dropping its table.
The order in which ids came shows in where they lie, so those of a day that is over are copied in
their own order. Invariants: ids are inserted only in transactions of `begin`; a day that has a
sorted table takes no more ids (`taking_day`); and names say all that is known of a table and are
dropped with it, so that no list can disagree with what is there.
"""

from __future__ import annotations

import abc
import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.database import Database
from hubbub.storage.reports import NewBatch
from hubbub.storage.segments import Segments, pool_batches

PREFIX = "batch_ids_"
"""Begins the names of these tables, and no others."""

_NAME = re.compile(rf"{PREFIX}(\d{{8}})(_sorted)?")


class IdTable(NamedTuple):
    """A table of one day's ids."""

    name: str  # it needs no quotes in SQL
    day: dt.date
    is_sorted: bool  # the day is closed, and its ids lie in their own order, or are copied so


def id_table(day: dt.date, *, is_sorted: bool = False) -> IdTable:
    """Return a table of one day's ids, whether it exists or not."""
    return IdTable(f"{PREFIX}{day:%Y%m%d}{'_sorted' * is_sorted}", day, is_sorted)


def parse_id_tables(names: Iterable[str]) -> list[IdTable]:
    """Return the tables of ids among these names; pass over all others."""
    tables = []
    for match in filter(None, map(_NAME.fullmatch, names)):
        try:
            day = dt.date.fromisoformat(match[1])
        except ValueError:
            continue
        tables.append(IdTable(match[0], day, match[2] is not None))
    return tables


def taking_day(day: dt.date, tables: Iterable[IdTable]) -> dt.date:
    """Return this day, or the next one that isn't closed if a clock is behind."""
    closed = {table.day for table in tables if table.is_sorted}
    while day in closed:
        day += dt.timedelta(days=1)
    return day


class IdTransaction(NamedTuple):
    """A transaction in which ids may be taken."""

    connection: AsyncConnection
    day: dt.date  # under which the ids are kept


class BatchIds(abc.ABC):
    """The ids of one database's batches.

    `segments`: where the reports of new batches are inserted.
    """

    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments

    @abc.abstractmethod
    def begin(self, day: dt.date) -> AbstractAsyncContextManager[IdTransaction]:
        """Begin a transaction in which ids of a day are taken; it is durable when it is left.

        If the day is closed, they are those of the next one that isn't. Beside it none runs that
        takes ids of another day, in any process.
        """

    @abc.abstractmethod
    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Insert ids in this order, each of them once, and return those that no table had."""

    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Take the ids of batches and insert segments of those that are new; return their ids.

        `batches`: by their ids. `day` and `received`: the day of the reports and that of the ids.
        """
        # In order, so that collectors with the same ids don't deadlock.
        ids = sorted(batches)
        rows = await pool_batches(batches.values(), day)
        async with self.begin(received) as transaction:
            unseen = await self.take(transaction, ids)
            if len(unseen) < len(ids):  # seldom
                rows = await pool_batches([batches[it] for it in unseen], day)
            table = self._segments.insert_target(day, transaction.day)
            await self._database.insert_rows(transaction.connection, table, rows)
        return unseen

    @abc.abstractmethod
    async def has(self, batch_id: bytes) -> bool:
        """Return whether a batch with this id is stored."""

    @abc.abstractmethod
    async def tables(self) -> Sequence[IdTable]:
        """Return the tables of ids there are."""

    async def prepare(self, day: dt.date) -> None:  # noqa: B027 (a single writer need not)
        """Make a day's table, so that its first batch doesn't have to."""

    @abc.abstractmethod
    async def sort(self, table: IdTable) -> None:
        """Close a day, copy its ids in their own order, and drop the table where they came to.

        Transactions of other days don't wait for long. What is interrupted goes on, or is done
        again, with the next call.
        """

    @abc.abstractmethod
    async def drop(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a table of ids, if it is there, without keeping other transactions for long.

        `if_empty`: leave it if it holds ids. Raises `StoreError` if others use it.
        """

    async def forget(self, before: dt.date) -> int:
        """Forget the ids of the batches of all days before one; return how many days there were.

        Such a batch would be counted again if a client still sent it.
        """
        old = [table for table in await self.tables() if table.day < before]
        for table in old:
            await self.drop(table)
        return len({table.day for table in old})

    async def drop_empty(self, after: dt.date) -> None:
        """Drop tables of days after one where no id has come.

        A clock that was far ahead made them, and nothing else would drop them before that day.
        """
        for table in await self.tables():
            if table.day > after:
                await self.drop(table, if_empty=True)

    async def sort_closed(self, before: dt.date) -> None:
        """Sort the ids of all days before one."""
        for table in await self.tables():
            if not table.is_sorted and table.day < before:
                await self.sort(table)


class OpenDatabase(NamedTuple):
    """All that a store is made of."""

    database: Database
    segments: Segments
    ids: BatchIds


def are_new(batches: Iterable[NewBatch], unseen: Iterable[bytes]) -> list[bool]:
    """Return for each batch whether it was new, given the ids that were; of equal ids the first."""
    left = set(unseen)
    found = []
    for batch in batches:
        found.append(batch.batch_id in left)
        left.discard(batch.batch_id)
    return found
