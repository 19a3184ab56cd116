"""Tails of binomial distributions, good to some 12 digits however small they are.

scipy.stats takes half a second to import, and its cdf has no more than nine of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from hubbub.inference.arrays import FloatArray


def more_than(ones: ArrayLike, n: ArrayLike, p: float) -> FloatArray:
    """Return the chance of more than so many of n, each with chance p."""
    return _tail(special.betainc, ones, n, p, below=1.0)


def at_most(ones: ArrayLike, n: ArrayLike, p: float) -> FloatArray:
    """Return the chance of at most so many of n, each with chance p."""
    return _tail(special.betaincc, ones, n, p, below=0.0)


def _tail(
    beta: Callable[..., FloatArray], ones: ArrayLike, n: ArrayLike, p: float, below: float
) -> FloatArray:
    k, n = np.floor(ones), np.asarray(n, dtype=np.float64)
    inside = (k >= 0) & (k < n)
    found = beta(np.where(inside, k + 1, 1.0), np.where(inside, n - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, below, 1.0 - below))
