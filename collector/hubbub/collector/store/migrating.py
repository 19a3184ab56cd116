"""Bring a database to today's schema, or say why it can't be read.

The collector migrates when it starts; readers only look. What a maintainer must not break: the
migrations run in one transaction that other processes wait for, and a database with a version that
isn't known here is never touched.
"""

from __future__ import annotations

import sqlalchemy as sa

from hubbub.collector.errors import StoreError
from hubbub.collector.store.database import Database, shown
from hubbub.collector.store.schema import REVISIONS, VERSION_TABLE, metadata

_HEAD = REVISIONS[-1]
_EMPTY = ""
"""The version of a database without our tables."""


async def migrate(database: Database, url: str) -> None:
    """Bring a database to today's schema; make the tables if there are none.

    Raises
    ------
    StoreError
        If a newer hubbub made it.
    """
    async with database.read() as connection:
        if await connection.run_sync(_version) == _HEAD:
            return
    async with database.migrate() as connection:
        await connection.run_sync(_migrate, url)


async def check_schema(database: Database, url: str) -> None:
    """Raise StoreError unless a database has today's schema."""
    async with database.read() as connection:
        version = await connection.run_sync(_version)
    if version == _EMPTY:
        raise StoreError(f"store {shown(url)!r}: is no store of hubbub's; did a collector make it?")
    _refuse_newer(version, url)
    if version != _HEAD:
        raise StoreError(
            f"store {shown(url)!r}: made by an older hubbub (schema {version}, expected {_HEAD}); "
            "start its collector once to migrate it"
        )


def _version(connection: sa.Connection) -> str:
    """Return the schema's version; stores from before there were versions have the first."""
    tables = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608
        return str(connection.exec_driver_sql(query).scalar() or _EMPTY)
    return REVISIONS[0] if set(metadata.tables) <= tables else _EMPTY


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
        command.stamp(config, version)
    command.upgrade(config, _HEAD)


def _refuse_newer(version: str, url: str) -> None:
    if version not in REVISIONS:
        raise StoreError(
            f"store {shown(url)!r}: made by a newer hubbub (schema {version}, expected at most "
            f"{_HEAD}); update this one"
        )
