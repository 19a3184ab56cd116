"""A whole population's reports, counted in memory: chunk by chunk, on all cores.

Each chunk of clients has a seed of its own, so the counts are the same whatever the number of
workers, and memory is that of one chunk a worker.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import IntArray
from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.protocol.params import RapporParams
from hubbub.simulations.fleet.clients import as_records
from hubbub.simulations.fleet.reporting import Chunk, Plan, Reporter, chunks
from hubbub.simulations.populations import Population


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a population's reports come to.

    Attributes
    ----------
    counts : CohortCounts
    holders : int64 array, shape (v,)
        Reports of each of the population's values: the truth.
    """

    counts: CohortCounts
    holders: IntArray

    def __add__(self, other: Crowd) -> Crowd:
        return Crowd(self.counts + other.counts, self.holders + other.holders)


def count_crowd(
    population: Population,
    params: RapporParams,
    reports: int,
    seed: np.random.SeedSequence,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Crowd:
    """Draw clients from a population, let each report once, and count the reports.

    Parameters
    ----------
    population : Population
    params : RapporParams
    reports : int
        At least 0.
    seed, workers, progress
        As for `count_plan`.
    """
    return count_plan(Plan(population, params, reports), seed, workers=workers, progress=progress)


def count_plan(
    plan: Plan,
    seed: np.random.SeedSequence,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Crowd:
    """Let all clients of a plan report on all days, and count the reports.

    Parameters
    ----------
    plan : Plan
    seed : numpy.random.SeedSequence
        The same seed gives the same counts, whatever `workers` is.
    workers : int
        Processes; 1 works in this one.
    progress : callable
        Told how many chunks of clients are done, and of how many.
    """
    tasks = chunks(plan, seed)
    total = Crowd(empty_counts(plan.params), np.zeros(len(plan.population.values), dtype=np.int64))
    with ExitStack() as stack:
        if workers == 1 or len(tasks) == 1:
            parts: Iterator[Crowd] = map(_Counter(plan, seed), tasks)
        else:
            pool = stack.enter_context(
                ProcessPoolExecutor(
                    workers, multiprocessing.get_context("spawn"), _start_worker, (plan, seed)
                )
            )
            parts = pool.map(_count_in_worker, tasks, chunksize=4)
        for done, part in enumerate(parts, start=1):
            total += part
            progress(done, len(tasks))
    return total


class _Counter:
    """Counts the reports of chunks."""

    def __init__(self, plan: Plan, seed: np.random.SeedSequence) -> None:
        self._params = plan.params
        self._n_values = len(plan.population.values)
        self._reporter = Reporter(plan, seed)

    def __call__(self, chunk: Chunk) -> Crowd:
        total = Crowd(empty_counts(self._params), np.zeros(self._n_values, dtype=np.int64))
        for day in self._reporter.days(chunk):
            counts = count_records(as_records(day.cohorts, day.bits), self._params)
            total += Crowd(counts, np.bincount(day.held, minlength=self._n_values))
        return total


_counter: _Counter | None = None


def _start_worker(plan: Plan, seed: np.random.SeedSequence) -> None:
    global _counter  # noqa: PLW0603
    _counter = _Counter(plan, seed)


def _count_in_worker(chunk: Chunk) -> Crowd:
    if _counter is None:
        raise RuntimeError("this process was not started as a worker")
    return _counter(chunk)
