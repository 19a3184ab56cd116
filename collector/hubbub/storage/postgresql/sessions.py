"""Sessions with PostgreSQL, which several collectors may share: what each waits for, and how long.

Invariants: each session waits at COMMIT until the transaction, and all that it found, is on disk,
whatever the server's default is, and with the replicas that the server waits for; nothing here
repeats a transaction whose outcome is unknown; what would wait for a long reader, such as a backup,
gives up soon; and a process that is frozen keeps no lock, but for those of readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hubbub.storage.database import Database, Row, translate_errors
from hubbub.storage.errors import StoreError, UnreachableError, mask_address
from hubbub.storage.postgresql.driver import (
    MAKE_ARRIVED,
    AppendingConnections,
    ReceivingConnection,
    copied_rows,
    copy_statement,
    driver_of,
)
from hubbub.storage.schema import metadata

_CONNECT_SECONDS = 5.0
"""A server on the same network answers in milliseconds, one that fails over in seconds."""
_STATEMENT_SECONDS = 10
"""An append takes milliseconds: after this the server hangs, and clients send again."""
_GRACE_SECONDS = 5
"""Later than that, a server that doesn't report the timeout itself is given up."""

_LOOKS_AT_SESSIONS = 32
"""A pooler that shares sessions shows the same one in both, but with chance 2^-31 or so."""
_CONNECTIONS = 4  # of a worker, beside the appending ones: readers, upkeep, probes and one to spare
_STATEMENTS_KEPT = 32
"""Statements that are kept compiled by a pool, and prepared by each of its connections.

A dozen a day name the day's tables and are never needed again. By default they would be kept for
most of a year, in the memory of both sides.
"""

_TAKES_KEPT = 8
"""The same where ids are taken otherwise; with 0 SQLAlchemy would keep none either."""

_APPENDS_KEPT = 64
"""Statements that are kept prepared by a connection for appending: there is one for each filter."""

MIGRATIONS = 0x68756262
"""The lock that whoever changes the schema takes: "hubb"."""

TASKS = {"filter": 0x68756266, "reshuffle": 0x6875626D}
"""Held by the one who makes a filter of ids ("hubf"), or reshuffles days ("hubm")."""

TRY_TO_LOCK = sa.select(
    sa.func.pg_try_advisory_xact_lock(sa.bindparam("lock", type_=sa.BigInteger))
)

LOCK_SECONDS = 0.5
"""How long a change of partitions waits for others, as they wait for it meanwhile."""

WAIT_BRIEFLY = sa.text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")

_TIDYING_ATTEMPTS = 3  # what is in the way is a reader of some seconds; upkeep comes again anyway
_MISSING_TABLE = "42P01"
_BEAT_SECONDS = _STATEMENT_SECONDS / 5  # five before the server's limit of an idle session
_DURABLE = ("on", "remote_apply")

_KEEP_TABLES = sa.text("LOCK TABLE segments IN ACCESS SHARE MODE")
"""All tables of segments: none that is there when a transaction's snapshot is taken is dropped."""

_HEAR_OF_TABLES = sa.text("SELECT 1 FROM pg_inherits LIMIT 0")
"""Takes the transaction's snapshot, then a lock, and so hears of all tables made before it.

A session that has all locks already doesn't hear of them, and goes by plans that were kept.
"""

_TEXTS = sa.dialects.postgresql.ARRAY(sa.Text)

_log = logging.getLogger("hubbub.collector")


class PostgresqlDatabase(Database):
    """An open PostgreSQL database; use `open_sessions`."""

    bytes_at_once = 16 * 1024**2

    def __init__(self, url: str, *, writes: bool) -> None:
        # Two pools, so that slow readers don't keep reports waiting.
        reading = _engine(url, writes=writes, reads_only=True)
        super().__init__(reading, _engine(url, writes=True) if writes else reading)
        # What a plan depends on is in the statements, so that to plan them each time is in vain.
        settings = {**_settings(writes=True), "plan_cache_mode": "force_generic_plan"}
        connect = partial(
            _connect,
            url,
            settings,
            _STATEMENT_SECONDS,
            prepare=MAKE_ARRIVED,
            kept=_APPENDS_KEPT,
        )
        self._appending = AppendingConnections(connect, _CONNECTIONS, _STATEMENT_SECONDS)
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
    async def migrate(self) -> AsyncIterator[AsyncConnection]:
        """Wait for other migrations, then let this one take its time."""
        async with self.patient() as engine, engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATIONS)))
            yield connection

    def begin_appending(
        self, statements: str, data: bytes
    ) -> AbstractAsyncContextManager[ReceivingConnection]:
        """Begin the most frequent transaction (see `AppendingConnections.begin`)."""
        return self._appending.begin(statements, data)

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        return insert(table).on_conflict_do_nothing()

    async def insert_rows(
        self, connection: AsyncConnection, table: sa.Table, rows: Sequence[Row]
    ) -> None:
        """Copy them."""
        if rows:
            driver = await driver_of(connection)
            await driver.copy(copy_statement(table), copied_rows(table, rows))

    @asynccontextmanager
    async def alone(self, task: str) -> AsyncIterator[Callable[[], bool]]:
        """Hold a lock in a transaction of its own, which the server ends unless it hears of it."""
        async with self.patient() as engine, engine.begin() as connection:
            if not await connection.scalar(TRY_TO_LOCK, {"lock": TASKS[task]}):
                yield lambda: False
                return
            ended = asyncio.Event()
            beating = asyncio.create_task(_beat(connection, ended), name="heartbeat")
            try:
                yield lambda: not beating.done()
            finally:
                ended.set()
                with contextlib.suppress(Exception):  # told below, unless something else is
                    await beating
            if beating.exception():
                raise StoreError("store: lost its lock, which others may have taken meanwhile")

    async def reclaim_space(self) -> None:
        """Clear the space of what was merged, counted or deleted, for others to be written to."""
        async with self.patient() as engine, engine.connect() as connection:
            # A vacuum can't be part of a transaction.
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for left in reversed(range(_TIDYING_ATTEMPTS)):
                tables = await children(alone, "segments")
                names = ", ".join(["segments", "counts", "id_filters", *tables])
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
            days = await children(connection, "segments")
            # A table that was dropped meanwhile has no size.
            query = sa.text("""
                SELECT sum(pg_total_relation_size(relid)) FROM (
                    SELECT to_regclass(name) FROM unnest(:names) AS name
                    UNION ALL SELECT relid FROM pg_partition_tree('batch_ids')
                ) AS tables (relid)
            """)
            names = sa.bindparam("names", [*metadata.tables, *days], _TEXTS)
            return int(await connection.scalar(query.bindparams(names)))

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

    async def close(self) -> None:
        """Close all connections."""
        await self._appending.close()
        await super().close()

    @asynccontextmanager
    async def patient(self) -> AsyncIterator[AsyncEngine]:
        """Connect anew for a statement that may take as long as it likes."""
        engine = _engine(self._url, writes=True, seconds=0)
        try:
            async with translate_errors():
                yield engine
        finally:
            await engine.dispose()


async def children(connection: AsyncConnection, parent: str) -> Sequence[str]:
    """Return the names of a table's partitions, or of those that inherit from it."""
    query = (
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = $1::text::regclass"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars().all()


async def _beat(connection: AsyncConnection, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _BEAT_SECONDS)
        await connection.execute(sa.select(1))


async def open_sessions(url: str, *, create: bool) -> PostgresqlDatabase:
    """Open the database at an address that PostgreSQL's own programs understand.

    Raises `StoreError` if it can't be reached, or through a pooler that gives each transaction
    another session.
    """
    database = PostgresqlDatabase(url, writes=create)
    try:
        await _check_sessions(url)
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


def _settings(
    *, writes: bool, reads_only: bool = False, seconds: int = _STATEMENT_SECONDS
) -> dict[str, str]:
    """Return the settings of a session whose statements may take so long; 0: as they like.

    `writes`: whether the server is to let it write. `reads_only`: whether it is for `read`.
    """
    return {
        "application_name": "hubbub",
        "client_min_messages": "warning",
        "statement_timeout": f"{seconds}s",
        "default_transaction_read_only": "off" if writes else "on",
        # `BatchIds.begin` must see what was committed while it waited, whatever the default is.
        "default_transaction_isolation": "repeatable read" if reads_only else "read committed",
        # Or a frozen collector's transaction would keep others from what it has locked. A session
        # that reads locks little, and may rest between two segments.
        "idle_in_transaction_session_timeout": "0" if reads_only else f"{_STATEMENT_SECONDS}s",
    }


async def _connect(
    url: str,
    settings: dict[str, str],
    seconds: int,
    *,
    prepare: str = "",
    kept: int = _TAKES_KEPT,
    **_options: Any,
) -> asyncpg.Connection:
    """Open a connection.

    `settings`: of its session. `seconds`: how long its statements may take; 0: as long as they
    like. `prepare`: a statement that is run before others. `kept`: how many statements asyncpg
    keeps prepared, besides those of SQLAlchemy.
    """
    connection = await _connect_plainly(
        url,
        command_timeout=seconds + _GRACE_SECONDS if seconds else None,
        statement_cache_size=kept,
        connection_class=ReceivingConnection,
    )
    try:
        # Not with the connection's first message: PgBouncer refuses settings there, or drops them.
        given = ", ".join(f"set_config('{name}', '{it}', false)" for name, it in settings.items())
        await connection.execute(f"SELECT {given}; {_WAIT_FOR_DISK}; {prepare}")
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _connect_plainly(url: str, **options: Any) -> asyncpg.Connection:
    """Open a connection whose session has the server's own settings."""
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

    Raises `StoreError` if it is one.
    """
    connections: list[asyncpg.Connection] = []
    async with translate_errors(f"store {mask_address(url)!r}"):
        try:
            options = {"statement_cache_size": 0, "command_timeout": _CONNECT_SECONDS}
            connections.append(await _connect_plainly(url, **options))
            # A server says at once which of its processes serves. A pooler says something else.
            if await _serving_process(connections[0]) == connections[0].get_server_pid():
                return
            connections.append(await _connect_plainly(url, **options))
            found: tuple[set[int], set[int]] = (set(), set())
            for _ in range(_LOOKS_AT_SESSIONS):
                which = secrets.randbelow(2)
                found[which].add(await _serving_process(connections[which]))
        finally:
            for connection in connections:
                connection.terminate()
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


def _engine(
    url: str, *, writes: bool, reads_only: bool = False, seconds: int = _STATEMENT_SECONDS
) -> AsyncEngine:
    """Return an engine of such sessions."""
    settings = _settings(writes=writes, reads_only=reads_only, seconds=seconds)
    connect = partial(_connect, url, settings, seconds)
    engine: AsyncEngine = create_async_engine(
        "postgresql+asyncpg://",
        creator=lambda: engine.dialect.loaded_dbapi.connect(
            async_creator_fn=connect, prepared_statement_cache_size=_STATEMENTS_KEPT
        ),
        query_cache_size=_STATEMENTS_KEPT,
        # After the server was restarted, a connection is found dead before it is used.
        pool_pre_ping=True,
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
