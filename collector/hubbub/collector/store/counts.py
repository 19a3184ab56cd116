"""A day's counts of forgotten reports: added to, read, deleted.

There is one row for each metric's version and day whose reports were counted. Counting itself is
`segments.count_reports`, which takes the segments away in the same transaction. Invariants:
whoever changes a row holds its lock from reading it on, so that nothing is lost that others add
meanwhile; and whoever locks segments or ids as well has locked those first, so that nobody waits
for each other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import sqlalchemy as sa

from hubbub.collector.errors import StoreError
from hubbub.collector.store.interfaces import Database, MetricVersion
from hubbub.collector.store.schema import counts as _counts
from hubbub.protocol.counts import KeptCounts, pack_counts, unpack_counts
from hubbub.protocol.errors import RecordsError


def add_counts(
    connection: sa.Connection,
    insert_if_absent: Callable[[sa.Table], sa.Insert],
    key: MetricVersion,
    day: dt.date,
    kept: KeptCounts,
) -> int:
    """Add counts to those of a day; return the bytes that were written.

    Parameters
    ----------
    connection : Connection
        In a transaction.
    insert_if_absent : callable
        `Database.insert_if_absent`.
    """
    row = {"metric": key.metric, "version": key.version, "day": day}
    is_row = [_counts.c[name] == value for name, value in row.items()]
    # First inserted: a row that isn't there can't be locked.
    connection.execute(insert_if_absent(_counts), [{**row, "reports": 0, "counts": b""}])
    there = connection.scalar(sa.select(_counts.c.counts).where(*is_row).with_for_update())
    if there:
        kept += read_counts(there, key, day, kept.counts.bits.shape)
    packed = pack_counts(kept)
    changed = sa.update(_counts).where(*is_row).values(reports=kept.total, counts=packed)
    connection.execute(changed)
    return len(packed)


def read_counts(
    packed: bytes, key: MetricVersion, day: dt.date, shape: tuple[int, ...] | None = None
) -> KeptCounts:
    """Return the counts of a row.

    Parameters
    ----------
    shape : tuple of int, optional
        m and k that they must have.

    Raises
    ------
    StoreError
        If they are damaged, or of other parameters.
    """
    where = f"counts of {key.metric} version {key.version}, {day}"
    try:
        kept = unpack_counts(packed)
    except RecordsError as error:
        raise StoreError(f"{where}: {error}") from error
    if shape not in {None, kept.counts.bits.shape}:
        m, k = kept.counts.bits.shape
        raise StoreError(f"{where}: m = {m}, k = {k}; expected those of its reports, {shape}")
    return kept


async def delete_counts(database: Database, *which: sa.ColumnElement[bool]) -> int:
    """Delete the rows that fulfil conditions; return the number of reports behind them."""
    query = sa.select(_counts.c.reports).where(*which).with_for_update()
    async with database.write() as connection:
        reports = (await connection.scalars(query)).all()
        await connection.execute(sa.delete(_counts).where(*which))
    return sum(reports)
