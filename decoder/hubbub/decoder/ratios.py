"""How much likelier a report is under one value than under another, and how much of it is noise.

A metric type's two worst values decide how well a crowd hides one client; `privacy.amplification`
makes bounds of these ratios.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.decoder.arrays import FloatArray
from hubbub.protocol.params import RapporParams


@dataclass(frozen=True, slots=True)
class Ratios:
    """Likelihood ratios of a report for one value against another, and how much noise hides them.

    Attributes
    ----------
    blanket : float
        Share gamma of a report that doesn't depend on the value: with this probability a report
        is a draw from one distribution, the blanket, whoever sends it.
    chance : float64 array, shape (a,)
        The blanket's probability of each class of reports with equal ratios.
    first, second : float64 array, shape (a,)
        How likely such a report is under either value, relative to the blanket.
    """

    blanket: float
    chance: FloatArray
    first: FloatArray
    second: FloatArray

    def swapped(self) -> Ratios:
        """Return the same with the two values exchanged."""
        return Ratios(self.blanket, self.chance, self.second, self.first)


def filter_ratios(params: RapporParams) -> Ratios:
    """Return the ratios of two values that set h bits each, none in common.

    A report's distribution relative to that of no true bit at all is a product over the value's
    bits, each factor at least Q = min(q*/p*, (1 - q*)/(1 - p*)): so a share Q^h of every report is
    noise that has no true bit. Under it each of the 2h bits is 1 with probability p*.
    """
    one, zero = params.q_star / params.p_star, (1 - params.q_star) / (1 - params.p_star)
    ones = np.arange(params.h + 1)
    chance = special.binom(params.h, ones) * params.p_star**ones
    chance *= (1 - params.p_star) ** (params.h - ones)
    product = one**ones * zero ** (params.h - ones)
    return Ratios(
        blanket=min(one, zero) ** params.h,
        chance=np.outer(chance, chance).ravel(),
        first=np.repeat(product, params.h + 1),
        second=np.tile(product, params.h + 1),
    )


def bit_ratios(params: RapporParams) -> Ratios:
    """Return the ratios of one bit that is set under the first value only."""
    first = np.array([1 - params.q_star, params.q_star])
    second = np.array([1 - params.p_star, params.p_star])
    common = np.minimum(first, second)
    blanket = float(common.sum())
    chance = common / blanket
    return Ratios(blanket, chance, first / chance, second / chance)
