"""The tables of a store, as the newest migration leaves them.

Segments hold records, batches hold the ids seen, and nothing refers from one to the other. What a
maintainer must not break: no column is finer than a day, no key is a serial number, and a changed
table needs a migration, its number here, and nothing else.
"""

from __future__ import annotations

import sqlalchemy as sa

REVISIONS = ("0001", "0002")
"""The schema's versions, oldest first; each is a migration in migrations/versions."""

VERSION_TABLE = "hubbub_schema"
"""Holds the version; not Alembic's usual name, because others may share the database."""

metadata = sa.MetaData()

segments = sa.Table(
    "segments",
    metadata,
    # "INTEGER" makes it SQLite's row id, so that no hidden serial number remains.
    sa.Column(
        "segment_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("reports", sa.Integer, nullable=False),
    sa.Column("records", sa.LargeBinary, nullable=False),
    # With the number of reports, so that counting reads none of the records.
    sa.Index("segments_by_day", "metric", "version", "day", "reports"),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("batch_id", sa.LargeBinary(16), primary_key=True),
    sa.Column("day", sa.Date, nullable=False),
    # Without a row id, SQLite keeps ids in the order of the ids, not of their arrival.
    sqlite_with_rowid=False,
)

parameters = sa.Table(
    "parameters",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
)
