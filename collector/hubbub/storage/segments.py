"""Segments: made of batches, merged with others, mixed once their day is over, counted, deleted.

A segment holds records of several origins in an order drawn at random. Segments are read and
shuffled, or counted, outside of any lock; then a short transaction replaces exactly these, or
nothing if one of them is gone by then. One row has the counts of a day's forgotten reports of a
metric's version and slice. Invariants: whatever is written to the table of segments comes from
`segment_row` or `_rows`, shuffled by the operating system's randomness and under a random
key. At any moment each report is in exactly one segment or in its day's counts, for every reader,
whatever fails. Whoever locks a row of counts has locked segments or ids before, so that no two wait
for each other.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from itertools import pairwise
from typing import IO, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol import (
    KeptCounts,
    RapporParams,
    Records,
    RecordsError,
    keep_counts,
    keep_none,
    pack_counts,
)
from hubbub.storage.database import Database, Row, pieces, row_of, segment_row
from hubbub.storage.errors import CountsError, StoreError
from hubbub.storage.reading import read_counts
from hubbub.storage.reports import Declared, MetricVersion
from hubbub.storage.schema import counts, parameters, segments
from hubbub.storage.shuffling import BLOCK_BYTES, BulkShuffle, temporary_file

SMALL = 16_384
"""Segments with fewer reports than this are merged.

At k = 128 that many are 288 kB, so that a day of a million reports is some sixty rows.
"""

_REPORTS_AT_ONCE = 65_536  # 1 MiB at k = 128
_SEGMENTS_AT_ONCE = 1024
"""Bounds on what a transaction changes, so that appends don't wait for long: four segments that
were nearly large enough, or a day's single ones by the thousand.
"""

_ROWS_AT_ONCE = 16  # 5 MB at k = 128

_IDS_A_STATEMENT = 500
"""SQLite takes 999 parameters of a statement in its oldest versions."""


_is_unmixed = segments.c.segment_id >= 0
"""A segment that was mixed has a negative key, any other hasn't, and nothing else is remembered."""


class SegmentSize(NamedTuple):
    """A segment's key, and how many reports it has."""

    segment_id: int
    reports: int


class DayGroup(NamedTuple):
    """The reports of a metric's version, slice and day."""

    key: MetricVersion
    day: dt.date

    def values(self) -> dict[str, object]:
        """Return the columns that their rows share."""
        return {**self.key._asdict(), "day": self.day}

    def selected(self, table: sa.Table = segments) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that their rows fulfil, and no others."""
        return [table.c[name] == value for name, value in self.values().items()]


class Segments:
    """The segments of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def merge(self, small: int = SMALL) -> int:
        """Pool and shuffle segments with fewer than `small` reports of the same version and day.

        What a quiet hour stored is then mixed with what came before and after. Readers and other
        mergers may be at work: each sees every report exactly once. A small segment that is left
        alone waits for others of its day, or for the day's end. Returns the number of segments that
        were replaced.
        """
        is_small = segments.c.reports < small
        replaced = 0
        for group in await self.groups(is_small, sa.func.count() > 1):
            for chunk in chunked(await self.sizes(*group.selected(), is_small)):
                if len(chunk) > 1:
                    replaced += await self._merge(group, chunk)
        return replaced

    async def _merge(self, group: DayGroup, chunk: Sequence[SegmentSize]) -> int:
        records = await self.read_whole(chunk, group.day)
        if records is None:
            return 0
        rows = await asyncio.to_thread(segment_row, group.key, group.day, records)
        return len(chunk) if await self.replace(chunk, group, iter([[rows]])) else 0

    async def mix(self, today: dt.date, is_stopping: Callable[[], bool]) -> int:
        """Mix the reports of days before `today` that aren't yet, youngest first; return how many.

        The segments of a busy day are each of some minute. Someone who sends their own reports all
        day knows the minute of each segment that has them, and so of everybody's reports in it.
        Once the day is over, all its segments of a metric's version and slice are replaced, in one
        transaction, by others into which the reports are dealt at random; what comes later is mixed
        with all that is there, since late reports alone would be known as late.

        Readers, mergers and other mixers may be at work: each sees every report exactly once.

        `is_stopping`: asked between transactions whether to leave the rest to the next call.
        """
        mixed = 0
        groups = await self.groups(_is_unmixed & (segments.c.day < today))
        for group in sorted(groups, key=lambda it: it.day, reverse=True):
            if is_stopping():
                break
            mixed += await self._mix(group)
        return mixed

    async def unmixed_days(self, today: dt.date) -> int:
        """Return how many days before `today` have reports that aren't mixed yet."""
        groups = await self.groups(_is_unmixed & (segments.c.day < today))
        return len({group.day for group in groups})

    async def _mix(self, group: DayGroup) -> int:
        """Rewrite a group; return how many reports weren't mixed, 0 if others replaced some."""
        sizes = await self.sizes(*group.selected())
        reports = sum(size.reports for size in sizes)
        with ExitStack() as files:
            shuffle: BulkShuffle | None = None
            found = 0
            async with aclosing(self.stream(sizes, group.day)) as stored:
                async for records in stored:
                    if shuffle is None:
                        width, folder = records.width, self._database.folder
                        shuffle = BulkShuffle(width, reports, folder, BLOCK_BYTES)
                        files.enter_context(shuffle)
                    await asyncio.to_thread(shuffle.add, records.data)
                    found += 1
            if shuffle is None or found < len(sizes):  # counted, deleted or merged meanwhile
                return 0
            # Made before the transaction, for which all who write to an SQLite file wait.
            made = files.enter_context(temporary_file(2 * BLOCK_BYTES, self._database.folder))
            await asyncio.to_thread(_write, shuffle, made)
            rows = _rows(group, made, reports, width)
            if not await self.replace(sizes, group, rows, segments):
                return 0
        return sum(size.reports for size in sizes if size.segment_id >= 0)

    async def delete(self, *which: sa.ColumnElement[bool]) -> int:
        """Delete the segments that fulfil conditions; return the number of their reports."""
        deleted, complete = 0, False
        while not complete:
            complete = True
            for chunk in chunked(await self.sizes(*which)):
                async with self._database.write() as connection:
                    reports = await take_segments(connection, chunk)
                deleted += sum(reports)
                # Some were merged meanwhile, so their reports are in another segment.
                complete = complete and len(reports) == len(chunk)
        return deleted

    async def move(self, key: MetricVersion, day: dt.date, slices: Sequence[str], into: str) -> int:
        """Move a day's reports from some slices to another; return how many they were.

        Their segments stay as they are: merging mixes them with those that are there.
        """
        moved = 0
        for some in pieces(list(slices), _IDS_A_STATEMENT):
            which = (
                segments.c.metric == key.metric,
                segments.c.version == key.version,
                segments.c.day == day,
                segments.c.slice.in_(some),
            )
            # In the order in which all others lock, so that no two deadlock.
            rows = sa.select(segments.c.reports).where(*which).order_by(segments.c.segment_id)
            async with self._database.write() as connection:
                reports = (await connection.scalars(rows.with_for_update())).all()
                await connection.execute(sa.update(segments).where(*which).values(slice=into))
            moved += sum(reports)
        return moved

    async def groups(
        self, which: sa.ColumnElement[bool], *together: sa.ColumnElement[bool]
    ) -> list[DayGroup]:
        """Return versions and days that have segments which fulfil conditions.

        `which`: that each of these segments fulfils. `*together`: that those of a version and day
        fulfil together.
        """
        group = (segments.c.metric, segments.c.version, segments.c.slice, segments.c.day)
        query = (
            sa.select(*group).where(which).group_by(*group).having(sa.and_(sa.true(), *together))
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [DayGroup(MetricVersion(*row[:3]), row.day) for row in rows]

    async def sizes(self, *which: sa.ColumnElement[bool]) -> list[SegmentSize]:
        """Return the segments that fulfil conditions, in the order of their random keys."""
        query = sa.select(segments.c.segment_id, segments.c.reports).where(*which)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(segments.c.segment_id))).all()
        return [SegmentSize(*row) for row in rows]

    async def stream(
        self, chunk: Collection[SegmentSize], day: dt.date
    ) -> AsyncGenerator[Records, None]:
        """Yield the records of those segments of a day that are there, one segment at a time."""
        async with self._database.read() as connection:
            for some in pieces([size.segment_id for size in chunk], _IDS_A_STATEMENT):
                query = sa.select(segments.c.reports, segments.c.records)
                query = query.where(segments.c.segment_id.in_(some), segments.c.day == day)
                # So that memory holds one segment, and not the day.
                options = {"max_row_buffer": 1}
                async for reports, data in await connection.stream(
                    query, execution_options=options
                ):
                    yield Records(len(data) // reports, data)

    async def read_whole(
        self, chunk: Collection[SegmentSize], day: dt.date
    ) -> list[Records] | None:
        """Return the records of segments of a day; None if any of them is gone."""
        stored = [records async for records in self.stream(chunk, day)]
        return stored if len(stored) == len(chunk) else None

    async def replace(
        self,
        chunk: Collection[SegmentSize],
        group: DayGroup,
        rows: Iterator[Sequence[Row]],
        into: sa.Table | None = None,
    ) -> bool:
        """Replace segments of a group; do nothing if any of them is gone or being replaced.

        `rows`: new segments with all of their records, made piece by piece in a thread. `into`:
        where these go; if not where merged segments do. Returns whether they were replaced.
        """
        async with self._database.write() as connection:
            # First deleted: the new segments then take the space of the old ones. In their slice:
            # upkeep may have moved them to another since they were read.
            taken = await take_segments(connection, chunk, group, skip_locked=True)
            if len(taken) < len(chunk):
                await connection.rollback()
                return False
            if into is None:
                into = await self._database.merge_target(connection, group.day)
            while (some := await asyncio.to_thread(next, rows, None)) is not None:
                await self._database.insert_rows(connection, into, some)
        return True


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
        countable = segments.c.day < before
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
            counts.c.metric == key.metric,
            counts.c.version == key.version,
            counts.c.day == day,
            counts.c.slice != into,
        )
        async with self._database.read() as connection:
            there = (await connection.scalars(sa.select(counts.c.slice).where(*is_moved))).all()
        moved, row = 0, DayGroup(key._replace(slice=into), day)
        for text in set(there).intersection(slices):
            own = DayGroup(key._replace(slice=text), day)
            of_slice = own.selected(counts)
            async with self._database.write() as connection:
                query = sa.select(counts.c.counts).where(*of_slice).with_for_update()
                packed = await connection.scalar(query)
                if packed is not None:  # nobody else has moved it meanwhile
                    kept = await asyncio.to_thread(read_counts, bytes(packed), *own)
                    await connection.execute(sa.delete(counts).where(*of_slice))
                    await self._add(connection, row, kept)
                    moved += kept.total
        return moved

    async def delete(self, *which: sa.ColumnElement[bool]) -> int:
        """Delete the rows that fulfil conditions; return the number of reports behind them."""
        query = sa.select(counts.c.reports).where(*which).with_for_update()
        async with self._database.write() as connection:
            reports = (await connection.scalars(query)).all()
            await connection.execute(sa.delete(counts).where(*which))
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
        await connection.execute(self._database.insert_if_absent(counts), [empty])
        own = row.selected(counts)
        query = sa.select(counts.c.counts).where(*own).with_for_update()
        packed = bytes((await connection.execute(query)).scalar_one())
        if packed:
            shape = kept.counts.bits.shape
            kept = kept + await asyncio.to_thread(read_counts, packed, *row, shape)
        values = {"reports": kept.total, "counts": await asyncio.to_thread(pack_counts, kept)}
        await connection.execute(sa.update(counts).where(*own).values(values))

    async def _params(self, key: MetricVersion) -> RapporParams:
        """Return the parameters with which reports were made.

        Raises `RecordsError` if their version was never declared.
        """
        query = sa.select(parameters.c.parameters).where(
            parameters.c.metric == key.metric, parameters.c.version == key.version
        )
        async with self._database.read() as connection:
            text = await connection.scalar(query)
        if text is None:
            raise RecordsError("must be of a declared version: its parameters aren't known")
        return Declared(*key[:2], json.loads(text)).params


def chunked(sizes: Iterable[SegmentSize]) -> Iterator[list[SegmentSize]]:
    """Split segments into chunks that one transaction may change."""
    chunk: list[SegmentSize] = []
    reports = 0
    for size in sizes:
        if chunk and (reports + size.reports > _REPORTS_AT_ONCE or len(chunk) == _SEGMENTS_AT_ONCE):
            yield chunk
            chunk, reports = [], 0
        chunk.append(size)
        reports += size.reports
    if chunk:
        yield chunk


async def take_segments(
    connection: AsyncConnection,
    chunk: Collection[SegmentSize],
    group: DayGroup | None = None,
    *,
    skip_locked: bool = False,
) -> list[int]:
    """Delete those segments that are there; return the reports of each.

    `group`: theirs; then this ends as soon as one is gone, or in another slice, and the transaction
    must be rolled back. `skip_locked`: whether to take one that another transaction has locked as
    gone, or to wait for it.
    """
    of_group = (segments.c.day == group.day, segments.c.slice == group.key.slice) if group else ()
    reports: list[int] = []
    for some in pieces([size.segment_id for size in chunk], _IDS_A_STATEMENT):
        which = (segments.c.segment_id.in_(some), *of_group)
        # Locked in order, so that two who wait don't deadlock.
        query = sa.select(segments.c.reports).where(*which).order_by(segments.c.segment_id)
        locking = query.with_for_update(skip_locked=skip_locked)
        found = (await connection.scalars(locking)).all()
        if group and len(found) < len(some):
            break
        reports.extend(found)
        await connection.execute(sa.delete(segments).where(*which))
    return reports


def _write(shuffle: BulkShuffle, made: IO[bytes]) -> None:
    for block in shuffle.blocks():
        made.write(block.data)  # one by one: `writelines` would keep all in memory
    made.seek(0)


def _rows(group: DayGroup, made: IO[bytes], reports: int, width: int) -> Iterator[list[Row]]:
    """Yield new rows for the records in a file, each of `SMALL` reports or more if possible."""
    parts = max(1, reports // SMALL)
    for first in range(0, parts, _ROWS_AT_ONCE):
        edges = range(first, min(first + _ROWS_AT_ONCE, parts) + 1)
        numbers = (b - a for a, b in pairwise(reports * edge // parts for edge in edges))
        records = (Records(width, made.read(number * width)) for number in numbers)
        yield [row_of(group.key, group.day, some, is_mixed=True) for some in records]
