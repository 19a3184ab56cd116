"""What each reported cell counts for, so that the mean of reports is the mean of the numbers.

A number's report is one of d cells: with chance q one of the w cells of its window, each alike,
otherwise one of the others. Windows begin at s = 0 to d - w, which stand for the evenly spaced
numbers s / (d - w) of [0, 1], and the client rounds at random to one of the two nearest. So if the
weights' expectation is right for each beginning, it is for every number: P t = grid.

Invariant: the weights depend on the response alone, never on the counts. That is what makes the
mean unbiased at any number of reports.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hubbub.inference.arrays import FloatArray


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
        while len(hull) > 1 and _is_above(squares, hull[-2], hull[-1], place):
            hull.pop()
        hull.append(place)
    found = np.interp(np.arange(len(squares)), hull, squares[hull])
    found.flags.writeable = False
    return np.asarray(found)


def _is_above(heights: FloatArray, left: int, middle: int, right: int) -> bool:
    rise = (heights[right] - heights[left]) / (right - left)
    return bool(heights[middle] >= heights[left] + rise * (middle - left))
