"""Tables of one UTC day, by their names, and the rows that are inserted into them.

A day has a table of batch ids, and in PostgreSQL one of the reports that come on it. Invariants: a
day that has a sorted table takes no more ids (`taking_day`); and names hold all that is known of a
table, so that no list can disagree with what is there.
"""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hubbub.protocol import Records, joined, shuffled
from hubbub.storage.reports import MetricVersion, NewBatch

Row = dict[str, Any]
"""The columns of a segment."""

PREFIX = "batch_ids_"
"""Begins the names of the tables of ids, and no others."""

_NAME = re.compile(rf"(?:{PREFIX}(\d{{8}})(_sorted)?|segments_(\d{{8}}))")


class DayTable(NamedTuple):
    """A table of one day's ids or segments."""

    name: str  # it needs no quotes in SQL
    day: dt.date
    holds_ids: bool
    is_sorted: bool = False  # the day takes no more ids, which lie in their own order or will


def id_table(day: dt.date, *, is_sorted: bool = False) -> DayTable:
    """Return a table of one day's ids, whether it exists or not."""
    return DayTable(f"{PREFIX}{day:%Y%m%d}{'_sorted' * is_sorted}", day, True, is_sorted)


def segment_table(day: dt.date) -> DayTable:
    """Return the table to which a day's reports come, whether it exists or not."""
    return DayTable(f"segments_{day:%Y%m%d}", day, holds_ids=False)


def parse_tables(names: Iterable[str]) -> list[DayTable]:
    """Return the tables of days among these names; pass over all others."""
    tables = []
    for match in filter(None, map(_NAME.fullmatch, names)):
        try:
            day = dt.date.fromisoformat(match[1] or match[3])
        except ValueError:
            continue
        tables.append(DayTable(match[0], day, match[1] is not None, match[2] is not None))
    return tables


def taking_day(day: dt.date, tables: Iterable[DayTable]) -> dt.date:
    """Return this day, or the next one that isn't closed if a clock is behind."""
    closed = {table.day for table in tables if table.is_sorted}
    while day in closed:
        day += dt.timedelta(days=1)
    return day


def pooled_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    """Pool the records of many batches, shuffled so that nothing shows which is whose."""
    pools: dict[MetricVersion, list[Records]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).append(records)
    return [segment_row(key, day, pool) for key, pool in pools.items()]


def segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    """Return a new row for records of several origins, shuffled together."""
    return row_of(key, day, shuffled(joined(pool)), is_mixed=False)


def row_of(key: MetricVersion, day: dt.date, records: Records, *, is_mixed: bool) -> Row:
    """Return a row for records that were shuffled, under a new key.

    `is_mixed`: whether they were mixed with all others of their day, which a negative key marks.
    """
    drawn = secrets.randbits(63)
    return {
        "segment_id": -1 - drawn if is_mixed else drawn,
        "metric": key.metric,
        "version": key.version,
        "slice": key.slice,
        "day": day,
        "reports": records.reports,
        "records": records.data,
    }
