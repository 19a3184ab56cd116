"""How much likelier reports are under one value than under another, and how much of them is noise.

A metric type's two worst values decide how well a crowd hides one client; `privacy.amplification`
makes bounds of these ratios. They are about all reports that a client makes of one permanent
response: of a bit these hold no more than how often it was 1.

Invariant: where ratios are moved, their sums only spread in the convex order, so bounds only grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray
from hubbub.protocol import RapporParams, Response, Subset, Window

_MOST_VALUES = 64  # of a product over a value's bits: twice as many lower no bound by .2%


@dataclass(frozen=True, slots=True)
class Ratios:
    """Likelihood ratios of reports for one value against another, and how much noise hides them."""

    # Share gamma of a client's reports that doesn't depend on the value: with this probability all
    # of them together are a draw from one distribution, the blanket, whoever sends them.
    blanket: float
    # Shape (a,); the blanket's probability of each class of reports with equal ratios.
    chance: FloatArray
    # Shape (a,); how likely such reports are under either value, relative to the blanket.
    first: FloatArray
    second: FloatArray

    def swapped(self) -> Ratios:
        """Return the same with the two values exchanged."""
        return Ratios(self.blanket, self.chance, self.second, self.first)


def filter_ratios(params: RapporParams, reports: int = 1) -> Ratios:
    """Return the ratios of two values that set h bits each, none in common.

    The distribution of a client's reports relative to that of no true bit at all is a product over
    the value's bits, each factor X at least Q, the least ratio of a bit: so a share Q^h of every
    client's reports is noise that has no true bit. Under it each of the 2h bits has ratio X
    independently, with mean 1.

    `reports`: n, of one permanent response.
    """
    ratio, chance = _of_bit(params, reports)
    # One report has two ratios per bit, and is exact. More have n + 1, which move to a geometric
    # grid, where products stay: each is split between its neighbours so that its mean stays.
    cells = 1 if reports == 1 else max(_MOST_VALUES // params.h, 1)
    low, growth = float(ratio.min()), (float(ratio.max()) / float(ratio.min())) ** (1 / cells)
    grid = low * growth ** np.arange(cells + 1)
    below = np.clip(np.searchsorted(grid, ratio, side="right") - 1, 0, cells - 1)
    upper = np.clip((ratio - grid[below]) / (grid[below + 1] - grid[below]), 0.0, 1.0) * chance
    of_bit = np.bincount(below, chance - upper, cells + 1)
    of_bit += np.bincount(below + 1, upper, cells + 1)
    of_value = np.ones(1)
    for _ in range(params.h):
        of_value = np.convolve(of_value, of_bit)
    product = low**params.h * growth ** np.arange(len(of_value))
    return Ratios(
        blanket=low**params.h,
        chance=np.outer(of_value, of_value).ravel(),
        first=np.repeat(product, len(product)),
        second=np.tile(product, len(product)),
    )


def bit_ratios(params: RapporParams, reports: int = 1) -> Ratios:
    """Return the ratios of one bit that is set under the first value only.

    `reports`: n, of one permanent response.
    """
    ratio, chance = _of_bit(params, reports)
    common = np.minimum(ratio, 1.0)
    blanket = float(chance @ common)
    return Ratios(blanket, chance * common / blanket, np.maximum(ratio, 1.0) * blanket,
                  np.maximum(1 / ratio, 1.0) * blanket)  # fmt: skip


def cell_ratios(response: Response) -> Ratios:
    """Return the ratios of the two values that differ most under a response of cells.

    `response`: which draws a whole report at once. Raises `TypeError` if it is another one.

    Notes
    -----
    Reports are classed by whether they are likely under the first value, and under the second. Of a
    subset these are those that hold the value: the blanket is uniform over all sets, because each
    lacks some value. Of a window they are its cells, and the values are those at the two ends; only
    a cell that lies in all windows is likely in the blanket, too.
    """
    if isinstance(response, Subset):
        d, w, q = response.cells, response.width, response.chance
        sizes = np.array([w * (w - 1), w * (d - w), w * (d - w), (d - w) * (d - w - 1)])
        likely, unlikely = q * d / w, (1 - q) * d / (d - w)
        least = np.full(4, unlikely)
        chance = sizes / (d * (d - 1)) * least
    elif isinstance(response, Window):
        d, w, q = response.cells, response.width, response.chance
        sizes = np.array([max(2 * w - d, 0), min(w, d - w), min(w, d - w), max(d - 2 * w, 0)])
        likely, unlikely = q / w, (1 - q) / (d - w)
        least = np.array([likely, unlikely, unlikely, unlikely])
        chance = sizes * least
    else:
        raise TypeError(f"{response!r}: must be a response that draws whole reports")
    blanket = float(chance.sum())
    first = np.array([likely, likely, unlikely, unlikely]) * blanket / least
    second = np.array([likely, unlikely, likely, unlikely]) * blanket / least
    there = sizes > 0
    return Ratios(blanket, chance[there] / blanket, first[there], second[there])


def _of_bit(params: RapporParams, reports: int) -> tuple[FloatArray, FloatArray]:
    """Return, for each number of ones that a bit can show, its ratio and its chance if untrue.

    The ratio is that of a true bit against an untrue one, ((1 - f1) e^u + f1) / (f0 e^u + 1 - f0)
    with u the log ratio of a permanent 1 against a permanent 0.
    """
    from scipy import stats  # noqa: PLC0415 - slow, and seldom needed

    ones = np.arange(reports + 1)
    p, q, zero, one = params.p, params.q, params.f0, params.f1
    if (p, q) in {(0.0, 1.0), (1.0, 0.0)}:  # reports repeat the permanent response
        ones = ones[[0, -1]]
    with np.errstate(divide="ignore"):
        permanent = special.xlogy(ones, np.divide(q, p)) + special.xlogy(
            reports - ones, np.divide(1 - q, 1 - p)
        )
    small = np.exp(-np.abs(permanent))
    if_ones = ((1 - one) + one * small) / (zero + (1 - zero) * small)
    if_zeros = ((1 - one) * small + one) / (zero * small + (1 - zero))
    ratio = np.where(permanent > 0, if_ones, if_zeros)
    chance = (1 - zero) * stats.binom.pmf(ones, reports, p)
    chance += zero * stats.binom.pmf(ones, reports, q)
    return ratio, chance
