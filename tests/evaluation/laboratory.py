"""Case -> trial -> score -> figure.

Each case is drawn, decoded and scored again and again, on as many cores as there are. A case knows
how to run itself; what it returns, its score, is whatever its table is made of. Invariant: a trial
follows from its case and its number alone, so how many processes there are changes the rounding at
most.

A figure is a mean over trials. It is compared with its bound by a one-sided test: it breaks the
bound only if it lies beyond it by more standard errors than Student's t allows with probability
`ALARM`. Standard errors come from the scatter between trials; where a figure is a share of names,
they are never taken below what independent names would give, so that a few trials that happen to
agree prove nothing.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from scipy import stats

from hubbub.inference import FloatArray

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

    cases: Picklable, if there are several workers.
    runs: Trials of each case.
    workers: Processes, each of which computes on one thread; 1 works in this one.
    progress: Takes how many trials are done, and of how many.
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


ALARM = 1e-3
"""Chance that a figure which lies exactly on its bound is called broken."""
MISSED = 0.05
"""Share of 95% intervals that miss the truth, and level of detections: a name's variance if names
were independent is `MISSED * (1 - MISSED)`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over trials with its standard error (nan where no trial tells it)."""

    mean: float
    std_error: float  # infinite if it rests on a single trial
    runs: int  # trials that it rests on

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> Figure:
        """Return the mean over the trials that have a value, which isn't nan."""
        array = np.asarray(values, dtype=np.float64)
        known = array[~np.isnan(array)]
        if not len(known):
            return UNKNOWN
        scatter = float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.inf
        return cls(float(known.mean()), scatter, len(known))

    @classmethod
    def of_shares(cls, values: Sequence[float], names: float) -> Figure:
        return cls.of(values)._floored(names)

    @classmethod
    def of_ratio(cls, shares: Sequence[float], names: FloatArray) -> Figure:
        """Return the share over all trials' names together, with a ratio estimate's standard error.

        shares: Each trial's share.
        names: shape (n,): How many names it is a share of.
        """
        used = names > 0
        if not used.any():
            return UNKNOWN
        hits, total = np.array(shares)[used] * names[used], float(names.sum())
        mean, runs = float(hits.sum()) / total, int(used.sum())
        scatter = math.inf
        if runs > 1:
            deviations = hits - mean * names[used]
            scatter = math.sqrt(float(deviations @ deviations) * runs / (runs - 1)) / total
        return cls(mean, scatter, runs)._floored(total)

    def above(self, bound: float) -> bool:
        """Whether it is above a bound beyond what chance allows."""
        return self.runs > 0 and self.mean - bound > self._margin()

    def below(self, bound: float) -> bool:
        """Whether it is below a bound beyond what chance allows."""
        return self.runs > 0 and bound - self.mean > self._margin()

    def outside(self, bounds: tuple[float, float]) -> bool:
        """Whether it is below the lower or above the upper of two bounds."""
        return self.below(bounds[0]) or self.above(bounds[1])

    def __str__(self) -> str:
        """Return "mean ± standard error" as tables show it; nothing if there is none."""
        if math.isnan(self.mean):
            return ""
        # Counts to a tenth, shares to a thousandth.
        digits = 1 if self.mean >= 2 else 3
        error = "" if math.isinf(self.std_error) else f" ± {self.std_error:.{digits}f}"
        return f"{self.mean:.{digits}f}{error}"

    def _margin(self) -> float:
        if self.runs > 1:
            return float(stats.t.isf(ALARM, self.runs - 1)) * self.std_error
        return float(stats.norm.isf(ALARM)) * self.std_error

    def _floored(self, names: float) -> Figure:
        if not self.runs or not names:
            return self
        alone = math.sqrt(MISSED * (1 - MISSED) / names)
        scatter = alone if math.isinf(self.std_error) else max(self.std_error, alone)
        return Figure(self.mean, scatter, self.runs)


UNKNOWN = Figure(math.nan, math.nan, 0)
"""A figure that a case doesn't have."""
