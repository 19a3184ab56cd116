"""Files into a store: the same reports as were exported, each file wholly and once."""

import asyncio
import contextlib
import datetime as dt
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params, make_registry
from hubbub.client import Metric
from hubbub.protocol import EnumType, MetricError, Records
from hubbub.storage import (
    CHUNK_BYTES,
    Imported,
    MetricVersion,
    ReportFileError,
    Store,
    StoreError,
    find_sources,
    import_file,
    open_store,
    write_records,
)
from parameters import examples
from unit.collector.event_loop import in_event_loop
from unit.collector.exchanges import DAY, Contents, contents, each, export_all, fill, make_reports

_HOMEPAGE = make_metric()
_KEY = MetricVersion("homepage", 1)
_METRICS = (
    _HOMEPAGE,
    make_metric(version=2, params=make_params(k=8, m=3)),
    make_metric("colour", version=3, metric_type=EnumType(tuple("abcdefghij"))),
)
_PARTITIONS = st.tuples(st.sampled_from(_METRICS), st.dates(DAY, DAY + dt.timedelta(days=2)))


async def import_all(
    store: Store,
    path: Path,
    *metrics: Metric,
    metric: str | None = None,
    day: dt.date | None = None,
) -> Imported:
    """Declare and import as the command does; return the sums."""
    registry = make_registry(*metrics)
    new = known = 0
    for source in find_sources([path], registry, metric, day):
        await store.declare([source.metric])
        found = await import_file(store, source)
        new, known = new + found.new, known + found.known
    return Imported(new, known)


@given(st.lists(st.tuples(_PARTITIONS, st.lists(st.integers(0, 2**20), max_size=6)), max_size=6))
@examples(30)
@in_event_loop
async def test_exported_days_are_imported_unchanged(batches):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        async with open_store(f"sqlite:///{folder}/a.db", create=True) as store:
            for (metric, day), numbers in batches:
                await fill(store, numbers, metric, day)
            await export_all(store, out, block_bytes=64)
            before = await contents(store, _METRICS)
        async with open_store(f"sqlite:///{folder}/b.db", create=True) as store:
            for metric in _METRICS:
                # A registry knows one version of a metric, so each is imported with its own.
                part = out / f"metric={metric.name}" / f"version={metric.version}"
                if part.exists():
                    await import_all(store, part, metric)
            assert _without_empty(await contents(store, _METRICS)) == _without_empty(before)


def _without_empty(found: Contents) -> Contents:
    return {partition: records for partition, records in found.items() if records}


@in_event_loop
async def test_parts_of_an_export_can_be_imported(tmp_path):
    visits, later = make_metric("visits"), DAY + dt.timedelta(days=1)
    async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
        for metric, day, n in ((_HOMEPAGE, DAY, 1), (_HOMEPAGE, later, 2), (visits, DAY, 4)):
            await fill(store, range(n), metric, day)
        await export_all(store, tmp_path / "out")
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        both = (_HOMEPAGE, visits)
        only = await import_all(store, tmp_path / "out", *both, metric="homepage", day=later)
        assert only == Imported(2, 0)
        assert await import_all(store, tmp_path / "out", *both, metric="visits") == Imported(4, 0)
        assert await import_all(store, tmp_path / "out", *both) == Imported(1, 6)
        with pytest.raises(
            ReportFileError, match=r"holds no exported days of metric=homepage/.*2000"
        ):
            await import_all(store, tmp_path / "out", metric="homepage", day=dt.date(2000, 1, 1))


@in_event_loop
async def test_import_that_failed_in_the_middle_is_completed(tmp_path):
    """The database itself refuses the second chunk, as if the disk were full."""
    wide = make_metric(params=make_params(k=1024))
    total = 2 * (CHUNK_BYTES // 130) + 17
    path = tmp_path / "reports.parquet"
    write_records(path, 130, [make_reports(range(total), wide)])
    database = tmp_path / "b.db"
    async with open_store(f"sqlite:///{database}", create=True) as store:
        await store.declare([wide])
        with _refusing_segments(database, after=1), pytest.raises(StoreError, match="disk full"):
            await import_all(store, path, wide, metric="homepage", day=DAY)
        assert await store.count(_KEY) == CHUNK_BYTES // 130
        again = await import_all(store, path, wide, metric="homepage", day=DAY)
        assert again == Imported(new=total - CHUNK_BYTES // 130, known=CHUNK_BYTES // 130)
        [records] = (await contents(store, [wide])).values()
    assert records == Counter(each(130, make_reports(range(total), wide).data))


@contextlib.contextmanager
def _refusing_segments(database: Path, *, after: int) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON segments "  # noqa: S608
            f"WHEN (SELECT count(*) FROM segments) >= {after} "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
        connection.commit()
        yield
        connection.execute("DROP TRIGGER full")
        connection.commit()


@in_event_loop
async def test_same_file_under_another_day_or_metric_is_something_else(tmp_path):
    path, later = tmp_path / "r.parquet", DAY + dt.timedelta(days=1)
    write_records(path, 18, [make_reports([3])])
    both = (_HOMEPAGE, make_metric("visits"))
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        for metric, day in (("homepage", DAY), ("homepage", later), ("visits", DAY)):
            found = await import_all(store, path, *both, metric=metric, day=day)
            assert found == Imported(1, 0)


@in_event_loop
async def test_nothing_of_a_file_with_one_bad_row_is_imported(tmp_path):
    path, sound = tmp_path / "r.parquet", make_reports(range(CHUNK_BYTES // 18 + 1000))
    write_records(path, 18, [sound, Records(18, b"\x40" + bytes(17))])
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        with pytest.raises(ReportFileError, match=f"row {sound.reports + 1}, column cohort: 64"):
            await import_all(store, path, metric="homepage", day=DAY)
        assert await store.count(_KEY) == 0


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (make_metric(version=2), "reports of version 1; the registry has homepage version 2"),
        (make_metric(params=make_params(f=0.25)), r'"f": 0.5.* but the registry has .*"f": 0.25'),
        (make_metric("visits"), "metric 'homepage': must be one of: visits"),
    ],
)
def test_export_that_the_registry_does_not_know_is_refused(tmp_path, metric, message):
    out = asyncio.run(_exported(tmp_path, range(3)))
    with pytest.raises((ReportFileError, MetricError), match=message):
        find_sources([out], make_registry(metric))


@in_event_loop
async def test_reports_of_other_parameters_than_the_stored_ones_are_refused(tmp_path):
    """A copy of an export's file, and one that doesn't say how it was made."""
    out = await _exported(tmp_path, range(3))
    [part] = out.rglob("part-*.parquet")
    part = part.rename(tmp_path / "copy.parquet")
    other = make_metric(params=make_params(f=0.25))
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        await store.declare([_HOMEPAGE])
        with pytest.raises(ReportFileError, match=r"copy\.parquet: reports were made with .*0\.5"):
            await import_all(store, part, other)
        write_records(part, 18, [make_reports(range(3))])
        with pytest.raises(StoreError, match="changed parameters need a new version"):
            await import_all(store, part, other, metric="homepage", day=DAY)
        assert await store.count(_KEY) == 0


def test_files_without_a_metrics_name_need_the_option(tmp_path):
    file, other = tmp_path / "a.parquet", tmp_path / "a.csv"
    write_records(file, 18, [make_reports(range(3))])
    other.touch()
    registry = make_registry()
    for metric, day in ((None, None), ("homepage", None), (None, DAY)):
        with pytest.raises(ReportFileError, match="--metric and --day are needed"):
            find_sources([file], registry, metric, day)
    with pytest.raises(ReportFileError, match=r"a\.csv: .*; expected a Parquet file"):
        find_sources([other], registry, "homepage", DAY)
    with pytest.raises(ReportFileError, match=r"holds no exported days of metric=homepage/"):
        find_sources([tmp_path], registry, "homepage", DAY)


async def _exported(folder: Path, numbers: range) -> Path:
    async with open_store(f"sqlite:///{folder}/a.db", create=True) as store:
        await fill(store, numbers)
        await export_all(store, folder / "out")
    return folder / "out"


@in_event_loop
async def test_import_of_an_old_day_is_remembered_from_the_day_of_the_import(tmp_path):
    old = dt.date(2020, 1, 1)
    path = tmp_path / "r.parquet"
    write_records(path, 18, [make_reports(range(3))])
    async with open_store(f"sqlite:///{tmp_path}/b.db", create=True) as store:
        assert await import_all(store, path, metric="homepage", day=old) == Imported(3, 0)
        await store.database.forget(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=14))
        assert await import_all(store, path, metric="homepage", day=old) == Imported(0, 3)
        assert await store.days(_KEY) == [old]
