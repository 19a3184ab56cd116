"""The six numbers of RAPPOR and what they promise.

A `RapporParams` turns (k, h, m, f, p, q) into the probabilities that a reported bit has, and those
into the two epsilons. The epsilons are computed with exact fractions of the very doubles that the
sampler compares against, and rounded up, so that the stated privacy is never better than the real.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from hubbub.protocol.errors import ParameterError

if TYPE_CHECKING:
    from fractions import Fraction
    from typing import Self

_DIGITS = 50
MOST_BITS = 4096
"""The largest k: a report is at most 512 bytes."""
MOST_COHORTS = 65_535
"""What two bytes can number; types may allow fewer."""


class _Six(NamedTuple):
    k: int
    h: int
    m: int
    f: float
    p: float
    q: float


class RapporParams(_Six):
    """Parameters of the two randomized responses and of the Bloom filter.

    Parameters
    ----------
    k : int
        Bits of the Bloom filter, or of the categories: a multiple of 8 between 8 and 4096.
    h : int
        Hash functions, 1 to 8.
    m : int
        Cohorts, 1 to 65,535; a type may allow fewer.
    f : float
        Permanent noise, 0 <= f < 1: a bit becomes 1 with probability f/2, 0 with f/2, and stays
        as it is otherwise. f = 0 leaves the permanent response out (one-time collection only).
    p, q : float
        Probability that a report's bit is 1 when the permanent bit is 0 (p) or 1 (q).

    Raises
    ------
    ParameterError
        If a value is out of range, if p = q (reports would carry no information), or if some
        report would reveal a true bit for certain (epsilon_report infinite).

    Notes
    -----
    Erlingsson, Pihur, Korolova: "RAPPOR", CCS 2014, sections 2 and 3.

    Examples
    --------
    >>> params = RapporParams(k=128, h=2, m=64, f=0.5, p=0.5, q=0.75)
    >>> params.p_star, params.q_star
    (0.5625, 0.6875)
    >>> round(params.epsilon_report, 3), round(params.epsilon_permanent, 3)
    (1.074, 4.394)
    >>> RapporParams(k=128, h=2, m=64, f=0.5, p=0.5, q=0.5)
    Traceback (most recent call last):
    hubbub.protocol.errors.ParameterError: p = q = 0.5: must differ, or reports carry no information
    """

    __slots__ = ()

    def __new__(cls, k: int, h: int, m: int, f: float, p: float, q: float) -> Self:
        """Check and keep the six numbers."""
        check_integer("k", k, 8, MOST_BITS)
        if k % 8:
            raise ParameterError(f"k = {k}: must be a multiple of 8 between 8 and {MOST_BITS}")
        check_integer("h", h, 1, 8)
        check_integer("m", m, 1, MOST_COHORTS)
        f, p, q = _probability("f", f), _probability("p", p), _probability("q", q)
        if f > 0 and f / 2 == 0:
            raise ParameterError(f"f = {f}: must be 0, or large enough for f/2 to be above 0")
        if f == 1:
            raise ParameterError("f = 1.0: must be less than 1, or reports carry no information")
        if p == q:
            raise ParameterError(f"p = q = {p}: must differ, or reports carry no information")
        params = super().__new__(cls, k, h, m, f, p, q)
        if not (0 < params._exact_p_star < 1 and 0 < params._exact_q_star < 1):
            raise ParameterError(
                f"f = {f}, p = {p}, q = {q}: some reports would reveal a true bit "
                "for certain; choose f > 0, or p and q strictly between 0 and 1"
            )
        return params

    @property
    def flip(self) -> float:
        """Probability f/2 that the permanent response turns a bit over."""
        return self.f / 2

    @property
    def p_star(self) -> float:
        """Probability that a report's bit is 1 although the true bit is 0 (p*)."""
        return float(self._exact_p_star)

    @property
    def q_star(self) -> float:
        """Probability that a report's bit is 1 when the true bit is 1 (q*)."""
        return float(self._exact_q_star)

    @property
    def epsilon_permanent(self) -> float:
        """Bound on what all reports ever made of one value reveal (theorem 1).

        2h ln((1 - f/2) / (f/2)); infinite when f = 0.
        """
        flip = _exact(self.flip)
        return _log_bound(2 * self.h, (1 - flip) / flip) if flip else math.inf

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals (theorem 2).

        h |ln(q*(1 - p*) / (p*(1 - q*)))|, always finite.
        """
        p_star, q_star = self._exact_p_star, self._exact_q_star
        odds = q_star * (1 - p_star) / (p_star * (1 - q_star))
        return _log_bound(self.h, max(odds, 1 / odds))

    @property
    def epsilon_permanent_of_a_bit(self) -> float:
        """As `epsilon_permanent`, of values that differ in one bit: ln((1 - f/2) / (f/2))."""
        flip = _exact(self.flip)
        return _log_bound(1, (1 - flip) / flip) if flip else math.inf

    @property
    def epsilon_report_of_a_bit(self) -> float:
        """As `epsilon_report`, of values that differ in one bit: the worse of its two outcomes.

        max(|ln(q*/p*)|, |ln((1 - p*)/(1 - q*))|).
        """
        p_star, q_star = self._exact_p_star, self._exact_q_star
        up, down = q_star / p_star, (1 - p_star) / (1 - q_star)
        return _log_bound(1, max(up, 1 / up, down, 1 / down))

    @property
    def _exact_p_star(self) -> Fraction:
        return _mixed(self.flip, self.q, self.p)

    @property
    def _exact_q_star(self) -> Fraction:
        return _mixed(self.flip, self.p, self.q)


@lru_cache(maxsize=64)
def _mixed(chance: float, one: float, other: float) -> Fraction:
    """Return one probability with this chance, and the other else, without rounding."""
    return _exact(chance) * _exact(one) + (1 - _exact(chance)) * _exact(other)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise ParameterError unless a parameter is an integer within its range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        kind = "a multiple of 8" if name == "k" else "an integer"
        raise ParameterError(f"{name} = {value!r}: must be {kind} between {low} and {high}")


def _probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ParameterError(f"{name} = {value!r}: must be a number between 0 and 1")
    return float(value)


def _exact(number: float) -> Fraction:
    """Return a double as the fraction that it is."""
    from fractions import Fraction

    return Fraction(number)


def _log_bound(factor: int, ratio: Fraction) -> float:
    """Smallest double that is certainly not below factor * ln(ratio)."""
    from decimal import ROUND_CEILING, Decimal, localcontext

    with localcontext() as context:
        context.prec = _DIGITS
        context.rounding = ROUND_CEILING
        quotient = Decimal(ratio.numerator) / Decimal(ratio.denominator)
        # ln rounds to nearest whatever the context says: one unit in the last place covers it.
        bound = factor * quotient.ln().next_plus()
    nearest = float(bound)
    return nearest if Decimal(nearest) >= bound else math.nextafter(nearest, math.inf)
