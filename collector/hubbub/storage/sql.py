"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP.
Invariants: a batch id and its reports are committed in one transaction, and no row shows which
reports came together, from whom, or at what time of day.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
import json
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Container,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol.counts import KeptCounts
from hubbub.protocol.metrics import Metric
from hubbub.storage.counts import (
    DayRow,
    RowChangedError,
    add_to_packed,
    delete_counts,
    read_counts,
    read_packed,
    replace_row,
)
from hubbub.storage.errors import StoreError
from hubbub.storage.filters import make_filter
from hubbub.storage.interfaces import (
    Database,
    DayCount,
    Declared,
    IdWriter,
    MetricVersion,
    NewBatch,
    QuarantineDay,
    Reader,
    Replayed,
    Row,
    StoredCounts,
    StoredRecords,
)
from hubbub.storage.mixing import reshuffle_closed_days, unmixed_days
from hubbub.storage.quarantine import (
    Screen,
    append_quarantined,
    delete_quarantined,
    merge_quarantine,
    read_quarantine,
    replay_quarantine,
)
from hubbub.storage.schema import (
    OldSchemaError,
    Schema,
    check_schema,
    migrate,
    read_schema,
)
from hubbub.storage.schema import counts as _counts
from hubbub.storage.schema import parameters as _parameters
from hubbub.storage.schema import quarantine as _quarantine
from hubbub.storage.schema import segments as _segments
from hubbub.storage.schema import upkeep_day as _upkeep_day
from hubbub.storage.sealed import sealed_versions
from hubbub.storage.segments import (
    SMALL,
    are_new,
    count_reports,
    delete_reports,
    merge_segments,
    sample_segments,
    segment_rows,
)

DATABASES = {
    "sqlite": "sqlite:///PATH",
    "postgresql": "postgresql://USER:PASSWORD@HOST/DATABASE",
}
"""The databases that can be stores, each in the module of that name, and their addresses."""

_LOOK_SECONDS = 1.0
_SEGMENTS_IN_MEMORY = 8
_REPORTS_IN_PLACE = 8192
"""Up to here shuffling takes less than to hand it to a thread and to wait for the answer."""

_log = logging.getLogger("hubbub.collector")


class Store(Reader):
    """Reports and batch ids in one SQL database; use `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def declare(self, metrics: Collection[Metric]) -> None:
        """Record the parameters under which reports of these metrics are stored.

        Raises
        ------
        StoreError
            If a metric's version is already stored with other parameters.
        """
        declared = map(Declared.of, metrics)
        # In order, so that collectors that start together don't deadlock.
        rows = [_parameter_row(version) for version in sorted(declared, key=itemgetter(0, 1))]
        async with self._database.write() as connection:
            if rows:
                await connection.execute(self._database.insert_if_absent(_parameters), rows)
            for metric in metrics:
                await _check_parameters(connection, metric)

    async def declare_sealed(self) -> None:
        """Record that there may be sealed records, of all sizes."""
        rows = [_parameter_row(version) for version in sealed_versions()]
        async with self._database.write() as connection:
            await connection.execute(self._database.insert_if_absent(_parameters), rows)

    async def declared(self) -> list[Declared]:
        """Return every version of every metric that was ever declared."""
        query = sa.select(_parameters).order_by(_parameters.c.metric, _parameters.c.version)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [Declared(row.metric, row.version, json.loads(row.parameters)) for row in rows]

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""
        async with self._database.read() as connection:
            await _check_parameters(connection, metric)

    async def append(
        self, batches: Sequence[NewBatch], day: dt.date, received: dt.date | None = None
    ) -> list[bool]:
        """Store batches durably and together; return for each whether it was new.

        A batch whose id is stored already, or stands earlier in `batches`, adds nothing.

        Parameters
        ----------
        batches : sequence of NewBatch
        day : datetime.date
            The UTC day of the reports.
        received : datetime.date, optional
            The day from which on the ids are kept for some time; if not that of the reports.

        Raises
        ------
        StoreError
            If the database refuses; then nothing of `batches` is stored. If the connection broke
            while committing, all or nothing is: appending them again adds what is missing.
        """
        firsts = {batch.batch_id: batch for batch in reversed(batches)}

        def pool(ids: Iterable[bytes]) -> list[Row]:
            return segment_rows((firsts[batch_id] for batch_id in ids), day)

        reports = sum(records.reports for new in batches for records in new.records.values())
        is_large = reports > _REPORTS_IN_PLACE
        # In order, so that collectors with the same ids don't deadlock.
        unseen = await self._database.append(
            sorted(firsts), received or day, day, pool, is_large=is_large
        )
        stored = [records for new in unseen for records in firsts[new].records.values()]
        self._database.note_written(sum([len(records.data) for records in stored]))
        return are_new(batches, unseen)

    async def append_quarantined(
        self, batches: Sequence[NewBatch], day: dt.date, most_bytes: int
    ) -> list[bool | None]:
        """Store batches as `append` does, and apart what no registry knows yet.

        Parameters
        ----------
        batches : sequence of NewBatch
        day : datetime.date
            The UTC day on which they came.
        most_bytes : float
            Bytes that the quarantine may take.

        Returns
        -------
        list of bool or None
            Whether each was new; None: there was no room in quarantine, so nothing of it was
            stored, and its id wasn't taken.

        Raises
        ------
        StoreError
            As `append`.
        """
        return await append_quarantined(self._database, batches, day, most_bytes)

    async def quarantined(self) -> list[QuarantineDay]:
        """Return what is in quarantine, by metric, version, width and day."""
        return await read_quarantine(self._database)

    async def merge_quarantine(self, today: dt.date) -> int:
        """Pool and shuffle what came into quarantine on the same day; return how many rows."""
        return await merge_quarantine(self._database, today)

    async def replay_quarantine(
        self, metrics: Container[str], screen: Screen
    ) -> AsyncGenerator[Replayed, None]:
        """Make segments of reports in quarantine that fit a declared version by now.

        Each report is in quarantine or in a segment, once, whatever fails, and whoever else does
        the same meanwhile. Yields what was moved, when it is durable.

        Parameters
        ----------
        metrics : container of str
            Names of the metrics whose reports are taken.
        screen : callable
            Given a version and records of existing cohorts, says which may be counted.
        """
        if not await self.quarantined():
            return
        expected = {
            MetricVersion(it.metric, it.version): it.params
            for it in await self.declared()
            if it.metric in metrics
        }
        async for replayed in replay_quarantine(self._database, expected, screen):
            yield replayed

    async def drop_quarantined(self, before: dt.date) -> int:
        """Delete what came into quarantine before a day; return how many reports there were."""
        return await delete_quarantined(self._database, _quarantine.c.day < before)

    async def knows(self, batch_id: bytes) -> bool:
        """Return whether a batch with this id is stored."""
        return await self._database.has_id(batch_id)

    async def add_counts(
        self, batch_id: bytes, key: MetricVersion, day: dt.date, kept: KeptCounts, received: dt.date
    ) -> bool:
        """Add counts of forgotten reports durably; return whether they were new.

        Parameters
        ----------
        batch_id : bytes
            16 bytes; counts whose id is stored already add nothing.
        key, day : MetricVersion, datetime.date
            Those of the reports.
        kept : KeptCounts
        received : datetime.date
            The day from which on the id is kept for some time.

        Raises
        ------
        StoreError
            If the database refuses, or what is kept of this day is of other parameters.
        """
        row = DayRow(key, day)
        while True:
            with contextlib.suppress(RowChangedError):
                return await self._add_to_row(batch_id, row, kept, received)

    async def _add_to_row(
        self, batch_id: bytes, row: DayRow, kept: KeptCounts, received: dt.date
    ) -> bool:
        packed = await read_packed(self._database, row)
        values = await asyncio.to_thread(add_to_packed, packed, row, kept)

        def write(ids: IdWriter, values: Mapping[str, object]) -> bool:
            if not ids.insert([batch_id]):
                return False
            replace_row(ids.connection, self._database.insert_if_absent, row, packed, values)
            return True

        return await self._database.transact(received, lambda: values, write)

    async def segments(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the concatenated records of each segment, days `since` to `until` included.

        The transaction ends with the generator: close it if it isn't read to its end.
        """
        query = _only(sa.select(_segments.c.records), _segments, key, since, until)
        async with self._database.read() as connection:
            # A few at a time, so that memory holds these, not the store.
            options = {"max_row_buffer": _SEGMENTS_IN_MEMORY}
            async for row in await connection.stream(query, execution_options=options):
                yield row.records

    async def sample(
        self,
        key: MetricVersion,
        reports: int,
        width: int,
        since: dt.date | None = None,
        until: dt.date | None = None,
    ) -> bytes:
        """Return the records of so many reports of some days, or of all if there are fewer.

        Each stored report is as likely to be among them as any other, whatever its day, segment and
        bits. Besides these, next to nothing is read.

        Parameters
        ----------
        key : MetricVersion
        reports : int
        width : int
            Bytes of a record.
        since, until : datetime.date, optional
            The first and the last day.
        """
        which = _conditions(_segments, key, since, until)
        return await sample_segments(self._database, reports, width, *which)

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield segments and counts, days `since` to `until` included, as of one moment.

        The transaction ends with the generator: close it if it isn't read to its end.
        """
        # One statement, because each of PostgreSQL's sees a moment of its own.
        records = sa.select(_segments.c.day, _segments.c.records.label("data"), sa.literal(False))
        counts = sa.select(_counts.c.day, _counts.c.counts.label("data"), sa.literal(True))
        query = sa.union_all(
            _only(records, _segments, key, since, until), _only(counts, _counts, key, since, until)
        )
        async with self._database.read() as connection:
            options = {"max_row_buffer": _SEGMENTS_IN_MEMORY}
            async for day, data, are_counts in await connection.stream(
                query, execution_options=options
            ):
                if are_counts:
                    yield StoredCounts(day, read_counts(data, DayRow(key, day)))
                else:
                    yield StoredRecords(day, data)

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, stored or counted, days `since` to `until` included."""
        totals = [
            _only(sa.select(sa.func.sum(table.c.reports)), table, key, since, until)
            for table in (_segments, _counts)
        ]
        async with self._database.read() as connection:
            found = await connection.scalars(sa.union_all(*totals))
            return sum(int(total or 0) for total in found)

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days `since` to `until` with counts of forgotten reports."""
        query = _only(sa.select(sa.func.max(_counts.c.day)), _counts, key, since, until)
        async with self._database.read() as connection:
            found: dt.date | None = await connection.scalar(query)
        return found

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports, or counts of them, are stored."""
        queries = [
            sa.select(table.c.version).where(table.c.metric == metric)
            for table in (_segments, _counts)
        ]
        async with self._database.read() as connection:
            return sorted((await connection.scalars(sa.union(*queries))).all())

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the days for which reports, or counts of them, are stored."""
        queries = [
            _only(sa.select(table.c.day), table, key, None, None) for table in (_segments, _counts)
        ]
        async with self._database.read() as connection:
            return sorted((await connection.scalars(sa.union(*queries))).all())

    async def overview(self) -> list[DayCount]:
        """Return what is stored, by metric, version and day, without reading the records."""
        stored = []
        for table, data, is_segment in (
            (_segments, _segments.c.records, 1),
            (_counts, _counts.c.counts, 0),
        ):
            group = (table.c.metric, table.c.version, table.c.day)
            sums = (
                sa.func.sum(table.c.reports),
                sa.func.count() * is_segment,
                sa.func.sum(sa.func.length(data)),
            )
            stored.append(sa.select(*group, *sums).group_by(*group))
        async with self._database.read() as connection:
            rows = (await connection.execute(sa.union_all(*stored))).all()
        found: dict[tuple[Any, ...], DayCount] = {}
        for row in rows:
            count = DayCount(row[0], row[1], row[2], *map(int, row[3:]))
            if there := found.get(count[:3]):
                count = DayCount(*count[:3], *map(sum, zip(there[3:], count[3:], strict=True)))
            found[count[:3]] = count
        return sorted(found.values())

    async def ping(self) -> None:
        """Raise StoreError unless the database answers."""
        async with self._database.read() as connection:
            await connection.execute(sa.select(_parameters.c.version).limit(1))

    @property
    def dialect(self) -> str:
        """Which of `DATABASES` it is in."""
        return self._database.reading.dialect.name

    @property
    def folder(self) -> Path | None:
        """Where its files grow; None: on a server, which watches its own disk."""
        return self._database.folder

    async def size_bytes(self) -> int:
        """Return the bytes that the store takes on disk."""
        return await self._database.size_bytes()

    async def merge(self, today: dt.date | None = None, small: int = SMALL) -> int:
        """Pool and shuffle segments with fewer than `small` reports of the same version and day.

        What a quiet hour stored is then mixed with what came before and after. Readers and other
        mergers may be at work: each sees every report exactly once.

        Parameters
        ----------
        today : datetime.date, optional
            If given, a small segment that is left alone on a day before is merged into a large one.
        small : int

        Returns
        -------
        int
            The number of segments that were replaced.
        """
        return await merge_segments(self._database, small, today)

    async def mix(self, today: dt.date, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Mix the reports of each day before `today`, so that nothing tells when in it they came.

        Readers may be at work: each sees every report exactly once. The youngest days come first;
        what takes too long is left to the next call, and all if another process is at it.

        Parameters
        ----------
        today : datetime.date
        is_stopping : callable, optional
            Asked between transactions whether to leave the rest.

        Returns
        -------
        int
            The number of reports that were mixed.
        """
        return await reshuffle_closed_days(self._database, today, is_stopping)

    async def unmixed_days(self, today: dt.date) -> int:
        """Return how many days before `today` have reports that aren't mixed yet."""
        return await unmixed_days(self._database, today)

    async def schema(self) -> str:
        """Return the version of the schema."""
        return (await check_schema(self._database, self.dialect)).made

    async def upkeep_day(self) -> dt.date | None:
        """Return the day of the last upkeep, or None if there was none yet."""
        async with self._database.read() as connection:
            day: dt.date | None = await connection.scalar(sa.select(sa.func.max(_upkeep_day.c.day)))
            return day

    async def set_upkeep_day(self, day: dt.date) -> None:
        """Remember that upkeep was done on this day, whatever other day was remembered."""
        async with self._database.write() as connection:
            await connection.execute(sa.delete(_upkeep_day).where(_upkeep_day.c.day != day))
            row = {"day": day}
            await connection.execute(self._database.insert_if_absent(_upkeep_day).values(row))

    async def forget_ids(self, before: dt.date) -> int:
        """Forget the ids of the batches of all days before one; return how many days there were.

        Such a batch would be counted again if a client still sent it.
        """
        catalogue = await self._database.id_catalogue()
        old = [table for table in catalogue.tables if table.day < before]
        for table in old:
            await self._database.drop_id_table(table)
        return len(old)

    async def drop_empty_ids(self, after: dt.date) -> None:
        """Remove the room that was made for ids of days after one, where no id has come.

        A clock that was far ahead made it, and nothing else would remove it before that day.
        """
        for table in (await self._database.id_catalogue()).tables:
            if table.day > after:
                await self._database.drop_id_table(table, if_empty=True)

    async def prepare_day(self, day: dt.date) -> None:
        """Make room for the ids and reports of a day, so that its first batch doesn't have to."""
        await self._database.prepare_id_table(day)
        await self._database.prepare_segments(day)

    async def filter_ids(self, before: dt.date) -> bool:
        """Close one of the days before that one, and make a filter of its ids.

        From then on transactions look there only for the ids that the filter can't deny, once they
        have loaded it, which they do by themselves.

        Returns
        -------
        bool
            Whether there was one, and no other process is at it.
        """
        return await make_filter(self._database, before)

    async def load_filters(self, most_bytes: float = math.inf) -> None:
        """Load filters now, rather than soon after the first transaction that could use them.

        Parameters
        ----------
        most_bytes : float
            Memory that they may take, now and later. Days whose filters don't fit are searched.
        """
        await self._database.load_filters(most_bytes)

    async def count_reports(self, before: dt.date) -> int:
        """Replace the reports from before a day by their day's counts; return how many there were.

        Readers, mergers and others who count may be at work: each sees every report exactly once,
        as itself or counted.

        Raises
        ------
        StoreError
            If reports aren't what their version's parameters say. What is sound was counted.
        """
        return await count_reports(self._database, before)

    async def drop_reports(self, before: dt.date) -> int:
        """Delete the reports from before a day, and counts of them; return how many there were."""
        deleted = await delete_reports(self._database, _segments.c.day < before)
        return deleted + await delete_counts(self._database, _counts.c.day < before)

    async def delete(self, metric: str, version: int | None = None) -> int:
        """Delete a metric's reports, or those of one version, and counts of them.

        What is in quarantine under this name is deleted, too.

        Its parameters stay known: a version that was once used can't be used for something else.

        Returns
        -------
        int
            How many reports there were.
        """

        def of_metric(table: sa.Table) -> list[sa.ColumnElement[bool]]:
            which = [table.c.metric == metric]
            return which if version is None else [*which, table.c.version == version]

        # In the order in which reports move on, so that none is overtaken: from quarantine to
        # segments, and from there to counts.
        deleted = await delete_quarantined(self._database, *of_metric(_quarantine))
        deleted += await delete_reports(self._database, *of_metric(_segments))
        return deleted + await delete_counts(self._database, *of_metric(_counts))

    async def reclaim_space(self) -> None:
        """Remove from the files what was deleted, as far as the database allows."""
        await self._database.reclaim_space()


@asynccontextmanager
async def open_store(url: str, *, create: bool) -> AsyncIterator[Store]:
    """Open the store at an address: "sqlite:///hubbub.db" or "postgresql://user@host/hubbub".

    Parameters
    ----------
    url : str
    create : bool
        Make the tables, and SQLite's file, if they don't exist, and migrate them if they are old
        (the collector); otherwise nothing is written (the decoder).

    Raises
    ------
    OldSchemaError
        If it must be migrated first.
    StoreError
        If the address isn't supported, or the database can't be opened or isn't a store.
    """
    async with _open_database(url, create=create) as database:
        if create:
            await migrate(database, url)
        else:
            await check_schema(database, url)
        yield Store(database)


async def migrate_store(url: str, *, contract: bool = False) -> tuple[Schema, Schema]:
    """Bring the store at an address to today's schema (see `schema.migrate`)."""
    async with _open_database(url, create=True) as database:
        return await migrate(database, url, contract=contract)


async def backup_store(
    url: str, target: Path, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Copy the store at an address as of one moment, of any schema, while others write to it.

    Parameters
    ----------
    url : str
    target : Path
        A new file.
    progress : callable, optional
        Called with how much was copied, and with all there is.

    Raises
    ------
    StoreError
        If there is no store, or a file refuses; of PostgreSQL always, saying by what it is done.
    """
    async with _open_database(url, create=False) as database:
        if not (await read_schema(database)).made:
            raise StoreError.at(url, "is no store of hubbub's")
        await database.backup(target, progress)


async def wait_for_schema(url: str) -> None:
    """Return once somebody has migrated the store at an address (raises as `open_store`)."""
    told = False
    while True:
        try:
            async with open_store(url, create=False):
                return
        except OldSchemaError as error:
            if not told:
                _log.warning("waiting: %s", error)
            told = True
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def _open_database(url: str, *, create: bool) -> AsyncIterator[Database]:
    try:
        driver = make_url(url).drivername
    except (ArgumentError, ValueError):
        driver = ""
    if driver not in DATABASES:
        raise StoreError.at(url, f"must be {' or '.join(DATABASES.values())}")
    # Imported here, because a process needs only one of the drivers.
    module = importlib.import_module(f"hubbub.storage.{driver}")
    database: Database = await module.open_database(url, create=create)
    try:
        yield database
    finally:
        await database.close()


def _only(
    query: sa.Select[Any],
    table: sa.Table,
    key: MetricVersion,
    since: dt.date | None,
    until: dt.date | None,
) -> sa.Select[Any]:
    return query.where(*_conditions(table, key, since, until))


def _conditions(
    table: sa.Table, key: MetricVersion, since: dt.date | None, until: dt.date | None
) -> list[sa.ColumnElement[bool]]:
    which = [table.c.metric == key.metric, table.c.version == key.version]
    if since is not None:
        which.append(table.c.day >= since)
    if until is not None:
        which.append(table.c.day <= until)
    return which


def _parameter_row(declared: Declared) -> dict[str, Any]:
    parameters = json.dumps(declared.definition, sort_keys=True)
    return {"metric": declared.metric, "version": declared.version, "parameters": parameters}


async def _check_parameters(connection: AsyncConnection, metric: Metric) -> None:
    row = _parameter_row(Declared.of(metric))
    query = sa.select(_parameters.c.parameters).where(
        _parameters.c.metric == metric.name, _parameters.c.version == metric.version
    )
    stored = await connection.scalar(query)
    if stored not in {None, row["parameters"]}:
        raise StoreError(
            f"metrics.{metric.name}: version {metric.version} is stored with parameters {stored}, "
            f"but the registry says {row['parameters']}; changed parameters need a new version"
        )
