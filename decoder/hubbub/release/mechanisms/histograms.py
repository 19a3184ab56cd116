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

from hubbub.release.mechanisms.counts import noise_for
from hubbub.release.noise import (
    Answer,
    Row,
    add_laplace,
    laplace_radius,
    laplace_scale,
    laplace_tail,
)


def histogram(
    keys: Sequence[str],
    bins: Sequence[str],
    *,
    rows_per_user: int,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
) -> Answer:
    """Return the number of rows of each public bin, in the bins' order; other keys are left out.

    One user moves all numbers together by at most `rows_per_user`.
    """
    noise, _ = noise_for(rows_per_user, epsilon, delta)
    numbers = Counter(keys)
    noisy = noise.added([numbers[key] for key in bins])
    radius = noise.radius()
    rows = tuple(Row(key, value, radius) for key, value in zip(bins, noisy, strict=True))
    return Answer(rows, noise.mechanism, noise.theorem)


def thresholded_histogram(
    keys: Sequence[str], *, rows_per_user: int, epsilon: Fraction, delta: Fraction
) -> Answer:
    """Return the numbers of rows of the keys that many have, sorted by key.

    Keys that both of two neighbours have cost epsilon; one that only one of them has, because only
    one user has it, is released with probability at most delta.
    """
    scale = laplace_scale(rows_per_user, epsilon)
    least = threshold(scale, rows_per_user, delta)
    numbers = sorted(Counter(keys).items())
    noisy = add_laplace([number for _, number in numbers], scale)
    radius = laplace_radius(scale)
    rows = tuple(
        Row(key, value, radius)
        for (key, _), value in zip(numbers, noisy, strict=True)
        if value >= least
    )
    theorem = f"keys of one user are released with probability <= delta (threshold {least})"
    return Answer(rows, "thresholded discrete Laplace", theorem)


def threshold(scale: float, rows_per_user: int, delta: Fraction) -> int:
    """Return the least threshold that a user's own keys pass with probability at most delta.

    Notes
    -----
    A key with c rows of one user alone passes T with f(c) = P(Z >= T - c). With R rows at most he
    may have one key with R, or R keys with one: f is convex, so of all ways to part R rows among
    keys one of these two has the largest sum of f. a^(T - 1) / (1 + a) <= delta for R = 1.
    """
    low = rows_per_user
    high = rows_per_user + 1
    while _passed(high, scale, rows_per_user) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _passed(middle, scale, rows_per_user) > delta:
            low = middle
        else:
            high = middle
    return high


def _passed(least: int, scale: float, rows_per_user: int) -> float:
    """Return the largest probability with which a user's own keys pass; least > rows_per_user."""
    one_key = laplace_tail(least - rows_per_user, scale)
    many_keys = rows_per_user * laplace_tail(least - 1, scale)
    return math.nextafter(max(one_key, many_keys), math.inf)
