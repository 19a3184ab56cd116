"""Runs of cases: draw, count, decode and score.

Beside it are scored, on the same counts, the plain baseline; of open strings, what would have been
found if all strings had been listed and reported whole.

Many runs work in parallel processes; how many there are changes only the rounding.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import starmap

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.simulations.experiments.joint import run_joint
from hubbub.simulations.experiments.joint_scoring import JointScore
from hubbub.simulations.experiments.scoring import DecodedShares, Score, held_shares, score
from hubbub.simulations.populations import Population
from hubbub.simulations.scenarios import collect
from hubbub.simulations.simulated_clients.population_sampler import (
    ReportingPlan,
    sample_population,
)
from hubbub.simulations.suite.baseline import least_squares_two_se, oracle_detections
from hubbub.simulations.suite.joint_matrix import JointCase
from hubbub.simulations.suite.matrix import AnyCase, Case
from hubbub.simulations.suite.open_matrix import OpenCase

ALPHA = 0.05
_ROUNDING = 1e-9
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Trial:
    """Scores of one run.

    Attributes
    ----------
    case : str
        The case's name.
    ours : Score
        Of the decoder (Benjamini-Hochberg at 0.05).
    baseline : Score or None
        Of least squares with the two-standard-error rule on the same counts; not of open strings.
    oracle : int or None
        Names that the oracle finds and somebody holds; not of open strings.
    unknown_covered, unlisted_covered : bool, or None where the decoder doesn't tell
        Whether the 95% interval of the mass that isn't detected holds the truth; of the mass that
        isn't listed.
    seconds : float
        CPU time of the decoder.
    if_listed : int or None
        Of open strings, names that would be found if all had been listed and reported whole.
    """

    case: str
    run: int
    candidates: int
    ours: Score
    baseline: Score | None
    oracle: int | None
    unknown_covered: bool | None
    unlisted_covered: bool | None
    seconds: float
    if_listed: int | None = None


@dataclass(frozen=True, slots=True)
class JointTrial:
    """Scores of one run of a table.

    Attributes
    ----------
    case : str
        The case's name.
    n_cells : int
        Of the table.
    seconds : float
        CPU time of the decoder.
    """

    case: str
    run: int
    n_cells: int
    score: JointScore
    seconds: float


AnyTrial = Trial | JointTrial


def run_trial(case: AnyCase, run: int) -> AnyTrial:
    """Decode a numbered run and score it, beside what it is compared with."""
    if isinstance(case, JointCase):
        return _joint_trial(case, run)
    return _open_trial(case, run) if isinstance(case, OpenCase) else _listed_trial(case, run)


def _joint_trial(case: JointCase, run: int) -> JointTrial:
    experiment = case.experiment(run)
    outcome = run_joint(experiment)
    n_cells = len(experiment.population.values)
    return JointTrial(case.name, run, n_cells, outcome.score, outcome.seconds)


def _listed_trial(case: Case, run: int) -> Trial:
    collected = collect(case.scenario(run), case.params, case.reports, case.seed(run))
    truth, candidates = collected.truth, collected.candidates
    started = time.process_time()
    ours = decode(collected.counts, case.params, candidates, alpha=ALPHA)
    seconds = time.process_time() - started
    plain = least_squares_two_se(collected.counts, case.params, candidates)
    oracle = oracle_detections(collected.counts, case.params, candidates, truth > 0, ALPHA)
    told = ours.summary
    no_interval = np.full(len(candidates), np.nan)
    return Trial(
        case=case.name,
        run=run,
        candidates=len(candidates),
        ours=score_decoding(truth, ours),
        baseline=score(truth, plain.share, no_interval, no_interval, plain.detected),
        oracle=int(np.count_nonzero(oracle & (truth > 0))),
        unknown_covered=_covered(
            1 - float(truth[ours.detected].sum()), told.unknown_share, told.unknown_std_error
        ),
        unlisted_covered=_covered(
            1 - float(truth.sum()), told.unlisted_share, told.unlisted_std_error
        ),
        seconds=seconds,
    )


def _open_trial(case: OpenCase, run: int) -> Trial:
    population = case.values(run)
    people, if_listed = case.seed(run).spawn(2)
    plan = ReportingPlan(population, case.params, case.reports, open_type=case.metric_type)
    sample = sample_population(plan, people)
    started = time.process_time()
    found = decode_open_strings(sample.counts, case.params, case.metric_type, alpha=ALPHA).decoding
    seconds = time.process_time() - started
    held = held_shares(population.values, sample.holders)
    strings = dict.fromkeys((*found.candidates, *held))
    truth = np.array([held.get(string, 0.0) for string in strings])
    ours = DecodedShares.of(found).extended(len(strings))
    constrained = np.zeros(len(strings))
    constrained[: len(found.candidates)] = found.constrained_share
    told, detected = found.summary, ours.detected
    return Trial(
        case=case.name,
        run=run,
        candidates=0,
        ours=score(truth, ours.share, ours.low, ours.high, detected, constrained),
        baseline=None,
        oracle=None,
        if_listed=None if case.is_null else _found_if_listed(case, population, if_listed),
        unknown_covered=_covered(
            1 - float(truth[detected].sum()), told.unknown_share, told.unknown_std_error
        ),
        unlisted_covered=None,
        seconds=seconds,
    )


def _found_if_listed(case: OpenCase, population: Population, seed: np.random.SeedSequence) -> int:
    plan = ReportingPlan(population, case.listed_params, case.reports)
    sample = sample_population(plan, seed)
    decoding = decode(sample.counts, plan.params, population.values, alpha=ALPHA)
    return int(np.count_nonzero(decoding.detected & (sample.holders > 0)))


def _covered(truth: float, estimate: float, std_error: float) -> bool | None:
    if math.isnan(std_error):
        return None
    return abs(estimate - truth) <= Z_CONFIDENCE * std_error + _ROUNDING


def score_decoding(truth: FloatArray, decoding: Decoding) -> Score:
    """Compare a decoding with the truth, both of shape (n,)."""
    return score(
        truth,
        decoding.share,
        decoding.low,
        decoding.high,
        decoding.detected,
        decoding.constrained_share,
    )


def run_trials(
    cases: Sequence[AnyCase],
    seeds: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[tuple[AnyTrial, ...], ...]:
    """Run each case with run numbers 0 to seeds - 1; return the trials case by case.

    Parameters
    ----------
    seeds, workers : int
        Runs of each case; processes, each of which computes on one thread.
    progress : callable
        Takes how many runs are done, and of how many.
    """
    tasks = [(case, run) for case in cases for run in range(seeds)]
    trials: dict[tuple[str, int], AnyTrial] = {}
    found = starmap(run_trial, tasks) if workers == 1 else _in_processes(tasks, workers)
    for done, trial in enumerate(found, start=1):
        trials[trial.case, trial.run] = trial
        progress(done, len(tasks))
    return tuple(tuple(trials[case.name, run] for run in range(seeds)) for case in cases)


def _in_processes(tasks: Sequence[tuple[AnyCase, int]], workers: int) -> Iterator[AnyTrial]:
    """Yield trials as they end, the largest begun first."""
    ordered = sorted(tasks, key=lambda task: -task[0].work)
    # Processes share the cores, so each computes on one thread.
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            futures = [pool.submit(run_trial, case, run) for case, run in ordered]
            for future in as_completed(futures):
                yield future.result()
    finally:
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)
