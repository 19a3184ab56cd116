"""Counts day by day -> shares on every day, and where they changed.

Strings are detected once, in the reports of all days together, so that every day estimates the
same ones; then each day is fitted with just these in the model. Categories and numbers are
estimated on each day by itself, by closed formulas; days are compared as those of strings are. A
number is reported once, so that its days share no noise. A category may have permanent responses:
clients that come back bring the same error along, and when others take their place another one.
Invariants: a day with too few reports is never estimated, and isn't part of the pooled reports
either; unless each client reports only once, all of that error is taken to be shared by the days
before a change, and by those after it, whoever comes back.

From whole reports, the most likely shares pi of all days together are the centre. A day's shares
are one linear step from there, with the information of all days:

    share_d = pi + I^-1 (g_d - 1),    g_d = mean of L_j / L_pi over the day's reports,
    I = mean of L_j L_k / L_pi^2 over those of all days,

L_j being the likelihood of a report if its client has string j (or, j = 0, any string by chance).
That is unbiased however far a day's shares are from pi, for the mean of g_d is linear in them, and
as precise as the likelihood where they are near. One pass over a day's reports is enough.
Invariant: weights come from all days together, so that they don't go with a day's noise.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates, Design, distinct_positions, hashed, make_design
from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
from hubbub.inference.categories.shares import estimate_categories, instantaneous_variance
from hubbub.inference.counts import PackedReports, estimate_bits
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.mixture import ReportMixture
from hubbub.inference.numbers import NumberDecoding, decode_numbers, estimate_numbers
from hubbub.inference.regression.estimates import drawing, without_drawing
from hubbub.inference.regression.model import fit_selected
from hubbub.inference.repeated_reports import ONCE, Estimand, RepeatedReports
from hubbub.inference.testing.multiple_testing import (
    Correction,
    log_cutoff,
    log_q_values,
    share_interval,
)
from hubbub.inference.trends.changes import WEEK, Change, change_log_p, fit_changes
from hubbub.protocol import CohortCounts, Metric, RapporParams

Pooled = TypeVar("Pooled")
_LEAST_OWN = 1e-3
"""Least part of a day's variance that is taken for its own noise, whatever the rounding."""


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
        """Return estimates with normal errors, and the intervals of shares."""
        return cls(share, std_error, *share_interval(share, std_error), own)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesFindings:
    """The changes found in each of s series."""

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
    """Shares day by day; nan on days that weren't decoded."""

    days: tuple[dt.date, ...]  # d of them, from the first to the last with reports
    reports: IntArray  # shape (d,)
    decoded: BoolArray  # shape (d,); days with enough reports
    kind: str  # what is followed: "string", "category" or "statistic"
    # The detected strings, largest first; or all categories, in the registry's order.
    followed: tuple[str, ...]
    has_unknown: bool  # whether series 0 is the unknown mass, before those of what is followed
    # Shape (d, s); of the population that a day's reports are drawn from, or of the day's reports;
    # whether a share changed is asked of the population in any case.
    share: FloatArray
    std_error: FloatArray
    low: FloatArray  # shape (d, s); 95% intervals, each by itself
    high: FloatArray
    found: SeriesFindings  # what changed in them
    pooled: Pooled  # the decoding of the decoded days together
    min_reports: int  # fewest reports of a decoded day

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
    series that are reported as changed. `min_reports`: days with fewer reports aren't decoded:
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

    `alpha`: level of the detections, and again of the categories that are reported as changed.
    `repeats`: on all days together; on each of them clients report once. Raises as
    `decode_categories`, and `UndecodableError` if no day has enough reports.
    """
    total = reduce(add, days_with_enough(by_day, min_reports).values())
    pooled = decode_categories(total, metric, alpha=alpha, correction=correction, repeats=repeats)
    of_once = estimate_categories(total, metric)
    variance = np.diagonal(of_once.covariance)
    own_part = np.ones(len(variance))
    if not metric.reports_once:
        own = instantaneous_variance(of_once, total.total, metric)
        own_part = np.minimum(own / variance, 1.0)

    def estimated(counts: CohortCounts, once: RepeatedReports) -> _Known:
        found = estimate_categories(counts, metric, once)
        return found.unbiased, found.std_error, *found.intervals()

    return _each_by_itself(
        by_day, pooled, "category", pooled.categories, estimated, variance, own_part, min_reports
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

    `alpha`: level of the statistics that are reported as changed. `repeats`: on all days together;
    on each of them clients report once. Raises as `decode_numbers`, and `UndecodableError` if no
    day has enough reports.
    """
    total = reduce(add, days_with_enough(by_day, min_reports).values())
    pooled = decode_numbers(total, metric, alpha=alpha, correction=correction, repeats=repeats)
    variance = estimate_numbers(total, metric).std_error ** 2

    def estimated(counts: CohortCounts, once: RepeatedReports) -> _Known:
        found = estimate_numbers(counts, metric, once)
        return found.unbiased, found.std_error, found.low, found.high

    own_part = np.ones(len(variance))
    return _each_by_itself(
        by_day, pooled, "statistic", pooled.statistics, estimated, variance, own_part, min_reports
    )


_Known = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Estimates, their standard errors, and the ends of their intervals."""
_Closed = TypeVar("_Closed", CategoryDecoding, NumberDecoding)


def _each_by_itself(
    by_day: Mapping[dt.date, CohortCounts],
    pooled: _Closed,
    kind: str,
    followed: tuple[str, ...],
    estimated: Callable[[CohortCounts, RepeatedReports], _Known],
    variance: FloatArray,
    own_part: FloatArray,
    min_reports: int,
) -> Trends[_Closed]:
    """Estimate each day by closed formulas, and compare them.

    `estimated`: estimates, standard errors and interval ends of a day. `variance`, shape (s,): that
    of all days' estimates if clients report once, of which `own_part` is new in each report.
    """
    enough, summary = days_with_enough(by_day, min_reports), pooled.summary
    once = RepeatedReports(estimand=summary.repeats.estimand)
    # The noise of a steady share depends on how many report; a day's own estimate would only bring
    # noise into the weights.
    own = own_part * variance * sum(counts.total for counts in enough.values())
    return compare_days(
        by_day,
        {
            day: DayEstimates(*estimated(counts, once), own / counts.total)
            for day, counts in enough.items()
        },
        (1.0 - own_part) * variance * len(enough),  # as many clients as an average day has reports
        pooled,
        kind=kind,
        followed=followed,
        alpha=summary.alpha,
        correction=summary.correction,
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

    `candidates`: as for `decode`. `alpha`: level of the detections, and again of the strings that
    are reported as changed. Raises as `decode`, and `UndecodableError` if no day has enough
    reports.
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
    shared = np.nan_to_num(_estimated(reduce(add, enough.values()), design, params)[3])
    return _compare_strings(by_day, estimates, shared, pooled, candidates, min_reports)


def _compare_strings(
    by_day: Mapping[dt.date, CohortCounts],
    estimates: Mapping[dt.date, DayEstimates],
    shared: FloatArray,
    pooled: Decoding,
    candidates: Candidates,
    min_reports: int,
) -> Trends[Decoding]:
    found = pooled.largest_detected()
    return compare_days(
        by_day,
        estimates,
        shared,
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


_DEPENDENT = 1e-6
"""Least eigenvalue of the scaled information for strings that reports distinguish.

Above the rounding of single precision, in which the information of many reports is summed up.
"""


def decode_whole_days(
    by_day: Mapping[dt.date, CohortCounts],
    whole: Mapping[dt.date, PackedReports],
    pooled: Decoding,
    candidates: Candidates,
    *,
    min_reports: int = 1,
) -> Trends[Decoding] | None:
    """Estimate the detected strings on each day, and find where their shares changed.

    `by_day`: counts of all days. `whole`: reports of the days with enough of them, at least one.
    `pooled`: of those days together, by the likelihood; its level and correction are kept.
    `candidates`: those of `pooled`, in their order. `min_reports`: how many were enough. Returns
    none if no string was detected, or whole reports don't distinguish the detected ones.
    """
    found = pooled.largest_detected()
    if not len(found):
        return None
    positions = distinct_positions(candidates.positions(found), candidates.params)
    detected = pooled.constrained_share[found]
    centre = np.concatenate([[max(1.0 - float(detected.sum()), 0.0)], detected])
    sums = {
        day: ReportMixture(reports, positions).evaluate(centre) for day, reports in whole.items()
    }
    total = sum(reports.total for reports in whole.values())
    information = np.asarray(sum(each.information for each in sums.values())) / total
    scale = np.sqrt(np.diagonal(information))
    if np.linalg.eigvalsh(information / np.outer(scale, scale))[0] < _DEPENDENT:
        return None
    inverse = np.linalg.inv(information)

    def variance(gradient: FloatArray, squares: FloatArray) -> FloatArray:
        """Return that of one report's estimate, from means over reports."""
        covariance = inverse @ (squares - np.outer(gradient, gradient)) @ inverse
        return np.asarray(np.diagonal(covariance))

    gradient = np.asarray(sum(each.gradient for each in sums.values())) / total
    of_one = variance(gradient, information)
    shared = np.maximum(_population_variance(pooled, total) - of_one / total, 0.0)
    estimates = {}
    for day, each in sums.items():
        n_reports = whole[day].total
        mean = each.gradient / n_reports
        share = centre + inverse @ (mean - 1.0)
        own = variance(mean, each.information / n_reports) / n_reports
        std_error = day_errors(own + shared, share, n_reports, pooled)
        estimates[day] = DayEstimates.normal(share, std_error, of_one / n_reports)
    return _compare_strings(by_day, estimates, shared, pooled, candidates, min_reports)


def _population_variance(pooled: Decoding, total: int) -> FloatArray:
    """Return the variances of all days' unknown mass and detected shares, with unlisted strings'.

    By drawing clients, each of whom reports once on a day, a share varies by share (1 - share) / N
    beyond its error about the collected reports.
    """
    found = pooled.largest_detected()
    share = np.concatenate([[pooled.summary.unknown_share], pooled.share[found]])
    std_error = np.concatenate([[pooled.summary.unknown_std_error], pooled.std_error[found]])
    own = std_error**2 - pooled.summary.repeats.sampling_variance(share, total)
    return np.asarray(own + ONCE.sampling_variance(share, total))
