"""One experiment with a joint metric: a population of tuples, its reports, its table, a score."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubbub.inference.counts import CohortCounts
from hubbub.inference.joint.decoding import JointDecoding, decode_joint
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.simulations.experiments.joint_scoring import JointScore, score_joint
from hubbub.simulations.joint_populations import JointPopulation
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

PARTNERS, _PEOPLE = range(2)
"""Parts of an experiment that draw random numbers of their own: who is whose partner; clients."""


@dataclass(frozen=True, slots=True)
class JointExperiment:
    """What is tried: clients, each of whom reports its tuple once, and by which response."""

    population: JointPopulation
    params: RapporParams
    reports: int
    alpha: float = 0.05
    correction: Correction = Correction.BH
    seed: int = 0
    response: Response = UNARY

    @property
    def metric(self) -> Metric:
        """The metric that is reported."""
        return Metric(
            application="org.example.simulation",
            name="simulated",
            version=1,
            type=self.population.metric_type,
            params=self.params,
            description="Made-up tuples of a simulated population",
            owner="simulation@example.org",
            expires=dt.date(2099, 12, 31),
            mode="one-time",
            response=self.response,
        )


@dataclass(frozen=True, slots=True)
class JointOutcome:
    """How an experiment went.

    Attributes
    ----------
    decoding : JointDecoding
    score : JointScore
    seconds : float
        CPU time from the counts to the table with all its tests.
    """

    decoding: JointDecoding
    score: JointScore
    seconds: float


def run_joint(
    experiment: JointExperiment,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> JointOutcome:
    """Draw and count all reports in memory, decode and score them.

    The same experiment gives the same table and score, whatever the number of workers.
    """
    plan = ReportingPlan(experiment.population, experiment.params, experiment.reports)
    seed = np.random.SeedSequence([experiment.seed, _PEOPLE])
    sample = sample_population(plan, seed, workers=workers, progress=progress)
    return judge_table(experiment, sample.counts)


def judge_table(experiment: JointExperiment, counts: CohortCounts) -> JointOutcome:
    """Decode counts and compare the table with the truth."""
    population = experiment.population
    started = time.process_time()
    decoding = decode_joint(
        counts,
        experiment.metric,
        population.fields,
        alpha=experiment.alpha,
        correction=experiment.correction,
    )
    seconds = time.process_time() - started
    return JointOutcome(decoding, score_joint(decoding, population.shares), seconds)
