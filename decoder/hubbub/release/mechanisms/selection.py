"""Answers chosen from several: by the exponential mechanism, by stability, of blocks' estimates.

Quantiles, modes and the most common few are chosen by integer scores; OpenDP's permute-and-flip is
never worse on average than the exponential mechanism (McKenna, Sheldon 2020). Other answers are
given only where many rows would have to change before they could be others: that distance moves by
little with one user, and is compared, with noise, to a threshold. Estimates of blocks need not be
private: a user is in one block, and so *replaces* one estimate (Nissim, Raskhodnikova, Smith 2007).
Invariants: options and the number of blocks are public, fixed without looking at data; every block
has one finite estimate whatever its data are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from hubbub.inference import FloatArray, IntArray
from hubbub.release.errors import QueryError
from hubbub.release.mechanisms.counts import Lattice, Mechanism, Row, noise_for
from hubbub.release.noise import (
    Cost,
    add_laplace,
    laplace_radius,
    laplace_scale,
    laplace_threshold,
    select,
    select_scale,
)

_Key = TypeVar("_Key")


def stable_mode(
    *, rows_per_user: int, epsilon: Fraction, delta: Fraction
) -> Mechanism[Sequence[Any]]:
    """Return what releases the most common key if it leads by far, and no row if not.

    Keys needn't be public. How many rows the key has isn't released.

    Raises `QueryError` if delta is 0.

    Notes
    -----
    The lead is the number of rows of the most common key, less that of the second (0 if there is
    none). A user with at most R rows moves it by at most R: neighbours with the same mode
    differ by at most epsilon, with noise Z of scale R / epsilon. If the rows of a user make another
    key the most common one, the leads with and without this user add up to at most R, and neither
    mode passes the threshold T with a probability above P(Z >= T - R), which is at most delta
    (Thakurta, Smith 2013; Dwork, Roth 2014, section 7.3). That bound is reached: by a lead of R
    that one user turns into a tie. With a lead of T + t R / epsilon the mode is released with a
    probability above 1 - e^-t / 2.
    """
    scale, least = lead_threshold(rows_per_user, epsilon, delta)

    def release(keys: Sequence[Any]) -> tuple[Row, ...]:
        mode, lead = leader(keys)
        (noisy,) = add_laplace([lead], scale)
        return () if mode is None or noisy < least else (Row("1", mode),)

    theorem = (
        "epsilon = sensitivity / scale, and a mode that one user decides is released with "
        f"probability <= delta: threshold {least} (Thakurta, Smith 2013)"
    )
    name = "stability-based mode (discrete Laplace)"
    return Mechanism(name, theorem, Cost(epsilon, delta), release)


def lead_threshold(sensitivity: int, epsilon: Fraction, delta: Fraction) -> tuple[float, int]:
    """Return the scale of the noise of a lead, and the least threshold that costs at most delta.

    `sensitivity`: what one user moves the lead by at most, and what the leads of two neighbours
    with different modes add up to at most. Raises `QueryError` if delta is 0.
    """
    _check_delta(delta, "a mode of keys that aren't public")
    scale = laplace_scale(sensitivity, epsilon)
    return scale, sensitivity + laplace_threshold(scale, delta)


def leader(keys: Iterable[_Key]) -> tuple[_Key | None, int]:
    """Return the most common key and its lead over the second; None and 0 without any."""
    ranked: list[tuple[_Key | None, int]] = [*Counter(keys).most_common(2)]
    (mode, most), (_, second) = (*ranked, (None, 0), (None, 0))[:2]
    return mode, most - second


def median_by_test(
    bounds: Lattice, width: float, *, rows_per_user: int, epsilon: Fraction, delta: Fraction
) -> Mechanism[FloatArray]:
    """Return what releases a median if one user moves it little, and no row if not.

    Propose-test-release: noise is for a proposed bound on what one user moves the median by, and
    drawn only if the data pass a test of being far from data where a user moves it farther. Of an
    even number of values it is the lower median; of none, the lower bound.

    `bounds`: the values' declared bounds and step. `width`: the proposed bound, which must be
    chosen without looking at the data. Raises `QueryError` if delta is 0, or the width is below a
    step of the lattice or not below the bounds' range.

    Notes
    -----
    Half of epsilon is for the test. A distance D that one user moves by at most R (the rows that
    they may have) is released only as D + Z >= T, Z having the scale 2 R / epsilon and T being the
    least threshold with P(Z >= T) <= delta. Two neighbours whose medians are no farther apart than
    the width are distinguished by at most epsilon; two others both have the distance 0, and are
    released with probability at most delta (Dwork, Lei 2009). The radius is of the second noise, of
    scale 2 width / epsilon.
    """
    _check_delta(delta, "a test that may err")
    steps = math.floor(width / bounds.step) if math.isfinite(width) else 0
    if not 1 <= steps < bounds.high - bounds.low:
        raise QueryError(
            f"width = {width:g}: must be at least {bounds.step:g}, and less than the bounds are "
            "apart"
        )
    test_scale = laplace_scale(rows_per_user, epsilon / 2)
    least = laplace_threshold(test_scale, delta)
    scale = laplace_scale(steps, epsilon / 2)
    radius = laplace_radius(scale) * bounds.step

    def release(values: FloatArray) -> tuple[Row, ...]:
        ordered = np.sort(bounds.numbers(values))
        distance = median_distance(ordered, bounds.low, bounds.high, steps, rows_per_user)
        (noisy,) = add_laplace([distance], test_scale)
        if noisy < least:
            return ()
        median = int(ordered[(len(ordered) - 1) // 2]) if len(ordered) else bounds.low
        (released,) = add_laplace([median], scale)
        return (Row("", min(max(released, bounds.low), bounds.high) * bounds.step, radius),)

    theorem = (
        f"two halves of epsilon = sensitivity / scale, and a median that one user moves farther "
        f"than the proposed {width:g} is released with probability <= delta: threshold {least} "
        "(Dwork, Lei 2009)"
    )
    return Mechanism(
        "propose-test-release (discrete Laplace)", theorem, Cost(epsilon, delta), release
    )


def median_distance(ordered: IntArray, low: int, high: int, width: int, rows_per_user: int) -> int:
    """Return how many rows to add or remove until one user could move the median by over `width`.

    `ordered`, shape (n,): ascending, from `low` to `high`. `low` and `high`: the values' bounds.
    `width`: below high - low. `rows_per_user`: R, the rows that a user adds or removes.

    Notes
    -----
    Let x_(i) be the i-th lowest value; `low` for i < 1, `high` for i > n. The median is
    x_(ceil(n / 2)). Adding as well as removing at most R rows moves it to anything between
    x_(ceil((n - R) / 2)) and x_(ceil((n + R) / 2)), and no farther. So a user moves it by more than
    the width if and only if, for some number s from `low` to high - width - 1, with A values at
    most s, B above s + width and C between, the median and one of these two lie on either side of
    the C:

        A >= n / 2 and B > (n - R) / 2,  or  A >= (n - R) / 2 and B > n / 2.

    With d = A - B that is C <= d <= R - 1 - C, or C - R <= d <= -1 - C: in short,
    2 C + 1 <= |2 d + 1| <= 2 (R - C) - 1. An added or removed row changes d or C by one. Fewer rows
    between never make it harder, and more than (R - 1) / 2 of them make it impossible; below that,
    removing one gains no more than a step of d, which a row at either side gains, too. So from
    given data, C - c rows are removed from between, c = min(C, floor((R - 1) / 2)), and rows are
    added at one side until d is as it must be.
    """
    starts = np.concatenate(([low], ordered, ordered - width))
    starts = np.unique(starts[(starts >= low) & (starts < high - width)])
    at_most = np.searchsorted(ordered, starts, side="right")
    between = np.searchsorted(ordered, starts + width, side="right") - at_most
    kept = np.minimum(between, (rows_per_user - 1) // 2)
    lean = np.abs(2 * (2 * at_most + between - len(ordered)) + 1)
    missing = np.maximum(2 * kept + 1 - lean, lean - 2 * (rows_per_user - kept) + 1)
    return int((between - kept + np.maximum(missing, 0) // 2).min())


def _check_delta(delta: Fraction, purpose: str) -> None:
    if not delta:
        raise QueryError(f"delta = 0: must be above 0 for {purpose}")


_LARGEST_DENOMINATOR = 10_000  # 2^31 values times this are far below 2^63
_MOST_OPTIONS = 2**20  # their scores fill some tens of megabytes
_EXPONENTIAL = "exponential mechanism (permute-and-flip)"
_THEOREM = "epsilon = {factor}sensitivity / scale (McSherry, Talwar 2007; McKenna, Sheldon 2020)"


def quantile(
    low: float, high: float, level: Fraction, *, options: int, rows_per_user: int, epsilon: Fraction
) -> Mechanism[FloatArray]:
    """Return what releases the option that about a share `level` of the values is below.

    `low` and `high`: declared bounds: options are spaced evenly between them. `level`: in (0, 1):
    1/2 for the median. `options`: at least 2. `epsilon`: what the release may cost. Raises
    `QueryError` if the level or the number of options isn't possible.

    Notes
    -----
    Values are rounded to options first, so that many equal ones are an option's and not lost
    between two. With level u / v in lowest terms and n values, an option c has the score
    -max(v #(values < c) - u n, u n - v #(values <= c), 0), by how many values it misses the level,
    which a row moves by at most max(u, v - u) (after Smith 2011). The radius isn't known: it
    depends on how densely values lie.
    """
    if not 0 < level < 1:
        raise QueryError(f"level = {float(level):g}: must be between 0 and 1")
    if level.denominator > _LARGEST_DENOMINATOR:
        raise QueryError(
            f"level = {level}: must have a denominator of at most {_LARGEST_DENOMINATOR:,}; write "
            '0.95 or "1/3"'
        )
    if not 2 <= options <= _MOST_OPTIONS:
        raise QueryError(f"options = {options}: must be from 2 to {_MOST_OPTIONS:,}")
    sensitivity = rows_per_user * max(level.numerator, level.denominator - level.numerator)
    scale = select_scale(sensitivity, epsilon, monotonic=False)
    points = np.linspace(low, high, options)

    def release(values: FloatArray) -> tuple[Row, ...]:
        places = np.rint((np.clip(values, low, high) - low) / (high - low) * (options - 1))
        equal = np.bincount(places.astype(np.int64), minlength=options)
        scores = quantile_scores(equal, level)
        (chosen,) = select(scores, scale, monotonic=False)
        return (Row("", float(points[chosen])),)

    return Mechanism(_EXPONENTIAL, _THEOREM.format(factor="2 "), Cost(epsilon), release)


def quantile_scores(equal: IntArray, level: Fraction) -> IntArray:
    """Return each option's score from how many values are equal to it, shape (options,)."""
    at_most, wanted = np.cumsum(equal), level.numerator * int(equal.sum())
    too_many = level.denominator * (at_most - equal) - wanted
    too_few = wanted - level.denominator * at_most
    scores: IntArray = -np.maximum(np.maximum(too_many, too_few), 0)
    return scores


def most_common(
    options: Sequence[str], best: int, *, rows_per_user: int, epsilon: Fraction
) -> Mechanism[Sequence[str]]:
    """Return what releases about the most common of public options, the commonest first.

    Their numbers of rows aren't released. A user moves all numbers in the same direction, each by
    at most `rows_per_user`, which halves what choosing one costs.

    Raises `QueryError` if there are fewer options than `best`, or one is there twice.
    """
    if len(set(options)) < len(options):
        raise QueryError("options: must be each there once")
    if not 1 <= best <= len(options):
        raise QueryError(f"best = {best}: must be from 1 to the number of options, {len(options)}")
    scale = select_scale(rows_per_user, epsilon, monotonic=True, best=best)

    def release(keys: Sequence[str]) -> tuple[Row, ...]:
        numbers = Counter(keys)
        scores = [numbers[key] for key in options]
        chosen = select(scores, scale, monotonic=True, best=best)
        return tuple(Row(str(rank), options[i]) for rank, i in enumerate(chosen, start=1))

    theorem = _THEOREM.format(factor=f"{best} " if best > 1 else "")
    return Mechanism(_EXPONENTIAL, theorem, Cost(epsilon), release)


_REPLACING = 2
"""Replacing an estimate is removing one and adding one."""
_AGGREGATE = "subsample-and-aggregate, "
_AGGREGATION_THEOREM = "a user is in one block (Nissim, Raskhodnikova, Smith 2007); "


def aggregate_median(
    low: float, high: float, *, options: int, epsilon: Fraction
) -> Mechanism[FloatArray]:
    """Return what releases about the median of estimates, by the exponential mechanism."""
    median = quantile(
        low, high, Fraction(1, 2), options=options, rows_per_user=_REPLACING, epsilon=epsilon
    )
    return replace(
        median,
        name=f"{_AGGREGATE}median by the {median.name}",
        theorem=_AGGREGATION_THEOREM + median.theorem,
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
        f"{_AGGREGATE}mean, {noise.mechanism}", _AGGREGATION_THEOREM + noise.theorem, cost, release
    )


def aggregate_mode(*, epsilon: Fraction, delta: Fraction, digits: int = 6) -> Mechanism[FloatArray]:
    """Return what releases the most common estimate if it leads by far, and no row if not.

    `digits`: estimates are rounded to so many decimals first. Raises `QueryError` if delta is 0.

    Notes
    -----
    Replacing an estimate moves the lead by at most 2, and the leads of two modes that it decides
    between add up to at most 2: as for `stable_mode` with two rows per user.
    """
    mode = stable_mode(rows_per_user=_REPLACING, epsilon=epsilon, delta=delta)

    def release(estimates: FloatArray) -> tuple[Row, ...]:
        rounded = (np.round(estimates, digits) + 0.0).tolist()  # -0.0 becomes 0.0
        return tuple(row._replace(key="") for row in mode(rounded))

    name, theorem = f"{_AGGREGATE}{mode.name}", _AGGREGATION_THEOREM + mode.theorem
    return Mechanism(name, theorem, mode.cost, release)
