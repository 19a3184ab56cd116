"""Schemas: old stores are migrated without loss, newer and foreign ones refused."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import secrets
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

from factories import make_metric, make_params
from hubbub.collector.errors import StoreError
from hubbub.collector.store import Declared, open_store
from hubbub.collector.store.schema import (
    REVISIONS,
    VERSION_TABLE,
    metadata,
    postgresql_metadata,
)
from unit.collector.batches import HOMEPAGE, make_new_batch, make_record, stored_segments
from unit.collector.event_loop import in_event_loop

_DAY = dt.date(2026, 3, 14)
_BATCH = make_new_batch(batch_id=bytes(range(16)))
_OLDEST = {
    "sqlite": """
        CREATE TABLE segments (
            segment_id INTEGER NOT NULL, metric TEXT NOT NULL, version INTEGER NOT NULL,
            day DATE NOT NULL, reports INTEGER NOT NULL, records BLOB NOT NULL,
            PRIMARY KEY (segment_id));
        CREATE INDEX segments_by_metric ON segments (metric, version, day);
        CREATE TABLE batches (
            batch_id BLOB NOT NULL, day DATE NOT NULL, PRIMARY KEY (batch_id)) WITHOUT ROWID;
        CREATE TABLE parameters (
            metric TEXT NOT NULL, version INTEGER NOT NULL, parameters TEXT NOT NULL,
            PRIMARY KEY (metric, version));
    """,
    "postgresql": """
        CREATE TABLE segments (
            segment_id BIGINT NOT NULL, metric TEXT NOT NULL, version INTEGER NOT NULL,
            day DATE NOT NULL, reports INTEGER NOT NULL, records BYTEA NOT NULL,
            PRIMARY KEY (segment_id));
        CREATE INDEX segments_by_metric ON segments (metric, version, day);
        CREATE TABLE batches (batch_id BYTEA NOT NULL, day DATE NOT NULL, PRIMARY KEY (batch_id));
        CREATE TABLE parameters (
            metric TEXT NOT NULL, version INTEGER NOT NULL, parameters TEXT NOT NULL,
            PRIMARY KEY (metric, version));
    """,
}
"""What a collector made before schemas had versions."""


@in_event_loop
async def test_store_without_a_version_is_adopted_without_loss(any_store_url: str) -> None:
    await make_oldest(any_store_url)
    async with open_store(any_store_url, create=True) as store:
        assert await store.declared() == [Declared("homepage", 1, make_metric().definition)]
        assert await stored_segments(store) == [[1, 2, 3]]
        assert await store.upkeep_day() == _DAY  # when it was last in use
        assert await store.append([_BATCH, make_new_batch(range(4))], _DAY) == [False, True]
        with pytest.raises(StoreError, match="need a new version"):
            await store.declare([make_metric(params=make_params(k=64))])
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 7


@in_event_loop
async def test_ids_of_all_days_are_known_after_the_migration(
    any_store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Some are dated later than today, by a clock that was ahead."""
    today = dt.datetime.now(dt.UTC).date()
    await make_oldest(any_store_url)
    batches = [make_new_batch([number]) for number in range(20)]
    for number, batch in enumerate(batches):
        await _add_old_id(any_store_url, batch.batch_id, today - dt.timedelta(days=number - 3))
    with caplog.at_level(logging.INFO, logger="hubbub.collector"):
        async with open_store(any_store_url, create=True) as store:
            assert all([await store.knows(batch.batch_id) for batch in batches])
            for days in (-1, 0, 1, 2):
                day = today + dt.timedelta(days=days)
                assert await store.append(batches, day) == [False] * 20
                new = make_new_batch()
                assert await store.append([new], day) == [True]
                assert await store.append([new, *batches], today) == [False] * 21
    known = f"batch_ids_until_{today:%Y%m%d}"
    assert caplog.messages == [
        f"migrating the store from schema 0001 to {REVISIONS[-1]}",
        f"batch ids known so far stay in one table, {known}, and are forgotten together",
    ]


@pytest.mark.parametrize("behind", [3, 300])
@in_event_loop
async def test_ids_are_known_long_enough_after_a_migration_under_a_clock_that_was_behind(
    any_store_url: str, behind: int
) -> None:
    """By a few days, or so far that all reports are later; a clock was once a year ahead."""
    today = dt.datetime.now(dt.UTC).date()
    youngest, far = today + dt.timedelta(days=behind), today + dt.timedelta(days=behind + 365)
    await make_oldest(any_store_url)
    if behind > 7:
        await execute(any_store_url, "DELETE FROM segments")
    for day in (*[youngest - dt.timedelta(days=days) for days in range(0, 12, 3)], far):
        await _add_old_segment(any_store_url, day)
    batch = make_new_batch()
    await _add_old_id(any_store_url, batch.batch_id, youngest)
    async with open_store(any_store_url, create=True) as store:
        assert await store.forget_ids(youngest) == 0
        assert await store.append([batch], youngest) == [False]
        assert await store.append([batch], today) == [False]
        assert await store.forget_ids(youngest + dt.timedelta(days=1)) >= 1
        assert await store.append([batch], today) == [True]


@in_event_loop
async def test_ids_from_before_the_migration_are_forgotten_with_its_day(any_store_url: str) -> None:
    await make_oldest(any_store_url)
    async with open_store(any_store_url, create=True) as store:
        today = dt.datetime.now(dt.UTC).date()
        assert await store.forget_ids(today - dt.timedelta(days=1)) == 0
        assert await store.append([_BATCH], _DAY) == [False]
        assert await store.forget_ids(today + dt.timedelta(days=2)) >= 1
        assert await store.append([_BATCH], _DAY) == [True]


@in_event_loop
async def test_collector_of_an_earlier_version_is_refused_after_the_migration(
    any_store_url: str,
) -> None:
    """It would look for an id in its own day alone."""
    await make_oldest(any_store_url)
    await _add_old_id(any_store_url, secrets.token_bytes(16), _DAY)
    async with open_store(any_store_url, create=True):
        with pytest.raises(sa.exc.DBAPIError, match="batches"):
            await _add_old_id(any_store_url, secrets.token_bytes(16), _DAY)


@in_event_loop
async def test_old_store_is_adopted_once_by_collectors_that_start_together(
    any_store_url: str,
) -> None:
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    await make_oldest(any_store_url)
    assert all(await asyncio.gather(*[start() for _ in range(6)]))
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 3 + 18


@in_event_loop
async def test_new_store_is_made_once_by_collectors_that_start_together(
    any_store_url: str,
) -> None:
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    assert all(await asyncio.gather(*[start() for _ in range(6)]))
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.schema() == REVISIONS[-1]


@in_event_loop
async def test_migrations_lead_to_the_tables_that_the_code_knows(any_store_url: str) -> None:
    async with open_store(any_store_url, create=True):
        pass
    async with _connection(any_store_url) as connection:
        assert await connection.run_sync(_differences) == []


def test_known_versions_are_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", "hubbub.collector.store:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


@in_event_loop
async def test_reader_asks_for_an_old_store_to_be_migrated_and_leaves_it(
    any_store_url: str,
) -> None:
    await make_oldest(any_store_url)
    message = r"made by an older hubbub \(schema 0001, .* migrate it: hubbub-collector migrate"
    with pytest.raises(StoreError, match=message):
        async with open_store(any_store_url, create=False):
            pass
    with pytest.raises(sa.exc.DBAPIError):
        await _version(any_store_url)


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_store_of_a_newer_hubbub_is_refused_and_left_alone(
    any_store_url: str, create: bool
) -> None:
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
    await execute(any_store_url, "UPDATE hubbub_schema SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"made by a newer hubbub \(schema 9999, .*update this"):
        async with open_store(any_store_url, create=create):
            pass
    assert await _version(any_store_url) == "9999"


@in_event_loop
async def test_database_of_something_else_is_no_store_but_may_become_one(
    any_store_url: str, tmp_path: Path
) -> None:
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
async def test_failed_migration_leaves_the_old_store(any_store_url: str) -> None:
    await make_oldest(any_store_url)
    # Its name is the new index's, so that the last step of the migration fails.
    await execute(any_store_url, "CREATE TABLE segments_by_day (name TEXT)")
    with pytest.raises(StoreError, match="segments_by_day"):
        async with open_store(any_store_url, create=True):
            pass
    await execute(any_store_url, "DROP TABLE segments_by_day")
    async with open_store(any_store_url, create=True) as store:
        assert await store.count(HOMEPAGE) == 3


def test_alembic_is_imported_only_to_migrate(sqlite_url: str) -> None:
    program = f"""
import asyncio, sys
from hubbub.collector.store import open_store

async def run():
    async with open_store({sqlite_url!r}, create=True) as store:
        await store.ping()

asyncio.run(run())
print("alembic" in sys.modules)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert said == ["True", "False"]


async def make_oldest(url: str) -> None:
    """Make a store as the first collectors did, with three reports of a batch."""
    for statement in _OLDEST[url.partition(":")[0]].split(";"):
        if statement.strip():
            await execute(url, statement)
    await _add_old_segment(url, _DAY)
    await _add_old_id(url, _BATCH.batch_id, _DAY)
    await execute(
        url,
        "INSERT INTO parameters VALUES ('homepage', 1, :parameters)",
        parameters=json.dumps(make_metric().definition, sort_keys=True),
    )


async def pretend(url: str, version: str) -> None:
    """Let a store tell that it has an earlier schema."""
    await execute(url, "DROP TABLE hubbub_schema")
    await execute(url, "CREATE TABLE hubbub_schema (version_num VARCHAR(32) NOT NULL)")
    await execute(url, "INSERT INTO hubbub_schema VALUES (:version)", version=version)


async def _add_old_segment(url: str, day: dt.date) -> None:
    await execute(
        url,
        "INSERT INTO segments VALUES (:id, 'homepage', 1, :day, 3, :records)",
        id=secrets.randbits(63),
        day=day,
        records=b"".join(map(make_record, (1, 2, 3))),
    )


async def _add_old_id(url: str, batch_id: bytes, day: dt.date) -> None:
    await execute(url, "INSERT INTO batches VALUES (:id, :day)", id=batch_id, day=day)


async def execute(url: str, statement: str, **values: object) -> None:
    typed = sa.text(statement).bindparams(
        *[sa.bindparam(name, type_=sa.Date) for name in values if name == "day"]
    )
    async with _connection(url) as connection:
        await connection.execute(typed, values)


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
