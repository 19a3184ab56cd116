"""Measure the decoder's error rates over a matrix of cases: python -m evaluation.suite."""

from __future__ import annotations

from pathlib import Path

import click

from evaluation.studies.study import OUTPUT, chosen, show
from evaluation.suite.bounds import promises_kept
from evaluation.suite.matrix import all_cases, quick_cases, run_suite
from evaluation.suite.result import suite_table
from hubbub.inference import cores
from hubbub.reporting import progress_bar


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Few cases and runs, which take some minutes.")
@click.option(
    "--seeds", type=click.IntRange(1), help="Runs per case.  [default: 10, or 5 with --quick]"
)
@click.option(
    "--case", "patterns", multiple=True,
    help="Only cases whose names match, such as '*null*'; may be repeated.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes.  [default: one per core]"
)
@OUTPUT
def main(
    quick: bool,
    seeds: int | None,
    patterns: tuple[str, ...],
    workers: int | None,
    output: tuple[Path, ...],
) -> None:
    """Measure the decoder over a matrix of cases; exit code 1 if a promise isn't kept.

    Distributions, sizes and filters are those of google/rappor's regression tests. Each run has a
    population, candidates and reports of its own. A bound counts as broken if it is exceeded by
    more than the standard error allows (one-sided, probability 0.001).
    """
    cases = chosen(quick_cases() if quick else all_cases(), patterns)
    with progress_bar("runs") as bar:
        results = run_suite(cases, seeds or (5 if quick else 10), workers or cores(), bar)
    show(suite_table(results), output)
    if not promises_kept(results):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main(prog_name="python -m evaluation.suite")
