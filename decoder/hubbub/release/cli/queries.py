"""`hubbub-release QUERY`: options into one call of a `Dataset`, and its result into files."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from hubbub.release.cli.options import (
    LEDGER,
    Budget,
    Range,
    data_option,
    delta_option,
    delta_option_of_keys,
    epsilon_option,
    keys_of,
    ledger_option,
    output_option,
    refuse_unwritable,
    with_errors,
)

if TYPE_CHECKING:
    from hubbub.release.dataset import Dataset
    from hubbub.release.result import ReleaseResult

_BINS = "Public keys, or @FILE with one a line.  [default: those that `init` declared]"


def _query(command: Callable[..., Any]) -> click.Command:
    """Return a query's command, which has the options that all queries have."""
    for option in (output_option, epsilon_option, data_option, ledger_option):
        command = option(command)
    return click.command()(with_errors(command))


def _release(
    ledger: str,
    data: str | None,
    files: tuple[str, ...],
    ask: Callable[[Dataset], ReleaseResult],
) -> None:
    """Ask, and write what was released; nothing is spent if it couldn't be written."""
    from hubbub.decoder.formats.writers import write_results  # noqa: PLC0415 - --help stays quick
    from hubbub.release.dataset import Dataset  # noqa: PLC0415

    refuse_unwritable(files)
    with Dataset.open(ledger, data=data) as dataset:
        write_results(ask(dataset), files)


@_query
@click.argument("column", required=False)
@delta_option
def count(
    column: str | None,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
) -> None:
    """Release the number of rows, or of those in which COLUMN isn't null.

    With one row a user it is the number of users.
    """
    _release(
        ledger, data, files, lambda dataset: dataset.count(column, epsilon=epsilon, delta=delta)
    )


@_query
@click.argument("column")
@delta_option
def sum(  # noqa: A001 - the command's name
    column: str,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
) -> None:
    """Release the sum of COLUMN, whose values are clipped to the declared bounds."""
    _release(ledger, data, files, lambda dataset: dataset.sum(column, epsilon=epsilon, delta=delta))


@_query
@click.argument("column")
@delta_option
def mean(
    column: str,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
) -> None:
    """Release the mean of COLUMN, whose values are clipped to the declared bounds."""
    _release(
        ledger, data, files, lambda dataset: dataset.mean(column, epsilon=epsilon, delta=delta)
    )


@_query
@click.argument("column")
@click.option("--bins", metavar="A,B,...", help=_BINS)
@click.option(
    "--total",
    is_flag=True,
    help="Also the number of all rows, for a tenth of epsilon; `hubbub-decoder decode --blend` "
    "needs it.",
)
@delta_option_of_keys
def histogram(
    column: str,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
    bins: str | None,
    total: bool,
) -> None:
    """Release the number of rows of each key of COLUMN.

    Without public keys, those are released that enough users have.
    """
    _release(
        ledger,
        data,
        files,
        lambda dataset: dataset.histogram(
            column,
            epsilon=epsilon,
            delta=delta,
            bins=None if bins is None else keys_of(bins),
            total=total,
        ),
    )


@_query
@click.argument("column")
@click.option(
    "--level",
    default="1/2",
    show_default=True,
    type=Budget(),
    help="Share of values below it; 1/2 is the median.",
)
@click.option(
    "--options",
    "n_options",
    type=click.IntRange(2),
    help="Values between the bounds to choose from.  [default: 65536, or all whole numbers]",
)
@click.option(
    "--method",
    default="exponential",
    show_default=True,
    type=click.Choice(["exponential", "ptr"]),
    help="exponential: the exponential mechanism; ptr: propose-test-release, of the median.",
)
@click.option(
    "--width",
    type=float,
    help="With ptr: the most that one user moves the median by, proposed without a look.",
)
@click.option(
    "--delta",
    default="0",
    show_default=True,
    type=Budget(),
    help="With ptr: what it may cost of the delta.",
)
def quantile(
    column: str,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
    level: Fraction,
    n_options: int | None,
    method: str,
    width: float | None,
) -> None:
    """Release a quantile of COLUMN, within its declared bounds.

    By the exponential mechanism. Propose-test-release is for comparison: it needs a delta and a
    width, releases nothing where the width is too small, and is less exact where it isn't.
    """
    if method == "exponential":
        if delta or width is not None:
            raise click.UsageError("--delta and --width are for --method ptr alone")
        _release(
            ledger,
            data,
            files,
            lambda dataset: dataset.quantile(column, level, epsilon=epsilon, options=n_options),
        )
        return
    if level != Fraction(1, 2):
        raise click.UsageError("--method ptr: --level must be 1/2; other quantiles aren't there")
    if width is None:
        raise click.UsageError("--method ptr: --width must be given")
    most = width
    _release(
        ledger,
        data,
        files,
        lambda dataset: dataset.median_by_test(column, most, epsilon=epsilon, delta=delta),
    )


@_query
@click.argument("column")
@click.option("--bins", metavar="A,B,...", help=_BINS)
@delta_option_of_keys
def mode(
    column: str,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
    bins: str | None,
) -> None:
    """Release about the most common key of COLUMN, without its number.

    Of public keys by report noisy max; without any, the most common one if it leads by far.
    """
    _release(
        ledger,
        data,
        files,
        lambda dataset: dataset.mode(
            column,
            epsilon=epsilon,
            delta=delta,
            options=None if bins is None else keys_of(bins),
        ),
    )


@_query
@click.argument("column")
@click.argument("k", type=click.IntRange(1))
@click.option("--bins", metavar="A,B,...", help=_BINS)
def topk(
    column: str,
    k: int,
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    files: tuple[str, ...],
    bins: str | None,
) -> None:
    """Release about the K most common public keys of COLUMN, without their numbers."""
    _release(
        ledger,
        data,
        files,
        lambda dataset: dataset.topk(
            column, k, epsilon=epsilon, options=None if bins is None else keys_of(bins)
        ),
    )


@_query
@click.option(
    "--estimator",
    required=True,
    metavar="MODULE:FUNCTION",
    help="Gets a block's columns by name, as numpy arrays, and returns a number.",
)
@click.option("--range", "limits", required=True, type=Range(), help="Where the answer lies.")
@click.option(
    "--blocks", default=200, show_default=True, type=click.IntRange(1), help="Parts of the users."
)
@click.option(
    "--method",
    default="median",
    show_default=True,
    type=click.Choice(["median", "mean", "mode"]),
    help="Of the estimates. median: by the exponential mechanism; mean: clipped to the range, with "
    "noise; mode: the most common one, if it leads by far.",
)
@click.option("--columns", metavar="A,B,...", help="That the estimator gets.  [default: all]")
@click.option(
    "--default",
    type=float,
    help="Estimate of blocks for which it fails.  [default: the range's middle]",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Until a block's process is killed.",
)
@delta_option
def aggregate(
    ledger: str,
    data: str | None,
    epsilon: Fraction,
    delta: Fraction,
    files: tuple[str, ...],
    estimator: str,
    limits: tuple[float, float],
    blocks: int,
    method: str,
    columns: str | None,
    default: float | None,
    seconds: float,
) -> None:
    """Release what any function says of the data (subsample-and-aggregate).

    \b
      hubbub-release aggregate --estimator mine:slope --range -1:1 --ledger L.db --epsilon 1

    Each block of users has a process of its own, whose output is thrown away. Run only functions
    that you have read: they have your rights, and how long they take can be seen.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from hubbub.decoder.cli.progress import progress_bar  # noqa: PLC0415 - --help stays quick

    def ask(dataset: Dataset) -> ReleaseResult:
        with progress_bar("estimating") as progress:
            return dataset.aggregate(
                estimator,
                limits,
                epsilon=epsilon,
                delta=delta,
                blocks=blocks,
                method=method,
                columns=None if columns is None else columns.split(","),
                default=default,
                seconds=seconds,
                progress=progress,
            )

    _release(ledger, data, files, ask)


@click.command()
@click.argument("data")
@click.option("--column", required=True, help="Whose keys are candidates.")
@click.option("--epsilon", required=True, type=Budget(), help="What the query may cost, exactly.")
@click.option("--delta", required=True, type=Budget(), help="What it may cost of the delta.")
@click.option("--ledger", metavar="FILE", help=f"The ledger of DATA.  [default: DATA{LEDGER}]")
@click.option(
    "--user-column",
    metavar="COLUMN",
    help="Make the ledger, with this query's cost as its whole budget; says whose row a row is.",
)
@output_option
@with_errors
def candidates(
    data: str,
    column: str,
    epsilon: Fraction,
    delta: Fraction,
    ledger: str | None,
    user_column: str | None,
    files: tuple[str, ...],
) -> None:
    """Print the keys of COLUMN that enough users have, sorted: a list for `hubbub-decoder decode`.

    \b
      hubbub-release candidates opted-in.parquet --column homepage --user-column user \\
          --epsilon 1 --delta 1e-6 --output release.json > names.txt
      hubbub-decoder decode homepage --metrics metrics.toml --candidates names.txt \\
          --blend release.json

    With --output the keys are found in one half of the users and counted in the other, for --blend;
    otherwise all users find them.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from hubbub.decoder.formats.files import STDOUT  # noqa: PLC0415 - --help stays quick
    from hubbub.decoder.formats.writers import write_files  # noqa: PLC0415
    from hubbub.release.dataset import Dataset  # noqa: PLC0415

    refuse_unwritable(files)
    if STDOUT in files:
        raise click.BadParameter("- is where the keys go", param_hint="'--output'")
    path = ledger or f"{data}{LEDGER}"
    if user_column is not None:
        made = Dataset.create(
            data, ledger=path, user_column=user_column, epsilon=epsilon, delta=delta
        )
        made.close()
    with Dataset.open(path, data=data) as dataset:
        result = dataset.candidates(column, epsilon=epsilon, delta=delta, counted=bool(files))
    write_files(result, files)
    lines = [row.key for row in result.rows if not {"\n", "\r"} & set(row.key)]
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    left_out = len(result.rows) - len(lines)
    if left_out:
        click.echo(f"note: {left_out:,} keys with line breaks aren't printed", err=True)


QUERIES = (count, sum, mean, histogram, quantile, mode, topk, aggregate, candidates)
