"""Counts of a metric whose values are listed -> estimates of every category and a summary.

The registry lists the categories, so there is nothing to search: estimates, tests and intervals are
closed formulas. Deterministic: the same counts give the same result.

Some bits have a rate that is known before any report. Reports fill whole bytes, and the bits that
no category uses are pure noise, set with probability p* whatever people's values are; and where a
value is one bit of several, exactly one of them is true in every report, so their sum has a known
mean as well. Forged reports, and clients with other parameters than the registry's, may show in
both. Reports of a fixed number of cells show it at once: there is nothing random about either.

Of an ordinal metric cumulative shares and quantiles follow from the buckets' shares. A report shows
in which bucket a value lies, never where in it. So quantiles are given as buckets, with intervals
that end at edges; and the first and last bucket are open, so no mean can be estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.inference.anomalies import ALARM, REPORTS_A_CLIENT
from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.categories.shares import (
    CategoryEstimates,
    detected_interval,
    estimate_categories,
    noise_variance,
)
from hubbub.inference.decoding import POWER
from hubbub.inference.errors import DecoderError
from hubbub.inference.regression.estimates import FORGED_SHARE
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import (
    Z_CONFIDENCE,
    Correction,
    ShareInterval,
    log_cutoff,
    log_q_values,
    share_interval,
)
from hubbub.protocol import CohortCounts, Metric, bucket_bounds

LEVELS = (0.25, 0.5, 0.75, 0.9)
"""Quantiles that are reported: the quartiles and the level that nine tenths stay below."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """Where the share `level` of the population is reached."""

    level: float
    # Edges of the bucket that it is estimated to be in; infinite where that is open.
    bucket_low: float
    bucket_high: float
    # Edges that it lies between, with at least 95% confidence; infinite if no edge is known to lie
    # on that side of it.
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OrdinalEstimates:
    """Quantities that follow from the buckets' shares together."""

    # Shape (n,); share of values below each bucket's upper edge, from the nearest distribution.
    cumulative: FloatArray
    interval: ShareInterval  # its 95% intervals, each by itself
    quantiles: tuple[Quantile, ...]  # of `LEVELS`


def estimate_ordinal(estimates: CategoryEstimates, edges: tuple[float, ...]) -> OrdinalEstimates:
    """Sum up the shares of buckets (-inf, edge), [edge, edge), ..., [edge, inf)."""
    cumulative = np.minimum(np.cumsum(estimates.share), 1.0)
    cumulative[-1] = 1.0
    below, std_error = estimates.contrast(np.tri(len(edges), len(edges) + 1))
    inner = share_interval(below, std_error)
    return OrdinalEstimates(
        cumulative=cumulative,
        interval=ShareInterval(np.append(inner.low, 1.0), np.append(inner.high, 1.0)),
        quantiles=tuple(_quantile(level, edges, cumulative, below, std_error) for level in LEVELS),
    )


def _quantile(
    level: float,
    edges: tuple[float, ...],
    cumulative: FloatArray,
    below: FloatArray,
    std_error: FloatArray,
) -> Quantile:
    """Invert the cumulative shares and their one-sided 97.5% bounds (Woodruff 1952).

    Edges are tested from the outside in, and each side stops at its first edge that isn't certain.
    So an error needs the *first* wrong edge to be rejected, and the number of edges costs nothing.
    """
    margin = Z_CONFIDENCE * std_error
    below_for_sure = _leading(below + margin < level)
    above_for_sure = _leading((below - margin > level)[::-1])
    bounds = (-math.inf, *edges, math.inf)
    first, last = below_for_sure, len(edges) - above_for_sure
    bucket = min(max(int(np.searchsorted(cumulative, level)), first), last)
    return Quantile(level, bounds[bucket], bounds[bucket + 1], bounds[first], bounds[last + 1])


def _leading(certain: BoolArray) -> int:
    return int(np.logical_and.accumulate(certain).sum())


class KnownRates(NamedTuple):
    """How far such rates are off."""

    unused_bits: int  # bits of a report that no category uses
    unused_rate: float  # how often they are set, and should be (p*); nan if there are none
    expected_unused_rate: float
    # Mean number of the categories' bits that are set in a report; nan for booleans.
    own_bits_set: float
    expected_own_bits_set: float
    # Honest reports show this with probability above `alarm` only if some client sent more reports
    # than this.
    clients_must_send: float
    suspicious: bool  # whether that is more than clients are supposed to send


def known_rates(counts: CohortCounts, metric: Metric, alarm: float = ALARM) -> KnownRates:
    """Compare the rates that are known with those of the reports.

    `counts`: of at least one report. `metric`: of type enum, boolean or ordinal. `alarm`: in (0,
    1). Raises `ValueError` if the metric's type has no categories.

    Notes
    -----
    Given their values, the bits of a client's reports are independent of each other, and of those
    of other clients; but its reports share a permanent response. So a sum over w bits is one of
    independent terms, each client's and bit's, in [0, r_i] if client i sent r_i <= R reports, and
    by Hoeffding's inequality P(|sum - mean| >= t) <= 2 exp(-2 t^2 / (w N R)). Each unused bit, all
    of them, and all own bits are such sums. Over s of them, deviations like the largest have
    probability at most `alarm` unless R > 2 t^2 / (w N ln(2s / alarm)). No approximation is
    involved.
    """
    width, params = metric.type.width, metric.params
    if width is None:
        raise ValueError(f"metric {metric.name!r}: must be of a type with categories")
    if metric.response.ones is not None:
        return _fixed_rates(counts, width, metric.response.ones)
    n_reports, bits = counts.total, counts.bits[0].astype(np.float64)
    own, unused = bits[:width], bits[width:]
    expected_own = params.q_star + (width - 1) * params.p_star
    squares = [_square_over_width(unused[i : i + 1] - n_reports * params.p_star)
               for i in range(len(unused))]  # fmt: skip
    if len(unused):
        squares.append(_square_over_width(unused - n_reports * params.p_star))
    one_hot = metric.type.true_bits(params) == range(1, 2)
    if one_hot:
        squares.append(_square_over_width(own - n_reports * expected_own / width))
    must_send = 2 * max(squares) / (n_reports * np.log(2 * len(squares) / alarm))
    return KnownRates(
        unused_bits=len(unused),
        unused_rate=float(unused.mean()) / n_reports if len(unused) else np.nan,
        expected_unused_rate=params.p_star if len(unused) else np.nan,
        own_bits_set=float(own.sum()) / n_reports if one_hot else np.nan,
        expected_own_bits_set=expected_own if one_hot else np.nan,
        clients_must_send=float(must_send),
        suspicious=bool(must_send > (1 if metric.reports_once else REPORTS_A_CLIENT)),
    )


def _fixed_rates(counts: CohortCounts, width: int, ones: int) -> KnownRates:
    """Return the rates of reports that have so many of the first bits set, and no others.

    No number of reports makes honest clients' rates any other.
    """
    bits = counts.bits.sum(axis=0)
    own, unused = int(bits[:width].sum()), bits[width:]
    wrong = own != ones * counts.total or bool(unused.any())
    return KnownRates(
        unused_bits=len(unused),
        unused_rate=float(unused.mean()) / counts.total if len(unused) else np.nan,
        expected_unused_rate=0.0 if len(unused) else np.nan,
        own_bits_set=own / counts.total,
        expected_own_bits_set=float(ones),
        clients_must_send=np.inf if wrong else 0.0,
        suspicious=wrong,
    )


def _square_over_width(deviations: FloatArray) -> float:
    return float(deviations.sum()) ** 2 / len(deviations)


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """Facts about the decoding beyond its rows."""

    type: str  # the name of the metric's type
    reports: int
    categories: int
    detected: int
    alpha: float
    correction: Correction
    epsilon_permanent: float
    epsilon_report: float
    detection_limit: float  # share of the population that is detected with probability 0.9
    # If such a share of the reports were forged, how far an estimated share could move by it.
    forged_share: float
    forgery_shift: float
    repeats: RepeatedReports = ONCE  # how often the reports' clients have reported


@dataclass(frozen=True, slots=True)
class CategoryDecoding:
    """Estimates of all categories, in the registry's order."""

    categories: tuple[str, ...]  # False before True; buckets as "< 10", "[10, 20)", ">= 20"
    # Each bucket's edges, infinite where it is open; empty if the type has no buckets.
    bounds: tuple[tuple[float, float], ...]
    ranked: bool  # whether results state how far each category is behind the largest
    estimates: CategoryEstimates
    # 95% intervals of the shares; of the detected they hold given that they were detected.
    interval: ShareInterval
    # Shape (n,); of "no client is in this category", corrected for the number of categories.
    q_value: FloatArray
    detected: BoolArray  # shape (n,); q_value <= alpha
    ordinal: OrdinalEstimates | None
    known_rates: KnownRates
    summary: CategorySummary


def decode_categories(
    counts: CohortCounts,
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    repeats: RepeatedReports = ONCE,
) -> CategoryDecoding:
    """Estimate how often each value occurs of a metric whose registry entry lists them.

    `alpha`: level of the correction's error rate, in (0, 1). Raises `MetricError` if the metric's
    type has no categories, `UndecodableError` if there are no reports or the counts don't fit the
    parameters, `DecoderError` if a package's type and its decoder disagree on the number of values.

    Examples
    --------
    Three in ten of 10,000 clients answer yes; with this noise 62.5% of their reports say so, and
    37.5% of the others' do:

    >>> import numpy as np
    >>> from hubbub.protocol.registry import Registry
    >>> metric = Registry.parse('''
    ...     application = "com.example.browser"
    ...     [metrics.dark]
    ...     version = 1
    ...     type = "boolean"
    ...     description = "Dark mode"
    ...     owner = "privacy@example.com"
    ...     expires = 2027-12-31
    ...     f = 0.5
    ...     p = 0.25
    ...     q = 0.75
    ... ''')["dark"]
    >>> bits = np.zeros((1, 8), dtype=np.int64)
    >>> bits[0, 0] = 3000 * 0.625 + 7000 * 0.375
    >>> found = decode_categories(CohortCounts(np.array([10_000]), bits), metric)
    >>> dict(zip(found.categories, found.estimates.share.round(2).tolist()))
    {'false': 0.7, 'true': 0.3}
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    estimates = estimate_categories(counts, metric, repeats)
    labels, edges, ranked = metric.type.listed_values()
    if len(labels) != len(estimates.share):
        raise DecoderError(
            f"type {metric.type.name!r}: {len(labels)} names of values; its decoder must have "
            f"{len(estimates.share)}, as its bits have"
        )
    log_alpha = float(np.log(alpha))
    log_q = log_q_values(estimates.log_p_value, correction)
    detected = log_q <= log_alpha
    cutoff = log_cutoff(int(detected.sum()), len(labels), log_alpha, correction)
    # If two values share a bit, the first is absent when every bit is set; the noisier counts.
    absent = np.array([0.0, 1.0] if metric.type.width == 1 else [0.0])
    noise = noise_variance(absent, counts.total, metric.params, repeats)
    z = special.ndtri(POWER) - special.ndtri(alpha / len(labels))  # a normal approximation
    return CategoryDecoding(
        categories=labels,
        bounds=tuple(bucket_bounds(edges)) if edges else (),
        ranked=ranked,
        estimates=estimates,
        interval=detected_interval(
            estimates.unbiased, estimates.std_error, detected, estimates.thresholds(cutoff)
        ),
        q_value=np.exp(log_q),
        detected=detected,
        ordinal=estimate_ordinal(estimates, edges) if edges else None,
        known_rates=known_rates(counts, metric),
        summary=CategorySummary(
            type=metric.type.name,
            reports=counts.total,
            categories=len(labels),
            detected=int(detected.sum()),
            alpha=alpha,
            correction=correction,
            epsilon_permanent=metric.epsilon_permanent,
            epsilon_report=metric.epsilon_report,
            detection_limit=float(z * np.sqrt(noise).max()),
            forged_share=FORGED_SHARE,
            forgery_shift=FORGED_SHARE * _leverage(estimates, metric, repeats),
            repeats=repeats,
        ),
    )


def _leverage(estimates: CategoryEstimates, metric: Metric, repeats: RepeatedReports) -> float:
    """Return how far a forged report could move an estimated share, times the reports.

    An estimate is sum_i a_i y_i + constant. A forged report sets each of its bits to what helps, so
    that y_i is one or zero (see `largest_shift`), instead of what honest ones have.
    """
    params = metric.params
    slope = params.q_star - params.p_star
    ends = sorted(((1 - params.p_star) / slope, -params.p_star / slope))
    if metric.type.width == 1:
        true = float(estimates.unbiased[1])
        return max(ends[1] - true, true - ends[0])
    if metric.response.ones is not None:  # rates as they are
        return float(
            max((ends[1] - estimates.unbiased).max(), (estimates.unbiased - ends[0]).max())
        )
    # y - d (sum(y) - 1) / sum(d), with the noise d
    noise = noise_variance(estimates.share, 1, params, repeats)
    constant = noise / noise.sum()
    weights = np.eye(len(noise)) - constant[:, None]
    positive, negative = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    highest = positive * ends[1] + negative * ends[0] + constant
    lowest = positive * ends[0] + negative * ends[1] + constant
    return float(max((highest - estimates.unbiased).max(), (estimates.unbiased - lowest).max()))
