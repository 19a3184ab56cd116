"""Raw reports, kept so that they can be read many times: sorted by cohort, bits still packed.

The likelihood needs whole reports again and again, cohort by cohort. Equal reports are one row with
their number: of 8 bits a million reports are a few thousand rows.

Invariant: rows and blocks depend on the reports alone, not on the order in which a store yields
them, so that sums over them come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.inference.counts import check_whole
from hubbub.inference.errors import UndecodableError
from hubbub.protocol import COHORT_BYTES, RapporParams, record_width


class ReportBlock(NamedTuple):
    """Some reports of one cohort."""

    cohort: int
    bits: ByteArray  # shape (n, k / 8)
    weights: FloatArray  # shape (n,); how many equal reports each row stands for


@dataclass(frozen=True, slots=True, eq=False)
class PackedReports:
    """All reports of a metric; see `pack`."""

    params: RapporParams
    starts: IntArray  # shape (m + 1,); cohort c has the rows from starts[c] to starts[c + 1]
    bits: ByteArray  # shape (n, k / 8)
    copies: FloatArray  # shape (n,); reports behind each row
    total: int  # reports in all

    @property
    def by_cohort(self) -> FloatArray:
        """Number of reports of each cohort, shape (m,)."""
        return np.diff(np.concatenate([[0.0], np.cumsum(self.copies)])[self.starts])

    def blocks(self, rows: int) -> Iterator[ReportBlock]:
        """Yield all reports, cohort by cohort, at most so many rows at a time."""
        for cohort in range(self.params.m):
            stop = int(self.starts[cohort + 1])
            for first in range(int(self.starts[cohort]), stop, rows):
                some = slice(first, min(first + rows, stop))
                yield ReportBlock(cohort, self.bits[some], self.copies[some])


def pack(chunks: Iterable[bytes | memoryview], params: RapporParams) -> PackedReports:
    """Pack chunks of stored records: the cohort in two little-endian bytes, then k/8 of bits.

    Raises `UndecodableError` if they aren't whole records of these parameters.
    """
    records = b"".join(chunks)
    check_whole(records, params)
    table = np.frombuffer(records, dtype=np.uint8).reshape(-1, record_width(params.k))
    cohorts = table[:, :COHORT_BYTES].copy().view("<u2").ravel()
    if len(cohorts) and cohorts.max() >= params.m:
        raise UndecodableError(f"record with cohort {cohorts.max()}: must be below m = {params.m}")
    bits = table[np.argsort(cohorts, kind="stable"), COHORT_BYTES:]
    ends = np.cumsum(np.bincount(cohorts, minlength=params.m))
    rows, copies = [], []
    for own in np.split(bits, ends[:-1]):
        words = np.zeros((len(own), -(-own.shape[1] // 8) * 8), dtype=np.uint8)
        words[:, : own.shape[1]] = own
        ordered = own[np.lexsort(words.view(np.uint64).T)]
        differs = np.ones(len(own), dtype=np.bool_)
        differs[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        rows.append(ordered[differs])
        copies.append(np.diff(np.flatnonzero(differs), append=len(own)))
    starts = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
    of_rows = np.concatenate(copies).astype(np.float64)
    return PackedReports(params, starts, np.concatenate(rows), of_rows, len(table))
