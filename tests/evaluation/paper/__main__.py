"""Repeat the RAPPOR paper's experiments and numbers: python -m evaluation.paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evaluation.measured_table import MeasuredTable
from evaluation.paper.experiments import experiments
from evaluation.paper.headline import Headline, formula_lines, simulated_lines
from evaluation.studies.study import OUTPUT, show
from hubbub.reporting import progress_bar

_HEADINGS = ("#", "source", "what", "stated", "ours", "within", "way", "within it?")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--table", "only_table", is_flag=True, help="Only the headline numbers.")
@click.option(
    "--runs", type=click.IntRange(1), default=10, show_default=True, help="Runs per case."
)
@OUTPUT
def main(only_table: bool, runs: int, output: tuple[Path, ...]) -> None:
    """Repeat the experiments and headline numbers of the RAPPOR paper (CCS 2014).

    Shows each experiment's figures beside what the paper states, and each headline number beside
    ours. The exit code is 1 if a number isn't reproduced within its tolerance.
    """
    with progress_bar("experiments") as bar:
        findings = () if only_table else experiments(runs, bar)
    for finding in findings:
        click.echo(
            f"{finding.title}\n  stated: {finding.stated}\n  ours: {finding.ours}\n"
            f"  difference: {finding.difference}\n"
        )
    lines = sorted([*formula_lines(), *simulated_lines(runs)], key=lambda line: line.number)
    show(_table(lines), output)
    if not all(line.within for line in lines):
        raise click.exceptions.Exit(1)


def _table(lines: Sequence[Headline]) -> MeasuredTable:
    rows = tuple(
        (
            str(line.number),
            line.source,
            line.what,
            f"{line.stated:,.5g}",
            f"{line.ours:,.5g}",
            f"{line.tolerance:.2%}",
            line.way,
            "yes" if line.within else "no",
        )
        for line in lines
    )
    notes = tuple(f"{line.number} {line.what}: {line.note}" for line in lines if line.note)
    return MeasuredTable("Headline numbers", _HEADINGS, rows, notes)


if __name__ == "__main__":
    main(prog_name="python -m evaluation.paper")
