"""The store on real SQLite files: all or nothing, each batch once, unlinkable, durable."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import make_metric, make_params
from hubbub.client import RapporParams
from hubbub.collector import store as store_module
from hubbub.collector.errors import StoreError
from hubbub.collector.store import MetricVersion, NewBatch, open_store
from unit.collector.batches import HOMEPAGE, make_new_batch, make_record, stored_segments
from unit.collector.event_loop import in_event_loop

_DAY = dt.date(2026, 3, 14)


@in_event_loop
async def test_new_batches_are_stored_and_told_from_known_ones(store_url: str) -> None:
    first, second = make_new_batch(range(3)), make_new_batch(range(3, 8))
    async with open_store(store_url, create=True) as store:
        assert await store.append([first], _DAY) == [True]
        assert await store.append([second, first], _DAY) == [True, False]
        assert await store.append([second, first], _DAY) == [False, False]
        assert await store.count(HOMEPAGE) == 8


@in_event_loop
async def test_stored_batch_is_known_after_reopening(store_url: str) -> None:
    batch = make_new_batch()
    async with open_store(store_url, create=True) as store:
        await store.append([batch], _DAY)
    async with open_store(store_url, create=True) as store:
        assert await store.append([batch], _DAY + dt.timedelta(days=1)) == [False]
        assert await store.count(HOMEPAGE) == 3


@in_event_loop
async def test_of_copies_in_one_group_the_first_counts(store_url: str) -> None:
    batch, other = make_new_batch(), make_new_batch()
    async with open_store(store_url, create=True) as store:
        fresh = await store.append([batch, other, batch, batch], _DAY)
        assert fresh == [True, True, False, False]
        assert await store.count(HOMEPAGE) == 6


@given(st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=6))
@settings(max_examples=40)
@in_event_loop
async def test_every_id_counts_once_in_whatever_groups_it_comes(groups: list[list[int]]) -> None:
    seen: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/hubbub.db", create=True) as store:
            for group in groups:
                batches = [make_new_batch([i], batch_id=bytes([i] * 16)) for i in group]
                fresh = await store.append(batches, _DAY)
                assert fresh == [i not in seen | set(group[:at]) for at, i in enumerate(group)]
                seen |= set(group)
            stored = [i for segment in await stored_segments(store) for i in segment]
            assert sorted(stored) == sorted(seen)


@in_event_loop
async def test_group_larger_than_one_statement_is_stored_once(store_url: str) -> None:
    batches = [make_new_batch([i]) for i in range(1300)]
    async with open_store(store_url, create=True) as store:
        assert await store.append(batches[:700], _DAY) == [True] * 700
        assert await store.append(batches, _DAY) == [False] * 700 + [True] * 600
        assert await store.count(HOMEPAGE) == 1300


@in_event_loop
async def test_group_that_fails_leaves_no_trace(store_url: str, database: Path) -> None:
    known, batch = make_new_batch(), make_new_batch()
    async with open_store(store_url, create=True) as store:
        await store.append([known], _DAY)
        _execute(database, "ALTER TABLE segments RENAME TO elsewhere")
        with pytest.raises(StoreError, match="no such table: segments"):
            await store.append([known, batch], _DAY)
        _execute(database, "ALTER TABLE elsewhere RENAME TO segments")
        assert await store.append([known, batch], _DAY) == [False, True]
        assert await store.count(HOMEPAGE) == 6


@in_event_loop
async def test_full_database_refuses_and_recovers(store_url: str) -> None:
    large = [make_new_batch(range(60_000)) for _ in range(3)]
    async with open_store(store_url, create=True) as store:
        with _largest_database(pages=400):
            assert await store.append(large[:1], _DAY) == [True]
            with pytest.raises(StoreError, match="database or disk is full"):
                await store.append(large[1:], _DAY)
            assert await store.count(HOMEPAGE) == 60_000
        with _largest_database(pages=4000):
            assert await store.append(large, _DAY) == [False, True, True]
            assert await store.count(HOMEPAGE) == 180_000


@in_event_loop
async def test_locked_database_refuses_after_a_while_and_recovers(
    store_url: str, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_BUSY_SECONDS", 0.2)
    batch = make_new_batch()
    async with open_store(store_url, create=True) as store:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError, match="database is locked"):
                await store.append([batch], _DAY)
            other.execute("ROLLBACK")
        assert await store.append([batch], _DAY) == [True]
        assert await store.count(HOMEPAGE) == 3


@in_event_loop
async def test_records_of_a_group_are_pooled_and_shuffled(store_url: str) -> None:
    """P(false alarm) < 1e-37: the first 64 of 128 shuffled records are just one batch's."""
    async with open_store(store_url, create=True) as store:
        await store.append([make_new_batch(range(64)), make_new_batch(range(64, 128))], _DAY)
        (segment,) = await stored_segments(store)
        assert sorted(segment) == list(range(128))
        assert segment != list(range(128))
        assert max(segment[:64]) >= 64
        assert min(segment[64:]) < 64


@in_event_loop
async def test_shuffle_takes_every_order_equally_often(store_url: str) -> None:
    """6 orders of 3 records, 1,200 times: chi-square with 5 degrees; P(false alarm) < 1e-9."""
    async with open_store(store_url, create=True) as store:
        keys = [MetricVersion("homepage", version) for version in range(1200)]
        records = [make_record(number) for number in range(3)]
        await store.append([NewBatch(bytes(16), dict.fromkeys(keys, records))], _DAY)
        counts: dict[tuple[int, ...], int] = {}
        for key in keys:
            (order,) = await stored_segments(store, key)
            counts[tuple(order)] = counts.get(tuple(order), 0) + 1
    assert len(counts) == 6
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 51


@in_event_loop
async def test_segments_are_chosen_by_metric_version_and_day(store_url: str) -> None:
    keys = [HOMEPAGE, MetricVersion("homepage", 2), MetricVersion("search", 1)]
    days = [_DAY + dt.timedelta(days=i) for i in range(4)]
    async with open_store(store_url, create=True) as store:
        for reports, key in enumerate(keys, start=1):
            for day in days:
                await store.append([make_new_batch(range(reports), key=key)], day)
        assert [await store.count(key) for key in keys] == [4, 8, 12]
        assert await store.count(keys[1], since=days[1]) == 6
        assert await store.count(keys[1], until=days[0]) == 2
        assert await store.count(keys[1], since=days[1], until=days[2]) == 4
        assert await store.count(keys[1], since=days[3] + dt.timedelta(days=1)) == 0
        chosen = [s async for s in store.segments(keys[2], since=days[1], until=days[2])]
        assert [len(segment) for segment in chosen] == [3 * 18] * 2
        assert await store.versions("homepage") == [1, 2]
        assert await store.versions("nothing") == []


@in_event_loop
async def test_writing_connections_use_a_journal_that_is_synced_at_each_commit(
    store_url: str,
) -> None:
    checked: list[tuple[str, int]] = []

    def check(connection: sa.Connection) -> None:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        checked.append((journal, connection.exec_driver_sql("PRAGMA synchronous").scalar_one()))

    async with open_store(store_url, create=True) as store:
        with _listening(sa.Engine, "commit", check):
            await store.append([make_new_batch()], _DAY)
    assert checked == [("wal", 2)]  # 2 is FULL: fsync at each commit


@in_event_loop
async def test_declared_parameters_may_be_declared_again(store_url: str) -> None:
    async with open_store(store_url, create=True) as store:
        for _ in range(2):
            await store.declare([make_metric(), make_metric("search")])
        await store.check(make_metric())


@pytest.mark.parametrize(
    "changed",
    [
        make_params(k=64),
        make_params(h=1),
        make_params(m=32),
        make_params(f=0.25),
        make_params(p=0.5),
        make_params(q=0.875),
    ],
    ids=["k", "h", "m", "f", "p", "q"],
)
@in_event_loop
async def test_changed_parameters_need_a_new_version(store_url: str, changed: RapporParams) -> None:
    message = "metrics.homepage: version 1 is stored with parameters .* need a new version"
    async with open_store(store_url, create=True) as store:
        await store.declare([make_metric()])
        with pytest.raises(StoreError, match=message):
            await store.declare([make_metric(params=changed)])
    async with open_store(store_url, create=False) as reader:
        with pytest.raises(StoreError, match=message):
            await reader.check(make_metric(params=changed))
        await reader.check(make_metric())
        await reader.check(make_metric(version=2, params=changed))


@in_event_loop
async def test_registry_with_one_changed_metric_declares_none(store_url: str) -> None:
    async with open_store(store_url, create=True) as store:
        await store.declare([make_metric()])
        with pytest.raises(StoreError):
            await store.declare([make_metric("search"), make_metric(params=make_params(k=8))])
        await store.declare([make_metric("search", params=make_params(k=8))])


@in_event_loop
async def test_collectors_may_make_and_open_one_store_at_the_same_time(store_url: str) -> None:
    async def start_and_store() -> list[bool]:
        async with open_store(store_url, create=True) as store:
            await store.declare([make_metric()])
            return await store.append([make_new_batch()], _DAY)

    assert await asyncio.gather(*[start_and_store() for _ in range(8)]) == [[True]] * 8
    async with open_store(store_url, create=False) as reader:
        assert await reader.count(HOMEPAGE) == 24


@in_event_loop
async def test_reader_sees_what_a_writer_committed_meanwhile(store_url: str) -> None:
    async with (
        open_store(store_url, create=True) as writer,
        open_store(store_url, create=False) as reader,
    ):
        assert await reader.count(HOMEPAGE) == 0
        await writer.append([make_new_batch()], _DAY)
        assert await reader.count(HOMEPAGE) == 3


@in_event_loop
async def test_reader_can_not_write(store_url: str) -> None:
    async with open_store(store_url, create=True) as writer:
        await writer.declare([make_metric()])
    async with open_store(store_url, create=False) as reader:
        with pytest.raises(StoreError, match="readonly"):
            await reader.append([make_new_batch()], _DAY)
        with pytest.raises(StoreError, match="readonly"):
            await reader.declare([make_metric("search")])
        assert await reader.count(HOMEPAGE) == 0


@in_event_loop
async def test_reader_of_a_missing_database_says_so_and_makes_none(
    store_url: str, database: Path
) -> None:
    with pytest.raises(StoreError, match=r"hubbub\.db': no such file"):
        async with open_store(store_url, create=False):
            pass
    assert not database.exists()


@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_file_that_is_no_database_is_refused(
    store_url: str, database: Path, create: bool
) -> None:
    database.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match=r"hubbub\.db': file is not a database"):
        async with open_store(store_url, create=create):
            pass
    assert database.read_bytes() == b"no database " * 1000


@in_event_loop
async def test_database_of_something_else_is_explained(store_url: str, database: Path) -> None:
    _execute(database, "CREATE TABLE recipes (dish TEXT)")
    async with open_store(store_url, create=False) as reader:
        with pytest.raises(StoreError, match="no such table"):
            await reader.count(HOMEPAGE)


@in_event_loop
async def test_errors_show_no_statement_and_no_values(store_url: str, database: Path) -> None:
    batch = make_new_batch(batch_id=b"sixteen bytes id")
    async with open_store(store_url, create=True) as store:
        _execute(database, "DROP TABLE batches")
        with pytest.raises(StoreError) as refused:
            await store.append([batch], _DAY)
    assert str(refused.value) == "store: no such table: batches"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hubbub.db",
        "postgresql://localhost/x",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x?y=z",
    ],
)
@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_only_sqlite_files_are_stores(url: str, create: bool) -> None:
    with pytest.raises(StoreError, match="must be sqlite:///PATH"):
        async with open_store(url, create=create):
            pass


def _execute(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)


@contextlib.contextmanager
def _largest_database(pages: int) -> Iterator[None]:
    """Bound the database's size, as a small disk would."""

    def bound(connection: sqlite3.Connection, *_others: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    with _listening(sa.Pool, "checkout", bound):
        yield


@contextlib.contextmanager
def _listening(target: type, event: str, listener: Callable[..., None]) -> Iterator[None]:
    """Let a listener hear of an event of every object of a class of SQLAlchemy's."""
    sa.event.listen(target, event, listener)
    try:
        yield
    finally:
        sa.event.remove(target, event, listener)
