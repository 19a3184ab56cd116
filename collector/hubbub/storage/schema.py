"""The tables of a store, which collectors make; readers only check that they are there.

Segments hold records, counts what is kept of records that were forgotten, the tables of batch ids
(`batch_ids`) those seen; nothing refers from one to another. Invariants: no column is finer than a
day, and no key is a serial number. A database whose version isn't known here is never changed.
"""

from __future__ import annotations

import sqlalchemy as sa

from hubbub.storage.reading import SCHEMA_VERSION, check_version

metadata = sa.MetaData()
"""The tables of every database, and all that SQLite has."""

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
    sa.Column("slice", sa.Text, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("reports", sa.Integer, nullable=False),
    sa.Column("records", sa.LargeBinary, nullable=False),
    # With slices and the number of reports, so that counting reads none of the records.
    sa.Index("segments_by_day", "metric", "version", "day", "slice", "reports"),
)

counts = sa.Table(
    "counts",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("slice", sa.Text, primary_key=True),
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("reports", sa.BigInteger, nullable=False),
    sa.Column("counts", sa.LargeBinary, nullable=False),
    # Or SQLite would number the rows in the order in which they came.
    sqlite_with_rowid=False,
)
"""A day's counts, as `hubbub.protocol.records` keeps them, and the number of reports."""

parameters = sa.Table(
    "parameters",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("dimensions", sa.Text, nullable=False),
)
"""How reports were made, which never changes, and their facts in the clear, which may."""


postgresql_metadata = sa.MetaData()
"""The tables that only PostgreSQL has."""

batch_ids = sa.Table(
    "batch_ids", postgresql_metadata, sa.Column("batch_id", sa.LargeBinary(16), nullable=False)
)
"""Empty: the tables of days inherit from it, each with a key of its own, and are searched by it."""

LATE = "segments_late"
"""The table, under `segments`, of reports that come to another day than the open one.

Once they are mixed it is empty, and the server cuts its file off with the traces of how they came.
"""

open_day = sa.Table("open_day", postgresql_metadata, sa.Column("day", sa.Date, primary_key=True))
"""One row at most: the day whose ids were written last."""

_versions = sa.Table("hubbub_schema", metadata, sa.Column("version", sa.Text, primary_key=True))
"""One row: the `SCHEMA_VERSION` of the code that made the tables."""

upkeep_day = sa.Table("upkeep_day", metadata, sa.Column("day", sa.Date, primary_key=True))
"""The day of the last upkeep; several only if collectors wrote them at once."""


def inheriting(name: str, parent: sa.Table, *constraints: str) -> list[str]:
    """Return what makes a table of PostgreSQL's that inherits from a parent."""
    (key, *_) = parent.columns.keys()
    rules = ", ".join([f"PRIMARY KEY ({key})", *constraints])
    indexes = [
        f"CREATE INDEX {name}_by_day ON {name} ({', '.join(index.columns.keys())})"
        for index in parent.indexes
    ]
    return [
        f"CREATE TABLE {name} ({rules}) INHERITS ({parent.name})",
        *indexes,
        unsampled(name, parent),
    ]


def unsampled(name: str, table: sa.Table) -> str:
    """Return what keeps PostgreSQL's ANALYZE from storing samples of the last column.

    A small segment is such a sample, whole: reports that came together, which would stay in the
    catalogue after they have been merged with others.
    """
    return f"ALTER TABLE {name} ALTER COLUMN {table.columns.keys()[-1]} SET STATISTICS 0"


def has_tables(connection: sa.Connection, url: str) -> bool:
    """Return whether there are tables; raise StoreError if they aren't of this version."""
    if not sa.inspect(connection).has_table(_versions.name):
        return False
    version = connection.execute(sa.select(_versions.c.version)).scalar_one()
    check_version(version, url)
    return True


def make_tables(connection: sa.Connection) -> None:
    """Make all tables."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(_versions).values(version=SCHEMA_VERSION))
    if connection.dialect.name != "postgresql":
        return
    postgresql_metadata.create_all(connection, checkfirst=False)
    # Records and counts are random: compressing them would be in vain.
    for table, column in (("segments", "records"), ("counts", "counts")):
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL"
        )
    for statement in (
        unsampled("ONLY batch_ids", batch_ids),
        unsampled("ONLY segments", segments),
        *inheriting(LATE, segments),
    ):
        connection.exec_driver_sql(statement)
