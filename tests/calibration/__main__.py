"""`python -m calibration`: decode many simulated populations, tabulate how often it was right."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

import click

from calibration.cases import CASES
from calibration.table import make_table
from calibration.trials import Case, Trial, run_trial
from hubbub.decoder.output import stdout_console
from hubbub.decoder.progress import progress_bar

_QUICK_SEEDS = 5
_WIDTH_OFF_TERMINAL = 200
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--seeds", default=100, show_default=True, type=click.IntRange(1), help="Runs a case."
)
@click.option("--quick", is_flag=True, help=f"Only {_QUICK_SEEDS} runs a case.")
@click.option(
    "--case",
    "names",
    multiple=True,
    type=click.Choice([case.name for case in CASES]),
    metavar="NAME",
    help="Only this line of the table; may be repeated.",
)
@click.option(
    "--workers",
    default=os.cpu_count() or 1,
    show_default="one a core",
    type=click.IntRange(1),
    help="Processes.",
)
def main(seeds: int, quick: bool, names: tuple[str, ...], workers: int) -> None:
    """Measure the decoder's error rates over many simulated populations.

    The table's columns, each a mean over the runs with its standard error:

    \b
    coverage           share of the 95% intervals of all candidates that hold the truth
    of detected        the same of the detected (BH); less, for they are those that came out high
    false share (BH)   share of names nobody holds among the detected; to be at most 0.05
    any false (Bonf.)  share of the runs that detect such a name; to be at most 0.05
    found              names rightly detected under either correction
    """
    cases = [case for case in CASES if not names or case.name in names]
    results = _run_all(cases, _QUICK_SEEDS if quick else seeds, workers)
    console = stdout_console(_WIDTH_OFF_TERMINAL)
    console.print(make_table(results))


def _run_all(cases: Sequence[Case], seeds: int, workers: int) -> dict[Case, list[Trial]]:
    """Run every case on the same seeds; the result doesn't depend on the number of workers."""
    tasks = list(itertools.product(cases, range(seeds)))
    trials: dict[tuple[Case, int], Trial] = {}
    with _processes(workers) as pool, progress_bar("decoding populations") as bar:
        futures = {pool.submit(run_trial, *task): task for task in tasks}
        for future in as_completed(futures):
            trials[futures[future]] = future.result()
            bar(len(trials), len(tasks))
    return {case: [trials[case, seed] for seed in range(seeds)] for case in cases}


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh interpreters, whose linear algebra keeps to one core each."""
    os.environ.update(_ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield pool


if __name__ == "__main__":
    main(prog_name="calibration")
