"""The command `hubbub-simulate`."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from hubbub.decoder.output import stdout_console
from hubbub.simulations.demo import run_demo
from hubbub.simulations.processes import ProcessError
from hubbub.simulations.uploading import UploadError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Simulate whole populations with known truth."""


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
        run_demo(output, reports, clients, seed, stdout_console())
    except (ProcessError, UploadError) as error:
        raise click.ClickException(str(error)) from error
