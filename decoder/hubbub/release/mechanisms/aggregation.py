"""Estimates of blocks, of which a user is in one: subsample and aggregate.

Any estimator may have made the estimates, for it need not be private: adding or removing a user
changes the data of one block, and so *replaces* one estimate, by whatever else (Nissim,
Raskhodnikova, Smith 2007; Mohan et al. 2012). Invariant: the number of blocks is public, and every
block has one finite estimate whatever its data are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.release.errors import QueryError
from hubbub.release.mechanisms.counts import Lattice, Mechanism, Row, noise_for
from hubbub.release.mechanisms.selection import (
    STABLE_MODE,
    lead_threshold,
    leader,
    quantile,
    stable_mode_theorem,
)
from hubbub.release.noise import Cost, add_laplace

_REPLACING = 2
"""Replacing an estimate is removing one and adding one."""
_AGGREGATE = "subsample-and-aggregate, "
_THEOREM = "a user is in one block (Nissim, Raskhodnikova, Smith 2007); "


def aggregate_median(
    low: float, high: float, *, options: int, epsilon: Fraction
) -> Mechanism[FloatArray]:
    """Return what releases about the median of estimates, by the exponential mechanism.

    `low` and `high`: bounds of what is released, and where it is one of evenly spaced options.
    `options`: at least 2. `epsilon`: what the release may cost. Raises `QueryError` if there are
    fewer options.
    """
    median = quantile(
        low, high, Fraction(1, 2), options=options, rows_per_user=_REPLACING, epsilon=epsilon
    )
    return replace(
        median,
        name=f"{_AGGREGATE}median by the {median.name}",
        theorem=_THEOREM + median.theorem,
    )


def aggregate_mean(
    bounds: Lattice, *, blocks: int, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> Mechanism[FloatArray]:
    """Return what releases the mean of estimates, each clipped to the bounds.

    Raises `QueryError` if there is no block, or (when it is called) not one estimate a block.

    Notes
    -----
    A user moves the sum by at most the bounds' range. The radius is of the noise, of scale
    range / (blocks epsilon), alone: clipping and the estimates' own errors come on top.
    """
    if blocks < 1:
        raise QueryError(f"blocks = {blocks}: must be at least 1")
    noise, cost = noise_for(bounds.high - bounds.low, epsilon, delta)
    radius = noise.radius() / blocks * bounds.step

    def release(estimates: FloatArray) -> tuple[Row, ...]:
        if len(estimates) != blocks:
            raise QueryError(f"estimates: must be one a block, {blocks}, not {len(estimates)}")
        (total,) = noise.added([int(bounds.numbers(estimates).sum(dtype=np.int64))])
        mean = min(max(total / blocks, bounds.low), bounds.high) * bounds.step
        return (Row("", mean, radius),)

    return Mechanism(
        f"{_AGGREGATE}mean, {noise.mechanism}", _THEOREM + noise.theorem, cost, release
    )


def aggregate_mode(*, epsilon: Fraction, delta: Fraction, digits: int = 6) -> Mechanism[FloatArray]:
    """Return what releases the most common estimate if it leads by far, and no row if not.

    `digits`: estimates are rounded to so many decimals first. Raises `QueryError` if delta is 0.

    Notes
    -----
    Replacing an estimate moves the lead by at most 2, and the leads of two modes that it decides
    between add up to at most 2: as for `stable_mode` with two rows per user.
    """
    scale, least = lead_threshold(_REPLACING, epsilon, delta)

    def release(estimates: FloatArray) -> tuple[Row, ...]:
        mode, lead = leader((np.round(estimates, digits) + 0.0).tolist())  # -0.0 becomes 0.0
        (noisy,) = add_laplace([lead], scale)
        return () if mode is None or noisy < least else (Row("", float(mode), math.nan),)

    theorem = _THEOREM + stable_mode_theorem(least)
    return Mechanism(f"{_AGGREGATE}{STABLE_MODE}", theorem, Cost(epsilon, delta), release)
