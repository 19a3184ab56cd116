"""The tables of a store, and how a database gets them: made, migrated, or checked.

Segments hold records, the quarantine those that no registry knows yet, counts what is kept of
records that were forgotten, the tables of batch ids (`ids`) those seen, and nothing refers from one
to another. The collector migrates a database when
it starts; readers only check it. Invariants: no column is finer than a day, and no key is a serial
number. The migrations run in one transaction that other processes wait for, and a database whose
version isn't known here is never changed. A changed table needs a migration, its number here, and
nothing else.
"""

from __future__ import annotations

import logging

import sqlalchemy as sa

from hubbub.collector.errors import StoreError
from hubbub.collector.store.interfaces import Database, translate_errors

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""The schema's versions, oldest first; each is a migration in migrations/versions."""

VERSION_TABLE = "hubbub_schema"
"""Holds the version; not Alembic's usual name, because others may share the database."""

_HEAD = REVISIONS[-1]
_EMPTY = ""
"""The version of a database without our tables."""

_OLDEST_TABLES = {"segments", "batches", "parameters"}
_log = logging.getLogger("hubbub.collector")

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

counts = sa.Table(
    "counts",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("reports", sa.BigInteger, nullable=False),
    sa.Column("counts", sa.LargeBinary, nullable=False),
    # Or SQLite would number the rows in the order in which they came.
    sqlite_with_rowid=False,
)
"""What `hubbub.protocol.counts` keeps of a day's reports, and their number."""

quarantine = sa.Table(
    "quarantine",
    metadata,
    sa.Column(
        "quarantine_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("width", sa.Integer, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("reports", sa.Integer, nullable=False),
    sa.Column("records", sa.LargeBinary, nullable=False),
    # So that what is there is added up without reading the records.
    sa.Index("quarantine_by_day", "metric", "version", "width", "day", "reports"),
)
"""Like segments; metrics and versions are those that clients sent, widths the bytes of a record."""

parameters = sa.Table(
    "parameters",
    metadata,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
)


postgresql_metadata = sa.MetaData()
"""The tables that only PostgreSQL has."""

batch_ids = sa.Table(
    "batch_ids",
    postgresql_metadata,
    sa.Column("batch_id", sa.LargeBinary(16), nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("section", sa.SmallInteger, nullable=False, server_default="0"),
    # No key: it could only be one of ids and days. Each section has one of ids.
    postgresql_partition_by="RANGE (day)",
)

open_day = sa.Table("open_day", postgresql_metadata, sa.Column("day", sa.Date, primary_key=True))
"""One row at most: the day whose ids were written last."""


id_filters = sa.Table(
    "id_filters",
    metadata,
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("words", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""What `bloom` makes of the ids of closed days, in parts; triggers say whose they are (`ids`)."""

upkeep_day = sa.Table("upkeep_day", metadata, sa.Column("day", sa.Date, primary_key=True))
"""The day of the last upkeep; several only if collectors wrote them at once."""


def sample_nothing_of(table: str, column: str) -> str:
    """Return what keeps PostgreSQL's ANALYZE from storing samples of a column in its catalogue.

    A small segment is such a sample, whole: reports that came together, which would stay there
    after they have been merged with others.
    """
    return f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"


async def migrate(database: Database, url: str) -> None:
    """Bring a database to today's schema; make the tables if there are none.

    Raises
    ------
    StoreError
        If a newer hubbub made it.
    """
    async with translate_errors(), database.reading.begin() as connection:
        if await connection.run_sync(_version) == _HEAD:
            return
    async with database.migrate() as connection:
        await connection.run_sync(_migrate, url)


async def check_schema(database: Database, url: str) -> None:
    """Raise StoreError unless a database has today's schema."""
    async with translate_errors(), database.reading.begin() as connection:
        version = await connection.run_sync(_version)
    if version == _EMPTY:
        raise StoreError.at(url, "is no store of hubbub's; did a collector make it?")
    _refuse_newer(version, url)
    if version != _HEAD:
        raise StoreError.at(
            url,
            f"made by an older hubbub (schema {version}, expected {_HEAD}); "
            "start its collector once to migrate it",
        )


def _version(connection: sa.Connection) -> str:
    """Return the schema's version; stores from before there were versions have the first."""
    tables = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608
        return str(connection.exec_driver_sql(query).scalar() or _EMPTY)
    return REVISIONS[0] if tables >= _OLDEST_TABLES else _EMPTY


def _migrate(connection: sa.Connection, url: str) -> None:
    version = _version(connection)
    if version == _HEAD:
        return
    if version != _EMPTY:
        _refuse_newer(version, url)
    # Only now, because it is seldom needed and takes its time and memory.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "hubbub.collector.store:migrations")
    config.attributes["connection"] = connection
    if version != _EMPTY:
        _log.info("migrating the store from schema %s to %s", version, _HEAD)
        command.stamp(config, version)
    command.upgrade(config, _HEAD)


def _refuse_newer(version: str, url: str) -> None:
    if version not in REVISIONS:
        raise StoreError.at(
            url,
            f"made by a newer hubbub (schema {version}, expected at most {_HEAD}); update this one",
        )
