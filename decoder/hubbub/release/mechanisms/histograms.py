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

from hubbub.release.errors import QueryError
from hubbub.release.mechanisms.counts import noise_for
from hubbub.release.mechanisms.mechanism import Mechanism, Row
from hubbub.release.noise import (
    Cost,
    add_laplace,
    laplace_radius,
    laplace_scale,
    laplace_tail,
)


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

    Raises
    ------
    QueryError
        If there are no bins, or one is there twice.
    """
    repeated = [key for key, times in Counter(bins).items() if times > 1]
    if not bins or repeated:
        fault = f"{repeated[0]!r} is there twice" if repeated else "there are none"
        raise QueryError(f"bins: must be at least one, each once; {fault}")
    noise, cost = noise_for(rows_per_user, epsilon, delta)
    radius = noise.radius()

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        numbers = Counter(keys)
        noisy = noise.added([numbers[key] for key in bins])
        return tuple(Row(key, value, radius) for key, value in zip(bins, noisy, strict=True))

    return Mechanism(noise.mechanism, noise.theorem, cost, release)


def thresholded_histogram(
    *, rows_per_user: int, epsilon: Fraction, delta: Fraction
) -> Mechanism[Sequence[str]]:
    """Return what releases the numbers of rows of the keys that many have, sorted by key.

    Keys that both of two neighbours have cost epsilon; one that only one of them has, because only
    one user has it, is released with probability at most delta.

    Raises
    ------
    QueryError
        If delta is 0.
    """
    if not delta:
        raise QueryError("delta = 0: must be above 0 for keys that aren't public")
    scale = laplace_scale(rows_per_user, epsilon)
    least = threshold(scale, rows_per_user, delta)
    radius = laplace_radius(scale)

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        numbers = sorted(Counter(keys).items())
        noisy = add_laplace([number for _, number in numbers], scale)
        return tuple(
            Row(key, value, radius)
            for (key, _), value in zip(numbers, noisy, strict=True)
            if value >= least
        )

    theorem = (
        f"epsilon = sensitivity / scale, and keys of one user are released with probability <= "
        f"delta: threshold {least} (Korolova, Kenthapadi, Mishra, Ntoulas 2009)"
    )
    return Mechanism("thresholded discrete Laplace", theorem, Cost(epsilon, delta), release)


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
