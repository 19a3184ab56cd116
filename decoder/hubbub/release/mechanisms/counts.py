"""Numbers of rows, sums and means, in all or by key, with exact integer noise.

A mechanism is made without data, so what it costs is known, and paid, before data are touched.
Values are rounded to a lattice of integers *before* they are added up, so that the sum's
sensitivity is exact and its noise can be, too. A key that isn't public reveals by being there
that somebody has it: it is released only if its noisy number reaches a threshold that one user's
rows reach with probability at most delta (Korolova, Kenthapadi, Mishra, Ntoulas 2009). Invariants:
whatever depends on data is an integer until its noise is in it; cost, name and theorem don't depend
on data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hubbub.inference import FloatArray, IntArray
from hubbub.release.errors import QueryError
from hubbub.release.noise import (
    CONFIDENCE,
    Cost,
    add_gaussian,
    add_laplace,
    gaussian_radius,
    gaussian_scale,
    gaussian_variance,
    laplace_radius,
    laplace_scale,
    laplace_threshold,
    laplace_variance,
)

_Data = TypeVar("_Data")


class Row(NamedTuple):
    """A released number or name."""

    key: str  # of what; empty for a number of the whole table
    value: float | str
    # The value is at most so far from the one without noise in 95% of releases; nan if the value is
    # no number or that can't be known without looking at the data.
    radius: float = math.nan
    variance: float = math.nan  # of the value's noise; nan as the radius


@dataclass(frozen=True, slots=True)
class Mechanism(Generic[_Data]):
    """Release rows from data; each call draws new noise, and costs again."""

    name: str
    theorem: str  # formula and source of the privacy that it has
    cost: Cost  # of one call
    release: Callable[[_Data], tuple[Row, ...]]  # rows from data

    def __call__(self, data: _Data) -> tuple[Row, ...]:
        """Return rows with noise."""
        return self.release(data)


_STEPS = 2**20
"""About how many steps of the lattice lie between the bounds of a column."""
_SMALLEST, _LARGEST = 1e-200, 1e200  # between which no step is lost
_FARTHEST = 2**31  # steps from 0, so that no sum of fewer than 2^31 values overflows


class Noise(NamedTuple):
    """Integer noise of a scale, and its law."""

    scale: float
    gaussian: bool

    def added(self, values: list[int]) -> list[int]:
        """Return integers with noise."""
        return (add_gaussian if self.gaussian else add_laplace)(values, self.scale)

    def radius(self, confidence: float = CONFIDENCE) -> int:
        """Return how far it is off at most, with this confidence."""
        return (gaussian_radius if self.gaussian else laplace_radius)(self.scale, confidence)

    @property
    def variance(self) -> float:
        """Return its variance."""
        return (gaussian_variance if self.gaussian else laplace_variance)(self.scale)

    @property
    def mechanism(self) -> str:
        """Its name."""
        return "discrete Gaussian" if self.gaussian else "discrete Laplace"

    @property
    def theorem(self) -> str:
        """Why it is private."""
        if self.gaussian:
            return (
                "rho = sensitivity^2 / (2 scale^2), to epsilon at delta (Canonne, Kamath, Steinke "
                "2020)"
            )
        return "epsilon = sensitivity / scale (Dwork, McSherry, Nissim, Smith 2006)"


def noise_for(sensitivity: int, epsilon: Fraction, delta: Fraction) -> tuple[Noise, Cost]:
    """Return Laplace noise, or Gaussian noise if there is a delta, and what it costs.

    One user moves all numbers together by at most the `sensitivity`, and so their root of summed
    squares.
    """
    if not delta:
        return Noise(laplace_scale(sensitivity, epsilon), False), Cost(epsilon)
    scale, cost = gaussian_scale(float(sensitivity), epsilon, delta)
    return Noise(scale, True), cost


class Lattice(NamedTuple):
    """Integers that stand for multiples of a step, a power of two."""

    exponent: int  # the step is 2 to this
    low: int  # the bounds, rounded outwards
    high: int

    @property
    def step(self) -> float:
        """The step, which a float holds exactly."""
        return math.ldexp(1.0, self.exponent)

    def numbers(self, values: FloatArray) -> IntArray:
        """Return values as integers, at a bound where they are beyond it; nan at the lower one."""
        ends = np.ldexp([float(self.low), float(self.high)], self.exponent)
        inside = np.clip(values, *ends)  # first, for far larger ones would overflow
        nearest = np.rint(np.ldexp(inside, -self.exponent))
        return np.where(np.isnan(nearest), self.low, nearest).astype(np.int64)


def lattice(low: float, high: float) -> Lattice:
    """Return the lattice of a column's declared range."""
    if not (low < high and math.isfinite(high - low)):
        raise QueryError(f"bounds = {low}:{high}: must be finite numbers, the lower one first")
    if not _SMALLEST <= high - low <= _LARGEST:
        raise QueryError(
            f"bounds = {low}:{high}: must be {_SMALLEST:g} to {_LARGEST:g} apart; use another unit"
        )
    exponent = math.frexp((high - low) / _STEPS)[1] - 1
    smallest, largest = math.ldexp(low, -exponent), math.ldexp(high, -exponent)
    if max(abs(smallest), abs(largest)) > _FARTHEST:
        raise QueryError(
            f"bounds = {low}:{high}: must not be that narrow so far from 0; take off a constant"
        )
    return Lattice(exponent, math.floor(smallest), math.ceil(largest))


def count(
    *, rows_per_user: int, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> Mechanism[int]:
    """Return what releases a number of rows, which one user moves by at most `rows_per_user`."""
    noise, cost = noise_for(rows_per_user, epsilon, delta)
    radius, variance = noise.radius(), noise.variance

    def release(n_rows: int) -> tuple[Row, ...]:
        (value,) = noise.added([n_rows])
        return (Row("", value, radius, variance),)

    return Mechanism(noise.mechanism, noise.theorem, cost, release)


def bounded_sum(
    bounds: Lattice, *, rows_per_user: int, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> Mechanism[FloatArray]:
    """Return what releases a sum of values, each clipped to the bounds and rounded to the lattice.

    One user moves it by at most `rows_per_user` times the larger absolute bound. The radius is of
    the noise alone; rounding moves a value by half a step, about a two-millionth of the range.
    """
    sensitivity = rows_per_user * max(abs(bounds.low), abs(bounds.high))
    noise, cost = noise_for(sensitivity, epsilon, delta)
    radius, variance = noise.radius() * bounds.step, noise.variance * bounds.step**2

    def release(values: FloatArray) -> tuple[Row, ...]:
        (total,) = noise.added([int(bounds.numbers(values).sum(dtype=np.int64))])
        return (Row("", total * bounds.step, radius, variance),)

    return Mechanism(noise.mechanism, noise.theorem, cost, release)


def bounded_mean(
    bounds: Lattice, *, rows_per_user: int, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> Mechanism[FloatArray]:
    """Return what releases a mean of values, each clipped to the bounds and rounded to the lattice.

    Half of the budget is for the sum of what values differ from the middle of the bounds, which one
    user moves by at most half the range a row, and half for their number.

    Notes
    -----
    With sum s and number n, noisy s' and n', and radii r_s and r_n that both hold with probability
    .95 (each .975): s/n - s'/n' = ((s - s') + (s'/n') (n' - n)) / n, which is at most
    (r_s + |s'/n'| r_n) / (n' - r_n). nan where n' isn't above its radius.
    """
    middle, half = (bounds.low + bounds.high) // 2, Fraction(1, 2)
    widest = max(bounds.high - middle, middle - bounds.low)
    of_sum, sum_cost = noise_for(rows_per_user * widest, epsilon * half, delta * half)
    of_number, number_cost = noise_for(rows_per_user, epsilon * half, delta * half)
    each = (1 + CONFIDENCE) / 2
    radius_sum, radius_number = of_sum.radius(each), of_number.radius(each)

    def release(values: FloatArray) -> tuple[Row, ...]:
        centred = int((bounds.numbers(values) - middle).sum(dtype=np.int64))
        (total,), (number,) = of_sum.added([centred]), of_number.added([len(values)])
        if number <= radius_number:
            return (Row("", math.nan),)
        off = min(abs(total) / number, float(widest))
        value = min(max(total / number, -widest), widest)
        radius = (radius_sum + off * radius_number) / (number - radius_number)
        found = (middle + value) * bounds.step
        return (Row("", found, min(radius, 2.0 * widest) * bounds.step),)

    name = f"{of_sum.mechanism}, of a sum and of a number"
    return Mechanism(name, of_sum.theorem, sum_cost + number_cost, release)


_GIVEN_RELEASE = 1 - (1 - CONFIDENCE) * 0.95
"""Confidence of radii without a threshold, so that 95% of the released ones hold."""
FOR_TOTAL = Fraction(1, 10)
"""Part of epsilon for the number of all rows, which is one number, and mostly a large one."""


def histogram(
    bins: Sequence[str], *, rows_per_user: int, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> Mechanism[Sequence[str]]:
    """Return what releases the number of rows of each public bin, in the bins' order.

    Rows with other keys are left out. One user moves all numbers together by at most
    `rows_per_user`.
    """
    repeated = [key for key, times in Counter(bins).items() if times > 1]
    if not bins or repeated:
        fault = f"{repeated[0]!r} is there twice" if repeated else "there are none"
        raise QueryError(f"bins: must be at least one, each once; {fault}")
    noise, cost = noise_for(rows_per_user, epsilon, delta)
    radius, variance = noise.radius(), noise.variance

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        numbers = Counter(keys)
        noisy = noise.added([numbers[key] for key in bins])
        return tuple(
            Row(key, value, radius, variance) for key, value in zip(bins, noisy, strict=True)
        )

    return Mechanism(noise.mechanism, noise.theorem, cost, release)


def thresholded_histogram(
    *, rows_per_user: int, epsilon: Fraction, delta: Fraction
) -> Mechanism[Sequence[str]]:
    """Return what releases the numbers of rows of the keys that many have, sorted by key.

    Keys that both of two neighbours have cost epsilon; one that only one of them has, because only
    one user has it, is released with probability at most delta.

    Raises `QueryError` if delta is 0.

    Notes
    -----
    Numbers are released because they came out high, so radii must hold given that. Of a key with c
    rows, c <= T, the excess over T has the same distribution whatever c is: it is above ln(20)
    scales in 5% of releases. Below that a number may be of any c, and its radius reaches down to 1.
    Beyond that, and for c > T, misses are at most 2 P(Z > r), or P(|Z| > r) / .975.
    """
    if not delta:
        raise QueryError("delta = 0: must be above 0 for keys that aren't public")
    scale = laplace_scale(rows_per_user, epsilon)
    least = threshold(scale, rows_per_user, delta)
    radius, variance = laplace_radius(scale, _GIVEN_RELEASE), laplace_variance(scale)
    near = least + math.ceil(scale * math.log(1 / (1 - CONFIDENCE)))

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        numbers = sorted(Counter(keys).items())
        noisy = add_laplace([number for _, number in numbers], scale)
        return tuple(
            Row(key, value, radius if value >= near else max(radius, value - 1), variance)
            for (key, _), value in zip(numbers, noisy, strict=True)
            if value >= least
        )

    theorem = (
        f"epsilon = sensitivity / scale, and keys of one user are released with probability <= "
        f"delta: threshold {least} (Korolova, Kenthapadi, Mishra, Ntoulas 2009)"
    )
    return Mechanism("thresholded discrete Laplace", theorem, Cost(epsilon, delta), release)


def buckets(edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the buckets that edges part all numbers into, one more than edges."""
    finite = all(map(math.isfinite, edges))
    if not edges or not finite or any(high <= low for low, high in pairwise(edges)):
        raise QueryError("edges: must be finite and ascending numbers, at least one")
    ends = [f"{edge:.10g}" for edge in edges]
    inner = [f"[{low}, {high})" for low, high in pairwise(ends)]
    return (f"below {ends[0]}", *inner, f"{ends[-1]} and above")


def bucketed(values: FloatArray, edges: Sequence[float]) -> list[str]:
    """Return the name of each value's bucket, whose lower edge belongs to it."""
    names = buckets(edges)
    return [names[place] for place in np.searchsorted(edges, values, side="right").tolist()]


def with_total(
    counting: Mechanism[Sequence[str]], *, rows_per_user: int, epsilon: Fraction
) -> Mechanism[Sequence[str]]:
    """Return what releases the number of all rows, for this epsilon, before those of the keys."""
    number = count(rows_per_user=rows_per_user, epsilon=epsilon)

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        return number(len(keys)) + counting(keys)

    return Mechanism(counting.name, counting.theorem, counting.cost + number.cost, release)


def threshold(scale: float, rows_per_user: int, delta: Fraction) -> int:
    """Return the least threshold that a user's own keys pass with probability at most delta.

    Notes
    -----
    A key with c rows of one user alone passes T with f(c) = P(Z >= T - c). With R rows at most a
    user may have one key with R, or R keys with one: f is convex, so of all ways to part R rows
    among keys one of these two has the largest sum of f. a^(T - 1) / (1 + a) <= delta for R = 1.
    """
    one_key = rows_per_user + laplace_threshold(scale, delta)
    many_keys = 1 + laplace_threshold(scale, delta / rows_per_user)
    return max(one_key, many_keys)
