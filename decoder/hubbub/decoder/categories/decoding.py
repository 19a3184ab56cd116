"""An enum's, boolean's or ordinal's counts in, estimates of every category and a summary out.

The registry lists the categories, so there is nothing to search: estimates, tests and intervals are
closed formulas. Deterministic: the same counts give the same result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.decoder.arrays import BoolArray, FloatArray
from hubbub.decoder.categories.known_rates import KnownRates, known_rates
from hubbub.decoder.categories.ordinal import (
    OrdinalEstimates,
    bucket_bounds,
    bucket_label,
    estimate_ordinal,
)
from hubbub.decoder.categories.shares import (
    CategoryEstimates,
    Interval,
    estimate_categories,
    noise_variance,
)
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.decoding import POWER
from hubbub.decoder.inference.multiple_testing import Correction, log_q_values
from hubbub.decoder.regression.forgery import FORGED_SHARE
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """What a reader must know besides the rows.

    Attributes
    ----------
    type : str
        "enum", "boolean" or "ordinal".
    reports, categories, detected : int
    alpha : float
    correction : Correction
    epsilon_permanent, epsilon_report : float
    detection_limit : float
        Share of the population that is detected with probability 0.9.
    forged_share, forgery_shift : float
        If such a share of the reports were forged, how far an estimated share could move by it.
    """

    type: str
    reports: int
    categories: int
    detected: int
    alpha: float
    correction: Correction
    epsilon_permanent: float
    epsilon_report: float
    detection_limit: float
    forged_share: float
    forgery_shift: float


@dataclass(frozen=True, slots=True)
class CategoryDecoding:
    """Estimates of all categories, in the registry's order.

    Attributes
    ----------
    categories : tuple of str, length n
        False before True; buckets as "< 10", "[10, 20)", ">= 20".
    bounds : tuple of (float, float)
        Each bucket's edges, infinite where it is open; empty for other types than ordinal.
    estimates : CategoryEstimates
    interval : Interval
        95% intervals of the shares.
    q_value : float64 array, shape (n,)
        Of "nobody is in this category", corrected for the number of categories.
    detected : bool array, shape (n,)
        q_value <= alpha.
    ordinal : OrdinalEstimates or None
    known_rates : KnownRates
    summary : CategorySummary
    """

    categories: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    estimates: CategoryEstimates
    interval: Interval
    q_value: FloatArray
    detected: BoolArray
    ordinal: OrdinalEstimates | None
    known_rates: KnownRates
    summary: CategorySummary


def decode_categories(
    counts: CohortCounts,
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
) -> CategoryDecoding:
    """Estimate how often each category of an enum, boolean or ordinal metric occurs.

    Parameters
    ----------
    counts : CohortCounts
    metric : Metric
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction

    Raises
    ------
    MetricError
        If the metric is of type string.
    UndecodableError
        If there are no reports or the counts don't fit the parameters.
    ValueError
        If alpha isn't in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    estimates = estimate_categories(counts, metric)
    kind, n_categories = metric.type, len(estimates.share)
    log_q = log_q_values(estimates.log_p_value, correction)
    detected = log_q <= np.log(alpha)
    edges = kind.edges if isinstance(kind, OrdinalType) else None
    bounds = tuple(bucket_bounds(edges)) if edges else ()
    return CategoryDecoding(
        categories=_labels(metric, bounds),
        bounds=bounds,
        estimates=estimates,
        interval=estimates.intervals(),
        q_value=np.exp(log_q),
        detected=detected,
        ordinal=estimate_ordinal(estimates, edges) if edges else None,
        known_rates=known_rates(counts, metric),
        summary=CategorySummary(
            type=kind.name,
            reports=counts.total,
            categories=n_categories,
            detected=int(detected.sum()),
            alpha=alpha,
            correction=correction,
            epsilon_permanent=metric.epsilon_permanent,
            epsilon_report=metric.epsilon_report,
            detection_limit=_detection_limit(metric, counts.total, alpha / n_categories),
            forged_share=FORGED_SHARE,
            forgery_shift=FORGED_SHARE * _leverage(estimates, metric),
        ),
    )


def _labels(metric: Metric, bounds: tuple[tuple[float, float], ...]) -> tuple[str, ...]:
    if isinstance(metric.type, EnumType):
        return metric.type.categories
    return tuple(bucket_label(*bucket) for bucket in bounds) or ("false", "true")


def _detection_limit(metric: Metric, n_reports: int, level: float) -> float:
    """Return the share whose one-sided test at `level` has power 0.9 (normal approximation).

    A boolean's False is absent if every bit is true; the noisier of its two values counts.
    """
    both = isinstance(metric.type, BooleanType)
    shares = np.array([0.0, 1.0] if both else [0.0])
    std_error = float(np.sqrt(noise_variance(shares, n_reports, metric.params)).max())
    return float((stats.norm.isf(level) + stats.norm.ppf(POWER)) * std_error)


def _leverage(estimates: CategoryEstimates, metric: Metric) -> float:
    """Return how far a forged report could move an estimated share, times the reports.

    An estimate is sum_i a_i y_i + constant. A forged report sets each of its bits to what helps, so
    that y_i is one or zero (`largest_shift` in forgery.py), instead of what honest ones have.
    """
    params = metric.params
    slope = params.q_star - params.p_star
    ends = sorted(((1 - params.p_star) / slope, -params.p_star / slope))
    if isinstance(metric.type, BooleanType):
        true = float(estimates.unbiased[1])
        return max(ends[1] - true, true - ends[0])
    weights, constant = _linear_form(estimates, params)
    positive, negative = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    highest = positive * ends[1] + negative * ends[0] + constant
    lowest = positive * ends[0] + negative * ends[1] + constant
    return float(max((highest - estimates.unbiased).max(), (estimates.unbiased - lowest).max()))


def _linear_form(
    estimates: CategoryEstimates, params: RapporParams
) -> tuple[FloatArray, FloatArray]:
    """Return (weights, constants) of y - d (sum(y) - 1) / sum(d)."""
    noise = noise_variance(estimates.share, 1, params)
    correction = noise / noise.sum()
    n = len(correction)
    return np.eye(n) - np.outer(correction, np.ones(n)), correction
