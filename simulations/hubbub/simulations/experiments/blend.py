"""Some opt in: a curator's names and counts, the others' reports, and both blended.

A share of the people opts in, as in BLENDER (Avent, Korolova, Zeber, Hovden, Livshits 2017). Their
curator finds names in one half of them by a thresholded histogram and counts these in the other
half, with noise; everyone else reports locally, and is decoded against these names. Invariant:
noise has the distribution that `hubbub-release candidates --output` has, but is drawn from a
seed, so the same experiment gives the same outcome whatever the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from hubbub.reporting.blocks import ROWS, Line, Page, Section, Table, headings
from hubbub.reporting.charts import Labels, Series, XYChart
from hubbub.simulations.experiments.result import (
    SimulationResult,
    cell,
    origin,
    simulation_result,
    tried,
)
from hubbub.simulations.laboratory import Progress, no_progress, run_trials
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


LEVEL = 0.05
"""At which the groups are said to differ."""
_FOUND = ("found_locally", "found_by_counts", "found_blended")
_ERRORS = ("local_error", "central_error", "blended_error")
_FIGURES = (
    *("opted_in", "users", "names", *_FOUND, "false_locally", "false_blended", *_ERRORS),
    *("bias", "coverage", "coverage_detected", "coverage_unknown", "rejected"),
)
_WORDS = {
    "opted_in": "opted in",
    "users": "people",
    "names": "names",
    "found_locally": "found locally",
    "found_by_counts": "found by counts",
    "found_blended": "found blended",
    "false_locally": "false locally",
    "false_blended": "false blended",
    "local_error": "error locally",
    "central_error": "error of counts",
    "blended_error": "error blended",
    "bias": "bias",
    "coverage": "coverage",
    "coverage_detected": "of detected",
    "coverage_unknown": "of unknown",
    "rejected": "rejected",
}
_EXPLAINED = (
    "Means over the runs. Names: what the curator found, which is the list of candidates, besides "
    "strings that nobody holds; of these are the false ones. Found: names that are detected by the "
    "reports alone, the counts alone and both. Errors: root mean square over the names, of the "
    "population's shares, in percentage points; bias: the blended shares' mean relative error in "
    "percent. Coverage: of the blended 95% intervals, of those of the detected, and of the mass "
    "that isn't detected. Rejected: runs in which the groups were said to differ at a level of .05."
)


_Row = Mapping[str, float]
"""The figures of one share of opted-in people, in the order of `_FIGURES`."""


def blend_result(
    experiment: BlendExperiment, outcome: BlendOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what the opted-in's names and counts bring, by their share.

    Parameters
    ----------
    experiment : BlendExperiment
    outcome : BlendOutcome
    options : mapping
        Of the command, as they are to be shown.
    """
    rows = [
        {"opted_in": share, "users": float(round(experiment.people * share)), **_means(trials)}
        for share, trials in zip(experiment.opted_in, outcome.trials, strict=True)
    ]
    listed = float(np.mean(outcome.all_listed))
    begins = origin(options, experiment.params, experiment.seed)
    facts = {
        **{name: begins[name] for name in ("version", "options", "params")},
        "epsilon_report": experiment.params.epsilon_report,
        "seed": experiment.seed,
        "runs": experiment.runs,
        "least_count": experiment.least_count,
        "found_if_all_are_listed": listed,
        "rows": ROWS,
    }
    table, baseline = _table(rows), _baseline(experiment, listed)
    found, errors = _found_chart(rows, listed), _errors_chart(rows)
    sections = [
        Section("By opted-in share", (_EXPLAINED,), tables=(table,)),
        Section("What is found", charts=(found,)),
        Section("How far off shares are", charts=(errors,)),
        tried(options, experiment.params),
    ]
    return simulation_result(
        facts,
        (table, Line(_EXPLAINED), Line(baseline)),
        Page("Some people opt in", baseline, sections),
        {"found.png": (found,), "errors.png": (errors,)},
        tuple(rows),
    )


def _series(rows: Sequence[_Row], names: Mapping[str, str]) -> list[Series]:
    share = np.array([100 * row["opted_in"] for row in rows])
    return [
        Series(label, share, np.array([row[name] for row in rows])) for name, label in names.items()
    ]


def _found_chart(rows: Sequence[_Row], listed: float) -> XYChart:
    last = rows[-1]
    described = (
        f"With {last['opted_in']:.2%} opted in {last['names']:.4g} names are found; of these "
        f"{last['found_locally']:.4g} are detected by the reports alone, and "
        f"{last['found_blended']:.4g} with the counts."
    )
    found = _series(
        rows,
        {
            "names": "names that the curator found",
            "found_blended": "detected by the blend",
            "found_by_counts": "detected by the counts",
            "found_locally": "detected by the reports",
        },
    )
    in_all = "reports alone, all values listed, nobody opted in"
    found.append(Series(in_all, found[0].x, np.full(len(rows), listed), "reference"))
    words = Labels("found", "Strings that are found", described, "opted in (%)", "strings")
    return XYChart(words, found, log_x=True)


def _errors_chart(rows: Sequence[_Row]) -> XYChart:
    last = rows[-1]
    described = (
        f"With {last['opted_in']:.2%} opted in, {last['local_error']:.3g} points of the "
        f"reports alone, {last['central_error']:.3g} of the counts alone, "
        f"{last['blended_error']:.3g} of both."
    )
    labels = {"local_error": "reports", "central_error": "counts", "blended_error": "blend"}
    words = Labels("errors", "Errors of shares", described, "opted in (%)", "points")
    return XYChart(words, _series(rows, labels), log_x=True, log_y=True)


def _table(rows: Sequence[_Row]) -> Table:
    cells = tuple(
        (f"{row['opted_in']:.2%}", *(cell(row[name]) for name in _FIGURES[1:])) for row in rows
    )
    return Table("By opted-in share", headings(*(_WORDS[name] for name in _FIGURES)), cells)


def _baseline(experiment: BlendExperiment, listed: float) -> str:
    n_values = len(experiment.population.values)
    return (
        f"{experiment.people:,} people, {experiment.runs:,} runs, seed {experiment.seed}; the "
        f"curator finds names from a noisy count of {experiment.least_count:,} on. If nobody "
        "opted in, nothing would be found without a list, and "
        f"{listed:.4g} strings if all {n_values:,} values were listed."
    )


def _means(trials: Sequence[BlendTrial]) -> dict[str, float]:
    def mean(figure: Callable[[BlendTrial], float]) -> float:
        values = np.array([figure(trial) for trial in trials], dtype=np.float64)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else np.nan

    def share(of: Callable[[BlendTrial], tuple[int, int]]) -> float:
        held, total = (sum(column) for column in zip(*map(of, trials), strict=True))
        return held / total if total else np.nan

    def points(place: int) -> float:
        return 100 * float(np.sqrt(mean(lambda trial: trial.squared_errors[place])))

    return {
        "names": mean(lambda trial: trial.names),
        **{
            name: mean(lambda trial, place=place: trial.found[place])  # type: ignore[misc]
            for place, name in enumerate(_FOUND)
        },
        "false_locally": mean(lambda trial: trial.false.local),
        "false_blended": mean(lambda trial: trial.false.blended),
        **{name: points(place) for place, name in enumerate(_ERRORS)},
        "bias": 100 * mean(lambda trial: trial.bias),
        "coverage": share(lambda trial: trial.covered),
        "coverage_detected": share(lambda trial: trial.covered_detected),
        "coverage_unknown": mean(lambda trial: trial.unknown_covered),
        "rejected": mean(lambda trial: trial.p_value <= LEVEL),
    }
