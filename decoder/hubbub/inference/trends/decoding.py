"""Counts day by day -> shares on every day, and where they changed.

Strings are detected once, in the reports of all days together, so that every day estimates the
same ones; then each day is fitted with just these in the model.

Invariant: a day with too few reports is never estimated, and isn't part of the pooled reports
either.

Categories and numbers are estimated on each day by itself, by closed formulas; days are compared
as those of strings are. A number is reported once, so that its days share no noise. A category may
have permanent responses: clients that come back bring the same error along, and when others take
their place another one. Invariant: unless each client reports only once, all of that error is taken
to be shared by the days before a change, and by those after it, whoever comes back.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, Design, hashed, make_design
from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
from hubbub.inference.categories.shares import estimate_categories, instantaneous_variance
from hubbub.inference.counts import CohortCounts, estimate_bits
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.errors import UndecodableError
from hubbub.inference.numbers.decoding import NumberDecoding, decode_numbers, estimate_numbers
from hubbub.inference.regression.estimates import drawing, without_drawing
from hubbub.inference.regression.model import fit_selected
from hubbub.inference.repeated_reports import ONCE, Estimand, RepeatedReports
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.inference.testing.multiple_testing import Correction, log_cutoff, log_q_values
from hubbub.inference.trends.changes import WEEK, Change, change_log_p, fit_changes
from hubbub.protocol import Metric, RapporParams


def decode_category_days(
    by_day: Mapping[dt.date, CohortCounts],
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    min_reports: int = 1,
    repeats: RepeatedReports = ONCE,
) -> Trends[CategoryDecoding]:
    """Estimate every category on each day, and find where shares changed.

    Parameters
    ----------
    by_day : mapping of date to CohortCounts
        The counts of each day.
    metric : Metric
        The metric, whose type lists the values.
    alpha : float
        Level of the detections, and again of the categories that are said to have changed.
    correction : Correction
        Of both.
    min_reports : int
        Days with fewer are left out.
    repeats : RepeatedReports
        How often clients have reported on all days together; on each they report once.

    Raises
    ------
    MetricError, DecoderError, ValueError
        As `decode_categories`.
    UndecodableError
        As `decode_categories`, and if no day has enough reports.
    """
    enough = days_with_enough(by_day, min_reports)
    total = reduce(add, enough.values())
    pooled = decode_categories(total, metric, alpha=alpha, correction=correction, repeats=repeats)
    of_once = estimate_categories(total, metric)
    variance = np.diagonal(of_once.covariance)
    own_part = np.ones(len(variance))
    if not metric.reports_once:
        own = instantaneous_variance(of_once, total.total, metric)
        own_part = np.minimum(own / variance, 1.0)
    estimates, of_day = {}, RepeatedReports(estimand=repeats.estimand)
    for day, counts in enough.items():
        found = estimate_categories(counts, metric, of_day)
        low, high = found.intervals()
        # The noise of a steady share depends on how many report; a day's own estimate would only
        # bring noise into the weights.
        own = own_part * variance * total.total / counts.total
        estimates[day] = DayEstimates(found.unbiased, found.std_error, low, high, own)
    return compare_days(
        by_day,
        estimates,
        (1.0 - own_part) * variance * len(enough),  # as many clients as an average day has reports
        pooled,
        kind="category",
        followed=pooled.categories,
        alpha=alpha,
        correction=correction,
        min_reports=min_reports,
    )


def decode_number_days(
    by_day: Mapping[dt.date, CohortCounts],
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    min_reports: int = 1,
    repeats: RepeatedReports = ONCE,
) -> Trends[NumberDecoding]:
    """Estimate a number's statistics on each day, and find where they changed.

    Parameters
    ----------
    by_day : mapping of date to CohortCounts
        The counts of each day.
    metric : Metric
        Of type number.
    alpha : float
        Level of the statistics that are said to have changed.
    correction : Correction
        Which error rate `alpha` bounds: false discoveries, or the chance of any false detection.
    min_reports : int
        Days with fewer are left out.
    repeats : RepeatedReports
        How often clients have reported on all days together; on each they report once.

    Raises
    ------
    DecoderError
        As `decode_numbers`.
    UndecodableError
        As `decode_numbers`, and if no day has enough reports.
    """
    enough = days_with_enough(by_day, min_reports)
    total = reduce(add, enough.values())
    pooled = decode_numbers(total, metric, alpha=alpha, correction=correction, repeats=repeats)
    variance = estimate_numbers(total, metric).std_error ** 2
    estimates, of_day = {}, RepeatedReports(estimand=repeats.estimand)
    for day, counts in enough.items():
        found = estimate_numbers(counts, metric, of_day)
        # What a steady mean's noise would be, from all reports: a day's own estimate would only
        # bring noise into the weights.
        own = variance * total.total / counts.total
        estimates[day] = DayEstimates(found.unbiased, found.std_error, found.low, found.high, own)
    return compare_days(
        by_day,
        estimates,
        np.zeros(len(pooled.statistics)),
        pooled,
        kind="statistic",
        followed=pooled.statistics,
        alpha=alpha,
        correction=correction,
        min_reports=min_reports,
    )


Pooled = TypeVar("Pooled")
_LEAST_OWN = 1e-3
"""Least part of a day's variance that is taken for its own noise, whatever rounding says."""


class DayEstimates(NamedTuple):
    """One day's estimates of s series, each a float64 array of shape (s,); nan if unknown."""

    share: FloatArray
    std_error: FloatArray
    low: FloatArray  # 95% intervals
    high: FloatArray
    # Variance of the day's own noise: that of the standard error less what days share.
    own: FloatArray

    @classmethod
    def normal(cls, share: FloatArray, std_error: FloatArray, own: FloatArray) -> DayEstimates:
        """Return estimates with the intervals of normal errors."""
        half = Z_CONFIDENCE * std_error
        return cls(share, std_error, share - half, share + half, own)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesFindings:
    """What changed in each of s series."""

    # Shape (s,); of "the share was the same on all days", or in all weeks from three on; q is
    # corrected for the number of series.
    p_value: FloatArray
    q_value: FloatArray
    # Days on which a share was another; empty if q_value > alpha.
    changes: tuple[tuple[Change, ...], ...]
    weekly_p_value: FloatArray  # shape (s,); of "all weekdays are alike"; 1 without three weeks
    weekly_q_value: FloatArray
    # Shape (7, s); differences of Monday, Tuesday, ... from the mean over weekdays, and their
    # standard errors; nan if weekly_q_value > alpha.
    weekday_effect: FloatArray
    weekday_error: FloatArray
    # Shape (d, s); by the changes and the weekly pattern that were found; nan if none were.
    expected: FloatArray


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
    found : SeriesFindings
        What changed in them.
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
    found: SeriesFindings
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

    Raises `UndecodableError` if there are none.
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

    `by_day`: all days with reports. `estimates`: of the days that were decoded, at least one.
    `shared`, shape (s,): variance of an error that all days before a change share, and all days
    after it. `pooled`: the decoding of all days together. `kind`: what series are named: "string"
    or "category". `followed`: the names of the series, in the columns' order. `alpha`: level of the
    series that are said to have changed. `min_reports`: days with fewer reports aren't decoded:
    they are gaps.
    """
    first, last = min(by_day), max(by_day)
    days = tuple(first + dt.timedelta(days=i) for i in range((last - first).days + 1))
    unknown = DayEstimates(*np.full((len(DayEstimates._fields), len(shared)), np.nan))
    each_day = [estimates.get(day, unknown) for day in days]
    columns = DayEstimates(*(np.stack(each) for each in zip(*each_day, strict=True)))
    found = _tested(columns.share, columns.own, shared, first.weekday(), alpha, correction)
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
        found=found,
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

    `pooled`: of the days with enough reports together, by whatever method; its level and correction
    are kept. `candidates`: a list that holds all strings that `pooled` detected. `min_reports`:
    days with fewer reports aren't decoded: they are gaps. Raises `UndecodableError` if no day has
    enough reports.
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

    Returns an array of shape (4, 1 + n): shares, the unknown mass first, and their variances about
    the population's; then these in two parts: of the day's noise, and of unlisted strings' bits.
    nan where reports don't determine them.
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

    `variance`, shape (s,): about the population's shares. `share` has shape (s,). `n_reports`: of
    the day, each of another client. `pooled`: of all days.
    """
    if pooled.summary.repeats.estimand is Estimand.REPORTS:
        variance = without_drawing(variance, drawing(share, n_reports))
    return np.sqrt(variance)


def _tested(
    share: FloatArray,
    own: FloatArray,
    shared: FloatArray,
    first_weekday: int,
    alpha: float,
    correction: Correction,
) -> SeriesFindings:
    """Test each series, and look for changes at the level that the series' discovery had."""
    n_days, n_series = share.shape
    columns = [(share[:, i], own[:, i], float(shared[i])) for i in range(n_series)]
    log_p = np.array([change_log_p(*each) for each in columns])
    log_q = log_q_values(log_p, correction)
    changed = log_q <= math.log(alpha)
    n_changed = int(np.count_nonzero(changed))
    level = math.exp(log_cutoff(n_changed, n_series, math.log(alpha), correction))
    fits = [
        fit_changes(values, variances, level if is_changed else 0.0, common)
        for (values, variances, common), is_changed in zip(columns, changed, strict=True)
    ]
    weekly_log_p = np.array([fit.weekly_log_p for fit in fits])
    weekly_log_q = log_q_values(weekly_log_p, correction)
    weekly = weekly_log_q <= math.log(alpha)
    effect = np.where(weekly, np.stack([fit.weekday_effect for fit in fits], axis=1), np.nan)
    error = np.where(weekly, np.stack([fit.weekday_error for fit in fits], axis=1), np.nan)
    by_day = np.where(weekly, effect[np.arange(n_days) % WEEK], 0.0)
    level_by_day = np.stack([fit.level for fit in fits], axis=1)
    return SeriesFindings(
        np.exp(log_p),
        np.exp(log_q),
        tuple(fit.changes for fit in fits),
        np.exp(weekly_log_p),
        np.exp(weekly_log_q),
        np.roll(effect, first_weekday, axis=0),
        np.roll(error, first_weekday, axis=0),
        np.where(changed | weekly, level_by_day + by_day, np.nan),
    )
