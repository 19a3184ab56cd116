"""Which shares of open strings are really found: whole searches, and the share that most find.

Populations are real lists of names, because how likely strings look decides what is looked for.
Counts are drawn from their exact law: given who has what, bits are independent binomials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from hubbub.decoder import CohortCounts
from hubbub.inference.arrays import FloatArray
from hubbub.inference.candidates import hash_words, positions_in
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.planning.goals import Plan
from hubbub.planning.open_strings import OpenGoal
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.populations import LISTS, Population


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """Searches of one population with one set of parameters.

    Attributes
    ----------
    shares : float64 array, shape (n,)
        Of the population's strings.
    found : float64 array, shape (n,)
        In what part of the runs each was found.
    n_found, n_false : float
        Right and false strings of a run, on average.
    """

    shares: FloatArray
    found: FloatArray
    n_found: float
    n_false: float

    @classmethod
    def of(cls, population: str, searches: Sequence[Search]) -> OpenRuns:
        """Put several searches of a population together."""
        people, runs = LISTS[population](), len(searches)
        found = np.array([sum(x in each.found for each in searches) for x in people.values]) / runs
        n_false = sum(each.n_false for each in searches) / runs
        return cls(people.shares, found, float(found.sum()), n_false)

    def share_found(self, power: float) -> float:
        """Return the share that is found with a probability, by probit regression on shares."""
        intercept, slope = self._probit()
        return float((special.ndtri(power) - intercept) / slope)

    def _probit(self) -> tuple[float, float]:
        scale = float(np.sort(self.shares)[-max(1, round(self.n_found))])
        x = self.shares / scale

        def loss(line: FloatArray) -> float:
            z = line[0] + line[1] * x
            likelihood = self.found * special.log_ndtr(z) + (1 - self.found) * special.log_ndtr(-z)
            return -float(likelihood.sum())

        fit = optimize.minimize(loss, np.array([-3.0, 3.0]), method="Nelder-Mead")
        return float(fit.x[0]), float(fit.x[1] / scale)


class Search(NamedTuple):
    """Strings that one search found, and how many of them nobody holds."""

    found: frozenset[str]
    n_false: int


def run_search(population: str, goal: OpenGoal, plan: Plan, seed: int) -> Search:
    """Search a population of `hubbub.simulations.populations.LISTS` once."""
    people = LISTS[population]()
    rng = np.random.default_rng([seed, round(plan.reports)])
    metric_type = OpenStringType(goal.steps, plan.params.m)
    params = plan.params._replace(m=goal.groups * plan.params.m)
    counts = count_open_reports(people, metric_type, params, round(plan.reports), rng)
    decoding = decode_open_strings(counts, params, metric_type).decoding
    rows = np.flatnonzero(decoding.detected).tolist()
    found = frozenset(decoding.candidates[row] for row in rows)
    return Search(found, len(found - set(people.values)))


def count_open_reports(
    people: Population,
    metric_type: OpenStringType,
    params: RapporParams,
    n_reports: int,
    rng: np.random.Generator,
) -> CohortCounts:
    """Draw the bit counts of clients that report once."""
    encoded = [canonical_bytes(value) for value in people.values]
    reports = rng.multinomial(n_reports, np.full(params.m, 1 / params.m))
    true = np.zeros((params.m, params.k), dtype=np.int64)
    steps = range(len(metric_type.steps) + 1)
    words = [hash_words([metric_type.prefix(text, step) for text in encoded]) for step in steps]
    for cohort in range(params.m):
        hashed = np.full(len(encoded), metric_type.hashed_cohort(cohort))
        position = positions_in(words[cohort // metric_type.cohorts], hashed, params)[:, 0]
        held = rng.multinomial(int(reports[cohort]), people.shares)
        true[cohort] = np.bincount(position, held, params.k)
    others = reports[:, None] - true
    bits = rng.binomial(true, params.q_star) + rng.binomial(others, params.p_star)
    return CohortCounts(reports, bits)
