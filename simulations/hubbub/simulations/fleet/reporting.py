"""Plans of who reports, how often and from which cohorts, carried out chunk by chunk.

Each chunk of clients has a seed of its own, so the reports are the same whoever draws it, and
whatever was drawn before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray
from hubbub.protocol.params import RapporParams
from hubbub.simulations.fleet.clients import Fleet
from hubbub.simulations.fleet.longitudinal import LongitudinalFleet
from hubbub.simulations.populations import Population

CHUNK = 1 << 18
"""Clients that are drawn at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who reports, how often, and from which cohorts.

    Attributes
    ----------
    population : Population
    params : RapporParams
    clients : int
    days : int
        Reports of each client, one a day.
    change : float
        Chance that a client's value is drawn anew from one day to the next.
    cohort_shares : float64 array, shape (m,), or None
        Chance of each cohort; uniform, as real clients' are, if None.
    """

    population: Population
    params: RapporParams
    clients: int
    days: int = 1
    change: float = 0.0
    cohort_shares: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Attributes: number of the first client, how many there are, and their seed."""

    first: int
    size: int
    seed: np.random.SeedSequence


class Day(NamedTuple):
    """Attributes: values held (int64, (n,)), cohorts (int64, (n,)), bits (uint8, (n, k / 8))."""

    held: IntArray
    cohorts: IntArray
    bits: ByteArray


def chunks(plan: Plan, seed: np.random.SeedSequence) -> list[Chunk]:
    """Divide a plan's clients into chunks, each with a seed of its own."""
    starts = range(0, plan.clients, CHUNK)
    # Spawned by number, so that asking twice gives the same seeds.
    return [
        Chunk(start, min(CHUNK, plan.clients - start), _child(seed, 1 + number))
        for number, start in enumerate(starts)
    ]


class Reporter:
    """Draws the reports of a plan's chunks; holds the packed Bloom filters.

    Parameters
    ----------
    plan : Plan
    seed : numpy.random.SeedSequence
        Of the whole plan: the clients' secrets follow from it.
    """

    def __init__(self, plan: Plan, seed: np.random.SeedSequence) -> None:
        self._plan = plan
        values, params = plan.population.values, plan.params
        self._fleet: Fleet | LongitudinalFleet
        if plan.days == 1 and plan.cohort_shares is None:
            self._fleet = Fleet(values, params, np.random.default_rng(0))
        else:
            self._fleet = LongitudinalFleet(values, params, _child(seed, 0), plan.cohort_shares)

    def days(self, chunk: Chunk) -> Iterator[Day]:
        """Yield each day's reports of a chunk of clients."""
        rng = np.random.Generator(np.random.SFC64(chunk.seed))
        # The order of clients means nothing, and equal values side by side share the cache.
        held = _drawn(self._plan.population, chunk.size, rng)
        if isinstance(self._fleet, Fleet):
            yield Day(held, *self._fleet.with_rng(rng).report(held))
        else:
            yield from self._days(self._fleet, chunk, held, rng)

    def _days(
        self, fleet: LongitudinalFleet, chunk: Chunk, held: IntArray, rng: np.random.Generator
    ) -> Iterator[Day]:
        clients = np.arange(chunk.first, chunk.first + chunk.size)
        cohorts = fleet.cohorts(clients)
        for day in range(self._plan.days):
            if day:
                changed = np.flatnonzero(rng.random(chunk.size) < self._plan.change)
                held[changed] = rng.permutation(_drawn(self._plan.population, len(changed), rng))
            yield Day(held, cohorts, fleet.report(clients, held, rng))


def _drawn(population: Population, n: int, rng: np.random.Generator) -> IntArray:
    """Return n clients' values, sorted."""
    holders = rng.multinomial(n, population.shares)
    return np.repeat(np.arange(len(holders)), holders)


def _child(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
