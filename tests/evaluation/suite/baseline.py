"""What our decoder is compared with: a plain rule, and an oracle.

**Plain** is weighted least squares of the bit rates on all candidates; what is more than two
standard errors above zero counts as detected. No unknown mass, no correction for the number of
candidates. Where candidates are too many for least squares, a screen goes before, as in
google/rappor's decoder, whose Lasso leaves at most 500 strings to its final regression.

The **oracle** is told which candidates are there: its model is least squares on these alone, and
all candidates are then tested in it by the same tests and correction as ours. What it finds beyond
ours is what searching for the model costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from hubbub.inference import (
    BoolArray,
    Correction,
    FloatArray,
    Search,
    bit_positions,
    estimate_bits,
    hashed,
    make_design,
    variance_of_one,
)
from hubbub.protocol import CohortCounts, RapporParams

_STD_ERRORS = 2.0
"""google/rappor's decoder keeps what is above so many."""
_ROWS_USED = 0.8
_AT_ONCE, _SCREENED = 2_000, 500
"""google/rappor's Lasso leaves as many as the second."""
_CHUNK = 8_192
"""Candidates whose design is in memory at once."""
_TINY = 1e-9
"""Of a column: others explain it to rounding."""


@dataclass(frozen=True, slots=True)
class PlainEstimates:
    """Attributes: float64 and bool arrays of shape (n,); the share is 0 where not in the fit."""

    share: FloatArray
    detected: BoolArray


def least_squares_two_se(
    counts: CohortCounts, params: RapporParams, candidates: tuple[str, ...]
) -> PlainEstimates:
    """Estimate by least squares, and detect what lies two standard errors above zero.

    All candidates enter the fit if they are at most 2,000 and at most 0.8 times the rows; otherwise
    the 500 (or 0.8 times the rows, if that is less) with the largest z-scores taken one by one.
    Columns that others explain are left out.
    """
    bits = estimate_bits(counts, params)
    reports = np.repeat(counts.reports.astype(np.float64), params.k)
    rates = bits.rate.ravel()
    weights = reports / variance_of_one(rates, params)
    room = int(_ROWS_USED * np.count_nonzero(reports))
    chosen = np.arange(len(candidates))
    if len(candidates) > min(room, _AT_ONCE):
        # Each candidate's weighted excess over the mean rate, in standard errors.
        excess = weights * (rates - np.average(rates, weights=weights))
        z = np.empty(len(candidates))
        for start in range(0, len(candidates), _CHUNK):
            rows = slice(start, start + _CHUNK)
            design = make_design(bit_positions(candidates[rows], params), params)
            z[rows] = design.sums(excess) / np.sqrt(np.maximum(design.sums(weights), _TINY))
        chosen = np.sort(np.argsort(-z, kind="stable")[: min(room, _SCREENED)])
    strings = tuple(candidates[i] for i in chosen.tolist())
    columns = make_design(bit_positions(strings, params), params).matrix.toarray()
    gram = (columns * weights) @ columns.T
    scale = np.sqrt(np.maximum(np.diag(gram), _TINY))
    _, pivots, rank, _ = linalg.lapack.dpstrf(gram / np.outer(scale, scale), tol=_TINY)
    kept = np.sort(pivots[:rank] - 1)
    covariance = linalg.inv(gram[np.ix_(kept, kept)])
    fitted = covariance @ (columns[kept] @ (weights * rates))
    share = np.zeros(len(candidates))
    detected = np.zeros(len(candidates), dtype=np.bool_)
    share[chosen[kept]] = fitted
    detected[chosen[kept]] = fitted > _STD_ERRORS * np.sqrt(np.diag(covariance))
    return PlainEstimates(share, detected)


def oracle_detections(
    counts: CohortCounts,
    params: RapporParams,
    candidates: tuple[str, ...],
    present: BoolArray,
    alpha: float,
) -> BoolArray:
    """Detect by Benjamini-Hochberg in the model of the strings that are there; shape (n,).

    Where these are too many for least squares, the oracle's model is what our search makes of them
    alone.

    present: shape (n,)
    """
    rows = np.flatnonzero(present)
    if not len(rows):
        return np.zeros(len(candidates), dtype=np.bool_)
    log_alpha = float(np.log(alpha))
    listed = hashed(candidates, params)
    everyone = Search(estimate_bits(counts, params), listed, params, log_alpha, Correction.BH)
    fit = replace(everyone, candidates=listed.take(rows)).run().fit
    return everyone.tested(replace(fit, selected=rows[fit.selected])).detected
