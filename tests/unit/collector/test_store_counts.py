"""Counts that outlive reports, on both databases: none is lost, doubled, or told by the files."""

import asyncio
import contextlib
import datetime as dt
import secrets
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from hypothesis import given, strategies as st

from factories import make_metric, make_params
from hubbub.collector import ConfigError, delete, load, maintain
from hubbub.protocol import (
    KeptCounts,
    Records,
    RecordsError,
    keep_counts,
    keep_none,
    pack_counts,
    unpack_counts,
)
from hubbub.storage import (
    DayCount,
    Maintenance,
    MetricVersion,
    NewBatch,
    Store,
    StoredCounts,
    StoreError,
    open_store,
    segments,
)
from unit.collector.batches import HOMEPAGE, WIDTH, make_new_batch, stored_segments
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_TODAY = dt.date(2026, 3, 14)
_OLD = dt.date(2026, 3, 1)
_SEARCH = MetricVersion("search", 1)
_PARAMS = make_params()
_FOR_EVER = 1e9


def _records(reports: int, seed: int = 1) -> bytes:
    rows = np.random.default_rng(seed).integers(0, 256, (reports, WIDTH), dtype=np.uint8)
    rows[:, 0] %= _PARAMS.m
    rows[:, 1] = 0
    return rows.tobytes()


async def _store(
    store: Store, records: bytes, day: dt.date = _OLD, key: MetricVersion = HOMEPAGE
) -> None:
    batch = NewBatch(secrets.token_bytes(16), {key: Records(WIDTH, records)})
    await store.append([batch], day)


@contextlib.asynccontextmanager
async def _declared(url: str) -> AsyncIterator[Store]:
    async with open_store(url, create=True) as store:
        await store.declare([make_metric(), make_metric("search"), make_metric(version=2)])
        yield store


async def _everything(store: Store, key: MetricVersion = HOMEPAGE) -> KeptCounts:
    kept = keep_none(_PARAMS)
    async for stored in store.contents(key):
        if isinstance(stored, StoredCounts):
            kept += stored.kept
        else:
            kept += keep_counts(stored.records, _PARAMS)
    return kept


def _same(one: KeptCounts, other: KeptCounts) -> bool:
    return pack_counts(one) == pack_counts(other)


@given(st.integers(0, 600), st.sampled_from([(8, 1), (128, 64), (4096, 3)]))
def test_counts_come_back_from_their_bytes(reports, size):
    params = make_params(k=size[0], m=size[1])
    rng = np.random.default_rng(reports)
    rows = rng.integers(0, 256, (reports, 2 + params.k // 8), dtype=np.uint8)
    rows[:, 0], rows[:, 1] = rng.integers(0, params.m, reports), 0
    kept = keep_counts(rows.tobytes(), params)
    found = unpack_counts(pack_counts(kept))
    bits = np.unpackbits(rows[:, 2:], axis=1, bitorder="little")
    assert found.total == reports
    assert found.counts.reports.tolist() == np.bincount(rows[:, 0], minlength=params.m).tolist()
    assert found.counts.bits.sum(axis=0).tolist() == bits.sum(axis=0).tolist()
    assert (
        found.set_bits.tolist()
        == np.bincount(bits.sum(axis=1, dtype=np.int64), minlength=params.k + 1).tolist()
    )


def test_the_form_of_counts_as_bytes_stays_what_stores_hold():
    """Two reports of 8 bits, in cohorts 0 and 1 of 2; zlib may pack them in other bytes one day."""
    kept = keep_counts(bytes([0, 0, 0b101, 1, 0, 0b1]), make_params(k=8, m=2))
    numbers = [1, 1, *(1, 0, 1, 0, 0, 0, 0, 0), *(1, 0, 0, 0, 0, 0, 0, 0), *(0, 1, 1), *[0] * 6]
    packed = pack_counts(kept)
    assert packed[:8] == bytes.fromhex("0200000008000000")
    assert zlib.decompress(packed[8:]) == bytes(numbers) + bytes(7 * len(numbers))


@pytest.mark.parametrize("harm", ["cut", "changed", "short", "bomb"])
def test_damaged_counts_are_refused(harm):
    kept = keep_counts(_records(50), _PARAMS)
    packed = pack_counts(kept)
    planes = bytearray(zlib.decompress(packed[8:]))
    planes[0] ^= 1
    damaged = {
        "cut": packed[:-9],
        "changed": packed[:8] + zlib.compress(bytes(planes)),
        "short": packed[:5],
        "bomb": packed[:8] + zlib.compress(bytes(10**7)),
    }
    with pytest.raises(RecordsError, match="counts"):
        unpack_counts(damaged[harm])


@in_event_loop
async def test_old_reports_become_counts_of_their_version_and_day(any_store_url):
    days = [_OLD, _OLD + dt.timedelta(days=1), _TODAY]
    async with _declared(any_store_url) as store:
        for number, day in enumerate(days):
            for key in (HOMEPAGE, _SEARCH):
                await _store(store, _records(100 + number, seed=number), day, key)
        before = await _everything(store)
        assert await store.counts.count_reports(_TODAY) == 2 * (100 + 101)
        assert _same(await _everything(store), before)
        for key in (HOMEPAGE, _SEARCH):
            found = [it async for it in store.contents(key) if isinstance(it, StoredCounts)]
            assert [(it.day, it.kept.total) for it in sorted(found)] == [
                (days[0], 100),
                (days[1], 101),
            ]
            assert len(await stored_segments(store, key)) == 1
            assert await store.days(key) == days
            assert await store.count(key) == 303
            assert await store.count(key, days[1]) == 203
            assert await store.counted(key) == {days[0]: 100, days[1]: 101}
            assert await store.counted(key, until=days[0]) == {days[0]: 100}
            assert await store.counted(key, since=_TODAY) == {}
        assert await store.versions("homepage") == [1]


@in_event_loop
async def test_late_reports_are_added_to_the_counts_of_their_day(any_store_url):
    async with _declared(any_store_url) as store:
        for number in range(3):
            await _store(store, _records(50, seed=number))
            assert await store.counts.count_reports(_TODAY) == 50
        assert await stored_segments(store) == []
        expected = keep_counts(b"".join(_records(50, seed=n) for n in range(3)), _PARAMS)
        assert _same(await _everything(store), expected)
        (count,) = await store.overview()
        assert count == DayCount("homepage", 1, _OLD, 150, 0, len(pack_counts(expected)))
        await _store(store, _records(7, seed=9))
        (count,) = await store.overview()
        assert (count.reports, count.segments) == (157, 1)


@in_event_loop
async def test_counting_takes_small_bites(any_store_url, monkeypatch):
    monkeypatch.setattr(segments, "_REPORTS_AT_ONCE", 50)
    monkeypatch.setattr(segments, "_SEGMENTS_AT_ONCE", 4)
    async with _declared(any_store_url) as store:
        for number in range(90):
            await _store(store, _records(20 if number % 7 else 60, seed=number))
        before = await _everything(store)
        assert await store.counts.count_reports(_TODAY) == before.total == 90 * 20 + 13 * 40
        assert _same(await _everything(store), before)


@in_event_loop
async def test_several_collectors_count_during_merges_reads_and_appends(any_store_url, monkeypatch):
    """Every reader sees each report once, whoever is at work."""
    monkeypatch.setattr(segments, "_REPORTS_AT_ONCE", 64)
    async with _declared(any_store_url) as store:
        for number in range(60):
            await _store(store, _records(16, seed=number))
        before = await _everything(store)
        reading = True

        async def read() -> int:
            looks = 0
            while reading:
                assert (await _everything(store)).total == before.total
                assert await store.count(HOMEPAGE) == before.total
                looks += 1
            return looks

        async with open_store(any_store_url, create=True) as other:
            reader = asyncio.create_task(read())
            counted = await asyncio.gather(
                *[each.counts.count_reports(_TODAY) for each in (store, other, store)],
                other.segments.merge(small=32),
            )
            reading = False
            assert await reader >= 1
        assert sum(counted[:3]) == before.total
        assert _same(await _everything(store), before)


@in_event_loop
async def test_reports_that_can_not_be_counted_stay_and_are_named(any_store_url):
    other = MetricVersion("homepage", 2)
    async with _declared(any_store_url) as store:
        beyond = _PARAMS.m.to_bytes(2, "little") + bytes(WIDTH - 2)
        await _store(store, beyond)
        await _store(store, _records(9), key=other)
        await _store(store, _records(5), key=MetricVersion("unknown", 3))
        faults = (
            rf"reports of homepage version 1, {_OLD}: record with cohort 64: must be below m = 64; "
            rf"reports of unknown version 3, {_OLD}: must be of a declared version"
        )
        with pytest.raises(StoreError, match=faults):
            await store.counts.count_reports(_TODAY)
        assert [(c.metric, c.version, c.segments) for c in await store.overview()] == [
            ("homepage", 1, 1),
            ("homepage", 2, 0),
            ("unknown", 3, 1),
        ]


@in_event_loop
async def test_damaged_row_of_counts_keeps_no_other_day_from_being_counted(any_store_url):
    later = [_OLD + dt.timedelta(days=days) for days in range(1, 9)]
    async with _declared(any_store_url) as store:
        await _store(store, _records(9))
        await store.counts.count_reports(_TODAY)
        async with store.database.write() as connection:
            await connection.execute(sa.text("UPDATE counts SET counts = :it"), {"it": b"damaged!"})
        for day in (_OLD, *later):
            await _store(store, _records(5), day)
            await _store(store, _records(5), day, _SEARCH)
        with pytest.raises(StoreError, match=f"^counts of homepage version 1, {_OLD}: [^;]*$"):
            await store.counts.count_reports(_TODAY)
        assert [(c.metric, c.day) for c in await store.overview() if c.segments] == [
            ("homepage", _OLD)
        ]
        assert max(await store.counted(_SEARCH)) == later[-1]


@in_event_loop
async def test_counts_that_several_add_at_once_are_all_there(any_store_url):
    some = [keep_counts(_records(7, seed), _PARAMS) for seed in range(8)]
    async with _declared(any_store_url) as store, open_store(any_store_url, create=True) as other:
        await asyncio.gather(
            *[
                each.counts.add(bytes([number] * 16), HOMEPAGE, _OLD, kept, _TODAY)
                for number, kept in enumerate(some)
                for each in (store, other)
            ]
        )
        assert _same(await _everything(store), sum(some[1:], some[0]))


@in_event_loop
async def test_imported_counts_are_added_once_by_their_id(any_store_url):
    kept = keep_counts(_records(30), _PARAMS)
    async with _declared(any_store_url) as store:
        for batch_id, is_new in ((b"1" * 16, True), (b"1" * 16, False), (b"2" * 16, True)):
            assert await store.counts.add(batch_id, HOMEPAGE, _OLD, kept, _TODAY) == is_new
        assert _same(await _everything(store), kept + kept)
        wrong = keep_counts(bytes([0, 0, 5]), make_params(k=8, m=2))
        with pytest.raises(StoreError, match=r"expected those of its reports, \(2, 8\)"):
            await store.counts.add(b"3" * 16, HOMEPAGE, _OLD, wrong, _TODAY)
        # Refused as a whole, with its id.
        assert await store.counts.add(b"3" * 16, HOMEPAGE, _OLD, kept, _TODAY)


@in_event_loop
async def test_upkeep_counts_after_the_days_of_reports_and_drops_after_retention(any_store_url):
    async with _declared(any_store_url) as store:
        for age in range(10):
            await _store(store, _records(3, seed=age), _TODAY - dt.timedelta(days=age))
        upkeep = Maintenance(store, 14, 7, _FOR_EVER, report_days=4)
        done = await upkeep.run_once(_TODAY)
        assert (done.counted, done.dropped, done.faults) == (15, 6, {})
        assert max(await store.counted(HOMEPAGE)) == _TODAY - dt.timedelta(days=5)
        assert await store.days(HOMEPAGE) == [
            _TODAY - dt.timedelta(days=age) for age in range(7, -1, -1)
        ]
        assert (await upkeep.run_once(_TODAY)).counted == 0
        done = await upkeep.run_once(_TODAY + dt.timedelta(days=1))
        assert (done.counted, done.dropped) == (3, 3)


@in_event_loop
async def test_no_byte_of_a_counted_report_is_left_in_the_file(sqlite_url, tmp_path):
    """Also where the last ones came late and alone; P(false alarm) < 1e-20: 16 equal bytes."""
    kept = [secrets.token_bytes(16) for _ in range(50)]
    forgotten = [secrets.token_bytes(16) for _ in range(400)]
    async with _declared(sqlite_url) as store:
        await _store(store, b"".join(bytes(2) + bits for bits in kept), _TODAY)
        upkeep = Maintenance(store, 14, None, _FOR_EVER, report_days=4)
        for number, some in enumerate((forgotten[:390], forgotten[390:399], forgotten[399:])):
            await _store(store, b"".join(bytes(2) + bits for bits in some))
            before = _file_bytes(tmp_path)
            # Some lie on two pages of the file, and so in two pieces.
            assert sum(bits in before for bits in some) >= 0.9 * len(some)
            day = _TODAY - dt.timedelta(days=2 - number)
            assert (await upkeep.run_once(day)).counted == len(some)
    after = _file_bytes(tmp_path)
    assert not any(bits in after for bits in forgotten)
    assert sum(bits in after for bits in kept) >= 0.9 * len(kept)


def _file_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("hubbub.db*")))


def test_counts_are_kept_and_deleted_by_hand(any_store_url):
    today = dt.datetime.now(dt.UTC).date()

    async def fill():
        async with _declared(any_store_url) as store:
            for age in (0, 5):
                await store.append([make_new_batch()], today - dt.timedelta(days=age))

    asyncio.run(fill())
    options = ["--store", any_store_url]
    said = CliRunner().invoke(maintain, [*options, "--report-days", "4"])
    assert said.output == (
        "merged 0 segments, forgot the batch ids of 0 days, deleted 0 old reports, "
        "kept only counts of 3 reports\n"
    )
    said = CliRunner().invoke(delete, ["homepage", *options], input="y\n")
    assert f"Delete 6 reports of homepage from {any_store_url} for good?" in said.output
    assert said.output.endswith("deleted 6 reports of homepage\n")
    said = CliRunner().invoke(delete, ["homepage", "--yes", *options])
    assert said.output == "deleted 0 reports of homepage\n"


@in_event_loop
async def test_one_version_is_deleted_with_its_counts(any_store_url):
    other = MetricVersion("homepage", 2)
    async with _declared(any_store_url) as store:
        for key in (HOMEPAGE, other, _SEARCH):
            await _store(store, _records(10), key=key)
            await _store(store, _records(10), _TODAY, key)
        await store.counts.count_reports(_TODAY)
        assert await store.delete("homepage", 2) == 20
        assert [(c.metric, c.version, c.reports) for c in await store.overview()] == [
            ("homepage", 1, 10),
            ("homepage", 1, 10),
            ("search", 1, 10),
            ("search", 1, 10),
        ]


def test_reports_can_not_be_kept_longer_than_their_counts(metrics_file):
    flags = {"metrics": metrics_file, "retention_days": 30, "report_days": 30}
    expected = "--report-days: must be below retention_days = 30, which deletes counts, too"
    with pytest.raises(ConfigError, match=expected):
        load(flags)
    assert load({**flags, "retention_days": 31}).settings.report_days == 30
