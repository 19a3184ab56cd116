"""The command `hubbub-simulate`."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from hubbub.decoder.cli.options import cli_errors
from hubbub.decoder.cli.progress import progress_bar
from hubbub.decoder.formats.terminal import stdout_console
from hubbub.decoder.formats.writers import refuse_place
from hubbub.decoder.parallel import cores
from hubbub.simulations.demo import run_demo
from hubbub.simulations.experiments.command import run
from hubbub.simulations.experiments.processes import ProcessError
from hubbub.simulations.experiments.uploading import UploadError
from hubbub.simulations.paper.command import paper
from hubbub.simulations.suite.bounds import promises_kept
from hubbub.simulations.suite.matrix import all_cases, quick_cases
from hubbub.simulations.suite.output import FORMATS, suite_sentence, suite_table, write_suite
from hubbub.simulations.suite.runs import matching, run_suite


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Simulate whole populations with known truth."""


main.add_command(run)
main.add_command(paper)


@main.command()
@click.option(
    "--output",
    default="out/demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for all that is made.",
)
@click.option("--reports", default=500_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--clients",
    default=2_000,
    show_default=True,
    type=click.IntRange(0),
    help="How many of the reports come through real clients, each with a secret of its own.",
)
@click.option("--seed", type=int, help="Of the simulated population; drawn and shown if not given.")
def demo(output: Path, reports: int, clients: int, seed: int | None) -> None:
    """Collect first names by real census frequencies, decode them, and score the result.

    Starts a real collector on the loopback interface, sends it all reports over HTTP, runs the real
    decoder against every first name and surname of the census, and compares with the truth.
    """
    if clients > reports:
        raise click.BadParameter(f"--clients {clients}: must be at most --reports {reports}")
    if seed is None:
        seed = secrets.randbelow(2**32)
    try:
        with cli_errors():
            run_demo(output, reports, clients, seed, stdout_console())
    except (ProcessError, UploadError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--quick", is_flag=True, help="Few cases and runs: about a minute.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="Runs of each case; 10, or 5 with --quick, if not given.",
)
@click.option(
    "--case",
    "patterns",
    multiple=True,
    help="Only cases whose names match, such as '*null*'; may be repeated.",
)
@click.option("--workers", type=click.IntRange(1), help="Processes; as many as cores if not given.")
@click.option(
    "--output",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the results: .csv, .json or .md; may be repeated.",
)
@click.option("--list", "only_list", is_flag=True, help="Show the cases' names and end.")
def suite(
    quick: bool,
    seeds: int | None,
    patterns: tuple[str, ...],
    workers: int | None,
    output: tuple[Path, ...],
    only_list: bool,
) -> None:
    """Measure the decoder over a matrix of cases; exit code 1 if a promise isn't kept.

    Distributions, sizes and filters are those of google/rappor's regression tests. Each run has a
    population, candidates and reports of its own. A bound counts as broken if it is exceeded by
    more than the standard error allows (one-sided, probability 0.001).
    """
    for path in output:
        if path.suffix not in FORMATS:
            raise click.BadParameter(f"--output {path}: must end in {', '.join(FORMATS)}")
        with cli_errors():
            refuse_place(path)
    try:
        cases = matching(quick_cases() if quick else all_cases(), patterns)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    console = stdout_console(200)
    if only_list:
        for case in cases:
            click.echo(case.name)
        return
    with progress_bar("runs") as bar:
        results = run_suite(cases, seeds or (5 if quick else 10), workers or cores(), bar)
    console.print(suite_table(results))
    console.print(suite_sentence(results))
    with cli_errors():
        for path in output:
            write_suite(path, results)
    if not promises_kept(results):
        raise click.exceptions.Exit(1)
