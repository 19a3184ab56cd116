"""A store in an SQLite file: one writer at a time, and a log that others copy into the file.

A commit appends to the write-ahead log and syncs it. A thread of its own copies the log into the
database, so that no commit waits for it. Invariants: commits are synced (synchronous=FULL), and
deleted rows are overwritten (secure_delete), in the log too once it has been truncated.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from hubbub.storage.backup import copy_database
from hubbub.storage.bloom import FilteredTables
from hubbub.storage.errors import StoreError
from hubbub.storage.filters import LoadedFilters
from hubbub.storage.ids import (
    ID_BYTES,
    PREFIX,
    Catalogue,
    IdTable,
    closing_trigger,
    count_statement,
    id_table,
    parse_names,
)
from hubbub.storage.interfaces import (
    Database,
    IdWriter,
    Prepared,
    Result,
    SegmentPrefix,
    translate_errors,
)
from hubbub.storage.schema import segments

BUSY_SECONDS = 10.0
"""How long a transaction waits for others; shorter than clients wait for their answer."""

PAGES_TO_COPY = 1024
"""The log's length, in pages of 4 KiB, from which on it is copied into the database."""

PAGES_AT_MOST = 8192
"""The log's length from which on writers have to wait until it has been begun anew."""

_PAGE_BYTES = 4096
_CACHE_PAGES = 8192
"""32 MiB for the connection that inserts ids, each of them into a random page of a large key.

By default it would be 2 MiB, and nearly every id would have a page read from the file.
"""

_POLL_SECONDS = 0.001
_RETRY_SECONDS = 0.01
_PATIENCE_SECONDS = 1.0
_IDS_A_STATEMENT = 500
_TABLES_A_STATEMENT = 100
_IDS_READ = 65_536
_NAMES = f"""
    SELECT name FROM sqlite_schema WHERE type IN ('table', 'trigger') AND name GLOB '{PREFIX}*'
"""  # noqa: S608
_FREE_PAGES = "PRAGMA freelist_count"
_BYTES_OF_COMMIT = 4 * _PAGE_BYTES
"""Written at each commit besides the data: pages of the tables and of the index."""

_Item = TypeVar("_Item")


class SqliteDatabase(Database):
    """An open SQLite file; use `open_database`."""

    bytes_at_once = 4 * 1024**2

    def __init__(
        self, path: Path, reading: AsyncEngine, writing: AsyncEngine, *, writes: bool
    ) -> None:
        super().__init__(reading, writing)
        self.folder = path.absolute().parent
        self._path = path
        self._thread = ThreadPoolExecutor(1, "hubbub-writer")
        self._engine = sa.create_engine(
            URL.create("sqlite+pysqlite", database=str(path)),
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
            poolclass=sa.StaticPool,
        )
        sa.event.listen(self._engine, "connect", _prepare_writer if writes else _prepare_reader)
        sa.event.listen(self._engine, "connect", _keep_pages)
        sa.event.listen(self._engine, "begin", _begin_writing_now)
        self._filters = LoadedFilters(self)
        self._uncopied = 0
        self._due = asyncio.Event()
        self._is_closing = False
        self._copier = (
            asyncio.create_task(self._copy_until_closed(), name="checkpoints") if writes else None
        )

    def migrate(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that writes: it is alone anyway."""
        return self.write()

    async def transact(
        self,
        day: dt.date,
        prepare: Callable[[], Prepared],
        write: Callable[[IdWriter, Prepared], Result],
        *,
        is_large: bool = False,  # noqa: ARG002 (all of it is done in a thread)
    ) -> Result:
        """Do all of it in the writer's thread, one call after the other."""

        def transact() -> Result:
            prepared = prepare()
            with self._engine.begin() as connection:
                names = connection.exec_driver_sql(_NAMES).scalars()
                catalogue = parse_names(names)
                filtered = self._filters.of(catalogue)
                return write(_IdWriter(connection, day, catalogue, filtered), prepared)

        async with translate_errors():
            done = asyncio.get_running_loop().run_in_executor(self._thread, transact)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                await asyncio.wait([done])  # what a thread has begun can't be stopped
                raise
            finally:
                self._filters.load_soon()

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        return insert(table).on_conflict_do_nothing()

    def lock_quarantine(self, connection: sa.Connection) -> None:
        """Do nothing: a transaction that writes is alone."""

    async def has_id(self, batch_id: bytes) -> bool:
        """Search all tables by one statement, or a few if there are very many."""
        async with self.read() as connection:
            tables = parse_names((await connection.exec_driver_sql(_NAMES)).scalars()).tables
            for searched in _pieces(tables, _TABLES_A_STATEMENT):
                finding = f"WITH ids (id) AS (VALUES (?)) SELECT {_is_in_any(searched)} FROM ids"  # noqa: S608
                if (await connection.exec_driver_sql(finding, (batch_id,))).scalar_one():
                    return True
        return False

    async def id_catalogue(self) -> Catalogue:
        """Read the names in the file's schema."""
        async with self.read() as connection:
            return parse_names((await connection.exec_driver_sql(_NAMES)).scalars())

    async def prepare_id_table(self, day: dt.date) -> None:
        """Do nothing: whoever inserts the first id of a day waits for nobody to make its table."""

    @asynccontextmanager
    async def filtering_alone(self) -> AsyncIterator[bool]:
        """Let all make filters: the workers of a collector leave upkeep to one."""
        yield True

    async def begin_section(self) -> None:
        """Do nothing: a day of one machine has few millions of ids."""

    async def refuse_ids(self, connection: AsyncConnection, table: IdTable, trigger: str) -> None:
        """Make the trigger; there is no other writer meanwhile."""
        await connection.exec_driver_sql(
            f"CREATE TRIGGER IF NOT EXISTS {trigger} BEFORE INSERT ON {table.name} "
            f"BEGIN SELECT RAISE(ABORT, '{table.name} takes no more ids'); END"
        )

    async def sort_ids(self, table: IdTable) -> IdTable:
        """Copy them some at a time, then let the copy take the table's place.

        A page of a key has its ids in the order in which they came to it.
        """
        copy = _copy_of(table)
        copying = f"""
            INSERT INTO {copy} SELECT batch_id FROM {table.name}
            WHERE batch_id > (SELECT coalesce(max(batch_id), x'') FROM {copy})
            ORDER BY batch_id LIMIT {_IDS_READ}
        """  # noqa: S608
        copied = 1
        while copied:
            async with self.write() as connection:
                await connection.exec_driver_sql(_make_id_table(copy))
                copied = (await connection.exec_driver_sql(copying)).rowcount
                if not copied:
                    await self._drop(connection, table.name)
                    await connection.exec_driver_sql(f"ALTER TABLE {copy} RENAME TO {table.name}")
                    await self.refuse_ids(connection, table, closing_trigger(table))
            self.note_written(copied * ID_BYTES)
        return table

    async def drop_unsorted_ids(self) -> None:
        """Do nothing: the copy has taken its place."""

    async def count_ids(self, table: IdTable) -> tuple[int, int]:
        """Count them."""
        async with self.read() as connection:
            row = (await connection.exec_driver_sql(count_statement(table))).one()
            return row.number, row.of_other_size

    async def read_ids(self, table: IdTable) -> AsyncIterator[bytes]:
        """Read them in the order of the key, in a row each time, for the reason of `_IdWriter`."""
        reading = f"""
            SELECT max(batch_id) AS last, group_concat(hex(batch_id), '') AS ids FROM (
                SELECT batch_id FROM {table.name} WHERE batch_id > ?
                ORDER BY batch_id LIMIT {_IDS_READ}
            )
        """  # noqa: S608
        last = b""
        while True:
            async with self.read() as connection:
                row = (await connection.exec_driver_sql(reading, (last,))).one()
            if row.last is None:
                return
            last = row.last
            yield bytes.fromhex(row.ids)

    async def load_filters(self, most_bytes: float) -> None:
        """Load them."""
        await self._filters.load(most_bytes)

    async def drop_id_table(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a table; its pages are overwritten, in one transaction."""
        async with self.write() as connection:
            if if_empty and await connection.scalar(sa.text(f"SELECT 1 FROM {table.name} LIMIT 1")):  # noqa: S608
                return
            for name in (table.name, _copy_of(table)):
                await self._drop(connection, name)

    async def _drop(self, connection: AsyncConnection, table: str) -> None:
        before = (await connection.exec_driver_sql(_FREE_PAGES)).scalar_one()
        await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        freed = (await connection.exec_driver_sql(_FREE_PAGES)).scalar_one() - before
        self.note_written(freed * _PAGE_BYTES)

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:  # noqa: ARG002
        """Return the one table there is."""
        return segments

    async def table_of_merged(self, connection: AsyncConnection, day: dt.date) -> sa.Table:  # noqa: ARG002
        """Return the one table there is."""
        return segments

    async def table_of_mixed(self, day: dt.date, today: dt.date) -> sa.Table:  # noqa: ARG002
        """Return the one table there is: what is deleted in it is overwritten."""
        return segments

    async def prepare_segments(self, day: dt.date) -> None:
        """Do nothing: there is one table."""

    async def drop_first_tables(self, today: dt.date) -> None:
        """Do nothing: there is one table."""

    @asynccontextmanager
    async def mixing_alone(self) -> AsyncIterator[Callable[[], bool]]:
        """Let all mix: the workers of a collector leave upkeep to one."""
        yield lambda: True

    async def read_prefixes(self, heads: Sequence[SegmentPrefix]) -> list[bytes]:
        """Read from open blobs, because a SELECT would read each whole, whatever it takes of it."""
        async with translate_errors():
            return await asyncio.to_thread(self._read_prefixes, heads)

    def _read_prefixes(self, heads: Sequence[SegmentPrefix]) -> list[bytes]:
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        ids = json.dumps([head.segment_id for head in heads])
        query = (
            "SELECT segment_id FROM segments WHERE segment_id IN (SELECT value FROM json_each(?))"
        )
        records = []
        with contextlib.closing(
            sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)
        ) as connection:
            connection.execute("BEGIN")  # so that what is there stays there until it has been read
            there = {row[0] for row in connection.execute(query, (ids,))}
            for segment_id, size in heads:
                if segment_id in there:
                    with connection.blobopen(
                        "segments", "records", segment_id, readonly=True
                    ) as blob:
                        records.append(blob.read(size))
        return records

    def note_written(self, size: int) -> None:
        """Have the log copied in the background once it is long."""
        self._uncopied += size + _BYTES_OF_COMMIT
        if self._uncopied >= PAGES_TO_COPY * _PAGE_BYTES:
            self._uncopied = 0
            self._due.set()

    async def reclaim_space(self) -> None:
        """Copy the log into the database and empty it, or leave it if a reader needs it."""
        await asyncio.to_thread(self._checkpoint, "PASSIVE")
        await self._checkpoint_between_writes("TRUNCATE", BUSY_SECONDS)

    async def size_bytes(self) -> int:
        """Return the bytes of the database and its log."""
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    async def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy the file and its log in a thread."""
        await asyncio.to_thread(copy_database, self._path, target, progress)

    async def close(self) -> None:
        """Close all connections and leave an empty log."""
        await self._filters.close()
        if self._copier is not None:
            self._is_closing = True
            self._due.set()
            await self._copier
            await self._checkpoint_between_writes("TRUNCATE", _PATIENCE_SECONDS)
        await asyncio.to_thread(self._thread.shutdown)
        self._engine.dispose()
        await super().close()

    async def _copy_until_closed(self) -> None:
        while not self._is_closing:
            await self._due.wait()
            self._due.clear()
            if await asyncio.to_thread(self._checkpoint, "PASSIVE") >= PAGES_AT_MOST:
                await self._checkpoint_between_writes("RESTART", _PATIENCE_SECONDS)

    async def _checkpoint_between_writes(self, mode: str, seconds: float) -> None:
        """Begin the log anew; try for some time, as readers and other processes may be in the way.

        Most of the log should have been copied before, so that writers wait for little.
        """
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(SQLAlchemyError):
                # Who holds the only connection of `writing`, in the writer's thread, is between all
                # writes of this process.
                async with self.writing.connect():
                    loop = asyncio.get_running_loop()
                    if await loop.run_in_executor(self._thread, self._checkpoint, mode) == 0:
                        return
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(_RETRY_SECONDS)

    def _checkpoint(self, mode: str) -> int:
        """Copy the log into the database; return the pages still in it, whether copied or not.

        Never waits for others: what waits for readers here keeps all writers waiting.
        """
        try:
            # Without making a new file, should it have been removed meanwhile.
            address = f"{self._path.absolute().as_uri()}?mode=rw"
            with contextlib.closing(sqlite3.connect(address, timeout=0, uri=True)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                row = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error:
            return PAGES_AT_MOST
        is_busy, pages, _ = row
        return int(pages) if is_busy or mode == "PASSIVE" else 0


async def open_database(url: str, *, create: bool) -> SqliteDatabase:
    """Open the file at an address such as "sqlite:///hubbub.db".

    Raises
    ------
    StoreError
        If the file can't be opened or isn't a database, or is missing and not to be made.
    """
    address = make_url(url)
    if "?" in url or address.host or address.database in {None, "", ":memory:"}:
        raise StoreError(f"store {url!r}: must be sqlite:///PATH, without a ?")
    address = address.set(drivername="sqlite+aiosqlite")
    path = Path(address.database or "")
    if not create and not path.is_file():
        raise StoreError(f"store {url!r}: no such file; expected a database that a collector made")
    # Before the asynchronous driver, because that leaves a thread behind when it fails.
    await asyncio.to_thread(_try_to_open, path, url, create)
    reading = _engine(address, pool_size=4)
    sa.event.listen(reading.sync_engine, "connect", _prepare_reader)
    sa.event.listen(reading.sync_engine, "begin", lambda it: it.exec_driver_sql("BEGIN"))
    if not create:
        return SqliteDatabase(path, reading, reading, writes=False)
    writing = _engine(address, pool_size=1)
    sa.event.listen(writing.sync_engine, "connect", _prepare_writer)
    sa.event.listen(writing.sync_engine, "begin", _begin_writing)
    return SqliteDatabase(path, reading, writing, writes=True)


class _IdWriter(IdWriter):
    """Selects the known ids and inserts the others; there is no other writer meanwhile.

    Each row that SQLite returns takes the interpreter's lock twice, and a busy event loop is slow
    to release it. So all tables are searched by one statement (or a few, if there are very many),
    and rows are selected only if there are any, which is seldom.
    """

    def __init__(
        self,
        connection: sa.Connection,
        day: dt.date,
        catalogue: Catalogue,
        filtered: FilteredTables,
    ) -> None:
        super().__init__(connection, catalogue.taking(day), filtered)
        own = id_table(self.day)
        if own not in catalogue.tables:
            connection.exec_driver_sql(_make_id_table(own.name))
        there = dict.fromkeys((*catalogue.tables, own))
        self._searched = [table for table in there if table not in filtered.tables]
        self._table = own.name

    def _find(self, suspects: Sequence[tuple[IdTable, bytes]]) -> set[bytes]:
        # In all filtered tables, so that SQLite has compiled most of these statements before.
        ids = list({batch_id for _, batch_id in suspects})
        known: set[bytes] = set()
        for some in _pieces(ids, _IDS_A_STATEMENT):
            known |= self._known(self._filtered.tables, some)
        return known

    def _insert_unknown(self, ids: Sequence[bytes]) -> set[bytes]:
        unseen: set[bytes] = set()
        for some in _pieces(ids, _IDS_A_STATEMENT):
            if new := sorted(set(some) - self._known(self._searched, some)):
                rows = ",".join(["(?)"] * len(new))
                statement = f"INSERT INTO {self._table} VALUES {rows}"  # noqa: S608
                self.connection.exec_driver_sql(statement, tuple(new))
            unseen.update(new)
        return unseen

    def _known(self, tables: Sequence[IdTable], ids: Sequence[bytes]) -> set[bytes]:
        """Return those of these ids that any of these tables has."""
        known: set[bytes] = set()
        rows = ",".join(["(?)"] * len(ids))
        for searched in _pieces(tables, _TABLES_A_STATEMENT):
            has_id = _is_in_any(searched)
            ids_given = f"WITH ids (id) AS (VALUES {rows})"
            counting = f"{ids_given} SELECT count(*) FROM ids WHERE {has_id}"  # noqa: S608
            if self.connection.exec_driver_sql(counting, tuple(ids)).scalar():
                finding = f"{ids_given} SELECT id FROM ids WHERE {has_id}"  # noqa: S608
                known.update(self.connection.exec_driver_sql(finding, tuple(ids)).scalars())
        return known


def _make_id_table(name: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {name} (batch_id BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID"


def _copy_of(table: IdTable) -> str:
    """Return the name of a copy that isn't complete; nobody looks for ids in it."""
    return f"sorted_{table.name}"


def _is_in_any(tables: Iterable[IdTable]) -> str:
    """Return the condition that one of these tables has an id."""
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM {table.name} WHERE batch_id = id)"  # noqa: S608
        for table in tables
    )


def _pieces(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _engine(address: URL, pool_size: int) -> AsyncEngine:
    return create_async_engine(
        address,
        connect_args={"timeout": BUSY_SECONDS},
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_SECONDS,
    )


def _try_to_open(path: Path, url: str, create: bool) -> None:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA schema_version")
            if create:
                _choose_log(connection)
    except sqlite3.Error as error:
        raise StoreError(f"store {url!r}: {error}") from error


def _choose_log(connection: sqlite3.Connection) -> None:
    """Give the file a write-ahead log, for good: later connections find it so.

    The change needs the file for itself and doesn't wait for others, so waiting is done here.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _prepare_writer(connection: sqlite3.Connection, _record: object) -> None:
    # Autocommit at the driver's level leaves BEGIN to _begin_writing.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA secure_delete=ON")
    # SQLite would sleep for up to 100 ms at a time; _begin_writing asks again sooner.
    connection.execute("PRAGMA busy_timeout=0")


def _keep_pages(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA cache_size={_CACHE_PAGES}")


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")


def _begin_writing(connection: sa.Connection) -> None:
    """Take the write lock as soon as it is free, letting others use the event loop meanwhile."""
    _take_write_lock(connection, lambda: await_only(asyncio.sleep(_POLL_SECONDS)))


def _begin_writing_now(connection: sa.Connection) -> None:
    """Do the same in a thread."""
    _take_write_lock(connection, lambda: time.sleep(_POLL_SECONDS))


def _take_write_lock(connection: sa.Connection, pause: Callable[[], None]) -> None:
    """Begin a transaction as soon as no other connection writes, asking every millisecond."""
    cursor = connection.connection.cursor()
    deadline = time.monotonic() + BUSY_SECONDS
    try:
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                pause()
            else:
                return
    finally:
        cursor.close()


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte is the primary code; the others are the reason.
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
