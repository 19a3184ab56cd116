"""A store in PostgreSQL, which several collectors may share.

Batch ids are in partitions, each with a key of its own, so nothing but locks keeps an id from being
inserted in two of them at once: transactions of the open day run together, one of any other day
runs alone and makes its own the open day. Invariants: each session waits at COMMIT until the
transaction is on disk, whatever the server's default is; nothing here repeats a transaction whose
outcome is unknown; what would wait for a long reader, such as a backup, gives up soon; and a
process that is frozen keeps no lock, but for those of readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hubbub.collector.errors import StoreError, mask_address
from hubbub.collector.store.day_tables import (
    APART,
    DayTable,
    as_table,
    first_table,
    mixed_table,
    parse_day_table,
)
from hubbub.collector.store.ids import IdTable, id_table, parse_id_table
from hubbub.collector.store.interfaces import Database, Head, Prepared, Result, translate_errors
from hubbub.collector.store.schema import metadata, open_day, segments

_CONNECT_SECONDS = 5.0
_STATEMENT_SECONDS = 10
_GRACE_SECONDS = 5
"""Later than that, a server that doesn't report the timeout itself is given up."""

_CONNECTIONS = 4
_STATEMENTS_KEPT = 32
"""Statements that are kept compiled by a pool, and prepared by each of its connections.

A dozen a day name the day's tables and are never needed again. By default they would be kept for
most of a year, in the memory of both sides.
"""

_MIGRATIONS = 0x68756262  # "hubb": the lock that whoever changes the schema takes
_DAYS = 0x68756264  # "hubd": held by all who insert ids; alone, if they aren't of the open day
_INDEXES = 0x68756269  # "hubi": held by who makes an index
_QUARANTINE = 0x68756271  # "hubq": held by whoever changes the quarantine
_WAIT_FOR_QUARANTINE = sa.select(sa.func.pg_advisory_xact_lock(_QUARANTINE))
_WAIT_FOR_OTHER_DAYS = sa.select(sa.func.pg_advisory_xact_lock_shared(_DAYS))
_WAIT_FOR_ALL_DAYS = sa.select(sa.func.pg_advisory_xact_lock(_DAYS))
_IS_OPEN = sa.select(
    sa.exists().where(open_day.c.day == sa.bindparam("day", type_=sa.Date)),
).where(sa.func.to_regclass(sa.bindparam("name", type_=sa.Text)).is_not(None))
"""Without its table of segments, an older collector has opened the day."""

_BEGIN_BESIDE_OTHERS = f"BEGIN; SELECT pg_advisory_xact_lock_shared({_DAYS})"
_INSERT_IDS = """
    INSERT INTO batch_ids (batch_id, day)
    SELECT id, $2::date FROM unnest($1::bytea[]) AS id
    WHERE (SELECT to_regclass($4::text) IS NOT NULL AND EXISTS (
        SELECT FROM open_day WHERE day = $2::date
    ))
    AND NOT EXISTS (
        SELECT FROM batch_ids
        WHERE batch_id = id AND (day < $2::date OR day >= $3::date)
        OFFSET 0
    )
    ON CONFLICT DO NOTHING RETURNING batch_id
"""
"""Insert ids into the open day, or none if it isn't open.

The other days are searched in the key of each, id by id: OFFSET keeps the planner from joining, and
so from reading whole partitions because they were small when it looked.
"""

_MIXING = 0x6875626D  # "hubm": held by the one who mixes days
_TRY_TO_MIX = sa.select(sa.func.pg_try_advisory_xact_lock(_MIXING))
_OPEN_DAY = sa.select(open_day.c.day)
_TRY_TO_INDEX = sa.select(sa.func.pg_try_advisory_xact_lock(_INDEXES))
_INDEXED = """
    SELECT day.relname FROM pg_inherits
    JOIN pg_class AS day ON day.oid = inhrelid
    JOIN pg_index ON indrelid = inhrelid
    JOIN pg_class AS key ON key.oid = indexrelid
    JOIN pg_am ON pg_am.oid = key.relam
    WHERE inhparent = 'batch_ids'::regclass AND amname = 'hash'
"""

_LOCK_SECONDS = 0.5
"""How long a change of partitions waits for others, as they wait for it meanwhile."""

_HEADS_A_STATEMENT = 1000
_SEGMENTS_MOVED = 64
_TIDYING_ATTEMPTS = 3
_MISSING_TABLE = "42P01"
_BEAT_SECONDS = _STATEMENT_SECONDS / 5
_DURABLE = ("on", "remote_apply")

_KEEP_TABLES = sa.text("LOCK TABLE segments IN ACCESS SHARE MODE")
"""All tables of segments: none that is there when a transaction's snapshot is taken is dropped."""

_WAIT_BRIEFLY = sa.text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
_TEXTS = sa.dialects.postgresql.ARRAY(sa.Text)

_log = logging.getLogger("hubbub.collector")


class _NotOpenError(Exception):
    """The day isn't the open one: nothing was inserted, and the transaction has to end."""


class PostgresqlDatabase(Database):
    """An open PostgreSQL database; use `open_database`."""

    bytes_at_once = 16 * 1024**2

    def __init__(self, url: str, *, writes: bool) -> None:
        # Two pools, so that slow readers don't keep reports waiting.
        reading = _engine(url, writes=writes, reads_only=True)
        super().__init__(reading, _engine(url, writes=True) if writes else reading)
        self._appending = _engine(url, writes=True, is_bare=True)
        self._url = url

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that sees each report once, wherever it is moved meanwhile.

        All of it sees the moment of its first statement. A plan that was made before a table was
        would miss what has been moved there until a later moment.
        """
        async with super().read() as connection:
            await connection.execute(_KEEP_TABLES)
            yield connection

    @asynccontextmanager
    async def migrate(self) -> AsyncIterator[AsyncConnection]:
        """Wait for other migrations, then let this one take its time."""
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
            yield connection

    async def transact(
        self,
        day: dt.date,
        prepare: Callable[[], Prepared],
        write: Callable[[sa.Connection, Prepared], Result],
        *,
        is_large: bool = False,
    ) -> Result:
        """Write on one of some connections; beside others if the day is open."""
        prepared = await asyncio.to_thread(prepare) if is_large else prepare()
        with contextlib.suppress(_NotOpenError):
            async with self._write_beside_others() as connection:
                return await connection.run_sync(write, prepared)
        async with self.write() as connection:
            await connection.execute(_WAIT_FOR_ALL_DAYS)
            # In the order of drop_id_table, so that neither waits for the other.
            await connection.execute(sa.delete(open_day))
            await connection.execute(sa.insert(open_day).values(day=day))
            await _make_partition(connection, day)
            await _make_day_table(connection, first_table(day))
            return await connection.run_sync(write, prepared)

    @asynccontextmanager
    async def _write_beside_others(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction of the open day and take its lock, in one round trip to the server.

        What a transaction of few batches costs is its round trips. SQLAlchemy would make two of
        this one, and three more beforehand to see whether the connection is alive.
        """
        async with translate_errors(), self._appending.connect() as connection:
            driver = await _begin_beside_others(connection)
            try:
                yield connection
                await driver.execute("COMMIT")
            except BaseException:
                try:
                    await driver.execute("ROLLBACK")
                except BaseException:
                    driver.terminate()
                raise

    async def close(self) -> None:
        """Close all connections."""
        await self._appending.dispose()
        await super().close()

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        return insert(table).on_conflict_do_nothing()

    def insert_ids(
        self, connection: sa.Connection, ids: Sequence[bytes], day: dt.date
    ) -> set[bytes]:
        """Insert ids as one array.

        This is the first statement after `transact` got its lock, so it sees whether the day was
        open when the lock was free.
        """
        given = (list(ids), day, _next(day), first_table(day).name)
        unseen = set(connection.exec_driver_sql(_INSERT_IDS, given).scalars())
        if not unseen and not connection.scalar(_IS_OPEN, {"day": day, "name": given[-1]}):
            raise _NotOpenError
        return unseen

    def lock_quarantine(self, connection: sa.Connection) -> None:
        """Wait for the lock; what others committed before is seen by the next statement."""
        connection.execute(_WAIT_FOR_QUARANTINE)

    async def has_id(self, batch_id: bytes) -> bool:
        """Search the key of each partition."""
        statement = "SELECT EXISTS (SELECT FROM batch_ids WHERE batch_id = $1)"
        async with self.read() as connection:
            return bool((await connection.exec_driver_sql(statement, (batch_id,))).scalar_one())

    async def id_tables(self) -> Sequence[IdTable]:
        """Return the partitions."""
        async with self.read() as connection:
            return await _partitions(connection)

    async def prepare_id_table(self, day: dt.date) -> None:
        """Make a day's partition."""
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            await _make_partition(connection, day)

    async def index_id_table(self, before: dt.date) -> bool:
        """Give the youngest such partition without one a hash index, unless another process does.

        A search reads one page of it, however large the day, and it is half as large as the key,
        which stays for who still inserts ids of that day. Inserting into the open day waits for
        nothing here.
        """
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            if not await connection.scalar(_TRY_TO_INDEX):
                return False
            opened = await connection.scalar(_OPEN_DAY)
            has_index = set((await connection.exec_driver_sql(_INDEXED)).scalars())
            tables = [
                table
                for table in await _partitions(connection)
                if opened and table.last_day < min(opened, before) and table.name not in has_index
            ]
            if not tables:
                return False
            name = max(tables, key=lambda table: table.last_day).name
            await connection.exec_driver_sql(f"CREATE INDEX ON {name} USING hash (batch_id)")
            return True

    async def drop_id_table(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a partition, unless somebody reads or writes any of them for too long."""
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            if if_empty and await _has_rows(connection, table.name):
                return
            # Or a day would be open without a partition.
            is_held = open_day.c.day == table.last_day
            if not if_empty:
                is_held = open_day.c.day <= table.last_day
            await connection.execute(sa.delete(open_day).where(is_held))
            if if_empty:
                # In the order in which DROP TABLE locks them. Then nobody inserts any more.
                await connection.exec_driver_sql(f"LOCK TABLE ONLY batch_ids, ONLY {table.name}")
                if await _has_rows(connection, table.name):
                    return
            await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table.name}")

    def table_of_new(self, day: dt.date, received: dt.date) -> sa.Table:
        """Return the open day's table; imports of other days come to no table of their own."""
        return as_table(first_table(day)) if day == received else segments

    async def table_of_merged(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return the day's table, if there is one."""
        first = first_table(day)
        name = sa.bindparam("name", first.name, sa.Text)
        exists = sa.select(sa.func.to_regclass(name).is_not(None))
        return as_table(first) if await connection.scalar(exists) else segments

    async def table_of_mixed(self, day: dt.date, today: dt.date) -> sa.Table:
        """Return the table of a day's mixed reports; make it if need be."""
        table = mixed_table(day, today)
        async with self.write() as connection:
            await _make_day_table(connection, table)
        return as_table(table)

    async def prepare_segments(self, day: dt.date) -> None:
        """Make both of a day's tables."""
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            for table in (first_table(day), mixed_table(day, day)):
                await _make_day_table(connection, table)

    async def drop_first_tables(self, today: dt.date) -> None:
        """Drop empty tables of days that are over; move what is too old for a table of its day."""
        async with self.read() as connection:
            tables = await _day_tables(connection)
        for table in tables:
            if table.is_mixed and table.day is not None and table.day < today - APART:
                await self._move(table, table.day, today)
            if table.may_end(today):
                await self._drop_if_empty(table)

    async def _move(self, table: DayTable, day: dt.date, today: dt.date) -> None:
        """Move a day's mixed segments to where they belong, some at a time, whoever reads them."""
        target = await self.table_of_mixed(day, today)
        keys = f"SELECT segment_id FROM {table.name} ORDER BY segment_id LIMIT {_SEGMENTS_MOVED}"  # noqa: S608
        statement = (
            f"WITH moved AS (DELETE FROM {table.name} WHERE segment_id IN ({keys}) RETURNING *) "  # noqa: S608
            f"INSERT INTO {target.name} SELECT * FROM moved"
        )
        moved = 1
        while moved:
            async with self.write() as connection:
                moved = (await connection.exec_driver_sql(statement)).rowcount

    async def _drop_if_empty(self, table: DayTable) -> None:
        """Drop a table if it is empty, unless somebody uses it for too long."""
        async with self.read() as connection:
            if await _has_rows(connection, table.name):
                return
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            if not table.is_mixed and not await _close_day(connection, table.day):
                return
            await connection.exec_driver_sql(f"LOCK TABLE {table.name}")
            if await _has_rows(connection, table.name):
                return
            await connection.exec_driver_sql(f"DROP TABLE {table.name}")

    @asynccontextmanager
    async def mixing_alone(self) -> AsyncIterator[Callable[[], bool]]:
        """Hold a lock in a transaction of its own, which the server ends unless it hears of it."""
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            if not await connection.scalar(_TRY_TO_MIX):
                yield lambda: False
                return
            ended = asyncio.Event()
            beating = asyncio.create_task(_beat(connection, ended), name="mixing")
            try:
                yield lambda: not beating.done()
            finally:
                ended.set()
                with contextlib.suppress(Exception):  # the lock is lost, and others may mix
                    await beating

    async def read_heads(self, heads: Sequence[Head]) -> list[bytes]:
        """Read slices, for which the server fetches only the pieces of 2 kB that hold them."""
        statement = (
            "SELECT substr(records, 1, head.size) FROM segments "
            "JOIN unnest($1::bigint[], $2::int[]) AS head(segment_id, size) USING (segment_id)"
        )
        records: list[bytes] = []
        for start in range(0, len(heads), _HEADS_A_STATEMENT):
            ids, sizes = zip(*heads[start : start + _HEADS_A_STATEMENT], strict=True)
            async with self.read() as connection:
                found = await connection.exec_driver_sql(statement, (list(ids), list(sizes)))
                records.extend(found.scalars())
        return records

    def note_written(self, size: int) -> None:
        """Do nothing: the server sees to its log itself."""

    async def tidy(self) -> None:
        """Clear the space of what was merged, counted or deleted, for others to be written to."""
        async with translate_errors(), self._patient() as engine, engine.connect() as connection:
            # A vacuum can't be part of a transaction.
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for left in reversed(range(_TIDYING_ATTEMPTS)):
                children = [table.name for table in await _day_tables(alone)]
                names = ", ".join(["segments", "counts", "quarantine", *children])
                try:
                    await alone.exec_driver_sql(f"VACUUM (SKIP_LOCKED) {names}")
                except sa.exc.DBAPIError as error:
                    # Another collector has dropped a table that was listed.
                    if not left or getattr(error.orig, "sqlstate", None) != _MISSING_TABLE:
                        raise
                else:
                    return

    async def size_bytes(self) -> int:
        """Return the bytes of the tables, partitions and indexes."""
        async with self.read() as connection:
            partitions = [table.name for table in await _partitions(connection)]
            days = [table.name for table in await _day_tables(connection)]
            names = [*metadata.tables, *partitions, *days]
            # A partition that was dropped meanwhile has no size.
            query = sa.text("SELECT sum(pg_total_relation_size(to_regclass(n))) FROM unnest(:n) n")
            size = await connection.scalar(query.bindparams(sa.bindparam("n", names, _TEXTS)))
            return int(size)

    @asynccontextmanager
    async def _patient(self) -> AsyncIterator[AsyncEngine]:
        """Connect anew for a statement that may take as long as it likes."""
        engine = _engine(self._url, writes=True, seconds=0)
        try:
            yield engine
        finally:
            await engine.dispose()


async def _begin_beside_others(connection: AsyncConnection) -> asyncpg.Connection:
    """Begin on this connection, or on another if the server was restarted and this one is dead.

    Nothing was asked of it before, so nothing is repeated.
    """
    for _ in range(_CONNECTIONS):
        driver = await _driver(connection)
        try:
            await driver.execute(_BEGIN_BESIDE_OTHERS)
        except Exception:
            if not driver.is_closed():
                raise
            await connection.invalidate()
        else:
            return driver
    raise StoreError("store: all connections were closed while they were unused")


async def _driver(connection: AsyncConnection) -> asyncpg.Connection:
    driver: asyncpg.Connection = (await connection.get_raw_connection()).driver_connection
    return driver


async def _partitions(connection: AsyncConnection) -> Sequence[IdTable]:
    names = await _children(connection, "batch_ids")
    return [table for table in map(parse_id_table, names) if table]


async def _day_tables(connection: AsyncConnection) -> Sequence[DayTable]:
    names = await _children(connection, "segments")
    return [table for table in map(parse_day_table, names) if table]


async def _has_rows(connection: AsyncConnection, table: str) -> bool:
    query = f"SELECT EXISTS (SELECT FROM {table})"  # noqa: S608
    return bool((await connection.exec_driver_sql(query)).scalar_one())


async def _children(connection: AsyncConnection, parent: str) -> Iterable[str]:
    query = (
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = $1::text::regclass"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars()


async def _make_partition(connection: AsyncConnection, day: dt.date) -> None:
    """Make a day's partition unless there is one; collectors may do so at once.

    It is made apart and then attached, because to make it in its place would wait for all who read
    or write any partition.
    """
    if any(table.holds(day) for table in await _partitions(connection)):
        return
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
    if any(table.holds(day) for table in await _partitions(connection)):
        return
    name = id_table(day).name
    await connection.exec_driver_sql(
        f"CREATE TABLE {name} (LIKE batch_ids INCLUDING ALL, PRIMARY KEY (batch_id))"
    )
    await connection.exec_driver_sql(
        f"ALTER TABLE batch_ids ATTACH PARTITION {name} "
        f"FOR VALUES FROM ('{day}') TO ('{_next(day)}')"
    )


async def _make_day_table(connection: AsyncConnection, table: DayTable) -> None:
    """Make a table of segments unless there is one. Neither readers nor writers wait for it."""
    if table in await _day_tables(connection):
        return
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
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


async def _close_day(connection: AsyncConnection, day: dt.date | None) -> bool:
    """Let nobody find a day open, or open it, until the transaction ends; return whether it's so.

    Its locks come before that of the day's table, as in `transact`. If the day isn't open, as when
    reports have come on another since, those of the open day don't wait.
    """
    is_day = open_day.c.day == day
    is_open = sa.select(sa.exists().where(is_day))
    was_open = await connection.scalar(is_open)
    await connection.execute(_WAIT_FOR_ALL_DAYS if was_open else _WAIT_FOR_OTHER_DAYS)
    if not was_open:
        return not await connection.scalar(is_open)
    await connection.execute(sa.delete(open_day).where(is_day))
    return True


async def _beat(connection: AsyncConnection, ended: asyncio.Event) -> None:
    """Keep a transaction that has nothing else to do from being ended by the server."""
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _BEAT_SECONDS)
        await connection.execute(sa.select(1))


def _next(day: dt.date) -> dt.date:
    return day + dt.timedelta(days=1)


async def open_database(url: str, *, create: bool) -> PostgresqlDatabase:
    """Open the database at an address that PostgreSQL's own programs understand.

    Raises
    ------
    StoreError
        If it can't be reached.
    """
    database = PostgresqlDatabase(url, writes=create)
    try:
        async with (
            translate_errors(f"store {mask_address(url)!r}"),
            database.reading.connect() as connection,
        ):
            if create and await connection.scalar(sa.text("SHOW fsync")) == "off":
                _log.warning(
                    "the PostgreSQL server runs with fsync = off: reports that were acknowledged "
                    "are lost when its machine fails"
                )
    except BaseException:
        await database.close()
        raise
    return database


def _engine(
    url: str,
    *,
    writes: bool,
    reads_only: bool = False,
    is_bare: bool = False,
    seconds: int = _STATEMENT_SECONDS,
) -> AsyncEngine:
    """Return an engine whose statements may take some seconds, or as long as they like (0).

    Parameters
    ----------
    writes : bool
        Whether the server is to let it write.
    reads_only : bool
        Whether it is for `read`.
    is_bare : bool
        Whether it begins no transactions, and doesn't ask whether a connection is alive.
    seconds : int
    """
    settings = {
        "application_name": "hubbub",
        "statement_timeout": f"{seconds}s",
        "default_transaction_read_only": "off" if writes else "on",
        # `transact` must see what was committed while it waited, whatever the server's default is.
        "default_transaction_isolation": "repeatable read" if reads_only else "read committed",
        # Or a frozen collector's transaction would keep others from what it has locked. Who reads
        # locks little, and may rest between two segments.
        "idle_in_transaction_session_timeout": "0" if reads_only else f"{_STATEMENT_SECONDS}s",
    }

    async def connect(**_options: Any) -> asyncpg.Connection:
        # asyncpg reads the address itself, so TLS, sockets and password files work as usual.
        try:
            connection = await asyncpg.connect(
                url,
                timeout=_CONNECT_SECONDS,
                command_timeout=seconds + _GRACE_SECONDS if seconds else None,
                server_settings=settings,
            )
        except ValueError:
            # Without its text, which quotes a part of the address: of the password, perhaps.
            raise StoreError.at(
                url,
                "must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "with what isn't a letter or digit percent-encoded",
            ) from None
        try:
            await connection.execute(_WAIT_FOR_DISK)
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
        # After the server was restarted, a connection is found dead before it is used.
        pool_pre_ping=not is_bare,
        isolation_level="AUTOCOMMIT" if is_bare else None,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_STATEMENT_SECONDS,
    )
    return engine


_WAIT_FOR_DISK = f"""
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN {_DURABLE}
"""
"""Waiting for replicas as well (remote_apply) is left as it is."""
