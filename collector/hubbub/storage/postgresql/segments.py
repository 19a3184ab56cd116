"""PostgreSQL's tables of segments: one that a day's reports come to, one where they end up mixed.

They are children of `segments`, by which all of them are read, so that readers know nothing of
them. A day's first table holds its reports in traces of how they came: in the order of rows, in the
transactions that they are marked with, in what was deleted and not yet overwritten. Once the day is
over they have moved to the second table, and the first is dropped with its file. Invariants: a
table's name tells all that is known of it; and `segments` itself holds only what is on its way:
imports, and what else comes to another day than the open one.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.postgresql.sessions import MIGRATIONS, WAIT_BRIEFLY, children
from hubbub.storage.schema import open_day, sample_nothing_of, segments
from hubbub.storage.segments import Segments

APART = dt.timedelta(days=62)
"""Mixed reports that are older share one table, so that there are never very many tables.

Each statement that reads all days locks all tables, and a server has room for some thousand locks.
"""

_NAME = re.compile(r"segments_(mixed_)?(\d{8})")
_OF_OLD_DAYS = "segments_mixed"

_SEGMENTS_MOVED = 64
"""In a transaction: 18 MB at k = 128."""

_DAYS = 0x68756264
"""The lock held by all who insert ids, and alone if they aren't of the open day: "hubd"."""

SHARE_DAYS = f"SELECT pg_advisory_xact_lock_shared({_DAYS})"
WAIT_FOR_OTHER_DAYS = sa.text(SHARE_DAYS)
WAIT_FOR_ALL_DAYS = sa.text(f"SELECT pg_advisory_xact_lock({_DAYS})")


class DayTable(NamedTuple):
    """A table of segments."""

    name: str  # it needs no quotes in SQL
    # Whose reports it holds; None: those of all days that are too old for a table of their own.
    day: dt.date | None
    is_mixed: bool

    def may_end(self, today: dt.date) -> bool:
        """Return whether it isn't needed if it is empty: today's and tomorrow's are made early."""
        # Beyond tomorrow: made by a clock that was ahead.
        return self.day is not None and not today <= self.day <= today + dt.timedelta(days=1)


def first_table(day: dt.date) -> DayTable:
    """Return the table to which a day's reports come, whether it exists or not."""
    return DayTable(f"segments_{day:%Y%m%d}", day, is_mixed=False)


def mixed_table(day: dt.date, today: dt.date) -> DayTable:
    """Return the table where a day's reports end up, whether it exists or not."""
    if day < today - APART:
        return DayTable(_OF_OLD_DAYS, None, is_mixed=True)
    return DayTable(f"segments_mixed_{day:%Y%m%d}", day, is_mixed=True)


def parse_day_table(name: str) -> DayTable | None:
    """Return the table of segments that has this name; None: it is some other table."""
    if name == _OF_OLD_DAYS:
        return DayTable(name, None, is_mixed=True)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        day = dt.datetime.strptime(match[2], "%Y%m%d").date()  # noqa: DTZ007
    except ValueError:
        return None
    return DayTable(name, day, match[1] is not None)


@lru_cache(maxsize=16)
def as_table(table: DayTable) -> sa.Table:
    """Return a table with the columns of `segments`, always the same, so that SQL is made once."""
    return segments.to_metadata(sa.MetaData(), name=table.name)


class PostgresqlSegments(Segments):
    """Segments in a table for each day's first, one for its mixed ones, and one for what is old."""

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:
        """Return the open day's table; imports of other days come to no table of their own."""
        return as_table(first_table(day)) if day == received else segments

    async def merge_target(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return the day's table, if there is one."""
        first = first_table(day)
        name = sa.bindparam("name", first.name, sa.Text)
        exists = sa.select(sa.func.to_regclass(name).is_not(None))
        return as_table(first) if await connection.scalar(exists) else segments

    async def reshuffle_target(self, day: dt.date, today: dt.date) -> sa.Table:
        """Return the table of a day's mixed reports; make it if need be."""
        table = mixed_table(day, today)
        async with self._database.write() as connection:
            await make_day_table(connection, table)
        return as_table(table)

    async def prepare(self, day: dt.date) -> None:
        """Make both of a day's tables."""
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            for table in (first_table(day), mixed_table(day, day)):
                await make_day_table(connection, table)

    async def drop_empty(self, today: dt.date) -> None:
        """Drop empty tables of closed days; move what is too old for a table of its day."""
        async with self._database.read() as connection:
            tables = await _day_tables(connection)
        for table in tables:
            if table.is_mixed and table.day is not None and table.day < today - APART:
                await self._move(table, table.day, today)
            if table.may_end(today):
                await self._drop_if_empty(table)

    async def _move(self, table: DayTable, day: dt.date, today: dt.date) -> None:
        """Move a day's mixed segments to where they belong, some at a time, whoever reads them."""
        target = await self.reshuffle_target(day, today)
        keys = f"SELECT segment_id FROM {table.name} ORDER BY segment_id LIMIT {_SEGMENTS_MOVED}"  # noqa: S608
        statement = (
            f"WITH moved AS (DELETE FROM {table.name} WHERE segment_id IN ({keys}) RETURNING *) "  # noqa: S608
            f"INSERT INTO {target.name} SELECT * FROM moved"
        )
        moved = 1
        while moved:
            async with self._database.write() as connection:
                moved = (await connection.exec_driver_sql(statement)).rowcount

    async def _drop_if_empty(self, table: DayTable) -> None:
        """Drop a table if it is empty, unless somebody uses it for too long."""
        async with self._database.read() as connection:
            if await has_rows(connection, table.name):
                return
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            if not table.is_mixed and not await close_day(connection, table.day):
                return
            await connection.exec_driver_sql(f"LOCK TABLE {table.name}")
            if await has_rows(connection, table.name):
                return
            await connection.exec_driver_sql(f"DROP TABLE {table.name}")


async def _day_tables(connection: AsyncConnection) -> Sequence[DayTable]:
    names = await children(connection, "segments")
    return [table for table in map(parse_day_table, names) if table]


async def has_rows(connection: AsyncConnection, table: str) -> bool:
    """Return whether a table holds anything."""
    query = f"SELECT EXISTS (SELECT FROM {table})"  # noqa: S608
    return bool((await connection.exec_driver_sql(query)).scalar_one())


async def make_day_table(connection: AsyncConnection, table: DayTable) -> None:
    """Make a table of segments unless there is one. Neither readers nor writers wait for it."""
    if table in await _day_tables(connection):
        return
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATIONS)))
    if table in await _day_tables(connection):
        return
    # By the condition a query for some days leaves out the tables of others.
    of_day = f", CHECK (day = DATE '{table.day}')" if table.day else ""
    await connection.exec_driver_sql(
        f"CREATE TABLE {table.name} (PRIMARY KEY (segment_id){of_day}) INHERITS (segments)"
    )
    await connection.exec_driver_sql(
        f"CREATE INDEX {table.name}_by_day ON {table.name} (metric, version, day, reports)"
    )
    await connection.exec_driver_sql(sample_nothing_of(table.name, "records"))


async def close_day(connection: AsyncConnection, day: dt.date | None) -> bool:
    """Let nobody find a day open, or open it, until the transaction ends; return whether it's so.

    Its locks come before that of the day's table, as in `BatchIds.begin`. If the day isn't open, as
    when reports have come on another since, those of the open day don't wait.
    """
    is_day = open_day.c.day == day
    is_open = sa.select(sa.exists().where(is_day))
    was_open = await connection.scalar(is_open)
    await connection.execute(WAIT_FOR_ALL_DAYS if was_open else WAIT_FOR_OTHER_DAYS)
    if not was_open:
        return not await connection.scalar(is_open)
    await connection.execute(sa.delete(open_day).where(is_day))
    return True
