"""The store in PostgreSQL: durable, shared, and back again after the server was restarted."""

import asyncio
import datetime as dt
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from databases import GUARDED
from factories import make_metric
from hubbub.storage import LOCK_ALL_DAYS, StoreError, open_store
from unit.collector.appends import STORES_IDS, listening, listening_to_appends
from unit.collector.batches import HOMEPAGE, make_new_batch, make_random_batch, two_stores
from unit.collector.event_loop import in_event_loop

_WAITING_FOR_REPLICAS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_STANDBYS = "ALTER SYSTEM SET synchronous_standby_names"
_DAY = dt.date(2026, 3, 14)


@pytest.mark.parametrize(("default", "used"), [("off", "on"), ("remote_apply", "remote_apply")])
@in_event_loop
async def test_sessions_wait_for_the_disk_whatever_the_server_does_by_default(
    postgresql, postgresql_url, default, used
):
    name = postgresql_url.partition("@/")[2].partition("?")[0]
    postgresql.execute(f"ALTER DATABASE {name} SET synchronous_commit = {default}")
    assert postgresql.execute("SHOW synchronous_commit", url=postgresql_url) == default
    seen: list[str] = []

    async def look(connection: asyncpg.Connection, sql: str, _values: Any):
        if STORES_IDS in sql:
            seen.append(await connection.fetchval("SHOW synchronous_commit"))

    async with open_store(postgresql_url, create=True) as store:
        with listening_to_appends(after=look):
            for _ in range(2):  # the first one opens the day
                await store.append([make_new_batch()], _DAY)
    assert seen == [used, used]


@in_event_loop
async def test_transactions_see_what_was_committed_while_they_waited(postgresql, postgresql_url):
    """Whatever the server's default is; and one that is left open ends by itself."""
    name = postgresql_url.partition("@/")[2].partition("?")[0]
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    seen: list[tuple[str, ...]] = []
    settings = ("transaction_isolation", "idle_in_transaction_session_timeout")

    def look(connection: sa.Connection, _cursor: object, sql: str, *_: object):
        if not sql.startswith("SHOW"):
            show = (connection.exec_driver_sql(f"SHOW {each}").scalar_one() for each in settings)
            seen.append(tuple(show))

    async def look_again(connection: asyncpg.Connection, sql: str, _values: Any):
        if STORES_IDS in sql:
            appending.append([await connection.fetchval(f"SHOW {each}") for each in settings])

    appending: list[list[str]] = []
    async with open_store(postgresql_url, create=True) as store:
        with listening("after_cursor_execute", look):
            with listening_to_appends(after=look_again):
                for _ in range(2):  # the first one opens the day
                    await store.append([make_new_batch()], _DAY)
            await store.ping()
    assert set(seen) == {("repeatable read", "0"), ("read committed", "10s")}
    assert appending == [["read committed", "10s"]] * 2


@in_event_loop
async def test_server_that_does_not_sync_is_warned_of(postgresql, postgresql_url, caplog):
    with caplog.at_level(logging.WARNING, logger="hubbub.collector"):
        async with open_store(postgresql_url, create=True):
            pass
        assert caplog.messages == []
        postgresql.stop()
        postgresql.start(fsync="off")
        async with open_store(postgresql_url, create=True) as store:
            await asyncio.gather(*[store.ping() for _ in range(8)])
        postgresql.stop()
    (message,) = caplog.messages
    assert "fsync = off" in message


@in_event_loop
async def test_batch_that_replicas_do_not_have_is_never_known(postgresql, postgresql_url):
    """If who stored it gave up waiting for them, the next one who sends it waits, too."""
    batch = make_new_batch()
    async with two_stores(postgresql_url) as (one, other):
        for store in (one, other):  # whose sessions wait for nothing but their commits from now on
            await store.append([make_new_batch()], _DAY)
        postgresql.execute(f"{_STANDBYS} = 'away'", "SELECT pg_reload_conf()")
        try:
            first = asyncio.ensure_future(one.append([batch], _DAY))
            async with asyncio.timeout(30):
                while not await asyncio.to_thread(postgresql.execute, _WAITING_FOR_REPLICAS):
                    await asyncio.sleep(0.02)
            for send in (
                lambda: first,
                partial(other.append, [batch], _DAY),
            ):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(send(), 0.3)
        finally:
            postgresql.execute(f"{_STANDBYS} = ''")
            postgresql.stop(at_once=True)
        postgresql.start()
        assert await other.append([batch], _DAY) == [False]


@in_event_loop
async def test_store_works_again_after_the_server_was_restarted(postgresql, postgresql_url):
    batch = make_new_batch()
    async with open_store(postgresql_url, create=True) as store:
        await asyncio.gather(*[store.append([make_new_batch()], _DAY) for _ in range(6)])
        for at_once in (False, True):
            postgresql.stop(at_once=at_once)
            with pytest.raises(StoreError):
                await store.append([batch], _DAY)
            with pytest.raises(StoreError):
                await store.ping()
            postgresql.start()
            pings = [store.ping() for _ in range(6)]
            appends = [store.append([make_new_batch()], _DAY) for _ in range(6)]
            await asyncio.gather(*pings, *appends)
        assert await store.append([batch], _DAY) == [True]
        assert await store.append([batch], _DAY) == [False]
        assert await store.count(HOMEPAGE) == 57


@pytest.mark.parametrize("cut", ["by the server", "by the caller"])
@in_event_loop
async def test_transaction_that_was_cut_off_while_it_waited_spoils_no_connection(
    postgresql, postgresql_url, cut
):
    """Or the server would refuse all that come over it, as parts of the one that failed."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'"
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(2):  # the first one opens the day
            await store.append([make_new_batch()], _DAY)
        async with _holding_all_days(postgresql_url):
            storing = asyncio.create_task(store.append([make_new_batch()], _DAY))
            while not (process := postgresql.execute(waiting)):
                await asyncio.sleep(0.01)
            if cut == "by the server":  # as a statement that takes too long is
                postgresql.execute(f"SELECT pg_cancel_backend({process})")
            else:
                storing.cancel()
            with pytest.raises((StoreError, asyncio.CancelledError)):
                await storing
            while postgresql.execute(waiting):
                await asyncio.sleep(0.01)
        for _ in range(3):
            assert await store.append([make_new_batch()], _DAY) == [True]
        assert await store.count(HOMEPAGE) == 15


@asynccontextmanager
async def _holding_all_days(url: str) -> AsyncIterator[None]:
    """Keep all from inserting ids, as who opens another day does."""
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as connection:
            await connection.execute(LOCK_ALL_DAYS)
            yield
    finally:
        await engine.dispose()


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_password_is_used_and_never_shown(postgresql, postgresql_url, create):
    user, password = GUARDED
    who = f"//{user}:{{}}@"
    postgresql.execute(f"GRANT ALL ON SCHEMA public TO {user}", url=postgresql_url)
    right = postgresql_url.replace("//postgres@", who.format(password))
    async with open_store(right, create=True) as store:
        await store.append([make_new_batch()], _DAY)
    for url in (
        right.replace(password, "wrong-secret"),
        postgresql_url.replace("//postgres@", who.format("wrong-sec:r@et")),
        postgresql_url.replace("postgres@", "") + f"&user={user}&password=wrong-secret",
        right.replace(password, "wrong-secret").replace("?host=", "?host=/nowhere"),
        right.replace(password, "wrong-secret") + "&port=many",
    ):
        with pytest.raises(StoreError) as refused:
            async with open_store(url, create=create):
                pass
        told = str(refused.value)
        assert "wrong-sec" not in told
        assert "store 'postgresql://" in told


@in_event_loop
async def test_server_that_is_not_there_is_reported(postgresql_url):
    url = postgresql_url.replace("?host=", "?host=/nowhere")
    with pytest.raises(StoreError, match=r"/nowhere.*No such file"):
        async with open_store(url, create=True):
            pass
    with pytest.raises(StoreError, match='database "missing" does not exist'):
        async with open_store(re.sub(r"/test_\w+", "/missing", postgresql_url), create=True):
            pass


@in_event_loop
async def test_errors_show_no_statement_and_no_values(postgresql, postgresql_url):
    batch = make_new_batch(batch_id=b"sixteen bytes id")
    async with open_store(postgresql_url, create=True) as store:
        check = "ALTER TABLE batch_ids ADD CHECK (batch_id IS NULL)"
        postgresql.execute(check, url=postgresql_url)
        with pytest.raises(StoreError) as refused:
            await store.append([batch], _DAY)
        assert "violates check constraint" in str(refused.value)
        postgresql.execute("DROP TABLE batch_ids CASCADE", url=postgresql_url)
        with pytest.raises(StoreError) as missing:
            await store.append([batch], _DAY)
    assert str(missing.value) == 'store: relation "batch_ids" does not exist'
    for told in (str(refused.value), str(missing.value)):
        assert "sixteen" not in told
        assert batch.batch_id.hex() not in told
        assert "INSERT" not in told
        assert _DAY.isoformat() not in told


@in_event_loop
async def test_tidying_clears_what_was_merged(postgresql, postgresql_url):
    dead = "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname LIKE 'segments%'"
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(50):
            await store.append([make_random_batch(100)], _DAY)
        assert await store.segments.merge() == 50
        await store.database.reclaim_space()
        postgresql.execute("SELECT pg_stat_force_next_flush()", url=postgresql_url)
        assert postgresql.execute(dead, url=postgresql_url) == "0"
        assert await store.count(HOMEPAGE) == 5000


@in_event_loop
async def test_merged_reports_are_not_marked_with_the_transactions_of_their_batches(
    postgresql, postgresql_url
):
    """PostgreSQL marks each row with the transaction that made it."""
    marks = "SELECT count(*) FROM segments JOIN batch_ids ON segments.xmin = batch_ids.xmin"
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(5):
            await store.append([make_new_batch()], _DAY)
        assert postgresql.execute(marks, url=postgresql_url) == "5"
        assert await store.segments.merge() == 5
        assert postgresql.execute(marks, url=postgresql_url) == "0"


@in_event_loop
async def test_groups_with_common_batches_do_not_block_each_other(postgresql_url):
    """The ids of a group have no order of their own, and other groups other orders."""
    async with two_stores(postgresql_url) as (one, other):
        for _ in range(10):
            batches = [make_new_batch([i]) for i in range(900)]
            large, small = await asyncio.gather(
                one.append(batches, _DAY), other.append(batches[::3], _DAY)
            )
            assert sum(large) + sum(small) == 900
        assert await one.count(HOMEPAGE) == 9000


@in_event_loop
async def test_registries_declared_in_different_orders_do_not_block_each_other(postgresql_url):
    metrics = [make_metric(f"metric{number}") for number in range(30)]
    async with two_stores(postgresql_url) as (one, other):
        await asyncio.gather(one.declare(metrics), other.declare(metrics[::-1]))
        assert len(await one.declared()) == 30
