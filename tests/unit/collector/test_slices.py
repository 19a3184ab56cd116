"""Slices on their way: from a batch into the store, out of it, through files and back."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import shutil
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st

from factories import make_metric
from hubbub.collector import (
    MOST_SECTIONS_OF_SLICES,
    MOST_STORED,
    BatchReader,
    RefusalError,
    SliceLimit,
)
from hubbub.protocol import (
    MEDIA_TYPE,
    Batch,
    Dimension,
    Metric,
    Registry,
    Report,
    batch_to_compact,
    batch_to_json,
    dimensions,
    slice_of,
)
from hubbub.storage import (
    LOG_BYTES,
    Maintenance,
    MetricVersion,
    NewBatch,
    ParquetReader,
    Reader,
    ReportFileError,
    Store,
    StoredCounts,
    StoredRecords,
    Where,
    find_sources,
    import_file,
    open_store,
    segment_row,
    values_of,
)
from unit.collector.batches import WIDTH, make_records
from unit.collector.event_loop import in_event_loop
from unit.collector.exchanges import export_all

_DIMENSIONS = (
    Dimension("platform", ("windows", "mac", "linux")),
    Dimension("release", pattern=r"\d+\.\d+"),
)
_METRIC = make_metric()._replace(dimensions=_DIMENSIONS, min_reports=10)
_SEARCH = make_metric("search")
_REGISTRY = Registry("com.example.browser", {"homepage": _METRIC, "search": _SEARCH})
_READER = BatchReader(_REGISTRY)
_JSON = "application/json"
_DAY = dt.date(2026, 3, 1)
_KEY = MetricVersion("homepage", 1)
_MAC, _NEW = "platform=mac,release=1.0", "platform=mac,release=1.1"

_told = st.fixed_dictionaries(
    {},
    optional={
        "platform": st.sampled_from(["mac", "linux", "beos"]),
        "release": st.sampled_from(["1.0", "1.1", "nightly"]),
        "arm": st.just("b"),
    },
).map(lambda values: ",".join(f"{name}={value}" for name, value in values.items()))
_reports = st.builds(
    Report,
    st.sampled_from(["homepage", "search"]),
    st.just(1),
    st.integers(0, 63),
    st.binary(min_size=16, max_size=16),
    _told,
)


def _batch(reports: dict[str, int], first: int = 0) -> NewBatch:
    records = {}
    for text, count in reports.items():
        records[_KEY._replace(slice=text)] = make_records(range(first, first + count))
        first += count
    return NewBatch(secrets.token_bytes(16), records)


async def _read(reader: Reader, key: MetricVersion = _KEY) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    async for stored in reader.contents(key):
        assert isinstance(stored, StoredRecords)
        rows = range(0, len(stored.records), WIDTH)
        found.update(stored.records[start : start + WIDTH] for start in rows)
    return found


@given(st.lists(_reports, min_size=1, max_size=30))
def test_both_forms_of_a_batch_agree_and_omit_unlisted_dimensions(reports):
    batch = Batch(tuple(reports))
    read = [
        _READER.read(body, media_type)
        for body, media_type in (
            (batch_to_json(batch), _JSON),
            (batch_to_compact(batch), MEDIA_TYPE),
        )
    ]
    expected: Counter[tuple[MetricVersion, bytes]] = Counter()
    for report in reports:
        values = dict(part.split("=") for part in filter(None, report.slice.split(",")))
        told = slice_of(_DIMENSIONS if report.metric == "homepage" else (), values)
        expected[MetricVersion(report.metric, 1, told), report.record] += 1
    for one in read:
        found: Counter[tuple[MetricVersion, bytes]] = Counter()
        for key, (width, data) in one.records.items():
            for start in range(0, len(data), width):
                found[key, data[start : start + width]] += 1
        assert found == expected


@pytest.mark.parametrize(
    "text", ["mac", "platform=", "platform=mac;", "platform=mac,", "a=" + 33 * "x"]
)
def test_report_whose_slice_is_none_is_refused_by_its_field(text):
    good = Report("homepage", 1, 0, bytes(16), "platform=mac")
    body = batch_to_json(Batch((good, good._replace(slice=text))))
    with pytest.raises(RefusalError) as caught:
        _READER.read(body, _JSON)
    assert caught.value.status == 422
    assert "reports[1].slice" in str(caught.value)
    compact = batch_to_compact(Batch((good,)))
    told = b"homepage;platform=mac"
    other = f"homepage;{text}".encode()
    changed = compact.replace(bytes([len(told)]) + told, bytes([len(other)]) + other)
    with pytest.raises(RefusalError, match="slice"):
        _READER.read(changed, MEDIA_TYPE)


def test_very_many_slices_are_understood_without_being_remembered():
    for number in range(5000):
        report = Report("homepage", 1, 0, bytes(16), f"release={number}.0")
        [key] = _READER.read(batch_to_compact(Batch((report,))), MEDIA_TYPE).records
        assert key == MetricVersion("homepage", 1, report.slice)


def test_slices_are_stored_apart_read_together_and_pooled(any_store_url):
    asyncio.run(_pool(any_store_url))


async def _pool(url: str) -> None:
    async with open_store(url, create=True) as store:
        await store.declare([_METRIC])
        first = {_MAC: 30, _NEW: 12, "platform=mac,release=9.9": 3, "platform=linux,release=1.0": 4}
        await store.append([_batch(first), _batch({"": 5, _MAC: 2}, first=100)], _DAY)
        everything = await _read(store)
        assert (await store.count(_KEY), everything.total()) == (56, 56)
        assert await store.slices(_KEY) == {_DAY: {**first, "": 5, _MAC: 32}}
        chosen = {
            "platform=mac,release=1.1": ({"platform": {"mac"}, "release": {"1.1"}}, 12),
            "small ones count as other": ({"release": {"9.9"}}, 0),
            "of these the platform is other, too": ({"platform": {"linux"}}, 0),
            "other": ({"platform": {"other"}}, 9 + 3),
            "any of several": ({"release": {"1.0", "1.1"}}, 44),
        }
        before = {}
        for what, (where, reports) in chosen.items():
            store.where = Where(_METRIC, where)
            before[what] = await _read(store)
            assert (await store.count(_KEY), before[what].total()) == (reports, reports), what
            assert await store.days(_KEY) == [_DAY] * (reports > 0)
        store.where = None
        assert values_of(_METRIC, "release", await store.slices(_KEY)) == ["1.0", "1.1", "other"]
        # On the day itself nothing moves, for more may come; afterwards it does, and is read alike.
        assert await store.pool_slices(_DAY) == 0
        done = await Maintenance(store, 14, None, 0).run_once(_DAY + dt.timedelta(days=1))
        assert done.faults == {}
        assert await store.slices(_KEY) == {_DAY: {_MAC: 32, _NEW: 12, "": 12}}
        assert await _read(store) == everything
        for what, (where, _) in chosen.items():
            store.where = Where(_METRIC, where)
            assert await _read(store) == before[what]


def test_small_slices_are_found_where_they_go_as_well():
    where = Where(_METRIC, {"platform": {"mac"}})
    sizes = {_DAY: {_MAC: 6, _NEW: 7}}
    assert where.chosen(sizes) == {(_DAY, _MAC), (_DAY, _NEW), (_DAY, "platform=mac")}
    assert where.reports(sizes) == 13


@in_event_loop
async def test_merging_does_not_undo_what_upkeep_moves_meanwhile(tmp_path):
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        for first in (0, 10):
            await store.append([_batch({_MAC: 3}, first=first)], _DAY)
        [group] = await store.segments.groups(sa.true())
        chunk = await store.segments.sizes(*group.selected())
        records = await store.segments.read_whole(chunk, _DAY)
        assert records is not None
        rows = iter([[segment_row(group.key, _DAY, records)]])
        assert await store.pool_slices(_DAY + dt.timedelta(days=1)) == 6
        assert not await store.segments.replace(chunk, group, rows)
        assert await store.slices(_KEY) == {_DAY: {"": 6}}


@in_event_loop
async def test_counts_of_small_slices_are_pooled_too(tmp_path):
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        await store.append([_batch({_MAC: 6, _NEW: 7, "": 2})], _DAY)
        everything = await _read(store)
        assert await store.counts.count_reports(_DAY + dt.timedelta(days=1)) == 15
        assert await store.pool_slices(_DAY + dt.timedelta(days=1)) == 13
        assert await store.slices(_KEY) == {_DAY: {"platform=mac": 13, "": 2}}
        found = [stored async for stored in store.contents(_KEY)]
        assert everything.total() == sum(
            stored.kept.total for stored in found if isinstance(stored, StoredCounts)
        )


@in_event_loop
async def test_removed_dimension_values_return_when_the_registry_lists_them_again(tmp_path):
    mistyped = (Dimension("platform", ("windows", "mac", "linxu")), _DIMENSIONS[1])
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        first = {"platform=linux": 30, "platform=mac": 20}
        await store.append([_batch(first)], _DAY)
        await store.declare([_METRIC._replace(dimensions=mistyped)])
        assert await store.pool_slices(_DAY + dt.timedelta(days=1)) == 0
        store.where = Where(_METRIC._replace(dimensions=mistyped), {"platform": {"other"}})
        assert await store.count(_KEY) == 30
        store.where = Where(_METRIC, {"platform": {"linux"}})
        assert await store.count(_KEY) == 30


def _made_up(slices: int, first: int = 0) -> Batch:
    """Return reports that each have a slice of their own."""
    numbers = range(first, first + slices)
    return Batch(
        tuple(
            Report("homepage", 1, 0, number.to_bytes(16, "little"), f"release={number}.0")
            for number in numbers
        )
    )


@pytest.mark.parametrize(
    ("write", "media_type"), [(batch_to_json, _JSON), (batch_to_compact, MEDIA_TYPE)]
)
def test_batch_of_thousands_of_slices_is_refused_before_most_are_looked_at(
    write, media_type, monkeypatch
):
    looked_at = _counted(monkeypatch, dimensions, "parse_slice")
    reader = BatchReader(_REGISTRY)
    with pytest.raises(RefusalError) as caught:
        reader.read(write(_made_up(9000)), media_type)
    assert caught.value.status == 413
    assert len(looked_at) <= MOST_SECTIONS_OF_SLICES
    assert len(reader.read(write(_made_up(1000)), media_type).records) == 1000


def _counted(monkeypatch, module, name: str) -> list[str]:
    """Return a list to which each text is added with which a function is called."""
    texts: list[str] = []
    function = getattr(module, name)

    def counted(text: str) -> object:
        texts.append(text)
        return function(text)

    monkeypatch.setattr(module, name, counted)
    return texts


def _limited(limit: SliceLimit, day: dt.date, *slices: str, reports: int = 1) -> set[str]:
    batch = limit.applied(_batch(dict.fromkeys(slices, reports)), day)
    assert sum(records.reports for records in batch.records.values()) == reports * len(slices)
    return {key.slice for key in batch.records}


def test_slices_of_a_day_are_bounded_and_what_is_listed_stays():
    limit = SliceLimit([_METRIC, _SEARCH])
    stored: set[str] = set()
    for batch in range(100):
        made_up = [f"platform=mac,release={batch}.{number}" for number in range(64)]
        stored |= _limited(limit, _DAY, *made_up)
    assert len(stored) == MOST_STORED + 1
    assert "platform=mac" in stored
    assert _limited(limit, _DAY, "release=7777.0") == {""}
    assert _limited(limit, _DAY, "platform=mac,release=0.1") == {"platform=mac,release=0.1"}
    assert _limited(limit, _DAY + dt.timedelta(days=1), "release=7777.0") == {"release=7777.0"}


def test_slices_that_were_published_keep_their_place_on_the_next_day():
    limit = SliceLimit([_METRIC])
    _limited(limit, _DAY, _MAC, _NEW, reports=_METRIC.min_reports)
    tomorrow = _DAY + dt.timedelta(days=1)
    _limited(limit, tomorrow, *(f"release={number}.0" for number in range(MOST_STORED)))
    assert _limited(limit, tomorrow, _MAC, _NEW, "release=9999.0") == {_MAC, _NEW, ""}


@in_event_loop
async def test_limit_goes_on_with_what_is_stored(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.declare([_METRIC])
        await store.append([_batch({_MAC: 30, "release=9.9": 2})], _DAY - dt.timedelta(days=1))
        today = [f"release={number}.0" for number in range(MOST_STORED - 1)]
        await store.append([_batch(dict.fromkeys(today, 1))], _DAY)
        assert await store.count_slices(_DAY) == {_KEY: len(today)}
        limit = SliceLimit([_METRIC])
        await limit.load(store, _DAY)
        assert _limited(limit, _DAY, _MAC, "release=9.9", today[0]) == {_MAC, "", today[0]}


@in_event_loop
async def test_very_many_slices_are_pooled_with_one_question_for_counts(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await store.declare([_METRIC])
        slices = {f"release={number}.0": 1 for number in range(600)}
        await store.append([_batch(slices)], _DAY)
        asked: list[str] = []

        def note(_connection, _cursor, statement, *_arguments):
            asked.append(statement)

        sa.event.listen(store.database.reading.sync_engine, "before_cursor_execute", note)
        assert await store.pool_slices(_DAY + dt.timedelta(days=1)) == 600
        assert sum("FROM counts" in statement for statement in asked) <= 3
        assert await store.slices(_KEY) == {_DAY: {"": 600}}


@in_event_loop
async def test_log_stays_short_while_very_many_small_segments_are_stored_and_pooled(tmp_path):
    log, longest = tmp_path / "a.db-wal", 0
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        for number in range(0, 20_000, 500):
            some = {f"release={it}.0": 1 for it in range(number, number + 500)}
            await store.append([_batch(some)], _DAY)
            longest = max(longest, log.stat().st_size)
        assert await store.pool_slices(_DAY + dt.timedelta(days=1)) == 20_000
        longest = max(longest, log.stat().st_size)
    assert longest < 2 * LOG_BYTES


@in_event_loop
async def test_counts_of_forgotten_reports_keep_their_slice(tmp_path):
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        await store.append([_batch({_MAC: 30, _NEW: 12, "": 5})], _DAY)
        assert await store.counts.count_reports(_DAY + dt.timedelta(days=1)) == 47
        await store.append([_batch({_MAC: 3}, first=50)], _DAY)
        assert await store.slices(_KEY) == {_DAY: {_MAC: 33, _NEW: 12, "": 5}}
        assert await store.counts.count_reports(_DAY + dt.timedelta(days=1)) == 3
        store.where = Where(_METRIC, {"release": {"1.0"}})
        [stored] = [stored async for stored in store.contents(_KEY)]
        assert isinstance(stored, StoredCounts)
        assert (stored.kept.total, stored.slice) == (33, _MAC)
        assert await store.counted(_KEY) == {_DAY: 33}
        store.where = Where(_METRIC, {"release": {"1.2"}})
        assert await store.counted(_KEY) == {}


async def _exported(folder: Path, *, counted: bool = False) -> tuple[Path, Store]:
    async with open_store(f"sqlite:///{folder}/a.db", create=True) as store:
        await store.declare([_METRIC])
        await store.append([_batch({_MAC: 30, _NEW: 12, "platform=mac,release=9.9": 3})], _DAY)
        if counted:
            await store.counts.count_reports(_DAY + dt.timedelta(days=1))
        await export_all(store, folder / "out")
    return folder / "out", store


@in_event_loop
async def test_an_export_is_read_by_slice_and_tells_of_no_small_one(tmp_path):
    out, _ = await _exported(tmp_path)
    reader = ParquetReader(out)
    await reader.check(_METRIC)
    assert await reader.slices(_KEY) == {_DAY: {_MAC: 30, _NEW: 12, "": 3}}
    assert "9.9" not in "".join(path.read_text() for path in out.rglob("_manifest.json"))
    # What is left of all others is read with them alone: 3 reports would identify.
    for where, reports in (({"release": {"1.1"}}, 12), ({"platform": {"other"}}, 0)):
        reader.where = Where(_METRIC, where)
        assert (await reader.count(_KEY), (await _read(reader)).total()) == (reports, reports)
    reader.where = Where(_METRIC, {"platform": {"windows"}})
    assert await reader.days(_KEY) == []


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("copy_first", [False, True])
def test_copied_file_of_an_export_counts_once_and_keeps_its_slice(tmp_path, copy_first, counted):
    asyncio.run(_import_with_a_copy(tmp_path, copy_first=copy_first, counted=counted))


async def _import_with_a_copy(folder: Path, *, copy_first: bool, counted: bool) -> None:
    out, _ = await _exported(folder, counted=counted)
    copies, elsewhere = [], out / "metric=homepage" / "version=1" / "day=2026-03-02"
    elsewhere.mkdir()
    for number, file in enumerate(sorted([*out.rglob("part-*.parquet"), *out.rglob("*.pq")])):
        for place in (folder, file.parent, elsewhere):
            copies.append(place / f"copy-{number}{file.suffix}")
            shutil.copy(file, copies[-1])
    async with open_store(f"sqlite:///{folder}/b.db", create=True) as store:
        await store.declare([_METRIC])
        for addresses in (copies, [out]) if copy_first else ([out], copies):
            new = 0
            for source in find_sources(addresses, _REGISTRY):
                new += (await import_file(store, source)).new
            assert new == (45 if (addresses is copies) == copy_first else 0)
            assert await store.slices(_KEY) == {_DAY: {_MAC: 30, _NEW: 12, "": 3}}
    assert await ParquetReader(out).count(_KEY) == 45
    for metric, day in (("search", None), (None, _DAY + dt.timedelta(days=1))):
        with pytest.raises(ReportFileError, match="holds no exported days of metric="):
            find_sources(copies[:1], _REGISTRY, metric, day)


@in_event_loop
async def test_equal_reports_of_two_slices_are_both_imported(tmp_path):
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([_METRIC])
        for text in (_MAC, _NEW):
            await store.append([_batch({text: 20})], _DAY)
        await export_all(store, tmp_path / "out")
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        await store.declare([_METRIC])
        for source in find_sources([tmp_path / "out"], _REGISTRY):
            await import_file(store, source)
        assert await store.slices(_KEY) == {_DAY: {_MAC: 20, _NEW: 20}}


@in_event_loop
async def test_declaring_again_changes_dimensions_and_not_the_version(tmp_path):
    def dimensions(metric: Metric) -> Metric:
        return metric._replace(dimensions=_DIMENSIONS[:1], min_reports=3)

    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        await store.declare([make_metric()])
        [declared] = await store.declared()
        assert declared.dimensions == ()
        await store.declare([_METRIC])
        [declared] = await store.declared()
        assert (declared.dimensions, declared.min_reports) == (_DIMENSIONS, 10)
        await store.declare([dimensions(_METRIC)])
        [declared] = await store.declared()
        assert (declared.dimensions, declared.min_reports) == (_DIMENSIONS[:1], 3)
