"""Schemas: old stores are migrated without loss, newer and foreign ones refused."""

import asyncio
import datetime as dt
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from factories import make_metric
from hubbub.storage import VERSION_TABLE, Declared, StoreError, open_store, revisions, schema
from unit.collector.batches import HOMEPAGE, make_new_batch, stored_segments
from unit.collector.event_loop import in_event_loop
from unit.collector.next_version import MIGRATIONS, NEXT, NOW

_DAY = dt.date(2026, 3, 14)


@pytest.fixture
def become_next_version(monkeypatch) -> Callable[[], None]:
    """Let this process know the migrations of the next version, until the test ends."""

    def become() -> None:
        monkeypatch.setattr(schema, "MIGRATIONS", MIGRATIONS)

    return become


@in_event_loop
async def test_old_store_is_migrated_without_loss(any_store_url, become_next_version, caplog):
    batches = [make_new_batch([number]) for number in range(20)]
    async with open_store(any_store_url, create=True) as store:
        await store.declare([make_metric()])
        for number, batch in enumerate(batches):
            await store.append([batch], _DAY + dt.timedelta(days=number % 3))
    become_next_version()
    with caplog.at_level(logging.INFO, logger="hubbub.collector"):
        async with open_store(any_store_url, create=True) as store:
            assert await store.schema() == NEXT
            assert await store.declared() == [Declared("homepage", 1, make_metric().definition)]
            stored = await stored_segments(store)
            assert sorted(number for segment in stored for number in segment) == list(range(20))
            known = await store.append([*batches, make_new_batch()], _DAY)
            assert known == [False] * 20 + [True]
    assert caplog.messages == [f"migrating the store from schema {NOW} to {NEXT}"]
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 23


@in_event_loop
async def test_old_store_is_migrated_once_by_collectors_that_start_together(
    any_store_url, become_next_version
):
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    assert await start()
    become_next_version()
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
        assert await reader.schema() == revisions()[-1]


@in_event_loop
async def test_reader_asks_for_an_old_store_to_be_migrated_and_leaves_it(
    any_store_url, become_next_version
):
    async with open_store(any_store_url, create=True):
        pass
    become_next_version()
    message = rf"made by an older hubbub \(schema {NOW}, .* migrate it: hubbub-collector maintain "
    with pytest.raises(StoreError, match=message):
        async with open_store(any_store_url, create=False):
            pass
    assert await _version(any_store_url) == NOW


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_store_of_a_newer_hubbub_is_refused_and_left_alone(any_store_url, create):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
    await execute(any_store_url, "UPDATE hubbub_schema SET needed = '9999'")
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
async def test_failed_migration_leaves_the_old_store(any_store_url, become_next_version):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        # Its name is the new table's, so that the last step of the migration fails.
        await execute(any_store_url, "CREATE TABLE regions (dish TEXT)")
        become_next_version()
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
    postgresql_url, become_next_version
):
    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
        become_next_version()
        async with _connection(postgresql_url) as backup:
            await backup.exec_driver_sql("LOCK TABLE segments IN ACCESS SHARE MODE")
            with pytest.raises(StoreError, match="lock timeout"):
                async with open_store(postgresql_url, create=True):
                    pass
            assert await store.append([make_new_batch()], _DAY) == [True]
    async with open_store(postgresql_url, create=True) as store:
        assert await store.count(HOMEPAGE) == 6


async def execute(url: str, statement: str, **values: object) -> None:
    async with _connection(url) as connection:
        await connection.execute(sa.text(statement), values)


async def _version(url: str) -> str:
    async with _connection(url) as connection:
        versions = sa.table(VERSION_TABLE, sa.column("needed", sa.Text))
        return str((await connection.execute(sa.select(versions.c.needed))).scalar_one())


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(_driver_url(url))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


def _driver_url(url: str) -> str:
    return url.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:")
