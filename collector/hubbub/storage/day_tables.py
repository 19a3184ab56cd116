"""PostgreSQL's tables of segments: one that a day's reports come to, one where they end up mixed.

They are children of `segments`, by which all of them are read, so that readers know nothing of
them. A day's first table holds its reports in traces of how they came: in the order of rows, in the
transactions that they are marked with, in what was deleted and not yet overwritten. Once the day is
over they have moved to the second table, and the first is dropped with its file. Invariants: a
table's name tells all that is known of it; and `segments` itself holds only what is on its way:
imports, and what else comes to another day than the open one.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import NamedTuple

import sqlalchemy as sa

from hubbub.storage.schema import segments

APART = dt.timedelta(days=62)
"""Mixed reports that are older share one table, so that there are never very many tables.

Each statement that reads all days locks all tables, and a server has room for some thousand locks.
"""

_NAME = re.compile(r"segments_(mixed_)?(\d{8})")
_OF_OLD_DAYS = "segments_mixed"


class DayTable(NamedTuple):
    """A table of segments.

    Attributes
    ----------
    name : str
        It needs no quotes in SQL.
    day : datetime.date or None
        Whose reports it holds; None: those of all days that are too old for a table of their own.
    is_mixed : bool
    """

    name: str
    day: dt.date | None
    is_mixed: bool

    def may_end(self, today: dt.date) -> bool:
        """Return whether it isn't needed if it is empty: today's and tomorrow's are made early."""
        # Beyond tomorrow: made by a clock that was ahead.
        return self.day is not None and not today <= self.day <= today + dt.timedelta(days=1)


def first_table(day: dt.date) -> DayTable:
    """Return the table to which a day's reports come, whether it exists or not."""
    return DayTable(f"segments_{day:%Y%m%d}", day, is_mixed=False)


def mixed_table(day: dt.date, today: dt.date) -> DayTable:
    """Return the table where a day's reports end up, whether it exists or not."""
    if day < today - APART:
        return DayTable(_OF_OLD_DAYS, None, is_mixed=True)
    return DayTable(f"segments_mixed_{day:%Y%m%d}", day, is_mixed=True)


def parse_day_table(name: str) -> DayTable | None:
    """Return the table of segments that has this name; None: it is some other table."""
    if name == _OF_OLD_DAYS:
        return DayTable(name, None, is_mixed=True)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        day = dt.datetime.strptime(match[2], "%Y%m%d").date()  # noqa: DTZ007
    except ValueError:
        return None
    return DayTable(name, day, match[1] is not None)


@lru_cache(maxsize=16)
def as_table(table: DayTable) -> sa.Table:
    """Return a table with the columns of `segments`, always the same, so that SQL is made once."""
    return segments.to_metadata(sa.MetaData(), name=table.name)
