"""Reports as fixed-width records: the cohort, then the k/8 bytes of bits.

Batches and segments hold reports in this one form, many of them end to end, so that numpy can
handle a million at once; files hold the cohorts and the bits apart, and `Columns` are both, as they
lie in memory. Invariant: the layout never changes, because stores hold it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.params import COHORT_BYTES

_WORDS = ((8, "<u8"), (4, "<u4"), (2, "<u2"), (1, "u1"))


class Records(NamedTuple):
    """Records of one metric and version."""

    width: int  # bytes of a record
    data: bytes  # the records, end to end

    @property
    def reports(self) -> int:
        """Number of records, each a report."""
        return len(self.data) // self.width


class Columns(NamedTuple):
    """Reports as two arrays: views of records, or of a file's columns."""

    cohorts: NDArray[np.uint16]  # shape (n,)
    # Shape (n, k / 8); the bytes of a row lie side by side; rows may be anywhere.
    bits: NDArray[np.uint8]

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.cohorts)

    def part(self, start: int, stop: int) -> Columns:
        """View some of the reports."""
        return Columns(self.cohorts[start:stop], self.bits[start:stop])


def record_width(k: int) -> int:
    """Return the bytes of a record whose report has k bits."""
    return COHORT_BYTES + k // 8


def table(records: Records) -> NDArray[np.uint8]:
    """View records as a read-only array of bytes, shape (n, width)."""
    return np.frombuffer(records.data, dtype=np.uint8).reshape(-1, records.width)


def columns(records: Records) -> Columns:
    """View records as columns."""
    rows = table(records)
    return Columns(rows[:, :COHORT_BYTES].view("<u2")[:, 0], rows[:, COHORT_BYTES:])


def interleaved(reports: Columns) -> Records:
    """Return columns as records."""
    n, width = reports.bits.shape
    rows = np.empty((n, COHORT_BYTES + width), dtype=np.uint8)
    rows[:, :COHORT_BYTES] = reports.cohorts.astype("<u2")[:, None].view(np.uint8)
    rows[:, COHORT_BYTES:] = reports.bits
    return Records(COHORT_BYTES + width, rows.tobytes())


def cohorts(records: Records) -> NDArray[np.uint16]:
    """Return the cohort of each record, shape (n,)."""
    return table(records)[:, :COHORT_BYTES].copy().view("<u2").ravel()


def words(bits: NDArray[np.uint8]) -> Iterator[NDArray[np.uint64]]:
    """Yield the bits of each report word by word, every byte in exactly one word."""
    offset = 0
    for size, dtype in _WORDS:
        while offset + size <= bits.shape[1]:
            yield bits[:, offset : offset + size].view(dtype)[:, 0].astype(np.uint64)
            offset += size


def column(records: Records, offset: int, dtype: str) -> NDArray[np.unsignedinteger]:
    """View what lies at an offset of every record; for few records, faster than `columns`."""
    shape, strides = (records.reports,), (records.width,)
    return np.ndarray(shape, dtype, records.data, offset, strides)


def set_bits(bits: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return each report's number of set bits, shape (n,); `bits` as of `Columns`."""
    total = np.zeros(len(bits), dtype=np.uint16)
    for word in words(bits):
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
