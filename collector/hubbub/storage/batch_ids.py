"""Batch ids, each taken once: a batch is stored in the transaction that takes its id, or not.

What differs between databases is how a transaction keeps an id from being taken twice, and how a
closed day's table is made, sorted and dropped; the rest is here. Invariants: ids are inserted only
in transactions of `BatchIds.begin` and by `append`; and a table has a filter only once nobody can
insert into it any more.
"""

from __future__ import annotations

import abc
import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.bloom import IdFilter
from hubbub.storage.database import Database
from hubbub.storage.errors import StoreError
from hubbub.storage.filters import LoadedFilters, store_filter, stored_filters, stored_size
from hubbub.storage.id_tables import (
    ID_BYTES,
    Catalogue,
    IdTable,
    closing_trigger,
    filter_trigger,
)
from hubbub.storage.reports import NewBatch
from hubbub.storage.schema import id_filters
from hubbub.storage.segments import Segments, pool_batches


class IdTransaction(NamedTuple):
    """A transaction in which ids may be taken."""

    connection: AsyncConnection
    day: dt.date  # under which the ids are kept
    catalogue: Catalogue  # what there was of tables and triggers when it began


class BatchIds(abc.ABC):
    """The ids of one database's batches.

    `segments`: where the reports of new batches are inserted.
    """

    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments
        self.filters = LoadedFilters(database, self.catalogue)

    @abc.abstractmethod
    def begin(self, day: dt.date) -> AbstractAsyncContextManager[IdTransaction]:
        """Begin a transaction in which ids are taken; it is durable when the context is left.

        They are those of `day`; or, if its table is closed, since a clock is behind, of the next
        day whose table isn't. Beside such a transaction none runs that inserts ids of another day,
        in any process: so an id that comes on two days at once is in one table before it is looked
        for from the other.
        """

    @abc.abstractmethod
    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Insert ids in this order, each of them once, and return those that no table had."""

    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Take the ids of batches and insert segments of those that are new; return their ids.

        A database may have a faster way than this: of all transactions it is by far the most
        frequent, and the event loop, which it takes turns of, may be busy.

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
    async def catalogue(self) -> Catalogue:
        """Return the tables of ids there are, which of them are closed, and their filters."""

    async def prepare(self, day: dt.date) -> None:  # noqa: B027 (most need not)
        """Make a day's table, unless there is one, if it is better made before the day begins."""

    async def begin_section(self) -> None:  # noqa: B027 (most have none)
        """Let ids go to a new section of the day if the one they go to is large, and close that."""

    @abc.abstractmethod
    async def refuse(self, connection: AsyncConnection, table: IdTable, trigger: str) -> None:
        """Make a trigger of this name that lets nobody insert into a table of ids any more.

        What was inserted before is committed when this returns. Neither those who read the table
        nor those who insert into others wait for it.
        """

    @abc.abstractmethod
    async def sort(self, table: IdTable) -> IdTable:
        """Copy a closed day's ids in their own order; return the table that has all in it.

        Nobody waits for long. What is interrupted goes on, or is done again, with the next call.
        """

    async def drop_unsorted(self) -> None:  # noqa: B027 (most have replaced it)
        """Drop what held ids of closed days in the order in which they came.

        Raises `StoreError` if others use it.
        """

    @abc.abstractmethod
    async def count(self, table: IdTable) -> tuple[int, int]:
        """Return how many ids a table has, and how many of them don't have `ID_BYTES`."""

    @abc.abstractmethod
    def read(self, table: IdTable) -> AsyncIterator[bytes]:
        """Yield all ids of a closed table, many at a time, end to end, in any order.

        Raises `StoreError`: after the last ones, if they may not be all, as the table was rewritten
        meanwhile.
        """

    @abc.abstractmethod
    async def drop(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a table of ids, if it is there, without keeping other transactions for long.

        `if_empty`: leave it if it holds ids. Raises `StoreError` if others use it for longer than
        that.
        """

    async def forget(self, before: dt.date) -> int:
        """Forget the ids of the batches of all days before one; return how many days there were.

        Such a batch would be counted again if a client still sent it.
        """
        old = [table for table in (await self.catalogue()).tables if table.day < before]
        for table in old:
            await self.drop(table)
        return len(old)

    async def drop_empty(self, after: dt.date) -> None:
        """Remove the room that was made for ids of days after one, where no id has come.

        A clock that was far ahead made it, and nothing else would remove it before that day.
        """
        for table in (await self.catalogue()).tables:
            if table.day > after:
                await self.drop(table, if_empty=True)

    async def filter_closed(self, before: dt.date) -> bool:
        """Close the youngest table of the days before one, and make a filter of its ids.

        Sections of days in use are among these, and the tables of days before one, which are closed
        and sorted first. From then on transactions look there only for the ids that the filter
        can't deny, once they have loaded it, which they do by themselves. What is interrupted is
        done again.

        Returns whether there was one, and no other process was at it. Raises `StoreError` if the
        database refuses; or the table was dropped or rewritten, or the filter's parts deleted,
        meanwhile; or others read what held the ids before they were sorted.
        """
        async with self._database.alone("filter") as is_alone:
            if not is_alone():
                return False
            await self._delete_unnamed_filters()
            await self.begin_section()
            catalogue = await self.catalogue()
            table = _youngest_without(catalogue, before)
            if table is not None:
                await self._filter(table, is_closed=table in catalogue.closed)
                await self._delete_unnamed_filters()
            await self.drop_unsorted()
            return table is not None

    async def _filter(self, table: IdTable, *, is_closed: bool) -> None:
        if not is_closed:
            async with self._database.write() as connection:
                await self.refuse(connection, table, closing_trigger(table))
        made = await self._filter_of(table if table.section is not None else await self.sort(table))
        digest = await store_filter(self._database, made)
        async with self._database.write() as connection:
            if await stored_size(connection, digest) != len(made.data):
                raise StoreError(f"the filter of {table.name} was deleted while it was made")
            await self.refuse(connection, table, filter_trigger(table, digest))

    async def _filter_of(self, table: IdTable) -> IdFilter:
        """Return the filter of a closed table's ids."""
        number, of_other_size = await self.count(table)
        if of_other_size:
            raise StoreError(f"{table.name}: {of_other_size} ids don't have {ID_BYTES} bytes")
        made, read = IdFilter.for_ids(number), 0
        async for ids in self.read(table):
            await asyncio.to_thread(made.add, ids)
            read += len(ids) // ID_BYTES
        if read != number:
            raise StoreError(f"{table.name}: {read} ids were read, expected {number}")
        return made

    async def _delete_unnamed_filters(self) -> None:
        """Delete filters that stand for no table any more, or were never complete."""
        stored = await stored_filters(self._database)
        if stored - set((await self.catalogue()).filters.values()):
            async with self._database.write() as connection:
                # Another process may have named one meanwhile, and in SQLite can't any more.
                named = (await self.catalogue()).filters.values()
                unnamed = id_filters.c.digest.in_(stored - set(named))
                await connection.execute(sa.delete(id_filters).where(unnamed))


class OpenDatabase(NamedTuple):
    """What `open_database` of a database's module returns: all that a store is made of."""

    database: Database
    segments: Segments
    ids: BatchIds


def _youngest_without(catalogue: Catalogue, limit: dt.date) -> IdTable | None:
    """Return the youngest table without a filter of those that may have one.

    They are days before the limit, and closed sections of others.
    """
    days = [it for it in catalogue.tables if it.day < limit]
    sections = [it for it in catalogue.closed if it.section is not None and it.day >= limit]
    left = [it for it in (*days, *sections) if it not in catalogue.filters]
    return max(left, key=lambda it: (it.day, it.section or 0), default=None)


def are_new(batches: Iterable[NewBatch], unseen: Iterable[bytes]) -> list[bool]:
    """Return for each batch whether it was new, given the ids that were; of equal ids the first."""
    left = set(unseen)
    found = []
    for batch in batches:
        found.append(batch.batch_id in left)
        left.discard(batch.batch_id)
    return found
