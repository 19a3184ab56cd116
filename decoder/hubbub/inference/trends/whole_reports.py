"""Whole reports day by day -> the shares of the detected strings on every day.

Strings are detected in all days together, by the likelihood, whose most likely shares pi are the
centre here. A day's shares are one linear step from there, with the information of all days:

    share_d = pi + I^-1 (g_d - 1),    g_d = mean of L_j / L_pi over the day's reports,
    I = mean of L_j L_k / L_pi^2 over those of all days,

L_j being the likelihood of a report if its client has string j (or, j = 0, any string by chance).
That is unbiased however far a day's shares are from pi, for the mean of g_d is linear in them, and
as precise as the likelihood where they are near. One pass over a day's reports is enough.
Invariant: weights come from all days together, so that they don't go with a day's noise.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.candidates import Candidates
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import Decoding
from hubbub.inference.likelihood.sums import ReportMixture, distinct_positions
from hubbub.inference.packed import RawReports
from hubbub.inference.parallel import cores
from hubbub.inference.repeated_reports import ONCE
from hubbub.inference.trends.decoding import DayEstimates, Trends, compare_days, day_errors

_DEPENDENT = 1e-6
"""Least eigenvalue of the scaled information, of strings that reports tell apart.

Above the rounding of single precision, in which the information of many reports is summed up.
"""


def decode_whole_days(
    by_day: Mapping[dt.date, CohortCounts],
    whole: Mapping[dt.date, RawReports],
    pooled: Decoding,
    candidates: Candidates,
    *,
    min_reports: int = 1,
    threads: int | None = None,
) -> Trends[Decoding] | None:
    """Estimate the detected strings on each day, and find where their shares changed.

    `by_day`: counts of all days. `whole`: reports of the days with enough of them, at least one.
    `pooled`: of those days together, by the likelihood; its level and correction are kept.
    `candidates`: those of `pooled`, in their order. `min_reports`: how many were enough. `threads`:
    all cores if not given; the result is the same. Returns none if no string was detected, or whole
    reports don't tell the detected ones apart.
    """
    found = pooled.largest_detected()
    if not len(found):
        return None
    positions = distinct_positions(candidates.positions(found), candidates.params)
    detected = pooled.constrained_share[found]
    centre = np.concatenate([[max(1.0 - float(detected.sum()), 0.0)], detected])
    sums = {
        day: ReportMixture(reports, positions, threads or cores()).evaluate(centre)
        for day, reports in whole.items()
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
    return compare_days(
        by_day,
        estimates,
        shared,
        pooled,
        kind="string",
        followed=tuple(candidates.strings[int(row)] for row in found),
        alpha=pooled.summary.alpha,
        correction=pooled.summary.correction,
        min_reports=min_reports,
    )


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
