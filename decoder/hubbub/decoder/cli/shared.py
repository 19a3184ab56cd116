"""Options that `decode` and `compare` have in common, and how both write what they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from hubbub.decoder.engines import ENGINES, LOCAL
from hubbub.decoder.options import MIN_REPORTS, MIN_REPORTS_VARIABLE, STORE

if TYPE_CHECKING:
    from hubbub.reporting.estimates import Estimates

_Command = TypeVar("_Command", bound=Callable[..., Any])

metrics = click.option(
    "--metrics", metavar="FILE", help="The registry, metrics.toml; METRIC needs it."
)
store = click.option(
    "--store",
    metavar="URL",
    help=f"The collector's database, or parquet:DIR for an export, also "
    f"parquet:s3://BUCKET/PATH and so on.  [default: {STORE}]",
)
where = click.option(
    "--where",
    multiple=True,
    metavar="DIMENSION=VALUE",
    help="Only reports with this value of a dimension, such as platform=mac. May be repeated: any "
    "of the values of one dimension; all dimensions must match.",
)
alpha = click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Error rate of detections.",
)
correction = click.option(
    "--correction",
    default="bh",
    show_default=True,
    type=click.Choice(["bh", "bonferroni"]),
    help="What alpha bounds. bh: the share of false names among those detected; bonferroni: the "
    "chance of even one.",
)
engine = click.option(
    "--engine",
    default=LOCAL,
    show_default=True,
    type=click.Choice(ENGINES),
    help="Where the heavy work is done: threads on this machine, or workers of Dask, which must "
    "see the same files.",
)
master = click.option(
    "--master",
    metavar="URL",
    help="Dask's scheduler, such as tcp://HOST:8786.  [default: workers on this machine]",
)
output = click.option(
    "--output",
    "files",
    multiple=True,
    metavar="FILE",
    help="Also write the result to FILE.csv, .json, .parquet, or as a report to FILE.html; - "
    "writes CSV to stdout instead of the table. May be repeated.",
)
spreadsheet_safe = click.option(
    "--spreadsheet-safe",
    is_flag=True,
    help="In CSV, put ' before strings that a spreadsheet would run as a formula.",
)
rows = click.option(
    "--rows",
    default=40,
    show_default=True,
    type=click.IntRange(1),
    help="Most rows to show in the terminal's table.",
)
reports_per_client = click.option(
    "--reports-per-client",
    type=click.FloatRange(1),
    metavar="R",
    help="For an average report, how many of these reports came from its client: the more, the "
    "wider the errors. By default, as many as the daily numbers of reports allow.",
)


def min_reports(words: str) -> Callable[[_Command], _Command]:
    """Return the option --min-reports, explained in a command's own words."""
    return click.option(
        "--min-reports",
        default=MIN_REPORTS,
        show_default=True,
        envvar=MIN_REPORTS_VARIABLE,
        show_envvar=True,
        type=click.IntRange(1),
        help=words,
    )


class _Making(Protocol):
    def __call__(self, *, provenance: bool) -> Estimates: ...


def check_alpha(alpha: float) -> None:
    """Raise BadParameter for nan, which every comparison of the option's range lets pass."""
    if math.isnan(alpha):
        raise click.BadParameter("nan is not in the range 0<x<1.", param_hint="'--alpha'")


def write_estimates(make: _Making, files: Sequence[str], *, spreadsheet_safe: bool) -> None:
    """Make estimates and write them; the files' forms are checked before the work begins.

    `make`: returns the estimates; `provenance` says whether a file will state it. `files`: as
    --output names them. `spreadsheet_safe`: whether CSV holds nothing that a spreadsheet would run.
    """
    from hubbub.inference.parallel import one_thread  # noqa: PLC0415 - see `cli.group`
    from hubbub.reporting.formats import writers  # noqa: PLC0415

    writers.check_output_option(files)
    # Last digits depend on how many threads linear algebra takes; results must not depend on cores.
    with one_thread():
        estimates = make(provenance=writers.needs_provenance(files))
        writers.write_results(estimates, files, spreadsheet_safe=spreadsheet_safe)
