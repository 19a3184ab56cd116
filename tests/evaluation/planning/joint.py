"""`python -m evaluation.planning.joint`: what the plan says of joint tables, and what comes out."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import click
import numpy as np
from rich import box
from rich.table import Table

from evaluation.planning.joint_trials import JointSetting, JointTrial, run_trial
from hubbub.planning.goals import Plan
from hubbub.planning.noise import Budget
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.reporting.progress import progress_bar

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_WIDTH_OFF_TERMINAL = 160

SETTINGS = (
    *(JointSetting((100, 20), Budget(math.inf, eps), 10**6) for eps in (2.0, 4.0, 8.0)),
    JointSetting((100, 20), Budget(math.inf, 4.0), 30_000),
    JointSetting((100, 20), Budget(6.0, 3.0), 10**6),
    JointSetting((20, 5), Budget(math.inf, 1.0), 10**6),
    JointSetting((10, 2), Budget(math.inf, 4.0), 10_000),
    JointSetting((10, 10, 10), Budget(math.inf, 4.0), 10**6),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--seeds", default=100, show_default=True, type=click.IntRange(1), help="Collections."
)
@click.option(
    "--workers", default=os.cpu_count() or 1, show_default="one a core", help="Processes."
)
def main(seeds: int, workers: int) -> None:
    """Collect typical tables with the planner's parameters, and compare errors with its own.

    \b
    cells, margins, conditional  root mean square error of all of a table's, in predicted errors
    total variation              of the nearest possible table: predicted, and the mean
    found       how often a cell with the limit's share was detected; predicted is 0.9
    rejected    how often independence was, where partners have the share that should be found with
                probability 0.9
    """
    os.environ.update(_ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    cases = [(setting, setting.plan) for setting in SETTINGS]
    results = []
    with ProcessPoolExecutor(workers, mp_context=context) as pool, progress_bar("tables") as bar:
        tasks = [
            [pool.submit(run_trial, setting, plan, seed) for seed in range(seeds)]
            for setting, plan in cases
        ]
        for (setting, plan), trials in zip(cases, tasks, strict=True):
            results.append((setting, plan, [trial.result() for trial in trials]))
            bar(len(results), len(cases))
    stdout_console(_WIDTH_OFF_TERMINAL).print(make_table(results))


def make_table(results: Sequence[tuple[JointSetting, Plan, list[JointTrial]]]) -> Table:
    """Return a Markdown table with a line a setting."""
    table = Table(box=box.MARKDOWN)
    for heading in ("table", "epsilons", "reports", "cells", "margins", "conditional",
                    "total variation", "cell", "found", "partners", "rejected"):  # fmt: skip
        table.add_column(heading, justify="right")
    for setting, plan, trials in results:
        found = np.array(trials, dtype=np.float64)
        means = found.mean(axis=0)
        partners = plan.figures["partner_share"]
        has_test = math.isfinite(partners)
        table.add_row(
            " x ".join(map(str, setting.sizes)),
            f"{setting.budget.permanent:g}, {setting.budget.report:g}",
            f"{setting.reports:,}",
            *(f"{math.sqrt(mean):.3f}" for mean in means[:3]),
            f"{plan.figures['total_variation']:.4f}, {means[3]:.4f}",
            f"{plan.limit:.3%}",
            f"{means[4]:.3f}",
            f"{plan.figures['partner_share']:.1%}" if has_test else "",
            f"{means[5]:.3f}" if has_test else "",
        )
    return table


if __name__ == "__main__":
    main(prog_name="evaluation.planning.joint")
