"""`python -m evaluation.planning`: tabulate how often strings at the predicted limit are found."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import click
import numpy as np
from rich import box
from rich.table import Table

from evaluation.planning.settings import GRID, LIKELIHOOD, contest
from evaluation.planning.trials import Setting, found_and_planted, limit_ratio
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.reporting.progress import progress_bar

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_WIDTH_OFF_TERMINAL = 160


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=40, show_default=True, type=click.IntRange(1), help="Collections.")
@click.option(
    "--workers", default=os.cpu_count() or 1, show_default="one a core", help="Processes."
)
def main(seeds: int, workers: int) -> None:
    """Plant strings at the limit that the theory predicts, decode, and count those that are found.

    \b
    found  share of the planted strings that were detected; predicted is 0.9
    ratio  of the limit that follows from it to the predicted one; to be within 0.9 and 1.1

    The last two lines are the RAPPOR paper's default and the plan for its two epsilons: the ratio
    of their limits is what the plan gains.
    """
    settings = [*GRID, *LIKELIHOOD, *contest()]
    results = run_all(settings, seeds, workers)
    console = stdout_console(_WIDTH_OFF_TERMINAL)
    console.print(make_table(results))
    paper, plan = results[-2:]
    gain = paper[0].limit * paper[2] / (plan[0].limit * plan[2])
    console.print(f"The plan's limit is {gain:.2f} times as small as the paper's default's.")


def run_all(
    settings: Sequence[Setting], seeds: int, workers: int
) -> list[tuple[Setting, float, float, float]]:
    """Return each setting with the share found, the ratio of limits and the latter's error."""
    os.environ.update(_ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    results = []
    with ProcessPoolExecutor(workers, mp_context=context) as pool, progress_bar("planting") as bar:
        for done, setting in enumerate(settings):
            trials = list(pool.map(found_and_planted, [setting] * seeds, range(seeds)))
            planted = sum(n for _, n in trials)
            found = sum(x for x, _ in trials) / planted
            error = float(np.sqrt(found * (1 - found) / planted))
            low, high = (limit_ratio(found + sign * error, setting) for sign in (1, -1))
            results.append((setting, found, limit_ratio(found, setting), (high - low) / 2))
            bar(done + 1, len(settings))
    return results


def make_table(results: Sequence[tuple[Setting, float, float, float]]) -> Table:
    """Return a Markdown table with a line a setting."""
    table = Table(box=box.MARKDOWN)
    for heading in ("k, h, m", "f, p, q", "reports", "candidates", "method", "predicted", "found",
                    "ratio"):  # fmt: skip
        table.add_column(heading, justify="right")
    for setting, found, ratio, error in results:
        params = setting.params
        table.add_row(
            f"{params.k}, {params.h}, {params.m}",
            f"{params.f:g}, {params.p:g}, {params.q:g}",
            f"{setting.reports:,}",
            f"{setting.candidates:,.0f}",
            setting.method.value,
            f"{setting.limit:.3%}",
            f"{found:.3f}",
            f"{ratio:.3f} ± {error:.3f}",
        )
    return table


if __name__ == "__main__":
    main(prog_name="evaluation.planning")
