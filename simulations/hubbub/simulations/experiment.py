"""One experiment: a population's reports, their decoding, and how far that was from the truth.

A scenario is a population and the strings that the decoder looks for. The truth is each string's
share of the reports that were collected; of categories, whose intervals allow for who happens to be
a client, it is the population's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.inference import (
    BoolArray,
    ByteArray,
    Correction,
    Decoding,
    Estimand,
    FloatArray,
    IntArray,
    RepeatedReports,
    RepeatSource,
    count_records,
    decode,
    decode_categories,
    decode_open_strings,
)
from hubbub.protocol import OpenStringType, StringType, normal_form
from hubbub.simulations.clients import as_records, forge
from hubbub.simulations.population_sampler import CHUNK, ReportingPlan, sample_population
from hubbub.simulations.populations import Population

_SLACK = 1e-9
"""So that a share such as 0.1, which isn't a binary fraction, leaves out every tenth string."""
_PEOPLE, _FORGERS = range(2)
"""Parts of the experiment that draw random numbers of their own."""


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

    def rarest(self) -> str:
        """Return the candidate that is held least."""
        shares = np.zeros(len(self.candidates))
        shares[: len(self.listed)] = self.population.shares[self.listed]
        return self.candidates[int(shares.argmin())]


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


@dataclass(frozen=True, slots=True)
class DecodedShares:
    """Shares of strings or categories with their 95% intervals, arrays of shape (n,)."""

    share: FloatArray  # as in `Decoding`
    low: FloatArray
    high: FloatArray
    detected: BoolArray

    @classmethod
    def of(cls, decoding: Decoding) -> DecodedShares:
        """Take a decoding's arrays."""
        return cls(decoding.share, decoding.low, decoding.high, decoding.detected)

    def extended(self, n: int) -> DecodedShares:
        """Return so many rows, of which nothing is known beyond these."""
        more = n - len(self.share)
        share, low, high = (
            np.concatenate([each, np.full(more, np.nan)])
            for each in (self.share, self.low, self.high)
        )
        detected = np.concatenate([self.detected, np.zeros(more, dtype=np.bool_)])
        return DecodedShares(share, low, high, detected)


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of one decoding."""

    detected: int  # candidates reported; those that some client holds; those that none does
    true_positives: int
    false_positives: int
    false_negatives: int  # candidates that some client holds and that were not reported
    # Half the summed distance between the true and the estimated shares of the detected strings and
    # of "anything else", estimated as 1 minus their sum.
    total_variation: float
    # Half the summed distance between true and estimated shares of all strings, the estimate of
    # what isn't detected being 0, as google/rappor's tests measure it.
    total_variation_all: float
    # Share of the 95% intervals that hold the truth, over all candidates that have an interval, and
    # over the detected (nan if none).
    interval_coverage: float
    interval_coverage_detected: float

    @property
    def false_share(self) -> float:
        """False names among the detected; 0 if nothing was detected."""
        return self.false_positives / max(self.detected, 1)

    @property
    def precision(self) -> float:
        """Share of the detected that somebody holds; nan if nothing was detected."""
        return self.true_positives / self.detected if self.detected else math.nan

    @property
    def recall(self) -> float:
        """Share of the candidates that somebody holds that were detected; nan if there is none."""
        present = self.true_positives + self.false_negatives
        return self.true_positives / present if present else math.nan


def score(truth: FloatArray, found: DecodedShares, refit: FloatArray | None = None) -> Score:
    """Compare estimates with the truth, all of shape (n,); nan where there is no estimate.

    The total variation is that of `refit`, shares that add up, if there are any.
    """
    present, detected = truth > 0, found.detected
    covered = (found.low <= truth) & (truth <= found.high)
    errors = (found.share if refit is None else refit)[detected] - truth[detected]
    missed = 1.0 - float(truth[detected].sum())
    return Score(
        detected=int(detected.sum()),
        true_positives=int((detected & present).sum()),
        false_positives=int((detected & ~present).sum()),
        false_negatives=int((~detected & present).sum()),
        total_variation=float(np.abs(errors).sum() + abs(errors.sum())) / 2,
        total_variation_all=(float(np.abs(errors).sum()) + missed) / 2,
        interval_coverage=_mean(covered[~np.isnan(found.share)]),
        interval_coverage_detected=_mean(covered[detected]),
    )


def _mean(values: BoolArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def held_shares(values: Sequence[str], holders: IntArray) -> dict[str, float]:
    """Return the shares of the values that somebody holds, by the normal form that is reported."""
    shares: dict[str, float] = {}
    n_reports = max(int(holders.sum()), 1)
    for value, count in zip(values, holders.tolist(), strict=True):
        if count:
            form = normal_form(value)
            shares[form] = shares.get(form, 0.0) + count / n_reports
    return shares


@dataclass(frozen=True, slots=True)
class Experiment:
    """A population, its parameters and the decoder's options."""

    scenario: Scenario  # of categories: all values are listed
    plan: ReportingPlan  # of the honest clients: the scenario's population
    forged_share: float = 0.0  # of all reports; they come on top of the clients'
    target: str = ""  # the string that forged reports are to make seem common
    alpha: float = 0.05
    correction: Correction = Correction.BH
    seed: int = 0

    @property
    def forged(self) -> int:
        """How many reports are forged."""
        return round(self.plan.reports * self.forged_share / (1 - self.forged_share))

    @property
    def reports(self) -> int:
        """How many reports are collected."""
        return self.plan.reports + self.forged

    @property
    def repeats(self) -> RepeatedReports:
        """How often clients have reported, and whose shares are asked for."""
        each = float(self.plan.reports_each)
        of_strings = isinstance(self.plan.metric_type, StringType | OpenStringType)
        return RepeatedReports(
            1.0 if self.plan.period_days else each,
            each,
            RepeatSource.ONCE if each == 1 else RepeatSource.GIVEN,
            estimand=Estimand.REPORTS if of_strings else Estimand.POPULATION,
        )

    def forgeries(self) -> Iterator[tuple[IntArray, ByteArray]]:
        """Make the forged reports in parts, each of them cohorts and bits."""
        rng, plan = np.random.default_rng([self.seed, _FORGERS]), self.plan
        for start in range(0, self.forged, CHUNK):
            size = min(CHUNK, self.forged - start)
            yield forge(size, self.target, plan.params, rng, plan.metric_type)


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """How an experiment went."""

    # The judged strings: the candidates; for open strings also those found, and those that clients
    # have.
    strings: tuple[str, ...]
    truth: FloatArray  # shape (n,); each string's share
    estimates: DecodedShares
    score: Score
    summary: Mapping[str, object]  # the decoder's
    seconds: float  # CPU time of the decoder


def run_experiment(
    experiment: Experiment,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ExperimentOutcome:
    """Draw, count, decode and score reports; the same whatever the number of workers."""
    plan, scenario = experiment.plan, experiment.scenario
    people = np.random.SeedSequence([experiment.seed, _PEOPLE])
    sample = sample_population(plan, people, workers=workers, progress=progress)
    counts = sample.counts
    for cohorts, bits in experiment.forgeries():
        counts += count_records(as_records(cohorts, bits), plan.params)
    started = time.process_time()
    strings, refit = scenario.candidates, None
    truth, metric_type = scenario.candidates_share(sample.holders), plan.metric_type
    level, correction, repeats = experiment.alpha, experiment.correction, experiment.repeats
    if isinstance(metric_type, StringType):
        decoding = decode(
            counts, plan.params, strings, alpha=level, correction=correction, repeats=repeats
        )
        found, summary = DecodedShares.of(decoding), asdict(decoding.summary)
    elif isinstance(metric_type, OpenStringType):
        decoding = decode_open_strings(
            counts, plan.params, metric_type, candidates=strings, alpha=level,
            correction=correction, repeats=repeats,
        ).decoding  # fmt: skip
        held = held_shares(scenario.population.values, sample.holders)
        planted = (experiment.target,) if experiment.forged else ()
        strings = tuple(dict.fromkeys((*decoding.candidates, *held, *planted)))
        truth = np.array([held.get(string, 0.0) for string in strings])
        found = DecodedShares.of(decoding).extended(len(strings))
        summary = asdict(decoding.summary)
    else:
        categories = decode_categories(
            counts, plan.metric, alpha=level, correction=correction, repeats=repeats
        )
        estimates, refit = categories.estimates, categories.estimates.share
        found = DecodedShares(estimates.unbiased, *categories.interval, categories.detected)
        truth, summary = scenario.population.shares, asdict(categories.summary)
    seconds = time.process_time() - started
    truth = truth * plan.reports / experiment.reports
    return ExperimentOutcome(strings, truth, found, score(truth, found, refit), summary, seconds)
