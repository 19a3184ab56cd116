"""One run of a case: draw, count, decode, score; and the plain baseline on the same counts."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.decoding import Decoding, decode
from hubbub.protocol.params import RapporParams
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.fleet.crowd import count_crowd
from hubbub.simulations.suite.baseline import least_squares_two_se
from hubbub.simulations.suite.matrix import Case


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run's collector would have counted, and what is true of it.

    Attributes
    ----------
    counts : CohortCounts
    candidates : tuple of str, length n
    truth : float64 array, shape (n,)
        Each candidate's share of the collected reports.
    """

    counts: CohortCounts
    candidates: tuple[str, ...]
    truth: FloatArray


@dataclass(frozen=True, slots=True)
class Trial:
    """Scores of one run.

    Attributes
    ----------
    case : str
        The case's name.
    run : int
    candidates : int
    ours, baseline : Score
        Of the decoder (Benjamini-Hochberg at 0.05), and of least squares with the two-standard-
        error rule on the same counts.
    seconds : float
        CPU time of the decoder.
    """

    case: str
    run: int
    candidates: int
    ours: Score
    baseline: Score
    seconds: float


def collect(case: Case, run: int) -> Collected:
    """Draw and count a numbered run's reports."""
    world = case.world(run)
    crowd = count_crowd(world.population, case.params, case.reports, case.seed(run))
    return Collected(crowd.counts, world.candidates, world.candidates_share(crowd.holders))


def run_trial(case: Case, run: int) -> Trial:
    """Decode a run by both ways and score them."""
    collected = collect(case, run)
    started = time.process_time()
    decoding = decode(collected.counts, case.params, collected.candidates)
    seconds = time.process_time() - started
    return Trial(
        case=case.name,
        run=run,
        candidates=len(collected.candidates),
        ours=score_decoding(collected.truth, decoding),
        baseline=score_baseline(collected, case.params),
        seconds=seconds,
    )


def score_decoding(truth: FloatArray, decoding: Decoding) -> Score:
    """Compare a decoding with the truth, both of shape (n,)."""
    return score(
        truth, decoding.share, decoding.low, decoding.high, decoding.detected, decoding.refit
    )


def score_baseline(collected: Collected, params: RapporParams) -> Score:
    """Compare the plain estimates with the truth; they have no intervals."""
    plain = least_squares_two_se(collected.counts, params, collected.candidates)
    nowhere = np.full(len(plain.share), np.nan)
    return score(collected.truth, plain.share, nowhere, nowhere, plain.detected)
