"""How likely an absent string is to look present: tail probabilities over the hash.

An absent string sets random bits, so its score T = sum_ci g[c, J_ci], with J_ci independent and
uniform over the k positions, has a distribution that is known exactly *given* the residual scores
g. That holds whatever the residuals hold, unlisted strings included, which no normal approximation
promises when a few strong strings stick out. Small problems are enumerated; otherwise the tail is a
saddlepoint approximation (Lugannani and Rice 1980, in Barndorff-Nielsen's r* form).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, PositionArray

# A million outcomes are few enough to enumerate; with more the saddlepoint approximation is good.
_ENUMERABLE = 2**20
# Scores of one cohort are put into at most so many classes of values: each is moved by less than a
# thousandth of their range, and the mean stays.
_MOST_CLASSES = 1024
# The saddlepoint formula is 0 / 0 at the mean; within .001 deviations the table of all totals is
# interpolated.
_NEAR_MEAN = 1e-3
# Grid of saddlepoints, in standard deviations: 40 is ln p of about -800, beyond what any list asks
# for; low totals are never significant, so that half is enough. Nearer to 0 than .05 rounding would
# show. Between them r* is interpolated, to some thousandths.
_FARTHEST, _NEAREST = 40.0, 0.05
# Newton's steps, halving where these leave the bracket, until one would be this short. The last is
# not evaluated: to second order it is known what it gives.
_NEWTON_STEPS, _NEWTON_CLOSE = 40, 1e-5
_GRID_BELOW, _GRID_ABOVE, _GRID_END, _FINER = 20, 56, 40, 16
# ... at which the standardised distribution is returned: linear between these in ln p.
_FINE_BELOW, _FINE_ABOVE = 100, 320


class _Cumulants(NamedTuple):
    """Cumulant generating function of T at t, and its first two derivatives."""

    value: float
    mean: float
    variance: float


class HashNull:
    """The distribution of an absent candidate's score.

    `scores`, shape (m, k): g: what a candidate gains for each bit it sets. `hashes`: h.
    """

    def __init__(self, scores: FloatArray, hashes: int) -> None:
        informative = scores.max(axis=1) > scores.min(axis=1)
        self._constant = hashes * float(scores[~informative, 0].sum())
        self._scores = scores if informative.all() else scores[informative]
        self._hashes = hashes
        means = self._scores.mean(axis=1)
        apart = self._scores - means[:, None]
        variance = float(np.vdot(apart, apart)) / scores.shape[1]
        self._mean, self._deviation = hashes * float(means.sum()), math.sqrt(hashes * variance)
        self._classes, self._chances = _classes(self._scores)

    def log_tails(self, totals: FloatArray) -> FloatArray:
        """Return ln P(T >= t) for many t at once.

        `totals` has shape (n,).
        """
        given = totals - self._constant
        if not len(self._scores):
            return np.zeros(len(given))
        if self._is_enumerable():
            return self._enumerated(given)
        return self._interpolated(given)

    def log_tail(self, total: float) -> float:
        """Return ln P(T >= t) for one t; cheaper than `log_tails` where distributions differ."""
        given = total - self._constant
        z = (given - self._mean) / self._deviation if self._deviation else 0.0
        if self._is_enumerable() or abs(z) < _NEAR_MEAN:
            return float(self.log_tails(np.array([total]))[0])
        end = _FARTHEST if z > 0 else -_FARTHEST / 2
        saddle = self._saddle(given, z, end)
        if saddle is None:
            # Beyond the grid: the least log tail that any total has.
            saddles = np.geomspace(end / _FARTHEST, end, _GRID_END) / self._deviation
            tails = [_log_tail_at(t, self._cumulants(t)) for t in saddles]
            return max(min(tails), self.log_smallest()) if end > 0 else tails[-1]
        t, cumulants = saddle
        return max(_log_tail_at(t, cumulants, given - cumulants.mean), self.log_smallest())

    def _saddle(self, given: float, z: float, end: float) -> tuple[float, _Cumulants] | None:
        """Return t for which K'(t) is nearly a total: Newton's steps, and halving if these leave.

        None if t would lie beyond the end, which is asked only where a step goes there.
        """
        low, high = sorted((0.0, end))
        scaled, within = float(np.clip(z, low, high)), False
        for _ in range(_NEWTON_STEPS):
            cumulants = self._cumulants(scaled / self._deviation)
            short = (given - cumulants.mean) / self._deviation
            slope = cumulants.variance / self._deviation**2
            if abs(short) < _NEWTON_CLOSE * min(slope, 1.0):
                break
            low, high = (scaled, high) if short > 0 else (low, scaled)
            scaled = scaled + short / slope if slope > 0 else np.inf
            if not low < scaled < high:
                if not within and (given - self._cumulants(end / self._deviation).mean) * z >= 0:
                    return None
                scaled, within = (low + high) / 2, True
        return scaled / self._deviation, cumulants

    def standardised(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the distribution of the standardised T, or None if it has few outcomes.

        Returns `z`, shape (g,): in ascending order. `log_tails`, shape (g,): ln P((T - mean) /
        deviation >= z).
        """
        if not len(self._scores) or not self._deviation or self._is_enumerable():
            return None
        below = -np.geomspace(_FARTHEST / 2, _NEAR_MEAN, _FINE_BELOW)
        z = np.concatenate([below, np.geomspace(_NEAR_MEAN, _FARTHEST, _FINE_ABOVE)])
        z = z[z * self._deviation + self._mean <= self._curve[0][-1]]
        return z, self._interpolated(z * self._deviation + self._mean)

    def z_scores(self, totals: FloatArray) -> FloatArray:
        """Return how many standard deviations totals lie above the mean; 0 if there is only one."""
        centred = totals - self._constant - self._mean
        return np.asarray(centred / self._deviation if self._deviation else np.zeros_like(centred))

    def _is_enumerable(self) -> bool:
        draws = len(self._scores) * self._hashes
        return bool(draws * np.log(self._scores.shape[1]) <= np.log(_ENUMERABLE))

    def log_smallest(self) -> float:
        """Log of the least probability that any outcome of the hash has."""
        return -len(self._scores) * self._hashes * float(np.log(self._scores.shape[1]))

    def _enumerated(self, totals: FloatArray) -> FloatArray:
        outcomes = np.zeros(1)
        for row in self._scores:
            for _ in range(self._hashes):
                outcomes = np.add.outer(outcomes, row).ravel()
        outcomes.sort()
        slack = 1e-9 * max(self._deviation, np.finfo(float).tiny)
        reached = len(outcomes) - np.searchsorted(outcomes, totals - slack)
        return np.asarray(np.log(np.maximum(reached, 1) / len(outcomes)))

    def _interpolated(self, given: FloatArray) -> FloatArray:
        tails = special.log_ndtr(-np.interp(given, *self._curve))
        return np.asarray(np.maximum(tails, self.log_smallest()))

    @cached_property
    def _curve(self) -> tuple[FloatArray, FloatArray]:
        """Ascending totals, and of which normal z-score each one has the tail.

        Those are nearly a straight line, so that few points are enough to interpolate. They aren't
        bounded by that of the least likely outcome: between points that would be a corner.
        """
        below = -np.geomspace(_FARTHEST / 2, _NEAREST, _GRID_BELOW)
        above = np.geomspace(_NEAREST, _FARTHEST, _GRID_ABOVE)
        saddles = np.concatenate([below, above]) / self._deviation
        cumulants = [self._cumulants(t) for t in saddles]
        z = [_z_at(t, c) for t, c in zip(saddles, cumulants, strict=True)]
        grid = np.maximum.accumulate([c.mean for c in cumulants])
        rising = np.diff(grid, prepend=-np.inf) > _NEAR_MEAN * self._deviation
        return _finer(grid[rising], np.maximum.accumulate(z)[rising])

    def _cumulants(self, t: float) -> _Cumulants:
        apart, squares, end = self._from_highest if t > 0 else self._from_lowest
        weights = t * apart
        np.exp(weights, out=weights)
        if isinstance(self._chances, float):
            sums = weights.sum(axis=1)
            value = np.log(sums * self._chances).sum()
        else:
            weights *= self._chances
            sums = weights.sum(axis=1)
            value = np.log(sums).sum()
        means = np.einsum("ij,ij->i", weights, apart) / sums
        second = np.einsum("ij,ij->i", weights, squares) / sums
        return _Cumulants(
            self._hashes * float(value + t * end),
            self._hashes * float(means.sum() + end),
            self._hashes * float((second - means**2).sum()),
        )

    @cached_property
    def _from_highest(self) -> tuple[FloatArray, FloatArray, float]:
        return _apart(self._classes, self._classes.max(axis=1))

    @cached_property
    def _from_lowest(self) -> tuple[FloatArray, FloatArray, float]:
        return _apart(self._classes, self._classes.min(axis=1))


def _apart(classes: FloatArray, ends: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    apart = classes - ends[:, None]
    return apart, apart**2, float(ends.sum())


def score_totals(scores: FloatArray, positions: PositionArray) -> FloatArray:
    """Return each candidate's T, of a few candidates.

    `scores` has shape (m, k). `positions` has shape (n, m, h).
    """
    cohorts = np.arange(len(scores))[:, None]
    return np.asarray(scores[cohorts, positions].sum(axis=(1, 2)))


def _classes(scores: FloatArray) -> tuple[FloatArray, FloatArray | float]:
    """Return distinct values of each row's scores and their chances, many scores summed up.

    Beyond `_MOST_CLASSES` scores, those that lie within a class of values are their mean: that
    takes 1 / 12 of the class's squared width from the variance, below 1e-6 of it.
    """
    size = scores.shape[1]
    if size <= _MOST_CLASSES:
        return scores, 1 / size
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    own = ((scores - low) * ((_MOST_CLASSES - 1) / (high - low))).astype(np.int64)
    own += _MOST_CLASSES * np.arange(len(scores))[:, None]
    shape = len(scores), _MOST_CLASSES
    members = np.bincount(own.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(own.ravel(), scores.ravel(), shape[0] * shape[1]).reshape(shape)
    return np.divide(sums, members, out=sums, where=members > 0), members / size


def _finer(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return more points of a rising curve: cubics with the slopes of Fritsch and Butland (1984).

    `x` and `y`, shape (g,): x in strictly ascending order, y in ascending order.
    """
    if len(x) == 1:
        return x, y
    steps, secants = np.diff(x), np.diff(y) / np.diff(x)
    before, after = steps[:-1] + 2 * steps[1:], 2 * steps[:-1] + steps[1:]
    pulls = before * secants[1:] + after * secants[:-1]
    product = (before + after) * secants[:-1] * secants[1:]
    inner = np.divide(product, pulls, out=np.zeros_like(pulls), where=pulls > 0)
    slopes = np.concatenate([secants[:1], inner, secants[-1:]])
    u = (np.arange(_FINER) / _FINER)[:, None]
    rise, bend = steps * secants, steps * (slopes[:-1] + slopes[1:] - 2 * secants)
    curve = y[:-1] + u * rise + u * (1 - u) * (steps * (slopes[:-1] - secants) - u * bend)
    finer = (x[:-1] + u * steps).T.ravel()
    return np.append(finer, x[-1]), np.append(curve.T.ravel(), y[-1])


def _log_tail_at(t: float, cumulants: _Cumulants, short: float = 0.0) -> float:
    return float(special.log_ndtr(-_z_at(t, cumulants, short)))


def _z_at(t: float, cumulants: _Cumulants, short: float = 0.0) -> float:
    value, mean, variance = cumulants
    step = short / variance if variance > 0 else 0.0
    exponent = max(t * (mean + short) - value + step * short / 2, 0.0)
    r = float(np.sign(t) * np.sqrt(2 * exponent))
    u = (t + step) * float(np.sqrt(max(variance, 0.0)))
    return r if r == 0 or u == 0 else float(r + np.log(u / r) / r)
