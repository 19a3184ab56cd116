"""Tables of batch ids, one for each UTC day: their names, and those of the triggers on them.

An id is looked for in all these tables and written to that of the day on which its batch came. A
day is forgotten by dropping its table, however many ids it holds. Before, once the day is over, its
table is closed: a trigger refuses further ids, they are put into their own order, since that in
which they lie tells when they came, and the name of a second trigger tells which filter stands for
them. In PostgreSQL a day's table consists of sections, each with a key of its own. Ids go to the
last one, and all before it are closed, as days are, so that the key that ids go to stays small; of
a closed day one section has all ids in order. Invariants: names tell all that is known of a
table and are dropped with it, so that no list can disagree with what is there; and as no constraint
reaches over several tables, `Database.transact` keeps days apart, and closing or dropping a section
waits for all transactions.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

PREFIX = "batch_ids_"
"""Begins the names of these tables, and no others."""

ID_BYTES = 16  # the protocol's: 128 bits

_SORTED = -1  # below the numbers of all other sections
_NAME = re.compile(rf"{PREFIX}(\d{{8}})(?:_(\d+|sorted))?")
_TRIGGER = re.compile(rf"({PREFIX}\d{{8}}(?:_(?:\d+|sorted))?)_(?:closed|filter_([0-9a-f]{{32}}))")


class IdTable(NamedTuple):
    """A table of ids."""

    name: str  # it needs no quotes in SQL
    day: dt.date  # whose ids it holds
    # Which one of the day's sections it is, -1 the one that has all ids in order; None: it is the
    # day's whole table.
    section: int | None = None

    def holds(self, day: dt.date) -> bool:
        """Return whether all of a day's ids are in this table."""
        return day == self.day and self.section is None


class Catalogue(NamedTuple):
    """What there is, by the names of tables and triggers."""

    tables: tuple[IdTable, ...]  # none, if only triggers were asked for
    closed: frozenset[IdTable]  # those that take no more ids
    # The digests of their filters, for those closed ones that have one.
    filters: Mapping[IdTable, bytes]

    def taking(self, day: dt.date) -> dt.date:
        """Return this day, or the next one whose ids are still taken if this one is closed."""
        while any(table.holds(day) for table in self.closed):
            day += dt.timedelta(days=1)
        return day


def id_table(day: dt.date) -> IdTable:
    """Return the table of one day's ids, whether it exists or not."""
    return IdTable(f"{PREFIX}{day:%Y%m%d}", day)


def id_section(day: dt.date, section: int) -> IdTable:
    """Return a section of the table of one day's ids, whether it exists or not."""
    return IdTable(f"{id_table(day).name}_{section}", day, section)


def sorted_section(day: dt.date) -> IdTable:
    """Return the section that has all of a day's ids in order, whether it exists or not."""
    return IdTable(f"{id_table(day).name}_sorted", day, _SORTED)


def open_section(day: dt.date, closed: frozenset[IdTable]) -> int:
    """Return which of a day's sections takes ids: the first that isn't closed."""
    section = 0
    while id_section(day, section) in closed:
        section += 1
    return section


def count_statement(table: IdTable) -> str:
    """Return a query of `number` of ids, and how many are `of_other_size`, for all databases."""
    others = f"count(*) FILTER (WHERE length(batch_id) <> {ID_BYTES}) AS of_other_size"
    return f"SELECT count(*) AS number, {others} FROM {table.name}"  # noqa: S608


def closing_trigger(table: IdTable) -> str:
    """Return the name of the trigger that closes a table."""
    return f"{table.name}_closed"


def filter_trigger(table: IdTable, digest: bytes) -> str:
    """Return the name of the trigger that tells a closed table's filter."""
    return f"{table.name}_filter_{digest.hex()}"


def parse_id_table(name: str) -> IdTable | None:
    """Return the table of ids that has this name; None: it is some other table."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        day = dt.datetime.strptime(match[1], "%Y%m%d").date()  # noqa: DTZ007
    except ValueError:
        return None
    section = int(match[2].replace("sorted", str(_SORTED))) if match[2] else None
    return IdTable(name, day, section)


def parse_names(names: Iterable[str]) -> Catalogue:
    """Return what there is of tables and triggers with these names; pass over all others."""
    return _parse_names(tuple(names))


@lru_cache(maxsize=8)  # asked in each transaction, and other names only once a day
def _parse_names(names: tuple[str, ...]) -> Catalogue:
    tables = tuple(table for table in map(parse_id_table, names) if table)
    closed: set[IdTable] = set()
    filters: dict[IdTable, bytes] = {}
    for match in filter(None, map(_TRIGGER.fullmatch, names)):
        if table := parse_id_table(match[1]):
            closed.add(table)
            if match[2]:
                filters[table] = bytes.fromhex(match[2])
    return Catalogue(tables, frozenset(closed), filters)
