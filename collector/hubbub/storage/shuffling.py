"""A uniformly random order of more records than memory holds."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol import Records, shuffled, table

BLOCK_BYTES = 4 * 1024**2
"""About how much is shuffled at a time: a twentieth of the memory that mixing takes."""


def temporary_file(size: int, folder: Path | None) -> IO[bytes]:
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
        self, width: int, expected: int, folder: Path | None, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._width = width
        self._folder = folder or Path(tempfile.gettempdir())
        self._blocks = max(1, -(-expected * width // block_bytes))
        self._block_bytes = block_bytes
        self._waiting = bytearray()
        # Records that fit in one block never touch the disk.
        self._file = temporary_file(2 * block_bytes, self._folder)
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
