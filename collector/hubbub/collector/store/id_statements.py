"""What PostgreSQL is asked when batches are appended, as text: ids searched, inserted, and reports.

Statements name days and sections by constants, by which partitions are left out of their plans:
these are made once, and neither open nor lock what a filter answers for. Invariant: a partition
that nobody knows of is searched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from hubbub.collector.store.ids import IdTable, id_section, open_section
from hubbub.collector.store.interfaces import Row

_COLUMNS = {
    "segment_id": "bigint",
    "metric": "text",
    "version": "int",
    "day": "date",
    "reports": "int",
    "records": "bytea",
}
"""Those of segments, and their types."""


def finding(suspects: Iterable[tuple[IdTable, bytes]]) -> dict[str, list[bytes]]:
    """Return what finds ids that are in the table beside them: a statement for each, and its $1.

    One for all would lock every section of every day.
    """
    given: dict[IdTable, list[bytes]] = {}
    for table, batch_id in suspects:
        given.setdefault(table, []).append(batch_id)
    return {_find_statement(table): ids for table, ids in given.items()}


def _find_statement(table: IdTable) -> str:
    of_day = f"day = DATE '{table.last_day}'"
    where = of_day if table.section is None else f"{of_day} AND section = {table.section}"
    return f"""
        SELECT id FROM unnest($1::bytea[]) AS id
        WHERE EXISTS (SELECT FROM batch_ids WHERE batch_id = id AND {where} OFFSET 0)
    """  # noqa: S608


def ids_statement(day: dt.date, closed: frozenset[IdTable], filtered: Iterable[IdTable]) -> str:
    """Return what inserts ids ($1) under a day, and returns those that no table had.

    It searches days by constants, by which partitions are left out of its plan. In each of the
    others the key is searched, id by id: OFFSET keeps the planner from joining, and so from reading
    whole partitions because they were small when it looked.
    """
    # The key of its own partition refuses an id.
    elsewhere = " ".join(
        f"AND NOT EXISTS (SELECT FROM batch_ids WHERE batch_id = id AND {which} OFFSET 0)"
        for which in _searched(day, closed, filtered)
    )
    return f"""
        INSERT INTO batch_ids (batch_id, day, section)
        SELECT id, DATE '{day}', {open_section(day, closed)} FROM unnest($1::bytea[]) AS id
        WHERE TRUE {elsewhere}
        ON CONFLICT DO NOTHING RETURNING batch_id
    """  # noqa: S608


@lru_cache(maxsize=8)  # another one only if a section is begun, or a filter made
def append_statement(
    day: dt.date, closed: frozenset[IdTable], filtered: tuple[IdTable, ...], table: str
) -> str:
    """Return what inserts ids, and segments into a table as well if all of these ids are new.

    If any isn't, nothing is known of whose reports are whose, so that no segment may be stored.
    """
    return f"""
        WITH unseen AS ({ids_statement(day, closed, filtered)}),
        stored AS (
            {segments_statement(table, 2)}
            WHERE (SELECT count(*) FROM unseen) = cardinality($1::bytea[])
        )
        SELECT batch_id FROM unseen
    """  # noqa: S608


def segments_statement(table: str, first: int = 1) -> str:
    """Return what inserts segments, given `columns_of` them as parameters from this one on."""
    names = ", ".join(_COLUMNS)
    arrays = ", ".join(f"${n}::{of}[]" for n, of in enumerate(_COLUMNS.values(), first))
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608


def columns_of(rows: Sequence[Row]) -> list[list[Any]]:
    """Return segments as the parameters of `segments_statement`."""
    return [[row[name] for row in rows] for name in _COLUMNS]


def _searched(day: dt.date, closed: frozenset[IdTable], filtered: Iterable[IdTable]) -> list[str]:
    """Return conditions for what has to be searched for ids of a day, its open section apart.

    One for all days of which nothing is filtered; and one for each other, if there are sections of
    it that aren't.
    """
    whole = {table.last_day for table in filtered if table.section is None}
    partly = {table.last_day for table in filtered if table.section is not None} | {day}
    conditions = [f"({_on_other_days(whole | partly)})"]
    for each in sorted(partly):
        # Nobody begins one meanwhile; the open one of another day holds ids, too.
        sections = range(open_section(each, closed) + (each != day))
        left = [str(it) for it in sections if id_section(each, it) not in filtered]
        if left:
            conditions.append(f"day = DATE '{each}' AND section IN ({', '.join(left)})")
    return conditions


def _on_other_days(days: Iterable[dt.date]) -> str:
    """Return the condition that `day` is none of these, as ranges, by which partitions are chosen.

    A day that nobody knows of, in a partition that another process makes, fulfils it.
    """
    ranges = []
    begin = ""
    for day in sorted(days):
        if begin != f"day >= DATE '{day}'":
            ranges.append(" AND ".join(filter(None, (begin, f"day < DATE '{day}'"))))
        begin = f"day >= DATE '{day + dt.timedelta(days=1)}'"
    return " OR ".join([*ranges, begin])
