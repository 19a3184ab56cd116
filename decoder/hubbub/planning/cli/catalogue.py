"""`hubbub-collector catalogue`: a static page for each metric, and an index.

Only what --help needs is imported at once; the figures need the decoder's packages.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path

import click

from hubbub.protocol.commands import explain_missing_packages


@click.command()
@click.argument(
    "metrics",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="METRICS...",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the pages; existing pages of the same names are replaced.",
)
def catalogue(metrics: tuple[Path, ...], output: Path) -> None:
    """Write web pages that explain METRICS to users, reviewers and data protection officers.

    \b
      hubbub-collector catalogue metrics.toml --output site
      hubbub-collector catalogue 2026.toml 2027.toml metrics.toml --output site

    Each metric gets a page: what is asked, why, by whom and until when; an example of what leaves a
    device; both epsilons and why they hold; what can be linked; its readers; and its versions. If
    you give several registries, the last one is in force and the others are its history, oldest
    first. The pages need no scripts and load nothing from other hosts.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    explain_missing_packages("collector,decoder")
    from hubbub.planning.catalogue import pages  # noqa: PLC0415 - --help stays quick
    from hubbub.protocol.registry import Registry  # noqa: PLC0415
    from hubbub.reporting.command_line import cli_errors  # noqa: PLC0415
    from hubbub.reporting.estimates import Estimates  # noqa: PLC0415
    from hubbub.reporting.formats.files import atomic_write  # noqa: PLC0415
    from hubbub.reporting.formats.html import write_html  # noqa: PLC0415

    with cli_errors():
        history = [Registry.load(each) for each in metrics]
        found = pages(history, dt.datetime.now(dt.UTC).date())
        output.mkdir(parents=True, exist_ok=True)
        for name, page in found.items():
            atomic_write(output / name, partial(write_html, Estimates(page=page)))
    click.echo(f"Wrote {len(found)} pages; begin with {output / 'index.html'}")
