"""Reports -> how often each bit was set in each cohort.

A pure function from a chunk of records to `CohortCounts`, and counts add, so any engine can count
chunks anywhere and sum. Bits aren't unpacked: each byte column gets one histogram over
(cohort, byte value), which a 256 x 8 table turns into bit sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import IntArray
from hubbub.decoder.errors import UndecodableError

_COHORT_BYTES = 2
_BITS_OF_BYTE = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(np.int64)


@dataclass(frozen=True, slots=True)
class CohortCounts:
    """Sufficient statistics of the reports for estimation from bit counts.

    Attributes
    ----------
    reports : int64 array, shape (m,)
        Reports of each cohort (N_c).
    bits : int64 array, shape (m, k)
        Reports of each cohort that have each bit set (c_ij in Erlingsson et al. 2014, section 4).
    """

    reports: IntArray
    bits: IntArray

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
    """Count a chunk of stored records.

    Parameters
    ----------
    records : bytes
        Concatenated records: the cohort as two little-endian bytes, then k/8 bytes of bits.
    params : RapporParams

    Raises
    ------
    UndecodableError
        If the chunk isn't whole records of these parameters.
    """
    width = _COHORT_BYTES + params.k // 8
    if len(records) % width:
        raise UndecodableError(
            f"records of {len(records)} bytes: must be a multiple of {width} for k = {params.k}"
        )
    table = np.frombuffer(records, dtype=np.uint8).reshape(-1, width)
    cohorts = table[:, :_COHORT_BYTES].copy().view("<u2").ravel().astype(np.int64)
    if cohorts.size and cohorts.max() >= params.m:
        raise UndecodableError(f"record with cohort {cohorts.max()}: must be below m = {params.m}")
    bits = np.empty((params.m, params.k), dtype=np.int64)
    for byte in range(params.k // 8):
        histogram = np.bincount(
            cohorts * 256 + table[:, _COHORT_BYTES + byte], minlength=params.m * 256
        )
        bits[:, 8 * byte : 8 * byte + 8] = histogram.reshape(params.m, 256) @ _BITS_OF_BYTE
    return CohortCounts(np.bincount(cohorts, minlength=params.m), bits)
