"""The life of segments: made of batches, merged with others, counted, deleted.

A segment holds records of several origins in an order drawn at random. Segments are read and
shuffled outside of any lock; then a short transaction replaces exactly these, or nothing if one of
them is gone by then. Invariants: whatever is written to the table of segments
comes from `segment_rows`, `segment_row` or `mixing`, shuffled by the operating system's randomness
and under a random key. At any moment each report is in exactly one segment or
in its day's counts, for every reader, whatever fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol.counts import keep_counts, keep_none
from hubbub.protocol.errors import RecordsError
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Records, joined, shuffled
from hubbub.storage.counts import (
    DayRow,
    RowChangedError,
    add_to_packed,
    read_packed,
    replace_row,
)
from hubbub.storage.errors import CountsError, StoreError
from hubbub.storage.interfaces import (
    Database,
    Declared,
    MetricVersion,
    NewBatch,
    Row,
    SegmentPrefix,
)
from hubbub.storage.schema import parameters as _parameters
from hubbub.storage.schema import segments as _segments
from hubbub.storage.sealed import SEALED

SMALL = 16_384
"""Segments with fewer reports than this are merged."""

_REPORTS_AT_ONCE = 65_536
_SEGMENTS_AT_ONCE = 1024
"""Bounds on what a transaction changes, so that appends don't wait for long."""

_CHUNKS_BETWEEN_TIDYING = 16
"""The space of old segments is then used for new ones, so that a merge needs little of its own."""

_SAMPLING_ATTEMPTS = 3
_IDS_A_STATEMENT = 500
_BYTES_OF_REPORT = 32  # about


def segment_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    """Pool the records of many batches, shuffled so that nothing shows which is whose."""
    pools: dict[MetricVersion, list[Records]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).append(records)
    return [_segment_row(key, day, pool) for key, pool in pools.items()]


def are_new(batches: Iterable[NewBatch], unseen: Iterable[bytes]) -> list[bool]:
    """Say of each batch whether it was new, given the ids that were; of equal ids the first is."""
    left = set(unseen)
    found = []
    for batch in batches:
        found.append(batch.batch_id in left)
        left.discard(batch.batch_id)
    return found


async def segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    """Return a new row for records of several origins, shuffled together, in a thread."""
    return await asyncio.to_thread(_segment_row, key, day, pool)


def _segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    records = shuffled(joined(pool))
    return {
        "segment_id": segment_key(is_mixed=False),
        "metric": key.metric,
        "version": key.version,
        "day": day,
        "reports": records.reports,
        "records": records.data,
    }


def segment_key(*, is_mixed: bool) -> int:
    """Draw a new key: a negative one for what was mixed with all others of its day."""
    key = secrets.randbits(63)
    return -1 - key if is_mixed else key


async def merge_segments(database: Database, small: int, today: dt.date | None = None) -> int:
    """Merge segments with fewer than `small` reports; return how many were replaced.

    A small segment that is left alone waits for others of its day. On days before `today` none may
    come any more, so it is merged with the next larger one.
    """
    is_small = _segments.c.reports < small
    replaced = 0
    for key, day, of_day in await groups_by_day(database, is_small, sa.func.count() > 1):
        chunks = _chunks(await sizes_of(database, *of_day, is_small))
        for number, chunk in enumerate(chunks, start=1):
            if len(chunk) > 1:
                replaced += await _merge(database, chunk, key, day)
            if number % _CHUNKS_BETWEEN_TIDYING == 0:
                await database.reclaim_space()
    if today is None:
        return replaced
    is_over = _segments.c.day < today
    one_of_several = (sa.func.count(sa.case((is_small, 1))) == 1, sa.func.count() > 1)
    for key, day, of_day in await groups_by_day(database, is_over, *one_of_several):
        sizes = await sizes_of(database, *of_day)
        pair = sorted(sizes, key=lambda size: size.reports)[:2]
        replaced += await _merge(database, pair, key, day)
    return replaced


async def groups_by_day(
    database: Database, which: sa.ColumnElement[bool], *together: sa.ColumnElement[bool]
) -> list[tuple[MetricVersion, dt.date, list[sa.ColumnElement[bool]]]]:
    """Return versions and days whose segments fulfil conditions; and how to select by them."""
    group = (_segments.c.metric, _segments.c.version, _segments.c.day)
    query = sa.select(*group).where(which).group_by(*group).having(sa.and_(sa.true(), *together))
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    groups = []
    for row in rows:
        of_group = [column == value for column, value in zip(group, row, strict=True)]
        groups.append((MetricVersion(row.metric, row.version), row.day, of_group))
    return groups


async def sample_segments(
    database: Database, reports: int, width: int, *which: sa.ColumnElement[bool]
) -> bytes:
    """Return so many records of the segments that fulfil conditions, each as likely as any other.

    A segment gives its first records, as many as its size is worth. They are in random order, so
    these are as good as any, and next to nothing of the others is read.
    """
    sizes = sa.select(_segments.c.segment_id, _segments.c.reports).where(*which)
    total = sa.select(sa.func.sum(_segments.c.reports)).where(*which)
    records: list[bytes] = []
    for _ in range(_SAMPLING_ATTEMPTS):
        heads = []
        async with database.read() as connection:
            if not (stored := int(await connection.scalar(total) or 0)):
                return b""
            wanted = min(reports, stored)
            # Every (stored / wanted)-th report, counted from a random one on.
            rest = secrets.randbelow(stored)
            async for segment_id, n in await connection.stream(sizes):
                share, rest = divmod(rest + n * wanted, stored)
                if share:
                    heads.append(SegmentPrefix(segment_id, share * width))
        records = await database.read_prefixes(heads)
        if len(records) == len(heads):
            break
        # Some were merged meanwhile, so their reports are in another segment.
    return b"".join(records)


async def delete_reports(database: Database, *which: sa.ColumnElement[bool]) -> int:
    """Delete the segments that fulfil conditions; return the number of their reports."""
    deleted, complete = 0, False
    while not complete:
        complete = True
        for chunk in _chunks(await sizes_of(database, *which)):
            ids = [size.segment_id for size in chunk]
            async with database.write() as connection:
                reports = await _delete_segments(connection, ids)
            database.note_written(_BYTES_OF_REPORT * sum(reports))
            deleted += sum(reports)
            # Some were merged meanwhile, so their reports are in another segment.
            complete = complete and len(reports) == len(ids)
    return deleted


async def sizes_of(database: Database, *which: sa.ColumnElement[bool]) -> list[Size]:
    """Return the segments that fulfil conditions, in the order of their random keys."""
    query = sa.select(_segments.c.segment_id, _segments.c.reports).where(*which)
    async with database.read() as connection:
        rows = (await connection.execute(query.order_by(_segments.c.segment_id))).all()
    return [Size(*row) for row in rows]


async def _merge(
    database: Database, chunk: Sequence[Size], key: MetricVersion, day: dt.date
) -> int:
    """Replace segments by one; return how many were replaced."""

    async def pool(records: Sequence[Records]) -> list[Row]:
        return [await segment_row(key, day, records)]

    return await replace_segments(database, [size.segment_id for size in chunk], day, pool)


async def replace_segments(
    database: Database,
    ids: Sequence[int],
    day: dt.date,
    pool: Callable[[Sequence[Records]], Awaitable[list[Row]]],
    table: sa.Table | None = None,
) -> int:
    """Replace segments of a day by others; do nothing if any of them is gone or being replaced.

    Parameters
    ----------
    pool : coroutine function
        Makes new rows of all records of these segments.
    table : sqlalchemy.Table, optional
        Where they go; if not where merged segments do.

    Returns
    -------
    int
        How many segments were replaced.
    """
    stored: list[Records] = []
    of_day = _segments.c.day == day
    async with database.read() as connection:
        for some in _pieces(ids):
            query = sa.select(_segments.c.reports, _segments.c.records)
            query = query.where(of_day, _segments.c.segment_id.in_(some))
            for reports, data in await connection.execute(query):
                stored.append(Records(len(data) // reports, data))
    if len(stored) < len(ids):
        return 0
    rows = await pool(stored)
    async with database.write() as connection:
        if not await _lock(connection, ids, of_day, skip_locked=True):
            return 0
        # First deleted: the new segments then take the space of the old ones.
        await _delete_segments(connection, ids, of_day)
        if table is None:
            table = await database.table_of_merged(connection, day)
        await connection.run_sync(database.insert_rows, table, rows)
    database.note_written(2 * sum(len(row["records"]) for row in rows))
    return len(ids)


async def count_reports(database: Database, before: dt.date) -> int:
    """Replace the reports from before a day by their counts; return how many there were.

    A chunk of segments is counted outside of any lock. Then one transaction adds the counts to
    those of its day and deletes exactly these segments, or does nothing if one of them is gone.
    Sealed records, which can't be counted, stay.

    Raises
    ------
    StoreError
        If reports, or counts that they are to be added to, aren't what their version's parameters
        say. What is sound was counted.
    """
    counted, faults = 0, []
    countable = sa.and_(_segments.c.day < before, _segments.c.metric != SEALED)
    for key, day, of_day in await groups_by_day(database, countable, sa.true()):
        try:
            counted += await _count_day(database, key, day, of_day)
        except CountsError as error:
            faults.append(str(error))
        except RecordsError as error:
            faults.append(f"reports of {key.metric} version {key.version}, {day}: {error}")
    if faults:
        raise StoreError("; ".join(sorted(faults)))
    return counted


async def _count_day(
    database: Database,
    key: MetricVersion,
    day: dt.date,
    of_day: Sequence[sa.ColumnElement[bool]],
) -> int:
    """Count one day's reports, whatever others merge or count meanwhile."""
    params = await _params(database, key)
    counted, complete = 0, False
    while not complete:
        complete = True
        chunks = _chunks(await sizes_of(database, *of_day))
        for number, chunk in enumerate(chunks, start=1):
            reports = await _count_chunk(database, chunk, key, day, params)
            complete = complete and reports is not None
            counted += reports or 0
            if number % _CHUNKS_BETWEEN_TIDYING == 0:
                await database.reclaim_space()
    return counted


async def _params(database: Database, key: MetricVersion) -> RapporParams:
    query = sa.select(_parameters.c.parameters).where(
        _parameters.c.metric == key.metric, _parameters.c.version == key.version
    )
    async with database.read() as connection:
        text = await connection.scalar(query)
    if text is None:
        raise RecordsError("must be of a declared version: its parameters aren't known")
    return Declared(*key, json.loads(text)).params


async def _count_chunk(
    database: Database,
    chunk: Sequence[Size],
    key: MetricVersion,
    day: dt.date,
    params: RapporParams,
) -> int | None:
    """Replace segments by their counts; None if any of them is gone."""
    ids = [size.segment_id for size in chunk]
    of_day = _segments.c.day == day
    kept, found = keep_none(params), 0
    async with database.read() as connection:
        for some in _pieces(ids):
            query = sa.select(_segments.c.records)
            query = query.where(of_day, _segments.c.segment_id.in_(some))
            # One after the other, so that memory holds one segment.
            options = {"max_row_buffer": 1}
            async for (records,) in await connection.stream(query, execution_options=options):
                kept += await asyncio.to_thread(keep_counts, records, params)
                found += 1
    if found < len(ids):
        return None
    row = DayRow(key, day)
    while True:
        packed = await read_packed(database, row)
        values = await asyncio.to_thread(add_to_packed, packed, row, kept)
        with contextlib.suppress(RowChangedError):
            async with database.write() as connection:
                if not await _lock(connection, ids, of_day, skip_locked=False):
                    return None
                await _delete_segments(connection, ids, of_day)
                await connection.run_sync(
                    replace_row, database.insert_if_absent, row, packed, values
                )
            break
    database.note_written(len(packed) + _BYTES_OF_REPORT * kept.total)
    return kept.total


class Size(NamedTuple):
    """A segment's key, and how many reports it has."""

    segment_id: int
    reports: int


def _chunks(sizes: Iterable[Size]) -> Iterator[list[Size]]:
    """Split segments into chunks that one transaction may change."""
    chunk: list[Size] = []
    reports = 0
    for size in sizes:
        if chunk and (reports + size.reports > _REPORTS_AT_ONCE or len(chunk) == _SEGMENTS_AT_ONCE):
            yield chunk
            chunk, reports = [], 0
        chunk.append(size)
        reports += size.reports
    if chunk:
        yield chunk


def _pieces(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Split ids into pieces that one statement may name."""
    return (ids[start : start + _IDS_A_STATEMENT] for start in range(0, len(ids), _IDS_A_STATEMENT))


async def _lock(
    connection: AsyncConnection,
    ids: Sequence[int],
    *which: sa.ColumnElement[bool],
    skip_locked: bool,
) -> bool:
    """Lock segments until the transaction ends; return whether all are there.

    Parameters
    ----------
    which : conditions
        That they are known to fulfil, so that they are looked for nowhere else.
    skip_locked : bool
        Whether to take one that another transaction has locked as gone, or to wait for it.
    """
    locked = 0
    for some in _pieces(ids):
        query = sa.select(_segments.c.segment_id).where(_segments.c.segment_id.in_(some), *which)
        # In order, so that two who wait don't deadlock.
        query = query.order_by(_segments.c.segment_id).with_for_update(skip_locked=skip_locked)
        locked += len((await connection.scalars(query)).all())
    return locked == len(ids)


async def _delete_segments(
    connection: AsyncConnection, ids: Sequence[int], *which: sa.ColumnElement[bool]
) -> list[int]:
    """Delete the segments that are still there; return the number of reports of each."""
    reports: list[int] = []
    for some in _pieces(ids):
        these = sa.and_(_segments.c.segment_id.in_(some), *which)
        # Locked in order, so that two deletions don't deadlock.
        query = sa.select(_segments.c.reports).where(these).order_by(_segments.c.segment_id)
        reports.extend(await connection.scalars(query.with_for_update()))
        await connection.execute(sa.delete(_segments).where(these))
    return reports
