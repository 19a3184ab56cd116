"""One run of a case: draw people, let the fleet report, decode, compare with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evaluation.calibration.worlds import World
from hubbub.client.params import RapporParams
from hubbub.decoder import CohortCounts, Correction, Decoding, count_records, decode
from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.fleet.clients import Fleet, as_records


@dataclass(frozen=True, slots=True)
class Case:
    """A population, and how it reports.

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
