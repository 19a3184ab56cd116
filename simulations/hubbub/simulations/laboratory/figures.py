"""Figures over trials: a mean with its standard error, and whether it lies beyond a bound.

A figure is compared with its bound by a one-sided test: it breaks the bound only if it lies beyond
it by more standard errors than Student's t allows with probability `ALARM`. Standard errors come
from the scatter between trials; where a figure is a share of names, they are never taken below what
independent names would give, so that a few trials that happen to agree prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.inference.arrays import FloatArray

ALARM = 1e-3
"""Chance that a figure which lies exactly on its bound is called broken."""
MISSED = 0.05
"""Share of 95% intervals that miss the truth, and level of detections: a name's variance if names
were independent is `MISSED * (1 - MISSED)`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over trials with its standard error (nan where no trial tells it).

    Attributes
    ----------
    mean : float
    std_error : float
        Infinite if it rests on a single trial.
    runs : int
        Trials that it rests on.
    """

    mean: float
    std_error: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> Figure:
        """Return the mean over the trials that have a value, which isn't nan."""
        array = np.asarray(values, dtype=np.float64)
        known = array[~np.isnan(array)]
        if not len(known):
            return UNKNOWN
        scatter = float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.inf
        return cls(float(known.mean()), scatter, len(known))

    @classmethod
    def of_shares(cls, values: Sequence[float], names: float) -> Figure:
        """Return the mean of shares that rest on so many names in all."""
        return cls.of(values)._floored(names)

    @classmethod
    def of_ratio(cls, shares: Sequence[float], names: FloatArray) -> Figure:
        """Return the share over all trials' names together, with a ratio estimate's standard error.

        Parameters
        ----------
        shares : sequence of float, length n
            Each trial's share.
        names : float64 array, shape (n,)
            How many names it is a share of.
        """
        used = names > 0
        if not used.any():
            return UNKNOWN
        hits, total = np.array(shares)[used] * names[used], float(names.sum())
        mean, runs = float(hits.sum()) / total, int(used.sum())
        scatter = math.inf
        if runs > 1:
            deviations = hits - mean * names[used]
            scatter = math.sqrt(float(deviations @ deviations) * runs / (runs - 1)) / total
        return cls(mean, scatter, runs)._floored(total)

    def above(self, bound: float) -> bool:
        """Whether it is above a bound beyond what chance allows."""
        return self.runs > 0 and self.mean - bound > self._margin()

    def below(self, bound: float) -> bool:
        """Whether it is below a bound beyond what chance allows."""
        return self.runs > 0 and bound - self.mean > self._margin()

    def outside(self, bounds: tuple[float, float]) -> bool:
        """Whether it is below the lower or above the upper of two bounds."""
        return self.below(bounds[0]) or self.above(bounds[1])

    def __str__(self) -> str:
        """Return "mean ± standard error" as tables show it; nothing if there is none."""
        if math.isnan(self.mean):
            return ""
        # Counts to a tenth, shares to a thousandth.
        digits = 1 if self.mean >= 2 else 3
        error = "" if math.isinf(self.std_error) else f" ± {self.std_error:.{digits}f}"
        return f"{self.mean:.{digits}f}{error}"

    def _margin(self) -> float:
        if self.runs > 1:
            return float(stats.t.isf(ALARM, self.runs - 1)) * self.std_error
        return float(stats.norm.isf(ALARM)) * self.std_error

    def _floored(self, names: float) -> Figure:
        if not self.runs or not names:
            return self
        alone = math.sqrt(MISSED * (1 - MISSED) / names)
        scatter = alone if math.isinf(self.std_error) else max(self.std_error, alone)
        return Figure(self.mean, scatter, self.runs)


UNKNOWN = Figure(math.nan, math.nan, 0)
"""A figure that a case doesn't have."""
