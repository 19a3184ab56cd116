"""The settings of the RAPPOR paper's experiments, as scenarios, and one run of each.

Erlingsson, Pihur, Korolova: "RAPPOR", CCS 2014, section 5: a normal distribution by basic RAPPOR,
and an exponential one of 100 strings among 200 candidates by the full one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.studies.cases import collect
from hubbub.inference import (
    ONCE_OF_REPORTS,
    ByteArray,
    Correction,
    Decoding,
    FloatArray,
    IntArray,
    decode,
)
from hubbub.protocol import RapporParams
from hubbub.simulations import Scenario, bernoulli_bytes, made_up, make_scenario, reported_chances

PRESENT = ABSENT = 100
"""Section 5.2."""
_SCALE = 20.0
"""Of the exponential frequencies: the largest share is .049."""
_BINS = 104
"""Categories 1 to 100, filled up to whole bytes."""
_CHUNK = 100_000  # clients that are drawn at once: bounds memory


@dataclass(frozen=True, slots=True)
class Run:
    """A decoding beside the truth: each candidate's share of the reports, shape (n,)."""

    truth: FloatArray
    decoding: Decoding

    @property
    def true_positives(self) -> int:
        """Detected candidates that somebody holds."""
        return int((self.decoding.detected & (self.truth > 0)).sum())

    @property
    def false_positives(self) -> int:
        """Detected candidates that nobody holds."""
        return int((self.decoding.detected & (self.truth == 0)).sum())

    @property
    def count_errors(self) -> FloatArray:
        absent = self.decoding.share[self.truth == 0]
        return np.asarray(absent[~np.isnan(absent)] * self.decoding.summary.reports)


def paper_params(k: int = 128, h: int = 2, m: int = 16) -> RapporParams:
    """Return the paper's default: f = 0.5, p = 0.5, q = 0.75."""
    return RapporParams(k, h, m, 0.5, 0.5, 0.75)


def paper_scenario(shares: FloatArray, seed: int, absent: int = ABSENT) -> Scenario:
    """Return strings with these shares, all listed, and some that nobody holds; new in each run."""
    nobody = tuple(f"run {seed} absent {i}" for i in range(absent))
    return make_scenario(made_up(shares, f"run {seed} string "), 0.0, nobody)


def run_scenario(
    scenario: Scenario,
    params: RapporParams,
    reports: int,
    seed: int,
    correction: Correction = Correction.BONFERRONI,
) -> Run:
    """Draw the reports of a numbered run, and decode them at alpha = 0.05."""
    sequence = np.random.SeedSequence([seed, reports, params.k, params.h, params.m])
    collected = collect(scenario, params, reports, sequence)
    decoding = decode(
        collected.counts,
        params,
        collected.candidates,
        correction=correction,
        repeats=ONCE_OF_REPORTS,
    )
    return Run(collected.truth, decoding)


def run_exponential(
    params: RapporParams, reports: int, seed: int, correction: Correction = Correction.BONFERRONI
) -> Run:
    """Run the paper's population of strings, with shares in proportion to exp(-i / 20)."""
    weights = np.exp(-np.arange(1, PRESENT + 1) / _SCALE)
    scenario = paper_scenario(weights / weights.sum(), seed)
    return run_scenario(scenario, params, reports, seed, correction)


def normal_errors(reports: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Run basic one-time RAPPOR, one bit per category, on a normal population N(50, 10).

    p = 0.5, q = 0.75, f = 0 (section 5.1).

    Returns: How many clients are in each bin, and the estimates.
    """
    params = RapporParams(_BINS, 1, 1, 0.0, 0.5, 0.75)
    counts = np.zeros(_BINS, dtype=np.int64)
    ones = np.zeros(_BINS, dtype=np.int64)
    low, high = reported_chances(params)
    true = np.packbits(np.eye(_BINS, dtype=np.uint8), axis=1, bitorder="little")
    for start in range(0, reports, _CHUNK):
        size = min(_CHUNK, reports - start)
        held: IntArray = np.clip(np.rint(rng.normal(50, 10, size)), 0, _BINS - 1).astype(np.int64)
        bits: ByteArray = bernoulli_bytes(rng, true[held], low, high)
        ones += np.unpackbits(bits, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
        counts += np.bincount(held, minlength=_BINS)
    estimates = (ones - params.p_star * reports) / (params.q_star - params.p_star)
    return counts.astype(np.float64), np.asarray(estimates)
