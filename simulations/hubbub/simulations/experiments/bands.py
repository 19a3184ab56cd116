"""Precision and recall over how common strings are, and what p-values of absent strings look like.

One line a decade of shares: of the strings that common, how many were found; of the strings that
were reported as that common, how many are true.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray

EDGES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LEVELS = (0.5, 0.1, 0.05, 0.01, 0.001)


@dataclass(frozen=True, slots=True)
class Band:
    """Strings whose share lies above `low`, and at most at `high`.

    Attributes
    ----------
    low, high : float
    present, found : int
        Candidates whose *true* share is in the band; those of them that were detected.
    reported, right : int
        Detected candidates whose *estimated* share is in the band; those that somebody holds.
    """

    low: float
    high: float
    present: int
    found: int
    reported: int
    right: int

    @property
    def recall(self) -> float:
        """Share of the present that were found; nan if none is present."""
        return self.found / self.present if self.present else math.nan

    @property
    def precision(self) -> float:
        """Share of the reported that are right; nan if none is reported."""
        return self.right / self.reported if self.reported else math.nan


def bands(truth: FloatArray, share: FloatArray, detected: BoolArray) -> tuple[Band, ...]:
    """Count by decades; arrays of shape (n,)."""
    rows = []
    for low, high in itertools.pairwise(EDGES):
        present = (truth > low) & (truth <= high)
        reported = detected & (share > low) & ((share <= high) | (high == 1))
        rows.append(
            Band(
                low=low,
                high=high,
                present=int(present.sum()),
                found=int((present & detected).sum()),
                reported=int(reported.sum()),
                right=int((reported & (truth > 0)).sum()),
            )
        )
    return tuple(rows)


def p_values_below(p_value: FloatArray, truth: FloatArray) -> dict[str, float]:
    """Return the share of absent candidates whose p-value is at most each of some levels.

    No more than the level itself if p-values are what they should be; nan without absent ones.
    """
    absent = p_value[(truth == 0) & ~np.isnan(p_value)]
    return {
        f"{level:g}": float((absent <= level).mean()) if len(absent) else math.nan
        for level in LEVELS
    }
