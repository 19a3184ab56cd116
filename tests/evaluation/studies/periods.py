"""Who is who in two periods? Two reports of each client, in any order, cohorts and bits alone.

Reports are made by the client's own code. An attacker scores each pair by how much likelier it is
to be of one client than of two, and takes the best matching of all. Where all clients hold one
value nothing is left to know, so it looks for coins that both reports share instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from evaluation.laboratory import Figure, seed_of
from evaluation.studies.study import Study
from factories import make_metric, make_params, make_secret
from hubbub.client import Encoder, Metric
from hubbub.inference import FloatArray
from hubbub.protocol import EnumType, NumberType, Report, Subset, Value, Window
from significance import BitArray, unpack

CLIENTS = 1_000
COLOURS = tuple(map(str, range(20)))
STRINGS = make_metric("page", params=make_params(k=128, h=1, m=64, f=0.0, p=0.0122, q=0.5),
                      mode="once", period_days=30)  # fmt: skip
ENUM = make_metric("colour", metric_type=EnumType(COLOURS), mode="once", period_days=30,
                   response=Subset(20, 2, 0.8))  # fmt: skip
NUMBER = make_metric("minutes", metric_type=NumberType(0.0, 60.0, 16, 4), mode="once",
                     period_days=30, response=Window(16, 4, 0.95))  # fmt: skip
DAILY = make_metric("daily", params=make_params(k=128, h=2, m=64, f=0.5, p=0.25, q=0.75),
                    period_days=30)  # fmt: skip


class Links(NamedTuple):
    """How many reports were put together rightly, and how many any fixed guess would be: 1."""

    right: int


@dataclass(frozen=True, slots=True)
class PairsCase:
    """Clients that report twice."""

    name: str
    metric: Metric
    values: tuple[Value, ...]  # what clients hold, the first most often
    exponent: float = 0.0  # share i is proportional to (i + 1) to the power of minus this
    redraws: bool = True  # whether the second report is of another period

    @property
    def work(self) -> float:
        return 1.0 + len(self.values)

    @property
    def shares(self) -> FloatArray:
        """How common each value is."""
        weights = np.arange(1.0, len(self.values) + 1) ** -self.exponent
        return np.asarray(weights / weights.sum())

    def run(self, number: int) -> Links:
        rng = np.random.default_rng(seed_of(self.name, number))
        held = rng.choice(len(self.values), CLIENTS, p=self.shares)
        first, second = [], []
        for client, value in enumerate(held):
            encoder = Encoder(self.metric, make_secret(f"{number} {client}"))
            answer = encoder.fresh_response(self.values[value], rng.bytes)
            first.append(encoder.report(answer, rng.bytes))
            if self.redraws:
                answer = encoder.fresh_response(self.values[value], rng.bytes)
            second.append(encoder.report(answer, rng.bytes))
        order = rng.permutation(CLIENTS)  # or ties would be broken in favour of the truth
        score = self._score(first, [second[i] for i in order])
        rows, columns = optimize.linear_sum_assignment(-score)
        return Links(int((order[columns] == rows).sum()))

    def _score(self, first: Sequence[Report], second: Sequence[Report]) -> FloatArray:
        if len(self.values) == 1:
            return _agreement(first, second)
        one, other = self._log_likelihoods(first), self._log_likelihoods(second)
        # As a product of matrices: of each report's likelihoods only ratios count.
        one, other = (np.exp(each - each.max(axis=1, keepdims=True)) for each in (one, other))
        together = (one * self.shares) @ other.T
        return np.asarray(np.log(together / np.outer(one @ self.shares, other @ self.shares)))

    def _log_likelihoods(self, reports: Sequence[Report]) -> FloatArray:
        """Return ln P(report | value), shape (clients, values): of bits with noise of their own."""
        params, a_type = self.metric.params, self.metric.type
        true = {
            cohort: unpack(
                b"".join(
                    a_type.bits(value, cohort, params).to_bytes(params.k // 8, "little")
                    for value in self.values
                ),
                params.k,
            )
            for cohort in {report.cohort for report in reports}
        }
        found = []
        for report, bits in zip(reports, _bits(reports), strict=True):
            chance = np.where(true[report.cohort] == 1, params.q_star, params.p_star)
            found.append(np.log(np.where(bits == 1, chance, 1 - chance)).sum(axis=1))
        return np.array(found)


def _bits(reports: Sequence[Report]) -> BitArray:
    return unpack(b"".join(report.bits for report in reports), 8 * len(reports[0].bits))


def _agreement(first: Sequence[Report], second: Sequence[Report]) -> FloatArray:
    one, other = (2.0 * _bits(reports) - 1 for reports in (first, second))
    cohorts = [np.array([report.cohort for report in reports]) for reports in (first, second)]
    return np.asarray(one @ other.T + one.shape[1] * (cohorts[0][:, None] == cohorts[1]))


WORDS = tuple(f"page-{i}.example" for i in range(100))
CASES = (
    PairsCase("once, strings, all the same", STRINGS, ("a.example",)),
    PairsCase("once, a set of categories, all the same", ENUM, ("3",)),
    PairsCase("once, a number, all the same", NUMBER, (30.0,)),
    PairsCase("once, 100 strings that last, Zipf", STRINGS, WORDS, 1.0),
    PairsCase("once, 100 strings that last, equally common", STRINGS, WORDS),
    PairsCase("twice in a period, all the same", DAILY, ("a.example",), redraws=False),
)

STUDY = Study(
    title="Links between two reports",
    explained=(
        f"{CLIENTS:,} clients report twice; of how many the two are put together, over chance (1). "
        "Values that last can link two periods by what they are alone, at most "
        "cosh^2(epsilon / 2)-fold."
    ),
    cases=lambda: CASES,
    columns={
        "case": lambda case, _scores: case.name,
        "epsilon": lambda case, _scores: round(case.metric.price, 2),
        "right links over chance": lambda _case, scores: Figure.of([s.right for s in scores]),
        "at most": lambda case, _scores: _bound(case),
    },
    runs=400,
)


def _bound(case: Any) -> object:
    if not case.redraws:
        return ""
    return 1 if len(case.values) == 1 else f"{np.cosh(case.metric.price / 2) ** 2:,.1f}"
