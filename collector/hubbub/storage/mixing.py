"""A day that is over: its reports are mixed, so that no segment tells when they came, or together.

The segments of a busy day are each of some minute. Who sends reports of his own all day knows the
minute of each segment that has them, and so of everybody's reports beside his. Once the day is
over, groups of segments that are drawn at random are joined, shuffled and divided anew, and again,
until each report may be in any of them. Invariants: a segment that was mixed has a negative key,
any other hasn't, and nothing else is remembered; it has `REPORTS_OF_MIXED` or more, or all there
are, so that merging leaves it alone; and what comes later is mixed with what is there.
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
from hubbub.storage.interfaces import Database, MetricVersion, Row
from hubbub.storage.schema import segments as _segments
from hubbub.storage.segments import (
    SMALL,
    Size,
    groups_by_day,
    replace_segments,
    segment_key,
    sizes_of,
)

REPORTS_OF_MIXED = SMALL
"""The least that a mixed segment has, unless all together are fewer."""

_SECONDS_A_RUN = 30.0
"""Time after which no other day is begun, so that one that ended meanwhile isn't kept waiting."""

_LEAST_AT_ONCE = 4
"""Of a day that is larger a group has more than half as many segments: two, so that they do mix."""

_GROUPS_BETWEEN_TIDYING = 16
_is_mixed = _segments.c.segment_id < 0
_is_unmixed = _segments.c.segment_id >= 0


class _Day(NamedTuple):
    """The reports of a metric's version and day."""

    key: MetricVersion
    day: dt.date
    selected: list[sa.ColumnElement[bool]]


async def reshuffle_closed_days(
    database: Database, today: dt.date, is_stopping: Callable[[], bool] = lambda: False
) -> int:
    """Mix the reports of days before `today` that aren't yet; return how many.

    The youngest days come first. After some time the rest is left to the next run, and nothing is
    done if another process mixes. Readers, mergers and others may be at work: each sees every
    report exactly once.
    """
    mixed, deadline = 0, time.monotonic() + _SECONDS_A_RUN
    async with database.mixing_alone() as is_alone:
        if not is_alone():
            return 0

        def is_ending() -> bool:
            return is_stopping() or not is_alone()

        days = await groups_by_day(database, _is_unmixed & (_segments.c.day < today))
        for day in sorted((_Day(*group) for group in days), key=lambda day: day.day, reverse=True):
            if is_ending() or time.monotonic() > deadline:
                break
            table = await database.table_of_mixed(day.day, today)
            mixed += await _mix_day(database, day, table, is_ending)
        await database.drop_first_tables(today)
    return mixed


async def unmixed_days(database: Database, today: dt.date) -> int:
    """Return how many days before `today` have reports that aren't mixed yet."""
    groups = await groups_by_day(database, _is_unmixed & (_segments.c.day < today))
    return len({day for _, day, _ in groups})


async def _mix_day(
    database: Database, day: _Day, table: sa.Table, is_ending: Callable[[], bool]
) -> int:
    """Mix what isn't mixed yet of a day, in as many rounds as it takes."""
    sizes = await sizes_of(database, *day.selected, _is_unmixed)
    if not sizes:  # counted or deleted meanwhile
        return 0
    width = await _width(database, sizes[0])
    most = max(database.bytes_at_once // width, _LEAST_AT_ONCE * REPORTS_OF_MIXED)
    if (unmixed := _reports(sizes)) < most:
        # Of late reports alone it could be told that they were late.
        there = await sizes_of(database, *day.selected, _is_mixed)
        await _replace(database, [*sizes, *_sampled(there, most - unmixed)], day, table)
        return unmixed
    done = 0
    # Of what a group has, not of what it may: a little more than one may have are two of half.
    at_once = max(2, unmixed // -(-unmixed // most) // REPORTS_OF_MIXED)
    rounds = rounds_needed(unmixed // REPORTS_OF_MIXED, at_once)
    for left in range(rounds - 1, -1, -1):
        # In the order of keys that were drawn in the round before: each group is a random one.
        sizes = await sizes_of(database, *day.selected, _is_unmixed)
        for number, group in enumerate(_divide(sizes, most), start=1):
            if is_ending():
                return done
            replaced = await _replace(database, group, day, None if left else table)
            done += 0 if left else replaced
            if number % _GROUPS_BETWEEN_TIDYING == 0:
                await database.reclaim_space()
    return done


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


async def _replace(
    database: Database, group: Sequence[Size], day: _Day, table: sa.Table | None
) -> int:
    """Join, shuffle and divide a group; return its reports, or 0 if one of the segments is gone.

    Parameters
    ----------
    table : sqlalchemy.Table or None
        Where it is mixed for good; None: it will be mixed again.
    """

    async def divide(pool: Sequence[Records]) -> list[Row]:
        return await asyncio.to_thread(_divided, day.key, day.day, pool, is_mixed=table is not None)

    ids = [size.segment_id for size in group]
    replaced = await replace_segments(database, ids, day.day, divide, table)
    return _reports(group) if replaced else 0


def _divided(
    key: MetricVersion, day: dt.date, pool: Sequence[Records], *, is_mixed: bool
) -> list[Row]:
    """Return new rows for the records of a group, each as likely in one row as in another."""
    records = shuffled(joined(pool))
    parts = max(1, records.reports // REPORTS_OF_MIXED)
    rows = []
    for part in range(parts):
        start, end = (records.reports * p // parts for p in (part, part + 1))
        rows.append(
            {
                "segment_id": segment_key(is_mixed=is_mixed),
                "metric": key.metric,
                "version": key.version,
                "day": day,
                "reports": end - start,
                "records": records.data[start * records.width : end * records.width],
            }
        )
    return rows


def _divide(sizes: Sequence[Size], most: int) -> Iterator[list[Size]]:
    """Divide segments into groups of about `most` reports, none much smaller than others."""
    total, seen = _reports(sizes), 0
    groups = -(-total // most)
    group: list[Size] = []
    for size in sizes:
        group.append(size)
        before, seen = seen, seen + size.reports
        if before * groups // total < seen * groups // total:
            yield group
            group = []
    if group:
        yield group


def _sampled(sizes: Sequence[Size], reports: int) -> list[Size]:
    """Return segments, drawn at random, that have so many reports together, or fewer."""
    drawn = []
    for size in secrets.SystemRandom().sample(sizes, len(sizes)):
        reports -= size.reports
        if reports < 0:
            break
        drawn.append(size)
    return drawn


async def _width(database: Database, size: Size) -> int:
    """Return the bytes of a record; of any if the segment is gone by now."""
    query = sa.select(sa.func.length(_segments.c.records)).where(
        _segments.c.segment_id == size.segment_id
    )
    async with database.read() as connection:
        length = await connection.scalar(query)
    return max(1, int(length or 0) // size.reports)


def _reports(sizes: Sequence[Size]) -> int:
    return sum(size.reports for size in sizes)
