"""Runs of cases: draw, count, decode and score, beside the plain baseline on the same counts.

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

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.decoding import Decoding, decode
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.scenarios import collect
from hubbub.simulations.suite.baseline import least_squares_two_se, oracle_detections
from hubbub.simulations.suite.matrix import Case

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
    ours, baseline : Score
        Of the decoder (Benjamini-Hochberg at 0.05), and of least squares with the two-standard-
        error rule on the same counts.
    oracle : int
        Names that the oracle finds and somebody holds.
    unknown_covered, unlisted_covered : bool, or None where the decoder doesn't tell
        Whether the 95% interval of the mass that isn't detected holds the truth; of the mass that
        isn't listed.
    seconds : float
        CPU time of the decoder.
    """

    case: str
    run: int
    candidates: int
    ours: Score
    baseline: Score
    oracle: int
    unknown_covered: bool | None
    unlisted_covered: bool | None
    seconds: float


def run_trial(case: Case, run: int) -> Trial:
    """Decode a numbered run by both ways and score them."""
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
    cases: Sequence[Case],
    seeds: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[tuple[Trial, ...], ...]:
    """Run each case with run numbers 0 to seeds - 1; return the trials case by case.

    Parameters
    ----------
    seeds, workers : int
        Runs of each case; processes, each of which computes on one thread.
    progress : callable
        Takes how many runs are done, and of how many.
    """
    tasks = [(case, run) for case in cases for run in range(seeds)]
    trials: dict[tuple[str, int], Trial] = {}
    found = starmap(run_trial, tasks) if workers == 1 else _in_processes(tasks, workers)
    for done, trial in enumerate(found, start=1):
        trials[trial.case, trial.run] = trial
        progress(done, len(tasks))
    return tuple(tuple(trials[case.name, run] for run in range(seeds)) for case in cases)


def _in_processes(tasks: Sequence[tuple[Case, int]], workers: int) -> Iterator[Trial]:
    """Yield trials as they end, the largest begun first."""
    ordered = sorted(
        tasks, key=lambda task: -(task[0].reports + 100.0 * task[0].unique * (1 + task[0].extra))
    )
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
