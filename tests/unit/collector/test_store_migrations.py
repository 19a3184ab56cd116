"""Schemas: old stores are migrated without loss, newer and foreign ones refused."""

import asyncio
import contextlib
import datetime as dt
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from factories import make_metric
from hubbub.storage import Declared, open_store, schema
from hubbub.storage.errors import StoreError
from hubbub.storage.schema import REVISIONS, VERSION_TABLE, metadata, postgresql_metadata
from unit.collector.batches import HOMEPAGE, make_new_batch, stored_segments
from unit.collector.event_loop import in_event_loop
from unit.collector.next_version import EXPANDED, NOW, NextVersion

_DAY = dt.date(2026, 3, 14)


@pytest.fixture
def next_version(tmp_path, monkeypatch) -> NextVersion:
    return NextVersion(tmp_path / "migrations", monkeypatch)


@in_event_loop
async def test_old_store_is_migrated_without_loss(any_store_url, next_version, caplog):
    batches = [make_new_batch([number]) for number in range(20)]
    async with open_store(any_store_url, create=True) as store:
        await store.declare([make_metric()])
        for number, batch in enumerate(batches):
            await store.append([batch], _DAY + dt.timedelta(days=number % 3))
    next_version.install()
    with caplog.at_level(logging.INFO, logger="hubbub.collector"):
        async with open_store(any_store_url, create=True) as store:
            assert await store.schema() == EXPANDED
            assert await store.declared() == [Declared("homepage", 1, make_metric().definition)]
            stored = await stored_segments(store)
            assert sorted(number for segment in stored for number in segment) == list(range(20))
            known = await store.append([*batches, make_new_batch()], _DAY)
            assert known == [False] * 20 + [True]
    assert caplog.messages == [f"migrating the store from schema {NOW} to {EXPANDED}"]
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 23


@in_event_loop
async def test_old_store_is_migrated_once_by_collectors_that_start_together(
    any_store_url, next_version
):
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    assert await start()
    next_version.install()
    assert all(await asyncio.gather(*[start() for _ in range(6)]))
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 7 * 3


@in_event_loop
async def test_new_store_is_made_once_by_collectors_that_start_together(any_store_url):
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    assert all(await asyncio.gather(*[start() for _ in range(6)]))
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.schema() == REVISIONS[-1]


@in_event_loop
async def test_migrations_lead_to_the_tables_that_the_code_knows(any_store_url):
    async with open_store(any_store_url, create=True):
        pass
    async with _connection(any_store_url) as connection:
        assert await connection.run_sync(_differences) == []


def test_known_versions_are_the_migrations():
    config = Config()
    config.set_main_option("script_location", "hubbub.storage:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


@in_event_loop
async def test_reader_asks_for_an_old_store_to_be_migrated_and_leaves_it(
    any_store_url, next_version
):
    async with open_store(any_store_url, create=True):
        pass
    next_version.install()
    message = rf"made by an older hubbub \(schema {NOW}, .* migrate it: hubbub-collector migrate"
    with pytest.raises(StoreError, match=message):
        async with open_store(any_store_url, create=False):
            pass
    assert await _version(any_store_url) == NOW


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_store_of_a_newer_hubbub_is_refused_and_left_alone(any_store_url, create):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
    await execute(any_store_url, "UPDATE hubbub_schema SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"made by a newer hubbub \(schema 9999, .*update this"):
        async with open_store(any_store_url, create=create):
            pass
    assert await _version(any_store_url) == "9999"


@in_event_loop
async def test_database_of_something_else_is_no_store_but_may_become_one(any_store_url, tmp_path):
    if any_store_url.startswith("sqlite"):
        sqlite3.connect(tmp_path / "hubbub.db").close()
    await execute(any_store_url, "CREATE TABLE recipes (dish TEXT)")
    await execute(any_store_url, "CREATE TABLE alembic_version (version_num TEXT)")
    with pytest.raises(StoreError, match="is no store of hubbub's"):
        async with open_store(any_store_url, create=False):
            pass
    async with open_store(any_store_url, create=True) as store:
        assert await store.append([make_new_batch()], _DAY) == [True]


@in_event_loop
async def test_failed_migration_leaves_the_old_store(any_store_url, next_version):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        # Its name is the new table's, so that the last step of the migration fails.
        await execute(any_store_url, "CREATE TABLE regions (dish TEXT)")
        next_version.install()
        with pytest.raises(StoreError, match="regions"):
            async with open_store(any_store_url, create=True):
                pass
        assert await _version(any_store_url) == NOW
        assert await store.append([make_new_batch()], _DAY) == [True]
    await execute(any_store_url, "DROP TABLE regions")
    async with open_store(any_store_url, create=True) as store:
        assert await store.count(HOMEPAGE) == 6


@in_event_loop
async def test_migration_does_not_keep_collectors_waiting_for_a_backup(
    postgresql_url, next_version
):
    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        next_version.install()
        async with _connection(postgresql_url) as backup:
            await backup.exec_driver_sql("LOCK TABLE segments IN ACCESS SHARE MODE")
            with pytest.raises(StoreError, match="lock timeout"):
                async with open_store(postgresql_url, create=True):
                    pass
            assert await store.append([make_new_batch()], _DAY) == [True]
    async with open_store(postgresql_url, create=True) as store:
        assert await store.count(HOMEPAGE) == 6


@in_event_loop
async def test_new_file_has_the_tables_that_migrations_make(tmp_path, monkeypatch):
    new, migrated = (f"sqlite:///{tmp_path / name}.db" for name in ("new", "migrated"))
    async with open_store(new, create=True):
        assert await _version(new) == REVISIONS[-1]
    monkeypatch.setattr(schema, "_LATEST", "none, so that all migrations are made")
    async with open_store(migrated, create=True):
        assert await _version(migrated) == REVISIONS[-1]
    assert _definitions(tmp_path / "new.db") == _definitions(tmp_path / "migrated.db")


def test_alembic_is_imported_only_to_migrate(sqlite_url):
    program = f"""
import asyncio, sys
from hubbub.storage import open_store, schema

async def run():
    async with open_store({sqlite_url!r}, create=True) as store:
        await store.ping()

schema._LATEST = sys.argv[1]
asyncio.run(run())
print("alembic" in sys.modules)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", program, latest], capture_output=True, text=True, check=True
        ).stdout.strip()
        for latest in ("none", REVISIONS[-1])
    ]
    assert said == ["True", "False"]


async def execute(url: str, statement: str, **values: object) -> None:
    async with _connection(url) as connection:
        await connection.execute(sa.text(statement), values)


def _definitions(file: Path) -> set[tuple[str, str]]:
    """Return the statement that made each table and index of a file, by its name."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return set(found)


async def _version(url: str) -> str:
    async with _connection(url) as connection:
        versions = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text))
        return str((await connection.execute(sa.select(versions.c.version_num))).scalar_one())


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[AsyncConnection]:
    """Connect as an administrator would."""
    engine = create_async_engine(_driver_url(url))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


def _driver_url(url: str) -> str:
    return url.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:")


def _differences(connection: sa.Connection) -> list[object]:
    options = {"version_table": VERSION_TABLE, "compare_type": True}
    context = MigrationContext.configure(connection, opts=options)
    expected = sa.MetaData()
    for table in metadata.tables.values():
        table.to_metadata(expected)
    if context.dialect.name == "postgresql":
        for table in postgresql_metadata.tables.values():
            table.to_metadata(expected)
    return list(compare_metadata(context, expected))
