"""Counts day by day -> the shares of the detected strings on every day, and where they changed.

Strings are detected once, in the reports of all days together, so that every day is asked about the
same ones; then each day is fitted with just these in the model.

Invariant: a day with too few reports is never estimated, and isn't part of the pooled reports
either.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.decoder.bits import estimate_bits
from hubbub.decoder.candidates.listing import Candidates, Design, hashed, make_design
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.decoding import Decoding, decode
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.decoder.inference.multiple_testing import Correction, log_q_values
from hubbub.decoder.regression.model import Fit, fit_selected
from hubbub.decoder.trends.changes import Change, change_points, constancy
from hubbub.protocol.params import RapporParams

_LEAST_OWN = 1e-3
"""Least part of a day's variance that is taken for its own noise, whatever rounding says."""


@dataclass(frozen=True, slots=True)
class Trends:
    """Shares day by day; nan on days that weren't decoded.

    Attributes
    ----------
    days : tuple of datetime.date, length d
        All days from the first to the last with reports.
    reports : int64 array, shape (d,)
    decoded : bool array, shape (d,)
        Days with enough reports.
    strings : tuple of str, length n
        The detected ones, largest first.
    share, std_error : float64 array, shape (d, 1 + n)
        Of the population that a day's reports are drawn from; column 0 is the unknown mass.
    low, high : float64 array, shape (d, 1 + n)
        95% intervals, each by itself.
    p_value, q_value : float64 array, shape (1 + n,)
        Of "the share was the same on all days"; q is corrected for the number of series.
    changes : tuple of tuple of Change, length 1 + n
        Days from which on a share was another; empty if q_value > alpha.
    pooled : Decoding
        Of the decoded days together.
    min_reports : int
        Fewest reports of a decoded day.
    """

    days: tuple[dt.date, ...]
    reports: IntArray
    decoded: BoolArray
    strings: tuple[str, ...]
    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    changes: tuple[tuple[Change, ...], ...]
    pooled: Decoding
    min_reports: int


def decode_days(
    by_day: Mapping[dt.date, CohortCounts],
    params: RapporParams,
    candidates: Sequence[str] | Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    min_reports: int = 1,
) -> Trends:
    """Detect strings over all days, estimate them on each, and find where their shares changed.

    Parameters
    ----------
    by_day : mapping of datetime.date to CohortCounts
    params : RapporParams
    candidates : sequence of str, or Candidates
        As for `decode`.
    alpha : float
        Level of the detections, and again of the strings that are said to have changed.
    correction : Correction
        Of both.
    min_reports : int
        Days with fewer are left out.

    Raises
    ------
    CandidateError, ValueError
        As `decode`.
    UndecodableError
        As `decode`, and if no day has enough reports.
    """
    taken = {day: by_day[day] for day in sorted(by_day) if by_day[day].total >= min_reports}
    if not taken:
        raise UndecodableError(_too_few(by_day, min_reports))
    listed = candidates if isinstance(candidates, Candidates) else hashed(candidates, params)
    total = reduce(add, taken.values())
    pooled = decode(total, params, listed, alpha=alpha, correction=correction)
    found = np.flatnonzero(pooled.detected)
    found = found[np.argsort(-pooled.share[found], kind="stable")]
    first, last = min(by_day), max(by_day)
    days = tuple(first + dt.timedelta(days=i) for i in range((last - first).days + 1))
    design = make_design(listed.positions(found), params)
    daily = [_estimated(taken.get(day), design, params) for day in days]
    share = np.array([day.share for day in daily])
    std_error = np.array([day.std_error for day in daily])
    own = np.array([day.own for day in daily])
    shared = np.nan_to_num(_estimated(total, design, params).shared)
    tested = _tested(share, own, shared, alpha, correction)
    return Trends(
        days=days,
        reports=np.array([by_day[day].total if day in by_day else 0 for day in days]),
        decoded=np.array([day in taken for day in days]),
        strings=tuple(listed.strings[int(index)] for index in found),
        share=share,
        std_error=std_error,
        low=share - Z_CONFIDENCE * std_error,
        high=share + Z_CONFIDENCE * std_error,
        p_value=tested.p_value,
        q_value=tested.q_value,
        changes=tested.changes,
        pooled=pooled,
        min_reports=min_reports,
    )


@dataclass(frozen=True, slots=True)
class _Day:
    """One day's estimates, the unknown mass first; nan where the day can't tell.

    Attributes
    ----------
    share, std_error : float64 array, shape (1 + n,)
    own, shared : float64 array, shape (1 + n,)
        The variance in two parts: of the day's noise, and of unlisted strings' bits.
    """

    share: FloatArray
    std_error: FloatArray
    own: FloatArray
    shared: FloatArray


@dataclass(frozen=True, slots=True)
class _Tests:
    p_value: FloatArray
    q_value: FloatArray
    changes: tuple[tuple[Change, ...], ...]


def _too_few(by_day: Mapping[dt.date, CohortCounts], min_reports: int) -> str:
    most = max(by_day, key=lambda day: by_day[day].total, default=None)
    largest = f"{by_day[most].total:,} on {most}" if most else "none at all"
    return (
        f"no day has {min_reports:,} reports, which each needs for a release (most: {largest}); "
        "leave out --by day, or change --min-reports (HUBBUB_MIN_REPORTS)"
    )


def _estimated(counts: CohortCounts | None, design: Design, params: RapporParams) -> _Day:
    """Fit one day with all of the design's strings in the model."""
    n_strings = design.matrix.shape[0]
    share, variance, shared = np.full((3, 1 + n_strings), np.nan)
    if counts is None or not n_strings:
        return _Day(share, variance, variance, shared)
    fit = fit_selected(estimate_bits(counts, params), design, np.arange(n_strings), params)
    inside = 1 + fit.selected
    excess = _excess_part(fit)
    share[inside], variance[inside] = fit.coefficients[1:], np.diag(fit.covariance)[1:]
    shared[inside] = np.diag(excess)[1:]
    share[0] = 1.0 - fit.coefficients[1:].sum()
    variance[0] = fit.covariance[1:, 1:].sum()
    shared[0] = excess[1:, 1:].sum()
    own = np.maximum(variance - shared, _LEAST_OWN * variance)
    return _Day(share, np.sqrt(variance), own, shared)


def _excess_part(fit: Fit) -> FloatArray:
    """Return the part of the covariance that comes from unlisted strings' bits.

    Day after day these are the same bits, so it is an error that days share.
    """
    weighted = SparseMatrix(fit.basis.multiply(fit.weights))
    squared = (weighted @ weighted.T).toarray()
    return np.asarray(fit.excess_variance * fit.covariance @ squared @ fit.covariance)


def _tested(
    share: FloatArray,
    own: FloatArray,
    shared: FloatArray,
    alpha: float,
    correction: Correction,
) -> _Tests:
    """Test each series, and cut those that changed at the level that their discovery had."""
    series = range(share.shape[1])
    p_value = np.ones(len(series))
    for index in series:
        most = constancy(share[:, index], own[:, index], float(shared[index]))
        p_value[index] = most.p_value if most else 1.0
    q_value = np.exp(log_q_values(np.log(np.maximum(p_value, 1e-300)), correction))
    changed = q_value <= alpha
    discoveries = np.count_nonzero(changed) if correction is Correction.BH else 1
    level = alpha * discoveries / len(series)
    changes = tuple(
        change_points(share[:, index], own[:, index], level, float(shared[index]))
        if changed[index]
        else ()
        for index in series
    )
    return _Tests(p_value, q_value, changes)
