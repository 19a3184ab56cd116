"""Ids in PostgreSQL: in partitions, a day each, that consist of sections with a key of their own.

Nothing but locks keeps an id from being inserted in two of them at once: transactions of the open
day run together and insert into its last section; one of any other day runs alone and makes its own
the open day; and so does the one that begins a section. Statements name days and sections by
constants, by which partitions are left out of their plans: these are made once, and neither open
nor lock what a filter answers for. Invariant: a partition that nobody knows of is searched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.batch_ids import BatchIds, IdTransaction, OpenDatabase
from hubbub.storage.database import translate_errors
from hubbub.storage.errors import StoreError
from hubbub.storage.id_tables import (
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
from hubbub.storage.postgresql.driver import (
    ARRIVED,
    COPY_IDS,
    MAKE_ARRIVED,
    ReceivingConnection,
    commit,
    copied_ids,
    copied_rows,
    copy_statement,
    driver_of,
)
from hubbub.storage.postgresql.segments import (
    SHARE_DAYS,
    WAIT_FOR_ALL_DAYS,
    WAIT_FOR_OTHER_DAYS,
    PostgresqlSegments,
    close_day,
    first_table,
    has_rows,
    make_day_table,
)
from hubbub.storage.postgresql.sessions import (
    LOCK_SECONDS,
    MIGRATIONS,
    TRY_TO_LOCK,
    WAIT_BRIEFLY,
    PostgresqlDatabase,
    children,
    open_sessions,
)
from hubbub.storage.reports import NewBatch
from hubbub.storage.schema import open_day, sample_nothing_of
from hubbub.storage.segments import pool_batches

_DROPPING = 0x68756272
"""Held by the one who drops a day's ids: "hubr"."""

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

_BEGIN_WITH_IDS = f"BEGIN; {SHARE_DAYS}; {COPY_IDS}"
_WAIT_FOR_REPLICAS = """
    SELECT pg_logical_emit_message(true, 'hubbub', '')
    WHERE current_setting('synchronous_standby_names') <> ''
"""
"""Lets COMMIT wait for synchronous replicas although the transaction has stored nothing.

What it found there may not be with them: who stored it may have given up waiting for them, or the
server was started again meanwhile.
"""

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

_PAGES_READ = 1024
"""8 MiB of rows: some hundred thousand ids."""

_WAIT_TO_CLOSE = sa.text(f"SET LOCAL lock_timeout = '{_CLOSING_SECONDS}s'")
_EACH = f"{ARRIVED}, unnest(ids) WITH ORDINALITY AS each (id, place)"


def _is_stored(where: str = "TRUE") -> str:
    """Return the condition that the key has an id in the partitions that fulfil a condition.

    OFFSET keeps the planner from joining, and so from reading whole partitions because they were
    small when it looked.
    """
    return f"EXISTS (SELECT FROM batch_ids WHERE batch_id = uuid_send(id) AND ({where}) OFFSET 0)"


FIND_ANYWHERE = f"SELECT uuid_send(id) AS batch_id FROM {_EACH} WHERE {_is_stored()}"  # noqa: S608


class PostgresqlBatchIds(BatchIds):
    """Ids in partitions."""

    _database: PostgresqlDatabase

    async def append(
        self, batches: Mapping[bytes, NewBatch], day: dt.date, received: dt.date
    ) -> set[bytes]:
        """Append in four round trips if the day is open: what a transaction costs is these."""
        ids = sorted(batches)
        rows = await pool_batches(batches.values(), day)
        begun = self._database.begin_appending(_BEGIN_WITH_IDS, copied_ids(ids))
        async with translate_errors(), begun as driver:
            # A statement of its own, which sees what was committed before the lock was free.
            there = await driver.fetchrow(_DAYS_THERE)
            catalogue = parse_names(there["triggers"])
            taking = catalogue.taking(received)
            if there["opened"] == taking:
                unseen = await self._take_arrived(driver, ids, taking, catalogue)
                if len(unseen) < len(ids):  # seldom
                    rows = await pool_batches([batches[it] for it in unseen], day)
                if rows:
                    table = self._segments.insert_target(day, taking)
                    await commit(driver, copy_statement(table), copied_rows(table, rows))
                else:
                    await commit(driver, _WAIT_FOR_REPLICAS)
                return unseen
        return await super().append(batches, day, received)

    @asynccontextmanager
    async def begin(self, day: dt.date) -> AsyncIterator[IdTransaction]:
        """Begin beside others if the day is open, and otherwise alone."""
        async with self._database.write() as connection:
            await connection.execute(WAIT_FOR_OTHER_DAYS)
            # A statement of its own, which sees what was committed before the lock was free.
            opened, catalogue = await _days_there(connection)
            if opened == (taking := catalogue.taking(day)):
                yield IdTransaction(connection, taking, catalogue)
                return
        async with self._database.write() as connection:
            await connection.execute(WAIT_FOR_ALL_DAYS)
            _, catalogue = await _days_there(connection)
            taking = catalogue.taking(day)
            # In the order of `drop`, so that neither waits for the other.
            await connection.execute(sa.delete(open_day))
            await connection.execute(sa.insert(open_day).values(day=taking))
            await _make_partition(connection, taking)
            await make_day_table(connection, first_table(taking))
            yield IdTransaction(connection, taking, catalogue)

    async def take(self, transaction: IdTransaction, ids: Sequence[bytes]) -> set[bytes]:
        """Copy them, and insert from there; if all are known, COMMIT waits until replicas know."""
        driver = await driver_of(transaction.connection)
        await _let_arrive(driver, ids)
        unseen = await self._take_arrived(driver, ids, transaction.day, transaction.catalogue)
        if not unseen:
            await driver.execute(_WAIT_FOR_REPLICAS)
        return unseen

    async def _take_arrived(
        self, driver: ReceivingConnection, ids: Sequence[bytes], day: dt.date, catalogue: Catalogue
    ) -> set[bytes]:
        """Insert the ids that have arrived; return those that no table had."""
        filtered = self.filters.of(catalogue)
        self.filters.load_soon()
        known: list[int] = []
        if suspects := filtered.possible_duplicates(ids):
            places = {batch_id: place for place, batch_id in enumerate(ids, start=1)}
            for statement, some in finding(suspects, places).items():
                found = await driver.fetch(statement, some)
                known += [places[row["batch_id"]] for row in found]
        statement = insert_statement(day, catalogue.closed, filtered.tables)
        return {row["batch_id"] for row in await driver.fetch(statement, known)}

    async def has(self, batch_id: bytes) -> bool:
        """Search the key of each partition; what is found is with all replicas, too."""
        async with self._database.write() as connection:
            await connection.exec_driver_sql(MAKE_ARRIVED)
            driver = await driver_of(connection)
            await _let_arrive(driver, [batch_id])
            found = await driver.fetchrow(FIND_ANYWHERE) is not None
            if found:
                await driver.execute(_WAIT_FOR_REPLICAS)
        return found

    async def catalogue(self) -> Catalogue:
        """Return the partitions and their triggers."""
        async with self._database.read() as connection:
            triggers = (await connection.exec_driver_sql(_TRIGGERS)).scalars()
            return parse_names([*await children(connection, "batch_ids"), *triggers])

    async def prepare(self, day: dt.date) -> None:
        """Make a day's partition."""
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            await _make_partition(connection, day)

    async def begin_section(self) -> None:
        """Begin one of the open day if what the last one holds takes much room.

        Alone, so that all who have inserted into that one have committed, and nobody inserts into
        it any more.
        """
        async with self._database.read() as connection:
            found = await _days_there(connection)
            section = _section_in_use(*found)
            if section is None or not await _is_full(connection, section):
                return
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            await connection.execute(WAIT_FOR_ALL_DAYS)
            if await _days_there(connection) == found:
                following = (section.section or 0) + 1
                await _make_section(connection, id_section(section.day, following))
                await _refuse_ids(connection, section, closing_trigger(section))

    async def refuse(self, connection: AsyncConnection, table: IdTable, trigger: str) -> None:
        """Make the trigger once those who have inserted are done; it needs no other lock.

        A day on which ids may still be inserted is ended first, or whoever is about to would get an
        error. A trigger of a day with sections is a mark: rows are refused by triggers on the
        sections. One for its rows would be on them, too, but pg_restore may make it before it loads
        them.
        """
        if table.section is None:
            await connection.execute(WAIT_BRIEFLY)
            while not await close_day(connection, table.day):
                pass  # it was opened while this waited, so that now it is waited for
        await connection.execute(_WAIT_TO_CLOSE)
        sections = await _id_tables(connection, table.name)
        await _refuse_ids(connection, table, trigger, each="STATEMENT" if sections else "ROW")
        there = await _triggers_of_sections(connection, table)
        for section in sections:
            if closing_trigger(section) not in there:
                await _refuse_ids(connection, section, closing_trigger(section))

    async def sort(self, table: IdTable) -> IdTable:
        """Insert them into a section of their own, by one statement, however long it takes.

        CLUSTER would keep the number of the transaction that each row came with. The section is
        attached first, which waits for others, and dropped with the day, whoever drops that.
        """
        copy = sorted_section(table.day)
        async with (
            translate_errors(),
            self._database.patient() as engine,
            engine.begin() as connection,
        ):
            if copy not in await _id_tables(connection, table.name):
                await connection.execute(WAIT_BRIEFLY)
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

    async def drop_unsorted(self) -> None:
        """Drop sections whose ids are in another one, unless somebody reads them just now.

        Nobody inserts meanwhile: whoever has read that a section has a filter doesn't search it,
        and relies on the others.
        """
        filtered = (await self.catalogue()).filters
        for day in [table for table in filtered if table.section is None]:
            copy = sorted_section(day.day)
            async with self._database.read() as connection:
                sections = await _id_tables(connection, day.name)
            if copy not in sections or len(sections) == 1:
                continue
            await self._rewrite_shared_tables()
            names = ", ".join(section.name for section in sections if section != copy)
            async with self._database.write() as connection:
                await connection.execute(WAIT_BRIEFLY)
                await connection.execute(WAIT_FOR_ALL_DAYS)
                # A backup may have them for hours, and nobody inserts meanwhile.
                await connection.exec_driver_sql(f"LOCK TABLE ONLY {day.name}, {names} NOWAIT")
                await connection.exec_driver_sql(f"DROP TABLE {names}")

    async def _rewrite_shared_tables(self) -> None:
        """Give tables that all days share new files, once a day: the old ones have what was there.

        A vacuum leaves the bytes of what was deleted until others are written to their place: of
        filters that tell which section an id was in.
        """
        async with (
            translate_errors(),
            self._database.patient() as engine,
            engine.connect() as connection,
        ):
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await alone.exec_driver_sql(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            await alone.exec_driver_sql("VACUUM (FULL) counts, id_filters")

    async def count(self, table: IdTable) -> tuple[int, int]:
        """Count them, however long it takes; a standby is refused, which may not know all yet."""
        async with (
            translate_errors(),
            self._database.patient() as engine,
            engine.connect() as connection,
        ):
            if await connection.scalar(sa.text("SELECT pg_is_in_recovery()")):
                raise StoreError("store: a standby has answered; ids are counted on the primary")
            row = (await connection.exec_driver_sql(count_statement(table))).one()
            return row.number, row.of_other_size

    async def read(self, table: IdTable) -> AsyncIterator[bytes]:
        """Read some pages of the table at a time, each time in a transaction of its own."""
        measuring = """
            SELECT relid::regclass::text AS name, pg_relation_filenode(relid) AS file,
                pg_relation_size(relid) / current_setting('block_size')::int AS pages
            FROM pg_partition_tree($1::text::regclass) WHERE isleaf ORDER BY name
        """
        async with self._database.read() as connection:
            there = (await connection.exec_driver_sql(measuring, (table.name,))).all()
        for leaf in there:
            reading = f"""
                SELECT string_agg(batch_id, '') AS ids FROM {leaf.name}
                WHERE ctid >= format('(%s,0)', $1::bigint)::tid
                AND ctid < format('(%s,0)', $2::bigint)::tid
            """  # noqa: S608
            for page in range(0, leaf.pages, _PAGES_READ):
                async with self._database.read() as connection:
                    which = (page, page + _PAGES_READ)
                    row = (await connection.exec_driver_sql(reading, which)).one()
                if row.ids:
                    yield row.ids
        async with self._database.read() as connection:
            now = (await connection.exec_driver_sql(measuring, (table.name,))).all()
        if [leaf[:2] for leaf in now] != [leaf[:2] for leaf in there]:
            # By VACUUM FULL or CLUSTER, which move rows to pages that were read before.
            raise StoreError(f"{table.name}: was rewritten while it was read")

    async def drop(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a partition, unless somebody reads or writes any of them for too long.

        Two that drop would wait for each other. Whoever is second leaves it to the first, or to
        the next run.
        """
        async with self._database.write() as connection:
            await connection.execute(WAIT_BRIEFLY)
            if not await connection.scalar(TRY_TO_LOCK, {"lock": _DROPPING}):
                return
            if table not in await _id_tables(connection):
                return
            if if_empty and await has_rows(connection, table.name):
                return
            # Or a day would be open without a partition.
            await connection.execute(sa.delete(open_day).where(open_day.c.day == table.day))
            if if_empty:
                # In the order in which DROP TABLE locks them. Then nobody inserts any more.
                await connection.exec_driver_sql(f"LOCK TABLE ONLY batch_ids, ONLY {table.name}")
                if await has_rows(connection, table.name):
                    return
            await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table.name}")


async def _let_arrive(driver: ReceivingConnection, ids: Sequence[bytes]) -> None:
    await driver.execute(f"{MAKE_ARRIVED}; DELETE FROM {ARRIVED}")  # noqa: S608
    await driver.copy(COPY_IDS, copied_ids(ids))


def finding(
    suspects: Iterable[tuple[IdTable, bytes]], places: Mapping[bytes, int]
) -> dict[str, list[int]]:
    """Return what finds ids that are in the table beside them: a statement for each, and its $1.

    One for all would lock every section of every day.

    `places`: of the ids that have arrived; the first is 1.
    """
    given: dict[IdTable, list[int]] = {}
    for table, batch_id in suspects:
        given.setdefault(table, []).append(places[batch_id])
    return {_find_statement(table): some for table, some in given.items()}


def _find_statement(table: IdTable) -> str:
    of_day = f"day = DATE '{table.day}'"
    where = of_day if table.section is None else f"{of_day} AND section = {table.section}"
    return f"""
        SELECT uuid_send(id) AS batch_id FROM {_EACH}
        WHERE place = ANY ($1::int[]) AND {_is_stored(where)}
    """  # noqa: S608


@lru_cache(maxsize=8)  # another one only if a section is begun, or a filter made
def insert_statement(
    day: dt.date, closed: frozenset[IdTable], filtered: tuple[IdTable, ...]
) -> str:
    """Return what inserts the ids that have arrived under a day, and returns those no table had.

    Those whose places are in $1 are known. It searches days by constants, by which partitions are
    left out of its plan; in each of the others the key is searched, id by id.
    """
    # The key of its own partition refuses an id.
    elsewhere = " ".join(
        f"AND NOT {_is_stored(which)}" for which in _searched(day, closed, filtered)
    )
    return f"""
        WITH arrived AS (DELETE FROM {ARRIVED} RETURNING ids)
        INSERT INTO batch_ids (batch_id, day, section)
        SELECT uuid_send(id), DATE '{day}', {open_section(day, closed)}
        FROM arrived, unnest(ids) WITH ORDINALITY AS each (id, place)
        WHERE place <> ALL ($1::int[]) {elsewhere}
        ON CONFLICT DO NOTHING RETURNING batch_id
    """  # noqa: S608


def _searched(day: dt.date, closed: frozenset[IdTable], filtered: Iterable[IdTable]) -> list[str]:
    """Return conditions for what has to be searched for ids of a day, its open section apart.

    One for all days of which nothing is filtered; and one for each other, if there are sections of
    it that aren't.
    """
    whole = {table.day for table in filtered if table.section is None}
    partly = {table.day for table in filtered if table.section is not None} | {day}
    conditions = [_on_other_days(whole | partly)]
    for each in sorted(partly):
        # Nobody begins one meanwhile; the open one of another day holds ids, too.
        sections = range(open_section(each, closed) + (each != day))
        left = [str(it) for it in sections if id_section(each, it) not in filtered]
        if left:
            conditions.append(f"day = DATE '{each}' AND section IN ({', '.join(left)})")
    return conditions


def _on_other_days(days: Iterable[dt.date]) -> str:
    """Return the condition that `day` is none of these, as ranges, by which partitions are chosen.

    A day that nobody knows of, in a partition that another process makes, fulfils it.
    """
    ranges = []
    begin = ""
    for day in sorted(days):
        if begin != f"day >= DATE '{day}'":
            ranges.append(" AND ".join(filter(None, (begin, f"day < DATE '{day}'"))))
        begin = f"day >= DATE '{day + dt.timedelta(days=1)}'"
    return " OR ".join([*ranges, begin])


async def _days_there(connection: AsyncConnection) -> tuple[dt.date | None, Catalogue]:
    row = (await connection.exec_driver_sql(_DAYS_THERE)).one()
    return row.opened, parse_names(row.triggers)


def _section_in_use(opened: dt.date | None, catalogue: Catalogue) -> IdTable | None:
    if opened is None or catalogue.taking(opened) != opened:
        return None
    return id_section(opened, open_section(opened, catalogue.closed))


async def _is_full(connection: AsyncConnection, section: IdTable) -> bool:
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
    names = await children(connection, parent)
    return [table for table in map(parse_id_table, names) if table]


async def _make_partition(connection: AsyncConnection, day: dt.date) -> None:
    """Make a day's partition unless there is one; collectors may do so at once.

    It is made apart and then attached, because to make it in its place would wait for all who read
    or write any partition.
    """
    if any(table.holds(day) for table in await _id_tables(connection)):
        return
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATIONS)))
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


def _next(day: dt.date) -> dt.date:
    return day + dt.timedelta(days=1)


async def open_database(url: str, *, create: bool) -> OpenDatabase:
    """Open the database at an address (raises as `open_sessions`)."""
    database = await open_sessions(url, create=create)
    held = PostgresqlSegments(database)
    return OpenDatabase(database, held, PostgresqlBatchIds(database, held))
