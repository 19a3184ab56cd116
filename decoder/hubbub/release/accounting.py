"""What several releases of one table cost together.

Basic composition adds epsilons and deltas, exactly. Zero-concentrated differential privacy adds
rhos, which grow with epsilon squared: of many small releases that is far less, of a few large ones
more. A ledger uses one of the two for good: choosing by what was spent would let deltas of both
count, because which one applies could depend on answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from fractions import Fraction

from hubbub.release.noise import Cost, gaussian_epsilon

_MOST_EXPONENT = 700.0  # of e, in a float


class Composition(StrEnum):
    """How costs add up."""

    BASIC = "basic"
    ZCDP = "zcdp"

    @property
    def theorem(self) -> str:
        """Source of the bound."""
        if self is Composition.BASIC:
            return (
                "basic composition (Dwork, McSherry, Nissim, Smith 2006): epsilons, deltas add up"
            )
        return (
            "zCDP composition (Bun, Steinke 2016): rhos add up, epsilon^2/2 of a pure release; to "
            "epsilon at half of the delta (Canonne, Kamath, Steinke 2020), the other half is for "
            "single releases"
        )


def total(costs: Iterable[Cost], composition: Composition, delta: Fraction) -> Cost:
    """Return what releases cost together.

    `costs`: one of each release. `composition`: by sums, or by zCDP. `delta`: the whole budget's:
    with zCDP half of it is for conversion, half for single releases.

    Notes
    -----
    A release of (epsilon, delta) is delta-approximate epsilon^2/2-zCDP (Bun, Steinke 2016, section
    8), Gaussian noise rho-zCDP without any delta. Rhos and deltas are bounded apart from each
    other: were a delta that single releases leave free to be converted at, whoever asks could
    decide by answers which of the two fails, and both could (the bounds of adaptive composition are
    on each: Whitehouse, Ramdas, Rogers, Wu 2023).
    """
    every = list(costs)
    if composition is Composition.BASIC or not every:
        epsilon = sum((cost.epsilon for cost in every), Fraction(0))
        return Cost(epsilon, sum((cost.delta for cost in every), Fraction(0)))
    rho = sum((_rho(cost) for cost in every), Fraction(0))
    own = sum((cost.delta for cost in every if cost.rho is None), Fraction(0))
    converted_at = delta / 2
    scale = math.sqrt(float(1 / (2 * rho)))  # of Gaussian noise with this rho
    scale = math.nextafter(scale, 0.0)
    return Cost(gaussian_epsilon(scale, 1.0, converted_at), own + converted_at, rho)


def group(cost: Cost, people: int) -> Cost:
    """Return what a release reveals about several people together.

    Notes
    -----
    people * epsilon, and delta (e^(people epsilon) - 1) / (e^epsilon - 1) (Vadhan 2017, lemma 2.2).
    """
    if people == 1 or not cost.delta:
        return Cost(people * cost.epsilon, cost.delta)
    epsilon = float(cost.epsilon)
    if people * epsilon > _MOST_EXPONENT:
        return Cost(people * cost.epsilon, Fraction(1))
    growth = people if epsilon == 0 else math.expm1(people * epsilon) / math.expm1(epsilon)
    return Cost(people * cost.epsilon, min(cost.delta * Fraction(growth), Fraction(1)))


def _rho(cost: Cost) -> Fraction:
    return cost.epsilon**2 / 2 if cost.rho is None else cost.rho
