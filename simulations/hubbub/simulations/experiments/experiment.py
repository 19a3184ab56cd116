"""One experiment: a scenario, its reports, a decoding, and how far that was from the truth.

Scenarios whose truth is known: a population, and the candidates that the decoder looks for.

A scenario's clients report, the reports are counted, and each candidate's share of them is the
truth that a decoding is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference import (
    ONCE_OF_REPORTS,
    ByteArray,
    Correction,
    Decoding,
    FloatArray,
    IntArray,
    count_records,
    decode,
    decode_open_strings,
)
from hubbub.inference.counts import CohortCounts
from hubbub.protocol import RapporParams
from hubbub.simulations.experiments.scoring import (
    Band,
    DecodedShares,
    Score,
    bands,
    held_shares,
    p_values_below,
    score,
)
from hubbub.simulations.populations import Population
from hubbub.simulations.simulated_clients.clients import (
    Attack,
    AttackKind,
    Audit,
    as_records,
    audit_epsilon,
    choose_targets,
    forge,
)
from hubbub.simulations.simulated_clients.population_sampler import (
    CHUNK,
    ReportingPlan,
    sample_population,
)

_SLACK = 1e-9
"""So that a share such as 0.1, which isn't a binary fraction, leaves out every tenth string."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A population and the strings that are looked for."""

    population: Population
    # Distinct: those of the population's values that are listed, in their order, then others.
    candidates: tuple[str, ...]
    listed: IntArray  # indices of the listed values

    def candidates_share(self, holders: IntArray) -> FloatArray:
        """Return each candidate's share of the reports from each value's, shapes (n,) and (v,)."""
        shares = np.zeros(len(self.candidates))
        shares[: len(self.listed)] = holders[self.listed] / max(int(holders.sum()), 1)
        return shares


@dataclass(frozen=True, slots=True)
class CollectedCounts:
    """A collector's counts, and the truth."""

    counts: CohortCounts
    candidates: tuple[str, ...]
    truth: FloatArray  # shape (n,); each candidate's share of the collected reports


def make_scenario(population: Population, missing: float, absent: tuple[str, ...]) -> Scenario:
    """List a population's values, but for some, and add candidates that no client has.

    The `missing` share is spread evenly over their order; of 0.1 the 9th, 19th, 29th ..., as in
    google/rappor's regression tests.
    """
    quotas = np.floor(np.arange(1, len(population.values) + 2) * missing + _SLACK)
    listed = np.flatnonzero(np.diff(quotas) <= 0)
    held = set(population.values)
    strings = [population.values[i] for i in listed.tolist()]
    return Scenario(population, (*strings, *(s for s in absent if s not in held)), listed)


def collect(
    scenario: Scenario,
    params: RapporParams,
    clients: int,
    seed: np.random.SeedSequence,
    periods: int = 1,
) -> CollectedCounts:
    """Let so many clients of a scenario report once, or in each period, and count the reports."""
    # Counts don't separate the days of a period.
    days = 1 if periods > 1 else 0
    plan = ReportingPlan(scenario.population, params, clients, periods, period_days=days)
    sample = sample_population(plan, seed)
    truth = scenario.candidates_share(sample.holders)
    return CollectedCounts(sample.counts, scenario.candidates, truth)


_AUDITED = 1 << 19  # reports of either value, in some seconds
_PEOPLE, _FORGERS, _AUDIT = range(3)
"""Parts of the experiment that draw random numbers of their own."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A population, its parameters and the decoder's options."""

    scenario: Scenario
    plan: ReportingPlan  # of the honest clients: the scenario's population
    attack: Attack | None = None  # forged reports come on top of the clients'
    alpha: float = 0.05
    correction: Correction = Correction.BH
    # The decoder's `--method`; in memory only "regression", from bit counts.
    method: str = "regression"
    seed: int = 0

    @property
    def params(self) -> RapporParams:
        """The parameters of all reports."""
        return self.plan.params

    @property
    def honest(self) -> int:
        """Reports of honest clients."""
        return self.plan.reports

    @property
    def forged(self) -> int:
        """Forged reports: so many that they are the attack's share of all."""
        share = self.attack.share if self.attack else 0.0
        return round(self.honest * share / (1 - share))

    @property
    def people(self) -> np.random.SeedSequence:
        """Seed of the honest clients."""
        return np.random.SeedSequence([self.seed, _PEOPLE])

    def targets(self) -> tuple[str, ...]:
        """Return the strings that the attack is for: the candidates that are held least."""
        if self.attack is None:
            return ()
        scenario = self.scenario
        shares = np.zeros(len(scenario.candidates))
        shares[: len(scenario.listed)] = scenario.population.shares[scenario.listed]
        return choose_targets(self.attack, scenario.candidates, shares)

    def forgeries(self) -> Iterator[tuple[IntArray, ByteArray]]:
        """Make the forged reports in parts, each of them cohorts and bits."""
        if self.attack is None:
            return
        seed, targets = (self.seed, _FORGERS), self.targets()
        rng = np.random.default_rng(seed)
        for start in range(0, self.forged, CHUNK):
            if self.attack.kind is AttackKind.REPLAY:
                rng = np.random.default_rng(seed)  # the same report in all parts
            size = min(CHUNK, self.forged - start)
            yield forge(self.attack, size, targets, self.params, rng, self.plan.open_type)


@dataclass(frozen=True, slots=True)
class Target:
    """The effect of an attack on one string."""

    string: str
    truth: float  # its share of all reports, and the estimate
    estimate: float
    detected: bool


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """How an experiment went."""

    # The judged strings: the candidates; for open strings also those found, and those that clients
    # have.
    strings: tuple[str, ...]
    truth: FloatArray  # shape (n,); each string's share of all collected reports
    estimates: DecodedShares
    score: Score
    bands: tuple[Band, ...]
    p_values: dict[str, float]  # share of the absent candidates whose p-value is at most each level
    audit: Audit
    targets: tuple[Target, ...]


def run_in_memory(
    experiment: Experiment,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ExperimentOutcome:
    """Draw, count, decode and score reports in memory; the same whatever the number of workers."""
    sample = sample_population(
        experiment.plan, experiment.people, workers=workers, progress=progress
    )
    counts = sample.counts
    for cohorts, bits in experiment.forgeries():
        counts += count_records(as_records(cohorts, bits), experiment.params)
    decoding = _decode(experiment, counts)
    rows = decoding.candidates
    return judge_estimates(experiment, sample.holders, rows, DecodedShares.of(decoding))


def _decode(experiment: Experiment, counts: CohortCounts) -> Decoding:
    open_type, candidates = experiment.plan.open_type, experiment.scenario.candidates
    alpha, correction = experiment.alpha, experiment.correction
    if open_type is None:
        return decode(
            counts,
            experiment.params,
            candidates,
            alpha=alpha,
            correction=correction,
            repeats=ONCE_OF_REPORTS,
        )
    return decode_open_strings(
        counts,
        experiment.params,
        open_type,
        candidates=candidates,
        alpha=alpha,
        correction=correction,
        repeats=ONCE_OF_REPORTS,
    ).decoding


def judge_estimates(
    experiment: Experiment, holders: IntArray, rows: Sequence[str], estimates: DecodedShares
) -> ExperimentOutcome:
    """Compare the rows' estimates with the truth; `holders`, shape (v,): reports of each value."""
    targets, strings = experiment.targets(), tuple(rows)
    if experiment.plan.open_type is None:
        honest = experiment.scenario.candidates_share(holders)
    else:
        held = held_shares(experiment.scenario.population.values, holders)
        strings = tuple(dict.fromkeys((*rows, *held, *targets)))
        honest = np.array([held.get(string, 0.0) for string in strings])
        estimates = estimates.extended(len(strings))
    truth = honest * experiment.honest / (experiment.honest + experiment.forged)
    share, detected = estimates.share, estimates.detected
    places = [strings.index(string) for string in targets]
    rng = np.random.default_rng([experiment.seed, _AUDIT])
    return ExperimentOutcome(
        strings=strings,
        truth=truth,
        estimates=estimates,
        score=score(truth, share, estimates.low, estimates.high, detected),
        bands=bands(truth, share, detected),
        p_values=p_values_below(estimates.p_value, truth),
        audit=audit_epsilon(experiment.params, _AUDITED, rng),
        targets=tuple(
            Target(string, float(truth[i]), float(share[i]), bool(detected[i]))
            for string, i in zip(targets, places, strict=True)
        ),
    )
