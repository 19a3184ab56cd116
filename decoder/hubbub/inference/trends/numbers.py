"""Counts day by day of a number -> its mean, and perhaps its variance, on each day.

Each day is estimated by itself (`hubbub.inference.numbers.decoding`), and days are compared as
those of strings are. A number is reported once, so that days share no noise.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np

from hubbub.inference.counts import CohortCounts
from hubbub.inference.numbers.decoding import NumberDecoding, decode_numbers, estimate_numbers
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.inference.trends.decoding import DayEstimates, Trends, compare_days, days_with_enough
from hubbub.protocol.metrics import Metric


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
