"""Reports as fixed-width records, and how often each bit was set among them.

A record is the cohort, then the k/8 bytes of bits. Batches and segments hold reports in this one
form, many of them end to end, so that numpy can handle a million at once; files hold the cohorts
and the bits apart, and `Columns` are both, as they lie in memory.

Counting is a pure function from a chunk of records, or columns, to `CohortCounts`, which are all
that the regression needs; and counts add, so any engine can count chunks anywhere and sum. Bits
aren't unpacked: with the reports in order of their cohorts, eight bits of a 64-bit word at a time,
one of each byte, are added up in the word's eight bytes. `KeptCounts` are what stays of reports
that are forgotten, and have a form as bytes. Invariants: a byte of a word holds the sum of 255
reports and no more; and the layout of records and the form of counts never change, because stores
hold them.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.errors import RecordsError
from hubbub.protocol.params import COHORT_BYTES, MOST_BITS, RapporParams

_WORDS = ((8, "<u8"), (4, "<u4"), (2, "<u2"), (1, "u1"))
_BLOCK = 2**15
"""Reports that are put in order at once: few enough for the processor's cache."""

_BLOCK_OF_COHORT = 128
"""But so many of each cohort, where cohorts are many: short runs have a cost of their own."""

_MOST_IN_BLOCK = 2**17  # 64 MiB of the widest reports

_MOST = 255  # what a lane of one byte can add up
_LOWEST_BITS = np.uint64(0x0101_0101_0101_0101)  # of each of the word's eight lanes
_SIZES = struct.Struct("<II")
_MOST_COHORTS = 2**16  # a cohort is two bytes
_IntArray = NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class CohortCounts:
    """Sufficient statistics of the reports for estimation from bit counts.

    Attributes
    ----------
    reports : int64 array, shape (m,)
        Reports of each cohort (N_c).
    bits : int64 array, shape (m, k)
        Reports of each cohort that have each bit set (c_ij in Erlingsson et al. 2014, section 4).

    Examples
    --------
    Counts of days are added up:

    >>> monday = CohortCounts(np.array([2, 1]), np.array([[1, 2], [0, 1]]))
    >>> tuesday = CohortCounts(np.array([1, 1]), np.array([[1, 0], [1, 1]]))
    >>> (monday + tuesday).bits.tolist(), (monday + tuesday).total
    ([[2, 2], [1, 2]], 5)
    """

    reports: _IntArray
    bits: _IntArray

    def __add__(self, other: CohortCounts) -> CohortCounts:
        return CohortCounts(self.reports + other.reports, self.bits + other.bits)

    @property
    def total(self) -> int:
        """Number of reports in all cohorts."""
        return int(self.reports.sum())


def empty_counts(params: RapporParams) -> CohortCounts:
    """Return the counts of no reports at all."""
    return CohortCounts(
        np.zeros(params.m, dtype=np.int64), np.zeros((params.m, params.k), dtype=np.int64)
    )


def count_records(records: bytes, params: RapporParams) -> CohortCounts:
    """Count a chunk of stored records (RecordsError if it isn't whole records)."""
    check_whole(records, params)
    return count_columns(columns(Records(record_width(params.k), records)), params)


def count_columns(reports: Columns, params: RapporParams) -> CohortCounts:
    """Count reports (RecordsError for other widths, or a cohort beyond the last one)."""
    _check_width(reports, params)
    counts = empty_counts(params)
    block = min(max(_BLOCK, _BLOCK_OF_COHORT * params.m), _MOST_IN_BLOCK)
    for start in range(0, reports.reports, block):
        _add_block(reports.part(start, start + block), counts)
    return counts


def _check_width(reports: Columns, params: RapporParams) -> None:
    width = reports.bits.shape[1]
    if width != params.k // 8:
        raise RecordsError(
            f"reports of {width} bytes: must be of {params.k // 8} for k = {params.k}"
        )


def check_whole(records: bytes | memoryview, params: RapporParams) -> None:
    """Raise RecordsError if a chunk doesn't end with the end of a record."""
    width = record_width(params.k)
    if len(records) % width:
        raise RecordsError(
            f"records of {len(records)} bytes: must be a multiple of {width} for k = {params.k}"
        )


def _add_block(reports: Columns, counts: CohortCounts) -> None:
    """Add reports, in order of their cohorts and cut into runs of at most 255 of one cohort."""
    cohorts = np.ascontiguousarray(reports.cohorts)
    m, k = counts.bits.shape
    if cohorts.max() >= m:
        raise RecordsError(f"record with cohort {cohorts.max()}: must be below m = {m}")
    of_cohort = np.bincount(cohorts, minlength=m)
    occurring = np.flatnonzero(of_cohort)
    order = np.argsort(cohorts, kind="stable")
    sizes = of_cohort[occurring]
    runs = -(-sizes // _MOST)
    first = np.cumsum(runs) - runs  # the first run of each cohort that occurs
    begin = np.cumsum(sizes) - sizes
    starts = np.repeat(begin - _MOST * first, runs) + _MOST * np.arange(runs.sum())
    sums = np.empty((len(occurring), k // 8, 8), dtype=np.int64)
    for byte in range(0, k // 8, 8):
        ordered = np.take(_word(reports.bits, byte), order, mode="clip")  # sparing numpy a look
        of_word = sums[:, byte : byte + 8]
        for bit in range(8):
            lanes = ordered >> np.uint64(bit)
            lanes &= _LOWEST_BITS
            of_run = np.add.reduceat(lanes, starts).astype("<u8").view(np.uint8).reshape(-1, 8)
            of_bytes = of_run[:, : of_word.shape[1]]
            np.add.reduceat(of_bytes, first, axis=0, dtype=np.int64, out=of_word[:, :, bit])
    counts.reports[:] += of_cohort
    counts.bits[occurring] += sums.reshape(len(occurring), k)


def _word(bits: NDArray[np.uint8], byte: int) -> NDArray[np.uint64]:
    if byte + 8 <= bits.shape[1]:
        return bits[:, byte : byte + 8].view("<u8")[:, 0].astype(np.uint64)
    padded = np.zeros((len(bits), 8), dtype=np.uint8)
    padded[:, : bits.shape[1] - byte] = bits[:, byte:]
    return padded.view("<u8").ravel().astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class KeptCounts:
    """Counts that are kept when reports are forgotten."""

    counts: CohortCounts
    # Shape (k + 1,); reports with each number of set bits, to find improbable ones.
    set_bits: _IntArray

    def __add__(self, other: KeptCounts) -> KeptCounts:
        return KeptCounts(self.counts + other.counts, self.set_bits + other.set_bits)

    @property
    def total(self) -> int:
        """Number of reports."""
        return self.counts.total


def keep_none(params: RapporParams) -> KeptCounts:
    """Return what is kept of no reports at all."""
    return KeptCounts(empty_counts(params), np.zeros(params.k + 1, dtype=np.int64))


def keep_counts(records: bytes, params: RapporParams) -> KeptCounts:
    """Count what is kept of a chunk of stored records (raises as `count_records`)."""
    check_whole(records, params)
    return keep_columns(columns(Records(record_width(params.k), records)), params)


def keep_columns(reports: Columns, params: RapporParams) -> KeptCounts:
    """Count what is kept of reports (raises as `count_columns`)."""
    counts = count_columns(reports, params)
    numbers = np.zeros(params.k + 1, dtype=np.int64)
    for start in range(0, reports.reports, _BLOCK):
        of_block = set_bits(reports.bits[start : start + _BLOCK])
        numbers += np.bincount(of_block, minlength=params.k + 1)
    return KeptCounts(counts, numbers)


def pack_counts(kept: KeptCounts) -> bytes:
    """Return counts as bytes.

    m and k as 32-bit numbers, then zlib's form of 64-bit numbers, all little-endian: reports of
    each cohort, reports with each bit (cohort by cohort), reports with 0 to k set bits. Of all
    these numbers first the lowest bytes, then the second, and so on, because the high ones are
    alike.
    """
    m, k = kept.counts.bits.shape
    numbers = np.concatenate([kept.counts.reports, kept.counts.bits.ravel(), kept.set_bits])
    planes = numbers.astype("<i8").view(np.uint8).reshape(-1, 8).T
    return _SIZES.pack(m, k) + zlib.compress(planes.tobytes())


def unpack_counts(data: bytes) -> KeptCounts:
    """Return the counts of `pack_counts` (RecordsError)."""
    try:
        m, k = _SIZES.unpack_from(data)
        if m > _MOST_COHORTS or k > MOST_BITS:
            raise RecordsError(
                f"counts of m = {m}, k = {k}: must be at most {_MOST_COHORTS} and {MOST_BITS}"
            )
        size = 8 * (m + m * k + k + 1)
        planes = zlib.decompressobj().decompress(data[_SIZES.size :], size + 1)
    except (struct.error, zlib.error) as error:
        raise RecordsError(f"counts: {error}; expected counts of reports") from error
    if len(planes) != size:
        raise RecordsError(f"counts of {len(planes)} bytes: must be {size} for m = {m}, k = {k}")
    rows = np.frombuffer(planes, dtype=np.uint8).reshape(8, -1).T
    numbers = np.ascontiguousarray(rows).view("<i8").ravel().astype(np.int64)
    reports, bits, sums = np.split(numbers, [m, m + m * k])
    kept = KeptCounts(CohortCounts(reports, bits.reshape(m, k)), sums)
    check_counts(kept)
    return kept


def check_counts(kept: KeptCounts) -> None:
    """Raise RecordsError if counts contradict each other."""
    counts, numbers = kept.counts, kept.set_bits
    set_in_all = int((np.arange(len(numbers)) * numbers).sum())
    if (
        counts.bits.min(initial=0) < 0
        or numbers.min(initial=0) < 0
        or (counts.bits > counts.reports[:, None]).any()
        or int(numbers.sum()) != counts.total
        or set_in_all != int(counts.bits.sum())
    ):
        raise RecordsError(
            f"counts of {counts.total} reports with {int(counts.bits.sum())} set bits: must agree "
            f"with the numbers of set bits, of {int(numbers.sum())} reports with {set_in_all}"
        )
