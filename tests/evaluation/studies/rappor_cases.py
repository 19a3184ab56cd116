"""google/rappor's regression cases: true strings found, false ones, distance and time.

The cases are those that its `tests/regtest_spec.py` lists: five distributions of 100 to 10,000
values, a thousand to a hundred million clients who report once, and a demonstration of clients who
report ten times. Every tenth value isn't a candidate, others that nobody holds are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from evaluation.genie import Information, detected
from evaluation.laboratory import seed_of
from evaluation.studies.cases import score_decoding
from evaluation.studies.regimes import ALPHA, completed, timed
from evaluation.studies.study import Study, means
from hubbub.decoder import CohortCounts, Correction, count_records, decode
from hubbub.inference import ONCE_OF_REPORTS, FloatArray, IntArray, PackedReports, hashed, pack
from hubbub.protocol import RapporParams
from hubbub.simulations import (
    LongitudinalClients,
    Scenario,
    as_records,
    family_shares,
    made_up,
    make_scenario,
    true_bits,
)

DISTRIBUTIONS = {
    "unif": "uniform",
    "exp": "exponential:5",
    "gauss": "gauss",
    "zipf1": "zipf:1",
    "zipf1.5": "zipf:1.5",
}
SIZES = {
    "tiny": (100, 1_000),
    "small": (100, 1_000_000),
    "medium": (1_000, 10_000_000),
    "large": (10_000, 100_000_000),
}
"""Values, and clients."""
TIGHT = RapporParams(k=8, h=2, m=128, f=0.45, p=0.39, q=0.61)
LOOSE = RapporParams(k=8, h=2, m=128, f=0.0, p=0.225, q=0.775)
DEMO = RapporParams(k=16, h=2, m=64, f=0.2, p=0.1, q=0.9)
LISTS = {
    "typical": (TIGHT, 0.2, 0.1),
    "sharp": (TIGHT, 0.0, 0.0),
    "loose": (LOOSE, 0.2, 0.1),
    "over_x2": (TIGHT, 2.0, 0.1),
    "over_x10": (TIGHT, 10.0, 0.1),
}
"""Parameters, absent candidates for each value, and the share of values that aren't listed."""


class RapporScore(NamedTuple):
    """What one decoding found, its distance to the truth over all values, and its CPU seconds.

    Genie and oracle find so many true strings of as many absent ones from the same whole reports;
    nan where clients report more than once.
    """

    found: int
    genie: float
    oracle: float
    false: int
    coverage_of_detected: float
    total_variation: float
    seconds: float


class Collected(NamedTuple):
    """Reports, their counts, and how many there are of each value, shape (v,)."""

    reports: PackedReports
    counts: CohortCounts
    holders: IntArray


@dataclass(frozen=True, slots=True)
class RapporCase:
    """One line of the specification."""

    name: str
    size: str
    distribution: str
    params: RapporParams
    values: int  # values, clients, each: Each client makes so many reports
    clients: int
    each: int
    # extra, missing: Absent candidates for each value; share of the values that aren't listed
    extra: float
    missing: float

    @property
    def work(self) -> float:
        return self.values * (1 + self.extra)

    def scenario(self, number: int) -> Scenario:
        """Return a trial's values in their order, those of a normal distribution about the middle.

        So every tenth that is missing is so in any part of the distribution.
        """
        shares = family_shares(DISTRIBUTIONS[self.distribution], self.values)
        if self.distribution == "gauss":
            distance = np.abs(np.arange(1, self.values + 1) - self.values // 2)
            shares = shares[np.argsort(np.argsort(distance, kind="stable"))]
        absent = tuple(f"run {number} absent {i}" for i in range(round(self.extra * self.values)))
        return make_scenario(made_up(shares, f"run {number} v"), self.missing, absent)

    def collect(self, scenario: Scenario, number: int) -> Collected:
        """Draw a trial's clients and their reports."""
        seed = seed_of(self.name, number)
        rng = np.random.Generator(np.random.SFC64(seed))
        values, shares = scenario.population.values, scenario.population.shares
        if self.each == 1:
            return draw_kinds(values, shares, self.params, self.clients, rng)
        clients = LongitudinalClients(values, self.params, seed)
        who = np.repeat(np.arange(self.clients), self.each)
        held = rng.choice(len(values), size=len(who), p=shares)
        records = as_records(clients.cohorts(who), clients.report(who, held, rng))
        holders = np.bincount(held, minlength=len(values))
        return Collected(pack([records], self.params), count_records(records, self.params), holders)

    def run(self, number: int) -> RapporScore:
        scenario = self.scenario(number)
        collected = self.collect(scenario, number)
        candidates = hashed(scenario.candidates, self.params)
        counted, first = timed(
            lambda: decode(collected.counts, self.params, candidates, repeats=ONCE_OF_REPORTS)
        )
        found, more = timed(lambda: completed("auto", counted, collected.reports, candidates))
        score = score_decoding(scenario.candidates_share(collected.holders), found or counted)
        return RapporScore(
            score.true_positives,
            *self.bounds(scenario, collected, number),
            score.false_positives,
            score.interval_coverage_detected,
            score.total_variation_all,
            first + more,
        )

    def bounds(self, scenario: Scenario, collected: Collected, number: int) -> tuple[float, float]:
        """Return how many held strings the genie finds by the decoder's rule, and the oracle."""
        if self.each > 1:
            return math.nan, math.nan
        values, shares = scenario.population.values, scenario.population.shares
        known = Information.of_reports(collected.reports, values, shares)
        listed = np.isin(values, scenario.candidates)
        held = collected.holders[listed] > 0
        absent = len(scenario.candidates) - int(listed.sum())
        rng = np.random.default_rng(seed_of(f"{self.name} absent", number))
        genie, oracle = (
            int((detected(z[listed], absent, ALPHA, Correction.BH, rng) & held).sum())
            for z in (known.genie(), known.oracle())
        )
        return genie, oracle


def draw_kinds(
    values: Sequence[str], shares: FloatArray, params: RapporParams, clients: int, rng: Generator
) -> Collected:
    """Let any number of clients report eight bits once: each kind of report is drawn but once.

    Given the true bits a report's chances are a product over its bits, so that the reports of all
    clients of a cohort who set the same bits are one draw of a multinomial distribution.
    """
    kinds = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    ones = np.where(kinds[:, None], params.q_star, params.p_star)
    chance = np.where(kinds, ones, 1 - ones).prod(axis=2)
    bits_of = true_bits(values, params)
    copies = np.zeros((params.m, 256), dtype=np.int64)
    holders = np.zeros(len(values), dtype=np.int64)
    everyone = np.arange(len(values))
    for cohort, size in enumerate(rng.multinomial(clients, np.full(params.m, 1 / params.m))):
        held = rng.multinomial(size, shares)
        holders += held
        true = bits_of.take(everyone, np.full(len(values), cohort))[:, 0]
        of_kinds = np.bincount(true, weights=held, minlength=256).astype(np.int64)
        copies[cohort] = rng.multinomial(of_kinds, chance).sum(axis=0)
    cohorts, kind = np.nonzero(copies)
    starts = np.searchsorted(cohorts, np.arange(params.m + 1))
    reports = PackedReports(
        params, starts, kind.astype(np.uint8)[:, None], copies[cohorts, kind].astype(float), clients
    )
    return Collected(reports, CohortCounts(copies.sum(axis=1), copies @ kinds), holders)


def cases() -> tuple[RapporCase, ...]:
    """Return all cases, in the specification's order."""
    once = tuple(
        RapporCase(f"r-{distribution}-{size}-{name}", size, distribution, params, values, clients,
                   1, extra, missing)
        for size, (values, clients) in SIZES.items()
        for distribution in DISTRIBUTIONS
        for name, (params, extra, missing) in LISTS.items()
    )  # fmt: skip
    demo = tuple(
        RapporCase(f"demo{i}", "demo", distribution, DEMO, 100, 10_000, 10, 0.1, 0.1)
        for i, distribution in enumerate(DISTRIBUTIONS, start=1)
    )
    return once + demo


def sums(chosen: Sequence[RapporCase], scores: Sequence[Sequence[RapporScore]]) -> tuple[str, ...]:
    """Say what the cases of each size come to in one run, and all."""
    sizes = dict.fromkeys(case.size for case in chosen)
    notes = []
    for size in (*sizes, "all"):
        every = [
            score
            for case, each in zip(chosen, scores, strict=True)
            for score in each
            if size in {case.size, "all"}
        ]
        found, genie, oracle, false, _, distance, seconds = np.nansum(every, axis=0)
        runs, false_share = len(scores[0]), false / max(found + false, 1)
        bounds = ""
        if not any(math.isnan(score.genie) for score in every):
            bounds = f" (genie {genie / runs:,.1f}, oracle {oracle / runs:,.1f})"
        notes.append(
            f"{size}: {len(every) // runs} cases, {found / runs:,.1f} true strings found{bounds}, "
            f"false share {false_share:.3f}, total variation {distance / len(every):.3f}, "
            f"{seconds / len(every):.2f} s of CPU a case."
        )
    return tuple(notes)


STUDY = Study(
    "google/rappor's regression cases",
    "google/rappor's regression cases, decoded as auto does.\n\nTotal variation is over all "
    "values, what isn't detected counting as 0. The genie knows every other string's share, the "
    "oracle which strings are held; both are held to the decoder's false share.",
    cases,
    {
        "case": lambda case, _: case.name,
        "reports": lambda case, _: case.clients * case.each,
        "candidates": lambda case, _: len(case.scenario(0).candidates),
        **means(*RapporScore._fields),
    },
    notes=sums,
)
