"""More records than memory holds -> the same records in a random order, block by block.

Each record is dealt into a block that chance picks, and each block is shuffled before it leaves:
together that is a uniformly random order of all records, so no trace remains of which segment a
record came from. Between the two steps the records lie in a file without a name, which is gone when
the process is, however it ends.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.records import Records, shuffled, table

BLOCK_BYTES = 2**22
"""About how much a block takes, and how much is dealt at a time."""


class BulkShuffle:
    """Takes records in chunks of any size, then gives them back in random order.

    Parameters
    ----------
    width : int
        Bytes of a record.
    expected : int
        About how many records will come; sets the number of blocks, so that each fits in memory.
    folder : Path
        Where the nameless file may grow to the size of all records.
    block_bytes : int
    """

    def __init__(
        self, width: int, expected: int, folder: Path, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._width = width
        self._blocks = max(1, -(-expected * width // block_bytes))
        self._block_bytes = block_bytes
        self._waiting = bytearray()
        # What fits in one block never touches the disk.
        size = 2 * self._block_bytes
        file = tempfile.SpooledTemporaryFile(size, dir=str(folder))  # noqa: SIM115 - closed on exit
        self._file = cast("IO[bytes]", file)
        self._edges: list[NDArray[np.int64]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
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
            if data := b"".join(self._read(edges, block) for edges in self._edges):
                yield shuffled(Records(self._width, data))

    def _deal(self) -> None:
        """Write what waits as one run, sorted by block, and remember where each block begins."""
        records = table(Records(self._width, bytes(self._waiting)))
        keys = np.frombuffer(secrets.token_bytes(8 * len(records)), dtype=np.uint64)
        block_of = (keys % np.uint64(self._blocks)).astype(np.int64)
        sizes = np.bincount(block_of, minlength=self._blocks) * self._width
        start = self._file.tell()
        self._edges.append(start + np.concatenate(([0], np.cumsum(sizes))))
        self._file.write(records[np.argsort(block_of, kind="stable")].tobytes())
        self._waiting.clear()

    def _read(self, edges: NDArray[np.int64], block: int) -> bytes:
        self._file.seek(edges[block])
        return self._file.read(edges[block + 1] - edges[block])
