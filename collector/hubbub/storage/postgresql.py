"""A store in PostgreSQL, which several collectors may share.

Batch ids are in partitions, each with a key of its own, so nothing but locks keeps an id from being
inserted in two of them at once: transactions of the open day run together and insert into its last
section; one of any other day runs alone and makes its own the open day; and so does the one that
begins a section. Invariants: each session waits at COMMIT until the transaction, and all that it
found, is on disk, whatever the server's default is, and with the replicas that the server waits
for; nothing here repeats a transaction whose outcome is unknown; what would wait for a long reader,
such as a backup, gives up soon; and a process that is frozen keeps no lock, but for those of
readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from hubbub.storage.appending import AppendingConnections, commit
from hubbub.storage.bloom import FilteredTables
from hubbub.storage.copying import (
    ARRIVED,
    COPY_IDS,
    MAKE_ARRIVED,
    copied_ids,
    copied_rows,
    copy_statement,
)
from hubbub.storage.day_tables import (
    APART,
    DayTable,
    as_table,
    first_table,
    mixed_table,
    parse_day_table,
)
from hubbub.storage.errors import StoreError, mask_address
from hubbub.storage.filters import LoadedFilters
from hubbub.storage.id_statements import FIND_ANYWHERE, finding, insert_statement
from hubbub.storage.ids import (
    Catalogue,
    IdTable,
    closing_trigger,
    count_statement,
    id_section,
    id_table,
    open_section,
    parse_id_table,
    parse_names,
    sorted_section,
)
from hubbub.storage.interfaces import (
    Database,
    IdWriter,
    Prepared,
    Result,
    Row,
    SegmentPrefix,
    translate_errors,
)
from hubbub.storage.receiving import ReceivingConnection
from hubbub.storage.schema import metadata, open_day, sample_nothing_of, segments

_CONNECT_SECONDS = 5.0
_STATEMENT_SECONDS = 10
_GRACE_SECONDS = 5
"""Later than that, a server that doesn't report the timeout itself is given up."""

_LOOKS_AT_SESSIONS = 32
_CONNECTIONS = 4
_STATEMENTS_KEPT = 32
"""Statements that are kept compiled by a pool, and prepared by each of its connections.

A dozen a day name the day's tables and are never needed again. By default they would be kept for
most of a year, in the memory of both sides.
"""

_APPENDS_KEPT = 64
"""Statements that are kept prepared by a connection for appending: there is one for each filter."""

_MIGRATIONS = 0x68756262  # "hubb": the lock that whoever changes the schema takes
_DAYS = 0x68756264  # "hubd": held by all who insert ids; alone, if they aren't of the open day
_FILTERS = 0x68756266  # "hubf": held by the one who makes a filter of ids
_QUARANTINE = 0x68756271  # "hubq": held by whoever changes the quarantine
_DROPPING = 0x68756272  # "hubr": held by the one who drops a day's ids
_WAIT_FOR_QUARANTINE = sa.select(sa.func.pg_advisory_xact_lock(_QUARANTINE))
_WAIT_FOR_OTHER_DAYS = sa.select(sa.func.pg_advisory_xact_lock_shared(_DAYS))
_WAIT_FOR_ALL_DAYS = sa.select(sa.func.pg_advisory_xact_lock(_DAYS))
_TRIGGERS = r"""
    WITH days (of_day, triggers) AS MATERIALIZED (
        SELECT inhrelid, ARRAY(SELECT tgname::text FROM pg_trigger WHERE tgrelid = inhrelid)
        FROM pg_inherits WHERE inhparent = 'batch_ids'::regclass
    )
    SELECT unnest(triggers) FROM days
    UNION ALL
    SELECT unnest(ARRAY(SELECT tgname::text FROM pg_trigger WHERE tgrelid = inhrelid))
    FROM days JOIN pg_inherits ON inhparent = of_day
    WHERE array_to_string(triggers, ' ') NOT LIKE '%\_filter\_%'
"""
"""Those on days; and, of days that have no filter, those on their sections.

Arrays keep the planner from joining, and so from reading all triggers there are.
"""

_DAYS_THERE = f"SELECT (SELECT max(day) FROM open_day) AS opened, ARRAY({_TRIGGERS}) AS triggers"  # noqa: S608
"""The open day, and which tables are closed."""

_BEGIN_BESIDE_OTHERS = f"BEGIN; SELECT pg_advisory_xact_lock_shared({_DAYS})"
_BEGIN_WITH_IDS = f"{_BEGIN_BESIDE_OTHERS}; {COPY_IDS}"
_WAIT_FOR_REPLICAS = """
    SELECT pg_logical_emit_message(true, 'hubbub', '')
    WHERE current_setting('synchronous_standby_names') <> ''
"""
"""Lets COMMIT wait for synchronous replicas although the transaction has stored nothing.

What it found there may not be with them: who stored it may have given up waiting for them, or the
server was started again meanwhile.
"""

_MIXING = 0x6875626D  # "hubm": held by the one who mixes days
_TRY_TO_LOCK = sa.select(
    sa.func.pg_try_advisory_xact_lock(sa.bindparam("lock", type_=sa.BigInteger))
)

_LOCK_SECONDS = 0.5
"""How long a change of partitions waits for others, as they wait for it meanwhile."""

SECTION_BYTES = 64 * 1024**2
"""What a section holds of ids, without its key, when the next one is begun: about a million.

Its key then has some ten thousand pages, which processors find soon, and of which each is written
many times for each time that it is logged whole.
"""

SECTIONS_OF_A_SIZE = 8
"""Then they are twice as large, so that even of a hundred million ids a day there are 30."""

_KEY_OF_IDS = "PRIMARY KEY (batch_id)"
_SORT_IN_MEMORY = "SET LOCAL work_mem = '64MB'"
"""What the server takes to make an index, by default."""

_CLOSING_SECONDS = 5
"""How long closing a table waits: for collectors whose clock is days behind, and they for it.

Autovacuum gives way after a second.
"""

_HEADS_A_STATEMENT = 1000
_PAGES_READ = 1024
_SEGMENTS_MOVED = 64
_TIDYING_ATTEMPTS = 3
_MISSING_TABLE = "42P01"
_BEAT_SECONDS = _STATEMENT_SECONDS / 5
_DURABLE = ("on", "remote_apply")

_KEEP_TABLES = sa.text("LOCK TABLE segments IN ACCESS SHARE MODE")
"""All tables of segments: none that is there when a transaction's snapshot is taken is dropped."""

_HEAR_OF_TABLES = sa.text("SELECT 1 FROM pg_inherits LIMIT 0")
"""Takes the transaction's snapshot, then a lock, and so hears of all tables made before it.

Who has all locks already doesn't hear of them, and goes by plans that were kept.
"""

_WAIT_TO_CLOSE = sa.text(f"SET LOCAL lock_timeout = '{_CLOSING_SECONDS}s'")
_WAIT_BRIEFLY = sa.text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
_TEXTS = sa.dialects.postgresql.ARRAY(sa.Text)

_log = logging.getLogger("hubbub.collector")


class PostgresqlDatabase(Database):
    """An open PostgreSQL database; use `open_database`."""

    bytes_at_once = 16 * 1024**2

    def __init__(self, url: str, *, writes: bool) -> None:
        # Two pools, so that slow readers don't keep reports waiting.
        reading = _engine(url, writes=writes, reads_only=True)
        super().__init__(reading, _engine(url, writes=True) if writes else reading)
        # What a plan depends on is in the statements, so that to plan them each time is in vain.
        settings = {**_settings(writes=True), "plan_cache_mode": "force_generic_plan"}
        connect = partial(_connect, url, settings, _STATEMENT_SECONDS, prepare=MAKE_ARRIVED)
        self._appending = AppendingConnections(connect, _CONNECTIONS, _STATEMENT_SECONDS)
        self._url = url
        self._filters = LoadedFilters(self)

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
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
            yield connection

    async def transact(
        self,
        day: dt.date,
        prepare: Callable[[], Prepared],
        write: Callable[[IdWriter, Prepared], Result],
        *,
        is_large: bool = False,
    ) -> Result:
        """Write beside others if the day is open, and otherwise alone."""
        prepared = await asyncio.to_thread(prepare) if is_large else prepare()

        def write_ids(connection: sa.Connection, taking: dt.date, catalogue: Catalogue) -> Result:
            filtered = self._filters.of(catalogue)
            self._filters.load_soon()
            return write(_IdWriter(connection, taking, catalogue, filtered), prepared)

        async with self.write() as connection:
            await connection.execute(_WAIT_FOR_OTHER_DAYS)
            # A statement of its own, which sees what was committed before the lock was free.
            opened, catalogue = await _days_there(connection)
            if opened == (taking := catalogue.taking(day)):
                return await connection.run_sync(write_ids, taking, catalogue)
        async with self.write() as connection:
            await connection.execute(_WAIT_FOR_ALL_DAYS)
            _, catalogue = await _days_there(connection)
            taking = catalogue.taking(day)
            # In the order of drop_id_table, so that neither waits for the other.
            await connection.execute(sa.delete(open_day))
            await connection.execute(sa.insert(open_day).values(day=taking))
            await _make_partition(connection, taking)
            await _make_day_table(connection, first_table(taking))
            return await connection.run_sync(write_ids, taking, catalogue)

    async def append(
        self,
        ids: Sequence[bytes],
        received: dt.date,
        day: dt.date,
        pool: Callable[[Iterable[bytes]], list[Row]],
        *,
        is_large: bool = False,
    ) -> set[bytes]:
        """Append in four round trips if the day is open: what a transaction costs is these."""

        async def pooled(some: Iterable[bytes]) -> list[Row]:
            return await asyncio.to_thread(pool, some) if is_large else pool(some)

        rows = await pooled(ids)
        begun = self._appending.begin(_BEGIN_WITH_IDS, copied_ids(ids))
        async with translate_errors(), begun as driver:
            # A statement of its own, which sees what was committed before the lock was free.
            there = await driver.fetchrow(_DAYS_THERE)
            catalogue = parse_names(there["triggers"])
            if there["opened"] == (taking := catalogue.taking(received)):
                filtered = self._filters.of(catalogue)
                self._filters.load_soon()
                known: list[int] = []
                if suspects := filtered.possible_duplicates(ids):
                    places = _places(ids)
                    for statement, some in finding(suspects, places).items():
                        found = await driver.fetch(statement, some)
                        known += [places[row["batch_id"]] for row in found]
                statement = insert_statement(taking, catalogue.closed, filtered.tables)
                unseen = {row["batch_id"] for row in await driver.fetch(statement, known)}
                if len(unseen) < len(ids):  # seldom
                    rows = await pooled(unseen)
                if rows:
                    table = self.insert_target(day, taking)
                    await commit(driver, copy_statement(table), copied_rows(table, rows))
                else:
                    await commit(driver, _WAIT_FOR_REPLICAS)
                return unseen
        return await super().append(ids, received, day, pool, is_large=is_large)

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        return insert(table).on_conflict_do_nothing()

    def lock_quarantine(self, connection: sa.Connection) -> None:
        """Wait for the lock; what others committed before is seen by the next statement."""
        connection.execute(_WAIT_FOR_QUARANTINE)

    def insert_rows(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
        """Copy them."""
        _copy(connection, copy_statement(table), copied_rows(table, rows))

    async def has_id(self, batch_id: bytes) -> bool:
        """Search the key of each partition; what is found is with all replicas, too."""
        async with self.write() as connection:
            await connection.exec_driver_sql(MAKE_ARRIVED)
            await connection.run_sync(_let_arrive, [batch_id])
            found = (await connection.exec_driver_sql(FIND_ANYWHERE)).first() is not None
            if found:
                await connection.exec_driver_sql(_WAIT_FOR_REPLICAS)
        return found

    async def id_catalogue(self) -> Catalogue:
        """Return the partitions and their triggers."""
        async with self.read() as connection:
            triggers = (await connection.exec_driver_sql(_TRIGGERS)).scalars()
            return parse_names([*await _children(connection, "batch_ids"), *triggers])

    async def prepare_id_table(self, day: dt.date) -> None:
        """Make a day's partition."""
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            await _make_partition(connection, day)

    @asynccontextmanager
    async def filtering_alone(self) -> AsyncIterator[bool]:
        """Hold a lock on a connection of its own."""
        async with self._alone(_FILTERS) as is_alone:
            yield is_alone()

    async def begin_section(self) -> None:
        """Begin one of the open day if what the last one holds takes much room.

        Alone, so that all who have inserted into that one have committed, and nobody inserts into
        it any more.
        """
        async with self.read() as connection:
            found = await _days_there(connection)
            section = _section_in_use(*found)
            if section is None or not await _is_full(connection, section):
                return
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            await connection.execute(_WAIT_FOR_ALL_DAYS)
            if await _days_there(connection) == found:
                following = (section.section or 0) + 1
                await _make_section(connection, id_section(section.day, following))
                await _refuse_ids(connection, section, closing_trigger(section))

    async def refuse_ids(self, connection: AsyncConnection, table: IdTable, trigger: str) -> None:
        """Make the trigger once those who have inserted are done; it needs no other lock.

        A day on which ids may still be inserted is ended first, or whoever is about to would get an
        error. A trigger of a day with sections is a mark: rows are refused by triggers on the
        sections. One for its rows would be on them, too, but pg_restore may make it before it loads
        them.
        """
        if table.section is None:
            await connection.execute(_WAIT_BRIEFLY)
            while not await _close_day(connection, table.day):
                pass  # it was opened while this waited, so that now it is waited for
        await connection.execute(_WAIT_TO_CLOSE)
        sections = await _id_tables(connection, table.name)
        await _refuse_ids(connection, table, trigger, each="STATEMENT" if sections else "ROW")
        there = await _triggers_of_sections(connection, table)
        for section in sections:
            if closing_trigger(section) not in there:
                await _refuse_ids(connection, section, closing_trigger(section))

    async def sort_ids(self, table: IdTable) -> IdTable:
        """Insert them into a section of their own, by one statement, however long it takes.

        CLUSTER would keep the number of the transaction that each row came with. The section is
        attached first, which waits for others, and dropped with the day, whoever drops that.
        """
        copy = sorted_section(table.day)
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            if copy not in await _id_tables(connection, table.name):
                await connection.execute(_WAIT_BRIEFLY)
                await _make_section(connection, copy, has_key=False)
                await connection.exec_driver_sql(_SORT_IN_MEMORY)
                await connection.exec_driver_sql(
                    f"INSERT INTO {copy.name} (batch_id, day, section) "  # noqa: S608
                    f"SELECT batch_id, day, {copy.section} FROM {table.name} "
                    f"WHERE section <> {copy.section} ORDER BY batch_id"
                )
                await connection.exec_driver_sql(f"ALTER TABLE {copy.name} ADD {_KEY_OF_IDS}")
                await _refuse_ids(connection, copy, closing_trigger(copy))
        return copy

    async def drop_unsorted_ids(self) -> None:
        """Drop sections whose ids are in another one, unless somebody reads them just now.

        Nobody inserts meanwhile: whoever has read that a section has a filter doesn't search it,
        and relies on the others.
        """
        filtered = (await self.id_catalogue()).filters
        for day in [table for table in filtered if table.section is None]:
            copy = sorted_section(day.day)
            async with self.read() as connection:
                sections = await _id_tables(connection, day.name)
            if copy not in sections or len(sections) == 1:
                continue
            await self._rewrite_shared_tables()
            names = ", ".join(section.name for section in sections if section != copy)
            async with self.write() as connection:
                await connection.execute(_WAIT_BRIEFLY)
                await connection.execute(_WAIT_FOR_ALL_DAYS)
                # A backup may have them for hours, and nobody inserts meanwhile.
                await connection.exec_driver_sql(f"LOCK TABLE ONLY {day.name}, {names} NOWAIT")
                await connection.exec_driver_sql(f"DROP TABLE {names}")

    async def _rewrite_shared_tables(self) -> None:
        """Give tables that all days share new files, once a day: the old ones have what was there.

        A vacuum leaves the bytes of what was deleted until others are written to their place: of
        quarantined reports as they came, of filters that tell which section an id was in.
        """
        async with translate_errors(), self._patient() as engine, engine.connect() as connection:
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await alone.exec_driver_sql(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
            await alone.exec_driver_sql("VACUUM (FULL) quarantine, counts, id_filters")

    async def count_ids(self, table: IdTable) -> tuple[int, int]:
        """Count them, however long it takes; a standby is refused, which may not know all yet."""
        async with translate_errors(), self._patient() as engine, engine.connect() as connection:
            if await connection.scalar(sa.text("SELECT pg_is_in_recovery()")):
                raise StoreError("store: a standby has answered; ids are counted on the primary")
            row = (await connection.exec_driver_sql(count_statement(table))).one()
            return row.number, row.of_other_size

    async def read_ids(self, table: IdTable) -> AsyncIterator[bytes]:
        """Read some pages of the table at a time, each time in a transaction of its own."""
        measuring = """
            SELECT relid::regclass::text AS name, pg_relation_filenode(relid) AS file,
                pg_relation_size(relid) / current_setting('block_size')::int AS pages
            FROM pg_partition_tree($1::text::regclass) WHERE isleaf ORDER BY name
        """
        async with self.read() as connection:
            there = (await connection.exec_driver_sql(measuring, (table.name,))).all()
        for leaf in there:
            reading = f"""
                SELECT string_agg(batch_id, '') AS ids FROM {leaf.name}
                WHERE ctid >= format('(%s,0)', $1::bigint)::tid
                AND ctid < format('(%s,0)', $2::bigint)::tid
            """  # noqa: S608
            for page in range(0, leaf.pages, _PAGES_READ):
                async with self.read() as connection:
                    which = (page, page + _PAGES_READ)
                    row = (await connection.exec_driver_sql(reading, which)).one()
                if row.ids:
                    yield row.ids
        async with self.read() as connection:
            now = (await connection.exec_driver_sql(measuring, (table.name,))).all()
        if [leaf[:2] for leaf in now] != [leaf[:2] for leaf in there]:
            # By VACUUM FULL or CLUSTER, which move rows to pages that were read before.
            raise StoreError(f"{table.name}: was rewritten while it was read")

    async def load_filters(self, most_bytes: float) -> None:
        """Load them."""
        await self._filters.load(most_bytes)

    async def drop_id_table(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a partition, unless somebody reads or writes any of them for too long.

        Two that drop would wait for each other. Whoever is second leaves it to the first, or to
        the next run.
        """
        async with self.write() as connection:
            await connection.execute(_WAIT_BRIEFLY)
            if not await connection.scalar(_TRY_TO_LOCK, {"lock": _DROPPING}):
                return
            if table not in await _id_tables(connection):
                return
            if if_empty and await _has_rows(connection, table.name):
                return
            # Or a day would be open without a partition.
            await connection.execute(sa.delete(open_day).where(open_day.c.day == table.day))
            if if_empty:
                # In the order in which DROP TABLE locks them. Then nobody inserts any more.
                await connection.exec_driver_sql(f"LOCK TABLE ONLY batch_ids, ONLY {table.name}")
                if await _has_rows(connection, table.name):
                    return
            await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table.name}")

    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:
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
        async with self._alone(_MIXING) as is_alone:
            yield is_alone

    @asynccontextmanager
    async def _alone(self, lock: int) -> AsyncIterator[Callable[[], bool]]:
        """Take a lock if it is free, for as long as the server hears of this process."""
        async with translate_errors(), self._patient() as engine, engine.begin() as connection:
            if not await connection.scalar(_TRY_TO_LOCK, {"lock": lock}):
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

    async def read_prefixes(self, heads: Sequence[SegmentPrefix]) -> list[bytes]:
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

    async def reclaim_space(self) -> None:
        """Clear the space of what was merged, counted or deleted, for others to be written to."""
        async with translate_errors(), self._patient() as engine, engine.connect() as connection:
            # A vacuum can't be part of a transaction.
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for left in reversed(range(_TIDYING_ATTEMPTS)):
                children = [table.name for table in await _day_tables(alone)]
                names = ", ".join(["segments", "counts", "quarantine", "id_filters", *children])
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
            days = [table.name for table in await _day_tables(connection)]
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
            "docs/operations.md says what each way can lose.",
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._filters.close()
        await self._appending.close()
        await super().close()

    @asynccontextmanager
    async def _patient(self) -> AsyncIterator[AsyncEngine]:
        """Connect anew for a statement that may take as long as it likes."""
        engine = _engine(self._url, writes=True, seconds=0)
        try:
            yield engine
        finally:
            await engine.dispose()


class _IdWriter(IdWriter):
    """Sends by SQLAlchemy what `append` sends directly."""

    def __init__(
        self,
        connection: sa.Connection,
        day: dt.date,
        catalogue: Catalogue,
        filtered: FilteredTables,
    ) -> None:
        super().__init__(connection, day, filtered)
        self._statement = insert_statement(day, catalogue.closed, filtered.tables)
        connection.exec_driver_sql(MAKE_ARRIVED)

    def insert(self, ids: Sequence[bytes]) -> set[bytes]:
        """Insert them; if all are known, COMMIT waits nevertheless until replicas know them."""
        unseen = super().insert(ids)
        if not unseen:
            self.connection.exec_driver_sql(_WAIT_FOR_REPLICAS)
        return unseen

    def _find(self, suspects: Sequence[tuple[IdTable, bytes]]) -> set[bytes]:
        ids = [batch_id for _, batch_id in suspects]
        _let_arrive(self.connection, ids)
        found: set[bytes] = set()
        for statement, places in finding(suspects, _places(ids)).items():
            found.update(self.connection.exec_driver_sql(statement, (places,)).scalars())
        return found

    def _insert_unknown(self, ids: Sequence[bytes]) -> set[bytes]:
        _let_arrive(self.connection, ids)
        return set(self.connection.exec_driver_sql(self._statement, ([],)).scalars())


def _places(ids: Sequence[bytes]) -> dict[bytes, int]:
    return {batch_id: place for place, batch_id in enumerate(ids, start=1)}


def _let_arrive(connection: sa.Connection, ids: Sequence[bytes]) -> None:
    """Let these ids arrive, and no others that are there since earlier ones were looked for."""
    connection.exec_driver_sql(f"DELETE FROM {ARRIVED}")  # noqa: S608
    _copy(connection, COPY_IDS, copied_ids(ids))


def _copy(connection: sa.Connection, statements: str, data: bytes) -> None:
    """Copy in a transaction that SQLAlchemy has begun, as it does with its first statement."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, ReceivingConnection) or not driver.is_in_transaction():
        raise StoreError("store: expected a transaction of PostgreSQL to copy in")
    await_only(driver.copy(statements, data))


async def _days_there(connection: AsyncConnection) -> tuple[dt.date | None, Catalogue]:
    """Return the open day, if there is one, and what triggers there are."""
    row = (await connection.exec_driver_sql(_DAYS_THERE)).one()
    return row.opened, parse_names(row.triggers)


def _section_in_use(opened: dt.date | None, catalogue: Catalogue) -> IdTable | None:
    """Return the section that ids go to now, if a day is open."""
    if opened is None or catalogue.taking(opened) != opened:
        return None
    return id_section(opened, open_section(opened, catalogue.closed))


async def _is_full(connection: AsyncConnection, section: IdTable) -> bool:
    """Return whether a section is so large that the next one is to be begun."""
    # A section that is dropped meanwhile has no size.
    query = "SELECT coalesce(pg_relation_size(to_regclass($1::text)), 0)"
    size = (await connection.exec_driver_sql(query, (section.name,))).scalar_one()
    doubled = (section.section or 0) // SECTIONS_OF_A_SIZE
    return bool(size >= SECTION_BYTES << doubled)


async def _refuse_ids(
    connection: AsyncConnection, table: IdTable, trigger: str, *, each: str = "ROW"
) -> None:
    await connection.exec_driver_sql(
        f"CREATE TRIGGER {trigger} BEFORE INSERT ON {table.name} "
        f"FOR EACH {each} EXECUTE FUNCTION refuse_batch_ids()"
    )


async def _triggers_of_sections(connection: AsyncConnection, day: IdTable) -> set[str]:
    query = """
        SELECT tgname::text FROM pg_trigger JOIN pg_inherits ON inhrelid = tgrelid
        WHERE inhparent = $1::text::regclass
    """
    return set((await connection.exec_driver_sql(query, (day.name,))).scalars())


async def _id_tables(connection: AsyncConnection, parent: str = "batch_ids") -> Sequence[IdTable]:
    """Return the tables of days, or the sections of one of these."""
    names = await _children(connection, parent)
    return [table for table in map(parse_id_table, names) if table]


async def _day_tables(connection: AsyncConnection) -> Sequence[DayTable]:
    names = await _children(connection, "segments")
    return [table for table in map(parse_day_table, names) if table]


async def _has_rows(connection: AsyncConnection, table: str) -> bool:
    query = f"SELECT EXISTS (SELECT FROM {table})"  # noqa: S608
    return bool((await connection.exec_driver_sql(query)).scalar_one())


async def _children(connection: AsyncConnection, parent: str) -> Sequence[str]:
    query = (
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = $1::text::regclass"
    )
    return (await connection.exec_driver_sql(query, (parent,))).scalars().all()


async def _make_partition(connection: AsyncConnection, day: dt.date) -> None:
    """Make a day's partition unless there is one; collectors may do so at once.

    It is made apart and then attached, because to make it in its place would wait for all who read
    or write any partition.
    """
    if any(table.holds(day) for table in await _id_tables(connection)):
        return
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATIONS)))
    if any(table.holds(day) for table in await _id_tables(connection)):
        return
    name = id_table(day).name
    await connection.exec_driver_sql(
        f"CREATE TABLE {name} (LIKE batch_ids INCLUDING ALL) PARTITION BY LIST (section)"
    )
    await connection.exec_driver_sql(sample_nothing_of(name, "batch_id"))
    await _make_section(connection, id_section(day, 0))
    await connection.exec_driver_sql(
        f"ALTER TABLE batch_ids ATTACH PARTITION {name} "
        f"FOR VALUES FROM ('{day}') TO ('{_next(day)}')"
    )


async def _make_section(
    connection: AsyncConnection, section: IdTable, *, has_key: bool = True
) -> None:
    """Make a section with a key of its own, apart from its day as that is made apart."""
    key = f", {_KEY_OF_IDS}" if has_key else ""
    await connection.exec_driver_sql(
        f"CREATE TABLE {section.name} (LIKE batch_ids INCLUDING ALL{key})"
    )
    await connection.exec_driver_sql(sample_nothing_of(section.name, "batch_id"))
    await connection.exec_driver_sql(
        f"ALTER TABLE {id_table(section.day).name} ATTACH PARTITION {section.name} "
        f"FOR VALUES IN ({section.section})"
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
    await connection.exec_driver_sql(sample_nothing_of(table.name, "records"))


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
        If it can't be reached, or through a pooler that gives each transaction another session.
    """
    database = PostgresqlDatabase(url, writes=create)
    try:
        await _check_sessions(url)
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


def _settings(
    *, writes: bool, reads_only: bool = False, seconds: int = _STATEMENT_SECONDS
) -> dict[str, str]:
    """Return the settings of a session whose statements may take so long; 0: as they like.

    Parameters
    ----------
    writes : bool
        Whether the server is to let it write.
    reads_only : bool
        Whether it is for `read`.
    seconds : int
    """
    return {
        "application_name": "hubbub",
        "client_min_messages": "warning",
        "statement_timeout": f"{seconds}s",
        "default_transaction_read_only": "off" if writes else "on",
        # `transact` must see what was committed while it waited, whatever the server's default is.
        "default_transaction_isolation": "repeatable read" if reads_only else "read committed",
        # Or a frozen collector's transaction would keep others from what it has locked. Who reads
        # locks little, and may rest between two segments.
        "idle_in_transaction_session_timeout": "0" if reads_only else f"{_STATEMENT_SECONDS}s",
    }


async def _connect(
    url: str, settings: dict[str, str], seconds: int, prepare: str = "", **_options: Any
) -> asyncpg.Connection:
    """Open a connection whose statements may take so long; 0: as they like.

    Parameters
    ----------
    prepare : str
        A statement that is run before others.
    """
    connection = await _connect_plainly(
        url,
        command_timeout=seconds + _GRACE_SECONDS if seconds else None,
        statement_cache_size=_APPENDS_KEPT,
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

    Raises
    ------
    StoreError
        If it is one.
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
