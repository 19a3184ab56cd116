"""How far from 0 a difference must be to count, looked at once or every day.

Looked at once, a difference over its standard error is normal. Looked at while reports come in, it
is a Brownian motion in the time g = (scale / standard error)^2, and Robbins' normal mixture bounds
it at all times together (Howard, Ramdas, McAuliffe and Sekhon 2021; Waudby-Smith et al. 2024):

    E = (1 + g)^(-1/2) exp(z^2/2 g/(1 + g)),    P(E is ever 1/alpha or more) <= alpha.

Invariant: the scale is known before any report is; one that was chosen by what is seen would void
the bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray
from hubbub.inference.testing.intervals import CONFIDENCE
from hubbub.inference.testing.multiple_testing import LOG_HALF

_FIRST_LOOK, _REACH = 30_000, 3.0
"""Reports in each group at a typical first look, and the standard errors that an interval reaches.
More reports than that hardly widen intervals, a tenth of them does."""
_FARTHEST, _HALVINGS = 40.0, 60
"""Standard errors within which an interval ends, and halvings after which its ends stand."""


class SequentialTest(ABC):
    """How often differences of s rows are looked at. Arrays are of shape (s,)."""

    @abstractmethod
    def log_p(self, z: FloatArray, std_error: FloatArray) -> FloatArray:
        """Return ln of the two-sided p-values of differences of z standard errors."""

    @abstractmethod
    def critical_z(self, log_level: float, std_error: FloatArray) -> FloatArray:
        """Return the |z| whose p-values are a level."""

    @abstractmethod
    def conditional_interval(
        self, z: FloatArray, std_error: FloatArray, cutoff: FloatArray, log_error_rate: float
    ) -> FloatArray:
        """Return 95% intervals of rows that were picked because they differ; shape (2, s).

        `z` and `std_error`: z is above 0, and ends are in standard errors. `cutoff`: the z from
        which on a row was picked. `log_error_rate`: ln of .05, divided among the rows as the
        correction has it.
        """


@dataclass(frozen=True, slots=True)
class FixedSample(SequentialTest):
    """A single look, whose time was settled beforehand."""

    def log_p(self, z: FloatArray, std_error: FloatArray) -> FloatArray:  # noqa: ARG002
        """Return those of normal differences."""
        return np.asarray(special.log_ndtr(-np.abs(z)) - LOG_HALF)

    def critical_z(self, log_level: float, std_error: FloatArray) -> FloatArray:
        """Return the normal distribution's quantile."""
        return np.full(np.shape(std_error), -float(special.ndtri_exp(log_level + LOG_HALF)))

    def conditional_interval(
        self,
        z: FloatArray,
        std_error: FloatArray,  # noqa: ARG002
        cutoff: FloatArray,
        log_error_rate: float,  # noqa: ARG002
    ) -> FloatArray:
        """Return intervals that hold given that |z| passed the cutoff."""
        return after_marking(z, cutoff)


def scale_of(variance: float) -> float:
    """Return a mixture's scale, by what is known before any report is.

    `variance`: of a report's estimate of the share that is known worst.
    """
    return _REACH * math.sqrt(2 * variance / _FIRST_LOOK)


@dataclass(frozen=True, slots=True)
class AlwaysValid(SequentialTest):
    """Any number of looks at a growing set of reports."""

    # Shape (s,), or float; standard deviation of the normal mixture, in the unit of the
    # differences: bounds are tightest where an interval reaches about so far to either side.
    scale: FloatArray | float

    def log_p(self, z: FloatArray, std_error: FloatArray) -> FloatArray:
        """Return -ln E, at most 0: valid whenever one looks, without any earlier look."""
        time = self._time(std_error)
        return np.minimum((np.log1p(time) - z**2 * time / (1 + time)) / 2, 0.0)

    def critical_z(self, log_level: float, std_error: FloatArray) -> FloatArray:
        """Return the boundary of the mixture."""
        time = self._time(std_error)
        return np.asarray(np.sqrt((1 + 1 / time) * (np.log1p(time) - 2 * log_level)))

    def conditional_interval(
        self,
        z: FloatArray,
        std_error: FloatArray,
        cutoff: FloatArray,  # noqa: ARG002
        log_error_rate: float,
    ) -> FloatArray:
        """Return intervals of which at most 5% miss, whichever rows are picked (e-BY)."""
        return z + np.outer([-1.0, 1.0], self.critical_z(log_error_rate, std_error))

    def _time(self, std_error: FloatArray) -> FloatArray:
        return np.asarray((self.scale / std_error) ** 2)


def after_marking(z: FloatArray, cutoff: FloatArray | float) -> FloatArray:
    """Return 95% intervals of normal means, given that |z| passed a cutoff; shape (2, n).

    `z`, shape (n,): observed, at least `cutoff`; of unit variance. `cutoff`, shape (n,): above 0.

    Notes
    -----
    The means mu for which P(Z >= z | |Z| >= cutoff) is .025 and .975, found by bisection: it rises
    with mu. So the interval holds mu in 95% of the cases in which a row is marked, whatever mu is.
    """
    tails = np.log([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])[:, None]
    below, above = np.array([z - _FARTHEST, z + _FARTHEST])[:, None] * np.ones((1, 2, 1))
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        marked = np.logaddexp(special.log_ndtr(middle - cutoff), special.log_ndtr(-cutoff - middle))
        is_low = special.log_ndtr(middle - z) - marked < tails
        below, above = np.where(is_low, middle, below), np.where(is_low, above, middle)
    return np.asarray((below + above) / 2)
