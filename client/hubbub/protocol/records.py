"""Reports as fixed-width records: the cohort, then the k/8 bytes of bits.

Batches, segments and exports all hold reports in this one form, many of them end to end, so that
numpy can handle a million at once. Invariant: the layout never changes, because stores hold it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COHORT_BYTES = 2
"""A record is the cohort (unsigned, little-endian) followed by the k/8 bytes of bits."""


_WORDS = ((8, "<u8"), (4, "<u4"), (2, "<u2"), (1, "u1"))


class Records(NamedTuple):
    """Records of one metric and version.

    Attributes
    ----------
    width : int
        Bytes of a record.
    data : bytes
        The records, end to end.
    """

    width: int
    data: bytes

    @property
    def reports(self) -> int:
        """Number of records, each a report."""
        return len(self.data) // self.width


def record_width(k: int) -> int:
    """Return the bytes of a record whose report has k bits."""
    return COHORT_BYTES + k // 8


def table(records: Records) -> NDArray[np.uint8]:
    """View records as a read-only array of bytes, shape (n, width)."""
    return np.frombuffer(records.data, dtype=np.uint8).reshape(-1, records.width)


def cohorts(records: Records) -> NDArray[np.uint16]:
    """Return the cohort of each record, shape (n,)."""
    return table(records)[:, :COHORT_BYTES].copy().view("<u2").ravel()


def words(records: Records, start: int = 0, step: int = 1) -> Iterator[NDArray[np.uint64]]:
    """Yield the bits of every step-th record word by word: arrays of equal length.

    Whatever the width, all bytes of the bits are in exactly one of the words.
    """
    offset = COHORT_BYTES
    for size, dtype in _WORDS:
        while offset + size <= records.width:
            yield column(records, offset, dtype, start, step).astype(np.uint64)
            offset += size


def column(
    records: Records, offset: int, dtype: str, start: int = 0, step: int = 1
) -> NDArray[np.unsignedinteger]:
    """View what lies at an offset of every step-th record; faster than slicing a table of bytes."""
    count = len(range(start, records.reports, step))
    if not count:
        return np.empty(0, dtype)
    first, stride = start * records.width + offset, step * records.width
    return np.ndarray((count,), dtype, records.data, first, (stride,))


def set_bits(records: Records) -> NDArray[np.uint16]:
    """Return each record's number of set bits, shape (n,)."""
    total = np.zeros(records.reports, dtype=np.uint16)
    for word in words(records):
        total += np.bitwise_count(word)
    return total


def joined(pool: Sequence[Records]) -> Records:
    """Return records of one width end to end; at least one."""
    return Records(pool[0].width, b"".join([records.data for records in pool]))


def shuffled(records: Records) -> Records:
    """Return the records in an order drawn by the operating system's generator.

    Each record gets a random key of 64 bits and they are sorted by it: all orders are equally
    likely, but for two equal keys (n^2 / 2^65, below 1e-7 for a million records).
    """
    keys = np.frombuffer(secrets.token_bytes(8 * records.reports), dtype=np.uint64)
    rows = np.frombuffer(records.data, dtype=f"V{records.width}")
    return Records(records.width, rows[np.argsort(keys)].tobytes())
