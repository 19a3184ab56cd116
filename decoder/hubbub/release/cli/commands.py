"""`hubbub-release init`, `ledger` and QUERY: options into one call of a `Dataset`."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.protocol import counted
from hubbub.release.cli.options import (
    LEDGER,
    ExactNumber,
    Range,
    by_column,
    data_option,
    delta_of,
    delta_option,
    delta_option_of_keys,
    drawn_output_option,
    epsilon_option,
    keys_of,
    ledger_option,
    output_option,
    spreadsheet_option,
    with_errors,
)
from hubbub.reporting import only_files

if TYPE_CHECKING:
    from hubbub.release.dataset import Dataset
    from hubbub.reporting import Estimates


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
@click.option("--ledger", metavar="FILE", help=f"The ledger to create.  [default: DATA{LEDGER}]")
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
) -> None:
    """Declare a table and its budget, once and for all.

    DATA is a file (.parquet, .csv, .csv.gz, .arrow, .feather) or a directory of files of one
    format. Releases hide whether any one user's rows, up to --rows-per-user of them, are in the
    data. Bounds and bins are public: choose them without looking at the data. The ledger is as
    confidential as the data.
    """
    from hubbub.release.dataset import Dataset
    from hubbub.release.ledger import shown
    from hubbub.reporting import visible

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
    )
    with made:
        held = ", ".join(map(visible, made.declaration.columns))
        click.echo(f"{made.ledger.path}: {shown(made.ledger.budget)}, {composition} composition")
        click.echo(f"columns: {held or 'none but that of users'}")


@click.command()
@click.argument("ledger")
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
def ledger(ledger: str, files: tuple[str, ...], adopt: bool) -> None:
    """Show what was spent, on what, and what remains.

    Don't publish the ledger: it holds a digest of the data, which can confirm a guess of the whole
    table.
    """
    from hubbub.release.ledger import Ledger
    from hubbub.release.result import ledger_estimates
    from hubbub.reporting import write_results

    with Ledger.open(Path(ledger), adopt=adopt) as opened:
        write_results(ledger_estimates(opened), files, width=160)


_BINS = "Public keys, or @FILE with one per line.  [default: those that `init` declared]"


def _query(
    ask: Callable[..., Estimates], output: Callable[..., Any] = output_option
) -> click.Command:
    """Return a query's command: open the table, pay, and show and write what `ask` releases."""

    @functools.wraps(ask)
    def command(
        ledger: str,
        data: str | None,
        files: tuple[str, ...],
        spreadsheet_safe: bool,
        **options: Any,
    ) -> None:
        from hubbub.release.dataset import Dataset
        from hubbub.release.result import with_all_rows
        from hubbub.reporting import STDOUT, write_csv, writers

        # Refuse output that surely can't be written before anything is spent.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a key it can't show loses nothing
        writers.check_output_option(files, pictures=output is drawn_output_option)
        with Dataset.open(ledger, data=data) as dataset:
            result = ask(dataset, **options)
        # It is paid for: if a file can't be written, the others are, and all rows are shown.
        csv = functools.partial(write_csv, spreadsheet_safe=spreadsheet_safe)
        fault = None
        for path in files:
            try:
                writers.write_files(result, [path], csv)
            except OSError as error:
                fault = error
        stdout = [path for path in files if path == STDOUT]
        shown = with_all_rows(result) if fault else result
        writers.write_results(shown, stdout, spreadsheet_safe=spreadsheet_safe)
        if fault is not None:
            raise fault

    run = with_errors(command)
    for option in (spreadsheet_option, output, epsilon_option, data_option, ledger_option):
        run = option(run)
    return click.command()(run)


_keyed_query = functools.partial(_query, output=drawn_output_option)


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} must be numbers with commas between them", param_hint="'--edges'"
        ) from None


@_query
@click.argument("column", required=False)
@delta_option
def count(dataset: Dataset, column: str | None, epsilon: Fraction, delta: Fraction) -> Estimates:
    """Release the number of rows, or of those in which COLUMN isn't null.

    With one row per user, this is the number of users.
    """
    return dataset.count(column, epsilon=epsilon, delta=delta)


@_query
@click.argument("column")
@delta_option
def sum(  # noqa: A001 - the command's name
    dataset: Dataset, column: str, epsilon: Fraction, delta: Fraction
) -> Estimates:
    """Release the sum of COLUMN, whose values are clipped to the declared bounds."""
    return dataset.sum(column, epsilon=epsilon, delta=delta)


@_query
@click.argument("column")
@delta_option
def mean(dataset: Dataset, column: str, epsilon: Fraction, delta: Fraction) -> Estimates:
    """Release the mean of COLUMN, whose values are clipped to the declared bounds."""
    return dataset.mean(column, epsilon=epsilon, delta=delta)


@_keyed_query
@click.argument("column")
@click.option("--bins", metavar="A,B,...", help=_BINS)
@click.option(
    "--edges",
    metavar="0,18,65",
    help="For a column of numbers: count rows between these edges, below the first and above the "
    "last.",
)
@click.option("--other", metavar="KEY", help="Count all keys that aren't public as this one.")
@click.option(
    "--total",
    is_flag=True,
    help="Also release the number of rows with any key, for a tenth of epsilon.",
)
@delta_option_of_keys
def histogram(
    dataset: Dataset,
    column: str,
    epsilon: Fraction,
    delta: Fraction,
    bins: str | None,
    edges: str | None,
    other: str | None,
    total: bool,
) -> Estimates:
    """Release the number of rows for each key of COLUMN.

    Without public keys, only keys that enough users have are released.
    """
    return dataset.histogram(
        column,
        epsilon=epsilon,
        delta=delta,
        bins=None if bins is None else keys_of(bins),
        edges=None if edges is None else _numbers(edges),
        other=other,
        total=total,
    )


@_query
@click.argument("column")
@click.option(
    "--level",
    default="1/2",
    show_default=True,
    type=ExactNumber(),
    help="Share of values below it; 1/2 is the median.",
)
@click.option(
    "--options",
    "n_options",
    default=65_536,
    show_default=True,
    type=click.IntRange(2),
    help="Number of values to choose from, evenly spaced between the bounds; for whole numbers "
    "from 0 to 120, use 121.",
)
@click.option(
    "--method",
    default="exponential",
    show_default=True,
    type=click.Choice(["exponential", "ptr"]),
    help="exponential: the exponential mechanism; ptr: propose-test-release, for the median only.",
)
@click.option(
    "--width",
    type=float,
    help="With ptr: the most that one user can move the median, guessed without seeing the data.",
)
@delta_of("With ptr: delta that the query costs.")
def quantile(
    dataset: Dataset,
    column: str,
    epsilon: Fraction,
    delta: Fraction,
    level: Fraction,
    n_options: int,
    method: str,
    width: float | None,
) -> Estimates:
    """Release a quantile of COLUMN, within its declared bounds.

    Uses the exponential mechanism. Propose-test-release is for comparison: it needs a delta and a
    width, releases nothing if the width is too small, and is less accurate otherwise.
    """
    if method == "exponential":
        if delta or width is not None:
            raise click.UsageError("--delta and --width are for --method ptr alone")
        return dataset.quantile(column, level, epsilon=epsilon, options=n_options)
    if level != Fraction(1, 2):
        raise click.UsageError("--method ptr: --level must be 1/2; other quantiles aren't there")
    if width is None:
        raise click.UsageError("--method ptr: --width must be given")
    return dataset.median_by_test(column, width, epsilon=epsilon, delta=delta)


@_query
@click.argument("column")
@click.option("--bins", metavar="A,B,...", help=_BINS)
@delta_option_of_keys
def mode(
    dataset: Dataset, column: str, epsilon: Fraction, delta: Fraction, bins: str | None
) -> Estimates:
    """Release the most common key of COLUMN, or nearly so, without its count.

    Public keys are compared by report noisy max. Without public keys, the most common one is
    released if it leads by far.
    """
    return dataset.mode(
        column, epsilon=epsilon, delta=delta, options=None if bins is None else keys_of(bins)
    )


@_query
@click.argument("column")
@click.argument("k", type=click.IntRange(1))
@click.option("--bins", metavar="A,B,...", help=_BINS)
def topk(dataset: Dataset, column: str, k: int, epsilon: Fraction, bins: str | None) -> Estimates:
    """Release the K most common public keys of COLUMN, or nearly so, without their counts."""
    return dataset.topk(column, k, epsilon=epsilon, options=None if bins is None else keys_of(bins))


@_query
@click.option(
    "--estimator",
    required=True,
    metavar="MODULE:FUNCTION",
    help="Function that takes a block's columns by name, as numpy arrays, and returns a number.",
)
@click.option(
    "--range", "limits", required=True, type=Range(), help="Range that the answer lies in."
)
@click.option(
    "--blocks",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Number of blocks that users are split into.",
)
@click.option(
    "--method",
    default="median",
    show_default=True,
    type=click.Choice(["median", "mean", "mode"]),
    help="How the blocks' estimates are combined. median: by the exponential mechanism; mean: "
    "clipped to the range, with noise; mode: the most common one, if it leads by far.",
)
@click.option(
    "--columns", metavar="A,B,...", help="Columns that the function gets.  [default: all]"
)
@click.option(
    "--default",
    type=float,
    help="Estimate for a block where the function fails.  [default: the range's middle]",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Time after which a block's process is killed.",
)
@delta_option
def aggregate(
    dataset: Dataset,
    estimator: str,
    limits: tuple[float, float],
    columns: str | None,
    **options: Any,
) -> Estimates:
    """Release the result of any function of the data (subsample-and-aggregate).

    \b
      hubbub-release aggregate --estimator mine:slope --range -1:1 --ledger L.db --epsilon 1

    Users are split into blocks. Each block has a process of its own, whose output is thrown away.
    Run only functions that you have read: they run with your rights, and how long they take can be
    seen.
    """
    from hubbub.reporting import progress_bar

    names = None if columns is None else columns.split(",")
    with progress_bar("estimating") as progress:
        return dataset.aggregate(estimator, limits, columns=names, progress=progress, **options)


@click.command()
@click.argument("data")
@click.option("--column", required=True, help="The column whose keys are candidates.")
@click.option(
    "--epsilon",
    required=True,
    type=ExactNumber(),
    help="What the query costs; an exact number, such as 0.1 or 1/3.",
)
@click.option("--delta", required=True, type=ExactNumber(), help="Delta that the query costs.")
@click.option("--ledger", metavar="FILE", help=f"The ledger of DATA.  [default: DATA{LEDGER}]")
@click.option(
    "--user-column",
    metavar="COLUMN",
    help="Column that names each row's person; makes the ledger, with this query's cost as its "
    "whole budget.",
)
@with_errors
def candidates(
    data: str,
    column: str,
    epsilon: Fraction,
    delta: Fraction,
    ledger: str | None,
    user_column: str | None,
) -> None:
    """Print the keys of COLUMN that enough users have, as a list for `hubbub-decoder decode`.

    \b
      hubbub-release candidates opted-in.parquet --column homepage --user-column user \\
          --epsilon 1 --delta 1e-6 > names.txt
      hubbub-decoder decode homepage --metrics metrics.toml --candidates names.txt

    The list is sorted.
    """
    from hubbub.release.dataset import Dataset

    if not delta:
        raise click.BadParameter("must be above 0", param_hint="'--delta'")
    path = ledger or f"{Path(data)}{LEDGER}"
    if user_column is None:
        opened = Dataset.open(path, data=data)
    else:
        opened = Dataset.create(
            data,
            ledger=path,
            user_column=user_column,
            columns=[column],
            epsilon=epsilon,
            delta=delta,
        )
    with opened as dataset:
        result = dataset.candidates(column, epsilon=epsilon, delta=delta)
    lines = [key for key in result["key"] if not {"\n", "\r"} & set(key)]
    click.echo("".join(f"{line}\n" for line in lines).encode("utf-8"), nl=False)
    left_out = len(result) - len(lines)
    if left_out:
        click.echo(f"note: not printed: {counted(left_out, 'key')} with line breaks", err=True)


GROUPS = {
    "The table and its budget": (init, ledger),
    "Numbers": (count, sum, mean, quantile),
    "Keys": (histogram, mode, topk, candidates),
    "Any function": (aggregate,),
}
"""Commands as --help shows them."""
