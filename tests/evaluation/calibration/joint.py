"""How often the intervals of tables hold the truth, and how often independence is rejected.

`python -m evaluation.calibration.joint` prints it for the suite's tables and for smaller ones.
Counts are drawn with the law of clients who report once: tuples and cohorts by multinomials, each
bit's count by two binomials, because given the tuples all bits are independent. One run is one
population with partners of its own, and one sample of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
import numpy as np
from rich import box
from rich.table import Table

from hubbub.decoder import CohortCounts
from hubbub.inference.arrays import FloatArray
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.simulations.experiments.joint import JointExperiment, judge_table
from hubbub.simulations.experiments.joint_scoring import JointScore
from hubbub.simulations.simulated_clients.true_bits import true_bits
from hubbub.simulations.suite.joint_matrix import JointCase, joint_cases

KINDS = ("cells", "common_cells", "margins", "conditionals", "strength")
"""The intervals of a score."""
CASES = (
    *joint_cases(),
    *(JointCase("6x5", reports, epsilon, partners)
      for reports in (3_000, 30_000) for epsilon in (2, 4) for partners in (0, 30)),
    *(JointCase("8x5x2", 100_000, 4, partners) for partners in (0, 30)),
)  # fmt: skip


def draw_counts(experiment: JointExperiment, rng: np.random.Generator) -> CohortCounts:
    """Draw one report of each client; the metric has one hash at most."""
    population, params = experiment.population, experiment.params
    values = np.arange(len(population.values))
    bits = true_bits(population.values, params, population.metric_type)
    reports = rng.multinomial(experiment.reports, np.full(params.m, 1 / params.m))
    ones = np.empty((params.m, params.k), dtype=np.int64)
    for cohort, size in enumerate(reports.tolist()):
        held = rng.multinomial(size, population.shares)
        packed = bits.take(values, np.full(len(values), cohort))
        own = np.unpackbits(packed, axis=1, bitorder="little").argmax(axis=1)
        true = np.bincount(own, weights=held, minlength=params.k).astype(np.int64)
        ones[cohort] = rng.binomial(true, params.q_star)
        ones[cohort] += rng.binomial(size - true, params.p_star)
    return CohortCounts(reports, ones)


def run(case: JointCase, number: int) -> tuple[JointScore, float]:
    """Return a numbered run's score, and its CPU time from the counts to the table."""
    experiment = case.experiment(number)
    outcome = judge_table(experiment, draw_counts(experiment, np.random.default_rng(number)))
    return outcome.score, outcome.seconds


def shares_held(scores: Sequence[JointScore], kind: str) -> FloatArray:
    """Return every run's share of intervals that hold the truth, nan where there are none."""
    return np.array([getattr(score, kind).share for score in scores])


def _cell(values: FloatArray) -> str:
    known = values[~np.isnan(values)]
    if len(known) < max(2, len(values) // 10):  # a share is now near 0 and now not
        return ""
    return f"{known.mean():.3f} ± {known.std(ddof=1) / math.sqrt(len(known)):.3f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--runs", default=400, show_default=True, type=click.IntRange(2), help="A case.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--case", "chosen", multiple=True, help="Only these, by name; may be repeated.")
def main(runs: int, workers: int, chosen: tuple[str, ...]) -> None:
    """Print the share of the 95% intervals that hold the truth, and of the runs that reject.

    Each figure has its standard error; a run's figure is one observation. "wrong" is the share of
    false ones among the cells that are said to depart from independence.
    """
    cases = [case for case in CASES if not chosen or case.name in chosen]
    if not cases:
        raise click.BadParameter(f"--case: must be among {', '.join(c.name for c in CASES)}")
    table = Table(box=box.MARKDOWN)
    headings = (
        *(kind.replace("_", " ") for kind in KINDS),
        "rejected",
        "wrong",
        "variation",
        "refit",
        "s",
    )
    for heading in ("case", *headings):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    with ProcessPoolExecutor(workers) as pool:
        for case in cases:
            found = list(pool.map(partial(run, case), range(runs), chunksize=10))
            scores = [score for score, _ in found]
            figures = [shares_held(scores, kind) for kind in KINDS]
            figures.append(np.array([float(score.rejected) for score in scores]))
            wrong = [score.wrong_departures / max(score.departures, 1) for score in scores]
            figures.append(np.array(wrong))
            figures.append(np.array([score.total_variation for score in scores]))
            figures.append(np.array([score.total_variation_refit for score in scores]))
            seconds = float(np.median([seconds for _, seconds in found]))
            table.add_row(case.name, *map(_cell, figures), f"{seconds:.2f}")
    stdout_console(200).print(table)


if __name__ == "__main__":
    main(prog_name="evaluation.calibration.joint")
