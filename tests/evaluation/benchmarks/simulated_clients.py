"""Simulated reports a second on one core, against numpy's plain way to the same distribution."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from evaluation.benchmarks.timing import Comparison, compare
from factories import make_params
from hubbub.protocol import RapporParams, canonical_bytes
from hubbub.simulations import (
    LongitudinalClients,
    ReportingPlan,
    SimulatedClients,
    family_shares,
    made_up,
    packed_filters,
    sample_population,
)

_REPORTS, _PLAIN_REPORTS, _COUNTED = 1 << 18, 1 << 13, 1 << 20
_POPULATION = made_up(family_shares("zipf:1", 1_000), "value ")
_DYADIC = make_params()
_ANY = make_params(f=0.45, p=0.39, q=0.61)
_TURNS = 9
_BASELINE = "rng.random(n, k) < chance"


def comparisons() -> Iterator[Comparison]:
    """Time drawing at probabilities of few digits and of all, day after day, and counting."""
    for name, params in (("f=.5 p=.25 q=.75", _DYADIC), ("f=.45 p=.39 q=.61", _ANY)):
        plain = _plain(params)
        yield _row(f"reports, {name}", _once(params), plain)
        yield _row(f"a later day's, {name}", _again(params), plain)
        yield _row(f"and counted, {name}", _counted(params), plain)


def _row(what: str, task: Callable[[], int], plain: Callable[[], int]) -> Comparison:
    return compare(what, task, _BASELINE, plain, "reports", _TURNS, time.process_time)


def _held(n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = np.random.default_rng(1)
    return np.sort(rng.choice(len(_POPULATION.values), size=n, p=_POPULATION.shares))


def _once(params: RapporParams) -> Callable[[], int]:
    rng = np.random.Generator(np.random.SFC64(1))
    simulated = SimulatedClients(_POPULATION.values, params, rng)
    held = _held(_REPORTS)

    def draw() -> int:
        simulated.report(held)
        return _REPORTS

    return draw


def _again(params: RapporParams) -> Callable[[], int]:
    simulated = LongitudinalClients(_POPULATION.values, params, np.random.SeedSequence(1))
    rng = np.random.Generator(np.random.SFC64(1))
    clients, held = np.arange(_REPORTS), _held(_REPORTS)

    def draw() -> int:
        simulated.report(clients, held, rng)
        return _REPORTS

    return draw


def _counted(params: RapporParams) -> Callable[[], int]:
    def draw() -> int:
        sample_population(ReportingPlan(_POPULATION, params, _COUNTED), np.random.SeedSequence(1))
        return _COUNTED

    return draw


def _plain(params: RapporParams) -> Callable[[], int]:
    rng = np.random.default_rng(1)
    packed = packed_filters([*map(canonical_bytes, _POPULATION.values)], params)
    held = _held(_PLAIN_REPORTS)

    def draw() -> int:
        cohorts = rng.integers(params.m, size=_PLAIN_REPORTS)
        bloom = np.unpackbits(packed[held * params.m + cohorts], axis=1, bitorder="little")
        chances = np.where(bloom, params.q_star, params.p_star)
        np.packbits(rng.random(bloom.shape) < chances, axis=1, bitorder="little")
        return _PLAIN_REPORTS

    return draw
