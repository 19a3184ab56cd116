"""Exported partitions: what is in the files, in which order, and what is refused."""

import datetime as dt
import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_metric, make_params
from hubbub.protocol import Records, record_width
from hubbub.storage import (
    BulkShuffle,
    MetricVersion,
    ParquetReader,
    Partition,
    ReportFileError,
    StoredCounts,
    StoredRecords,
    StoreError,
    open_store,
    read_records,
    row_groups,
    write_records,
)
from significance import ALARM, z_limit
from unit.collector.event_loop import in_event_loop
from unit.collector.exchanges import DAY, each, export_all, exported, fill, make_reports

_HOMEPAGE = make_metric()
_KEY = MetricVersion("homepage", 1)
_PARTITION = Path("metric=homepage", "version=1", f"day={DAY}")


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@given(st.data(), st.sampled_from([8, 128, 4096]))
def test_records_are_read_as_they_were_written(data, k):
    width = record_width(k)
    record = st.binary(min_size=width, max_size=width)
    blocks = data.draw(st.lists(st.lists(record, max_size=4), max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reports.parquet")
        write_records(path, width, (Records(width, b"".join(block)) for block in blocks))
        found = b"".join(records.data for records in read_records(path))
        assert sum(row_groups(path)) == sum(map(len, blocks))
    assert found == b"".join(itertools.chain(*blocks))


@in_event_loop
async def test_files_have_the_promised_columns_and_bounded_row_groups(store_url, tmp_path):
    async with open_store(store_url, create=True) as store:
        await fill(store, range(5000))
        [written] = await export_all(store, tmp_path / "out", block_bytes=18_000)
    path = Path(str(written.path))
    assert path.parent == tmp_path / "out" / _PARTITION
    assert re.fullmatch(r"part-[0-9a-f]{16}\.parquet", path.name)
    with pq.ParquetFile(path) as file:
        assert file.schema_arrow.field("cohort").type == pa.uint16()
        assert file.schema_arrow.field("bits").type == pa.binary(16)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sum(sizes) == written.reports == 5000
    assert len(sizes) == 5
    assert max(sizes) < 1300  # 1000 +- 28 expected: 10 standard deviations


@in_event_loop
async def test_export_says_how_its_reports_were_made(store_url, out):
    async with open_store(store_url, create=True) as store:
        await fill(store, range(10))
        await export_all(store, out)
    reader = ParquetReader(out)
    await reader.check(_HOMEPAGE)
    await reader.check(make_metric("visits"))
    with pytest.raises(ReportFileError, match=r"\.parquet: reports were made with .*128"):
        await reader.check(make_metric(params=make_params(k=64)))


@in_event_loop
async def test_parquet_answers_like_the_store_it_came_from(store_url, out):
    days = [DAY + dt.timedelta(days=i) for i in range(3)]
    async with open_store(store_url, create=True) as store:
        for version, day in itertools.product((1, 2), days):
            await fill(store, range(day.day * version), make_metric(version=version), day)
        await export_all(store, out)
        parquet = ParquetReader(out)
        assert await parquet.versions("homepage") == await store.versions("homepage") == [1, 2]
        assert await parquet.versions("visits") == await store.versions("visits") == []
        assert await parquet.days(_KEY) == await store.days(_KEY) == days
        for since, until in itertools.product((None, *days), repeat=2):
            asked = (_KEY, since, until)
            assert await parquet.count(*asked) == await store.count(*asked)
            here, there = [
                Counter([it async for stored in reader.contents(*asked) for it in _records(stored)])
                for reader in (store, parquet)
            ]
            assert here == there


def _records(stored: StoredRecords | StoredCounts) -> list[bytes]:
    assert isinstance(stored, StoredRecords)
    return each(18, stored.records)


@in_event_loop
async def test_days_that_the_store_has_dropped_stay_exported(store_url, out):
    async with open_store(store_url, create=True) as store:
        await fill(store, range(5), day=DAY)
        await export_all(store, out)
        await store.drop_reports(DAY + dt.timedelta(days=1))
        assert await export_all(store, out) == []
    assert len(exported(out)[Partition("homepage", 1, DAY)]) == 5


def test_file_that_can_not_be_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "reports.parquet"
    write_records(path, 18, [make_reports(range(4))])

    def failing() -> Iterator[Records]:
        yield make_reports(range(1000))
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_records(path, 18, failing())
    assert [records.data for records in read_records(path)] == [make_reports(range(4)).data]
    assert list(tmp_path.iterdir()) == [path]


@in_event_loop
async def test_no_trace_of_segments_is_left_in_the_order(store_url, out):
    """Two segments of 6,000 reports, told apart by a bit, in 12 blocks: as many changes from one
    to the other as coin tosses have, and no more of either in the first half (normal
    approximation); P(false alarm) < 1e-6."""
    n = 6000
    async with open_store(store_url, create=True) as store:
        await fill(store, range(n))
        await fill(store, range(2**64, 2**64 + n))
        await export_all(store, out, block_bytes=n * 18 // 6)
    [rows] = exported(out).values()
    second = np.array([row[10] for row in rows])
    assert second.sum() == n
    changes = np.count_nonzero(second[1:] != second[:-1])
    assert abs(changes - n) < z_limit(2) * np.sqrt(n / 2)
    assert abs(second[:n].sum() - n / 2) < z_limit(2) * np.sqrt(n / 8)


def test_every_order_is_equally_likely_across_blocks_and_runs(tmp_path):
    """Chi-square over the 24 orders of 4 records, 4,800 draws; P(false alarm) = 1e-6."""
    draws = 4800
    orders: Counter[bytes] = Counter()
    for _ in range(draws):
        with BulkShuffle(1, 4, tmp_path, block_bytes=2) as shuffle:
            for record in (b"a", b"b", b"c", b"d"):
                shuffle.add(record)
            orders[b"".join(block.data for block in shuffle.blocks())] += 1
    expected = draws / 24
    observed = [orders["".join(order).encode()] for order in itertools.permutations("abcd")]
    assert sum(observed) == draws
    distance = sum((count - expected) ** 2 / expected for count in observed)
    assert distance < stats.chi2.isf(ALARM, 23)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 200), st.integers(1, 400))
def test_shuffle_returns_what_it_was_given_whatever_was_expected(chunks, expected, block_bytes):
    numbers = iter(range(sum(chunks)))
    added = [make_reports(itertools.islice(numbers, chunk)).data for chunk in chunks]
    with (
        tempfile.TemporaryDirectory() as folder,
        BulkShuffle(18, expected, Path(folder), block_bytes) as shuffle,
    ):
        for data in added:
            shuffle.add(data)
        found = b"".join(records.data for records in shuffle.blocks())
        assert list(Path(folder).iterdir()) == []
    assert sorted(each(18, found)) == sorted(each(18, b"".join(added)))


@in_event_loop
async def test_directory_with_something_else_is_left_alone(store_url, tmp_path):
    home, taken = tmp_path / "home", tmp_path / "file"
    home.mkdir()
    (home / "thesis.doc").touch()
    taken.touch()
    expected = {home: "holds 'thesis.doc'", taken: "is a file"}
    async with open_store(store_url, create=True) as store:
        await fill(store, range(3))
        for directory, message in expected.items():
            with pytest.raises(ReportFileError, match=message):
                await export_all(store, directory)
    assert [entry.name for entry in home.iterdir()] == ["thesis.doc"]


@in_event_loop
async def test_export_of_another_store_is_not_mixed_in(tmp_path):
    for name, f in (("a", 0.5), ("b", 0.25)):
        async with open_store(f"sqlite:///{tmp_path}/{name}.db", create=True) as store:
            await fill(store, range(3), make_metric(params=make_params(f=f)))
            if name == "a":
                await export_all(store, tmp_path / "out")
            else:
                with pytest.raises(
                    ReportFileError, match=r'"f": 0.5.*but the store has .*"f": 0.25'
                ):
                    await export_all(store, tmp_path / "out")


def test_missing_directory_is_reported(tmp_path):
    with pytest.raises(StoreError, match=r"store 'parquet:.*nowhere': no such directory"):
        ParquetReader(tmp_path / "nowhere")


def write_table(path: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


_BITS = pa.array([b"\x01" * 16, b"\x02" * 16], pa.binary(16))
_COHORT = pa.array([3, 63], pa.uint16())


@pytest.mark.parametrize(
    "columns",
    [
        {"bits": _BITS, "cohort": _COHORT},
        {"cohort": _COHORT.cast(pa.int32()), "bits": _BITS.cast(pa.binary())},
        {"cohort": _COHORT.cast(pa.int64()), "bits": _BITS.cast(pa.large_binary())},
        {"day": pa.array(["x", "y"]), "cohort": _COHORT, "bits": _BITS, "n": _COHORT},
    ],
)
def test_columns_as_other_programs_write_them_are_read(tmp_path, columns):
    path = write_table(tmp_path / "a.parquet", **columns)
    data = b"".join(records.data for records in read_records(path, 128, 64))
    assert data == b"\x03\x00" + b"\x01" * 16 + b"\x3f\x00" + b"\x02" * 16


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"cohort": _COHORT}, "column bits: expected once, but the columns are cohort"),
        ({"bits": _BITS}, "column cohort: expected once, but the columns are bits"),
        (
            {"cohort": pa.array([1.0, 2.0]), "bits": _BITS},
            "column cohort: double; expected integers",
        ),
        ({"cohort": _COHORT, "bits": pa.array(["0", "1"])}, "column bits: string; expected binary"),
        (
            {"cohort": _COHORT, "bits": pa.array([b"x" * 8] * 2, pa.binary(8))},
            "column bits: 8 bytes; expected 16 for k = 128 bits",
        ),
        (
            {"cohort": _COHORT, "bits": pa.array([b"x" * 16, b"x" * 15])},
            "column bits: Failed casting from binary to fixed_size_binary[16]: widths must match",
        ),
        (
            {"cohort": pa.array([3, 64], pa.uint16()), "bits": _BITS},
            "row 2, column cohort: 64; expected 0 to 63",
        ),
        (
            {"cohort": pa.array([-1, 64]), "bits": _BITS},
            "column cohort: Integer value -1 not in range: 0 to 65535; expected uint16",
        ),
        (
            {"cohort": pa.array([3, 2**40]), "bits": _BITS},
            "column cohort: Integer value 1099511627776 not in range: 0 to 65535",
        ),
        (
            {"cohort": pa.array([3, None], pa.uint16()), "bits": _BITS},
            "rows 1 to 2, column cohort: has a null; expected none",
        ),
        (
            {"cohort": _COHORT, "bits": pa.array([b"x" * 16, None], pa.binary(16))},
            "rows 1 to 2, column bits: has a null; expected none",
        ),
    ],
)
def test_rows_that_are_no_reports_are_named(tmp_path, columns, message):
    path = write_table(tmp_path / "a.parquet", **columns)
    with pytest.raises(ReportFileError, match=f"{re.escape(str(path))}: .*{re.escape(message)}"):
        list(read_records(path, 128, 64))


def test_row_is_counted_over_the_whole_file(tmp_path):
    n = 600_000
    bits = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), n, [None, pa.py_buffer(bytes(16 * n))]
    )
    cohort = np.zeros(n, dtype=np.uint16)
    cohort[n - 7] = 64
    path = write_table(tmp_path / "a.parquet", cohort=pa.array(cohort), bits=bits)
    with pytest.raises(ReportFileError, match=f"row {n - 6}, column cohort: 64"):
        list(read_records(path, 128, 64))


def test_reading_holds_a_small_part_of_a_file_at_a_time(tmp_path, rng):
    """A file of 36 MB in 20 row groups."""
    path = tmp_path / "a.parquet"
    write_records(path, 18, (Records(18, rng.bytes(1_800_000)) for _ in range(20)))
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_records(path)]
    assert len(held) > 20
    assert max(held) < 8_000_000


@pytest.mark.parametrize("kind", [pa.binary(16), pa.binary()])
def test_row_group_larger_than_a_piece_is_read_in_order(tmp_path, rng, kind):
    bits = rng.bytes(16 * 200_000)
    column = pa.array(each(16, bits), kind)
    cohort = pa.array(np.full(200_000, 7, dtype=np.uint16))
    path = write_table(tmp_path / "a.parquet", cohort=cohort, bits=column)
    pieces = [records.data for records in read_records(path, 128, 64)]
    assert len(pieces) > 2
    assert b"".join(pieces) == b"".join(b"\x07\x00" + row for row in each(16, bits))


@pytest.mark.parametrize("content", [b"", b"cohort,bits\n", b"PAR1" + bytes(64) + b"PAR1"])
def test_files_that_are_not_parquet_are_refused(tmp_path, content):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    for read in (lambda p: list(read_records(p)), row_groups):
        with pytest.raises(ReportFileError, match=r"a\.parquet: .*expected a Parquet file"):
            read(path)
