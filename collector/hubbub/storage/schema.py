"""The tables of a store, and how a database gets them: made, migrated, or checked.

Segments hold records, counts what is kept of records that were forgotten, the tables of batch ids
(`batch_ids`) those seen; nothing refers from one to another. `serve` and `maintain --migrate`
migrate a database; readers only check it. Invariants: no column is finer than a day, and no key is
a serial number. Migrations run in one transaction that other processes wait for, and a database
whose version isn't known here is never changed. A changed table needs a migration in `MIGRATIONS`.

A database names the oldest version whose code can serve it, so that earlier releases, too,
judge rightly whether they can: what a migration only adds needn't keep them from serving.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa

from hubbub.storage.database import Database, translate_errors
from hubbub.storage.errors import StoreError


class Migration(NamedTuple):
    """The steps that bring a database to a version from the one before."""

    change: Callable[[sa.Connection], None]
    # The oldest version whose code can serve the result; None: only this one's.
    served_by: str | None = None


FIRST = "0001"
"""The version of the first release."""

MIGRATIONS: dict[str, Migration] = {}
"""Migrations by version, oldest first, after `FIRST`.

They are made on new stores, too, so `_make_tables` goes on making those of `FIRST`.
"""

VERSION_TABLE = "hubbub_schema"

_EMPTY = ""
"""The version of a database without our tables."""

_log = logging.getLogger("hubbub.collector")

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

_versions = sa.Table(
    VERSION_TABLE,
    metadata,
    sa.Column("needed", sa.Text, primary_key=True),
    sa.Column("made", sa.Text, nullable=False),
)
"""One row (see `Schema`)."""

upkeep_day = sa.Table("upkeep_day", metadata, sa.Column("day", sa.Date, primary_key=True))
"""The day of the last upkeep; several only if collectors wrote them at once."""


def disable_statistics(table: str, column: str) -> str:
    """Return what keeps PostgreSQL's ANALYZE from storing samples of a column in its catalogue.

    A small segment is such a sample, whole: reports that came together, which would stay there
    after they have been merged with others.
    """
    return f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"


class Schema(NamedTuple):
    """The schema that a database has."""

    made: str  # its version; empty: there are no tables
    needed: str  # the version that code must know to serve it


class OldSchemaError(StoreError):
    """A database that has to be migrated before this version can use it."""


async def read_schema(database: Database) -> Schema:
    """Return the schema of a database, whether this version can use it or not."""
    async with translate_errors(), database.reading.begin() as connection:
        return await connection.run_sync(_schema)


async def migrate(database: Database, url: str) -> tuple[Schema, Schema]:
    """Bring a database to today's schema; make the tables if there are none.

    Returns before and after. Raises `StoreError` if a newer hubbub made it which this one can't
    serve.
    """
    before = await read_schema(database)
    if _is_current(before, url):
        return before, before
    async with database.migrate() as connection:
        return await connection.run_sync(_migrate, url)


async def check_schema(database: Database, url: str) -> Schema:
    """Return the schema of a database that this version can use.

    Raises `OldSchemaError` if it has to be migrated before. Raises `StoreError` if a newer hubbub
    made it which this one can't serve.
    """
    schema = await read_schema(database)
    if schema.made == _EMPTY:
        raise OldSchemaError.at(
            url, "is no store of hubbub's; `hubbub-collector maintain --migrate` makes one"
        )
    if not _is_current(schema, url):
        raise OldSchemaError.at(
            url,
            f"made by an older hubbub (schema {schema.made}, expected {revisions()[-1]}); "
            "migrate it: hubbub-collector maintain --migrate",
        )
    return schema


def revisions() -> list[str]:
    """Return the schema's versions, oldest first."""
    return [FIRST, *MIGRATIONS]


def _is_current(schema: Schema, url: str) -> bool:
    """Return whether a database has this version's schema, or a later one that it can serve."""
    known = revisions()
    if schema.made != _EMPTY and schema.needed not in known:
        raise StoreError.at(
            url,
            f"made by a newer hubbub (schema {schema.needed}, expected at most {known[-1]}); "
            "update this one",
        )
    return schema.made >= known[-1]


def _schema(connection: sa.Connection) -> Schema:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return Schema(_EMPTY, _EMPTY)
    row = connection.execute(sa.select(_versions.c.made, _versions.c.needed)).first()
    return Schema(*row) if row else Schema(_EMPTY, _EMPTY)


def _migrate(connection: sa.Connection, url: str) -> tuple[Schema, Schema]:
    before = _schema(connection)
    if _is_current(before, url):
        return before, before
    last = revisions()[-1]
    if before.made == _EMPTY:
        _make_tables(connection)
    else:
        _log.info("migrating the store from schema %s to %s", before.made, last)
        if connection.dialect.name == "postgresql":
            # Collectors wait behind whoever waits to change a table: not for a backup's end.
            connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
    for version, migration in MIGRATIONS.items():
        if version > (before.made or FIRST):
            migration.change(connection)
    needed = MIGRATIONS[last].served_by if last in MIGRATIONS else None
    after = Schema(last, needed or last)
    connection.execute(sa.delete(_versions))
    connection.execute(sa.insert(_versions).values(after._asdict()))
    return before, after


def _make_tables(connection: sa.Connection) -> None:
    """Make all tables of the first version."""
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name != "postgresql":
        return
    postgresql_metadata.create_all(connection, checkfirst=False)
    # Records and counts are random: compressing them would be in vain.
    for table, column in (("segments", "records"), ("counts", "counts")):
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL"
        )
    connection.exec_driver_sql(
        f"CREATE TABLE {LATE} (PRIMARY KEY (segment_id)) INHERITS (segments)"
    )
    columns = "(metric, version, day, slice, reports)"
    connection.exec_driver_sql(f"CREATE INDEX {LATE}_by_day ON {LATE} {columns}")
    for table, column in (
        ("ONLY batch_ids", "batch_id"),
        ("ONLY segments", "records"),
        (LATE, "records"),
    ):
        connection.exec_driver_sql(disable_statistics(table, column))
