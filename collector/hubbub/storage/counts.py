"""A day's counts of forgotten reports: made of its segments, added to, read, deleted.

There is one row for each metric's version and day whose reports were counted. A chunk of segments
is counted outside of any lock; then one transaction adds its counts and deletes exactly these
segments. Invariant: whoever locks segments or ids as well has locked those first, so that no two
wait for each other.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Sequence
from contextlib import aclosing

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol import (
    KeptCounts,
    RapporParams,
    RecordsError,
    keep_counts,
    keep_none,
    pack_counts,
)
from hubbub.storage.database import Database
from hubbub.storage.errors import CountsError, StoreError
from hubbub.storage.reading import read_counts
from hubbub.storage.reports import Declared, MetricVersion
from hubbub.storage.schema import (
    counts as _counts,
    parameters as _parameters,
    segments as _segments,
)
from hubbub.storage.segments import DayGroup, Segments, SegmentSize, chunked, take_segments


class Counts:
    """The counts in one database."""

    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments

    async def add(
        self, batch_id: bytes, key: MetricVersion, day: dt.date, kept: KeptCounts, received: dt.date
    ) -> bool:
        """Add counts of forgotten reports durably; return whether they were new.

        `batch_id`: 16 bytes; counts whose id is stored already add nothing. `key` and `day`: those
        of the reports. `received`: the day from which on the id is kept for some time. Raises
        `StoreError` if the database refuses, or what is kept of this day is of other parameters.
        """
        async with self._database.begin(received) as transaction:
            if not await self._database.take(transaction, [batch_id]):
                return False
            await self._add(transaction.connection, DayGroup(key, day), kept)
        return True

    async def count_reports(self, before: dt.date) -> int:
        """Replace the reports from before a day by their day's counts; return how many there were.

        Readers, mergers and others who count may be at work: each sees every report exactly once,
        as itself or counted.

        Raises `StoreError` if reports, or counts that they are to be added to, aren't what their
        version's parameters say. What is sound was counted.
        """
        counted, faults = 0, []
        countable = _segments.c.day < before
        for group in await self._segments.groups(countable):
            try:
                counted += await self._count_day(group)
            except CountsError as error:
                faults.append(str(error))
            except RecordsError as error:
                key = group.key
                faults.append(
                    f"reports of {key.metric} version {key.version}, {group.day}: {error}"
                )
        if faults:
            raise StoreError("; ".join(sorted(faults)))
        return counted

    async def move(self, key: MetricVersion, day: dt.date, slices: Sequence[str], into: str) -> int:
        """Add a day's counts of some slices to another's; return how many reports they are of."""
        is_moved = (
            _counts.c.metric == key.metric,
            _counts.c.version == key.version,
            _counts.c.day == day,
            _counts.c.slice != into,
        )
        async with self._database.read() as connection:
            there = (await connection.scalars(sa.select(_counts.c.slice).where(*is_moved))).all()
        moved, row = 0, DayGroup(key._replace(slice=into), day)
        for text in set(there).intersection(slices):
            own = DayGroup(key._replace(slice=text), day)
            of_slice = own.selected(_counts)
            async with self._database.write() as connection:
                query = sa.select(_counts.c.counts).where(*of_slice).with_for_update()
                packed = await connection.scalar(query)
                if packed is not None:  # nobody else has moved it meanwhile
                    kept = await asyncio.to_thread(read_counts, bytes(packed), *own)
                    await connection.execute(sa.delete(_counts).where(*of_slice))
                    await self._add(connection, row, kept)
                    moved += kept.total
        return moved

    async def delete(self, *which: sa.ColumnElement[bool]) -> int:
        """Delete the rows that fulfil conditions; return the number of reports behind them."""
        query = sa.select(_counts.c.reports).where(*which).with_for_update()
        async with self._database.write() as connection:
            reports = (await connection.scalars(query)).all()
            await connection.execute(sa.delete(_counts).where(*which))
        return sum(reports)

    async def _count_day(self, group: DayGroup) -> int:
        """Count one day's reports, whatever others merge or count meanwhile."""
        params = await self._params(group.key)
        counted, complete = 0, False
        while not complete:
            complete = True
            for chunk in chunked(await self._segments.sizes(*group.selected())):
                reports = await self._count_chunk(group, chunk, params)
                complete = complete and reports is not None
                counted += reports or 0
        return counted

    async def _count_chunk(
        self, group: DayGroup, chunk: Sequence[SegmentSize], params: RapporParams
    ) -> int | None:
        """Replace segments by their counts; None if any of them is gone."""
        kept, found = keep_none(params), 0
        async with aclosing(self._segments.stream(chunk, group.day)) as stored:
            async for records in stored:
                kept += await asyncio.to_thread(keep_counts, records.data, params)
                found += 1
        if found < len(chunk):
            return None
        async with self._database.write() as connection:
            taken = await take_segments(connection, chunk, group)
            if len(taken) < len(chunk):
                await connection.rollback()
                return None
            await self._add(connection, group, kept)
        return kept.total

    async def _add(self, connection: AsyncConnection, row: DayGroup, kept: KeptCounts) -> None:
        # First inserted: a row that isn't there can't be locked.
        empty = {**row.values(), "reports": 0, "counts": b""}
        await connection.execute(self._database.insert_if_absent(_counts), [empty])
        own = row.selected(_counts)
        query = sa.select(_counts.c.counts).where(*own).with_for_update()
        packed = bytes((await connection.execute(query)).scalar_one())
        if packed:
            shape = kept.counts.bits.shape
            kept = kept + await asyncio.to_thread(read_counts, packed, *row, shape)
        values = {"reports": kept.total, "counts": await asyncio.to_thread(pack_counts, kept)}
        await connection.execute(sa.update(_counts).where(*own).values(values))

    async def _params(self, key: MetricVersion) -> RapporParams:
        """Return the parameters with which reports were made.

        Raises `RecordsError` if their version was never declared.
        """
        query = sa.select(_parameters.c.parameters).where(
            _parameters.c.metric == key.metric, _parameters.c.version == key.version
        )
        async with self._database.read() as connection:
            text = await connection.scalar(query)
        if text is None:
            raise RecordsError("must be of a declared version: its parameters aren't known")
        return Declared(*key[:2], json.loads(text)).params
