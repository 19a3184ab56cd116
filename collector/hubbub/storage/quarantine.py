"""Reports that no registry knows yet: of an unknown metric or version, or of another width.

They are kept as segments are, pooled by metric, version, width and day, shuffled, under random
keys, but in a table of their own that no reader of reports looks into. Once their version is
declared, `Quarantine.replay` makes segments of them. Invariants: whoever changes the table holds
its lock from the first look on, so its bounds are kept however many collectors write; each report
is in quarantine or in a segment, never in both or in neither; and a row holds the reports of all
batches of a transaction, never a batch as it came.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.protocol.dimensions import MOST_SLICES
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import COHORT_BYTES, RapporParams
from hubbub.protocol.records import Records, cohorts, joined, record_width, shuffled, table
from hubbub.storage.batch_ids import BatchIds, are_new
from hubbub.storage.database import Database, Row
from hubbub.storage.reports import (
    Declared,
    MetricVersion,
    NewBatch,
    QuarantineDay,
    QuarantineKey,
    Replayed,
)
from hubbub.storage.schema import quarantine as _quarantine
from hubbub.storage.segments import SMALL, Segments, pool_batches, segment_row

MOST_KEYS = 64
"""Metrics, versions and widths that are kept at a time: whoever sends chooses their names."""

_ROW_BYTES = 256
"""What a row counts besides its records, more than it takes: small ones are bounded, too."""

_REPORTS_AT_ONCE = 65_536  # 1 MiB at k = 128
_ROWS_AT_ONCE = 256
"""Bounds on what a transaction changes, so that appends don't wait for long."""

Screen = Callable[[MetricVersion, Records], NDArray[np.bool_]]
"""Says of each record whether it would be taken if it came today; cohorts are checked already."""

_KEY = tuple(_quarantine.c[name] for name in QuarantineKey._fields)
_GROUP = (*_KEY, _quarantine.c.day)


class Quarantine:
    """What one database keeps in quarantine."""

    def __init__(self, database: Database, ids: BatchIds, segments: Segments) -> None:
        self._database = database
        self._ids = ids
        self._segments = segments

    async def append(
        self, batches: Sequence[NewBatch], day: dt.date, most_bytes: int
    ) -> list[bool | None]:
        """Store batches with all that is to be kept apart, durably and together.

        `day`: the UTC day on which they came. `most_bytes`: bytes that the quarantine may take.
        Returns whether each was new; None: there was no room for what is to be kept apart, so
        nothing of it was stored, and its id wasn't taken. Raises `StoreError` as `Store.append`.
        """
        firsts = {batch.batch_id: batch for batch in reversed(batches)}
        async with self._ids.begin(day) as transaction:
            connection = transaction.connection
            await self._database.lock_quarantine(connection)
            room = await _room(connection, most_bytes)
            fitting = {batch_id for batch_id, batch in firsts.items() if room.take(batch)}
            # In order, so that collectors with the same ids don't deadlock.
            unseen = await self._ids.take(transaction, sorted(fitting)) if fitting else set()
            new = [firsts[batch_id] for batch_id in unseen]
            into = self._segments.insert_target(day, transaction.day)
            rows = await pool_batches(new, day)
            await self._database.insert_rows(connection, into, rows)
            await self._database.insert_rows(connection, _quarantine, _quarantine_rows(new, day))
        self._database.note_written(sum(_size(batch) for batch in new))
        flags = zip(batches, are_new(batches, unseen), strict=True)
        return [is_new if batch.batch_id in fitting else None for batch, is_new in flags]

    async def days(self) -> list[QuarantineDay]:
        """Return what is kept, by key and day, without reading the records."""
        sums = (sa.func.sum(_quarantine.c.reports), sa.func.count())
        query = sa.select(*_GROUP, *sums).group_by(*_GROUP)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return sorted(
            QuarantineDay(QuarantineKey(*row[:4]), row[4], int(row[5]), int(row[6])) for row in rows
        )

    async def merge(self, today: dt.date) -> int:
        """Pool and shuffle small rows of the same key and day; return how many were replaced.

        A small row that is left alone waits for others of its day, and after that is merged with
        the next larger one, as segments are.
        """
        replaced = 0
        is_small = _quarantine.c.reports < SMALL
        several = sa.and_(sa.func.count() > 1, sa.func.count(sa.case((is_small, 1))) > 0)
        for key, day, of_group in await self._groups(several):
            while True:
                async with self._locked() as connection:
                    small = await _choose(connection, *of_group, is_small)
                    if len(small) == 1 and day < today:
                        smallest = sa.select(_quarantine.c.quarantine_id, _quarantine.c.reports)
                        smallest = smallest.where(*of_group).order_by(_quarantine.c.reports)
                        rows = await connection.execute(smallest.limit(2))
                        small = [_Size(*row) for row in rows]
                    if len(small) < 2:
                        break
                    # The new one takes the space of the old ones.
                    records = await _read(connection, key, small)
                    await _delete(connection, small)
                    row = await asyncio.to_thread(_quarantine_row, key, day, records)
                    await self._database.insert_rows(connection, _quarantine, [row])
                self._database.note_written(2 * len(records.data))
                replaced += len(small)
        return replaced

    async def replay(
        self,
        expected: Mapping[MetricVersion, RapporParams],
        metrics: Mapping[str, Metric],
        screen: Screen,
    ) -> AsyncGenerator[Replayed, None]:
        """Make segments of the reports that fit their version by now; they keep their day.

        Each report is in quarantine or in a segment, once, whatever fails, and whoever else does
        the same meanwhile. Yields what was moved, once each transaction that did so is durable.
        What doesn't fit stays.

        `expected`: of the versions whose reports are taken. `metrics`: theirs. `screen`: given a
        version and records of existing cohorts, says which may be counted.
        """
        for key, day, of_group in await self._groups(sa.true()):
            params = expected.get(MetricVersion(key.metric, key.version))
            if params is None or key.width != record_width(params.k):
                continue
            told = metrics[key.metric].slice_as(key.slice)
            version = MetricVersion(key.metric, key.version, told)
            last = -1  # keys are random, and not negative
            while True:
                async with self._locked() as connection:
                    rows = await _choose(connection, *of_group, _quarantine.c.quarantine_id > last)
                    if not rows:
                        break
                    records = await _read(connection, key, rows)
                    fits = await asyncio.to_thread(_fits, version, records, params.m, screen)
                    last = rows[-1].quarantine_id
                    if not fits.any():
                        continue
                    await _delete(connection, rows)
                    good, rest = _select(records, fits), _select(records, ~fits)
                    moved = await asyncio.to_thread(segment_row, version, day, [good])
                    into = await self._segments.merge_target(connection, day)
                    await self._database.insert_rows(connection, into, [moved])
                    if rest.reports:
                        row = await asyncio.to_thread(_quarantine_row, key, day, rest)
                        await self._database.insert_rows(connection, _quarantine, [row])
                self._database.note_written(2 * len(records.data))
                yield Replayed(version, day, good)

    async def delete(self, *which: sa.ColumnElement[bool]) -> int:
        """Delete the rows that fulfil conditions; return the number of their reports."""
        deleted = 0
        while True:
            async with self._locked() as connection:
                rows = await _choose(connection, *which)
                await _delete(connection, rows)
            if not rows:
                return deleted
            reports = sum(row.reports for row in rows)
            self._database.note_written(_ROW_BYTES * len(rows) + reports)
            deleted += reports

    async def drop(self, before: dt.date) -> int:
        """Delete what came before a day; return how many reports there were."""
        return await self.delete(_quarantine.c.day < before)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.write() as connection:
            await self._database.lock_quarantine(connection)
            yield connection

    async def _groups(
        self, which: sa.ColumnElement[bool]
    ) -> list[tuple[QuarantineKey, dt.date, list[sa.ColumnElement[bool]]]]:
        """Return the keys and days that fulfil a condition, and how to select their rows."""
        query = sa.select(*_GROUP).group_by(*_GROUP).having(which)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [
            (
                QuarantineKey(*row[:4]),
                row.day,
                [column == value for column, value in zip(_GROUP, row, strict=True)],
            )
            for row in rows
        ]


def why_quarantined(key: QuarantineKey, declared: Iterable[Declared]) -> str:
    """Say what keeps reports in quarantine, given all that was ever declared."""
    versions = {it.version: record_width(it.params.k) for it in declared if it.metric == key.metric}
    if not versions:
        return "the metric was never declared"
    width = versions.get(key.version)
    if width is None:
        return "the version was never declared"
    if width != key.width:
        return f"the version has {width - COHORT_BYTES} bytes of bits"
    return "in a cohort that doesn't exist, improbable, or of a metric not in the registry"


@dataclass(slots=True)
class _Room:
    """What may still be put into quarantine; the lock is held."""

    keys: set[QuarantineKey]  # those that are there
    left: int  # bytes

    def take(self, batch: NewBatch) -> bool:
        """Return whether there is room for a batch, which is then taken."""
        keys = self.keys | batch.quarantined.keys()
        versions = {key._replace(slice="") for key in keys}
        if (
            _size(batch) > self.left
            or len(versions) > MOST_KEYS
            or len(keys) > MOST_KEYS * MOST_SLICES
        ):
            return False
        self.left -= _size(batch)
        self.keys = keys
        return True


async def _room(connection: AsyncConnection, most_bytes: int) -> _Room:
    sums = (sa.func.sum(_quarantine.c.reports), sa.func.count())
    query = sa.select(*_KEY, *sums).group_by(*_KEY)
    rows = (await connection.execute(query)).all()
    used = sum(int(reports) * row[2] + int(n) * _ROW_BYTES for *row, reports, n in rows)
    return _Room({QuarantineKey(*row[:4]) for row in rows}, most_bytes - used)


class _Size(NamedTuple):
    quarantine_id: int
    reports: int


def _size(batch: NewBatch) -> int:
    return sum(len(records.data) + _ROW_BYTES for records in batch.quarantined.values())


def _quarantine_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    pools: dict[QuarantineKey, list[Records]] = {}
    for batch in batches:
        for key, records in batch.quarantined.items():
            pools.setdefault(key, []).append(records)
    return [_quarantine_row(key, day, joined(pool)) for key, pool in pools.items()]


def _quarantine_row(key: QuarantineKey, day: dt.date, records: Records) -> Row:
    """Return a new row for records, shuffled."""
    return {
        "quarantine_id": secrets.randbits(63),
        **key._asdict(),
        "day": day,
        "reports": records.reports,
        "records": shuffled(records).data,
    }


async def _choose(connection: AsyncConnection, *which: sa.ColumnElement[bool]) -> list[_Size]:
    """Return rows that fulfil conditions in the order of their keys, as many as one may change."""
    query = sa.select(_quarantine.c.quarantine_id, _quarantine.c.reports).where(*which)
    query = query.order_by(_quarantine.c.quarantine_id).limit(_ROWS_AT_ONCE)
    chosen: list[_Size] = []
    reports = 0
    for row in (await connection.execute(query)).all():
        size = _Size(*row)
        reports += size.reports
        if chosen and reports > _REPORTS_AT_ONCE:
            break
        chosen.append(size)
    return chosen


async def _read(connection: AsyncConnection, key: QuarantineKey, rows: Sequence[_Size]) -> Records:
    ids = [row.quarantine_id for row in rows]
    query = sa.select(_quarantine.c.records).where(_quarantine.c.quarantine_id.in_(ids))
    return Records(key.width, b"".join((await connection.scalars(query)).all()))


async def _delete(connection: AsyncConnection, rows: Sequence[_Size]) -> None:
    ids = [row.quarantine_id for row in rows]
    await connection.execute(sa.delete(_quarantine).where(_quarantine.c.quarantine_id.in_(ids)))


def _fits(version: MetricVersion, records: Records, m: int, screen: Screen) -> NDArray[np.bool_]:
    fits: NDArray[Any] = cohorts(records) < m
    return fits & screen(version, records)


def _select(records: Records, which: NDArray[np.bool_]) -> Records:
    return Records(records.width, table(records)[which].tobytes())
