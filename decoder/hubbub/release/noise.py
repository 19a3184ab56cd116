"""Exact noise on integers, what it costs, and how far it may be off.

OpenDP draws the noise, its maps state what a scale promises; a scale is raised until the map, as
a fraction, is at most what was asked for. Laws are those of the *discrete* distributions: with
a = e^(-1/scale), the discrete Laplace law has P(Z = z) = (1 - a) / (1 + a) a^|z|, whose tails
differ from the continuous one's. Invariant: nothing published comes from floating-point noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hubbub.inference import FloatArray, IntArray
from hubbub.release.errors import QueryError

CONFIDENCE = 0.95  # as everywhere in hubbub
_MOST = 2**62  # stands for no bound: nothing that is paid is near it
_MOST_RHO = 1e6  # beyond which OpenDP's map overflows
_FAR = 12.0  # deviations, beyond which a discrete Gaussian's tail is below 1e-31
_TABULATED = 1e5  # deviations up to which its law is added up term by term
_STEPS = 200  # halvings: two doubles are neighbours after at most 64 and its exponents' 11 bits
_LEAST_EPSILON, _MOST_EPSILON = Fraction("1e-6"), Fraction(10**6)
_LEAST_DELTA = Fraction("1e-100")
_ROUNDING = 1e-13  # relative, and more than that of a threshold


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a release under adding or removing one user's rows."""

    epsilon: Fraction  # delta is 0 for pure differential privacy
    delta: Fraction = Fraction(0)
    # For mechanisms that are zero-concentrated differentially private as well (Gaussian noise).
    rho: Fraction | None = None

    def __add__(self, other: Cost) -> Cost:
        """Return what two releases cost together, by basic composition; their rhos add up, too.

        A pure release has rho = epsilon^2 / 2 (Bun, Steinke 2016, proposition 1.4).
        """
        rhos = [
            cost.epsilon**2 / 2 if cost.rho is None and not cost.delta else cost.rho
            for cost in (self, other)
        ]
        known = [rho for rho in rhos if rho is not None]
        rho = sum(known, Fraction(0)) if len(known) == len(rhos) else None
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta, rho)


def fraction(name: str, value: object) -> Fraction:
    """Return a budget as the fraction that its decimal digits mean: 0.1 is 1/10."""
    try:
        found = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if isinstance(value, bool) or found < 0:
        raise QueryError(f"{name} = {_given(value)}: must be a finite number of at least 0")
    return found


def epsilon_of(value: object) -> Fraction:
    """Return an epsilon (raises QueryError)."""
    found = fraction("epsilon", value)
    if not _LEAST_EPSILON <= found <= _MOST_EPSILON:
        raise QueryError(
            f"epsilon = {_given(value)}: must be from {float(_LEAST_EPSILON):g} to "
            f"{float(_MOST_EPSILON):g}"
        )
    return found


def delta_of(value: object) -> Fraction:
    """Return a delta, 0 for none (raises QueryError)."""
    found = fraction("delta", value)
    if found and not _LEAST_DELTA <= found < 1:
        raise QueryError(
            f"delta = {_given(value)}: must be 0, or at least {float(_LEAST_DELTA):g} and below 1"
        )
    return found


def _given(value: object) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) and value < _MOST else f"{value!r}"


def laplace_scale(sensitivity: int, epsilon: Fraction) -> float:
    """Return the least scale with which Laplace noise costs at most epsilon, by OpenDP.

    The discrete Laplace mechanism: scale = sensitivity / epsilon (Dwork, McSherry, Nissim, Smith
    2006; Ghosh, Roughgarden, Sundararajan 2012).
    """

    def cost(scale: float) -> Fraction:
        return Fraction(_laplace(scale).map(sensitivity))

    return _raised(float(sensitivity / epsilon), epsilon, cost)


def add_laplace(values: Sequence[int] | IntArray, scale: float) -> list[int]:
    """Return integers with independent discrete Laplace noise."""
    return list(_laplace(scale)([int(value) for value in values]))


def laplace_radius(scale: float, confidence: float = CONFIDENCE) -> int:
    """Return the least r with P(|Z| <= r) >= confidence: 1 - 2 a^(r + 1) / (1 + a)."""
    a = math.exp(-1 / scale)
    # 2 a^(r+1) / (1 + a) <= 1 - confidence
    least = -scale * math.log((1 - confidence) * (1 + a) / 2) - 1
    return max(math.ceil(least - 1e-12), 0)


def laplace_threshold(scale: float, delta: Fraction) -> int:
    """Return the least t >= 1 with P(Z >= t) <= delta: a^t / (1 + a), one higher in doubt."""
    surprise = math.log(delta.denominator) - math.log(delta.numerator)
    least = scale * (surprise - math.log1p(math.exp(-1 / scale)))
    return max(math.ceil(least * (1 + _ROUNDING)), 1)


def laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise, 2a / (1 - a)^2."""
    a = math.exp(-1 / scale)
    return 2 * a / math.expm1(-1 / scale) ** 2


@cache
def gaussian_scale(sensitivity: float, epsilon: Fraction, delta: Fraction) -> tuple[float, Cost]:
    """Return a scale of Gaussian noise that costs at most epsilon at delta, and its cost.

    The discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020): rho = sensitivity^2 /
    (2 scale^2), and from there OpenDP's map to (epsilon, delta).
    """
    low, high = 0.0, sensitivity
    while gaussian_epsilon(high, sensitivity, delta) > epsilon:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        enough = gaussian_epsilon(middle, sensitivity, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    rho = Fraction(_gaussian(high).map(sensitivity))
    return high, Cost(epsilon, delta, rho)


def gaussian_epsilon(scale: float, sensitivity: float, delta: Fraction) -> Fraction:
    """Return the epsilon that Gaussian noise costs at delta; very large if there is none."""
    if sensitivity**2 / (2 * scale**2) > _MOST_RHO:
        return Fraction(_MOST)
    dp, at = _opendp(), float(delta)
    if Fraction(at) > delta:
        at = math.nextafter(at, 0.0)
    curve = dp.combinators.make_zCDP_to_approxDP(_gaussian(scale))
    fixed = dp.combinators.make_fix_delta(curve, at)
    found: float = fixed.map(sensitivity)[0]
    return Fraction(found) if math.isfinite(found) else Fraction(_MOST)


def add_gaussian(values: Sequence[int] | IntArray, scale: float) -> list[int]:
    """Return integers with independent discrete Gaussian noise."""
    return list(_gaussian(scale)([int(value) for value in values]))


def gaussian_radius(scale: float, confidence: float = CONFIDENCE) -> int:
    """Return the least r with P(|Z| <= r) >= confidence; P(Z = z) is as exp(-z^2 / (2 scale^2))."""
    if scale > _TABULATED:  # a normal law's, in whole steps, with one to spare
        from scipy.special import ndtri  # noqa: PLC0415 - takes long to import

        return math.ceil(scale * float(ndtri((1 + confidence) / 2))) + 1
    return int(np.searchsorted(np.cumsum(_gaussian_law(scale)), confidence))


def gaussian_variance(scale: float) -> float:
    """Return the variance of discrete Gaussian noise; never above scale^2."""
    if scale > _TABULATED:
        return scale**2
    law = _gaussian_law(scale)
    return float((law * np.arange(len(law)) ** 2).sum())


def _gaussian_law(scale: float) -> FloatArray:
    z = np.arange(math.ceil(_FAR * scale) + 2, dtype=np.float64)
    chances = np.exp(-(z**2) / (2 * scale**2))
    chances[1:] *= 2
    law: FloatArray = chances / chances.sum()
    return law


def select_scale(sensitivity: int, epsilon: Fraction, *, monotonic: bool, best: int = 1) -> float:
    """Return the least scale with which selecting the best few costs at most epsilon.

    The exponential mechanism by permute-and-flip (McKenna, Sheldon 2020): 2 sensitivity / epsilon,
    half of that if one user moves all scores in the same direction.
    """

    def cost(scale: float) -> Fraction:
        return Fraction(_selector(scale, monotonic, best).map(sensitivity))

    start = best * sensitivity * (1 if monotonic else 2) / epsilon
    return _raised(float(start), epsilon, cost)


def select(
    scores: Sequence[int] | IntArray, scale: float, *, monotonic: bool, best: int = 1
) -> list[int]:
    """Return the places of about the highest scores, the highest first."""
    found = _selector(scale, monotonic, best)([int(score) for score in scores])
    return [int(found)] if best == 1 else list(found)


def _raised(scale: float, epsilon: Fraction, cost: Callable[[float], Fraction]) -> float:
    for _ in range(_STEPS):
        if cost(scale) <= epsilon:
            return scale
        scale = math.nextafter(scale * (1 + 1e-15), math.inf)
    raise QueryError(f"epsilon = {float(epsilon):g}: no scale of noise was found for it")


@cache
def _opendp() -> Any:
    """Return OpenDP with the modules that are needed.

    Its prelude would import scikit-learn, polars and more, which takes ten times as long.
    """
    import opendp.combinators  # noqa: PLC0415 - when noise is drawn
    import opendp.domains  # noqa: PLC0415
    import opendp.measurements  # noqa: PLC0415
    import opendp.measures  # noqa: PLC0415
    import opendp.metrics  # noqa: PLC0415
    import opendp.mod  # noqa: PLC0415

    opendp.mod.enable_features("contrib")
    return opendp


@cache
def _laplace(scale: float) -> Any:
    dp = _opendp()
    domain = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    return dp.measurements.make_laplace(domain, dp.metrics.l1_distance(T="i64"), scale=scale)


@cache
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    domain = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    return dp.measurements.make_gaussian(domain, dp.metrics.l2_distance(T="f64"), scale=scale)


@cache
def _selector(scale: float, monotonic: bool, best: int) -> Any:
    dp = _opendp()
    domain = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    metric = dp.metrics.linf_distance(T="i64", monotonic=monotonic)
    measure = dp.measures.max_divergence()
    if best == 1:
        return dp.measurements.make_noisy_max(domain, metric, measure, scale=scale)
    return dp.measurements.make_noisy_top_k(domain, metric, measure, k=best, scale=scale)
