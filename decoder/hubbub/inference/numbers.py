"""Counts of a number's cells -> the mean of the numbers, and their variance if it was asked for.

A report's cell counts for a weight, and the mean of weights is
an unbiased estimate of the mean number. The scatter of the weights themselves shows how far off it
is: both the response's noise and the sampling of clients are in it. Deterministic: the same counts
give the same result.

What each reported cell counts for, so that the mean of reports is the mean of the numbers.

A number's report is one of d cells: with chance q one of the w cells of its window, each alike,
otherwise one of the others. Windows begin at s = 0 to d - w, which stand for the evenly spaced
numbers s / (d - w) of [0, 1], and the client rounds at random to one of the two nearest. So if the
weights' expectation is right for each beginning, it is for every number: P t = grid.

Invariant: the weights depend on the response alone, never on the counts. That is what makes the
mean unbiased at any number of reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.categories.decoding import KnownRates, known_rates
from hubbub.inference.errors import DecoderError, UndecodableError
from hubbub.inference.regression.estimates import FORGED_SHARE
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction, share_interval
from hubbub.protocol import CohortCounts, Metric, NumberType, Window


def cell_chances(cells: int, window: int, chance: float) -> FloatArray:
    """Return the chance of each cell for each beginning of the window.

    `cells` and `window`: d and w. `chance`: q, that the report is a cell of the window. Returns an
    array of shape (d - w + 1, d): each row adds up to 1.
    """
    start, cell = np.ogrid[: cells - window + 1, :cells]
    inside = (start <= cell) & (cell < start + window)
    return np.where(inside, chance / window, (1 - chance) / (cells - window))


@lru_cache(maxsize=64)
def cell_weights(cells: int, window: int, chance: float, power: int = 1) -> FloatArray:
    """Return the weights t whose mean over reports is an unbiased estimate of the numbers' mean.

    `cells` and `window`: d and w. `chance`: q, that the report is a cell of the window. `power`: 2
    or 3: of the mean square or cube of grid points, between which numbers are rounded. Returns an
    array of shape (d,): ascending but for the ends, and not between 0 and 1.

    Notes
    -----
    Of all t with P t = g, the grid 0, 1/(d - w), ..., 1, these have the least variance if windows
    begin anywhere alike: with W = diag(mean of P's rows), the least sum of W_yy t_y^2 is at

        t = W^-1 P' (P W^-1 P')^-1 g.

    The worst variance over all numbers is hardly larger than that of the best weights for the worst
    (`python -m evaluation.studies means`).

    Examples
    --------
    Two cells and a window of one are a coin that is right three times in four:

    >>> cell_weights(2, 1, 0.75).round(3).tolist()
    [-0.5, 1.5]
    """
    chances = cell_chances(cells, window, chance)
    grid = np.linspace(0.0, 1.0, len(chances)) ** power
    scaled = chances / chances.mean(axis=0)
    weights = scaled.T @ np.linalg.solve(scaled @ chances.T, grid)
    weights.flags.writeable = False
    return np.asarray(weights)


@lru_cache(maxsize=64)
def least_second_moments(cells: int, window: int, chance: float) -> FloatArray:
    """Return the least mean square of the weights among all populations of each grid point's mean.

    Returns an array of shape (d - w + 1,): between grid points it is a straight line.

    Notes
    -----
    A population is a mixture of windows' beginnings, each of which has a mean g_s and a mean square
    of weights; so the least is the lower convex hull of these points. It ends where all numbers are
    the same: at 0 and at 1 there is one population alone.
    """
    squares = cell_chances(cells, window, chance) @ cell_weights(cells, window, chance) ** 2
    hull: list[int] = []
    for place in range(len(squares)):
        while len(hull) > 1:
            left, middle = hull[-2:]
            rise = (squares[place] - squares[left]) / (place - left)
            if squares[middle] < squares[left] + rise * (middle - left):
                break
            hull.pop()
        hull.append(place)
    found = np.interp(np.arange(len(squares)), hull, squares[hull])
    found.flags.writeable = False
    return np.asarray(found)


STATISTICS = ("mean", "variance")
"""Estimated quantities, in order; the variance only where clients are asked for it."""

_MOST_VARIANCE = 0.25
"""Largest variance of numbers in [0, 1]: half of them at each end."""


_LEAST_OWN = 0.1
"""Least part of a variance that is left without the estimated drawing of clients."""


class Moment(NamedTuple):
    """An unbiased estimate of a mean of numbers in [0, 1], and its variance."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class NumberEstimates:
    """Estimated statistics."""

    # Shape (s,); the mean, and perhaps the variance, in the metric's unit; may be what no numbers
    # have.
    unbiased: FloatArray
    # Shape (s,); of `unbiased`: noise of the response, and the sampling of clients if the
    # population's statistics are asked for.
    std_error: FloatArray
    estimate: FloatArray  # shape (s,); the nearest that numbers between the metric's ends may have
    low: FloatArray  # shape (s,); 95% intervals
    high: FloatArray


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """Facts about the decoding beyond its rows."""

    type: str  # the name of the metric's type
    reports: int
    lowest: float  # the metric's ends; numbers beyond them count as the nearer one
    highest: float
    alpha: float  # by which changes from day to day are judged
    correction: Correction
    epsilon_permanent: float
    epsilon_report: float
    # If such a share of the reports were forged, how far the estimated mean could move by it.
    forged_share: float
    forgery_shift: float
    repeats: RepeatedReports  # how often the reports' clients have reported


@dataclass(frozen=True, slots=True)
class NumberDecoding:
    """A number's estimated statistics."""

    statistics: tuple[str, ...]  # "mean", and "variance" if clients were asked for it
    estimates: NumberEstimates  # one of each statistic
    known_rates: KnownRates  # whether reports are single cells
    summary: NumberSummary


def decode_numbers(
    counts: CohortCounts,
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    repeats: RepeatedReports = ONCE,
) -> NumberDecoding:
    """Estimate the mean, and perhaps the variance, of a metric's numbers.

    `alpha`: level of the correction's error rate, for changes from day to day. Raises as
    `estimate_numbers`.
    """
    a_type, response = number_type(metric)
    estimates = estimate_numbers(counts, metric, repeats)
    weights = cell_weights(response.cells, response.width, response.chance)
    mean = (float(estimates.unbiased[0]) - a_type.low) / (a_type.high - a_type.low)
    # Forged reports may all be in the cohort that the mean comes from.
    shift = metric.params.m * max(float(weights.max()) - mean, mean - float(weights.min()))
    return NumberDecoding(
        statistics=STATISTICS[: metric.params.m],
        estimates=estimates,
        known_rates=known_rates(counts, metric),
        summary=NumberSummary(
            type=a_type.name,
            reports=counts.total,
            lowest=a_type.low,
            highest=a_type.high,
            alpha=alpha,
            correction=correction,
            epsilon_permanent=metric.epsilon_permanent,
            epsilon_report=metric.epsilon_report,
            forged_share=FORGED_SHARE,
            forgery_shift=FORGED_SHARE * shift * (a_type.high - a_type.low),
            repeats=repeats,
        ),
    )


def number_type(metric: Metric) -> tuple[NumberType, Window]:
    """Return a metric's type and response, which must be those of numbers.

    Raises `DecoderError` if they are others.
    """
    a_type, response = metric.type, metric.response
    if not isinstance(a_type, NumberType) or not isinstance(response, Window):
        raise DecoderError(f"metrics.{metric.name}.type = {a_type.name!r}: must be 'number'")
    return a_type, response


def estimate_numbers(
    counts: CohortCounts, metric: Metric, repeats: RepeatedReports = ONCE
) -> NumberEstimates:
    """Estimate the mean, and perhaps the variance, of a metric's numbers.

    Raises `DecoderError` if the metric's type is another one. Raises `UndecodableError` if a cohort
    has no reports, or the counts don't have the parameters' shape.

    Notes
    -----
    Clients report u = (x - low)/(high - low); where the variance is asked for, those of the second
    cohort report u^2 instead. With the means a of u and b of u^2, of independent clients and with
    variances A and B, b - a^2 + A is an unbiased estimate of the variance. Its own is
    B + 4 a^2 A + 2 A^2, but for the skewness of a's error.

    Clients that answer in several periods draw their cohort each time. So of the D - 1 further
    reports that a report's client has made, a cohort's share is in the same cohort, and a and b
    err together: in b - a^2, what repeats is (u - a)^2, and (D - 1) Var((u - a)^2) / N is added.
    About the collected reports' statistics D is 0: then as much is taken away.
    """
    a_type, response = number_type(metric)
    params = metric.params
    if counts.bits.shape != (params.m, params.k) or counts.reports.shape != (params.m,):
        raise UndecodableError(
            f"counts of shape {counts.reports.shape} and {counts.bits.shape}: must be "
            f"{(params.m,)} and {(params.m, params.k)}"
        )
    if not counts.reports.all():
        asked = "" if params.m == 1 else " in one of the two cohorts"
        raise UndecodableError(f"no reports{asked}: nothing to decode")
    again = (repeats.drawings - 1) / counts.total
    cells = counts.bits[:, : response.cells]
    reports = counts.reports.tolist()
    first = estimate_moment(cells[0], reports[0], response, 1 + again * reports[0])
    scale = a_type.high - a_type.low
    found = [_scaled(first.mean, first.variance, 1.0, a_type.low, scale)]
    if params.m > 1:
        within = min(max(first.mean, 0.0), 1.0)
        alone, squares = (estimate_moment(cells[i], reports[i], response) for i in (0, 1))
        spread = squares.mean - first.mean**2 + first.variance
        error = squares.variance + 4 * within**2 * alone.variance + 2 * first.variance**2
        if again:
            added = again * _variance_of_squares(counts, response, within, spread)
            error = max(error + added, _LEAST_OWN * error)
        found.append(_scaled(spread, error, _MOST_VARIANCE, 0.0, scale**2))
    return NumberEstimates(*np.array(found).T)


def _variance_of_squares(
    counts: CohortCounts, response: Window, mean: float, spread: float
) -> float:
    """Return about how much (u - mean)^2 varies from client to client.

    Notes
    -----
    E (u - a)^4 - V^2, where the first cohort's cells give u^3, and the second's (u^2)^2. It is
    between 0 and V (M - V), M being the largest (u - a)^2 that there can be.
    """
    size = (response.cells, response.width, response.chance)
    share = counts.bits[:, : response.cells] / counts.reports[:, None]
    third = float(share[0] @ cell_weights(*size, power=3))
    fourth = float(share[1] @ cell_weights(*size, power=2))
    variance = min(max(spread, 0.0), _MOST_VARIANCE)
    second = variance + mean**2
    central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
    most = variance * max(max(mean, 1 - mean) ** 2 - variance, 0.0)
    return min(max(central - variance**2, 0.0), most)


def estimate_moment(
    cells: IntArray, n_reports: int, response: Window, clients: float = 1.0
) -> Moment:
    """Estimate the mean of what clients reported, in [0, 1].

    `cells`, shape (d,): reports of each cell. `n_reports`: at least 1. `response`: the response by
    which they were made. `clients`: D = sum R_i^2 / N, client i having sent R_i of the reports;
    less where the drawing of clients isn't an error.

    Notes
    -----
    A client that answers again, in another period, does so with new coins, but keeps its number. So
    the sampling of clients, whose part of s^2 is the numbers' variance, counts D times. That is
    estimated from weights of the grid's squares; rounding to the grid only makes it larger.

    The variance is that of a mean of independent draws, s^2 / N with the weights' sample variance
    s^2; but no less than any population of this mean would have (`least_second_moments`). Where
    nearly all numbers are at one end, a sample may lack the few reports outside of the window,
    which are most of the variance: with a window of 2 of 32 cells and epsilon 8, 79% of intervals
    from 200 reports held the mean without that, and 99% hold it with it.
    """
    size = (response.cells, response.width, response.chance)
    weights = cell_weights(*size)
    mean = float(cells @ weights) / n_reports
    sample = (float(cells @ weights**2) / n_reports - mean**2) / max(n_reports - 1, 1)
    squares, within = least_second_moments(*size), min(max(mean, 0.0), 1.0)
    least = float(np.interp(within, np.linspace(0.0, 1.0, len(squares)), squares)) - within**2
    variance = max(sample, least / n_reports)
    if clients != 1:
        of_numbers = float(cells @ cell_weights(*size, power=2)) / n_reports - mean**2
        if clients < 1:  # the grid's rounding is noise
            of_numbers -= _MOST_VARIANCE / (response.cells - response.width) ** 2
        added = (clients - 1) * min(max(of_numbers, 0.0), _MOST_VARIANCE) / n_reports
        variance = max(variance + added, _LEAST_OWN * variance)
    return Moment(mean, variance)


def _scaled(
    value: float, variance: float, most: float, low: float, scale: float
) -> tuple[float, ...]:
    """Return the figures of `NumberEstimates` for a value in [0, most], in the metric's unit.

    Like shares these values have two ends, and the same intervals (`share_interval`).
    """
    error = np.sqrt(variance)
    interval = share_interval(np.array([value / most]), np.array([error / most]))
    ends = (most * float(interval.low[0]), most * float(interval.high[0]))
    nearest = min(max(value, 0.0), most)
    return (
        low + scale * value,
        scale * float(error),
        *(low + scale * each for each in (nearest, *ends)),
    )
