"""The tables of a store, and how a database gets them: made, migrated, or checked.

Segments hold records, counts what is kept of
records that were forgotten, the tables of batch ids (`batch_ids`) those seen; nothing refers from
one to another. `serve` or `hubbub-collector migrate` migrates a database; readers only check it.
Invariants: no column is finer than a day, and no key is a serial number. The migrations run in one
transaction that other processes wait for, and a database whose version isn't known here is never
changed. A changed table needs a migration and its number here.

So that a service is upgraded, and rolled back, while it serves, a change that earlier code can't
live with takes two releases. The first one *expands*: it adds, and `SERVED_BY` says that code which
knows an earlier version can serve what results. The second one *contracts*: it removes what only
that earlier code needs, and code of the first release can serve what results. A database tells by
its version which one code must know at least, so that earlier releases, too, judge rightly whether
they can serve it; which migrations were made stands beside it, if that is more.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import sqlalchemy as sa

from hubbub.storage.database import Database, translate_errors
from hubbub.storage.errors import StoreError

REVISIONS = ("0001",)
"""The schema's versions, oldest first; each is a migration in migrations/versions."""

SERVED_BY: dict[str, str] = {}
"""By version, the oldest one whose code can serve it; one that isn't here needs its own code.

Expanding, the same as for the version before; contracting, a later one, but not its own.
"""

VERSION_TABLE = "hubbub_schema"
"""Holds the version that code must know. Not Alembic's usual name: others may share a database."""

_MADE = "made"
"""Its column with the last migration that was made, if code need not know that one.

Not a table of its own: a role that may only read has rights on those that were there.
"""

_MIGRATIONS = "hubbub.storage:migrations"
_EMPTY = ""
"""The version of a database without our tables."""

_log = logging.getLogger("hubbub.collector")

_LATEST = REVISIONS[-1]
"""The version whose tables these are."""

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
"""What `hubbub.protocol.counts` keeps of a day's reports, and their number."""

parameters = sa.Table(
    "parameters",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("dimensions", sa.Text, nullable=False),
)
"""How reports were made, which never changes, and what they tell in the clear, which may."""


postgresql_metadata = sa.MetaData()
"""The tables that only PostgreSQL has."""

batch_ids = sa.Table(
    "batch_ids", postgresql_metadata, sa.Column("batch_id", sa.LargeBinary(16), nullable=False)
)
"""Empty: the tables of days inherit from it, each with a key of its own, and are searched by it."""

open_day = sa.Table("open_day", postgresql_metadata, sa.Column("day", sa.Date, primary_key=True))
"""One row at most: the day whose ids were written last."""

upkeep_day = sa.Table("upkeep_day", metadata, sa.Column("day", sa.Date, primary_key=True))
"""The day of the last upkeep; several only if collectors wrote them at once."""


def sample_nothing_of(table: str, column: str) -> str:
    """Return what keeps PostgreSQL's ANALYZE from storing samples of a column in its catalogue.

    A small segment is such a sample, whole: reports that came together, which would stay there
    after they have been merged with others.
    """
    return f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"


class Schema(NamedTuple):
    """What schema a database has."""

    made: str  # the last migration that was made; empty: there are no tables
    needed: str  # the version that code must know to serve it


class OldSchemaError(StoreError):
    """A database that has to be migrated before this version can use it."""


async def read_schema(database: Database) -> Schema:
    """Return the schema of a database, whether this version can use it or not."""
    async with translate_errors(), database.reading.begin() as connection:
        return await connection.run_sync(_schema)


async def migrate(database: Database, url: str, *, contract: bool = False) -> tuple[Schema, Schema]:
    """Bring a database to today's schema; make the tables if there are none.

    `contract`: make also the last migrations that this version can do without: those which remove
    what only earlier code needs. Returns before and after. Raises `StoreError` if a newer hubbub
    made it which this one can't serve.
    """
    target = REVISIONS[-1] if contract else _least()
    before = await read_schema(database)
    if _has(before, target, url):
        return before, before
    async with database.migrate() as connection:
        return await connection.run_sync(_migrate, target, url)


async def check_schema(database: Database, url: str) -> Schema:
    """Return the schema of a database that this version can use.

    Raises `OldSchemaError` if it has to be migrated before. Raises `StoreError` if a newer hubbub
    made it which this one can't serve.
    """
    schema = await read_schema(database)
    if schema.made == _EMPTY:
        raise OldSchemaError.at(
            url, "is no store of hubbub's; `hubbub-collector migrate` makes one"
        )
    if not _has(schema, _least(), url):
        raise OldSchemaError.at(
            url,
            f"made by an older hubbub (schema {schema.made}, expected {_least()}); "
            "migrate it: hubbub-collector migrate",
        )
    return schema


def _served_by(version: str) -> str:
    return SERVED_BY.get(version, version)


def _least() -> str:
    left = list(REVISIONS)
    while len(left) > 1 and _served_by(left[-2]) < _served_by(left[-1]) < left[-1]:
        left.pop()
    return left[-1]


def _has(schema: Schema, version: str, url: str) -> bool:
    """Return whether a database has a version, or a later one that this code can serve."""
    if schema.made == _EMPTY:
        return False
    if schema.needed not in REVISIONS:
        raise StoreError.at(
            url,
            f"made by a newer hubbub (schema {schema.needed}, expected at most {REVISIONS[-1]}); "
            "update this one",
        )
    return schema.made not in REVISIONS or schema.made >= version


def _schema(connection: sa.Connection) -> Schema:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return Schema(_EMPTY, _EMPTY)
    column = _MADE if _has_made(connection) else "NULL"
    query = f"SELECT version_num, {column} FROM {VERSION_TABLE}"  # noqa: S608
    needed, made = connection.exec_driver_sql(query).first() or (_EMPTY, None)
    return Schema(made or needed, needed)


def _has_made(connection: sa.Connection) -> bool:
    return _MADE in {column["name"] for column in sa.inspect(connection).get_columns(VERSION_TABLE)}


def _migrate(connection: sa.Connection, target: str, url: str) -> tuple[Schema, Schema]:
    before = _schema(connection)
    if _has(before, target, url):
        return before, before
    if before.made == _EMPTY and target == _LATEST and connection.dialect.name == "sqlite":
        _make_tables(connection)
    else:
        _run_migrations(connection, before, target)
    after = Schema(target, _served_by(target))
    is_there = _has_made(connection)
    if after.needed != after.made and not is_there:
        connection.exec_driver_sql(f"ALTER TABLE {VERSION_TABLE} ADD COLUMN {_MADE} TEXT")
    if after.needed != after.made or is_there:
        values = f"version_num = '{after.needed}', {_MADE} = '{after.made}'"
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET {values}")  # noqa: S608
    return before, after


def _make_tables(connection: sa.Connection) -> None:
    """Make what all migrations would make of an empty file.

    Without Alembic, because to import that takes longer than all else that a new file needs.
    """
    metadata.create_all(connection, checkfirst=False)
    version = sa.Table(
        VERSION_TABLE,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
    )
    version.create(connection)
    connection.execute(sa.insert(version).values(version_num=_LATEST))


def _run_migrations(connection: sa.Connection, before: Schema, target: str) -> None:
    # Only now, because it is seldom needed and takes its time and memory.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    if connection.dialect.name == "postgresql":
        # Collectors wait behind whoever waits to change a table: not for a backup's end.
        connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
    config = Config()
    config.set_main_option("script_location", _MIGRATIONS)
    config.attributes["connection"] = connection
    if before.made != _EMPTY:
        _log.info("migrating the store from schema %s to %s", before.made, target)
        command.stamp(config, before.made)
    command.upgrade(config, target)
