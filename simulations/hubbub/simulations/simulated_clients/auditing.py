"""What an attacker really learns from one simulated report, beside what epsilon allows.

Two values' reports are drawn, and how often each shows the pattern that distinguishes them best:
the bits that only the first sets are 1, those that only the second sets 0. The logarithm of the
ratio of the two frequencies is a lower estimate of what a report reveals, and must not exceed
epsilon_report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.inference.arrays import IntArray
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.clients import SimulatedClients
from hubbub.simulations.simulated_clients.true_bits import packed_filters

_ALARM = 1e-6
"""Of either bound: an audit in a million says that a promise was broken which was kept."""
_PAIRS = 200


@dataclass(frozen=True, slots=True)
class Audit:
    """What was seen, and what was promised."""

    epsilon_report: float  # the promise
    # Logarithm of the ratio of the two frequencies; inf if the second value never showed it.
    observed: float
    # Exact lower bound of what is revealed; above epsilon_report with probability 2e-6 at most.
    at_least: float
    reports: int  # of each value

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, as far as this can tell."""
        return self.at_least <= self.epsilon_report


def audit_epsilon(params: RapporParams, reports: int, rng: np.random.Generator) -> Audit:
    """Try to tell two values apart by single reports of cohort 0.

    `reports`: reports of each value.
    """
    alone = params._replace(m=1)
    # Two values whose Bloom filters have as many bits of their own as can be found.
    values = tuple(f"audit {i}" for i in range(_PAIRS))
    packed = packed_filters([canonical_bytes(value) for value in values], alone)
    filters = np.unpackbits(packed, axis=1).astype(np.int64)
    apart: IntArray = np.abs(filters[:1] - filters[1:]).sum(axis=1)
    other = 1 + int(np.argmax(apart))
    clients = SimulatedClients((values[0], values[other]), alone, rng)
    first, second = packed[0], packed[other]
    ones, zeros = first & ~second, second & ~first
    if params.q < params.p:
        ones, zeros = zeros, ones
    shown = []
    for value in range(2):
        _, bits = clients.report(np.full(reports, value, dtype=np.int64))
        shown.append(int(((bits & (ones | zeros)) == ones).all(axis=1).sum()))
    often, seldom = shown
    low = float(stats.beta.ppf(_ALARM, often, reports - often + 1)) if often else 0.0
    high = float(stats.beta.isf(_ALARM, seldom + 1, reports - seldom)) if seldom < reports else 1.0
    return Audit(
        epsilon_report=params.epsilon_report,
        observed=math.log(often / seldom) if often and seldom else math.inf,
        at_least=math.log(low / high) if low else -math.inf,
        reports=reports,
    )
