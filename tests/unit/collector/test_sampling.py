"""Signs of forgery are found in a sample of which no day and no segment is left out."""

import datetime as dt
import secrets
from collections.abc import Sequence

import pytest

from factories import make_metric
from hubbub.collector.operations.sampling import Sample, Sampler
from hubbub.protocol.records import Records
from hubbub.storage import NewBatch, Store, open_store
from hubbub.storage.segments import SegmentPrefix
from unit.collector.batches import HOMEPAGE, WIDTH, make_new_batch, make_record, stored_segments
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_TODAY = dt.date(2026, 3, 14)
_METRIC = make_metric()
_FORGED = (5).to_bytes(2, "little") + secrets.token_bytes(WIDTH - 2)


@pytest.mark.parametrize(
    ("a_day", "forged"), [(20_000, 20_000), (40_000, 400)], ids=["many", "1% of today's"]
)
@in_event_loop
async def test_forged_reports_of_today_are_noticed_among_a_week_of_honest_ones(
    any_store_url, a_day, forged
):
    async with open_store(any_store_url, create=True) as store:
        await store.declare([_METRIC])
        for age in reversed(range(7)):
            for _ in range(4):
                await store.append([_honest(a_day // 4)], _TODAY - dt.timedelta(days=age))
        before = await _sampled(store)
        assert before.equal is not None
        assert before.equal.suspicious == 0
        for _ in range(4):
            await store.append([_batch(_FORGED * (forged // 4))], _TODAY)
        after = await _sampled(store)
        assert after.equal is not None
        assert after.equal.suspicious == after.equal.most
        share = forged / (7 * a_day + forged)
        assert after.equal.most == pytest.approx(after.reports * share, rel=0.15)  # in one digit
        assert after.reports == 50_000


@in_event_loop
async def test_each_segment_is_in_a_sample_in_proportion_to_its_size(any_store_url):
    sizes = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
    async with open_store(any_store_url, create=True) as store:
        for start, size in zip(range(0, 12_000, 1000), sizes, strict=True):
            await store.append([make_new_batch(range(start, start + size))], _TODAY)
        sampled = _numbers(await store.sample(HOMEPAGE, 94, WIDTH))
        assert len(sampled) == len(set(sampled)) == 94
        for segment in await stored_segments(store):
            expected = len(segment) * 94 / sum(sizes)
            assert abs(len(set(segment) & set(sampled)) - expected) < 1


@in_event_loop
async def test_small_segments_take_turns_in_being_sampled(any_store_url):
    """65 samples of a quarter of 40 segments; P(one is never chosen) < 40 * 0.75**65 < 1e-6."""
    async with open_store(any_store_url, create=True) as store:
        for number in range(40):
            await store.append([make_new_batch([number])], _TODAY)
        samples = [_numbers(await store.sample(HOMEPAGE, 10, WIDTH)) for _ in range(65)]
    assert {len(set(sample)) for sample in samples} == {10}
    assert set().union(*samples) == set(range(40))


@in_event_loop
async def test_fewer_reports_than_asked_for_are_all_sampled(any_store_url):
    yesterday = _TODAY - dt.timedelta(days=1)
    async with open_store(any_store_url, create=True) as store:
        assert await store.sample(HOMEPAGE, 100, WIDTH) == b""
        for number, day in ((1, yesterday), (2, _TODAY), (3, _TODAY)):
            await store.append([make_new_batch([number])], day)
        assert sorted(_numbers(await store.sample(HOMEPAGE, 100, WIDTH))) == [1, 2, 3]
        assert sorted(_numbers(await store.sample(HOMEPAGE, 100, WIDTH, _TODAY))) == [2, 3]


@in_event_loop
async def test_segments_that_are_merged_meanwhile_are_sampled_again(sqlite_url, monkeypatch):
    async with open_store(sqlite_url, create=True) as store:
        for number in range(20):
            await store.append([make_new_batch([number])], _TODAY)
        read_prefixes = store.segments.read_prefixes

        async def merge_first(heads: Sequence[SegmentPrefix]) -> list[bytes]:
            await store.segments.merge()
            return await read_prefixes(heads)

        monkeypatch.setattr(store.segments, "read_prefixes", merge_first)
        assert sorted(_numbers(await store.sample(HOMEPAGE, 20, WIDTH))) == list(range(20))


async def _sampled(store: Store) -> Sample:
    sampler = Sampler(store)
    await sampler.sample(await store.declared(), await store.overview(), _TODAY)
    return sampler.samples[HOMEPAGE]


def _honest(reports: int) -> NewBatch:
    data = bytearray(secrets.token_bytes(WIDTH * reports))
    data[1::WIDTH] = bytes(reports)
    data[0::WIDTH] = bytes(byte % _METRIC.params.m for byte in data[0::WIDTH])
    return _batch(bytes(data))


def _batch(data: bytes) -> NewBatch:
    return NewBatch(secrets.token_bytes(16), {HOMEPAGE: Records(WIDTH, data)})


def _numbers(records: bytes) -> list[int]:
    numbers = [
        int.from_bytes(records[start : start + 2], "little")
        for start in range(0, len(records), WIDTH)
    ]
    assert b"".join(map(make_record, numbers)) == records
    return numbers
