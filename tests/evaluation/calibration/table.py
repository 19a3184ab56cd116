"""A mean over runs as a table shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hubbub.inference.arrays import FloatArray


def mean_and_error(values: Sequence[float]) -> str:
    """Return "mean ± standard error" over the runs that have a value."""
    known: FloatArray = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return "-"
    digits = 1 if known.mean() >= 2 else 3
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    return f"{known.mean():.{digits}f} ± {error:.{digits}f}"
