"""A store -> a directory of Parquet partitions.

Segments are streamed and the whole partition shuffled, so that memory stays small and nothing shows
where a segment ended. A partition replaces what an earlier export wrote of the same day; days that
the store has dropped since then stay in the directory.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import NamedTuple

from hubbub.collector.exchange.bulk_shuffle import BLOCK_BYTES, BulkShuffle
from hubbub.collector.exchange.parquet import require_pyarrow, write_records
from hubbub.collector.exchange.partitions import PART, Partition, check_target, write_definition
from hubbub.collector.store import Store
from hubbub.protocol.checks import metric_name
from hubbub.protocol.records import record_width


class Planned(NamedTuple):
    """A partition that an export will write, and how its reports were made."""

    partition: Partition
    definition: dict[str, object]


class Written(NamedTuple):
    """A partition that an export has written."""

    path: Path
    reports: int
    size: int


async def plan_export(
    store: Store,
    metrics: Collection[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
) -> list[Planned]:
    """List the partitions of the days `since` to `until`, of some metrics or all.

    Raises
    ------
    StoreError
        If the store can't be read.
    MetricError
        If it holds a metric whose name can't be a directory's.
    """
    plan = []
    for declared in await store.declared():
        if metrics and declared.metric not in metrics:
            continue
        # Stores are filled from checked registries; a name with a slash would still be fatal here.
        name = metric_name("store", declared.metric)
        key = Partition(name, declared.version, dt.date.min).key
        plan += [
            Planned(Partition(*key, day), declared.definition)
            for day in await store.days(key)
            if (since or day) <= day <= (until or day)
        ]
    return sorted(plan, key=lambda planned: planned.partition)


async def export_partitions(
    store: Store,
    directory: Path,
    plan: Collection[Planned],
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    block_bytes: int = BLOCK_BYTES,
) -> AsyncIterator[Written]:
    """Write partitions, and yield each when it is in place.

    Parameters
    ----------
    store : Store
    directory : Path
        New, empty, or an earlier export's.
    plan : collection of Planned
    progress : callable
        Called with the reports read so far, and those that were there at the start.
    block_bytes : int
        About how much to shuffle at a time; memory grows with it.

    Raises
    ------
    StoreError
        If the store can't be read, or pyarrow is missing.
    ReportFileError
        If the directory holds something else.
    OSError
        If the disk refuses. The partition that was being written is then as it was before.
    """
    require_pyarrow()
    check_target(directory, (planned.partition for planned in plan))
    expected = [await store.count(p.key, p.day, p.day) for p, _ in plan]
    done = 0
    for (partition, definition), reports in zip(plan, expected, strict=True):
        write_definition(directory, partition.key, definition)
        width = record_width(int(str(definition["k"])))
        with BulkShuffle(width, reports, directory, block_bytes) as shuffle:
            async for data in store.segments(partition.key, partition.day, partition.day):
                shuffle.add(data)
                done += len(data) // width
                progress(done, sum(expected))
            path = directory / partition.path / PART
            written = write_records(path, width, shuffle.blocks())
        yield Written(path, written, path.stat().st_size)
