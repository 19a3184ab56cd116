"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP.
Invariants: a batch id and its reports are committed in one transaction, and no row shows which
reports came together, from whom, or at what time of day.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from hubbub.protocol import Dimension, Metric, parse_slice, slice_of
from hubbub.storage.database import Database, translate_errors
from hubbub.storage.errors import StoreError, UnreachableError
from hubbub.storage.reading import SqlReader, check_parameters, no_store, shown
from hubbub.storage.reports import DayCount, Declared, MetricVersion, NewBatch, pools
from hubbub.storage.schema import (
    counts as _counts,
    has_tables,
    make_tables,
    parameters as _parameters,
    segments as _segments,
    upkeep_day as _upkeep_day,
)
from hubbub.storage.segments import Counts, Segments

DATABASES = {
    "sqlite": "sqlite:///PATH",
    "postgresql": "postgresql://USER:PASSWORD@HOST/DATABASE",
}
"""The databases that can be stores, each in the module of that name, and their addresses."""

_SEGMENTS_IN_MEMORY = 8
"""Segments are fetched so many at a time: merged ones of k = 1024 take 17 MB together."""


class Store(SqlReader):
    """Reports and batch ids in one SQL database; use `open_store`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.segments = Segments(database)
        self.counts = Counts(database, self.segments)

    async def declare(self, metrics: Collection[Metric]) -> None:
        """Record the parameters under which reports of these metrics are stored.

        And their facts in the clear, which may change under a version.

        Raises `StoreError` if a metric's version is already stored with other parameters.
        """
        declared = map(Declared.of, metrics)
        # In order, so that collectors that start together don't deadlock.
        rows = [_parameter_row(version) for version in sorted(declared, key=itemgetter(0, 1))]
        async with self.database.write() as connection:
            if rows:
                await connection.execute(self.database.insert_if_absent(_parameters), rows)
            for row in rows:
                of_version = (_parameters.c[name] == row[name] for name in ("metric", "version"))
                differs = _parameters.c.dimensions != row["dimensions"]
                change = sa.update(_parameters).where(*of_version, differs)
                await connection.execute(change.values(dimensions=row["dimensions"]))
            for metric in metrics:
                query = sa.select(_parameters.c.parameters).where(
                    _parameters.c.metric == metric.name, _parameters.c.version == metric.version
                )
                check_parameters(metric, (await connection.execute(query)).scalar_one())

    async def declared(self) -> list[Declared]:
        """Return every version of every metric that was ever declared."""
        query = sa.select(_parameters).order_by(_parameters.c.metric, _parameters.c.version)
        async with self.database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Declared(
                row.metric,
                row.version,
                json.loads(row.parameters),
                *_declared(json.loads(row.dimensions)),
            )
            for row in rows
        ]

    async def append(
        self, batches: Sequence[NewBatch], day: dt.date, received: dt.date | None = None
    ) -> list[bool]:
        """Store batches durably and together; return for each whether it was new.

        A batch whose id is stored already, or stands earlier in `batches`, adds nothing.

        `day`: the UTC day of the reports. `received`: the day from which on the ids are kept for
        some time; if not that of the reports. Raises `StoreError` if the database refuses; then
        nothing of `batches` is stored. If the connection broke while committing, all or nothing is:
        appending them again adds what is missing.
        """
        if self.database.writing is self.database.reading:
            raise StoreError("store: was opened read-only")
        firsts = {batch.batch_id: batch for batch in reversed(batches)}
        unseen = set(await self.database.append(firsts, day, received or day))
        found = []
        for batch in batches:
            found.append(batch.batch_id in unseen)
            unseen.discard(batch.batch_id)
        return found

    async def count_slices(self, day: dt.date) -> dict[MetricVersion, int]:
        """Return how many slices each metric's version has that has reports of a day."""
        version = (_segments.c.metric, _segments.c.version)
        query = sa.select(*version, sa.func.count(_segments.c.slice.distinct()))
        async with self.database.read() as connection:
            rows = await connection.execute(query.where(_segments.c.day == day).group_by(*version))
            return {MetricVersion(metric, number): n for metric, number, n in rows}

    async def rows(self, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query with these parameters."""
        async with self.database.read() as connection:
            return (await connection.execute(sa.text(query), values)).all()

    async def stream(
        self, query: str, values: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield large rows, a few at a time: memory holds these, not the store.

        The transaction ends with the generator.
        """
        options = {"max_row_buffer": _SEGMENTS_IN_MEMORY}
        async with self.database.read() as connection:
            async for row in await connection.stream(
                sa.text(query), values, execution_options=options
            ):
                yield row

    async def overview(self) -> list[DayCount]:
        """Return what is stored, by metric, version and day, without reading the records."""
        queries = [
            sa.select(
                *(table.c.metric, table.c.version, table.c.day, table.c.reports),
                sa.literal(is_segment).label("segments"),
                sa.func.length(data).label("bytes"),
            )
            for table, data, is_segment in (
                (_segments, _segments.c.records, 1),
                (_counts, _counts.c.counts, 0),
            )
        ]
        stored = sa.union_all(*queries).subquery()
        group = (stored.c.metric, stored.c.version, stored.c.day)
        sums = (sa.func.sum(stored.c[name]) for name in ("reports", "segments", "bytes"))
        query = sa.select(*group, *sums).group_by(*group).order_by(*group)
        async with self.database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [DayCount(*row[:3], *map(int, row[3:])) for row in rows]

    async def ping(self) -> None:
        """Raise StoreError unless the database answers."""
        async with self.database.read() as connection:
            await connection.execute(sa.select(_parameters.c.version).limit(1))

    async def upkeep_day(self) -> dt.date | None:
        """Return the day of the last upkeep, or None if there was none yet."""
        async with self.database.read() as connection:
            day: dt.date | None = await connection.scalar(sa.select(sa.func.max(_upkeep_day.c.day)))
            return day

    async def set_upkeep_day(self, day: dt.date) -> None:
        """Remember that upkeep was done on this day, whatever other day was remembered."""
        async with self.database.write() as connection:
            await connection.execute(sa.delete(_upkeep_day).where(_upkeep_day.c.day != day))
            row = {"day": day}
            await connection.execute(self.database.insert_if_absent(_upkeep_day).values(row))

    async def reshuffle(
        self, today: dt.date, is_stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Mix the reports of days before `today` (see `Segments.mix`), and drop empty tables."""
        mixed = await self.segments.mix(today, is_stopping)
        await self.database.drop_empty(today)
        return mixed

    async def pool_slices(self, today: dt.date) -> int:
        """Move reports of days before `today` out of slices that have too few of them.

        Returns how many were moved.
        """
        moved = 0
        for declared in await self.declared():
            key = MetricVersion(declared.metric, declared.version)
            sizes = {}
            if declared.dimensions:
                sizes = await self.slices(key, until=today - dt.timedelta(days=1))
            for day, reports in sizes.items():
                goes: dict[str, list[str]] = {}
                found = await asyncio.to_thread(pools, declared, reports)
                for text, into in found.items():
                    # Values that the registry no longer lists stay: it may list them again.
                    if text != into and slice_of(declared.dimensions, parse_slice(text)) == text:
                        goes.setdefault(into, []).append(text)
                for into, texts in goes.items():
                    moved += await self.segments.move(key, day, texts, into)
                    moved += await self.counts.move(key, day, texts, into)
        return moved

    async def unmixed_days(self, today: dt.date) -> int:
        """Return how many days before `today` have reports that aren't mixed yet."""
        return await self.segments.unmixed_days(today)

    async def drop_reports(self, before: dt.date) -> int:
        """Delete the reports from before a day, and counts of them; return how many there were."""
        deleted = await self.segments.delete(_segments.c.day < before)
        return deleted + await self.counts.delete(_counts.c.day < before)

    async def delete(self, metric: str, version: int | None = None) -> int:
        """Delete a metric's reports, or those of one version, and counts of them.

        Its parameters stay known: a version that was once used can't be used for something else.

        Returns how many reports there were.
        """

        def of_metric(table: sa.Table) -> list[sa.ColumnElement[bool]]:
            which = [table.c.metric == metric]
            return which if version is None else [*which, table.c.version == version]

        # In the order in which reports move on, so that none is overtaken.
        deleted = await self.segments.delete(*of_metric(_segments))
        return deleted + await self.counts.delete(*of_metric(_counts))


@asynccontextmanager
async def open_store(url: str, *, create: bool) -> AsyncIterator[Store]:
    """Open the store at an address: "sqlite:///hubbub.db" or "postgresql://user@host/hubbub".

    Parameters
    ----------
    url : str
    create : bool
        Make the tables, and SQLite's file, if they don't exist (the collector); otherwise nothing
        is written (the decoder).

    Raises
    ------
    StoreError
        If the address isn't supported, or the database can't be opened, isn't a store, or is one of
        another version.
    """
    async with _open_database(url, create=create) as database:
        async with translate_errors(), database.reading.begin() as connection:
            is_there = await connection.run_sync(has_tables, url)
        if not (create or is_there):
            raise no_store(url)
        if not is_there:
            async with database.make() as connection:
                # Another collector may have made them meanwhile.
                if not await connection.run_sync(has_tables, url):
                    await connection.run_sync(make_tables)
        yield Store(database)


async def backup_store(url: str, target: Path) -> None:
    """Copy the store at an address as of one moment, while others write to it.

    `target`: a new file. Raises `StoreError` if there is no store, or a file refuses; of PostgreSQL
    always, saying by what it is done.
    """
    async with open_store(url, create=False) as store:
        await store.database.backup(target)


async def why_to_wait(url: str) -> str | None:
    """Return why the store at an address can't be used yet, or None if it can.

    Raises `StoreError` if it won't be usable however long one waits.
    """
    try:
        if not url.startswith("sqlite"):  # a server, which may be away or recovering
            async with _open_database(url, create=True):
                pass
    except UnreachableError as error:
        return str(error)
    return None


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


def _parameter_row(declared: Declared) -> dict[str, Any]:
    return {
        "metric": declared.metric,
        "version": declared.version,
        "parameters": shown(declared.definition),
        "dimensions": json.dumps([declared.dimensions, declared.min_reports]),
    }


def _declared(stored: tuple[list[tuple[str, list[str], str]], int]) -> tuple[Any, int]:
    dimensions, min_reports = stored
    declared = (Dimension(name, tuple(values), pattern) for name, values, pattern in dimensions)
    return tuple(declared), min_reports
