"""Records of reports -> counts -> unbiased bit frequencies; or whole reports, sorted by cohort.

Each reported bit is a coin with bias q* if the true bit is set and p* if not, so the observed rate
is a straight line in the true rate; `estimate_bits` inverts that line and carries its noise. How
records are counted is the protocol's (`hubbub.protocol.records`), as stores keep counts, too.

The likelihood needs whole reports again and again, cohort by cohort, so `pack` keeps them with bits
still packed. Equal reports are one row with their number: of 8 bits a million reports are a few
thousand rows. Invariant: rows and blocks depend on the reports alone, not on the order in which a
store yields them, so that sums over them come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.inference.errors import UndecodableError
from hubbub.protocol import (
    COHORT_BYTES,
    CohortCounts,
    ParameterError,
    RapporParams,
    RecordsError,
    record_width,
    records as _protocol,
)


def count_records(records: bytes, params: RapporParams) -> CohortCounts:
    """Count a chunk of stored records.

    Parameters
    ----------
    records : bytes
        Concatenated records: the cohort as two little-endian bytes, then k/8 bytes of bits.
    params : RapporParams
        The metric's k, h, m, f, p and q.

    Raises
    ------
    UndecodableError
        If the chunk isn't whole records of these parameters.
    """
    try:
        return _protocol.count_records(records, params)
    except RecordsError as error:
        raise UndecodableError(str(error)) from error


def check_whole(records: bytes | memoryview, params: RapporParams) -> None:
    """Raise UndecodableError if a chunk doesn't end with the end of a record."""
    try:
        _protocol.check_whole(records, params)
    except RecordsError as error:
        raise UndecodableError(str(error)) from error


@dataclass(frozen=True, slots=True)
class BitEstimates:
    """Estimated share of clients whose true Bloom filter has each bit set."""

    # Shape (m, k); unbiased; may fall outside [0, 1]. Zero in cohorts without reports.
    rate: FloatArray
    reports: FloatArray  # shape (m, 1); n_c, the number of reports behind each row
    # The number of reports whose shares are asked for: these, or all that they are a sample of.
    collected: float
    # Shape (m, k), or 0.0; what is known of the rates, and taken out of `rate`: it adds to
    # variances alone.
    known: FloatArray | float = 0.0

    @property
    def informative(self) -> int:
        """Number of (cohort, bit) pairs that any report contains."""
        return int(np.count_nonzero(self.reports)) * int(self.rate.shape[1])

    def beyond(self, known: FloatArray | float) -> BitEstimates:
        """Return what the rates have beyond those that are known, shape (m, k)."""
        rate = np.where(self.reports > 0, self.rate - known, self.rate)
        return replace(self, rate=rate, known=self.known + known)


def estimate_bits(
    counts: CohortCounts, params: RapporParams, collected: int | None = None
) -> BitEstimates:
    """Invert the two randomized responses (Erlingsson et al. 2014, section 4).

    `params`: with which the reports were made. `collected`: of how many reports these are a random
    part, if they aren't all. Raises `UndecodableError` if there are no reports, or the counts have
    another shape than the parameters say.

    Examples
    --------
    With p = 1/4 and q = 3/4 a bit that half of a thousand reports have is set by half of the
    clients:

    >>> params = RapporParams(k=8, h=1, m=1, f=0.0, p=0.25, q=0.75)
    >>> bits = np.array([[250, 300, 400, 500, 600, 700, 750, 260]])
    >>> estimate_bits(CohortCounts(np.array([1000]), bits), params).rate.round(2).tolist()
    [[0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 0.02]]
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

    `rate`: true rates; clipped into [0, 1]. r is the reported rate p* + (q* - p*) rate.
    """
    slope = params.q_star - params.p_star
    reported = params.p_star + slope * np.clip(rate, 0.0, 1.0)
    return np.asarray(reported * (1 - reported) / slope**2)


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


# The protocol's most bits and cohorts, and twice its hashes, which only counts can have.
MAX_BITS = 4096
MAX_HASHES = 16
MAX_COHORTS = 2**16


class DecodingParams(RapporParams):
    """`RapporParams` for any k, h and m whose counts the decoder can take.

    Clients and stores of hubbub need k to fill bytes, and h and m within what the protocol allows;
    bit counts need neither. Single reports need `RapporParams`.

    `k`: bits, 2 to 4096. `h`: hash functions, 1 to 16. `m`: cohorts, 1 to 65,536. `f` and `p` and
    `q` and `f0` and `f1`: as of `RapporParams`. Raises `ParameterError` if a value is out of range,
    if p = q, or if some report would reveal a true bit for certain (such a bit has no noise by
    which it could be weighed).
    """

    __slots__ = ()

    def __new__(
        cls,
        k: int,
        h: int,
        m: int,
        f: float = 0.0,
        p: float = 0.0,
        q: float = 1.0,
        f0: float | None = None,
        f1: float | None = None,
    ) -> Self:
        """Check and keep the numbers."""
        for name, value, low, high in (
            ("k", k, 2, MAX_BITS),
            ("h", h, 1, MAX_HASHES),
            ("m", m, 1, MAX_COHORTS),
        ):
            if not low <= value <= high:
                raise ParameterError(
                    f"{name} = {value}: must be an integer between {low} and {high}"
                )
        checked = RapporParams(8, 1, 1, f, p, q, f0, f1)
        return tuple.__new__(cls, (k, h, m, *checked[3:]))
