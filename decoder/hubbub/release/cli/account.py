"""`hubbub-release init` and `ledger`: a budget is set, and told."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from hubbub.release.cli.options import (
    LEDGER,
    ExactNumber,
    Range,
    by_column,
    keys_of,
    newlines_option,
    with_errors,
)
from hubbub.reporting.command_line import only_files


@click.command()
@click.argument("data")
@click.option(
    "--user-column", required=True, metavar="COLUMN", help="Column that names each row's person."
)
@click.option("--columns", metavar="A,B,...", help="Columns that queries may use.  [default: all]")
@click.option(
    "--bounds",
    multiple=True,
    metavar="COLUMN=LOW:HIGH",
    help="The range of a column of numbers; values are clipped to it. May be repeated.",
)
@click.option(
    "--bins",
    multiple=True,
    metavar="COLUMN=A,B,...",
    help="Public keys of a column, or @FILE with one per line. May be repeated.",
)
@click.option(
    "--rows-per-user",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Most rows per user that count.",
)
@click.option(
    "--excess",
    default="sample",
    show_default=True,
    type=click.Choice(["sample", "refuse"]),
    help="If a user has more rows: draw a sample of them, or refuse the data.",
)
@click.option(
    "--epsilon",
    required=True,
    type=ExactNumber(),
    help="The whole budget; an exact number, such as 3, 0.1 or 1/3.",
)
@click.option(
    "--delta",
    default="0",
    show_default=True,
    type=ExactNumber(),
    help="Delta of the whole budget; choose it far below 1 / number of users.",
)
@click.option(
    "--composition",
    default="basic",
    show_default=True,
    type=click.Choice(["basic", "zcdp"]),
    help="How costs add up; can't be changed later. basic: the sums of epsilons and of deltas; "
    "zcdp: far less for many small queries, more for a few large ones.",
)
@click.option(
    "--ledger",
    metavar="FILE",
    help=f"The ledger to create.  [default: DATA{LEDGER}]",
)
@newlines_option
@with_errors
def init(
    data: str,
    user_column: str,
    columns: str | None,
    bounds: tuple[str, ...],
    bins: tuple[str, ...],
    rows_per_user: int,
    excess: str,
    epsilon: Fraction,
    delta: Fraction,
    composition: str,
    ledger: str | None,
    newlines_in_cells: bool,
) -> None:
    """Declare a table and its budget, once and for all.

    DATA is a file (.parquet, .csv, .csv.gz, .arrow, .feather) or a directory of files of one
    format. Releases hide whether any one user's rows, up to --rows-per-user of them, are in the
    data. Bounds and bins are public: choose them without looking at the data. The ledger is as
    confidential as the data.
    """
    from hubbub.release.dataset import Dataset  # noqa: PLC0415
    from hubbub.release.ledger import shown  # noqa: PLC0415
    from hubbub.reporting.text import visible  # noqa: PLC0415 - --help stays quick

    ranges = {
        column: Range().convert(text, None, None)
        for column, text in by_column("--bounds", bounds).items()
    }
    keys = {column: keys_of(text) for column, text in by_column("--bins", bins).items()}
    made = Dataset.create(
        data,
        ledger=ledger or f"{Path(data)}{LEDGER}",
        user_column=user_column,
        epsilon=epsilon,
        delta=delta,
        rows_per_user=rows_per_user,
        excess=excess,
        columns=None if columns is None else columns.split(","),
        bounds=ranges,
        bins=keys,
        composition=composition,
        newlines_in_cells=newlines_in_cells,
    )
    with made:
        held = ", ".join(map(visible, made.declaration.columns))
        click.echo(f"{made.ledger.path}: {shown(made.ledger.budget)}, {composition} composition")
        click.echo(f"columns: {held or 'none but that of users'}")


@click.command()
@click.argument("ledger")
@click.option(
    "--people",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Also show what the releases reveal about this many people together.",
)
@click.option(
    "--output",
    "files",
    multiple=True,
    callback=only_files(".csv", ".json", ".parquet"),
    metavar="FILE",
    help="Also write .csv, .json or .parquet; may be repeated.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="State that this copy of the ledger holds all queries so far and is the only one that "
    "will be used from now on; the ledger records this statement.",
)
@with_errors
def ledger(ledger: str, people: int, files: tuple[str, ...], adopt: bool) -> None:
    """Show what was spent, on what, and what remains.

    Don't publish the ledger: it holds a digest of the data, which can confirm a guess of the whole
    table.
    """
    from hubbub.release.ledger import Ledger  # noqa: PLC0415
    from hubbub.release.result import ledger_estimates  # noqa: PLC0415
    from hubbub.reporting.formats.writers import write_results  # noqa: PLC0415 - quick --help

    with Ledger.open(Path(ledger), adopt=adopt) as opened:
        write_results(ledger_estimates(opened, people), files, width=160)
