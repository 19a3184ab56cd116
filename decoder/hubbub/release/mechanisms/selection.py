"""Choosing one of several by the exponential mechanism: quantiles, modes, the most common few.

Scores are integers, and OpenDP chooses by permute-and-flip, whose choice is never worse on average
than the exponential mechanism's (McKenna, Sheldon 2020). Options are public: they must be fixed
without looking at the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.release.errors import QueryError
from hubbub.release.mechanisms.mechanism import Mechanism, Row
from hubbub.release.noise import Cost, select, select_best, select_scale

_LARGEST_DENOMINATOR = 10_000  # 2^31 values times this are far below 2^63
_MOST_OPTIONS = 2**20  # their scores fill some tens of megabytes
EXPONENTIAL = "exponential mechanism (permute-and-flip)"
_THEOREM = "epsilon = {factor}sensitivity / scale (McSherry, Talwar 2007; McKenna, Sheldon 2020)"


def quantile(
    low: float,
    high: float,
    level: Fraction,
    *,
    options: int,
    rows_per_user: int,
    epsilon: Fraction,
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
        return (Row("", float(points[select(scores, scale, monotonic=False)])),)

    return Mechanism(EXPONENTIAL, _THEOREM.format(factor="2 "), Cost(epsilon), release)


def quantile_scores(equal: IntArray, level: Fraction) -> IntArray:
    """Return each option's score, given how many values are equal to it; see `quantile`.

    `equal` has shape (options,). `level`: in (0, 1).
    """
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
        if best == 1:
            chosen = [select(scores, scale, monotonic=True)]
        else:
            chosen = select_best(scores, scale, best, monotonic=True)
        return tuple(Row(str(rank), options[i]) for rank, i in enumerate(chosen, start=1))

    theorem = _THEOREM.format(factor=f"{best} " if best > 1 else "")
    return Mechanism(EXPONENTIAL, theorem, Cost(epsilon), release)
