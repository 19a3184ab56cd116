"""How well anybody could do: the Cramér-Rao bound of the mixture.

No unbiased estimate of the shares has smaller errors than the inverse Fisher information allows.
With up to 16 bits it is computed exactly, by giving every possible report the weight that is
expected of it; with more, the information of a sample of reports takes its place.
"""

import numpy as np
from scipy import linalg

from hubbub.inference import (
    FloatArray,
    PackedReports,
    PositionArray,
    ReportBlock,
    ReportMixture,
    UndecodableError,
)
from hubbub.protocol import RapporParams

MOST_BITS = 16


def expected_reports(
    params: RapporParams, members: PositionArray, shares: FloatArray, total: int
) -> PackedReports:
    """Return every possible report, as often as it is expected.

    members: shape (a, m, h): From `distinct_positions`.
    shares: shape (1 + a,): Of the unknown and the members, with sum 1.
    total: Reports, in cohorts of equal size.
    Raises UndecodableError: If a report has more than 16 bits.
    """
    if params.k > MOST_BITS:
        raise UndecodableError(
            f"k = {params.k}: too many possible reports; expected at most {MOST_BITS} bits"
        )
    width = params.k // 8
    every = np.arange(2**params.k, dtype="<u4")[:, None].view(np.uint8)[:, :width]
    bits = np.tile(every, (params.m, 1))
    starts = np.arange(params.m + 1, dtype=np.int64) * len(every)
    empty = PackedReports(params, starts, bits, np.zeros(len(bits)), total)
    mixture = ReportMixture(empty, members)
    ones = np.bitwise_count(every).sum(axis=1, dtype=np.int64)
    unset = total / params.m * params.p_star**ones * (1 - params.p_star) ** (params.k - ones)
    no_weight = np.zeros(len(every))
    copies = np.concatenate(
        [
            unset * (shares @ mixture.densities(ReportBlock(cohort, every, no_weight)))
            for cohort in range(params.m)
        ]
    )
    return PackedReports(params, starts, bits, copies, total)


def error_bound(mixture: ReportMixture, shares: FloatArray) -> FloatArray:
    """Return the smallest standard errors that unbiased estimates can have.

    mixture: Of `expected_reports`, or of a sample.
    shares: shape (1 + a,): The true ones, with sum 1.
    Returns: Errors about the shares of the collected reports (see docs/understand/likelihood.md).
    """
    variance = np.diag(linalg.inv(mixture.evaluate(shares).information))
    return np.asarray(np.sqrt(variance - shares / mixture.reports.total))
