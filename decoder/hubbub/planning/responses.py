"""How well one report tells categories and numbers: the best response at an epsilon, in decimals.

Of d categories a report may name a subset of w (Ye and Barg 2018), of which one category is
generalized randomized response; or it may have a noisy bit for each (optimal unary encoding, Wang
et al. 2017, in `noise`). Of a bounded number it names one of d cells, those in a window about the
number being likelier. All of them are (w cells of d) with the chance q that a report is where the
value is, so one epsilon, ln(q (d - w) / ((1 - q) w)), serves both.

Invariant: returned chances stay within the budget as exact fractions have it, to the last bit.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.errors import PlanError

_DIGITS = (4, 6, 9, 12, 15)  # of q, tried in turn; a double has 15
_WASTED = 1e-3  # of epsilon, by rounding: more than that is worth more digits
_CLOSE = 1e-14  # what a double's logarithm may be off, relative: a bound is compared beyond it


def subset_chance(categories: int, size: int, epsilon: float) -> float:
    """Return the q that spends epsilon: w e^eps / (w e^eps + d - w)."""
    return size / (size + (categories - size) * math.exp(-epsilon))


def subset_epsilon(categories: int, size: int, chance: float) -> float:
    """Return ln(q (d - w) / ((1 - q) w)), rounded up."""
    q = Fraction(chance)
    odds = q * (categories - size) / ((1 - q) * size)
    return math.log(odds) * (1 + _CLOSE) + _CLOSE


def chance_of_others(categories: int, size: int, chance: float) -> float:
    """Return p, the chance that a category which isn't the client's own is in the subset."""
    return (chance * (size - 1) + (1 - chance) * size) / (categories - 1)


def subset_variance(categories: int, size: int, chance: float, share: float = 0.0) -> float:
    """Return N times the variance of a category's share, the drawing of clients included.

    A category is in Binomial(N, p + share (q - p)) reports, and its share is (rate - p) / (q - p).
    """
    p = chance_of_others(categories, size, chance)
    rate = p + share * (chance - p)
    return rate * (1 - rate) / (chance - p) ** 2


def best_size(categories: int, epsilon: float) -> int:
    """Return the w of the least variance of an absent category: near d / (e^eps + 1)."""
    near = categories / (math.exp(min(epsilon, 700.0)) + 1)
    sizes = {max(1, min(categories - 1, int(near) + step)) for step in (0, 1)}
    return min(
        sizes,
        key=lambda w: subset_variance(categories, w, subset_chance(categories, w, epsilon)),
    )


def chance_within(cells: int, size: int, epsilon: float) -> float:
    """Return the q that spends epsilon, in as few decimals as waste little of it.

    Raises
    ------
    PlanError
        If epsilon is too small for any q of 15 digits.
    """
    exact = subset_chance(cells, size, epsilon)
    for digits in _DIGITS:
        scale = 10**digits
        units = math.floor(exact * scale)
        if exact < 1 <= (units + 1) / scale and units == scale:
            units -= 1
        for chance in (units / scale, (units - 1) / scale):
            if not size / cells < chance < 1:
                continue
            spent = subset_epsilon(cells, size, chance)
            if spent <= epsilon and (spent >= (1 - _WASTED) * epsilon or digits == _DIGITS[-1]):
                return chance
    raise PlanError(f"epsilon = {epsilon:g}: too small for a subset of {size} of {cells}")


@dataclass(frozen=True, slots=True)
class Window:
    """A response about a number between 0 and 1: one of d cells, likelier inside a window.

    Attributes
    ----------
    cells, width : int
        d and w.
    chance : float
        q, that the cell is in the window, which begins at the number's position.
    """

    cells: int
    width: int
    chance: float

    @property
    def chances(self) -> FloatArray:
        """P: chance of each cell at each position, shape (d - w + 1, d)."""
        positions = np.arange(self.cells - self.width + 1)[:, None]
        cells = np.arange(self.cells)
        inside = (cells >= positions) & (cells < positions + self.width)
        outside = (1 - self.chance) / (self.cells - self.width)
        return np.where(inside, self.chance / self.width, outside)

    @property
    def outputs(self) -> FloatArray:
        """t: what each cell counts for, so that P t is the position's number; shape (d,).

        Of all such weights those of the least variance for positions that are equally likely:
        t = W^-1 P' (P W^-1 P')^-1 g, with W the mean chance of each cell.
        """
        chances = self.chances
        spread = chances / chances.mean(axis=0)
        grid = np.linspace(0, 1, len(chances))
        return np.asarray(spread.T @ np.linalg.lstsq(spread @ chances.T, grid, rcond=None)[0])

    def variance(self, number: float) -> float:
        """Return N times the variance of the mean if all clients have one number in [0, 1].

        A number between two positions is rounded to one of them at random, so that its mean stays.
        """
        squares = self.chances @ self.outputs**2
        at = np.linspace(0, 1, len(squares))
        return float(np.interp(number, at, squares)) - number**2

    @property
    def worst_variance(self) -> float:
        """Return N times the variance for the number that is known worst.

        Between two positions it is a parabola in the number, whose top has the slope of the chord.
        """
        squares = self.chances @ self.outputs**2
        at = np.linspace(0, 1, len(squares))
        slopes = np.diff(squares) / np.diff(at)
        tops = np.clip(slopes / 2, at[:-1], at[1:])
        return max(self.variance(float(number)) for number in (*at, *tops))


@functools.lru_cache(maxsize=64)
def best_window(epsilon: float, most_cells: int) -> Window:
    """Return the window of the least worst variance, with bits of whole bytes for its cells.

    Parameters
    ----------
    epsilon : float
        What a report may spend.
    most_cells : int
        Largest d, at least 8.
    """
    windows = (
        Window(cells, width, subset_chance(cells, width, epsilon))
        for cells in range(8, most_cells + 1, 8)
        for width in range(1, cells // 2 + 1)
    )
    best = min(windows, key=lambda window: window.worst_variance)
    return Window(best.cells, best.width, chance_within(best.cells, best.width, epsilon))


def hybrid_variance(epsilon: float) -> float:
    """Return N times the worst variance of the hybrid mechanism for a number between 0 and 1.

    Wang et al. 2019 (ICDE), of [-1, 1]: above epsilon .61 a mixture of the piecewise mechanism,
    of weight 1 - e^(-eps/2), and Duchi's; below it Duchi's alone. Here it is a quarter of theirs.
    """
    duchi = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    if epsilon <= 0.61:
        return duchi**2 / 4
    half = math.exp(epsilon / 2)
    return ((half + 3) / (3 * half * (half - 1)) + duchi**2 / half) / 4
