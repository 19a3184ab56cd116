"""PostgreSQL's tables of segments: one that a day's reports come to, one where they end up mixed.

They are children of `segments`, by which all of them are read, so that readers know nothing of
them. A day's first table holds its reports in traces of how they came: in the order of rows, in the
transactions that they are marked with, in what was deleted and not yet overwritten. Once the day is
over they have moved to the second table, and the first is dropped with its file. Invariants: a
table's name says all that is known of it; and `segments` itself holds only what comes to another
day than the open one, such as imports, and mixed reports of old days.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.schema import open_day, sample_nothing_of, segments
from hubbub.storage.segments import Segments

APART = dt.timedelta(days=62)
"""Mixed reports that are older share one table, so that there are never very many tables.

Each statement that reads all days locks all tables, and a server has room for some thousand locks.
"""

_NAME = re.compile(r"segments_(mixed_)?(\d{8})")
_SEGMENTS_MOVED = 64
"""In a transaction: 18 MB at k = 128."""

_DAYS, MAKING = 0x68756264, 0x68756262
"""The locks of all who insert ids, and alone if they aren't of the open day ("hubd"); and of who
makes a table, or migrates ("hubb")."""

SHARE_OPEN_DAY = sa.text(f"SELECT pg_advisory_xact_lock_shared({_DAYS})")
LOCK_ALL_DAYS = sa.text(f"SELECT pg_advisory_xact_lock({_DAYS})")
TRY_TO_LOCK = sa.select(
    sa.func.pg_try_advisory_xact_lock(sa.bindparam("lock", type_=sa.BigInteger))
)
WAIT_BRIEFLY = sa.text("SET LOCAL lock_timeout = '0.5s'")
"""For a change of tables, as others wait for it meanwhile."""


class DayTable(NamedTuple):
    """A table of one day's segments."""

    name: str  # it needs no quotes in SQL
    day: dt.date
    is_mixed: bool


def first_table(day: dt.date) -> DayTable:
    """Return the table to which a day's reports come, whether it exists or not."""
    return DayTable(f"segments_{day:%Y%m%d}", day, is_mixed=False)


def mixed_table(day: dt.date) -> DayTable:
    """Return the table where a day's reports end up, unless it is old."""
    return DayTable(f"segments_mixed_{day:%Y%m%d}", day, is_mixed=True)


def parse_day_table(name: str) -> DayTable | None:
    """Return the table of segments that has this name; None: it is some other table."""
    if match := _NAME.fullmatch(name):
        try:
            day = dt.date.fromisoformat(match[2])
        except ValueError:
            return None
        return DayTable(name, day, match[1] is not None)
    return None


@lru_cache(maxsize=16)
def _as_table(table: DayTable) -> sa.Table:
    """Return a table with the columns of `segments`, always the same, so that SQL is made once."""
    return segments.to_metadata(sa.MetaData(), name=table.name)


class PostgresqlSegments(Segments):
    """Segments in a table for each day's first, one for its mixed ones, and one for what is old."""

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:
        """Return the open day's table; imports of other days come to no table of their own."""
        return _as_table(first_table(day)) if day == received else segments

    async def merge_target(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return the day's table, if there is one."""
        first = first_table(day)
        exists = sa.select(sa.func.to_regclass(sa.bindparam("name", first.name, sa.Text)))
        return _as_table(first) if await connection.scalar(exists) else segments

    async def mixed_target(self, day: dt.date, today: dt.date) -> sa.Table:
        """Return the table of a day's mixed reports; make it if need be."""
        if day < today - APART:
            return segments
        async with self._database.write() as connection:
            await make_day_table(connection, mixed_table(day))
        return _as_table(mixed_table(day))

    async def prepare(self, day: dt.date) -> None:
        """Make both of a day's tables."""
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            for table in (first_table(day), mixed_table(day)):
                await make_day_table(connection, table)

    async def drop_empty(self, today: dt.date) -> None:
        """Drop empty tables of days that are over; move what is too old for a table of its day.

        Today's and tomorrow's are made early. Those beyond were made by a clock that was ahead.
        """
        async with self._database.read() as connection:
            names = await children(connection, "segments")
        for table in filter(None, map(parse_day_table, names)):
            if table.is_mixed and table.day < today - APART:
                await self._move(table)
                await self._drop_if_empty(table, table.name)
            elif table.is_mixed and table.day < today:
                # It may be empty because reports are on their way there.
                await self._drop_if_empty(table, f"segments WHERE day = DATE '{table.day}'")
            elif not today <= table.day <= today + dt.timedelta(days=1):
                await self._drop_if_empty(table, table.name)

    async def _move(self, table: DayTable) -> None:
        """Move a day's mixed segments among those of old days, some at a time."""
        keys = f"SELECT segment_id FROM {table.name} ORDER BY segment_id LIMIT {_SEGMENTS_MOVED}"  # noqa: S608
        statement = (
            f"WITH moved AS (DELETE FROM {table.name} WHERE segment_id IN ({keys}) RETURNING *) "  # noqa: S608
            "INSERT INTO segments SELECT * FROM moved"
        )
        moved = 1
        while moved:
            async with self._database.write() as connection:
                moved = (await connection.exec_driver_sql(statement)).rowcount

    async def _drop_if_empty(self, table: DayTable, whose: str) -> None:
        """Drop a table if there are no rows, unless somebody uses it for too long."""
        async with self._database.read() as connection:
            if await has_rows(connection, whose):
                return
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            if not await connection.scalar(TRY_TO_LOCK, {"lock": MAKING}):
                return  # another makes or drops tables
            if table.name not in await children(connection, "segments"):
                return
            if not table.is_mixed and not await close_day(connection, table.day):
                return
            await connection.exec_driver_sql(f"LOCK TABLE {table.name}")
            if not await has_rows(connection, table.name):
                await connection.exec_driver_sql(f"DROP TABLE {table.name}")


async def children(connection: AsyncConnection, parent: str) -> Sequence[str]:
    """Return the names of the tables that inherit from one."""
    query = (
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = $1::text::regclass"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars().all()


async def has_rows(connection: AsyncConnection, table: str) -> bool:
    """Return whether a table holds anything."""
    query = f"SELECT EXISTS (SELECT FROM {table})"  # noqa: S608
    return bool((await connection.exec_driver_sql(query)).scalar_one())


async def make_child(
    connection: AsyncConnection, parent: str, name: str, constraints: str, unsampled: str
) -> bool:
    """Make a table unless there is one; return whether it was made.

    Neither readers nor writers wait for it. `unsampled`: a column that statistics leave out.
    """
    if name in await children(connection, parent):
        return False
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MAKING)))
    if name in await children(connection, parent):
        return False
    await connection.exec_driver_sql(f"CREATE TABLE {name} ({constraints}) INHERITS ({parent})")
    await connection.exec_driver_sql(sample_nothing_of(name, unsampled))
    return True


async def make_day_table(connection: AsyncConnection, table: DayTable) -> None:
    """Make a table of segments unless there is one."""
    # By the condition a query for some days leaves out the tables of others.
    constraints = f"PRIMARY KEY (segment_id), CHECK (day = DATE '{table.day}')"
    if await make_child(connection, "segments", table.name, constraints, "records"):
        columns = "(metric, version, day, slice, reports)"
        await connection.exec_driver_sql(
            f"CREATE INDEX {table.name}_by_day ON {table.name} {columns}"
        )


async def close_day(connection: AsyncConnection, day: dt.date) -> bool:
    """Let nobody find a day open, or open it, until the transaction ends; return whether it's so.

    If it isn't open, as when reports have come on another since, those of the open day don't wait.
    """
    is_day = open_day.c.day == day
    is_open = sa.select(sa.exists().where(is_day))
    was_open = await connection.scalar(is_open)
    await connection.execute(LOCK_ALL_DAYS if was_open else SHARE_OPEN_DAY)
    if not was_open:
        return not await connection.scalar(is_open)
    await connection.execute(sa.delete(open_day).where(is_day))
    return True
