"""Batch ids by day: a partition each in PostgreSQL, a table each in SQLite.

No id is moved. The ids known so far stay in the table that they are in, under another name, and are
forgotten together once the youngest of them is too old. The name "batches" is given up, so that a
collector of an earlier version, which would look for an id in its own day alone, is refused.
"""

import datetime as dt
import logging

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_PAUSE = dt.timedelta(days=7)
_segments = sa.table("segments", sa.column("day", sa.Date))
_log = logging.getLogger("hubbub.collector")


def upgrade() -> None:
    """Make room for ids by day, and keep those there are."""
    today = _last_day(dt.datetime.now(dt.UTC).date())
    if op.get_context().dialect.name == "postgresql":
        op.execute("LOCK TABLE batches IN ACCESS EXCLUSIVE MODE")  # an older collector may write
    known = f"batch_ids_until_{today:%Y%m%d}"
    is_empty = op.get_bind().execute(sa.text("SELECT 1 FROM batches LIMIT 1")).first() is None
    if is_empty:
        op.drop_table("batches")
    else:
        op.rename_table("batches", known)
        _log.info("batch ids known so far stay in one table, %s, and are forgotten together", known)
    if op.get_context().dialect.name != "postgresql":
        return
    op.create_table(
        "batch_ids",
        sa.Column("batch_id", sa.LargeBinary(16), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        postgresql_partition_by="RANGE (day)",
    )
    op.create_table("open_day", sa.Column("day", sa.Date, primary_key=True))
    if not is_empty:
        # What a clock that was ahead has dated later would be known for longer than the rest.
        op.execute(f"UPDATE {known} SET day = '{today}' WHERE day > '{today}'")  # noqa: S608
        op.execute(
            f"ALTER TABLE batch_ids ATTACH PARTITION {known} "
            f"FOR VALUES FROM (MINVALUE) TO ('{today + dt.timedelta(days=1)}')"
        )


def _last_day(today: dt.date) -> dt.date:
    """Return today; or the day on which the store was last in use, if the clock is behind it.

    Ids that are dated too early are forgotten too soon. So days of reports are believed on which
    the store was in use without a longer pause than upkeep would believe; what lies beyond such a
    pause is from a clock that was ahead. But if all are later than today, today is wrong.
    """
    days = op.get_bind().execute(sa.select(_segments.c.day).distinct()).scalars()
    ordered = sorted(days)
    last = max(today, ordered[0]) if ordered else today
    for day in ordered:
        if last < day <= last + _PAUSE:
            last = day
    return last
