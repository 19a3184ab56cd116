"""One experiment: a world, its reports, a decoding, and how far that was from the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray
from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.decoder.decoding import decode
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.protocol.params import RapporParams
from hubbub.simulations.experiments.bands import Band, bands, p_values_below
from hubbub.simulations.experiments.estimates import Estimates, estimates_of
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.fleet.attacks import Attack, AttackKind, choose_targets, forge
from hubbub.simulations.fleet.auditing import Audit, audit_epsilon
from hubbub.simulations.fleet.clients import as_records
from hubbub.simulations.fleet.crowd import count_plan
from hubbub.simulations.fleet.reporting import CHUNK, Plan
from hubbub.simulations.worlds import World

_AUDITED = 1 << 19
_PEOPLE, _FORGERS, _AUDIT = range(3)
"""Parts of the experiment that draw random numbers of their own."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is tried.

    Attributes
    ----------
    world : World
    params : RapporParams
    clients, days : int
        Each client reports once a day.
    change : float
        Chance that a client's value is drawn anew from one day to the next.
    cohort_shares : float64 array, shape (m,), or None
        Chance of each cohort; None for equal ones.
    attack : Attack or None
        Forged reports come on top of the clients'.
    alpha : float
    correction : Correction
    method : str
        As the decoder's `--method`; in memory only "regression", from bit counts.
    seed : int
    """

    world: World
    params: RapporParams
    clients: int
    days: int = 1
    change: float = 0.0
    cohort_shares: FloatArray | None = None
    attack: Attack | None = None
    alpha: float = 0.05
    correction: Correction = Correction.BH
    method: str = "regression"
    seed: int = 0

    @property
    def plan(self) -> Plan:
        """What the honest clients do."""
        return Plan(
            self.world.population,
            self.params,
            self.clients,
            self.days,
            self.change,
            self.cohort_shares,
        )

    @property
    def honest(self) -> int:
        """Reports of honest clients."""
        return self.clients * self.days

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
        world = self.world
        shares = np.zeros(len(world.candidates))
        shares[: len(world.listed)] = world.population.shares[world.listed]
        return choose_targets(self.attack, world.candidates, shares)

    def forgeries(self) -> Iterator[tuple[IntArray, ByteArray]]:
        """Make the forged reports in parts, each as a fleet's: cohorts and bits."""
        if self.attack is None:
            return
        seed, targets = (self.seed, _FORGERS), self.targets()
        rng = np.random.default_rng(seed)
        for start in range(0, self.forged, CHUNK):
            if self.attack.kind is AttackKind.REPLAY:
                rng = np.random.default_rng(seed)  # the same report in all parts
            size = min(CHUNK, self.forged - start)
            yield forge(self.attack, size, targets, self.params, rng)


@dataclass(frozen=True, slots=True)
class Target:
    """What an attack made of one string.

    Attributes
    ----------
    string : str
    truth, estimate : float
        Its share of all reports, and the estimate.
    detected : bool
    """

    string: str
    truth: float
    estimate: float
    detected: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an experiment went.

    Attributes
    ----------
    truth : float64 array, shape (n,)
        Each candidate's share of all collected reports.
    estimates : Estimates
    score : Score
    bands : tuple of Band
    p_values : dict
        Share of the absent candidates whose p-value is at most each level.
    audit : Audit
    targets : tuple of Target
    """

    truth: FloatArray
    estimates: Estimates
    score: Score
    bands: tuple[Band, ...]
    p_values: dict[str, float]
    audit: Audit
    targets: tuple[Target, ...]


def run_in_memory(
    experiment: Experiment,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Outcome:
    """Draw and count all reports in memory, decode and score them.

    The same experiment gives the same outcome, whatever the number of workers.
    """
    crowd = count_plan(experiment.plan, experiment.people, workers=workers, progress=progress)
    counts = crowd.counts + _forged_counts(experiment)
    decoding = decode(
        counts,
        experiment.params,
        experiment.world.candidates,
        alpha=experiment.alpha,
        correction=experiment.correction,
    )
    return judge_estimates(experiment, crowd.holders, estimates_of(decoding))


def judge_estimates(experiment: Experiment, holders: IntArray, estimates: Estimates) -> Outcome:
    """Compare estimates with the truth.

    Parameters
    ----------
    experiment : Experiment
    holders : int64 array, shape (v,)
        Honest reports of each of the population's values.
    estimates : Estimates
        Of the world's candidates.
    """
    honest = experiment.world.candidates_share(holders)
    truth = honest * experiment.honest / (experiment.honest + experiment.forged)
    share, detected = estimates.share, estimates.detected
    places = {string: i for i, string in enumerate(experiment.world.candidates)}
    rows = [(string, places[string]) for string in experiment.targets()]
    rng = np.random.default_rng([experiment.seed, _AUDIT])
    return Outcome(
        truth=truth,
        estimates=estimates,
        score=score(truth, share, estimates.low, estimates.high, detected),
        bands=bands(truth, share, detected),
        p_values=p_values_below(estimates.p_value, truth),
        audit=audit_epsilon(experiment.params, _AUDITED, rng),
        targets=tuple(
            Target(string, float(truth[i]), float(share[i]), bool(detected[i]))
            for string, i in rows
        ),
    )


def _forged_counts(experiment: Experiment) -> CohortCounts:
    total = empty_counts(experiment.params)
    for cohorts, bits in experiment.forgeries():
        total += count_records(as_records(cohorts, bits), experiment.params)
    return total
