"""How well one report tells categories and numbers: the best response at an epsilon, in decimals.

Of d categories a report may name a subset of w (Ye and Barg 2018), of which one category is
generalized randomized response; the alternative is a noisy bit for each (optimal unary encoding,
Wang et al. 2017, in `noise`). Of a bounded number it names one of d cells, those in a window about
the number being likelier. Both spend ln(q (d - w) / ((1 - q) w)), so one search for q serves both.

Invariant: returned chances stay within the budget as `Response` computes it, to the last bit.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import optimize

from hubbub.inference.errors import PlanError
from hubbub.inference.numbers.weights import cell_chances, cell_weights
from hubbub.protocol.params import RapporParams, chance_bound
from hubbub.protocol.responses import Subset, Window

_DIGITS = (4, 6, 9, 12, 15)  # of q, tried in turn; a double has 15
_WASTED = 1e-3  # of epsilon, by rounding: more than that is worth more digits
_MOST_EXPONENT = 700.0  # whose exponential is a double
_DUCHI_BELOW = 0.61  # epsilon up to which the hybrid mechanism is Duchi's (Wang et al. 2019)


def exact_chance(cells: int, width: int, epsilon: float) -> float:
    """Return the q that spends epsilon: w e^eps / (w e^eps + d - w)."""
    return width / (width + (cells - width) * math.exp(-epsilon))


def chance_within(cells: int, width: int, epsilon: float) -> float:
    """Return the greatest q within epsilon, in as few decimals as waste little of it.

    Raises
    ------
    PlanError
        If there is none of 15 decimals.
    """
    exact = exact_chance(cells, width, epsilon)
    for digits in _DIGITS:
        scale = 10.0**digits
        units = math.floor(exact * scale)
        for chance in (units / scale, (units - 1) / scale):  # the first may be rounded upwards
            if not width / cells < chance < 1:
                continue
            spent = chance_bound(chance, cells - width, width)
            if spent <= epsilon and (spent >= (1 - _WASTED) * epsilon or digits == _DIGITS[-1]):
                return chance
    raise PlanError(
        f"epsilon = {epsilon:g}: must be one that decimals can spend on {width} of {cells}"
    )


def subset_variance(subset: Subset, share: float = 0.0) -> float:
    """Return N times the variance of a category's share, the drawing of clients included.

    A category is in Binomial(N, p + share (q - p)) reports, and its share is (rate - p) / (q - p).
    """
    p, q = subset.other_chance, subset.chance
    rate = p + share * (q - p)
    return rate * (1 - rate) / (q - p) ** 2


def exact_subset(categories: int, epsilon: float) -> Subset:
    """Return the subsets of the least variance of an absent category, w being near d/(e^eps + 1).

    Parameters
    ----------
    categories : int
        d, at least 2.
    epsilon : float
        All of which is spent, but for rounding of doubles.
    """
    near = int(categories / (math.exp(min(epsilon, _MOST_EXPONENT)) + 1))
    sizes = {max(1, min(categories - 1, near + more)) for more in (0, 1)}
    return min(
        (Subset(categories, w, exact_chance(categories, w, epsilon)) for w in sorted(sizes)),
        key=subset_variance,
    )


def subset_within(categories: int, epsilon: float) -> Subset:
    """Return the same in decimals (raises as `chance_within`)."""
    width = exact_subset(categories, epsilon).width
    return Subset(categories, width, chance_within(categories, width, epsilon))


def subset_params(subset: Subset) -> RapporParams:
    """Return the parameters of a metric with a subset, whose p and q are those of single bits."""
    assert subset.cells is not None  # noqa: S101 - of all subsets
    k = -(-subset.cells // 8) * 8
    return RapporParams(k, 1, 1, 0.0, subset.other_chance, subset.chance)


def subset_of(params: RapporParams, categories: int) -> Subset:
    """Return the subset of such parameters: the chances of all bits add up to its size."""
    return Subset(categories, round(params.q + (categories - 1) * params.p), params.q)


def worst_variance(window: Window) -> float:
    """Return N times the variance of the mean if all have the number in [0, 1] that is known worst.

    A number between two positions is rounded to one of them at random, so between them the mean
    square is a straight line and the variance a parabola, which is highest at half the slope.
    """
    chances = cell_chances(window.cells, window.width, window.chance)
    squares = chances @ cell_weights(window.cells, window.width, window.chance) ** 2
    at = np.linspace(0, 1, len(squares))
    tops = np.clip(np.diff(squares) / np.diff(at) / 2, at[:-1], at[1:])
    numbers = np.concatenate([at, tops])
    return float((np.interp(numbers, at, squares) - numbers**2).max())


@functools.lru_cache(maxsize=256)
def widest_variance(window: Window) -> float:
    """Return N times the largest variance of the mean in any population, which is drawn anew.

    A report's weight w has the variance min over c of E[(w - c)^2]. That is linear in the
    population, so its largest value is the least over c of the largest E[(w - c)^2] of a number.
    """
    chances = cell_chances(window.cells, window.width, window.chance)
    squares = chances @ cell_weights(window.cells, window.width, window.chance) ** 2
    at = np.linspace(0, 1, len(squares))
    found = optimize.minimize_scalar(
        lambda c: float((squares - 2 * c * at + c**2).max()), bounds=(0.0, 1.0), method="bounded"
    )
    return float(found.fun)


@functools.lru_cache(maxsize=256)
def exact_window(epsilon: float, most_cells: int) -> Window:
    """Return the window of the least worst variance, whose cells fill whole bytes.

    Parameters
    ----------
    epsilon : float
        All of which is spent, but for rounding of doubles.
    most_cells : int
        Largest d, at least 8.
    """
    windows = (
        Window(cells, width, exact_chance(cells, width, epsilon))
        for cells in range(8, most_cells + 1, 8)
        for width in range(1, cells // 2 + 1)
    )
    return min(windows, key=worst_variance)


def window_within(epsilon: float, most_cells: int) -> Window:
    """Return the same in decimals (raises as `chance_within`)."""
    exact = exact_window(epsilon, most_cells)
    return Window(exact.cells, exact.width, chance_within(exact.cells, exact.width, epsilon))


def window_params(window: Window, cohorts: int = 1) -> RapporParams:
    """Return the parameters of a metric with a window: p and q are of a cell outside and inside."""
    outside, inside = window.cells - window.width, window.width
    p, q = (1 - window.chance) / outside, window.chance / inside
    return RapporParams(window.cells, 1, cohorts, 0.0, p, q)


def window_of(params: RapporParams) -> Window:
    """Return the window of such parameters: the chances of all cells add up to 1."""
    width = round((1 - params.k * params.p) / (params.q - params.p))
    return Window(params.k, width, round(params.q * width, _DIGITS[-1]))


def hybrid_variance(epsilon: float) -> float:
    """Return N times the worst variance of the hybrid mechanism for a number between 0 and 1.

    Wang et al. 2019 (ICDE), of [-1, 1], so four times as much: above epsilon .61 a mixture of the
    piecewise mechanism, of weight 1 - e^(-eps/2), and Duchi's; below it Duchi's alone.
    """
    duchi = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    if epsilon <= _DUCHI_BELOW:
        return duchi**2 / 4
    half = math.exp(epsilon / 2)
    return ((half + 3) / (3 * half * (half - 1)) + duchi**2 / half) / 4
