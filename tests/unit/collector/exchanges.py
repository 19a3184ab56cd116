"""Stores to export from and to import into, and what is in them."""

import datetime as dt
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from factories import make_metric
from hubbub.client import Metric
from hubbub.protocol import Records, record_width
from hubbub.storage import (
    MetricVersion,
    NewBatch,
    Partition,
    Reader,
    ReportFile,
    Store,
    StoredRecords,
    export_partitions,
    plan_export,
    read_records,
    report_files,
)

DAY = dt.date(2026, 3, 14)
Contents = Mapping[Partition, Counter[bytes]]


def make_reports(numbers: Iterable[int], metric: Metric | None = None) -> Records:
    """Return distinguishable records: the number in the bits, and in some way in the cohort."""
    params = (metric or make_metric()).params
    width = params.k // 8
    data = b"".join(
        (number % params.m).to_bytes(2, "little") + (number % 2**params.k).to_bytes(width, "little")
        for number in numbers
    )
    return Records(record_width(params.k), data)


async def fill(
    store: Store, numbers: Iterable[int], metric: Metric | None = None, day: dt.date = DAY
) -> None:
    """Store one new batch: a segment of its own."""
    metric = metric or make_metric()
    key = MetricVersion(metric.name, metric.version)
    await store.declare([metric])
    batch = NewBatch(secrets.token_bytes(16), {key: make_reports(numbers, metric)})
    assert await store.append([batch], day) == [True]


async def export_all(
    store: Store, directory: Path | str, *metrics: str, block_bytes: int = 2**24
) -> list[ReportFile]:
    plan = await plan_export(store, metrics)
    found = export_partitions(store, directory, plan, block_bytes=block_bytes)
    return [written async for written in found]


def each(width: int, data: bytes) -> list[bytes]:
    return [data[i : i + width] for i in range(0, len(data), width)]


async def segments_of(reader: Reader, key: MetricVersion, *days: dt.date) -> list[bytes]:
    """Return the records of each segment, end to end, from the first day to the last."""
    return [
        stored.records
        async for stored in reader.contents(key, *days)
        if isinstance(stored, StoredRecords)
    ]


async def contents(reader: Reader, metrics: Iterable[Metric]) -> Contents:
    """Return the multiset of records of each partition that isn't empty."""
    found = {}
    for metric in metrics:
        key = MetricVersion(metric.name, metric.version)
        width = record_width(metric.params.k)
        for day in await reader.days(key):
            records: Counter[bytes] = Counter()
            async for stored in reader.contents(key, day, day):
                if isinstance(stored, StoredRecords):
                    records.update(each(width, stored.records))
            found[Partition(*key[:2], day)] = records
    return found


def exported(directory: Path) -> dict[Partition, list[bytes]]:
    """Return the records of each partition, in the order in which they stand in the files."""
    found: dict[Partition, list[bytes]] = {}
    for file in report_files(directory):
        assert file.partition is not None
        assert not file.only_counts
        rows = found.setdefault(file.partition, [])
        for records in read_records(file.path):
            rows += each(records.width, records.data)
    return found
