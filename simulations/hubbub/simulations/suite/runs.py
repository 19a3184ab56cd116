"""Many runs of many cases in parallel processes; how many there are changes only the rounding."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from fnmatch import fnmatchcase

from hubbub.simulations.suite.bounds import CaseResult, judge
from hubbub.simulations.suite.matrix import Case
from hubbub.simulations.suite.trials import Trial, run_trial

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def matching(cases: Sequence[Case], patterns: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases whose names match any pattern, such as `*null*` or `zipf1-*`; all if none.

    Raises
    ------
    ValueError
        If a pattern matches no case.
    """
    if not patterns:
        return tuple(cases)
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            names = "\n  ".join(case.name for case in cases)
            raise ValueError(f"case {pattern!r}: matches none of\n  {names}")
    return tuple(c for c in cases if any(fnmatchcase(c.name, pattern) for pattern in patterns))


def run_suite(
    cases: Sequence[Case],
    seeds: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[CaseResult, ...]:
    """Run each case with run numbers 0 to seeds - 1, and judge them.

    Parameters
    ----------
    cases : sequence of Case
    seeds, workers : int
        Runs of each case; processes, each of which computes on one thread.
    progress : callable
        Told how many runs are done, and of how many.
    """
    tasks = [(case, run) for case in cases for run in range(seeds)]
    trials: dict[tuple[str, int], Trial] = {}
    if workers == 1:
        for done, (case, run) in enumerate(tasks, start=1):
            trials[case.name, run] = run_trial(case, run)
            progress(done, len(tasks))
    else:
        for done, trial in enumerate(_in_processes(tasks, workers), start=1):
            trials[trial.case, trial.run] = trial
            progress(done, len(tasks))
    return tuple(
        judge([trials[case.name, run] for run in range(seeds)], is_null=case.is_null)
        for case in cases
    )


def _in_processes(tasks: Sequence[tuple[Case, int]], workers: int) -> Iterator[Trial]:
    """Yield trials as they end, the largest begun first."""
    ordered = sorted(tasks, key=lambda task: -_size(task[0]))
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool,
    ):
        futures = [pool.submit(run_trial, case, run) for case, run in ordered]
        for future in as_completed(futures):
            yield future.result()


def _size(case: Case) -> float:
    return case.reports + 100.0 * case.unique * (1 + case.extra)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start in the context compute on one thread: they share the cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
