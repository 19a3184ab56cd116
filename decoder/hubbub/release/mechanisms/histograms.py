"""Rows by key: keys that are known to all, or keys that only the data have.

A key that isn't public says by being there that somebody has it. It is released only where its
noisy number reaches a threshold that what a single user brings reaches with probability at most
delta (Korolova, Kenthapadi, Mishra, Ntoulas 2009; a "stability-based" histogram).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.release.errors import QueryError
from hubbub.release.mechanisms.counts import Mechanism, Row, count, noise_for
from hubbub.release.noise import (
    CONFIDENCE,
    Cost,
    add_laplace,
    laplace_radius,
    laplace_scale,
    laplace_threshold,
    laplace_variance,
)

_GIVEN_RELEASE = 1 - (1 - CONFIDENCE) * 0.95
"""What radii of a threshold's numbers hold without it, so that 95% hold of the released ones."""
FOR_TOTAL = Fraction(1, 10)
"""Part of epsilon for the number of all rows, which is one number, and mostly a large one."""


def histogram(
    bins: Sequence[str],
    *,
    rows_per_user: int,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
) -> Mechanism[Sequence[str]]:
    """Return what releases the number of rows of each public bin, in the bins' order.

    Rows with other keys are left out. One user moves all numbers together by at most
    `rows_per_user`.

    Raises `QueryError` if there are no bins, or one is there twice.
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
    """Return the names of the buckets that edges part all numbers into, one more than edges.

    Raises `QueryError` if the edges aren't finite and ascending.
    """
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
    """Return what releases the number of all rows as well, before those of the keys.

    `counting`: what releases the keys. `epsilon`: of that number alone.
    """
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
