"""The store, alike on SQLite and PostgreSQL: all or nothing, each batch once and without trace."""

import asyncio
import datetime as dt
import tempfile

import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params
from hubbub.storage import DayCount, Declared, MetricVersion, NewBatch, StoreError, open_store
from parameters import examples
from unit.collector.batches import (
    HOMEPAGE,
    WIDTH,
    make_new_batch,
    make_random_batch,
    make_records,
    stored_segments,
    two_stores,
)
from unit.collector.event_loop import in_event_loop
from unit.collector.exchanges import segments_of

_DAY = dt.date(2026, 3, 14)


@given(st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=6))
@examples(40)
@in_event_loop
async def test_every_id_counts_once_in_whatever_groups_it_comes(groups):
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
async def test_records_of_a_group_are_pooled_and_shuffled(any_store_url):
    """P(false alarm) < 1e-37: the first 64 of 128 shuffled records are just one batch's."""
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch(range(64)), make_new_batch(range(64, 128))], _DAY)
        (segment,) = await stored_segments(store)
        assert sorted(segment) == list(range(128))
        assert segment != list(range(128))
        assert max(segment[:64]) >= 64
        assert min(segment[64:]) < 64


@in_event_loop
async def test_shuffle_takes_every_order_equally_often(sqlite_url):
    """6 orders of 3 records, 1,200 times: chi-square with 5 degrees; P(false alarm) < 1e-9."""
    async with open_store(sqlite_url, create=True) as store:
        keys = [MetricVersion("homepage", version) for version in range(1200)]
        records = make_records(range(3))
        await store.append([NewBatch(bytes(16), dict.fromkeys(keys, records))], _DAY)
        counts: dict[tuple[int, ...], int] = {}
        for key in keys:
            (order,) = await stored_segments(store, key)
            counts[tuple(order)] = counts.get(tuple(order), 0) + 1
    assert len(counts) == 6
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 51


@in_event_loop
async def test_segments_are_chosen_by_metric_version_and_day(any_store_url):
    keys = [HOMEPAGE, MetricVersion("homepage", 2), MetricVersion("search", 1)]
    days = [_DAY + dt.timedelta(days=i) for i in range(4)]
    async with open_store(any_store_url, create=True) as store:
        for reports, key in enumerate(keys, start=1):
            for day in days:
                await store.append([make_new_batch(range(reports), key=key)], day)
        assert [await store.count(key) for key in keys] == [4, 8, 12]
        assert await store.count(keys[1], since=days[1]) == 6
        assert await store.count(keys[1], until=days[0]) == 2
        assert await store.count(keys[1], since=days[1], until=days[2]) == 4
        assert await store.count(keys[1], since=days[3] + dt.timedelta(days=1)) == 0
        chosen = await segments_of(store, keys[2], days[1], days[2])
        assert [len(segment) for segment in chosen] == [3 * 18] * 2
        assert await store.versions("homepage") == [1, 2]
        assert await store.versions("nothing") == []


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
async def test_changed_parameters_need_a_new_version(any_store_url, changed):
    message = "metrics.homepage: version 1 is stored with another definition: .* from .* to "
    async with open_store(any_store_url, create=True) as store:
        await store.declare([make_metric()])
        with pytest.raises(StoreError, match=message):
            await store.declare([make_metric(params=changed)])
    async with open_store(any_store_url, create=False) as reader:
        with pytest.raises(StoreError, match=message):
            await reader.check(make_metric(params=changed))
        await reader.check(make_metric())
        await reader.check(make_metric(version=2, params=changed))


@in_event_loop
async def test_registry_with_one_changed_metric_declares_none(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.declare([make_metric()])
        with pytest.raises(StoreError):
            await store.declare([make_metric("search"), make_metric(params=make_params(k=8))])
        await store.declare([make_metric("search", params=make_params(k=8))])


@in_event_loop
async def test_reader_can_not_write(any_store_url):
    async with open_store(any_store_url, create=True) as writer:
        await writer.declare([make_metric()])
    async with open_store(any_store_url, create=False) as reader:
        with pytest.raises(StoreError, match=r"read-?only"):
            await reader.append([make_new_batch()], _DAY)
        with pytest.raises(StoreError, match=r"read-?only"):
            await reader.declare([make_metric("search")])
        assert await reader.count(HOMEPAGE) == 0


@in_event_loop
async def test_batches_racing_in_two_stores_count_once(any_store_url):
    """The same groups in different orders: whoever comes first wins, and nobody waits for ever."""
    batches = [make_new_batch([i]) for i in range(40)]
    async with two_stores(any_store_url) as (one, other):
        for start in range(0, 40, 4):
            group = batches[start : start + 4]
            fresh = await asyncio.gather(
                *[one.append(group, _DAY) for _ in range(3)],
                *[other.append(group[::-1], _DAY) for _ in range(3)],
            )
            won = [*fresh[:3], *[answer[::-1] for answer in fresh[3:]]]
            assert [sum(each) for each in zip(*won, strict=True)] == [1] * 4
        assert await one.count(HOMEPAGE) == 40


@in_event_loop
async def test_every_declared_version_is_listed(any_store_url):
    old, new = make_metric(), make_metric(version=2, params=make_params(k=64))
    search = make_metric("search")
    async with open_store(any_store_url, create=True) as store:
        assert await store.declared() == []
        await store.declare([search, old])
        await store.declare([new])
    async with open_store(any_store_url, create=False) as reader:
        assert await reader.declared() == [
            Declared(metric.name, metric.version, metric.definition)
            for metric in (old, new, search)
        ]


@in_event_loop
async def test_overview_lists_days_reports_segments_and_bytes(any_store_url):
    other, tomorrow = MetricVersion("homepage", 2), _DAY + dt.timedelta(days=1)
    async with open_store(any_store_url, create=True) as store:
        assert await store.overview() == []
        await store.append([make_new_batch(range(5))], tomorrow)
        await store.append([make_new_batch(range(3)), make_new_batch(range(4))], _DAY)
        await store.append([make_new_batch(range(2)), make_new_batch([1], key=other)], _DAY)
        assert await store.overview() == [
            DayCount("homepage", 1, _DAY, reports=9, segments=2, bytes=9 * WIDTH),
            DayCount("homepage", 1, tomorrow, reports=5, segments=1, bytes=5 * WIDTH),
            DayCount("homepage", 2, _DAY, reports=1, segments=1, bytes=WIDTH),
        ]
        assert await store.days(HOMEPAGE) == [_DAY, tomorrow]
        assert await store.days(other) == [_DAY]
        assert await store.days(MetricVersion("search", 1)) == []


@in_event_loop
async def test_store_answers_and_knows_its_size(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.ping()
        empty = await store.database.size_bytes()
        await store.append([make_random_batch(30_000)], _DAY)
        assert 30_000 * WIDTH < await store.database.size_bytes() - empty < 30_000 * WIDTH * 3
    async with open_store(any_store_url, create=False) as reader:
        await reader.ping()


@pytest.mark.parametrize("url", ["", "hubbub.db", "mysql://localhost/x", "redis://u:secret@h/x"])
@pytest.mark.parametrize("create", [True, False])
@in_event_loop
async def test_other_databases_are_no_stores(url, create):
    with pytest.raises(StoreError, match="must be sqlite:///PATH or postgresql://") as refused:
        async with open_store(url, create=create):
            pass
    assert "secret" not in str(refused.value)
