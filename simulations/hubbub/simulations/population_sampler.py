"""A population's reports: who reports and how often, drawn and counted.

A client reports every day, of a permanent response that it keeps, or once in each period, on a
random day and with new coins. Clients are drawn in chunks, on all cores, so memory is that of one
chunk a worker. Of those that answer with cells, counts are drawn by their exact distribution.
Invariant: each chunk has a seed of its own, so its reports are the same whoever draws it, and
whatever was drawn before.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.inference import ByteArray, IntArray, cell_chances, count_records
from hubbub.protocol import (
    UNARY,
    CohortCounts,
    Metric,
    MetricType,
    Mode,
    RapporParams,
    Response,
    StringType,
    Subset,
    Window,
    empty_counts,
)
from hubbub.simulations.clients import LongitudinalClients, SimulatedClients, as_records
from hubbub.simulations.populations import Population

_STRING = StringType()
CHUNK = 1 << 18
"""Clients that are drawn at once, unless their reports are large."""
_CHUNK_BITS = CHUNK * 1024
"""Bits that all reports which are drawn at once have at most."""


@dataclass(frozen=True, slots=True)
class ReportingPlan:
    """The clients that report, and how often."""

    population: Population
    params: RapporParams
    clients: int
    days: int = 1  # on which clients report: once a day, if there are no periods
    change: float = 0.0  # chance that a client's value is drawn again from one day to the next
    metric_type: MetricType = _STRING  # of categories: those of the population, in its order
    # The clients' response; only those of categories draw whole reports at once.
    response: Response = UNARY
    # If it isn't 0, each client reports once in each period of so many days. All days are whole
    # periods.
    period_days: int = 0

    @property
    def reports_each(self) -> int:
        """How often each client reports."""
        return self.days // self.period_days if self.period_days else self.days

    @property
    def reports(self) -> int:
        """How many reports there are of all clients."""
        return self.clients * self.reports_each

    @property
    def mode(self) -> Mode:
        """How often a client reports an answer."""
        if self.period_days:
            return "once"
        both = self.params.has_permanent and self.params.has_instantaneous
        return "longitudinal" if both else "one-time"

    @property
    def metric(self) -> Metric:
        """The metric that is reported."""
        return Metric(
            application="org.example.simulation",
            name="simulated",
            version=1,
            type=self.metric_type,
            params=self.params,
            description="Made-up values of a simulated population",
            owner="simulation@example.org",
            expires=dt.date(2099, 12, 31),
            mode=self.mode,
            memory="period" if self.period_days else "value",
            period_days=self.period_days,
            response=self.response,
        )


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


def chunks(plan: ReportingPlan, seed: np.random.SeedSequence) -> list[Chunk]:
    """Divide a plan's clients into chunks, each with a seed of its own."""
    size = min(CHUNK, _CHUNK_BITS // plan.params.k)
    starts = range(0, plan.clients, size)
    # Spawned by number, so that asking twice gives the same seeds.
    return [
        Chunk(start, min(size, plan.clients - start), _child(seed, 1 + number))
        for number, start in enumerate(starts)
    ]


@dataclass(frozen=True, slots=True)
class PopulationSample:
    """The counts of a population's reports."""

    counts: CohortCounts
    holders: IntArray  # shape (v,); reports of each of the population's values: the truth

    def __add__(self, other: PopulationSample) -> PopulationSample:
        return PopulationSample(self.counts + other.counts, self.holders + other.holders)


def _empty_sample(plan: ReportingPlan) -> PopulationSample:
    n_values = len(plan.population.values)
    return PopulationSample(empty_counts(plan.params), np.zeros(n_values, dtype=np.int64))


class Reporter:
    """Draws the reports of a plan's chunks, or their counts; all follows from one seed."""

    def __init__(self, plan: ReportingPlan, seed: np.random.SeedSequence) -> None:
        self._plan = plan
        values, params = plan.population.values, plan.params
        self._clients: SimulatedClients | LongitudinalClients
        if plan.period_days or plan.days == 1:
            self._clients = SimulatedClients(
                values, params, np.random.default_rng(0), plan.metric_type
            )
        else:
            self._clients = LongitudinalClients(values, params, _child(seed, 0), plan.metric_type)

    def days(self, chunk: Chunk) -> Iterator[Day]:
        """Yield each day's reports of a chunk of clients, whose bits have noise of their own."""
        rng = np.random.Generator(np.random.SFC64(chunk.seed))
        if isinstance(self._clients, SimulatedClients):
            for held in self._asked_once(chunk.size, rng):
                yield Day(held, *self._clients.with_rng(rng).report(held))
            return
        numbers = np.arange(chunk.first, chunk.first + chunk.size)
        cohorts = self._clients.cohorts(numbers)
        for held in self._held(chunk.size, rng):
            yield Day(held, cohorts, self._clients.report(numbers, held, rng))

    def count(self, chunk: Chunk) -> PopulationSample:
        """Count all days' reports of a chunk of clients."""
        if self._plan.response != UNARY:
            return self._count_cells(chunk)
        total = _empty_sample(self._plan)
        for day in self.days(chunk):
            counts = count_records(as_records(day.cohorts, day.bits), self._plan.params)
            total += PopulationSample(counts, np.bincount(day.held, minlength=len(total.holders)))
        return total

    def _count_cells(self, chunk: Chunk) -> PopulationSample:
        """Count reports that are drawn as a whole, without drawing any."""
        rng = np.random.Generator(np.random.SFC64(chunk.seed))
        total = _empty_sample(self._plan)
        for held in self._asked_once(chunk.size, rng):
            holders = np.bincount(held, minlength=len(total.holders))
            cells = draw_cell_counts(self._plan.response, holders, rng)
            bits = np.pad(cells, (0, self._plan.params.k - len(cells)))
            counts = CohortCounts(np.array([len(held)]), bits[None])
            total += PopulationSample(counts, holders)
        return total

    def _asked_once(self, clients: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Yield the values of each day's reports: of all clients, or of those whose day it is."""
        period_days = self._plan.period_days
        for day, held in enumerate(self._held(clients, rng)):
            if not period_days:
                yield held
                continue
            if day % period_days == 0:
                own_day = rng.integers(period_days, size=clients)
            yield held[own_day == day % period_days]

    def _held(self, clients: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Yield all clients' values on each day; the array is changed afterwards."""
        population = self._plan.population
        # The order of clients means nothing, and equal values side by side share the cache.
        held = _drawn(population, clients, rng)
        for day in range(self._plan.days):
            if day:
                changed = np.flatnonzero(rng.random(clients) < self._plan.change)
                held[changed] = rng.permutation(_drawn(population, len(changed), rng))
            yield held


def sample_population(
    plan: ReportingPlan,
    seed: np.random.SeedSequence,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> PopulationSample:
    """Let all clients of a plan report on all days, and count the reports.

    The same seed gives the same counts, whatever the number of processes (1: this one, as any
    number where there are no semaphores).
    """
    tasks = chunks(plan, seed)
    total = _empty_sample(plan)
    with ExitStack() as stack:
        if workers == 1 or len(tasks) == 1 or not _has_semaphores():
            parts: Iterator[PopulationSample] = map(Reporter(plan, seed).count, tasks)
        else:
            pool = stack.enter_context(
                ProcessPoolExecutor(workers, _spawn, _start_worker, (plan, seed))
            )
            parts = pool.map(_count_in_worker, tasks, chunksize=4)
        for done, part in enumerate(parts, start=1):
            total += part
            progress(done, len(tasks))
    return total


_spawn = multiprocessing.get_context("spawn")
_reporter: Reporter | None = None


def _has_semaphores() -> bool:
    try:
        _spawn.Lock()
    except OSError:
        return False
    return True


def _start_worker(plan: ReportingPlan, seed: np.random.SeedSequence) -> None:
    global _reporter  # noqa: PLW0603
    _reporter = Reporter(plan, seed)


def _count_in_worker(chunk: Chunk) -> PopulationSample:
    if _reporter is None:
        raise RuntimeError("this process was not started as a worker")
    return _reporter.count(chunk)


def _drawn(population: Population, n: int, rng: np.random.Generator) -> IntArray:
    holders = rng.multinomial(n, population.shares)
    return np.repeat(np.arange(len(holders)), holders)


def _child(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))


def draw_cell_counts(response: Response, holders: IntArray, rng: np.random.Generator) -> IntArray:
    """Return how many reports, shape (d,), have each cell set, of clients that report once.

    A subset's bits depend on each other, so its counts aren't binomial numbers side by side, but
    they need no single report either: cell by cell, it is drawn how many of the clients that still
    have so many cells to choose choose this one. `holders` are clients of each category, shape
    (d,), or at each position, shape (d - w + 1,).
    """
    if isinstance(response, Subset):
        return _of_sets(response, holders, rng)
    if isinstance(response, Window):
        chances = cell_chances(response.cells, response.width, response.chance)
        return np.asarray(rng.multinomial(holders, chances).sum(axis=0))
    raise TypeError(f"{response!r}: must be a response that draws whole reports")


def _of_sets(response: Subset, holders: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the counts of sets.

    With i other cells left, of which a client is to choose j, the next is among them with chance
    j / i: a set that is chosen so is uniform.
    """
    d, w = response.cells, response.width
    counts = rng.binomial(holders, response.chance)
    # Clients by their own category, and how many others they have yet to choose.
    waiting = np.zeros((d, w + 1), dtype=np.int64)
    waiting[:, w - 1], waiting[:, w] = counts, holders - counts
    own, choosing = np.arange(d)[:, None], np.arange(w + 1)
    for cell in range(d):
        left = d - cell - (own >= cell)
        chance = np.where(own == cell, 0.0, np.minimum(choosing / np.maximum(left, 1), 1.0))
        chosen = rng.binomial(waiting, chance)
        counts[cell] += chosen.sum()
        waiting -= chosen
        waiting[:, :-1] += chosen[:, 1:]
    return counts
