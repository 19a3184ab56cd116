"""Counts day by day of a metric whose values are listed -> the share of every category on each day.

Each day is estimated by itself, by closed formulas (`hubbub.inference.categories.shares`), and days
are compared as those of strings are. There are no unlisted strings to set the same bits on all
days, but permanent responses do: clients that come back bring the same error along, and when
others take their place another one. Invariant: unless each client reports only once, all of that
error is taken to be shared by the days before a change, and by those after it, whoever comes back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np

from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
from hubbub.inference.categories.shares import estimate_categories, instantaneous_variance
from hubbub.inference.counts import CohortCounts
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.inference.trends.decoding import DayEstimates, Trends, compare_days, days_with_enough
from hubbub.protocol.metrics import Metric


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
