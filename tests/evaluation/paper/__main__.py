"""Repeat the RAPPOR paper's experiments and numbers: python -m evaluation.paper."""

from __future__ import annotations

from pathlib import Path

import click

from evaluation.paper.experiments import experiments
from evaluation.paper.headline import formula_lines, simulated_lines
from evaluation.paper.result import paper_result
from hubbub.reporting import cli_errors, progress_bar, show, stdout_console


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--table", "only_table", is_flag=True, help="Only the headline numbers.")
@click.option(
    "--runs", type=click.IntRange(1), default=10, show_default=True, help="Runs per case."
)
@click.option(
    "--output", default="out/paper", show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.html, result.json and the figures.",
)  # fmt: skip
def main(only_table: bool, runs: int, output: Path) -> None:
    """Repeat the experiments and headline numbers of the RAPPOR paper (CCS 2014).

    Shows each experiment's figure beside what the paper states, and each headline number beside
    ours. The exit code is 1 if a number isn't reproduced within its tolerance.
    """
    with cli_errors():
        output.mkdir(parents=True, exist_ok=True)
        with progress_bar("experiments") as bar:
            findings = () if only_table else experiments(runs, bar)
        lines = sorted([*formula_lines(), *simulated_lines(runs)], key=lambda line: line.number)
        result = paper_result(findings, lines)
        result.write(output)
    console = stdout_console(200)
    show(result.estimates.blocks(), console)
    console.print(f"Files in {output}/")
    if not all(line.within for line in lines):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main(prog_name="python -m evaluation.paper")
