"""Raw reports, kept so that they can be read many times: sorted by cohort, bits still packed.

The likelihood needs whole reports again and again, cohort by cohort. With up to 16 bits equal
reports are kept once, with their number; with more they stay one by one, in memory or, beyond a
bound, in an unnamed temporary file.

Invariant: the parts, and the order of their blocks, depend on the reports alone, so that sums over
them come out the same on any machine, and wherever parts are kept.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple, Protocol, TypeVar

import numpy as np

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.inference.counts import check_whole
from hubbub.inference.errors import UndecodableError
from hubbub.protocol import COHORT_BYTES, RapporParams, record_width

# There are at most 65,536 different reports of 16 bits in a cohort: worth counting instead of
# keeping.
GROUPED_BITS = 16
# 256 MB: what a small machine can spare; more goes to a temporary file.
IN_MEMORY = 2**28
# Codes that wait to be merged: bounds memory at some 64 MB.
_PENDING = 2**22
# Records that are read and sorted at once: bounds memory; speed alone depends on it.
_SORTED_AT_ONCE = 2**18


PART_REPORTS = 2**22
"""Reports up to which there is one part, unless there are too few cohorts for more."""
_Result = TypeVar("_Result")
_Shared = TypeVar("_Shared")


class ReportBlock(NamedTuple):
    """Some reports of one cohort."""

    cohort: int
    bits: ByteArray  # shape (n, k / 8)
    weights: FloatArray  # shape (n,); how many equal reports each row stands for


class RawReports(Protocol):
    """All reports of a metric, wherever they are kept, part by part."""

    @property
    def params(self) -> RapporParams:
        """How they were made."""

    @property
    def total(self) -> int:
        """Number of reports."""

    @property
    def rows(self) -> int:
        """Rows that a pass over the reports reads."""

    @property
    def by_cohort(self) -> FloatArray:
        """Number of reports of each cohort, shape (m,)."""

    def map(
        self,
        work: Callable[[_Shared, PackedReports, int], _Result],
        shared: _Shared,
        threads: int,
    ) -> Iterator[_Result]:
        """Yield `work(shared, part, threads)` of each part, in order.

        `work`: a function of a module; it may be done in another process. `shared`: what the work
        on each part needs besides. `threads`: that work may take of this process.
        """


def cut_cohorts(params: RapporParams, n_reports: int) -> list[range]:
    """Return the cohorts of each part of so many reports."""
    if params.k <= GROUPED_BITS:
        n_reports = min(n_reports, params.m << params.k)
    parts = min(params.m, max(1, -(-n_reports // PART_REPORTS)))
    bounds = [params.m * part // parts for part in range(parts + 1)]
    return [range(first, stop) for first, stop in itertools.pairwise(bounds)]


@dataclass(frozen=True, slots=True, eq=False)
class PackedReports:
    """Reports in memory or mapped, all of a metric or a part; see `pack` and `ReportSpool`."""

    params: RapporParams
    starts: IntArray  # shape (m + 1,); cohort c has the rows from starts[c] to starts[c + 1]
    bits: ByteArray  # shape (n, k / 8)
    # Shape (n,); reports behind each row; None if every row is one report.
    copies: FloatArray | None
    total: int  # reports in all

    def __sizeof__(self) -> int:
        """Return the bytes of all arrays, by which Dask knows when to spill them."""
        arrays = (self.starts, self.bits, self.copies)
        return sum(0 if array is None else array.nbytes for array in arrays)

    @property
    def rows(self) -> int:
        """Rows that a pass over the reports reads."""
        return len(self.bits)

    @property
    def by_cohort(self) -> FloatArray:
        """Number of reports of each cohort, shape (m,)."""
        if self.copies is None:
            return np.diff(self.starts).astype(np.float64)
        return np.diff(np.concatenate([[0.0], np.cumsum(self.copies)])[self.starts])

    def map(
        self,
        work: Callable[[_Shared, PackedReports, int], _Result],
        shared: _Shared,
        threads: int,
    ) -> Iterator[_Result]:
        """Yield `work(shared, part, threads)` of each part, in order."""
        for cohorts in cut_cohorts(self.params, self.total):
            yield work(shared, self._part(cohorts), threads)

    def _part(self, cohorts: range) -> PackedReports:
        first, stop = self.starts[cohorts.start], self.starts[cohorts.stop]
        starts = np.clip(self.starts, first, stop) - first
        copies = None if self.copies is None else self.copies[first:stop]
        total = stop - first if copies is None else copies.sum()
        return PackedReports(self.params, starts, self.bits[first:stop], copies, int(total))

    def blocks(self, rows: int) -> Iterator[ReportBlock]:
        """Yield all reports, cohort by cohort, at most so many rows at a time."""
        for cohort in range(self.params.m):
            stop = int(self.starts[cohort + 1])
            for first in range(int(self.starts[cohort]), stop, rows):
                last = min(first + rows, stop)
                copies = np.ones(last - first) if self.copies is None else self.copies[first:last]
                yield ReportBlock(cohort, np.asarray(self.bits[first:last]), copies)


class ReportSpool:
    """Takes records as they are read and counted, and packs them at the end.

    `in_memory`: bytes of records that are held in memory; more go to a temporary file.
    """

    def __init__(self, params: RapporParams, in_memory: int = IN_MEMORY) -> None:
        self._params = params
        self._width = record_width(params.k)
        self._room = in_memory
        self._chunks: list[ByteArray] = []
        self._codes: list[tuple[IntArray, IntArray]] = []
        self._file: IO[bytes] | None = None
        self._reports = np.zeros(params.m, dtype=np.int64)

    def add(self, records: bytes | memoryview) -> None:
        """Keep a chunk of stored records: cohort in two little-endian bytes, then k/8 of bits.

        Raises `UndecodableError` if it isn't whole records of these parameters.
        """
        check_whole(records, self._params)
        table = np.frombuffer(records, dtype=np.uint8).reshape(-1, self._width)
        cohorts = _cohorts_of(table)
        if cohorts.size and cohorts.max() >= self._params.m:
            raise UndecodableError(
                f"record with cohort {cohorts.max()}: must be below m = {self._params.m}"
            )
        self._reports += np.bincount(cohorts, minlength=self._params.m)
        if self._params.k <= GROUPED_BITS:
            self._group(cohorts, table[:, COHORT_BYTES:], np.ones(len(table), dtype=np.int64))
            return
        self._room -= table.size
        if self._room >= 0:
            self._chunks.append(table)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `finish` closes it
        self._file.write(table.tobytes())

    def add_grouped(self, packed: PackedReports) -> None:
        """Keep reports that were packed elsewhere, equal ones once."""
        if packed.copies is None:
            raise ValueError(f"k = {packed.params.k}: must be at most {GROUPED_BITS}")
        cohorts = np.repeat(np.arange(self._params.m), np.diff(packed.starts))
        self._reports += packed.by_cohort.astype(np.int64)
        self._group(cohorts, packed.bits, packed.copies.astype(np.int64))

    def finish(self) -> PackedReports:
        """Return what was added, and forget it."""
        total = int(self._reports.sum())
        if self._params.k <= GROUPED_BITS:
            return self._grouped(total)
        shape = (total, self._params.k // 8)
        bits = np.empty(shape, dtype=np.uint8)
        if self._file is not None and total:
            with tempfile.TemporaryFile() as file:
                file.truncate(shape[0] * shape[1])
                bits = np.memmap(file, dtype=np.uint8, mode="r+", shape=shape)
        starts = np.concatenate([[0], np.cumsum(self._reports)])
        _sort_into(bits, starts, self._kept())
        self._chunks.clear()
        if self._file is not None:
            self._file.close()
        return PackedReports(self._params, starts, bits, None, total)

    def _group(self, cohorts: IntArray, bits: ByteArray, copies: IntArray) -> None:
        codes = cohorts << GROUPED_BITS
        for byte in range(bits.shape[1]):
            codes |= bits[:, byte].astype(np.int64) << (8 * byte)
        self._codes.append(_counted(codes, copies))
        if len(self._codes) > 1 and sum(len(codes) for codes, _ in self._codes) > _PENDING:
            self._merge()

    def _merge(self) -> None:
        codes = np.concatenate([np.empty(0, dtype=np.int64), *(c for c, _ in self._codes)])
        copies = np.concatenate([np.empty(0, dtype=np.int64), *(n for _, n in self._codes)])
        self._codes = [_counted(codes, copies)]

    def _grouped(self, total: int) -> PackedReports:
        self._merge()
        codes, copies = self._codes.pop()
        first = np.arange(self._params.m + 1, dtype=np.int64) << GROUPED_BITS
        shifts = 8 * np.arange(self._params.k // 8)
        bits = ((codes[:, None] >> shifts) & 255).astype(np.uint8)
        starts = np.searchsorted(codes, first)
        return PackedReports(self._params, starts, bits, copies.astype(np.float64), total)

    def _kept(self) -> Iterator[ByteArray]:
        yield from self._chunks
        if self._file is not None:
            self._file.seek(0)
            while data := self._file.read(_SORTED_AT_ONCE * self._width):
                yield np.frombuffer(data, dtype=np.uint8).reshape(-1, self._width)


def pack(
    chunks: Iterable[bytes | memoryview], params: RapporParams, in_memory: int = IN_MEMORY
) -> PackedReports:
    """Pack chunks of stored records; see `ReportSpool`."""
    spool = ReportSpool(params, in_memory)
    for records in chunks:
        spool.add(records)
    return spool.finish()


def _cohorts_of(table: ByteArray) -> IntArray:
    return table[:, :COHORT_BYTES].copy().view("<u2").ravel().astype(np.int64)


def _counted(codes: IntArray, copies: IntArray) -> tuple[IntArray, IntArray]:
    distinct, inverse = np.unique(codes, return_inverse=True)
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, inverse, copies)
    return distinct, counts


def _sort_into(bits: ByteArray, starts: IntArray, chunks: Iterable[ByteArray]) -> None:
    """Write the records' bits to where their cohorts' rows are, in an order of their own.

    A store shuffles reports again whenever it merges segments; sums of floats must not notice.
    """
    free = starts[:-1].copy()
    for chunk in chunks:
        cohorts = _cohorts_of(chunk)
        order = np.argsort(cohorts, kind="stable")
        present, first = np.unique(cohorts[order], return_index=True)
        # Before the first there is nothing, and of a chunk without records nothing else.
        for cohort, rows in zip(present, np.split(order, first)[1:], strict=True):
            bits[free[cohort] : free[cohort] + len(rows)] = chunk[rows, COHORT_BYTES:]
            free[cohort] += len(rows)
    for cohort in range(len(starts) - 1):
        own = bits[starts[cohort] : starts[cohort + 1]]
        words = np.zeros((len(own), -(-own.shape[1] // 8) * 8), dtype=np.uint8)
        words[:, : own.shape[1]] = own
        own[:] = own[np.lexsort(words.view(np.uint64).T)]
