"""Closed days are reshuffled, so that no segment tells when its reports came, or which together.

The segments of a busy day are each of some minute. Someone who sends their own reports all day
knows the minute of each segment that has them, and so of everybody's reports beside those. Once the
day is over, groups of segments that are drawn at random are joined, shuffled and divided anew, and
again, until each report may be in any of them. Invariants: a segment that was mixed has a negative
key, any other hasn't, and nothing else is remembered; it has `REPORTS_OF_MIXED` or more, or all
there are, so that merging leaves it alone; and what comes later is mixed with what is there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from hubbub.protocol.records import Records, joined, shuffled
from hubbub.storage.database import Database, Row
from hubbub.storage.schema import segments as _segments
from hubbub.storage.segments import SMALL, SegmentGroup, Segments, SegmentSize, row_of

REPORTS_OF_MIXED = SMALL
"""The least that a mixed segment has, unless all together are fewer."""

_SECONDS_A_RUN = 30.0
"""Time after which no other day is begun, so that one that ended meanwhile isn't kept waiting."""

_LEAST_AT_ONCE = 4
"""Of a day that is larger a group has more than half as many segments: two, so that they do mix."""

_GROUPS_BETWEEN_TIDYING = 16
"""As `segments.CHUNKS_BETWEEN_TIDYING`: old segments take up to 16 groups' space besides."""

_is_mixed = _segments.c.segment_id < 0
_is_unmixed = _segments.c.segment_id >= 0


async def reshuffle_closed_days(
    database: Database,
    segments: Segments,
    today: dt.date,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Mix the reports of days before `today` that aren't yet; return how many.

    The youngest days come first. After some time the rest is left to the next run, and nothing is
    done if another process mixes. Readers, mergers and others may be at work: each sees every
    report exactly once.

    `is_stopping`: asked between transactions whether to leave the rest.
    """
    mixed, deadline = 0, time.monotonic() + _SECONDS_A_RUN
    async with database.alone("reshuffle") as is_alone:
        if not is_alone():
            return 0
        days = await segments.groups(_is_unmixed & (_segments.c.day < today))
        for day in sorted(days, key=lambda day: day.day, reverse=True):
            if is_stopping() or not is_alone() or time.monotonic() > deadline:
                break
            run = _Run(database, segments, day, lambda: is_stopping() or not is_alone())
            mixed += await run.mix(await segments.reshuffle_target(day.day, today))
        await segments.drop_empty(today)
    return mixed


async def unmixed_days(segments: Segments, today: dt.date) -> int:
    """Return how many days before `today` have reports that aren't mixed yet."""
    groups = await segments.groups(_is_unmixed & (_segments.c.day < today))
    return len({group.day for group in groups})


class _Run(NamedTuple):
    """The mixing of one metric's version and day."""

    database: Database
    segments: Segments
    day: SegmentGroup
    is_ending: Callable[[], bool]

    async def mix(self, table: sa.Table) -> int:
        """Mix what isn't mixed yet of a day, in as many rounds as it takes."""
        sizes = await self._sizes(_is_unmixed)
        if not sizes:  # counted or deleted meanwhile
            return 0
        width = await self._width(sizes[0])
        most = max(self.database.bytes_at_once // width, _LEAST_AT_ONCE * REPORTS_OF_MIXED)
        if (unmixed := _reports(sizes)) < most:
            # Of late reports alone it could be told that they were late.
            there = await self._sizes(_is_mixed)
            await self._divide_anew([*sizes, *_sampled(there, most - unmixed)], table)
            return unmixed
        done = 0
        # Of what a group has, not of what it may: a little more than one may have are two of half.
        at_once = max(2, unmixed // -(-unmixed // most) // REPORTS_OF_MIXED)
        rounds = rounds_needed(unmixed // REPORTS_OF_MIXED, at_once)
        for left in range(rounds - 1, -1, -1):
            # In the order of keys that were drawn in the round before: each group is a random one.
            sizes = await self._sizes(_is_unmixed)
            for number, group in enumerate(_divide(sizes, most), start=1):
                if self.is_ending():
                    return done
                replaced = await self._divide_anew(group, None if left else table)
                done += 0 if left else replaced
                if number % _GROUPS_BETWEEN_TIDYING == 0:
                    await self.database.reclaim_space()
        return done

    async def _sizes(self, which: sa.ColumnElement[bool]) -> list[SegmentSize]:
        return await self.segments.sizes(*self.day.selected, which)

    async def _divide_anew(self, group: Sequence[SegmentSize], table: sa.Table | None) -> int:
        """Join, shuffle and divide a group; return its reports, or 0 if one segment is gone.

        `table`: where it is mixed for good; None: it will be mixed again.
        """
        day = self.day.day
        records = await self.segments.read_whole(group, day)
        if records is None:
            return 0
        rows = await asyncio.to_thread(_divided, self.day, records, is_mixed=table is not None)
        replaced = await self.segments.replace(group, day, rows, table)
        return _reports(group) if replaced else 0

    async def _width(self, size: SegmentSize) -> int:
        query = sa.select(sa.func.length(_segments.c.records)).where(
            _segments.c.segment_id == size.segment_id
        )
        async with self.database.read() as connection:
            length = await connection.scalar(query)
        return max(1, int(length or 0) // size.reports)


def rounds_needed(segments: int, at_once: int) -> int:
    """Return after how many rounds a report may be in any segment.

    Of S segments, G are mixed at once. After a round two reports that came in one segment are in
    one with probability p' = p / G + (1 - p) (G - 1) / (S - 1) / G, which after r rounds is about
    G^-r + 1/S, where 1/S is that of any two reports.
    """
    rounds, reached = 1, at_once
    while reached < segments:
        rounds, reached = rounds + 1, reached * at_once
    return rounds


def _divided(day: SegmentGroup, pool: Sequence[Records], *, is_mixed: bool) -> list[Row]:
    """Return new rows for the records of a group, each as likely in one row as in another."""
    records = shuffled(joined(pool))
    parts = max(1, records.reports // REPORTS_OF_MIXED)
    rows = []
    for part in range(parts):
        start, end = (records.reports * p // parts for p in (part, part + 1))
        some = Records(records.width, records.data[start * records.width : end * records.width])
        rows.append(row_of(day.key, day.day, some, is_mixed=is_mixed))
    return rows


def _divide(sizes: Sequence[SegmentSize], most: int) -> Iterator[list[SegmentSize]]:
    """Divide segments into groups of about `most` reports, none much smaller than others."""
    total, seen = _reports(sizes), 0
    groups = -(-total // most)
    group: list[SegmentSize] = []
    for size in sizes:
        group.append(size)
        before, seen = seen, seen + size.reports
        if before * groups // total < seen * groups // total:
            yield group
            group = []
    if group:
        yield group


def _sampled(sizes: Sequence[SegmentSize], reports: int) -> list[SegmentSize]:
    """Return segments, drawn at random, that have so many reports together, or fewer."""
    drawn = []
    for size in secrets.SystemRandom().sample(sizes, len(sizes)):
        reports -= size.reports
        if reports < 0:
            break
        drawn.append(size)
    return drawn


def _reports(sizes: Sequence[SegmentSize]) -> int:
    return sum(size.reports for size in sizes)
