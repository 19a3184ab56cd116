"""Estimated cells of a table of two or three fields -> margins and conditional shares.

However the cells were estimated, they are unbiased and have a covariance; sums and quotients of
them follow. Invariant: nothing here is cut off at 0 before it is added up, because sums of cut-off
estimates are biased upwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import ShareInterval, nearest_distribution, share_interval
from hubbub.inference.repeated_reports import Estimand, RepeatedReports

LEAST_Z = 5.0
"""Standard errors that a value's share must be above 0 for shares among its clients."""

# Repetitions of an interval's end, each with the error at the last one.
_STEPS = 4
# Keeps quotients finite; no total or variance that is shown is so small.
_TINY = 1e-9
# Of a variance that is left when the drawing of clients is taken off, as of strings.
_LEAST_OWN = 0.1

Draws = Callable[[FloatArray, np.random.Generator, int], FloatArray]
"""Estimates (d, n) as they would come out in d repetitions if these were the true shares (n,)."""


def normal_draws(covariance: FloatArray) -> Draws:
    """Return a function that draws normal estimates of this covariance, whatever the shares are."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def draw(shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
        return np.asarray(shares + rng.standard_normal((n_draws, len(shares))) @ root.T)

    return draw


def about(
    covariance: FloatArray, shares: FloatArray, n_reports: float, repeats: RepeatedReports
) -> FloatArray:
    """Return the covariance about whatever shares are asked for, from that about a population's.

    `covariance` has shape (n, n). `shares`, shape (n,): the estimates.
    """
    if repeats.estimand is Estimand.POPULATION:
        return covariance
    possible = np.maximum(shares, 0.0)
    possible = possible / max(1.0, float(possible.sum()))
    of_people = replace(repeats, estimand=Estimand.POPULATION)
    drawn = of_people.sampling_covariance(possible, n_reports)
    most = (1 - _LEAST_OWN) * np.diagonal(covariance)
    part = (most / np.maximum(np.diagonal(drawn), _TINY * most)).min(initial=1.0)
    return np.asarray(covariance - part * drawn)


class FieldLabels(NamedTuple):
    """A field, and its values as results show them."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JointEstimates:
    """Estimated shares of the n cells of a table; the last field's values change fastest."""

    fields: tuple[FieldLabels, ...]  # 2 or 3
    # Shape (n,); may fall outside [0, 1]; adds up to less than 1 if values of a field are left out.
    unbiased: FloatArray
    covariance: FloatArray  # shape (n, n)
    draw: Draws  # how such estimates scatter, for tests

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of the fields' values."""
        return tuple(len(field.labels) for field in self.fields)

    @property
    def cells(self) -> FloatArray:
        """`unbiased` in the table's shape."""
        return self.unbiased.reshape(self.shape)

    @property
    def total(self) -> float:
        """Estimated share of all cells."""
        return float(self.unbiased.sum())

    def margin(self, *axes: int) -> JointEstimates:
        """Return the table of some fields, in ascending order, summed over the others."""
        shape, d = self.shape, len(self.shape)
        others = tuple(axis for axis in range(d) if axis not in axes)
        unbiased = self.cells.sum(axis=others).ravel()
        twice = self.covariance.reshape(*shape, *shape)
        covariance = twice.sum(axis=(*others, *(d + axis for axis in others)))
        kept = len(unbiased)

        def draw(shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
            # Any table with these margins does: noise hardly depends on what is summed over.
            spread = prod(shape[axis] for axis in others)
            full = np.expand_dims(shares.reshape([shape[axis] for axis in axes]), others) / spread
            drawn = self.draw(np.broadcast_to(full, shape).ravel(), rng, n_draws)
            return np.asarray(drawn.reshape(n_draws, *shape).sum(axis=tuple(1 + a for a in others))
                              .reshape(n_draws, kept))  # fmt: skip

        fields = tuple(self.fields[axis] for axis in axes)
        return JointEstimates(fields, unbiased, covariance.reshape(kept, kept), draw)

    def covariance_with(self, axis: int) -> FloatArray:
        """Return each cell's covariance with the share of its own value of a field; shape (n,)."""
        shape = self.shape
        others = tuple(1 + a for a in range(len(shape)) if a != axis)
        sums = self.covariance.reshape(-1, *shape).sum(axis=others)
        own = np.indices(shape)[axis].ravel()
        return np.asarray(sums[np.arange(len(own)), own])

    @property
    def std_error(self) -> FloatArray:
        """Standard errors of `unbiased`, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def intervals(self) -> ShareInterval:
        """Return 95% intervals of the cells, each of shape (n,)."""
        return share_interval(self.unbiased, self.std_error)

    def constrained(self) -> FloatArray:
        """Return the nearest cells that are at least 0 and add up to the total; shape (n,)."""
        total = float(np.clip(self.total, _TINY, 1.0))
        variance = np.diagonal(self.covariance) / total**2
        return total * nearest_distribution(self.unbiased / total, variance)


class Conditional(NamedTuple):
    """Shares of one field's values among the clients who have a value of another."""

    given: int  # which fields
    of: int
    # Shape (values given, values of); with 95% intervals; nan where hardly anybody is known to have
    # the value that is given.
    share: FloatArray
    low: FloatArray
    high: FloatArray


def conditionals(estimates: JointEstimates) -> tuple[Conditional, ...]:
    """Return the shares of each field's values given each value of each other field."""
    axes = range(len(estimates.shape))
    found = []
    for first, second in itertools.combinations(axes, 2):
        pair = estimates.margin(first, second)
        by_row, by_column = conditional(pair, 0), conditional(pair, 1)
        found += [
            Conditional(first, second, *by_row),
            Conditional(second, first, *(values.T for values in by_column)),
        ]
    return tuple(found)


def conditional(pair: JointEstimates, given: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each cell's share of its row (given 0) or column (1), and 95% intervals.

    `pair`: of two fields. `given`: the axis among whose value's clients shares are given: 0 or 1.
    Returns `share, low, high`, shape (rows, columns).

    Notes
    -----
    The quotient rho of a cell y and its row a is where y - rho a is 0, and that is a weighted sum
    of estimates with variance V(rho) = Var(y) - 2 rho Cov(y, a) + rho^2 Var(a). So
    (y / a - rho) / (sqrt(V(rho)) / a) is about standard normal at the true rho (Fieller 1954), and
    each end of the interval is one of a share with its standard error at that end, found by
    repetition; shares near 0 and 1 are treated as all shares are (`share_interval`).
    """
    margin = pair.margin(given)
    of_cell = np.indices(pair.shape)[given].ravel()
    base, base_variance = margin.unbiased[of_cell], np.diagonal(margin.covariance)[of_cell]
    known = base > LEAST_Z * np.sqrt(base_variance)
    safe = np.where(known, base, 1.0)
    share = pair.unbiased / safe
    variance, shared = np.diagonal(pair.covariance), pair.covariance_with(given)

    def error_at(rho: FloatArray) -> FloatArray:
        contrast = variance - 2 * rho * shared + rho**2 * base_variance
        return np.asarray(np.sqrt(np.maximum(contrast, _TINY * variance)) / safe)

    low = high = np.clip(share, 0.0, 1.0)
    for _ in range(_STEPS):
        low, high = (
            share_interval(share, error_at(low)).low,
            share_interval(share, error_at(high)).high,
        )
    found = (np.where(known, values, np.nan).reshape(pair.shape) for values in (share, low, high))
    return next(found), next(found), next(found)
