"""One run of a case: draw people, let the fleet report, decode, compare with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration.worlds import World
from hubbub.client.params import RapporParams
from hubbub.decoder import CohortCounts, Correction, Decoding, count_records, decode
from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.fleet.clients import Fleet


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the calibration's table.

    Attributes
    ----------
    name : str
    params : RapporParams
    reports : int
    world : callable
        Makes a seed's world.
    """

    name: str
    params: RapporParams
    reports: int
    world: Callable[[int], World]


@dataclass(frozen=True, slots=True)
class Collected:
    """What one run's collector would have counted, and what is true of it.

    Attributes
    ----------
    counts : CohortCounts
    candidates : tuple of str
    truth : float64 array, shape (n,)
        Each candidate's share of the collected reports.
    """

    counts: CohortCounts
    candidates: tuple[str, ...]
    truth: FloatArray


def collect(case: Case, seed: int) -> Collected:
    """Draw the people of a seed and count their reports."""
    rng = np.random.default_rng(seed)
    world = case.world(seed)
    shares = world.population.shares
    held = rng.choice(len(shares), size=case.reports, p=shares)
    counts = count_fleet(world.population.values, held, case.params, rng)
    return Collected(counts, world.candidates, true_shares(world, held))


def count_fleet(
    values: tuple[str, ...], held: IntArray, params: RapporParams, rng: np.random.Generator
) -> CohortCounts:
    """Let one fleet client report each held value, and count the reports as stored records."""
    cohorts, bits = Fleet(values, params, rng).report(held)
    return count_records(as_records(cohorts, bits), params)


def as_records(cohorts: IntArray, bits: ByteArray) -> bytes:
    """Return reports as the collector stores them: the cohort in two bytes, then the bits."""
    return np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), bits]).tobytes()


def true_shares(world: World, held: IntArray) -> FloatArray:
    """Return each candidate's share among people whose values' indices are given."""
    values = world.population.values
    counts = np.bincount(held, minlength=len(values)) / len(held)
    by_value = dict(zip(values, counts.tolist(), strict=True))
    return np.array([by_value.get(candidate, 0.0) for candidate in world.candidates])


def decode_collected(
    collected: Collected, params: RapporParams, correction: Correction = Correction.BH
) -> Decoding:
    """Decode at alpha = 0.05."""
    return decode(collected.counts, params, collected.candidates, correction=correction)


def score_decoding(collected: Collected, decoding: Decoding) -> Score:
    """Compare a decoding with the truth."""
    return score(collected.truth, decoding.share, decoding.low, decoding.high, decoding.detected)


@dataclass(frozen=True, slots=True)
class Trial:
    """Figures of one run; nan where there is nothing to take the mean of.

    Attributes
    ----------
    coverage, coverage_detected : float
        Share of the 95% intervals that hold the truth: of all candidates, of those detected (BH).
    false_share : float
        Share of false names among the detected (BH); 0 if there are none.
    any_false : float
        1 if a false name is detected under Bonferroni, 0 if not.
    found, found_strictly : float
        Candidates rightly detected, under BH and under Bonferroni.
    """

    coverage: float
    coverage_detected: float
    false_share: float
    any_false: float
    found: float
    found_strictly: float


def run_trial(case: Case, seed: int) -> Trial:
    """Run a case once, decoding under both corrections."""
    collected = collect(case, seed)
    loose = score_decoding(collected, decode_collected(collected, case.params, Correction.BH))
    strict = score_decoding(
        collected, decode_collected(collected, case.params, Correction.BONFERRONI)
    )
    return Trial(
        coverage=loose.interval_coverage,
        coverage_detected=loose.interval_coverage_detected,
        false_share=loose.false_positives / max(loose.detected, 1),
        any_false=float(strict.false_positives > 0),
        found=float(loose.true_positives),
        found_strictly=float(strict.true_positives),
    )
