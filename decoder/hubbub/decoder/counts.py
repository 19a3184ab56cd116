"""Reports -> how often each bit was set in each cohort -> unbiased bit frequencies.

Counting is a pure function from a chunk of records to `CohortCounts`, and counts add, so any engine
can count chunks anywhere and sum. Bits aren't unpacked: with the records in order of their cohorts,
eight bits of a 64-bit word at a time, one of each byte, are added up in the word's eight bytes.
Invariant: a byte holds the sum of 255 records and no more.

Each reported bit is a coin with bias q* if the true bit is set and p* if not, so the observed rate
is a straight line in the true rate; `estimate_bits` inverts that line and carries its noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.errors import UndecodableError
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import COHORT_BYTES, Records, column, record_width, table

_BLOCK = 2**17
"""Records that are put in order at once: few enough for the processor's cache."""

_MOST = 255
_LOWEST_BITS = np.uint64(0x0101_0101_0101_0101)


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

    Raises
    ------
    UndecodableError
        If the chunk isn't whole records of these parameters.
    """
    check_whole(records, params)
    counts = empty_counts(params)
    size = _BLOCK * record_width(params.k)
    for start in range(0, len(records), size):
        block = records if len(records) <= size else records[start : start + size]
        _add_block(Records(record_width(params.k), block), counts)
    return counts


def check_whole(records: bytes | memoryview, params: RapporParams) -> None:
    """Raise UndecodableError if a chunk doesn't end with the end of a record."""
    width = record_width(params.k)
    if len(records) % width:
        raise UndecodableError(
            f"records of {len(records)} bytes: must be a multiple of {width} for k = {params.k}"
        )


def _add_block(records: Records, counts: CohortCounts) -> None:
    """Add records, in order of their cohorts and cut into runs of at most 255 of one cohort."""
    cohorts = np.ascontiguousarray(column(records, 0, "<u2"))
    m, k = counts.bits.shape
    if cohorts.max() >= m:
        raise UndecodableError(f"record with cohort {cohorts.max()}: must be below m = {m}")
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
        ordered = np.take(_word(records, byte), order, mode="clip")  # "clip" spares numpy a look
        of_word = sums[:, byte : byte + 8]
        for bit in range(8):
            lanes = ordered >> np.uint64(bit)
            lanes &= _LOWEST_BITS
            of_run = np.add.reduceat(lanes, starts).astype("<u8").view(np.uint8).reshape(-1, 8)
            of_bytes = of_run[:, : of_word.shape[1]]
            np.add.reduceat(of_bytes, first, axis=0, dtype=np.int64, out=of_word[:, :, bit])
    counts.reports[:] += of_cohort
    counts.bits[occurring] += sums.reshape(len(occurring), k)


def _word(records: Records, byte: int) -> NDArray[np.uint64]:
    """Return the eight bytes of bits from `byte` on of each record, zeros beyond its end."""
    offset = COHORT_BYTES + byte
    if offset + 8 <= records.width:
        return column(records, offset, "<u8").astype(np.uint64)
    padded = np.zeros((records.reports, 8), dtype=np.uint8)
    padded[:, : records.width - offset] = table(records)[:, offset:]
    return padded.view("<u8").ravel().astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class BitEstimates:
    """Estimated share of clients whose true Bloom filter has each bit set.

    Attributes
    ----------
    rate : float64 array, shape (m, k)
        Unbiased; may fall outside [0, 1]. Zero in cohorts without reports.
    reports : float64 array, shape (m, 1)
        N_c, the number of reports behind each row.
    collected : float
        Of how many reports shares are asked for: these, or all of which these are a random part.
    """

    rate: FloatArray
    reports: FloatArray
    collected: float

    @property
    def informative(self) -> int:
        """Number of (cohort, bit) pairs that any report contains."""
        return int(np.count_nonzero(self.reports)) * int(self.rate.shape[1])


def estimate_bits(
    counts: CohortCounts, params: RapporParams, collected: int | None = None
) -> BitEstimates:
    """Invert the two randomized responses (Erlingsson et al. 2014, section 4).

    Parameters
    ----------
    counts : CohortCounts
    params : RapporParams
    collected : int, optional
        Of how many reports these are a random part, if they aren't all.

    Raises
    ------
    UndecodableError
        If there are no reports, or the counts have another shape than the parameters say.
    """
    if counts.bits.shape != (params.m, params.k) or counts.reports.shape != (params.m,):
        raise UndecodableError(
            f"counts of shape {counts.reports.shape} and {counts.bits.shape}: must be "
            f"{(params.m,)} and {(params.m, params.k)}"
        )
    if counts.total == 0:
        raise UndecodableError("no reports: nothing to decode")
    n_reports = counts.reports[:, None].astype(np.float64)
    slope = params.q_star - params.p_star
    observed = counts.bits / np.maximum(n_reports, 1)
    rate = np.where(n_reports > 0, (observed - params.p_star) / slope, 0.0)
    return BitEstimates(rate, n_reports, float(collected or counts.total))


def variance_of_one(rate: FloatArray, params: RapporParams) -> FloatArray:
    """Return r(1 - r) / (q* - p*)^2: the variance of a rate that one report would give.

    Parameters
    ----------
    rate : float64 array
        True rates; clipped into [0, 1]. r is the reported rate p* + (q* - p*) rate.
    """
    slope = params.q_star - params.p_star
    reported = params.p_star + slope * np.clip(rate, 0.0, 1.0)
    return np.asarray(reported * (1 - reported) / slope**2)
