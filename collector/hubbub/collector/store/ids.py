"""Tables of batch ids, one for each UTC day: their names, and which are too old.

An id is looked for in all these tables and written to that of the day on which its batch came. A
day is forgotten by dropping its table, however many ids it holds. Invariants: a table's name tells
all that is known of it, so that no list can disagree with what is there; and as no constraint
reaches over several tables, `Database.transact` keeps days apart.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

PREFIX = "batch_ids_"
"""Begins the names of these tables, and no others."""

_NAME = re.compile(rf"{PREFIX}(until_)?(\d{{8}})")


class IdTable(NamedTuple):
    """A table of ids.

    Attributes
    ----------
    name : str
        It needs no quotes in SQL.
    last_day : datetime.date
        The latest day whose ids it holds.
    holds_earlier : bool
        Whether it holds those of all days before, too: it is from before ids were kept by day.
    """

    name: str
    last_day: dt.date
    holds_earlier: bool = False

    def holds(self, day: dt.date) -> bool:
        """Return whether a day's ids are in this table."""
        return day == self.last_day or (self.holds_earlier and day < self.last_day)


def id_table(day: dt.date) -> IdTable:
    """Return the table of one day's ids, whether it exists or not."""
    return IdTable(f"{PREFIX}{day:%Y%m%d}", day)


def parse_id_table(name: str) -> IdTable | None:
    """Return the table of ids that has this name; None: it is some other table."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        last_day = dt.datetime.strptime(match[2], "%Y%m%d").date()  # noqa: DTZ007
    except ValueError:
        return None
    return IdTable(name, last_day, match[1] is not None)
