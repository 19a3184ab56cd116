"""Tables of one UTC day: its batch ids, and in PostgreSQL the reports that come on it.

Each batch id is taken once: a batch is stored in the transaction that takes its id, or not. An id
is looked for in the tables of all days and inserted into one of them, and no two such transactions
of different days run in parallel: no constraint reaches over tables. A day is forgotten by
dropping its table. The order in which ids came shows in where they lie, so those of a day that is
over are copied in their own order. Reports leave the same traces, so those of a closed day move to
`segments` itself, mixed, and their table is dropped with its file. Invariants: ids are inserted
only in transactions of `begin`; a day that has a sorted table takes no more ids (`taking_day`); and
names hold all that is known of a table, so that no list can disagree with what is there.
"""

from __future__ import annotations

import abc
import asyncio
import datetime as dt
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol import Records, joined, shuffled
from hubbub.storage.database import Database, Row
from hubbub.storage.reports import MetricVersion, NewBatch
from hubbub.storage.schema import segments

PREFIX = "batch_ids_"
"""Begins the names of the tables of ids, and no others."""

REPORTS_IN_PLACE = 8192
"""Up to here shuffling takes less than to hand it to a thread and to wait for the answer."""


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


class Days(abc.ABC):
    """The tables of days of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @abc.abstractmethod
    def begin(self, day: dt.date) -> AbstractAsyncContextManager[IdTransaction]:
        """Begin a transaction in which ids of a day are taken; it is durable when it is left.

        If the day is closed, they are those of the next one that isn't. Meanwhile none runs that
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
            table = self.insert_target(day, transaction.day)
            await self._database.insert_rows(transaction.connection, table, rows)
        return unseen

    @abc.abstractmethod
    async def has(self, batch_id: bytes) -> bool:
        """Return whether a batch with this id is stored."""

    @abc.abstractmethod
    async def tables(self) -> Sequence[DayTable]:
        """Return the tables of days there are."""

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:  # noqa: ARG002
        """Return where to insert reports of a day that came with ids of another, or the same."""
        return segments

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
        old = [it for it in await self.tables() if it.holds_ids and it.day < before]
        for table in old:
            await self.drop(table)
        return len({table.day for table in old})

    async def drop_empty(self, today: dt.date) -> None:
        """Drop empty tables to which nothing comes any more.

        Today's and tomorrow's are made early; those beyond by a clock that was ahead.
        """
        for table in await self.tables():
            is_over = not table.holds_ids and table.day < today
            if is_over or table.day > today + dt.timedelta(days=1):
                await self.drop(table, if_empty=True)

    async def sort_closed(self, before: dt.date) -> None:
        """Sort the ids of all days before one."""
        for table in await self.tables():
            if table.holds_ids and not table.is_sorted and table.day < before:
                await self.sort(table)


class OpenDatabase(NamedTuple):
    """All that a store is made of."""

    database: Database
    ids: Days


def are_new(batches: Iterable[NewBatch], unseen: Iterable[bytes]) -> list[bool]:
    """Return for each batch whether it was new, given the ids that were; of equal ids the first."""
    left = set(unseen)
    found = []
    for batch in batches:
        found.append(batch.batch_id in left)
        left.discard(batch.batch_id)
    return found


def pooled_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    """Pool the records of many batches, shuffled so that nothing shows which is whose."""
    pools: dict[MetricVersion, list[Records]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).append(records)
    return [segment_row(key, day, pool) for key, pool in pools.items()]


async def pool_batches(batches: Collection[NewBatch], day: dt.date) -> list[Row]:
    """Do the same without keeping the event loop for long."""
    reports = sum([records.reports for batch in batches for records in batch.records.values()])
    if reports > REPORTS_IN_PLACE:
        return await asyncio.to_thread(pooled_rows, batches, day)
    return pooled_rows(batches, day)


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
