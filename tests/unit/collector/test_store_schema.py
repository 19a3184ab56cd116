"""Schemas: a store is made once, one of another version and a foreign database are refused."""

import asyncio
import datetime as dt
import sqlite3

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from hubbub.storage import StoreError, open_store
from unit.collector.batches import HOMEPAGE, make_new_batch
from unit.collector.event_loop import in_event_loop

_DAY = dt.date(2026, 3, 14)


@in_event_loop
async def test_new_store_is_made_once_by_collectors_that_start_together(any_store_url):
    async def start() -> bool:
        async with open_store(any_store_url, create=True) as store:
            return await store.append([make_new_batch()], _DAY) == [True]

    assert all(await asyncio.gather(*[start() for _ in range(6)]))
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 6 * 3


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_store_of_another_version_is_refused_and_left_alone(any_store_url, create):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch()], _DAY)
    await execute(any_store_url, "UPDATE hubbub_schema SET version = '9999'")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"made by another version .*schema 9999, expected"):
            async with open_store(any_store_url, create=create):
                pass


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


async def execute(url: str, statement: str) -> None:
    driver = url.replace("sqlite:", "sqlite+aiosqlite:")
    engine = create_async_engine(driver.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as connection:
            await connection.execute(sa.text(statement))
    finally:
        await engine.dispose()
