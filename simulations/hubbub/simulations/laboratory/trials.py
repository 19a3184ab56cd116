"""Trials: each case is drawn, decoded and scored again and again, on as many cores as there are.

A case knows how to run itself; what it returns, its score, is whatever its table is made of.
Invariant: a trial follows from its case and its number alone, so how many processes there are
changes the rounding at most.
"""

from __future__ import annotations

import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

ScoreT_co = TypeVar("ScoreT_co", covariant=True)
ScoreT = TypeVar("ScoreT")
Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


def no_progress(_done: int, _total: int) -> None:
    """Tell nobody."""


class Case(Protocol[ScoreT_co]):
    """A population, how it reports, and what decodes and scores its reports."""

    @property
    def name(self) -> str:
        """What tells it from other cases."""

    @property
    def work(self) -> float:
        """About how long a trial takes, in any unit that its fellows have, too."""

    def run(self, number: int) -> ScoreT_co:
        """Draw, decode and score a numbered trial: people, strings and coins are its own."""


def seed_of(name: str, number: int) -> np.random.SeedSequence:
    """Return the seed of a numbered trial: one of its own for every case and number."""
    return np.random.SeedSequence([zlib.crc32(name.encode()), number])


def run_trials(
    cases: Sequence[Case[ScoreT]], runs: int, workers: int = 1, progress: Progress = no_progress
) -> tuple[tuple[ScoreT, ...], ...]:
    """Run each case with the numbers 0 to runs - 1; return the scores case by case.

    Parameters
    ----------
    cases : sequence of Case
        Picklable, if there are several workers.
    runs : int
        Trials of each case.
    workers : int
        Processes, each of which computes on one thread; 1 works in this one.
    progress : callable, optional
        Takes how many trials are done, and of how many.
    """
    tasks = [(place, number) for place in range(len(cases)) for number in range(runs)]
    scores: dict[tuple[int, int], ScoreT] = {}
    found = _here(cases, tasks) if workers == 1 else _in_processes(cases, tasks, workers)
    for task, score in found:
        scores[task] = score
        progress(len(scores), len(tasks))
    return tuple(tuple(scores[place, run] for run in range(runs)) for place in range(len(cases)))


_Task = tuple[int, int]
"""The case's place, and the trial's number."""


def _here(cases: Sequence[Case[ScoreT]], tasks: Sequence[_Task]) -> Iterator[tuple[_Task, ScoreT]]:
    for place, number in tasks:
        yield (place, number), cases[place].run(number)


def _in_processes(
    cases: Sequence[Case[ScoreT]], tasks: Sequence[_Task], workers: int
) -> Iterator[tuple[_Task, ScoreT]]:
    """Yield scores as trials end, the largest begun first."""
    ordered = sorted(tasks, key=lambda task: -cases[task[0]].work)
    with _single_threads(), ProcessPoolExecutor(workers, _spawn()) as pool:
        futures = {
            pool.submit(cases[place].run, number): (place, number) for place, number in ordered
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def _spawn() -> multiprocessing.context.SpawnContext:
    return multiprocessing.get_context("spawn")


@contextmanager
def _single_threads() -> Iterator[None]:
    """Let processes that are started meanwhile compute on one thread: they share the cores."""
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)
