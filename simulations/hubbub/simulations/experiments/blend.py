"""Some opt in: a curator's names and counts, the others' reports, and both blended.

A share of the people opts in, as in BLENDER (Avent, Korolova, Zeber, Hovden, Livshits 2017). Their
curator finds names in one half of them by a thresholded histogram and counts these in the other
half, with noise; everyone else reports locally, and is decoded against these names. Invariant:
noise has the distribution that `hubbub-release candidates --output` has, but is drawn from a
seed, so the same experiment gives the same outcome whatever the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.blending.decoding import blend
from hubbub.inference.blending.noise import CountNoise
from hubbub.inference.blending.release import CentralRelease
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.inference.testing.multiple_testing import Correction, counted_tests, log_q_values
from hubbub.protocol.params import RapporParams
from hubbub.release.mechanisms.histograms import FOR_TOTAL, threshold
from hubbub.simulations.laboratory.trials import Progress, no_progress, run_trials
from hubbub.simulations.populations import Population
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)

_PEOPLE, _GROUP = range(2)
"""Parts of a run that draw random numbers of their own."""


@dataclass(frozen=True, slots=True)
class BlendExperiment:
    """What is tried.

    Attributes
    ----------
    population : Population
    params : RapporParams
    people : int
        All of them, whether they opt in or report.
    opted_in : tuple of float
        Shares of the people who opt in; each is tried by itself.
    absent : tuple of str
        Candidates that nobody holds, besides the names that the curator finds.
    epsilon, delta : float
        What the curator spends on each of the opted-in.
    difference : float
        Of the opted-in every second value is held so much more often than of the others, and every
        other one so much less often; 0 if both are drawn from one population.
    reuse_counts : bool
        Whether all of the opted-in find the names, and the counts by which they do are blended.
    alpha : float
    correction : Correction
    runs : int
    seed : int
    """

    population: Population
    params: RapporParams
    people: int
    opted_in: tuple[float, ...]
    absent: tuple[str, ...]
    epsilon: float = 1.0
    delta: float = 1e-6
    difference: float = 0.0
    reuse_counts: bool = False
    alpha: float = 0.05
    correction: Correction = Correction.BH
    runs: int = 10
    seed: int = 0

    @property
    def group_shares(self) -> FloatArray:
        """The opted-in's probability of each value."""
        values = np.arange(len(self.population.values))
        shares = self.population.shares * (1 + self.difference * np.where(values % 2, -1.0, 1.0))
        return np.asarray(shares / shares.sum())

    @property
    def ratios(self) -> tuple[float, float, float]:
        """By how much noise falls off, a, where names are found, counted, and added up."""
        for_total = float(FOR_TOTAL)
        parts = (1.0, 1 - for_total, for_total)
        first, second, third = (math.exp(-self.epsilon * part) for part in parts)
        return first, second, third

    @property
    def least_count(self) -> int:
        """The noisy count from which on a name is found."""
        return threshold(1 / self.epsilon, 1, Fraction(str(self.delta)))


class Three(NamedTuple):
    """The same figure of the reports alone, the counts alone, and the blend of both."""

    local: float
    central: float
    blended: float


@dataclass(frozen=True, slots=True)
class BlendTrial:
    """How a run went, with one share of the people opted in.

    Attributes
    ----------
    names : int
        That the curator found.
    found, false : Three
        Of the names and of the absent candidates, how many are detected.
    squared_errors : Three
        Of the names' shares, on average.
    bias : float
        Mean over the names of the blended shares' relative errors.
    covered, covered_detected : tuple of int
        Blended intervals that hold the population's share, and how many there are.
    unknown_covered : bool
        Whether the interval of the mass that isn't detected holds it.
    p_value : float
        Of "both groups are drawn from one population"; nan if they couldn't be compared.
    """

    names: int
    found: Three
    false: Three
    squared_errors: Three
    bias: float
    covered: tuple[int, int]
    covered_detected: tuple[int, int]
    unknown_covered: bool
    p_value: float


@dataclass(frozen=True, slots=True)
class BlendOutcome:
    """How an experiment went.

    Attributes
    ----------
    trials : tuple of tuples of BlendTrial
        Share by share, run by run.
    all_listed : tuple of int
        Strings that the reports alone show if nobody opts in and all values are listed, run by run.
    """

    trials: tuple[tuple[BlendTrial, ...], ...]
    all_listed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlendedListCase:
    """What would be found if nobody opted in and all values were listed.

    Attributes
    ----------
    experiment : BlendExperiment
    """

    experiment: BlendExperiment
    name = "all listed"
    work = 1.0

    def run(self, number: int) -> int:
        """Return how many strings the reports of a numbered run show."""
        experiment, values = self.experiment, self.experiment.population.values
        decoding = _decoded(experiment, values, experiment.people, (0, number))
        return int(decoding.detected[: len(values)].sum())


@dataclass(frozen=True, slots=True)
class BlendCase:
    """One share of people who opt in.

    Attributes
    ----------
    experiment : BlendExperiment
    place : int
        Of the share among the experiment's.
    """

    experiment: BlendExperiment
    place: int
    work = 1.0

    @property
    def name(self) -> str:
        """The share."""
        return f"{self.experiment.opted_in[self.place]:g} opted in"

    def run(self, number: int) -> BlendTrial:
        """Let the share of the people opt in, decode the others' reports, and blend."""
        experiment, place = self.experiment, self.place
        population = experiment.population
        opted_in = round(experiment.people * experiment.opted_in[place])
        rng = np.random.default_rng([experiment.seed, _GROUP, place, number])
        names, release = curate(experiment, opted_in, rng)
        truth = np.zeros(len(names) + len(experiment.absent))
        truth[: len(names)] = population.shares[names]
        reports = experiment.people - opted_in
        local = _decoded(experiment, release.keys, reports, (place + 1, number))
        return _judged(experiment, local, release, truth)


def run_blend(
    experiment: BlendExperiment, workers: int = 1, progress: Progress = no_progress
) -> BlendOutcome:
    """Try every share of opted-in people, and how much would be found if all were listed.

    Parameters
    ----------
    experiment : BlendExperiment
    workers : int
        Processes.
    progress : callable
        Takes how many runs are done, and of how many.
    """
    shares = [BlendCase(experiment, place) for place in range(len(experiment.opted_in))]
    found: tuple[tuple[Any, ...], ...] = run_trials(
        [BlendedListCase(experiment), *shares], experiment.runs, workers, progress
    )
    return BlendOutcome(found[1:], found[0])


def _decoded(
    experiment: BlendExperiment, names: Sequence[str], reports: int, part: tuple[int, int]
) -> Decoding:
    """Let people report, and look for some names and those that nobody holds."""
    plan = ReportingPlan(experiment.population, experiment.params, reports)
    seed = np.random.SeedSequence([experiment.seed, _PEOPLE, *part])
    return decode(
        sample_population(plan, seed).counts,
        experiment.params,
        [*names, *experiment.absent],
        alpha=experiment.alpha,
        correction=experiment.correction,
    )


def curate(
    experiment: BlendExperiment, opted_in: int, rng: np.random.Generator
) -> tuple[IntArray, CentralRelease]:
    """Let half of the opted-in find names, and the other half count them; or all do both.

    Returns
    -------
    names : int64 array, shape (r,)
        Values of the population.
    release : CentralRelease
    """
    finding, counting, totalling = experiment.ratios
    finders = opted_in if experiment.reuse_counts else int(rng.binomial(opted_in, 0.5))
    counters = opted_in if experiment.reuse_counts else opted_in - finders
    shares = experiment.group_shares
    noisy = rng.multinomial(finders, shares).astype(np.float64)
    held = np.flatnonzero(noisy)
    noisy[held] += laplace(rng, len(held), finding)
    names = held[noisy[held] >= experiment.least_count]
    if experiment.reuse_counts:
        counts, counting = noisy[names], finding
    else:
        counts = rng.multinomial(counters, shares)[names] + laplace(rng, len(names), counting)
    total = counters + float(laplace(rng, 1, totalling)[0])
    return names, CentralRelease(
        keys=tuple(experiment.population.values[name] for name in names.tolist()),
        counts=counts,
        noise=CountNoise(_variance(counting), laplace=True),
        total=max(total, 1.0),
        total_variance=_variance(totalling),
        epsilon=experiment.epsilon,
        delta=experiment.delta,
        mechanism="discrete Laplace",
        name="simulated",
    )


def laplace(rng: np.random.Generator, size: int, ratio: float) -> FloatArray:
    """Draw discrete Laplace noise, P(Z = z) in proportion to ratio^|z|: geometric differences."""
    drawn = rng.geometric(1 - ratio, (2, size))
    return np.asarray(drawn[0] - drawn[1], dtype=np.float64)


def _variance(ratio: float) -> float:
    return 2 * ratio / (1 - ratio) ** 2


def _judged(
    experiment: BlendExperiment,
    local: Decoding,
    release: CentralRelease,
    truth: FloatArray,
) -> BlendTrial:
    """Blend, and compare that, and what it is made of, with the population's shares."""
    blending = blend(local, release)
    blended, n_names = blending.decoding, len(release.keys)
    log_p = np.array([release.noise.log_tail(count) for count in release.counts.tolist()])
    n_tests = counted_tests(log_p, experiment.correction)
    log_q = log_q_values(log_p, experiment.correction, n_tests)
    counted = np.zeros(len(truth), dtype=np.bool_)
    counted[:n_names] = log_q <= math.log(experiment.alpha)
    detections = [local.detected, counted, blended.detected]
    shares = [blending.local, blending.central, blended.share]
    errors = [(share - truth)[:n_names] for share in shares]
    holds = (blended.low <= truth) & (truth <= blended.high)
    detected, summary = blended.detected, blended.summary
    off = abs(1 - float(truth[detected].sum()) - summary.unknown_share)
    return BlendTrial(
        names=n_names,
        found=Three(*(int(each[:n_names].sum()) for each in detections)),
        false=Three(*(int(each[n_names:].sum()) for each in detections)),
        squared_errors=Three(*(float(np.mean(each**2)) if n_names else np.nan for each in errors)),
        bias=float(np.mean(errors[2] / truth[:n_names])) if n_names else np.nan,
        covered=(int(holds.sum()), len(holds)),
        covered_detected=(int(holds[detected].sum()), int(detected.sum())),
        unknown_covered=off <= Z_CONFIDENCE * summary.unknown_std_error,
        p_value=blending.summary.p_value,
    )
