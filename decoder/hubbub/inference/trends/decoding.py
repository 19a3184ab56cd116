"""Counts day by day -> shares on every day, and where they changed.

Strings are detected once, in the reports of all days together, so that every day estimates the
same ones; then each day is fitted with just these in the model.

Estimates of days are independent normals with known, unequal variances. A change is looked for by
the largest standardised difference between the means before and after a day. Its distribution under
"nothing changed" is computed, not simulated: the differences form a Markov chain, so that the
chance that none of them is large is a product of one-dimensional integrals.

Invariant: a day with too few reports is never estimated, and isn't part of the pooled reports
either.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, Design, hashed, make_design
from hubbub.inference.counts import CohortCounts, estimate_bits
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.errors import UndecodableError
from hubbub.inference.regression.estimates import drawing, without_drawing
from hubbub.inference.regression.model import fit_selected
from hubbub.inference.repeated_reports import Estimand
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.inference.testing.multiple_testing import Correction, log_cutoff, log_q_values
from hubbub.protocol.params import RapporParams

Pooled = TypeVar("Pooled")
_FAR = 8.0
"""Beyond it the union bound is taken: it is below 1e-14 a day there."""
# Days so close that the bridge hardly moves between them are taken as one; the nodes are Gauss's,
# as many as resolve a step. tests/unit/decoder/test_trends.py holds the chance against simulation
# and the multivariate normal.
_FINEST_STEP = 0.1
_NODES_A_STEP = 4.8
_LEAST_OWN = 1e-3
"""Least part of a day's variance that is taken for its own noise, whatever rounding says."""


@dataclass(frozen=True, slots=True)
class Change:
    """A day from which on a share is another than before.

    Attributes
    ----------
    day : int
        Index of the first day after the change.
    p_value : float
        Of "nothing changed" in the stretch of days that was cut here.
    before, after : float
        Inverse-variance weighted means of the stretch's two parts.
    std_error : float
        Of their difference.
    """

    day: int
    p_value: float
    before: float
    after: float
    std_error: float


def constancy(shares: FloatArray, variances: FloatArray, common: float = 0.0) -> Change | None:
    """Find the most conspicuous day of change, and how often chance alone shows as much.

    Parameters
    ----------
    shares : float64 array, shape (d,)
        One a day; nan where there is none.
    variances : float64 array, shape (d,)
        Of the noise, independent from day to day.
    common : float
        Variance of an error that all days before a change share, and all days after it; 0 if every
        day has the same one.

    Returns
    -------
    Change or None
        None if there are fewer than two days. The change is significant only if its p-value is
        small.

    Notes
    -----
    With W_i the sum of 1/variance over the first i of n days and W all of it, the mean of the first
    i less the mean of the others has variance 1/W_i + 1/(W - W_i). The standardised differences Z_i
    are a Gaussian Markov chain with correlations sqrt(t_i (1 - t_j) / (t_j (1 - t_i))),
    t_i = W_i / W, i < j: a Brownian bridge divided by its standard deviation, at the times t_i.
    The statistic is max |Z_i|; `exceedance` gives its distribution. With a common error the
    differences are divided by more, so that the same distribution is an upper bound.
    """
    days = np.flatnonzero(np.isfinite(shares) & (variances > 0))
    if len(days) < 2:
        return None
    values, weights = shares[days], 1.0 / variances[days]
    before, after = np.cumsum(weights)[:-1], np.cumsum(weights[::-1])[::-1][1:]
    mean_before = np.cumsum(weights * values)[:-1] / before
    mean_after = np.cumsum((weights * values)[::-1])[::-1][1:] / after
    std_error = np.sqrt(1.0 / before + 1.0 / after + 2.0 * common)
    sizes = np.abs(mean_after - mean_before) / std_error
    cut = int(np.argmax(sizes))
    return Change(
        day=int(days[cut + 1]),
        p_value=exceedance(float(sizes[cut]), before / (before + after)),
        before=float(mean_before[cut]),
        after=float(mean_after[cut]),
        std_error=float(std_error[cut]),
    )


def change_points(
    shares: FloatArray, variances: FloatArray, level: float, common: float = 0.0
) -> tuple[Change, ...]:
    """Cut the days where shares changed, then each part again (binary segmentation).

    Parameters
    ----------
    shares, variances
        As for `constancy`.
    level : float
        For the whole range. A part of n of all d days is tested at (n - 1)/(d - 1) of that level,
        so that the levels of parts that don't overlap add up to no more than `level`.
    common
        As for `constancy`.

    Returns
    -------
    tuple of Change
        By day.

    Examples
    --------
    Shares with a standard error of one percentage point, and a day without any:

    >>> shares = np.array([0.20, 0.21, 0.20, np.nan, 0.30, 0.31, 0.30])
    >>> for change in change_points(shares, np.full(7, 0.01**2), level=0.05):
    ...     print(change.day, round(change.before, 3), round(change.after, 3))
    4 0.203 0.303
    """
    n_days = int(np.count_nonzero(np.isfinite(shares) & (variances > 0)))
    found: list[Change] = []
    waiting = [(0, len(shares))]
    while waiting:
        start, stop = waiting.pop()
        part = slice(start, stop)
        change = constancy(shares[part], variances[part], common)
        if change is None:
            continue
        inside = int(np.count_nonzero(np.isfinite(shares[part]) & (variances[part] > 0)))
        if change.p_value > level * (inside - 1) / (n_days - 1):
            continue
        day = start + change.day
        found.append(Change(day, change.p_value, change.before, change.after, change.std_error))
        waiting += [(start, day), (day, stop)]
    return tuple(sorted(found, key=lambda each: each.day))


def exceedance(size: float, times: FloatArray) -> float:
    """Return P(max_i |Z_i| > size) for a standardised Brownian bridge at some times.

    Parameters
    ----------
    size : float
        The size that is exceeded.
    times : float64 array, shape (n,)
        In (0, 1), ascending.

    Returns
    -------
    float
        Exact to numerical integration where times are not too close together; an upper bound where
        they are (correlation above 0.995) and above a size of 8, where it is the union bound.

    Notes
    -----
    First exits are added up, P(|Z_1| > b) + sum_i P(|Z_i| > b, none before it), so that small
    chances keep their digits. The density of "none so far" is kept at Gauss-Legendre nodes.
    """
    once = float(special.erfc(size / math.sqrt(2.0)))
    if size >= _FAR or len(times) == 1:
        return min(1.0, once * len(times))
    kept, skipped = [0], []  # times of the chain, and those too close after one of them, with it
    for index in range(1, len(times)):
        if _step(times[kept[-1]], times[index])[1] >= _FINEST_STEP:
            kept.append(index)
        else:
            skipped.append((kept[-1], index))
    steps = [_step(times[i], times[j]) for i, j in pairwise(kept)]
    finest = min([deviation for _, deviation in steps], default=1.0)
    nodes, weights = np.polynomial.legendre.leggauss(16 + math.ceil(_NODES_A_STEP * size / finest))
    nodes, weights = size * nodes, size * weights
    total = once
    alive = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    for slope, deviation in steps:
        total += float(weights @ (alive * _leaves(size, slope * nodes, deviation)))
        kernel = np.exp(-(((nodes[:, None] - slope * nodes) / deviation) ** 2) / 2)
        alive = kernel @ (weights * alive) / (deviation * math.sqrt(2 * math.pi))
    for i, j in skipped:
        total += _leaves_once(size, *_step(times[i], times[j]))
    return min(1.0, total)


def _step(earlier: float, later: float) -> tuple[float, float]:
    """Return the correlation of two times, and the standard deviation of one given the other."""
    squared = earlier * (1.0 - later) / (later * (1.0 - earlier))
    return math.sqrt(squared), math.sqrt(max(1.0 - squared, 1e-30))


def _leaves(size: float, mean: FloatArray, deviation: float) -> FloatArray:
    """Return P(|X| > size) of normals."""
    scale = deviation * math.sqrt(2.0)
    above = special.erfc((size - mean) / scale) + special.erfc((size + mean) / scale)
    return np.asarray(0.5 * above)


def _leaves_once(size: float, slope: float, deviation: float) -> float:
    """Return P(|Z_j| > size, |Z_i| <= size); only values near the boundary count."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    reach = min(10.0 * deviation, 2.0 * size)
    start = size - reach
    places = start + reach * (nodes + 1.0) / 2.0
    density = np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    inside = float(reach / 2.0 * weights @ (density * _leaves(size, slope * places, deviation)))
    return inside if start <= -size else 2.0 * inside


class DayEstimates(NamedTuple):
    """One day's estimates of s series, each a float64 array of shape (s,); nan if unknown.

    Attributes
    ----------
    low, high
        95% intervals.
    own
        Variance of the day's own noise: that of the standard error less what days share.
    """

    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    own: FloatArray

    @classmethod
    def normal(cls, share: FloatArray, std_error: FloatArray, own: FloatArray) -> DayEstimates:
        """Return estimates with the intervals of normal errors."""
        half = Z_CONFIDENCE * std_error
        return cls(share, std_error, share - half, share + half, own)


@dataclass(frozen=True, slots=True)
class Trends(Generic[Pooled]):
    """Shares day by day; nan on days that weren't decoded.

    Attributes
    ----------
    days : tuple of datetime.date, length d
        All days from the first to the last with reports.
    reports : int64 array, shape (d,)
    decoded : bool array, shape (d,)
        Days with enough reports.
    kind : str
        What is followed: "string" or "category".
    followed : tuple of str, length n
        The detected strings, largest first; or all categories, in the registry's order.
    has_unknown : bool
        Whether series 0 is the unknown mass, before those of what is followed.
    share, std_error : float64 array, shape (d, s)
        Of the population that a day's reports are drawn from, or of the day's reports; whether a
        share changed is asked of the population in any case.
    low, high : float64 array, shape (d, s)
        95% intervals, each by itself.
    p_value, q_value : float64 array, shape (s,)
        Of "the share was the same on all days"; q is corrected for the number of series.
    changes : tuple of tuple of Change, length s
        Days from which on a share was another; empty if q_value > alpha.
    pooled : Decoding or CategoryDecoding
        Of the decoded days together.
    min_reports : int
        Fewest reports of a decoded day.
    """

    days: tuple[dt.date, ...]
    reports: IntArray
    decoded: BoolArray
    kind: str
    followed: tuple[str, ...]
    has_unknown: bool
    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    changes: tuple[tuple[Change, ...], ...]
    pooled: Pooled
    min_reports: int

    def name(self, series: int) -> str | None:
        """Return what a series is of; None: the unknown mass."""
        place = series - self.has_unknown
        return self.followed[place] if place >= 0 else None


def days_with_enough(
    by_day: Mapping[dt.date, CohortCounts], min_reports: int
) -> dict[dt.date, CohortCounts]:
    """Return the days that may be decoded, in their order.

    Raises
    ------
    UndecodableError
        If there are none.
    """
    enough = {day: by_day[day] for day in sorted(by_day) if by_day[day].total >= min_reports}
    if not enough:
        most = max(by_day, key=lambda day: by_day[day].total, default=None)
        largest = f"{by_day[most].total:,} on {most}" if most else "none at all"
        raise UndecodableError(
            f"no day has {min_reports:,} reports, which each needs to be decoded "
            f"(most: {largest}); leave out --by day, or change --min-reports (HUBBUB_MIN_REPORTS)"
        )
    return enough


def compare_days(
    by_day: Mapping[dt.date, CohortCounts],
    estimates: Mapping[dt.date, DayEstimates],
    shared: FloatArray,
    pooled: Pooled,
    *,
    kind: str,
    followed: tuple[str, ...],
    alpha: float,
    correction: Correction,
    min_reports: int,
) -> Trends[Pooled]:
    """Put days side by side, and find where shares changed.

    Parameters
    ----------
    by_day : mapping
        All days with reports.
    estimates : mapping
        Of the days that were decoded, at least one.
    shared : float64 array, shape (s,)
        Variance of an error that all days before a change share, and all days after it.
    pooled : Decoding or CategoryDecoding
        The decoding of all days together.
    kind : str
        What series are named: "string" or "category".
    followed : tuple of str
        The names of the series, in the columns' order.
    alpha : float
        Level of the series that are said to have changed.
    correction : Correction
        Which error rate `alpha` bounds: false discoveries, or the chance of any false detection.
    min_reports : int
        Days with fewer reports aren't decoded: they are gaps.
    """
    first, last = min(by_day), max(by_day)
    days = tuple(first + dt.timedelta(days=i) for i in range((last - first).days + 1))
    unknown = DayEstimates(*np.full((len(DayEstimates._fields), len(shared)), np.nan))
    each_day = [estimates.get(day, unknown) for day in days]
    columns = DayEstimates(*(np.stack(each) for each in zip(*each_day, strict=True)))
    p_value, q_value, changes = _tested(columns.share, columns.own, shared, alpha, correction)
    return Trends(
        days=days,
        reports=np.array([by_day[day].total if day in by_day else 0 for day in days]),
        decoded=np.array([day in estimates for day in days]),
        kind=kind,
        followed=followed,
        has_unknown=len(shared) > len(followed),
        share=columns.share,
        std_error=columns.std_error,
        low=columns.low,
        high=columns.high,
        p_value=p_value,
        q_value=q_value,
        changes=changes,
        pooled=pooled,
        min_reports=min_reports,
    )


def decode_days(
    by_day: Mapping[dt.date, CohortCounts],
    params: RapporParams,
    candidates: Sequence[str] | Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    min_reports: int = 1,
) -> Trends[Decoding]:
    """Detect strings over all days, estimate them on each, and find where their shares changed.

    Parameters
    ----------
    by_day : mapping of date to CohortCounts
        The counts of each day.
    params : RapporParams
        The metric's k, h, m, f, p and q.
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
    listed = candidates if isinstance(candidates, Candidates) else hashed(candidates, params)
    total = reduce(add, days_with_enough(by_day, min_reports).values())
    pooled = decode(total, params, listed, alpha=alpha, correction=correction)
    return follow(by_day, pooled, listed, min_reports=min_reports)


def follow(
    by_day: Mapping[dt.date, CohortCounts],
    pooled: Decoding,
    candidates: Candidates,
    *,
    min_reports: int = 1,
) -> Trends[Decoding]:
    """Estimate the strings that were detected over all days on each day, from counts.

    Parameters
    ----------
    by_day : mapping of date to CohortCounts
        The counts of each day.
    pooled : Decoding
        Of the days with enough reports together, by whatever method; its level and correction are
        kept.
    candidates : Candidates
        A list that holds all strings that `pooled` detected.
    min_reports : int
        Days with fewer reports aren't decoded: they are gaps.

    Raises
    ------
    UndecodableError
        If no day has enough reports.
    """
    enough, params = days_with_enough(by_day, min_reports), candidates.params
    found = pooled.largest_detected()
    design = make_design(candidates.positions(found), params)
    estimates = {}
    for day, counts in enough.items():
        share, variance, own, _ = _estimated(counts, design, params)
        std_error = day_errors(variance, share, counts.total, pooled)
        estimates[day] = DayEstimates.normal(share, std_error, own)
    return compare_days(
        by_day,
        estimates,
        np.nan_to_num(_estimated(reduce(add, enough.values()), design, params)[3]),
        pooled,
        kind="string",
        followed=tuple(candidates.strings[int(index)] for index in found),
        alpha=pooled.summary.alpha,
        correction=pooled.summary.correction,
        min_reports=min_reports,
    )


def _estimated(counts: CohortCounts, design: Design, params: RapporParams) -> FloatArray:
    """Fit one day with all of the design's strings in the model.

    Returns
    -------
    float64 array, shape (4, 1 + n)
        Shares, the unknown mass first, and their variances about the population's; then these in
        two parts: of the day's noise, and of unlisted strings' bits. nan where reports don't
        determine them.
    """
    n_strings = design.matrix.shape[0]
    share, variance, shared = np.full((3, 1 + n_strings), np.nan)
    if not n_strings:
        return np.full((4, 1 + n_strings), np.nan)
    fit = fit_selected(estimate_bits(counts, params), design, np.arange(n_strings), params)
    inside = 1 + fit.selected
    # The part of the covariance that comes from unlisted strings' bits: day after day these are the
    # same bits, so it is an error that days share.
    weighted = SparseMatrix(fit.basis.multiply(fit.weights))
    squared = (weighted @ weighted.T).toarray()
    excess = fit.excess_variance * fit.covariance @ squared @ fit.covariance
    share[inside], variance[inside] = fit.coefficients[1:], np.diag(fit.covariance)[1:]
    shared[inside] = np.diag(excess)[1:]
    share[0] = 1.0 - fit.coefficients[1:].sum()
    variance[0] = fit.covariance[1:, 1:].sum()
    shared[0] = excess[1:, 1:].sum()
    own = np.maximum(variance - shared, _LEAST_OWN * variance)
    return np.stack([share, variance, own, shared])


def day_errors(
    variance: FloatArray, share: FloatArray, n_reports: int, pooled: Decoding
) -> FloatArray:
    """Return the standard errors of a day's shares about what all days' are about; shape (s,).

    Parameters
    ----------
    variance : float64 array, shape (s,)
        About the population's shares.
    share : float64 array, shape (s,)
    n_reports : int
        Of the day, each of another client.
    pooled : Decoding
        Of all days.
    """
    if pooled.summary.repeats.estimand is Estimand.REPORTS:
        variance = without_drawing(variance, drawing(share, n_reports))
    return np.sqrt(variance)


def _tested(
    share: FloatArray, own: FloatArray, shared: FloatArray, alpha: float, correction: Correction
) -> tuple[FloatArray, FloatArray, tuple[tuple[Change, ...], ...]]:
    """Test each series, and cut those that changed at the level that their discovery had.

    Returns p-values, q-values and changes.
    """
    series = range(share.shape[1])
    p_value = np.ones(len(series))
    for index in series:
        most = constancy(share[:, index], own[:, index], float(shared[index]))
        p_value[index] = most.p_value if most else 1.0
    log_p = np.log(np.maximum(p_value, 1e-300))
    q_value = np.exp(log_q_values(log_p, correction))
    changed = q_value <= alpha
    n_changed, log_alpha = int(np.count_nonzero(changed)), math.log(alpha)
    level = math.exp(log_cutoff(n_changed, len(log_p), log_alpha, correction))
    changes = tuple(
        change_points(share[:, index], own[:, index], level, float(shared[index]))
        if changed[index]
        else ()
        for index in series
    )
    return p_value, q_value, changes
