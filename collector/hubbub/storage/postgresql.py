"""A store in PostgreSQL, which several collectors may share: its tables of days.

They inherit from `batch_ids` and `segments`, by which they are read, so that readers know nothing
of them. Nothing but a lock keeps an id from being inserted into two tables at once: transactions of
the *open day* hold it together, and one of any other day holds it alone and makes its own the open
day. What servers log of slow statements has their parameters, so ids and records are copied: no log
has what COPY reads. Invariants: no batch id and no record is ever the parameter of a statement, or
part of its text; what would wait for a long reader, such as a backup, gives up soon; and `segments`
itself holds only mixed reports; what comes to another day than the open one, such as imports, has
a table of its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.days import (
    Days,
    DayTable,
    IdTransaction,
    OpenDatabase,
    id_table,
    parse_tables,
    segment_table,
    taking_day,
)
from hubbub.storage.schema import LATE, disable_statistics, open_day, segments
from hubbub.storage.sessions import (
    ARRIVED,
    LOCKED_DAY,
    MAKING,
    SHARE_OPEN_DAY,
    PostgresqlDatabase,
    begun,
    driver_of,
    open_sessions,
)

LOCK_ALL_DAYS = sa.text(SHARE_OPEN_DAY.text.replace("_shared", ""))

_SORTING = 0x68756273
"""Held by the one who sorts ids: "hubs"."""

_TRY_TO_LOCK = sa.select(
    sa.func.pg_try_advisory_xact_lock(sa.bindparam("lock", type_=sa.BigInteger))
)
_WAIT_BRIEFLY = sa.text("SET LOCAL lock_timeout = '0.5s'")
"""For a change of tables, as others wait for it meanwhile."""

_IS_KNOWN = "EXISTS (SELECT FROM batch_ids WHERE batch_id = id OFFSET 0)"
"""OFFSET keeps the planner from joining, and so from reading whole tables of ids."""
_FIND = f"SELECT EXISTS (SELECT FROM {ARRIVED}, unnest(ids) AS id WHERE {_IS_KNOWN})"  # noqa: S608

_WAIT_FOR_REPLICAS = """
    SELECT pg_logical_emit_message(true, 'hubbub', '')
    WHERE current_setting('synchronous_standby_names') <> ''
"""
"""Lets COMMIT wait for synchronous replicas although the transaction has stored nothing.

What it found there may not be with them: who stored it may have given up waiting for them, or the
server was started again meanwhile.
"""


@lru_cache(maxsize=16)
def _as_table(name: str) -> sa.Table:
    """Return a table with the columns of `segments`, always the same, so that SQL is made once."""
    return segments.to_metadata(sa.MetaData(), name=name)


class PostgresqlDays(Days):
    """Tables that inherit from `batch_ids` and `segments`."""

    _database: PostgresqlDatabase

    @asynccontextmanager
    async def begin(self, day: dt.date) -> AsyncIterator[IdTransaction]:
        """Begin together with others if the day is open, and otherwise alone."""
        async with begun(self._database.writing, LOCKED_DAY) as (connection, opened):
            if opened == day or (
                opened is not None and opened == taking_day(day, await _tables(connection))
            ):
                yield IdTransaction(connection, opened)
                return
        async with self._database.write(LOCK_ALL_DAYS) as connection:
            taking = taking_day(day, await _tables(connection))
            await connection.execute(sa.delete(open_day))
            await connection.execute(sa.insert(open_day).values(day=taking))
            await _make(connection, id_table(taking), segment_table(taking))
            yield IdTransaction(connection, taking)

    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Copy them, and insert from there; if all are known, COMMIT waits until replicas know."""
        driver = driver_of(transaction.connection)
        await driver.copy_records_to_table(ARRIVED, records=[(ids,)])
        rows = await driver.fetch(f"""
            WITH arrived AS (DELETE FROM {ARRIVED} RETURNING ids)
            INSERT INTO {id_table(transaction.day).name} (batch_id)
            SELECT id FROM arrived, unnest(ids) AS id WHERE NOT {_IS_KNOWN}
            ON CONFLICT DO NOTHING RETURNING batch_id
        """)  # noqa: S608
        if not rows:
            await driver.execute(_WAIT_FOR_REPLICAS)
        return {row["batch_id"] for row in rows}

    async def has(self, batch_id: bytes) -> bool:
        """Search all tables; what is found is with all replicas, too."""
        async with self._database.write(SHARE_OPEN_DAY) as connection:
            driver = driver_of(connection)
            await driver.copy_records_to_table(ARRIVED, records=[([batch_id],)])
            found = bool(await driver.fetchval(_FIND))
            await driver.execute(f"DELETE FROM {ARRIVED}")  # noqa: S608
            if found:
                await driver.execute(_WAIT_FOR_REPLICAS)
        return found

    async def tables(self) -> Sequence[DayTable]:
        """List what inherits."""
        async with self._database.read() as connection:
            return await _tables(connection)

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:
        """Return the open day's table; imports of other days share one."""
        return _as_table(segment_table(day).name if day == received else LATE)

    async def merge_target(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return the day's table, if there is one."""
        own = segment_table(day)
        return _as_table(own.name if own in await _tables(connection) else LATE)

    async def prepare(self, day: dt.date) -> None:
        """Make a day's tables."""
        async with self._database.write(_WAIT_BRIEFLY) as connection:
            taking = taking_day(day, await _tables(connection))
            await _make(connection, id_table(taking), segment_table(day))

    async def sort(self, table: DayTable) -> None:
        """Insert them into a table of their own, by one statement, however long it takes.

        CLUSTER would keep the number of the transaction that each row came with. The empty copy
        closes the day; one statement fills it, so that it has nothing or all.
        """
        copy = id_table(table.day, is_sorted=True)
        async with self._database.write(_WAIT_BRIEFLY) as connection:
            await connection.execute(LOCK_ALL_DAYS)
            await connection.execute(sa.delete(open_day).where(open_day.c.day == table.day))
            await _make(connection, copy)
        async with self._database.patient() as engine, engine.begin() as connection:
            if not await connection.scalar(_TRY_TO_LOCK, {"lock": _SORTING}):
                return
            if table not in await _tables(connection):
                return
            if not await _has_rows(connection, copy):
                await connection.exec_driver_sql(
                    f"INSERT INTO {copy.name} SELECT batch_id FROM {table.name} ORDER BY batch_id"  # noqa: S608
                )
        await self.drop(table)

    async def drop(self, table: DayTable, *, if_empty: bool = False) -> None:
        """Drop a table, unless somebody reads it: a backup may, for hours.

        Each append looks into all tables of ids, so that one of these is dropped alone; segments
        of a day that isn't open are dropped along with those of the open one.
        """
        is_open = sa.select(sa.exists().where(open_day.c.day == table.day))
        if if_empty and not table.holds_ids:
            async with self._database.read() as connection:
                if table in await _tables(connection) and await _has_rows(connection, table):
                    return
        async with self._database.write(_WAIT_BRIEFLY) as connection:
            alone = table.holds_ids or bool(await connection.scalar(is_open))
            await connection.execute(LOCK_ALL_DAYS if alone else SHARE_OPEN_DAY)
            if not alone and (
                await connection.scalar(is_open)  # since then
                or not await connection.scalar(_TRY_TO_LOCK, {"lock": MAKING})  # another drops it
            ):
                return
            if table not in await _tables(connection):
                return
            await connection.exec_driver_sql(f"LOCK TABLE {table.name}{' NOWAIT' * alone}")
            if if_empty and await _has_rows(connection, table):
                return
            if not table.is_sorted:
                # Or a day would be open without a table.
                await connection.execute(sa.delete(open_day).where(open_day.c.day == table.day))
            await connection.exec_driver_sql(f"DROP TABLE {table.name}")


async def open_database(url: str, *, create: bool) -> OpenDatabase:
    """Open the database at an address that PostgreSQL's own programs understand.

    Raises `StoreError` if it can't be reached, or through a pooler that gives each transaction
    another session.
    """
    database = await open_sessions(url, writes=create)
    return OpenDatabase(database, PostgresqlDays(database))


async def _tables(connection: AsyncConnection) -> list[DayTable]:
    query = (
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent IN ('batch_ids'::regclass, 'segments'::regclass)"
    )
    return parse_tables((await connection.exec_driver_sql(query)).scalars())


async def _has_rows(connection: AsyncConnection, table: DayTable) -> bool:
    query = f"SELECT EXISTS (SELECT FROM {table.name})"  # noqa: S608
    return bool((await connection.exec_driver_sql(query)).scalar_one())


async def _make(connection: AsyncConnection, *tables: DayTable) -> None:
    """Make tables unless they are there; neither readers nor writers wait for it."""
    if not set(tables) <= set(await _tables(connection)):
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MAKING)))
        there = await _tables(connection)
        for name, day, holds_ids, _ in [table for table in tables if table not in there]:
            # With this condition a query for some days leaves out the tables of others.
            check = f"PRIMARY KEY (segment_id), CHECK (day = DATE '{day}')"
            parent, constraints, unsampled = (
                ("batch_ids", "PRIMARY KEY (batch_id)", "batch_id")
                if holds_ids
                else ("segments", check, "records")
            )
            await connection.exec_driver_sql(
                f"CREATE TABLE {name} ({constraints}) INHERITS ({parent})"
            )
            await connection.exec_driver_sql(disable_statistics(name, unsampled))
            if not holds_ids:
                columns = "(metric, version, day, slice, reports)"
                await connection.exec_driver_sql(f"CREATE INDEX {name}_by_day ON {name} {columns}")
