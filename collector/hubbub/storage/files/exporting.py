"""A store -> a directory of Parquet partitions, each in a random order.

Segments are streamed and the whole partition shuffled, so that memory stays small and nothing shows
where a segment ended. Counts of forgotten reports are written beside them, or in their place. A
partition's manifest is written last, and takes the place of what an earlier export wrote of the
same day; days that the store has dropped since then stay in the directory.
"""

from __future__ import annotations

import datetime as dt
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import IO, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.checks import metric_name
from hubbub.protocol.counts import KeptCounts
from hubbub.protocol.records import Records, record_width, shuffled, table
from hubbub.storage import MetricVersion, Store, StoredCounts
from hubbub.storage.files.locations import Address, Location, named_errors, resolve
from hubbub.storage.files.parquet import require_pyarrow, write_counts, write_records
from hubbub.storage.files.partitions import (
    CommittedFile,
    FileNames,
    Manifest,
    Partition,
    check_target,
    commit,
    definition_digest,
    describe_file,
    write_definition,
)
from hubbub.storage.slices import pools

BLOCK_BYTES = 2**22
"""About how much a block takes, and how much is dealt at a time."""


class BulkShuffle:
    """Takes records in chunks of any size, then gives them back in random order.

    Each record is dealt into a block that chance picks, and each block is shuffled before it
    leaves: together that is a uniformly random order of all records, so no trace remains of which
    segment a record came from. Between the two steps the records lie in a file without a name,
    which is gone when the process is, however it ends.

    Parameters
    ----------
    width : int
        Bytes of a record.
    expected : int
        About how many records will come; sets the number of blocks, so that each fits in memory.
    folder : Path, optional
        Where the nameless file may grow to the size of all records; by default TMPDIR.
    block_bytes : int
    """

    def __init__(
        self, width: int, expected: int, folder: Path | None, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._width = width
        self._folder = folder or Path(tempfile.gettempdir())
        self._blocks = max(1, -(-expected * width // block_bytes))
        self._block_bytes = block_bytes
        self._waiting = bytearray()
        # What fits in one block never touches the disk.
        size = 2 * self._block_bytes
        file = tempfile.SpooledTemporaryFile(size, dir=str(self._folder))  # noqa: SIM115 - closed on exit
        self._file = cast("IO[bytes]", file)
        self._edges: list[NDArray[np.int64]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    def add(self, data: bytes) -> None:
        """Take whole records, end to end."""
        self._waiting += data
        if len(self._waiting) >= self._block_bytes:
            self._deal()

    def blocks(self) -> Iterator[Records]:
        """Yield all records in random order, once everything has been added."""
        self._deal()
        for block in range(self._blocks):
            data = bytearray()
            for edges in self._edges:
                self._file.seek(edges[block])
                data += self._file.read(edges[block + 1] - edges[block])
            if data:
                yield shuffled(Records(self._width, bytes(data)))

    def _deal(self) -> None:
        """Write what waits as one run, sorted by block, and remember where each block begins."""
        records = table(Records(self._width, bytes(self._waiting)))
        keys = np.frombuffer(secrets.token_bytes(8 * len(records)), dtype=np.uint64)
        block_of = (keys % np.uint64(self._blocks)).astype(np.int64)
        sizes = np.bincount(block_of, minlength=self._blocks) * self._width
        start = self._file.tell()
        self._edges.append(start + np.concatenate(([0], np.cumsum(sizes))))
        with named_errors(self._folder):
            self._file.write(records[np.argsort(block_of, kind="stable")].tobytes())
        self._waiting.clear()


class PlannedPartition(NamedTuple):
    """A partition that an export will write, and how its reports were made."""

    partition: Partition
    definition: dict[str, object]


class WrittenPartition(NamedTuple):
    """A file of a partition that an export has written.

    Attributes
    ----------
    path : Location
    reports : int
    size : int
        Its bytes.
    only_counts : bool
        Whether it holds counts of reports that were forgotten.
    slice : str
        What the reports say of the app.
    """

    path: Location
    reports: int
    size: int
    only_counts: bool = False
    slice: str = ""


async def plan_export(
    store: Store,
    metrics: Collection[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
) -> list[PlannedPartition]:
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
        name = declared.metric
        metric_name("store", name)
        key = MetricVersion(name, declared.version)
        plan += [
            PlannedPartition(Partition(*key[:2], day), declared.definition)
            for day in await store.days(key)
            if (since or day) <= day <= (until or day)
        ]
    return sorted(plan, key=lambda planned: planned.partition)


async def export_partitions(
    store: Store,
    address: Address,
    plan: Collection[PlannedPartition],
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    block_bytes: int = BLOCK_BYTES,
) -> AsyncIterator[WrittenPartition]:
    """Write partitions, and yield each of their files when it counts.

    Parameters
    ----------
    store : Store
    address : Location, path or str
        A directory: new, empty, or an earlier export's.
    plan : collection of PlannedPartition
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
    StorageError, OSError
        If the storage or the disk refuses. The day that was being written then counts as before.
    """
    require_pyarrow()
    directory = resolve(address)
    check_target(directory, (planned.partition for planned in plan))
    expected = [await store.count(p.key, p.day, p.day) for p, _ in plan]
    done = 0
    told = {MetricVersion(it.metric, it.version): it for it in await store.declared()}
    for (partition, definition), reports in zip(plan, expected, strict=True):
        write_definition(directory, partition.key, definition)
        width, digest = record_width(int(str(definition["k"]))), definition_digest(definition)
        folder = directory / partition.path
        sizes = (await store.slices(partition.key, partition.day, partition.day)).get(partition.day)
        goes = pools(told[partition.key], sizes or {})
        kept_slices = set(goes.values())
        spool = Path(directory.path) if directory.is_local else None
        written: list[WrittenPartition] = []
        with ExitStack() as stack:
            shuffles: dict[str, BulkShuffle] = {}
            records, kept = Counter[str](), dict[str, KeptCounts]()
            of_day = store.contents(partition.key, partition.day, partition.day)
            async with aclosing(of_day) as contents:
                async for stored in contents:
                    # Upkeep may have moved it there since.
                    text = stored.slice if stored.slice in kept_slices else ""
                    text = goes.get(stored.slice, text)
                    if isinstance(stored, StoredCounts):
                        kept[text] = kept[text] + stored.kept if text in kept else stored.kept
                        done += stored.kept.total
                    else:
                        if text not in shuffles:
                            shuffle = BulkShuffle(width, reports, spool, block_bytes)
                            shuffles[text] = stack.enter_context(shuffle)
                        shuffles[text].add(stored.records)
                        records[text] += len(stored.records) // width
                        done += len(stored.records) // width
                    progress(done, sum(expected))
            for text in sorted(shuffles) if shuffles or kept else [""]:
                names = FileNames()
                path = folder / names.part
                blocks = shuffles[text].blocks() if shuffles else iter(())
                write_records(path, width, blocks, describe_file(partition, digest, text))
                written.append(WrittenPartition(path, records[text], path.size() or 0, slice=text))
        for text, counts in sorted(kept.items()):
            path = folder / FileNames().counts
            write_counts(path, counts, describe_file(partition, digest, text))
            size = path.size() or 0
            written.append(WrittenPartition(path, counts.total, size, only_counts=True, slice=text))
        files = tuple(
            CommittedFile(file.path.name, file.reports, file.size, file.slice) for file in written
        )
        # One step for both: what has become counts since an earlier export is never there twice.
        commit(folder, Manifest(digest, files))
        for file in written:
            yield file
