"""A series of days -> its level shifts, stretches of other days, and weekly pattern.

Days are independent normals with known, unequal variances: a constant, or from three weeks on a
level for each weekday, and intervals of days that differ from the rest. An interval that reaches to
the end is a shift, one inside a stretch, of one day a spike. How often chance alone makes one as
conspicuous as the most conspicuous one has a bound in closed form.

Invariants: weekdays have levels wherever there are three weeks, whether a pattern is found or not,
so that no interval's chance depends on an earlier test; small chances keep their digits, so
results are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray

_FAR = 8.0
"""Beyond it the union bound is taken: it is below 1e-14 for each variable there."""


def log_exceedance_bound(size: float, neighbours: FloatArray) -> float:
    """Return an upper bound of ln P(max_i |Z_i| > size), whatever the normals' joint distribution.

    `size`: the size that is exceeded. `neighbours`, shape (n - 1,): correlations of each variable
    with the next one.

    Notes
    -----
    P(|Z_1| > b) + sum_i P(|Z_i| > b, |Z_(i-1)| <= b) (Hunter, Journal of Applied Probability 13,
    1976).
    """
    if size >= _FAR:
        return _log_union(size, len(neighbours) + 1)
    once = float(special.erfc(size / math.sqrt(2.0)))
    return min(0.0, math.log(once + float(_first_exits(size, neighbours).sum())))


def _log_union(size: float, n: int) -> float:
    return min(0.0, math.log(2 * n) + float(special.log_ndtr(-size)))


def _first_exits(size: float, correlations: FloatArray) -> FloatArray:
    """Return P(|Y| > size, |X| <= size), or a little more, of pairs of normals.

    It is 2 P(Y > b, X <= b) less P(Y > b, X < -b) and its like, which is left out: it matters only
    where nothing is small. P(Y > b, X <= b) = 2 T(b, sqrt((1 - r)/(1 + r))), with Owen's T.
    """
    close = np.minimum(np.abs(correlations), 1.0)
    return np.asarray(4.0 * special.owens_t(size, np.sqrt((1.0 - close) / (1.0 + close))))


WEEK = 7
LEAST_DAYS = 3 * WEEK
"""Days with estimates from which on weekdays have levels of their own."""
# A series is asked three things at one level, of which each has its part; they add up to 1.
_OF_SHIFTS, _OF_STRETCHES, _OF_PATTERN = math.log(0.8), math.log(0.15), math.log(0.05)
_LEAST_INFORMATION = 1e-11
"""Least part of all days' weights that an interval adds to the model."""
_TINY = 1e-300  # stands for 0 in logarithms
_ALIKE = 1e-9  # relative: what rounding makes of two equal sizes


@dataclass(frozen=True, slots=True)
class Change:
    """Days on which a share is another than on those around them."""

    day: int  # index of the first day that differs
    last: int | None  # index of the last one; None: all days from `day` on
    p_value: float  # of "nothing else changed" when it was found
    # The level on the first day without this change, and with it, on an average weekday.
    before: float
    after: float
    std_error: float  # of their difference
    after_std_error: float  # of `after`

    @property
    def form(self) -> str:
        """Return "shift" (from a day on), "spike" (one day) or "stretch" (several, and back)."""
        if self.last is None:
            return "shift"
        return "spike" if self.last == self.day else "stretch"


@dataclass(frozen=True, slots=True)
class SeriesFit:
    """Changes and weekly pattern of a series, estimated together."""

    changes: tuple[Change, ...]  # by day
    # Shape (d,); on an average weekday, with the changes; nan if there are no estimates.
    level: FloatArray
    # Shape (7,); days 0, 7, 14, ... less the mean over weekdays, then days 1, 8, ..., and so on,
    # and their standard errors; nan without three weeks, or where a weekday has no estimates.
    weekday_effect: FloatArray
    weekday_error: FloatArray
    # Ln of the p-value of "all weekdays are alike" given these changes; 0 without three weeks.
    weekly_log_p: float


def change_log_p(shares: FloatArray, variances: FloatArray, common: float = 0.0) -> float:
    """Return ln of the p-value of "all days are alike", or all weeks if there are three.

    `shares`, shape (d,): one a day; nan where there is none. `variances`, shape (d,): of the noise,
    independent from day to day. `common`: variance of an error that days of an interval share, and
    so do all others, and those of a weekday; 0 if every day has the same one.
    """
    best = _most_conspicuous(_Series.of(shares, variances, common), [])
    return best.log_p if best else 0.0


def fit_changes(
    shares: FloatArray, variances: FloatArray, level: float, common: float = 0.0
) -> SeriesFit:
    """Find intervals that differ, one after the other, and the weekly pattern with them.

    What was found is in the model in which the next interval is looked for. A stretch that begins
    or ends where a shift is means two shifts.

    `shares` and `variances`: as for `change_log_p`. `level`: greatest p-value of a change; 0 to
    look for none. `common`: as for `change_log_p`.

    Examples
    --------
    Shares with a standard error of one percentage point, and a day without any:

    >>> shares = np.array([0.20, 0.21, 0.20, np.nan, 0.30, 0.31, 0.30, 0.50, 0.31])
    >>> for change in fit_changes(shares, np.full(9, 0.01**2), level=0.05).changes:
    ...     print(change.form, change.day, round(change.before, 3), round(change.after, 3))
    shift 4 0.203 0.305
    spike 7 0.305 0.5
    """
    series = _Series.of(shares, variances, common)
    found: list[_Interval] = []
    while level > 0 and (best := _most_conspicuous(series, found)):
        if best.log_p > math.log(level):
            break
        found.append(best)
    return _fit(series, _as_shifts(found, len(series.days)), len(shares))


class _Interval(NamedTuple):
    """An interval of the days with estimates, by their places, and ln of its p-value."""

    log_p: float
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Series:
    """The days with estimates."""

    days: IntArray  # shape (n,); indices
    # Shape (n,); estimates, and the roots of their weights, which are one over the noise's
    # variances.
    values: FloatArray
    root: FloatArray
    common: float  # variance of what days share

    @classmethod
    def of(cls, shares: FloatArray, variances: FloatArray, common: float) -> _Series:
        days = np.flatnonzero(np.isfinite(shares) & (variances > 0))
        return cls(days, shares[days], 1.0 / np.sqrt(variances[days]), common)

    @property
    def of_weekday(self) -> BoolArray:
        """Days of each level: one per weekday with estimates, or a single one."""
        if len(self.days) < LEAST_DAYS:
            return np.ones((len(self.days), 1), dtype=np.bool_)
        return np.asarray(self.days[:, None] % WEEK == np.unique(self.days % WEEK))

    def scaled_design(self, found: Sequence[_Interval]) -> FloatArray:
        """Return the columns of levels and intervals, times the roots of the weights."""
        places = np.arange(len(self.days))
        inside = [(places >= each.start) & (places < each.stop) for each in found]
        return np.asarray(self.root[:, None] * np.column_stack([self.of_weekday, *inside]))

    def scores(self, design: FloatArray) -> _Scores:
        """Return the scores of intervals added to a scaled design."""
        basis = np.linalg.qr(design)[0]
        n_days = len(self.days)
        days, ends = np.arange(n_days), np.arange(n_days + 1)
        steps = np.where(days[:, None] < ends, self.root[:, None], 0.0)
        steps -= basis @ (basis.T @ steps)
        return _Scores(steps.T @ (self.root * self.values), steps.T @ steps)


class _Scores(NamedTuple):
    """Scores u'My and their covariances u'Mv: of an interval as the difference of its ends'."""

    before: FloatArray  # shape (n + 1,); of the days before each place
    products: FloatArray  # shape (n + 1, n + 1); of each two of these

    def of(self, a: IntArray, b: IntArray) -> FloatArray:
        """Return the scores of intervals [a, b)."""
        return np.asarray(self.before[b] - self.before[a])

    def covariance(self, a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> FloatArray:
        """Return that of the scores of intervals [a, b) and [c, d)."""
        products = self.products
        return np.asarray(products[b, d] - products[b, c] - products[a, d] + products[a, c])


def _most_conspicuous(series: _Series, found: Sequence[_Interval]) -> _Interval | None:
    """Return the interval outside the model that is least likely by chance.

    Notes
    -----
    W are the weights, X the model's columns, M = W - W X (X'WX)^-1 X'W. An interval with indicator
    u is estimated by u'My/u'Mu with variance 1/u'Mu, and u'Mv is the covariance of u'My and v'My.
    """
    n_days = len(series.days)
    scores = series.scores(series.scaled_design(found))
    covariance = scores.covariance
    least = _LEAST_INFORMATION * float(np.sum(series.root**2))
    best = None
    for log_part, starts, stops in _families(n_days):
        kept = covariance(starts, stops, starts, stops) > least
        if not kept.any():
            continue
        a, b = starts[kept], stops[kept]
        information = covariance(a, b, a, b)
        deviation = np.sqrt(information)
        sizes = np.abs(scores.of(a, b)) / deviation
        sizes /= np.sqrt(1.0 + 2.0 * series.common * information)
        most = _largest(series, found, sizes, a, b)
        neighbours = covariance(a[:-1], b[:-1], a[1:], b[1:]) / (deviation[:-1] * deviation[1:])
        log_chance = log_exceedance_bound(float(sizes[most]), neighbours)
        interval = _Interval(min(log_chance - log_part, 0.0), int(a[most]), int(b[most]))
        best = min(best or interval, interval)
    return best


def _largest(
    series: _Series,
    found: Sequence[_Interval],
    sizes: FloatArray,
    starts: IntArray,
    stops: IntArray,
) -> int:
    """Return the interval that stands out most, of those that do alike the one without weekdays.

    Of a weekday with two estimates either may be the day that differs; less of a weekly pattern is
    then the simpler story.
    """
    alike = np.flatnonzero(sizes >= sizes.max() * (1.0 - _ALIKE))
    if len(alike) == 1:
        return int(alike[0])
    inside = series.scaled_design(found)[:, series.of_weekday.shape[1] :]
    scores = series.scores(np.column_stack([series.root, inside]))
    a, b = starts[alike], stops[alike]
    sizes = np.abs(scores.of(a, b)) / np.sqrt(scores.covariance(a, b, a, b))
    return int(alike[np.argmax(sizes)])


def _families(n_days: int) -> Iterator[tuple[float, IntArray, IntArray]]:
    """Return shifts, and stretches of each length to half of the days: parts, starts, stops.

    Of the stretches' part those of l days have 1/(l (l + 1)), which adds up to less than 1.
    """
    cuts = np.arange(1, n_days)
    yield _OF_SHIFTS, cuts, np.full(len(cuts), n_days)
    for length in range(1, n_days // 2 + 1):
        starts = np.arange(1, n_days - length)
        yield _OF_STRETCHES - math.log(length * (length + 1)), starts, starts + length


def _as_shifts(found: Sequence[_Interval], n_days: int) -> list[_Interval]:
    """Return intervals of the same model, with two shifts for a stretch that touches one."""
    shifts = {each.start: each for each in found if each.stop == n_days}
    kept = []
    for each in found:
        if each.stop < n_days and shifts.keys() & {each.start, each.stop}:
            for place in (each.start, each.stop):
                shifts.setdefault(place, _Interval(each.log_p, place, n_days))
        elif each.stop < n_days:
            kept.append(each)
    return [*kept, *shifts.values()]


def _fit(series: _Series, found: Sequence[_Interval], n_days: int) -> SeriesFit:
    """Estimate the levels of weekdays and the changes together."""
    if not len(series.days):
        return SeriesFit((), np.full(n_days, np.nan), *_no_weekdays(), 0.0)
    basis, triangle = np.linalg.qr(series.scaled_design(found))
    inverse = np.linalg.inv(triangle)
    coefficients = inverse @ (basis.T @ (series.root * series.values))
    covariance = inverse @ inverse.T
    n_levels = len(coefficients) - len(found)
    levels, sizes = coefficients[:n_levels], coefficients[n_levels:]
    std_errors = np.sqrt(np.diag(covariance)[n_levels:] + 2.0 * series.common)

    level = np.full(n_days, levels.mean())
    firsts = [int(series.days[each.start]) for each in found]
    lasts = [
        int(series.days[each.stop - 1]) if each.stop < len(series.days) else None for each in found
    ]
    for first, last, size in zip(firsts, lasts, sizes, strict=True):
        level[first : None if last is None else last + 1] += size
    changes = []
    for place, (first, last, each) in enumerate(zip(firsts, lasts, found, strict=True)):
        # The level on the first day: the mean of the weekdays', and each interval that has the day.
        sums = [1.0 / n_levels] * n_levels
        sums += [float(other.start <= each.start < other.stop) for other in found]
        after, size = float(level[first]), float(sizes[place])
        variance = np.array(sums) @ covariance @ np.array(sums) + series.common
        changes.append(
            Change(
                first,
                last,
                math.exp(each.log_p),
                after - size,
                after,
                float(std_errors[place]),
                float(np.sqrt(variance)),
            )
        )
    changes.sort(key=lambda change: (change.day, change.form))
    if n_levels == 1:
        return SeriesFit(tuple(changes), level, *_no_weekdays(), 0.0)

    centre = np.eye(n_levels) - 1.0 / n_levels
    effects = centre @ levels
    of_levels = covariance[:n_levels, :n_levels] + series.common * np.eye(n_levels)
    of_effects = centre @ of_levels @ centre
    effect, error = _no_weekdays()
    weekdays = np.unique(series.days % WEEK)
    effect[weekdays], error[weekdays] = effects, np.sqrt(np.diag(of_effects))
    squared = effects @ np.linalg.pinv(of_effects, hermitian=True) @ effects
    log_p = math.log(max(float(special.chdtrc(n_levels - 1, squared)), _TINY)) - _OF_PATTERN
    return SeriesFit(tuple(changes), level, effect, error, min(log_p, 0.0))


def _no_weekdays() -> tuple[FloatArray, FloatArray]:
    return np.full(WEEK, np.nan), np.full(WEEK, np.nan)
