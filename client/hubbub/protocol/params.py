"""The numbers of RAPPOR and what they promise.

A `RapporParams` turns (k, h, m, f, p, q) into the probabilities that a reported bit has, and those
into epsilons. The epsilons are computed from the very doubles that the sampler compares against,
without rounding but the last, which goes up, so that the stated privacy is never better than the
real.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hubbub.protocol.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from decimal import Context, Decimal
    from fractions import Fraction
    from typing import Any, Self

_DIGITS, _ROUNDING = 60, "1e-40"
"""Each term of an epsilon is right to about 1e-59 times the number of reports; 1e-40 covers 1e18.
"""
MOST_BITS = 4096
"""The largest k: a report is at most 512 bytes."""
MOST_HASHES = 8
MOST_COHORTS = 65_535
"""The most that two bytes can number; types may allow fewer."""
COHORT_BYTES = 2
"""A record is the cohort (unsigned, little-endian) followed by the k/8 bytes of bits."""


class _Numbers(NamedTuple):
    k: int
    h: int
    m: int
    f: float
    p: float
    q: float
    f0: float
    f1: float


class RapporParams(_Numbers):  # made by __new__: numpydoc ignore=PR02
    """Parameters of the two randomized responses and of the Bloom filter.

    Parameters
    ----------
    k : int
        Bits of the Bloom filter, or of the categories: a multiple of 8 between 8 and 4096.
    h : int
        Hash functions, 1 to 8.
    m : int
        Cohorts, 1 to 65,535; a type may allow fewer.
    f : float, optional
        Permanent noise, 0 <= f < 1: a bit becomes 1 with probability f/2, 0 with f/2, and stays
        as it is otherwise. f = 0 leaves the permanent response out (one report an answer only).
    p, q : float, optional
        Probability that a report's bit is 1 when the permanent bit is 0 (p) or 1 (q); 0 and 1
        leave the instantaneous response out.
    f0, f1 : float, optional
        An asymmetric permanent response, in place of f: the probability that it makes a true 0 a 1
        (f0), or a true 1 a 0 (f1). f means f0 = f1 = f/2, and is f0 + f1 of any two.

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

    def __new__(
        cls,
        k: int,
        h: int,
        m: int,
        f: float = 0.0,
        p: float = 0.0,
        q: float = 1.0,
        f0: float | None = None,
        f1: float | None = None,
    ) -> Self:
        """Check and keep the numbers."""
        check_integer("k", k, 8, MOST_BITS)
        if k % 8:
            raise ParameterError.of("k", k, f"a multiple of 8 between 8 and {MOST_BITS}")
        check_integer("h", h, 1, MOST_HASHES)
        check_integer("m", m, 1, MOST_COHORTS)
        f, f0, f1 = permanent_noise(f, f0, f1)
        p, q = _probability("p", p), _probability("q", q)
        if p == q:
            raise ParameterError(f"p = q = {p}: must differ, or reports carry no information")
        params = super().__new__(cls, k, h, m, f, p, q, f0, f1)
        if not (0 < _mixed(f0, q, p) < 1 and 0 < _mixed(f1, p, q) < 1):
            noise = ", ".join(f"{name} = {value}" for name, value in params.noise.items())
            raise ParameterError(
                f"{noise}: some reports would reveal a true bit "
                "for certain; choose f > 0, or p and q strictly between 0 and 1"
            )
        return params

    def _asdict(self) -> dict[str, Any]:
        return {"k": self.k, "h": self.h, "m": self.m, **self.noise}

    def _replace(self, **changes: Any) -> Self:
        """Return parameters with other numbers, checked; f takes the place of f0 and f1."""
        numbers = self._asdict()
        if "f" in changes:
            numbers = {name: value for name, value in numbers.items() if name not in {"f0", "f1"}}
        return type(self)(**(numbers | changes))

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Self:
        """Return the parameters among the entries of a metric's definition."""
        return cls(**{name: definition[name] for name in cls._fields if name in definition})

    @property
    def is_symmetric(self) -> bool:
        """Whether the permanent response turns a 0 over as often as a 1."""
        return self.f0 == self.f1

    @property
    def noise(self) -> dict[str, float]:
        """The probabilities by name: f, p and q, or f0, f1, p and q."""
        permanent = {"f": self.f} if self.is_symmetric else {"f0": self.f0, "f1": self.f1}
        return {**permanent, "p": self.p, "q": self.q}

    @property
    def has_permanent(self) -> bool:
        """Whether there is a permanent response."""
        return self.f > 0

    @property
    def has_instantaneous(self) -> bool:
        """Whether there is an instantaneous response."""
        return (self.p, self.q) != (0.0, 1.0)

    @property
    def p_star(self) -> float:
        """Probability that a report's bit is 1 although the true bit is 0 (p*)."""
        return float(_mixed(self.f0, self.q, self.p))

    @property
    def q_star(self) -> float:
        """Probability that a report's bit is 1 when the true bit is 1 (q*)."""
        return float(_mixed(self.f1, self.p, self.q))

    @property
    def epsilon_permanent(self) -> float:
        """Bound on what all reports ever made of one value reveal (theorem 1).

        h ln((1 - f0)(1 - f1) / (f0 f1)), which is 2h ln((1 - f/2) / (f/2)) if they are equal;
        infinite if one is 0.
        """
        return self.epsilon_after(math.inf)

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals (theorem 2).

        h |ln(q*(1 - p*) / (p*(1 - q*)))|, always finite.
        """
        return self.epsilon_after(1)

    def epsilon_after(self, reports: float) -> float:
        """Bound on what so many reports of one permanent response reveal.

        Parameters
        ----------
        reports : int or float
            Not negative; infinite: all that can ever be made.

        Notes
        -----
        Let t = q/p, s = (1 - q)/(1 - p), and r(u) = ((1 - f1) u^n + f1) / (f0 u^n + 1 - f0): the
        likelihood of n reported bits under a true 1 over that under a true 0, if all are 1 (u = t)
        or all are 0 (u = s), which are its extremes because r is monotone. Two values differ in at
        most h bits one way and h the other, so the bound is h |ln r(t) - ln r(s)|: exact for
        h = 1. It is epsilon_report for one report, grows with n, and tends to epsilon_permanent.
        With f0 = f1 it is at most n epsilon_report; with others it may be more.
        """
        with _exact_logarithms():
            most, least = _log_ratios(self, reports)
            return _rounded_up(self.h * abs(most - least))

    def epsilon_after_of_a_bit(self, reports: float) -> float:
        """`epsilon_after` for values that differ in one bit: max(|ln r(t)|, |ln r(s)|)."""
        with _exact_logarithms():
            return _rounded_up(max(map(abs, _log_ratios(self, reports))))


def permanent_noise(f: float, f0: float | None, f1: float | None) -> tuple[float, float, float]:
    """Check the permanent response's numbers, and return f, f0 and f1."""
    if f0 is None and f1 is None:
        f = _probability("f", f)
        if f > 0 and f / 2 == 0:
            raise ParameterError(f"f = {f}: must be 0, or large enough for f/2 to be above 0")
        if f == 1:
            raise ParameterError("f = 1.0: must be less than 1, or reports carry no information")
        return f, f / 2, f / 2
    if f0 is None or f1 is None:
        raise ParameterError("f0, f1: must be both given, or none of them (then f is)")
    f0, f1 = _probability("f0", f0), _probability("f1", f1)
    if f0 + f1 >= 1:
        raise ParameterError(
            f"f0 = {f0}, f1 = {f1}: must add up to less than 1, or reports carry no information"
        )
    return f0 + f1, f0, f1


@lru_cache(maxsize=64)
def _mixed(chance: float, one: float, other: float) -> Fraction:
    from fractions import Fraction

    share, first, second = map(Fraction, (chance, one, other))
    return share * first + (1 - share) * second


@lru_cache(maxsize=256)  # clients ask for the same epsilons whenever they store reports
def _log_ratios(params: RapporParams, reports: float) -> tuple[Decimal, Decimal]:
    """Return ln r(t) and ln r(s) (see `RapporParams.epsilon_after`)."""
    from decimal import Decimal

    n, p, q, zero, one = map(Decimal, (reports, params.p, params.q, params.f0, params.f1))
    if not n:
        return Decimal(0), Decimal(0)
    if n.is_infinite():  # only the permanent bit's own odds are left
        return ((1 - one) / zero).ln(), (one / (1 - zero)).ln()

    def log_ratio(if_one: Decimal, if_zero: Decimal) -> Decimal:
        # Both likelihoods divided by the greater, so that none overflows.
        greater = max(if_one, if_zero)
        if_one, if_zero = (if_one / greater) ** n, (if_zero / greater) ** n
        of_one = (1 - one) * if_one + one * if_zero
        of_zero = zero * if_one + (1 - zero) * if_zero
        return (of_one / of_zero).ln()

    return log_ratio(q, p), log_ratio(1 - q, 1 - p)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise ParameterError unless a parameter is an integer within its range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        kind = "a multiple of 8" if name == "k" else "an integer"
        raise ParameterError.of(name, value, f"{kind} between {low} and {high}")


def _probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ParameterError.of(name, value, "a number between 0 and 1")
    return abs(float(value))  # -0.0 as 0.0, or 1 / f0 would be -infinity


def chance_bound(chance: float, others: int, own: int) -> float:
    """Return the smallest double not below |ln(chance others / ((1 - chance) own))|."""
    from decimal import Decimal

    with _exact_logarithms():
        exact = Decimal(chance)
        return _rounded_up(abs((exact * others / ((1 - exact) * own)).ln()))


def _exact_logarithms() -> AbstractContextManager[Context]:
    """Compute with decimals of so many digits that `_rounded_up` covers what is rounded off.

    What only one of two values can give has infinite odds, which raise nothing here.
    """
    from decimal import Context, localcontext

    return localcontext(Context(prec=_DIGITS, Emax=10**17, Emin=-(10**17), traps=[]))


def _rounded_up(bound: Decimal) -> float:
    """Return the smallest double that is certainly not below a bound of `_exact_logarithms`."""
    from decimal import Decimal

    if not bound or not bound.is_finite():
        return float(bound)
    above = bound + Decimal(_ROUNDING)
    nearest = float(above)
    return nearest if Decimal(nearest) >= above else math.nextafter(nearest, math.inf)


class ByDefinition:
    """Equal to another of its class if both have the same definition."""

    __slots__ = ()
    name: ClassVar[str]

    def definition(self) -> dict[str, object]:
        """Return what, besides the parameters, reports depend on."""
        return {}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.definition() == other.definition()

    def __hash__(self) -> int:
        return hash((self.name, repr(self.definition())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.definition()})"
