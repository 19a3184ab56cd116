"""PostgreSQL's sessions: pools, transactions, and what a server is asked for.

Invariants: each session waits at COMMIT until the transaction, and all that it found, is on disk,
whatever the server's default is, and with the replicas that the server waits for; nothing repeats a
transaction in which something was asked; and a process that is frozen keeps no lock, but for those
of readers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hubbub.storage.database import Database, Row, translate_errors
from hubbub.storage.errors import StoreError, UnreachableError, mask_address
from hubbub.storage.schema import metadata

_CONNECT_SECONDS = 5.0
"""A server on the same network answers in milliseconds, one that fails over in seconds."""
_STATEMENT_SECONDS = 10
"""An append takes milliseconds: after this the server hangs, and clients send again."""
_GRACE_SECONDS = 5
"""Later than that, a server that doesn't report the timeout itself is given up."""
_LOOKS_AT_SESSIONS = 32
"""A pooler that shares sessions shows the same one in both, but with chance 2^-31 or so."""
_CONNECTIONS = 4  # that a worker has for readers, and as many for appends, upkeep and probes
_STATEMENTS_KEPT = 64
"""Statements that are kept compiled, and prepared by each connection.

Some a day name the day's tables and are never needed again. By default they would be kept for most
of a year, in the memory of both sides.
"""
_TIDYING_ATTEMPTS = 3  # what is in the way is a reader of some seconds; upkeep comes again anyway
_MISSING_TABLE = "42P01"
_DURABLE = ("on", "remote_apply")
_BUFFER_BYTES = 64 * 1024
"""The server sends 8 KiB at a time; more has come if this process was busy meanwhile."""

_DAYS, MAKING = 0x68756264, 0x68756262
"""The locks of all who insert ids, and alone if they aren't of the open day ("hubd"); and of who
makes a table, or migrates ("hubb")."""
SHARE_OPEN_DAY = sa.text(f"SELECT pg_advisory_xact_lock_shared({_DAYS})")

ARRIVED = "hubbub_arrived"
"""A temporary table: one row, with the ids of a transaction. Servers don't log what is in it."""
_MAKE_ARRIVED = f"CREATE TEMPORARY TABLE IF NOT EXISTS {ARRIVED} (ids bytea[])"
LOCKED_DAY = sa.text("SELECT pg_temp.hubbub_locked_day()")
_MAKE_LOCKED_DAY = f"""
    CREATE OR REPLACE FUNCTION pg_temp.hubbub_locked_day() RETURNS date VOLATILE LANGUAGE plpgsql AS
    $$ BEGIN PERFORM {SHARE_OPEN_DAY.text.removeprefix("SELECT ")};
    RETURN (SELECT day FROM open_day); END $$
"""  # noqa: S608
"""Waits for the lock of the open day, then reads which it is, in one round trip.

Such a function takes a new snapshot for each of its statements, as long as it is volatile and in
PL/pgSQL, so that the second sees what was committed before the lock was free.
"""

_WAIT_FOR_DISK = f"""
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN {_DURABLE}
"""
"""Waiting for replicas as well (remote_apply) is left as it is."""

_KEEP_TABLES = sa.text("LOCK TABLE segments IN ACCESS SHARE MODE")
"""All tables of segments: none that is there when a transaction's snapshot is taken is dropped."""
_HEAR_OF_TABLES = sa.text("SELECT 1 FROM pg_inherits LIMIT 0")
"""Takes the transaction's snapshot, then a lock, and so hears of all tables made before it.

A session that has all locks already doesn't hear of them, and goes by plans that were kept.
"""
_BEGIN = sa.text("SELECT 1")

_log = logging.getLogger("hubbub.collector")


class PostgresqlDatabase(Database):
    """An open PostgreSQL database; use `open_database`."""

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
        async with begun(self.reading, _KEEP_TABLES) as (connection, _):
            await connection.execute(_HEAR_OF_TABLES)
            yield connection

    @asynccontextmanager
    async def write(self, first: sa.Executable = _BEGIN) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that writes, by its first statement."""
        async with begun(self.writing, first) as (connection, _):
            yield connection

    @asynccontextmanager
    async def migrate(self) -> AsyncIterator[AsyncConnection]:
        """Wait for other migrations, then let this one take its time."""
        async with self.patient() as engine, engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MAKING)))
            yield connection

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        return insert(table).on_conflict_do_nothing()

    async def insert_rows(
        self, connection: AsyncConnection, table: sa.Table, rows: Sequence[Row]
    ) -> None:
        """Copy them."""
        if rows:
            columns = table.columns.keys()
            records = [tuple(row[name] for name in columns) for row in rows]
            driver = driver_of(connection)
            await driver.copy_records_to_table(table.name, records=records, columns=columns)

    async def reclaim_space(self) -> None:
        """Clear the space of what was merged, counted or deleted, for others to be written to."""
        async with self.patient() as engine, engine.connect() as connection:
            # A vacuum can't be part of a transaction.
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for left in reversed(range(_TIDYING_ATTEMPTS)):
                names = ", ".join(["counts", *await _family(alone, "segments")])
                try:
                    await alone.exec_driver_sql(f"VACUUM (SKIP_LOCKED) {names}")
                except sa.exc.DBAPIError as error:
                    # Another collector has dropped a table that was listed.
                    if not left or getattr(error.orig, "sqlstate", None) != _MISSING_TABLE:
                        raise
                else:
                    return

    async def size_bytes(self) -> int:
        """Return the bytes of the tables and indexes."""
        async with self.read() as connection:
            names = [*metadata.tables.keys() - {"segments"}]
            names += await _family(connection, "segments")
            names += await _family(connection, "batch_ids")
            # A table that was dropped meanwhile has no size.
            query = (
                "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest($1::text[]) name"
            )
            return int((await connection.exec_driver_sql(query, (names,))).scalar_one())

    async def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:  # noqa: ARG002
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
    async def patient(self) -> AsyncIterator[AsyncEngine]:
        """Open another connection, for a statement without a time limit."""
        engine = _engine(self._url, writes=True, seconds=0)
        try:
            async with translate_errors():
                yield engine
        finally:
            await engine.dispose()


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


async def open_sessions(url: str, *, writes: bool) -> PostgresqlDatabase:
    """Open a database (raises as `postgresql.open_database`)."""
    database = PostgresqlDatabase(url, writes=writes)
    try:
        await _check_sessions(url)
        async with (
            translate_errors(f"store {mask_address(url)!r}"),
            database.reading.connect() as connection,
        ):
            if writes and await connection.scalar(sa.text("SELECT pg_is_in_recovery()")):
                raise UnreachableError.at(url, "recovers or is a replica, so it takes no writes")
            if writes and await connection.scalar(sa.text("SHOW fsync")) == "off":
                _log.warning(
                    "the PostgreSQL server runs with fsync = off: reports that were acknowledged "
                    "are lost when its machine fails"
                )
    except BaseException:
        await database.close()
        raise
    return database


@asynccontextmanager
async def begun(
    engine: AsyncEngine, first: sa.Executable
) -> AsyncIterator[tuple[AsyncConnection, Any]]:
    """Begin a transaction by a statement that changes nothing, and commit it in the end.

    It is yielded with what the statement has returned, if anything. If that finds a connection dead
    that was closed while it was idle, as after the server was restarted, it is run again on a
    new one.
    """
    async with translate_errors(), engine.connect() as connection:
        try:
            result = await connection.execute(first)
        except sa.exc.DBAPIError as error:
            if not error.connection_invalidated:
                raise
            await connection.rollback()
            result = await connection.execute(first)
        yield connection, result.scalar() if result.returns_rows else None
        await connection.commit()


async def _family(connection: AsyncConnection, parent: str) -> Sequence[str]:
    """Return the names of a table and of those that inherit from it."""
    query = (
        "SELECT relname FROM pg_class WHERE oid = $1::text::regclass OR oid IN "
        "(SELECT inhrelid FROM pg_inherits WHERE inhparent = $1::text::regclass)"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars().all()


def driver_of(connection: AsyncConnection) -> asyncpg.Connection:
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
        # `Days.begin` must see what was committed while it waited, whatever the default is.
        "default_transaction_isolation": "repeatable read" if reads_only else "read committed",
        # Or a frozen collector's transaction would keep others from what it has locked. A session
        # that reads locks little, and may rest between two segments.
        "idle_in_transaction_session_timeout": "0" if reads_only else f"{_STATEMENT_SECONDS}s",
    }
    prepare = ""
    if writes and not reads_only and seconds:
        # Planned once, and by keys, though tables of ids were small when the planner looked.
        settings |= {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
        prepare = f"{_MAKE_ARRIVED}; {_MAKE_LOCKED_DAY}"

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
    )
    return engine


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


async def _check_sessions(url: str) -> None:
    """Refuse a pooler that gives each transaction another session, or one to several connections.

    There settings of a session are lost, or become those of others, and prepared statements aren't
    found. Which session a transaction gets depends on what is free, and not on the connection that
    asks. So if two connections that ask in a random order get each its own throughout, then they
    have it (P(false) < 1e-9).
    """
    options = {"statement_cache_size": 0, "command_timeout": _CONNECT_SECONDS}
    async with translate_errors(f"store {mask_address(url)!r}"), AsyncExitStack() as stack:
        connections = []
        for _ in range(2):
            connections.append(await _connect(url, **options))
            stack.callback(connections[-1].terminate)
            # A server names at once the process that serves. A pooler answers something else.
            if await _serving_process(connections[-1]) == connections[-1].get_server_pid():
                return
        found: tuple[set[int], set[int]] = (set(), set())
        for _ in range(_LOOKS_AT_SESSIONS):
            which = secrets.randbelow(2)
            found[which].add(await _serving_process(connections[which]))
    if found[0] & found[1] or max(map(len, found)) > 1:
        raise StoreError.at(
            url,
            "is reached through a pooler that gives each transaction another session, as PgBouncer "
            "does with pool_mode = transaction; sessions have settings and prepared statements: "
            "use pool_mode = session, or the server's own address",
        )


async def _serving_process(connection: asyncpg.Connection) -> int:
    async with connection.transaction():  # in one, so that to ask and to answer is in one session
        return int(await connection.fetchval("SELECT pg_backend_pid()"))
