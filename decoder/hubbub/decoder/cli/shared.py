"""Options that `decode` and `compare` have in common, and how --help shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from hubbub.decoder.engines import ENGINES, LOCAL
from hubbub.decoder.options import CORRECTIONS, MIN_REPORTS, MIN_REPORTS_VARIABLE, STORE

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
    type=click.Choice(CORRECTIONS),
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


class WithHeadings(click.Command):
    """A command whose --help shows options that few people need last, under headings."""

    def __init__(self, *args: Any, headings: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._headings = headings  # names of options with blanks between them, by heading

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options: those without a heading first."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        shown = {each.name: each.get_help_record(ctx) for each in options}
        below = {title: names.split() for title, names in self._headings.items()}
        later = {name for names in below.values() for name in names}
        first = [name for name in shown if name not in later]
        for title, names in {"Options": first, **below}.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := shown[name])])
