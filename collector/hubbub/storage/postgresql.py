"""A store in PostgreSQL, which several collectors may share.

Tables of days inherit from `batch_ids` and `segments`, by which they are read, so that readers know
nothing of them. Nothing but a lock keeps an id from being inserted into two tables at once:
transactions of the *open day* hold it together, and one of any other day holds it alone and makes
its own the open day. What servers log of slow statements has their parameters, so ids and records
are copied: no log has what COPY reads.

Invariants: no batch id and no record is ever the parameter of a statement, or part of its text;
each session waits at COMMIT until the transaction, and all that it found, is on disk, whatever the
server's default is, and with the replicas that the server waits for; what would wait for a long
reader, such as a backup, gives up soon; a process that is frozen keeps no lock, but for those of
readers; and `segments` itself holds only mixed reports; what comes to another day than the open
one, such as imports, has a table of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hubbub.storage.database import (
    Database,
    DayTable,
    IdTransaction,
    Row,
    id_table,
    parse_tables,
    pooled_rows,
    segment_table,
    taking_day,
    translate_errors,
)
from hubbub.storage.errors import StoreError, UnreachableError, mask_address
from hubbub.storage.reports import NewBatch
from hubbub.storage.schema import LATE, batch_ids, inheriting, metadata, open_day, segments

_CONNECT_SECONDS = 5.0
"""A server on the same network answers in milliseconds, one that fails over in seconds."""
_STATEMENT_SECONDS = 10
"""An append takes milliseconds: after this the server hangs, and clients send again."""
_GRACE_SECONDS = 5
"""Later than that, a server that doesn't report the timeout itself is given up."""
_CONNECTIONS = 4  # that a worker has for readers, and as many for appends, upkeep and probes
_RECYCLE_SECONDS = 180
"""Firewalls and poolers close connections that were idle for some minutes, so none gets as old."""
_STATEMENTS_KEPT = 64
"""Statements that are kept compiled, and prepared by each connection.

Some a day name the day's tables and are never needed again. By default they would be kept for most
of a year, in the memory of both sides.
"""
_DURABLE = ("on", "remote_apply")
_BUFFER_BYTES = 64 * 1024
"""The server sends 8 KiB at a time; more has come if this process was busy meanwhile."""

_DAYS, _MAKING, _SORTING = 0x68756264, 0x68756262, 0x68756273
"""The locks of all who insert ids, and alone if they aren't of the open day ("hubd"); of who makes
a table ("hubb"); of who sorts ids ("hubs")."""
_SHARE_OPEN_DAY = sa.text(f"SELECT pg_advisory_xact_lock_shared({_DAYS})")
LOCK_ALL_DAYS = sa.text(f"SELECT pg_advisory_xact_lock({_DAYS})")
_TRY_TO_LOCK = sa.select(
    sa.func.pg_try_advisory_xact_lock(sa.bindparam("lock", type_=sa.BigInteger))
)
_WAIT_BRIEFLY = sa.text("SET LOCAL lock_timeout = '0.5s'")
"""For a change of tables, as others wait for it meanwhile."""

_ARRIVED = "hubbub_arrived"
"""A temporary table: one row, with the ids of a transaction. Servers don't log what is in it."""
_MAKE_ARRIVED = f"CREATE TEMPORARY TABLE IF NOT EXISTS {_ARRIVED} (ids bytea[])"
_IS_KNOWN = "EXISTS (SELECT FROM batch_ids WHERE batch_id = id OFFSET 0)"
"""OFFSET keeps the planner from joining, and so from reading whole tables of ids."""

_WAIT_FOR_DISK = f"""
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN {_DURABLE}
"""
"""Waiting for replicas as well (remote_apply) is left as it is."""
_WAIT_FOR_REPLICAS = """
    SELECT pg_logical_emit_message(true, 'hubbub', '')
    WHERE current_setting('synchronous_standby_names') <> ''
"""
"""Lets COMMIT wait for synchronous replicas although the transaction has stored nothing.

What it found there may not be with them: who stored it may have given up waiting for them, or the
server was started again meanwhile.
"""

_KEEP_TABLES = sa.text("LOCK TABLE segments IN ACCESS SHARE MODE")
"""All tables of segments: none that is there when a transaction's snapshot is taken is dropped."""
_HEAR_OF_TABLES = sa.text("SELECT 1 FROM pg_inherits LIMIT 0")
"""Takes the transaction's snapshot, then a lock, and so hears of all tables made before it.

A session that has all locks already doesn't hear of them, and goes by plans that were kept.
"""

_log = logging.getLogger("hubbub.collector")


@lru_cache(maxsize=16)
def _as_table(name: str) -> sa.Table:
    """Return a table with the columns of `segments`, always the same, so that SQL is made once."""
    return segments.to_metadata(sa.MetaData(), name=name)


class PostgresqlDatabase(Database):
    """An open PostgreSQL database; use `open_database`."""

    _insert = staticmethod(insert)

    def __init__(self, url: str, *, writes: bool) -> None:
        # Two pools, so that slow readers don't keep reports waiting.
        reading = _engine(url, writes=writes, reads_only=True)
        super().__init__(reading, _engine(url, writes=True) if writes else reading)
        self._url = url

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that sees each report once, wherever it is moved meanwhile.

        All of it sees the moment of its first query. A plan that was made before a table was would
        miss what has been moved there until a later moment, whether it is made now or was kept.
        """
        async with super().read() as connection:
            await connection.execute(_KEEP_TABLES)
            await connection.execute(_HEAR_OF_TABLES)
            yield connection

    @asynccontextmanager
    async def make(self) -> AsyncIterator[AsyncConnection]:
        """Wait for others who make tables."""
        async with self._patient() as engine, engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
            yield connection

    async def insert_rows(
        self, connection: AsyncConnection, table: sa.Table, rows: Sequence[Row]
    ) -> None:
        """Copy them."""
        if rows:
            columns = table.columns.keys()
            records = [tuple(row[name] for name in columns) for row in rows]
            driver = _driver_of(connection)
            await driver.copy_records_to_table(table.name, records=records, columns=columns)

    async def reclaim_space(self) -> None:
        """Clear the space of what was merged, counted or deleted, for others to be written to."""
        async with self._patient() as engine, engine.connect() as connection:
            # A vacuum can't be part of a transaction.
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for name in ["counts", *await _family(alone, "segments")]:
                # Another collector may have dropped it meanwhile.
                with contextlib.suppress(sa.exc.ProgrammingError):
                    await alone.exec_driver_sql(f"VACUUM (SKIP_LOCKED) {name}")

    async def size_bytes(self) -> int:
        """Return the bytes of the tables and indexes."""
        async with self.read() as connection:
            names = [*metadata.tables.keys() - {"segments"}]
            names += [
                *await _family(connection, "segments"),
                *await _family(connection, "batch_ids"),
            ]
            # A table that was dropped meanwhile has no size.
            query = (
                "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest($1::text[]) name"
            )
            return int((await connection.exec_driver_sql(query, (names,))).scalar_one())

    async def backup(self, target: Path) -> None:
        """Leave it to PostgreSQL's own programs, which know how."""
        address = shlex.quote(mask_address(self._url))
        dump = shlex.quote(str(target))
        raise StoreError.at(
            self._url,
            "PostgreSQL makes its own backups, also while collectors run:\n"
            f"  pg_dump --format=custom --file={dump} {address}\n"
            "and restores them, into a new and empty database:\n"
            f"  pg_restore --exit-on-error --single-transaction --dbname=ADDRESS {dump}\n"
            "docs/do/backup.md says what each way can lose.",
        )

    @asynccontextmanager
    async def _patient(self) -> AsyncIterator[AsyncEngine]:
        """Open another connection, for a statement without a time limit."""
        engine = _engine(self._url, writes=True, seconds=0)
        try:
            async with translate_errors():
                yield engine
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def begin(self, day: dt.date) -> AsyncIterator[IdTransaction]:
        """Begin together with others if the day is open, and otherwise alone."""
        async with self.write() as connection:
            await connection.execute(_SHARE_OPEN_DAY)
            # By a statement of its own, which sees what was committed before the lock was free.
            opened = await _driver_of(connection).fetchval("SELECT day FROM open_day")
            if opened == day or (
                opened is not None and opened == taking_day(day, await _tables(connection))
            ):
                yield IdTransaction(connection, opened)
                return
        async with self.write() as connection:
            await connection.execute(LOCK_ALL_DAYS)
            taking = taking_day(day, await _tables(connection))
            await connection.execute(sa.delete(open_day))
            await connection.execute(sa.insert(open_day).values(day=taking))
            await _make(connection, id_table(taking), segment_table(taking))
            yield IdTransaction(connection, taking)

    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Copy them, and insert from there; if all are known, COMMIT waits until replicas know."""
        driver = _driver_of(transaction.connection)
        await driver.copy_records_to_table(_ARRIVED, records=[(ids,)])
        rows = await driver.fetch(f"""
            WITH arrived AS (DELETE FROM {_ARRIVED} RETURNING ids)
            INSERT INTO {id_table(transaction.day).name} (batch_id)
            SELECT id FROM arrived, unnest(ids) AS id WHERE NOT {_IS_KNOWN}
            ON CONFLICT DO NOTHING RETURNING batch_id
        """)  # noqa: S608
        if not rows:
            await driver.execute(_WAIT_FOR_REPLICAS)
        return {row["batch_id"] for row in rows}

    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Copy the rows to the open day's table; imports of other days share one."""
        # In order, so that collectors with the same ids don't deadlock.
        ids = sorted(batches)
        # In place: that takes 6 ms of 50,000 reports, and a group has fewer.
        rows = pooled_rows(batches.values(), day)
        async with self.begin(received) as transaction:
            unseen = await self.take(transaction, ids)
            if len(unseen) < len(ids):  # seldom
                rows = pooled_rows([batches[it] for it in unseen], day)
            name = segment_table(day).name if day == transaction.day else LATE
            await self.insert_rows(transaction.connection, _as_table(name), rows)
        return unseen

    async def day_tables(self) -> Sequence[DayTable]:
        """List what inherits."""
        async with self.read() as connection:
            return await _tables(connection)

    async def merge_target(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return the day's table, if there is one."""
        own = segment_table(day)
        return _as_table(own.name if own in await _tables(connection) else LATE)

    async def prepare(self, day: dt.date) -> None:
        """Make a day's tables."""
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            taking = taking_day(day, await _tables(connection))
            await _make(connection, id_table(taking), segment_table(day))

    async def sort(self, table: DayTable) -> None:
        """Insert them into a table of their own, by one statement, however long it takes.

        CLUSTER would keep the number of the transaction that each row came with. The empty copy
        closes the day; one statement fills it, so that it has nothing or all.
        """
        copy = id_table(table.day, is_sorted=True)
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            await connection.execute(LOCK_ALL_DAYS)
            await connection.execute(sa.delete(open_day).where(open_day.c.day == table.day))
            await _make(connection, copy)
        async with self._patient() as engine, engine.begin() as connection:
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
            async with self.read() as connection:
                if table in await _tables(connection) and await _has_rows(connection, table):
                    return
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            alone = table.holds_ids or bool(await connection.scalar(is_open))
            await connection.execute(LOCK_ALL_DAYS if alone else _SHARE_OPEN_DAY)
            if not alone and (
                await connection.scalar(is_open)  # since then
                or not await connection.scalar(_TRY_TO_LOCK, {"lock": _MAKING})  # another drops it
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


class _Connection(asyncpg.Connection):  # type: ignore[misc] # it has no types
    """asyncpg's connection, which leaves no holes in memory."""

    __slots__ = ()

    def __init__(
        self, protocol: asyncio.Protocol, transport: asyncio.Transport, *others: Any
    ) -> None:
        super().__init__(protocol, transport, *others)
        transport.set_protocol(_Buffered(protocol))


class _Buffered(asyncio.BufferedProtocol):
    """Hands what comes to the driver's own protocol, as a copy: the buffer is free again at once.

    By itself asyncio makes room for 256 KiB each time it receives, and cuts it to what came, a few
    hundred bytes; asyncpg keeps this piece until the connection has received again. What the C
    library puts behind it meanwhile leaves no room there for the next 256 KiB, so that a
    collector's heap grew by such holes for as long as it ran (docs/measured/service.md).
    """

    def __init__(self, driver: asyncio.Protocol) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._received = driver.data_received
        for name in ("eof_received", "connection_lost", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(driver, name))

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(bytes(self._buffer[:nbytes]))


async def open_database(url: str, *, create: bool) -> PostgresqlDatabase:
    """Open the database at an address that PostgreSQL's own programs understand.

    Raises `StoreError` if it can't be reached, or takes no writes though it is to be written to.
    """
    database = PostgresqlDatabase(url, writes=create)
    try:
        async with (
            translate_errors(f"store {mask_address(url)!r}"),
            database.reading.connect() as connection,
        ):
            if create and await connection.scalar(sa.text("SELECT pg_is_in_recovery()")):
                raise UnreachableError.at(url, "recovers or is a replica, so it takes no writes")
            if create and await connection.scalar(sa.text("SHOW fsync")) == "off":
                _log.warning(
                    "the PostgreSQL server runs with fsync = off: reports that were acknowledged "
                    "are lost when its machine fails"
                )
    except BaseException:
        await database.close()
        raise
    return database


async def _family(connection: AsyncConnection, parent: str) -> Sequence[str]:
    """Return the names of a table and of those that inherit from it."""
    query = (
        "SELECT relname FROM pg_class WHERE oid = $1::text::regclass OR oid IN "
        "(SELECT inhrelid FROM pg_inherits WHERE inhparent = $1::text::regclass)"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars().all()


def _driver_of(connection: AsyncConnection) -> asyncpg.Connection:
    """Return asyncpg's connection of a transaction that SQLAlchemy has begun.

    To await `get_raw_connection` would switch to another stack and back.
    """
    return connection.sync_connection.connection.driver_connection  # type: ignore[union-attr]


def _engine(
    url: str, *, writes: bool, reads_only: bool = False, seconds: int = _STATEMENT_SECONDS
) -> AsyncEngine:
    """Return an engine of sessions whose statements may take so long; 0: as they like.

    `writes`: whether the server is to let it write. `reads_only`: whether it is for `read`.
    """
    settings = {
        "application_name": "hubbub",
        "client_min_messages": "warning",
        "statement_timeout": f"{seconds}s",
        "default_transaction_read_only": "off" if writes else "on",
        # Or a frozen collector's transaction would keep others from what it has locked. A session
        # that reads locks little, and may rest between two segments.
        "idle_in_transaction_session_timeout": "0" if reads_only else f"{_STATEMENT_SECONDS}s",
    }
    prepare = ""
    if writes and not reads_only and seconds:
        # Planned once, and by keys, though tables of ids were small when the planner looked.
        settings |= {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
        prepare = _MAKE_ARRIVED

    async def connect(**_options: Any) -> asyncpg.Connection:
        connection = await _connect(
            url,
            command_timeout=seconds + _GRACE_SECONDS if seconds else None,
            statement_cache_size=_STATEMENTS_KEPT,
            connection_class=_Connection,
        )
        try:
            # Not with the first message: PgBouncer refuses settings there, or drops them.
            given = ", ".join(f"set_config('{it}', '{to}', false)" for it, to in settings.items())
            await connection.execute(f"SELECT {given}; {_WAIT_FOR_DISK}; {prepare}")
        except BaseException:
            connection.terminate()
            raise
        return connection

    engine: AsyncEngine = create_async_engine(
        "postgresql+asyncpg://",
        creator=lambda: engine.dialect.loaded_dbapi.connect(
            async_creator_fn=connect, prepared_statement_cache_size=_STATEMENTS_KEPT
        ),
        query_cache_size=_STATEMENTS_KEPT,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_STATEMENT_SECONDS,
        pool_recycle=_RECYCLE_SECONDS,
        # `begin` must see what was committed while it waited, whatever the default is.
        isolation_level="REPEATABLE READ" if reads_only else "READ COMMITTED",
    )
    sa.event.listen(engine.sync_engine, "checkout", _replace_closed)
    return engine


def _replace_closed(connection: Any, *_others: object) -> None:
    """Let the pool open another connection for one that the server has closed meanwhile."""
    if connection.driver_connection.is_closed():
        raise sa.exc.DisconnectionError


async def _connect(url: str, **options: Any) -> asyncpg.Connection:
    # asyncpg reads the address itself, so TLS, sockets and password files work as usual.
    try:
        return await asyncpg.connect(url, timeout=_CONNECT_SECONDS, **options)
    except ValueError:
        # Without its text, which quotes a part of the address: of the password, perhaps.
        raise StoreError.at(
            url,
            "must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with what isn't a letter or digit percent-encoded",
        ) from None


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
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
        there = await _tables(connection)
        for name, day, holds_ids, _ in [table for table in tables if table not in there]:
            # With this condition a query for some days leaves out the tables of others.
            of_day = f"CHECK (day = DATE '{day}')"
            made = inheriting(name, batch_ids) if holds_ids else inheriting(name, segments, of_day)
            for statement in made:
                await connection.exec_driver_sql(statement)
