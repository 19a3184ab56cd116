"""Closed days are rewritten in random order, so that no segment shows when its reports came.

The segments of a busy day are each of some minute. Someone who sends their own reports all day
knows the minute of each segment that has them, and so of everybody's reports in it. Once the day is
over, all its segments of a metric's version and slice are replaced, in one transaction, by others
under new random keys, into which the reports are dealt at random. Invariants: a segment that was
mixed has a negative key, any other hasn't, and nothing else is remembered; and what comes later is
mixed with all that is there, since late reports alone would be known as late.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Self, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol import Records, shuffled, table
from hubbub.storage.database import Database
from hubbub.storage.days import Row, row_of
from hubbub.storage.schema import segments as _segments
from hubbub.storage.segments import SMALL, DayGroup, Segments, stream_selections

_BLOCK_BYTES = 4 * 1024**2
"""About how much is shuffled at a time: a twentieth of the memory that mixing takes."""

_ROWS_AT_ONCE = 16  # 5 MB at k = 128

_is_unmixed = _segments.c.segment_id >= 0


async def mix_closed_days(
    database: Database, segments: Segments, today: dt.date, is_stopping: Callable[[], bool]
) -> int:
    """Mix the reports of days before `today` that aren't yet, youngest first; return how many.

    Readers, mergers and other mixers may be at work: each sees every report exactly once.

    `is_stopping`: asked between transactions whether to leave the rest to the next call.
    """
    mixed = 0
    groups = await segments.groups(_is_unmixed & (_segments.c.day < today))
    for group in sorted(groups, key=lambda it: it.day, reverse=True):
        if is_stopping():
            break
        mixed += await _mix(database, segments, group)
    return mixed


async def unmixed_days(segments: Segments, today: dt.date) -> int:
    """Return how many days before `today` have reports that aren't mixed yet."""
    groups = await segments.groups(_is_unmixed & (_segments.c.day < today))
    return len({group.day for group in groups})


async def _mix(database: Database, segments: Segments, group: DayGroup) -> int:
    """Rewrite a group; return how many reports weren't mixed, 0 if others replaced some."""
    sizes = await segments.sizes(*group.selected())
    reports = sum(size.reports for size in sizes)
    with ExitStack() as files:
        shuffle: BulkShuffle | None = None
        found = 0
        # Each segment is read and dealt by itself, so that memory holds a block and not the day.
        async with database.read() as connection:
            for query in stream_selections(sizes, group.day):
                options = {"max_row_buffer": 1}
                async for n, records in await connection.stream(query, execution_options=options):
                    if shuffle is None:
                        width, folder = len(records) // n, database.folder
                        shuffle = BulkShuffle(width, reports, folder, _BLOCK_BYTES)
                        files.enter_context(shuffle)
                    await asyncio.to_thread(shuffle.add, records)
                    found += 1
        if shuffle is None or found < len(sizes):  # counted, deleted or merged meanwhile
            return 0
        # Made before the transaction, for which all who write to an SQLite file wait.
        made = files.enter_context(_temporary_file(2 * _BLOCK_BYTES, database.folder))
        await asyncio.to_thread(_write, shuffle, made)
        rows = _rows(group, made, reports, width)
        if not await segments.replace(sizes, group, rows, _segments):
            return 0
    return sum(size.reports for size in sizes if size.segment_id >= 0)


def _write(shuffle: BulkShuffle, made: IO[bytes]) -> None:
    for block in shuffle.blocks():
        made.write(block.data)  # one by one: `writelines` would keep all in memory
    made.seek(0)


def _rows(group: DayGroup, made: IO[bytes], reports: int, width: int) -> Iterator[list[Row]]:
    """Yield new rows for the records in a file, each of `SMALL` reports or more if possible."""
    parts = max(1, reports // SMALL)
    for first in range(0, parts, _ROWS_AT_ONCE):
        edges = range(first, min(first + _ROWS_AT_ONCE, parts) + 1)
        numbers = (b - a for a, b in pairwise(reports * edge // parts for edge in edges))
        records = (Records(width, made.read(number * width)) for number in numbers)
        yield [row_of(group.key, group.day, some, is_mixed=True) for some in records]


def _temporary_file(size: int, folder: Path | None) -> IO[bytes]:
    """Return a file that has no name, and is in memory until it is larger than this."""
    where = None if folder is None else str(folder)
    file = tempfile.SpooledTemporaryFile(size, dir=where)  # noqa: SIM115 - closed by its owner
    return cast("IO[bytes]", file)


class BulkShuffle:
    """Takes records in chunks of any size, then gives them back in random order.

    Each record is dealt into a random block, and each block is shuffled before it leaves: together
    that is a uniformly random order of all records. Between the two steps the records are in a file
    without a name, in `folder` or TMPDIR, which is gone when the process is, however it ends.
    `expected` is about how many records will come; it sets the number of blocks.
    """

    def __init__(
        self, width: int, expected: int, folder: Path | None, block_bytes: int = _BLOCK_BYTES
    ) -> None:
        self._width = width
        self._folder = folder or Path(tempfile.gettempdir())
        self._blocks = max(1, -(-expected * width // block_bytes))
        self._block_bytes = block_bytes
        self._waiting = bytearray()
        # Records that fit in one block never touch the disk.
        self._file = _temporary_file(2 * block_bytes, self._folder)
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
        try:
            self._file.write(records[np.argsort(block_of, kind="stable")].tobytes())
        except OSError as error:  # a full disk; the system's error names no file
            error.filename = error.filename or str(self._folder)
            raise
        self._waiting.clear()
