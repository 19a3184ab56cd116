"""A day's counts of forgotten reports: added to, read, deleted.

There is one row for each metric's version and day whose reports were counted. Counting itself is
`segments.count_reports`, which takes the segments away in the same transaction. To pack the counts
of very many cohorts takes seconds, so it is done before, outside of any lock. Invariants: a row is
replaced only if it is still the one that was read, so that nothing is lost that others add
meanwhile; and whoever locks segments or ids as well has locked those first, so that nobody waits
for each other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from hubbub.protocol.counts import KeptCounts, pack_counts, unpack_counts
from hubbub.protocol.errors import RecordsError
from hubbub.storage.errors import CountsError
from hubbub.storage.interfaces import Database, MetricVersion
from hubbub.storage.schema import counts as _counts


class DayRow(NamedTuple):
    """The row of a metric's version and day."""

    key: MetricVersion
    day: dt.date

    def values(self) -> dict[str, object]:
        """Return the columns of its key."""
        return {"metric": self.key.metric, "version": self.key.version, "day": self.day}

    def selected(self) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that it alone fulfils."""
        return [_counts.c[name] == value for name, value in self.values().items()]


class RowChangedError(Exception):
    """Somebody else has added to a row, or deleted it, since it was read: read it again."""


async def read_packed(database: Database, row: DayRow) -> bytes:
    """Return a row's packed counts as they are now; none if there is no such row."""
    async with database.read() as connection:
        packed = await connection.scalar(sa.select(_counts.c.counts).where(*row.selected()))
    return bytes(packed or b"")


def add_to_packed(packed: bytes, row: DayRow, kept: KeptCounts) -> dict[str, object]:
    """Return what becomes of a row to which counts are added (raises as `read_counts`)."""
    if packed:
        kept += read_counts(packed, row, kept.counts.bits.shape)
    return {"reports": kept.total, "counts": pack_counts(kept)}


def replace_row(
    connection: sa.Connection,
    insert_if_absent: Callable[[sa.Table], sa.Insert],
    row: DayRow,
    packed: bytes,
    values: Mapping[str, object],
) -> None:
    """Write a row whose counts are still these.

    Parameters
    ----------
    insert_if_absent : callable
        `Database.insert_if_absent`.
    packed : bytes
        What `read_packed` has read.

    Raises
    ------
    RowChangedError
        If they aren't. The transaction must not be committed.
    """
    # First inserted: a row that isn't there can't be locked.
    connection.execute(insert_if_absent(_counts), [{**row.values(), "reports": 0, "counts": b""}])
    query = sa.select(_counts.c.counts).where(*row.selected()).with_for_update()
    if bytes(connection.execute(query).scalar_one()) != packed:
        raise RowChangedError
    connection.execute(sa.update(_counts).where(*row.selected()).values(values))


def read_counts(packed: bytes, row: DayRow, shape: tuple[int, ...] | None = None) -> KeptCounts:
    """Return the counts of a row.

    Parameters
    ----------
    shape : tuple of int, optional
        m and k that they must have.

    Raises
    ------
    CountsError
        If they are damaged, or of other parameters.
    """
    where = f"counts of {row.key.metric} version {row.key.version}, {row.day}"
    try:
        kept = unpack_counts(packed)
    except RecordsError as error:
        raise CountsError(f"{where}: {error}") from error
    if shape not in {None, kept.counts.bits.shape}:
        m, k = kept.counts.bits.shape
        raise CountsError(f"{where}: m = {m}, k = {k}; expected those of its reports, {shape}")
    return kept


async def delete_counts(database: Database, *which: sa.ColumnElement[bool]) -> int:
    """Delete the rows that fulfil conditions; return the number of reports behind them."""
    query = sa.select(_counts.c.reports).where(*which).with_for_update()
    async with database.write() as connection:
        reports = (await connection.scalars(query)).all()
        await connection.execute(sa.delete(_counts).where(*which))
    return sum(reports)
