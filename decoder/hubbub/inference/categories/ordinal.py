"""Shares of buckets -> an ordinal metric's results: cumulative shares, quantiles, a mean.

A report shows in which bucket a value lies, never where in it. So quantiles are given as buckets,
with intervals that end at edges; and the first and last bucket are open, so no mean of all values
can be estimated, only one of those between the first and the last edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.categories.shares import CategoryEstimates, ShareInterval, share_interval
from hubbub.inference.testing.intervals import Z_CONFIDENCE

LEVELS = (0.25, 0.5, 0.75, 0.9)
"""Quantiles that are reported: the quartiles and the level that nine tenths stay below."""

_FIRM = 5.0  # a quotient's normal interval needs a denominator this many standard errors above 0


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
class InnerMean:
    """Mean of the values from the first to below the last edge."""

    mean: float  # as if every value lay at the middle of its bucket
    std_error: float
    low: float  # with at least 95% confidence, wherever in their buckets the values lie
    high: float


@dataclass(frozen=True, slots=True)
class OrdinalEstimates:
    """What follows from the buckets' shares together."""

    # Shape (n,); share of values below each bucket's upper edge, from the nearest distribution.
    cumulative: FloatArray
    interval: ShareInterval  # its 95% intervals, each by itself
    quantiles: tuple[Quantile, ...]  # of `LEVELS`
    # None if there is only one edge, or too few values are known to lie between the edges.
    inner_mean: InnerMean | None


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
        inner_mean=_inner_mean(estimates, edges),
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


def _inner_mean(estimates: CategoryEstimates, edges: tuple[float, ...]) -> InnerMean | None:
    """Divide a weighted sum by the inner share; the linearised quotient gives the error."""
    inside = np.zeros(len(edges) + 1)
    inside[1:-1] = 1.0
    share, share_error = (float(x) for x in estimates.contrast(inside))
    if len(edges) < 2 or share <= _FIRM * share_error:
        return None
    lower, upper = np.array(edges[:-1]), np.array(edges[1:])
    at_low = _quotient(estimates, inside, lower, share)
    middle = _quotient(estimates, inside, lower + (upper - lower) / 2, share)
    at_high = _quotient(estimates, inside, upper, share)
    return InnerMean(
        mean=min(max(middle[0], edges[0]), edges[-1]),
        std_error=middle[1],
        low=min(max(at_low[0] - Z_CONFIDENCE * at_low[1], edges[0]), edges[-1]),
        high=max(min(at_high[0] + Z_CONFIDENCE * at_high[1], edges[-1]), edges[0]),
    )


def _quotient(
    estimates: CategoryEstimates, inside: FloatArray, values: FloatArray, share: float
) -> tuple[float, float]:
    weights = inside.copy()
    weights[1:-1] = values
    mean = float(estimates.contrast(weights)[0]) / share
    return mean, float(estimates.contrast((weights - mean * inside) / share)[1])
