"""What PostgreSQL is asked about ids that have arrived (`copying`), as text: search, and insert.

Statements name days and sections by constants, by which partitions are left out of their plans:
these are made once, and neither open nor lock what a filter answers for. Invariant: a partition
that nobody knows of is searched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import lru_cache

from hubbub.storage.copying import ARRIVED
from hubbub.storage.ids import IdTable, id_section, open_section

_EACH = f"{ARRIVED}, unnest(ids) WITH ORDINALITY AS each (id, place)"


def _is_stored(where: str = "TRUE") -> str:
    """Return the condition that the key has an id in the partitions that fulfil a condition.

    OFFSET keeps the planner from joining, and so from reading whole partitions because they were
    small when it looked.
    """
    return f"EXISTS (SELECT FROM batch_ids WHERE batch_id = uuid_send(id) AND ({where}) OFFSET 0)"


FIND_ANYWHERE = f"SELECT uuid_send(id) AS batch_id FROM {_EACH} WHERE {_is_stored()}"  # noqa: S608


def finding(
    suspects: Iterable[tuple[IdTable, bytes]], places: Mapping[bytes, int]
) -> dict[str, list[int]]:
    """Return what finds ids that are in the table beside them: a statement for each, and its $1.

    One for all would lock every section of every day.

    Parameters
    ----------
    suspects : iterable of (IdTable, bytes)
    places : mapping of bytes to int
        Of the ids that have arrived; the first is 1.
    """
    given: dict[IdTable, list[int]] = {}
    for table, batch_id in suspects:
        given.setdefault(table, []).append(places[batch_id])
    return {_find_statement(table): some for table, some in given.items()}


def _find_statement(table: IdTable) -> str:
    of_day = f"day = DATE '{table.day}'"
    where = of_day if table.section is None else f"{of_day} AND section = {table.section}"
    return f"""
        SELECT uuid_send(id) AS batch_id FROM {_EACH}
        WHERE place = ANY ($1::int[]) AND {_is_stored(where)}
    """  # noqa: S608


@lru_cache(maxsize=8)  # another one only if a section is begun, or a filter made
def insert_statement(
    day: dt.date, closed: frozenset[IdTable], filtered: tuple[IdTable, ...]
) -> str:
    """Return what inserts the ids that have arrived under a day, and returns those no table had.

    Those whose places are in $1 are known. It searches days by constants, by which partitions are
    left out of its plan; in each of the others the key is searched, id by id.
    """
    # The key of its own partition refuses an id.
    elsewhere = " ".join(
        f"AND NOT {_is_stored(which)}" for which in _searched(day, closed, filtered)
    )
    return f"""
        WITH arrived AS (DELETE FROM {ARRIVED} RETURNING ids)
        INSERT INTO batch_ids (batch_id, day, section)
        SELECT uuid_send(id), DATE '{day}', {open_section(day, closed)}
        FROM arrived, unnest(ids) WITH ORDINALITY AS each (id, place)
        WHERE place <> ALL ($1::int[]) {elsewhere}
        ON CONFLICT DO NOTHING RETURNING batch_id
    """  # noqa: S608


def _searched(day: dt.date, closed: frozenset[IdTable], filtered: Iterable[IdTable]) -> list[str]:
    """Return conditions for what has to be searched for ids of a day, its open section apart.

    One for all days of which nothing is filtered; and one for each other, if there are sections of
    it that aren't.
    """
    whole = {table.day for table in filtered if table.section is None}
    partly = {table.day for table in filtered if table.section is not None} | {day}
    conditions = [_on_other_days(whole | partly)]
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
