"""A store in an SQLite file: one writer at a time, and a log that is copied into the file.

A commit appends to the write-ahead log and syncs it. Invariants: commits are synced
(synchronous=FULL), and deleted rows are overwritten (secure_delete), in the log too once it has
been truncated.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from hubbub.storage.database import (
    PREFIX,
    Database,
    DayTable,
    IdTransaction,
    id_table,
    parse_tables,
    pieces,
    pooled_rows,
    taking_day,
    translate_errors,
)
from hubbub.storage.errors import StoreError
from hubbub.storage.locations import sync
from hubbub.storage.reading import BUSY_SECONDS, connect, file_of
from hubbub.storage.reports import NewBatch
from hubbub.storage.schema import segments

LOG_BYTES = 1 << 25
"""The log's length from which on writers empty it.

Whoever commits copies a log of some megabytes into the database, as SQLite does by itself. But it
begins at the log's start again only when nobody has written meanwhile, which may never be when
several processes write.
"""

_RETRY_SECONDS = 0.01  # a writer's commit ends within some of these
_EMPTYING_SECONDS = 0.1
"""How long a writer tries to empty the log, before it appends again."""
_PATIENCE_SECONDS = 1.0
"""Until it tries again; and how long that is tried in the end."""

_CACHE_PAGES = 8192
"""32 MiB for the connection that inserts ids, each of them into a random page of a large key.

By default it would be 2 MiB, and nearly every id would have a page read from the file.
"""

_MAPPED_BYTES = 1 << 30
"""Mapped bytes of the file, for lookups: 40 million ids; the rest is read as before.

To read a page of a table from the kernel takes more time than to search it, and a new id is looked
for in a page of each day. The kernel takes mapped pages back when memory is short. If the disk
fails to read one, the process dies, where a read would raise.
"""

_POLL_SECONDS = 0.001
"""Between two attempts to take the write lock: a commit keeps it for about as long."""

_TABLES_A_STATEMENT = 100
"""SQLite takes expressions 1,000 deep: one level for a table."""

_GIVEN = """
    WITH RECURSIVE given (id, place) AS (
        SELECT substr(?1, 1, 16), 1 WHERE ?1 <> x''
        UNION ALL SELECT substr(?1, place + 16, 16), place + 16 FROM given
        WHERE place + 16 < length(?1)
    )
"""
"""Cuts ids that came as one parameter, end to end: SQLite takes no more than 999 of them."""

_IDS_COPIED = 65_536
"""1 MiB of ids at a time: a write transaction that copies them takes some tens of milliseconds."""

_NAMES = f"SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '{PREFIX}*'"  # noqa: S608


class SqliteDatabase(Database):
    """An open SQLite file; use `open_database`.

    Who writes has a connection (`writer`) for the most frequent transaction, all of which is done
    in a thread: of single statements each would wait for its turn of a busy event loop.

    Whoever inserts the first id of a day makes its table. There is one writer at a time, which
    selects the ids that are known, by one statement over all tables (or a few, if there are very
    many), and inserts the others.
    """

    _insert = staticmethod(insert)
    writer: sa.Engine
    writers_thread: ThreadPoolExecutor

    def __init__(
        self, path: Path, reading: AsyncEngine, writing: AsyncEngine, *, writes: bool
    ) -> None:
        super().__init__(reading, writing)
        self.folder = path.absolute().parent
        self.path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._emptying_again = 0.0
        if not writes:
            return
        self.writers_thread = ThreadPoolExecutor(1, "hubbub-writer")
        self.writer = sa.create_engine(
            URL.create("sqlite+pysqlite", database=str(path)),
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
            poolclass=sa.StaticPool,
        )
        sa.event.listen(self.writer, "connect", _prepare_writer)
        sa.event.listen(self.writer, "connect", _keep_pages)
        sa.event.listen(self.writer, "begin", _begin_writing_now)

    async def reclaim_space(self) -> None:
        """Copy the log into the database and empty it, or leave it if a reader needs it."""
        await asyncio.to_thread(self._empty_log, BUSY_SECONDS)

    async def size_bytes(self) -> int:
        """Return the bytes of the database and its log."""
        return sum(path.stat().st_size for path in (self.path, self._log) if path.exists())

    async def backup(self, target: Path) -> None:
        """Copy the file and its log in a thread."""
        await asyncio.to_thread(_copy, self.path, target)

    async def close(self) -> None:
        """Close all connections and leave an empty log."""
        if self.writing is not self.reading:
            await asyncio.to_thread(self.writers_thread.shutdown)
            self.writer.dispose()
            await asyncio.to_thread(self._empty_log, _PATIENCE_SECONDS)
        await super().close()

    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Do all of it in the writer's thread, one call after the other."""
        thread, loop = self.writers_thread, asyncio.get_running_loop()
        async with translate_errors():
            done = loop.run_in_executor(thread, self._append, batches, day, received)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                await asyncio.wait([done])  # what a thread has begun can't be stopped
                raise

    def _append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        ids = sorted(batches)
        rows = pooled_rows(batches.values(), day)
        with self.writer.begin() as connection:
            unseen = _take(connection, received, ids)
            if len(unseen) < len(ids):  # seldom
                rows = pooled_rows([batches[it] for it in unseen], day)
            if rows:
                connection.execute(sa.insert(segments), rows)
        if self._log.stat().st_size > LOG_BYTES and time.monotonic() > self._emptying_again:
            self._empty_log(_EMPTYING_SECONDS)
            self._emptying_again = time.monotonic() + _PATIENCE_SECONDS
        return unseen

    @asynccontextmanager
    async def begin(self, day: dt.date) -> AsyncIterator[IdTransaction]:
        """Begin a transaction that writes, which is alone."""
        async with self.write() as connection:
            yield IdTransaction(connection, day)

    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Select those that are known and insert the others."""
        return await transaction.connection.run_sync(_take, transaction.day, ids)

    async def day_tables(self) -> Sequence[DayTable]:
        """Read the names in the file's schema."""
        async with self.read() as connection:
            return await connection.run_sync(_tables)

    async def sort(self, table: DayTable) -> None:
        """Copy some at a time: a page of a key has its ids in the order in which they came to it.

        The copy closes the day as soon as it is there, and both tables are searched.
        """
        copy = id_table(table.day, is_sorted=True)
        copying = f"""
            INSERT INTO {copy.name} SELECT batch_id FROM {table.name}
            WHERE batch_id > (SELECT coalesce(max(batch_id), x'') FROM {copy.name})
            ORDER BY batch_id LIMIT {_IDS_COPIED}
        """  # noqa: S608
        copied = 1
        while copied:
            async with self.write() as connection:
                if table not in await connection.run_sync(_tables):
                    return
                await connection.exec_driver_sql(_make_id_table(copy))
                copied = (await connection.exec_driver_sql(copying)).rowcount
                if not copied:
                    await connection.exec_driver_sql(f"DROP TABLE {table.name}")

    async def drop(self, table: DayTable, *, if_empty: bool = False) -> None:
        """Drop a table; its pages are overwritten, in one transaction."""
        async with self.write() as connection:
            if if_empty and await connection.scalar(sa.text(f"SELECT 1 FROM {table.name} LIMIT 1")):  # noqa: S608
                return
            await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table.name}")

    def _empty_log(self, seconds: float) -> None:
        """Copy the log into the database and empty it; try for some time, as others may use it.

        Each attempt gives up at once: what waits for readers here keeps all writers waiting.
        """
        deadline, is_busy = time.monotonic() + seconds, 1
        # Without making a new file, should it have been removed meanwhile.
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        while is_busy:
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(address, timeout=0, uri=True)) as connection,
            ):
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # writers don't wait for this
                (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if time.monotonic() > deadline:
                return
            time.sleep(_RETRY_SECONDS)


async def open_database(url: str, *, create: bool) -> SqliteDatabase:
    """Open the file at an address such as "sqlite:///hubbub.db".

    Raises `StoreError` if the file can't be opened or isn't a database, or is missing and not to be
    made.
    """
    path = file_of(url, create=create)
    # Before the asynchronous driver, because that leaves a thread behind when it fails.
    await asyncio.to_thread(_try_to_open, path, url, create)
    address = URL.create("sqlite+aiosqlite", database=str(path))
    reading = _engine(address, pool_size=4)
    sa.event.listen(reading.sync_engine, "connect", _prepare_reader)
    sa.event.listen(reading.sync_engine, "begin", lambda it: it.exec_driver_sql("BEGIN"))
    writing = reading
    if create:
        writing = _engine(address, pool_size=1)
        sa.event.listen(writing.sync_engine, "connect", _prepare_writer)
        sa.event.listen(writing.sync_engine, "begin", _begin_writing)
    return SqliteDatabase(path, reading, writing, writes=create)


def _tables(connection: sa.Connection) -> list[DayTable]:
    return parse_tables(connection.exec_driver_sql(_NAMES).scalars())


def _take(connection: sa.Connection, day: dt.date, ids: Sequence[bytes]) -> set[bytes]:
    tables = _tables(connection)
    own = id_table(taking_day(day, tables))
    if own not in tables:
        connection.exec_driver_sql(_make_id_table(own))
        tables.append(own)
    new = set(ids)
    for some in pieces(tables, _TABLES_A_STATEMENT):
        # Nearly always none: each row would take the interpreter's lock twice, and a busy event
        # loop is slow to release it.
        known = " OR ".join(
            f"EXISTS (SELECT 1 FROM {table.name} WHERE batch_id = id)"  # noqa: S608
            for table in some
        )
        query = f"{_GIVEN} SELECT id FROM given WHERE {known}"  # noqa: S608
        new.difference_update(connection.exec_driver_sql(query, (b"".join(ids),)).scalars())
    insertion = f"{_GIVEN} INSERT INTO {own.name} SELECT id FROM given"  # noqa: S608
    connection.exec_driver_sql(insertion, (b"".join(sorted(new)),))
    return new


def _make_id_table(table: DayTable) -> str:
    key = "(batch_id BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID"
    return f"CREATE TABLE IF NOT EXISTS {table.name} {key}"


def _copy(source: Path, target: Path) -> None:
    """Write what a database is at one moment to a new file that its owner alone may read.

    It has its name only once it is whole, checked and on the disk. Others write meanwhile, but
    their log can't be restarted before the end.
    """
    if target.exists():
        raise StoreError(f"{target}: already exists; a backup overwrites nothing")
    partial = target.with_name(f"{target.name}.partial")
    try:
        # The file that a killed attempt left isn't a backup.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        partial.chmod(0o600)
        try:
            address = f"{source.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, BUSY_SECONDS, uri=True)) as connection:
                connection.execute("VACUUM INTO ?", (str(partial),))
            with contextlib.closing(sqlite3.connect(partial)) as connection:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise StoreError(f"backup: the database is damaged: {found}")
            sync(partial)
            partial.rename(target)
            sync(target.absolute().parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except sqlite3.Error as error:
        raise StoreError(f"backup of {source} to {target}: {error}") from error
    except OSError as error:
        raise StoreError(f"backup to {target}: {error.strerror}") from error


class _Connection(sqlite3.Connection):
    """Ends what is being read when it is closed.

    The cursor of a task that was cancelled lives until garbage is collected, and the log can't be
    restarted before: its statement would still read of a closed connection.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        made = super().cursor(*arguments, **options)
        self._cursors.add(made)
        return made

    def close(self) -> None:
        for cursor in list(self._cursors):
            cursor.close()
        super().close()


def _engine(address: URL, pool_size: int) -> AsyncEngine:
    return create_async_engine(
        address,
        connect_args={"timeout": BUSY_SECONDS, "factory": _Connection},
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_SECONDS,
    )


def _try_to_open(path: Path, url: str, create: bool) -> None:
    with connect(path, url) as connection:
        if create:
            _choose_log(connection)


def _choose_log(connection: sqlite3.Connection) -> None:
    """Give the file a write-ahead log, for good: later connections find it so.

    The change needs the file for itself and doesn't wait for others, so waiting is done here.
    """
    _until_free(
        lambda: connection.execute("PRAGMA journal_mode=WAL"), lambda: time.sleep(_POLL_SECONDS)
    )


def _prepare_writer(connection: sqlite3.Connection, _record: object) -> None:
    # Autocommit at the driver's level leaves BEGIN to _begin_writing.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")
    # SQLite would sleep for up to 100 ms at a time; _begin_writing asks again sooner.
    connection.execute("PRAGMA busy_timeout=0")


def _keep_pages(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA cache_size={_CACHE_PAGES}")
    connection.execute(f"PRAGMA mmap_size={_MAPPED_BYTES}")


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")


def _begin_writing(connection: sa.Connection) -> None:
    _take_write_lock(connection, lambda: await_only(asyncio.sleep(_POLL_SECONDS)))


def _begin_writing_now(connection: sa.Connection) -> None:
    _take_write_lock(connection, lambda: time.sleep(_POLL_SECONDS))


def _take_write_lock(connection: sa.Connection, pause: Callable[[], None]) -> None:
    """Begin a transaction as soon as no other connection writes, asking every millisecond."""
    cursor = connection.connection.cursor()
    try:
        _until_free(lambda: cursor.execute("BEGIN IMMEDIATE"), pause)
    finally:
        cursor.close()


def _until_free(attempt: Callable[[], object], pause: Callable[[], None]) -> None:
    """Do what may find the file busy again and again, until it doesn't or for too long."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            attempt()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            pause()
        else:
            return


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte is the primary code; the others are the reason.
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
