"""Merging, forgetting and deleting, on both databases: no report is lost, doubled or left apart."""

import asyncio
import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from factories import make_metric, make_params
from hubbub.protocol import table
from hubbub.storage import MetricVersion, NewBatch, Store, StoreError, open_store, segments
from unit.collector.batches import HOMEPAGE, make_new_batch, make_random_batch, stored_segments
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_DAY = dt.date(2026, 3, 14)
_TOMORROW = _DAY + dt.timedelta(days=1)
_OTHER = MetricVersion("homepage", 2)
_SEARCH = MetricVersion("search", 1)


@in_event_loop
async def test_small_segments_are_merged_into_one_in_another_order(any_store_url):
    """P(false alarm) < 1e-150: 200 records stay in the order of their arrival."""
    async with open_store(any_store_url, create=True) as store:
        await _append_apart(store, range(200))
        assert len(await stored_segments(store)) == 200
        assert await store.segments.merge() == 200
        (segment,) = await stored_segments(store)
        assert sorted(segment) == list(range(200))
        assert segment != list(range(200))
        assert await store.count(HOMEPAGE) == 200


@in_event_loop
async def test_only_reports_of_one_version_and_day_are_merged(any_store_url):
    kinds = [(key, day) for key in (HOMEPAGE, _OTHER, _SEARCH) for day in (_DAY, _TOMORROW)]
    async with open_store(any_store_url, create=True) as store:
        for reports, (key, day) in enumerate(kinds, start=1):
            for _ in range(3):
                await store.append([make_new_batch(range(reports), key=key)], day)
        assert await store.segments.merge() == 18
        assert [(c.reports, c.segments) for c in await store.overview()] == [
            (3 * reports, 1) for reports in range(1, 7)
        ]


@in_event_loop
async def test_single_and_large_segments_are_left_alone(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.append([make_new_batch(range(10))], _DAY)
        assert await store.segments.merge() == 0
        await store.append([make_new_batch(range(10))], _DAY)
        assert await store.segments.merge(small=10) == 0
        assert await store.segments.merge(small=11) == 2
        assert await store.segments.merge(small=11) == 0


@in_event_loop
async def test_merging_takes_small_bites(any_store_url, monkeypatch):
    monkeypatch.setattr(segments, "_REPORTS_AT_ONCE", 50)
    monkeypatch.setattr(segments, "_SEGMENTS_AT_ONCE", 4)
    async with open_store(any_store_url, create=True) as store:
        for _ in range(10):
            await store.append([make_new_batch(range(20))], _DAY)
        for _ in range(8):
            await store.append([make_new_batch([1])], _DAY)
        await store.segments.merge(small=21)
        sizes = [len(segment) for segment in await stored_segments(store)]
        assert sum(sizes) == 208
        assert max(sizes) <= 50
        assert len(sizes) < 18


@in_event_loop
async def test_every_report_counts_once_while_others_merge_read_and_write(any_store_url):
    """Two mergers, a writer and a reader; the reader never sees a report missing or twice."""
    async with (
        open_store(any_store_url, create=True) as one,
        open_store(any_store_url, create=True) as other,
        open_store(any_store_url, create=False) as reader,
    ):
        await _append_apart(one, range(60))
        written = 60
        ended = asyncio.Event()

        async def merge(store: Store):
            while not ended.is_set():
                await store.segments.merge()

        merging = [asyncio.create_task(merge(store)) for store in (one, other)]
        for number in range(60, 120):
            await one.append([make_new_batch([number])], _DAY)
            written += 1
            seen = sorted(n for segment in await stored_segments(reader) for n in segment)
            assert seen == list(range(written))
        ended.set()
        await asyncio.gather(*merging)
        await one.segments.merge()
        (segment,) = await stored_segments(reader)
        assert sorted(segment) == list(range(120))


@in_event_loop
async def test_reports_that_are_merged_while_they_are_deleted_are_deleted(
    any_store_url, monkeypatch
):
    async def list_and_let_merge(*arguments: Any) -> Any:
        monkeypatch.undo()
        listed = await store.segments.sizes(*arguments)
        assert await store.segments.merge() == 30
        return listed

    async with open_store(any_store_url, create=True) as store:
        await _append_apart(store, range(30))
        monkeypatch.setattr(store.segments, "sizes", list_and_let_merge)
        assert await store.delete("homepage") == 30
        assert await store.count(HOMEPAGE) == 0


@in_event_loop
async def test_reports_that_are_deleted_while_they_are_merged_do_not_come_back(
    any_store_url, monkeypatch
):
    async def read_and_let_delete(*arguments: Any) -> Any:
        monkeypatch.undo()
        records = await store.segments.read_whole(*arguments)
        assert await store.delete("homepage") == 30
        return records

    async with open_store(any_store_url, create=True) as store:
        await _append_apart(store, range(30))
        monkeypatch.setattr(store.segments, "read_whole", read_and_let_delete)
        assert await store.segments.merge() == 0
        assert await store.count(HOMEPAGE) == 0


@in_event_loop
async def test_version_once_used_stays_taken_after_it_was_deleted(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.declare([make_metric()])
        await store.append([make_new_batch()], _DAY)
        await store.delete("homepage")
        with pytest.raises(StoreError, match="need a new version"):
            await store.declare([make_metric(params=make_params(k=64))])
        await store.declare([make_metric()])


@in_event_loop
async def test_deleted_or_merged_reports_leave_no_bytes_in_the_files(sqlite_url, tmp_path):
    """Every record that is looked for is random: P(false alarm) < 1e-25."""
    deleted, merged = make_random_batch(2000), make_random_batch(40)
    kept = make_random_batch(40)
    async with open_store(sqlite_url, create=True) as store:
        for batch, day in ((deleted, _DAY), (merged, _TOMORROW), (kept, _TOMORROW)):
            await store.append([batch], day)
        assert merged.batch_id in _everything(tmp_path)
        assert all(record in _everything(tmp_path) for record in _records(merged))
        await store.drop_reports(_TOMORROW)
        await store.database.forget(_TOMORROW)
        await store.segments.merge()
        await store.database.reclaim_space()
        files = _everything(tmp_path)
        assert deleted.batch_id not in files
        assert not any(record in files for record in _records(deleted))
        # Each is there once: in the segment that was merged, not in the one that it came from.
        assert [files.count(record) for record in _records(merged) + _records(kept)] == [1] * 80
        assert files.count(merged.batch_id) == 1


def _everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def _records(batch: NewBatch) -> list[bytes]:
    (records,) = batch.records.values()
    return [row.tobytes() for row in table(records)]


async def _append_apart(store: Store, numbers: Iterable[int]) -> None:
    for number in numbers:
        await store.append([make_new_batch([number])], _DAY)
