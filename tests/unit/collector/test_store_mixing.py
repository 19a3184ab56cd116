"""Days that are over, on both databases: reports are mixed, and none is lost, doubled or late."""

import asyncio
import contextlib
import datetime as dt
import signal
from collections import Counter

import pytest
import sqlalchemy as sa

from hubbub.storage import (
    MetricVersion,
    NewBatch,
    Store,
    StoreError,
    open_store,
    segments as module,
)
from unit.collector.batches import HOMEPAGE, WIDTH, make_new_batch, make_records, stored_segments
from unit.collector.event_loop import in_event_loop
from unit.collector.mixers import start_mixer

pytestmark = pytest.mark.long_on_postgresql

_DAY = dt.date(2026, 3, 14)
_TOMORROW = _DAY + dt.timedelta(days=1)
_SEARCH = MetricVersion("search", 1)


@pytest.fixture
def small_segments(monkeypatch):
    """Let a mixed segment have 8 reports, and 64 be shuffled at once."""
    monkeypatch.setattr(module, "SMALL", 8)
    monkeypatch.setattr(module, "BLOCK_BYTES", 64 * WIDTH)


async def _append_in_eights(store: Store, reports: int, day: dt.date = _DAY) -> None:
    for start in range(0, reports, 8):
        await store.append([make_new_batch(range(start, start + 8))], day)


async def _keys(store: Store) -> list[int]:
    async with store.database.read() as connection:
        return list(await connection.scalars(sa.text("SELECT segment_id FROM segments")))


@pytest.mark.usefixtures("small_segments")
@in_event_loop
async def test_reports_of_a_segment_end_in_any_segment_of_the_day(any_store_url):
    """P(false alarm) < 1e-30: 160 of 3,500 pairs stay together, where about 40 are expected."""
    async with open_store(any_store_url, create=True) as store:
        await _append_in_eights(store, 1000)
        assert await store.reshuffle(_DAY) == 0
        assert await store.reshuffle(_TOMORROW) == 1000
        segments = await stored_segments(store)
        assert sorted(number for segment in segments for number in segment) == list(range(1000))
        assert min(map(len, segments)) >= 8
        together = 0
        for segment in segments:
            origins = Counter(number // 8 for number in segment)
            together += sum(n * (n - 1) // 2 for n in origins.values())
        assert together < 160
        assert max(await _keys(store)) < 0
        assert await store.reshuffle(_TOMORROW) == 0
        assert await store.segments.merge(small=8) == 0


@in_event_loop
async def test_late_reports_are_mixed_with_those_that_are_there(any_store_url):
    """P(false alarm) < 1e-200: 20 late ones of 20,000 are next to each other."""
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch(range(20, 20_000))], _DAY)
        await store.append([make_new_batch(range(5), key=_SEARCH)], _DAY)
        assert await store.reshuffle(_TOMORROW) == 19_985
        await store.append([make_new_batch(range(20))], _DAY, received=_TOMORROW)
        assert await store.reshuffle(_TOMORROW) == 20
        (segment,) = await stored_segments(store)
        assert sorted(segment) == list(range(20_000))
        places = sorted(segment.index(number) for number in range(20))
        assert places[-1] - places[0] >= 40
        assert await store.reshuffle(_TOMORROW) == 0


@pytest.mark.usefixtures("small_segments")
@in_event_loop
async def test_every_report_counts_once_while_others_mix_read_and_import(any_store_url):
    """Two mixers, an importer and a reader; the reader never sees a report missing or twice."""
    async with (
        open_store(any_store_url, create=True) as one,
        open_store(any_store_url, create=True) as other,
        open_store(any_store_url, create=False) as reader,
    ):
        await _append_in_eights(one, 400)
        ended = asyncio.Event()

        async def mix(store: Store):
            while not ended.is_set():
                with contextlib.suppress(StoreError):  # an empty table is in use for too long
                    await store.reshuffle(_TOMORROW)
                await store.segments.merge(small=8)

        mixing_both = [asyncio.create_task(mix(store)) for store in (one, other)]
        for number in range(400, 440):
            await one.append([make_new_batch([number])], _DAY, received=_TOMORROW)
            seen = sorted(n for segment in await stored_segments(reader) for n in segment)
            assert seen == list(range(number + 1))
        ended.set()
        await asyncio.gather(*mixing_both)
        await one.reshuffle(_TOMORROW)
        assert max(await _keys(one)) < 0
        assert await reader.count(HOMEPAGE) == 440


@pytest.mark.usefixtures("small_segments")
@in_event_loop
async def test_mixing_that_is_stopped_goes_on_at_the_next_call(any_store_url):
    asked = 0

    def is_stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    async with open_store(any_store_url, create=True) as store:
        for age in range(4):
            await _append_in_eights(store, 128, _DAY - dt.timedelta(days=age))
        assert await store.reshuffle(_TOMORROW, is_stopping) == 256
        assert await store.count(HOMEPAGE) == 512
        await store.reshuffle(_TOMORROW)
        assert max(await _keys(store)) < 0
        assert await store.count(HOMEPAGE) == 512


@pytest.mark.usefixtures("small_segments")
@in_event_loop
async def test_mixing_that_is_killed_loses_and_doubles_nothing(any_store_url):
    """Before its commit."""
    async with open_store(any_store_url, create=True) as store:
        await _append_in_eights(store, 512)
        mixer = start_mixer(any_store_url, f"{_TOMORROW}", signal.SIGKILL)
        await asyncio.to_thread(mixer.communicate)
        assert mixer.returncode == -signal.SIGKILL
        assert min(await _keys(store)) >= 0
        seen = sorted(number for segment in await stored_segments(store) for number in segment)
        assert seen == list(range(512))
        await store.reshuffle(_TOMORROW)
        assert max(await _keys(store)) < 0
        assert await store.count(HOMEPAGE) == 512


@in_event_loop
async def test_table_of_a_day_is_dropped_once_its_reports_are_mixed(postgresql, postgresql_url):
    def tables() -> set[str]:
        query = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'segments'::regclass"
        return set(postgresql.execute(query, url=postgresql_url).split())

    async with open_store(postgresql_url, create=True) as store:
        await store.append([make_new_batch(range(5))], _DAY)
        await store.append([make_new_batch()], _TOMORROW)
        assert tables() == {"segments_late", "segments_20260314", "segments_20260315"}
        await store.reshuffle(_TOMORROW)
        assert tables() == {"segments_late", "segments_20260315"}
        assert await store.count(HOMEPAGE) == 8


@in_event_loop
async def test_rows_of_a_mixed_group_bear_one_mark_of_a_transaction(postgresql, postgresql_url):
    """Also where each was large enough never to be merged."""
    marks = "SELECT count(*) FROM segments JOIN batch_ids ON segments.xmin = batch_ids.xmin"
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(3):
            large = NewBatch(make_new_batch().batch_id, {HOMEPAGE: make_records(range(20_000))})
            await store.append([large], _DAY)
        await store.segments.merge()
        assert postgresql.execute(marks, url=postgresql_url) == "3"
        await store.reshuffle(_TOMORROW)
        assert postgresql.execute(marks, url=postgresql_url) == "0"
        distinct = "SELECT count(DISTINCT xmin::text) FROM segments"
        assert postgresql.execute(distinct, url=postgresql_url) == "1"
