"""`hubbub-decoder decode` and `compare`: the options, what they mean, and where results go.

Only what --help needs is imported at once; the work is in `hubbub.decoder.pipeline` and
`comparing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hubbub.decoder.options import (
    CORRECTIONS,
    ENGINES,
    ESTIMANDS,
    LOCAL,
    METHODS,
    MIN_REPORTS,
    MIN_REPORTS_VARIABLE,
    STORE,
    DecodeOptions,
    by_field,
    check_options,
    where_of,
)
from hubbub.reporting import Day, WithHeadings, cli_errors

_Command = TypeVar("_Command", bound=Callable[..., Any])

_metrics = click.option(
    "--metrics", metavar="FILE", help="The registry, metrics.toml; METRIC needs it."
)
_store = click.option(
    "--store",
    metavar="URL",
    help=f"The collector's database, or parquet:DIR for an export, also "
    f"parquet:s3://BUCKET/PATH and so on.  [default: {STORE}]",
)
_where = click.option(
    "--where",
    multiple=True,
    metavar="DIMENSION=VALUE",
    help="Only reports with this value of a dimension, such as platform=mac. May be repeated: any "
    "of the values of one dimension; all dimensions must match.",
)
_alpha = click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Error rate of detections.",
)
_correction = click.option(
    "--correction",
    default="bh",
    show_default=True,
    type=click.Choice(CORRECTIONS),
    help="What alpha bounds. bh: the share of false names among those detected; bonferroni: the "
    "chance of even one.",
)
_engine = click.option(
    "--engine",
    default=LOCAL,
    show_default=True,
    type=click.Choice(ENGINES),
    help="Where the heavy work is done: threads on this machine, or workers of Dask, which must "
    "see the same files.",
)
_master = click.option(
    "--master",
    metavar="URL",
    help="Dask's scheduler, such as tcp://HOST:8786.  [default: workers on this machine]",
)
_output = click.option(
    "--output",
    "files",
    multiple=True,
    metavar="FILE",
    help="Also write the result to FILE.csv, .json, .parquet, or as a report to FILE.html; - "
    "writes CSV to stdout instead of the table. May be repeated.",
)
_spreadsheet_safe = click.option(
    "--spreadsheet-safe",
    is_flag=True,
    help="In CSV, put ' before strings that a spreadsheet would run as a formula.",
)
_rows = click.option(
    "--rows",
    default=40,
    show_default=True,
    type=click.IntRange(1),
    help="Most rows to show in the terminal's table.",
)
_reports_per_client = click.option(
    "--reports-per-client",
    type=click.FloatRange(1),
    metavar="R",
    help="For an average report, how many of these reports came from its client: the more, the "
    "wider the errors. By default, as many as the daily numbers of reports allow.",
)


def _min_reports(words: str) -> Callable[[_Command], _Command]:
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


def _spare_imports() -> None:
    """Keep SciPy from importing a Fortran compiler's front end, and a framework for tests.

    It takes every name of numpy, and these two are imported when somebody asks for them: a tenth of
    what decoding a short list takes.
    """
    import numpy as np

    vars(np).setdefault("f2py", None)
    vars(np).setdefault("testing", None)


@click.command(
    cls=WithHeadings,
    headings={
        "Files instead of a store": "reports counts params map",
        "Open strings": "extend corpus alphabet",
        "Errors and tests": "correction estimand reports_per_client min_reports",
        "What is shown": "detected_only rows spreadsheet_safe",
        "Where work is done": "engine master",
    },
)
@click.argument("metric", required=False)
@_metrics
@_store
@click.option(
    "--candidates",
    multiple=True,
    metavar="FILE",
    help="Strings to look for: a UTF-8 file with one per line, or a Parquet file's column; "
    "s3://BUCKET/PATH and so on; - for standard input. For a joint metric, FIELD=FILE for each "
    "field of strings.",
)
@click.option(
    "--since",
    type=Day(),
    metavar="DAY",
    help="First UTC day, such as 2026-11-01.",
)
@click.option("--until", type=Day(), metavar="DAY", help="Last UTC day, inclusive.")
@_where
@click.option(
    "--by",
    metavar="day|DIMENSION",
    help="day: also estimate the detected strings, or all categories, for each day, and mark "
    "where shares changed. A dimension: estimate separately for each of its values.",
)
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(METHODS),
    help="regression: least squares on bit counts, of long lists with what stands out, by a Lasso "
    "if that is much, and tests confirm; likelihood: whole reports, which takes longer and finds "
    "more; auto: likelihood if it is worth the time.",
)
@_alpha
@_output
@click.option(
    "--reports",
    metavar="FILE",
    help="A Parquet file with the columns cohort and bits.",
)
@click.option("--counts", metavar="FILE", help="google/rappor's counts.csv.")
@click.option("--params", metavar="FILE", help="Instead of METRIC: google/rappor's params.csv.")
@click.option(
    "--map",
    metavar="FILE",
    help="Instead of --candidates: google/rappor's map.csv of strings and their bits.",
)
@click.option(
    "--extend",
    default="",
    metavar="PREFIX",
    help="Look only for strings that begin with PREFIX, but more closely.",
)
@click.option(
    "--corpus",
    metavar="FILE",
    help="A list of public strings similar to the clients', one per line. The "
    "search learns from them which letters are likely; they aren't candidates.",
)
@click.option(
    "--alphabet",
    default="",
    metavar="CHARACTERS",
    help="The characters of most strings, if known, such as 0123456789abcdef.",
)
@_correction
@click.option(
    "--estimand",
    default="population",
    show_default=True,
    type=click.Choice(ESTIMANDS),
    help="What errors and intervals refer to: shares in the population that the reports come "
    "from, or in these reports alone.",
)
@_reports_per_client
@_min_reports("Refuse to decode fewer reports than this; with --by, on any day.")
@click.option(
    "--detected-only",
    is_flag=True,
    help="Leave out what isn't detected.",
)
@_rows
@_spreadsheet_safe
@_engine
@_master
def decode(**options: Any) -> None:
    """Decode reports against a list of candidate strings.

    Reports come in one of three ways:

    \b
      METRIC --metrics FILE [--store URL --since DAY --until DAY]
          what a collector stored
      --reports FILE, with METRIC --metrics FILE or with --params FILE
          a Parquet file; bit j is bit j%8 of byte j//8
      --counts FILE --params FILE
          google/rappor's sums: one row per cohort, with its number of reports and one sum per bit

    Candidates are either a list, which is hashed as in hubbub's clients (--candidates), or
    google/rappor's map of strings and their bits, with whatever hash made it (--map). --counts
    needs a map. CSV files may be .csv.gz.

    Each candidate gets an unbiased count with a 95% confidence interval, a p-value against "this
    string is absent", and a q-value that accounts for the number of candidates. Reports of strings
    that aren't candidates are summed up as unknown mass.

    Metrics of type enum, boolean and ordinal take no candidates, because the registry lists their
    values; a value is "detected" if the reports show that somebody has it. Metrics of type number
    take none either: the result is their mean, and their variance if the metric asks for it.
    Metrics of type open-string need none, because their strings are found prefix by prefix;
    --candidates adds strings to test in any case.
    """
    with cli_errors():
        options["candidates"] = by_field("candidates", options["candidates"])
        options["where"] = where_of(options["where"])
        files, safe = options.pop("files"), options.pop("spreadsheet_safe")
        chosen = DecodeOptions(**options)
        check_options(chosen)
        # Imported here, so that --help and mistakes wait for no numerical library.
        _spare_imports()
        from hubbub.decoder.pipeline import OnTerminal, decode as decode_options
        from hubbub.inference import one_thread
        from hubbub.reporting import writers

        writers.check_output_option(files)
        # Last digits depend on how many threads linear algebra takes; results must not.
        with one_thread():
            stated = writers.needs_provenance(files)
            found = decode_options(chosen, OnTerminal(), provenance=stated)
            writers.write_results(found, files, spreadsheet_safe=safe)


@click.command()
@click.argument("metric")
@_metrics
@_store
@click.option(
    "--control",
    required=True,
    metavar="GROUP",
    help="The group to compare with: UTC days of --store, as FIRST..LAST; a DIMENSION=VALUE of "
    "the app, such as arm=control; another store's URL; or several of these in the order "
    "URL@arm=control@FIRST..LAST.",
)
@click.option(
    "--treatment",
    required=True,
    metavar="GROUP",
    help="The group to compare, given in the same way.",
)
@click.option(
    "--candidates",
    metavar="FILE",
    help="For strings: the list to look for, one per line, as for decode.",
)
@_where
@_alpha
@_correction
@_engine
@_master
@_output
@_spreadsheet_safe
@_rows
@_min_reports("Refuse to compare a group with fewer reports than this.")
@_reports_per_client
@click.option(
    "--sample-ratio",
    type=click.FloatRange(0, min_open=True),
    metavar="R",
    help="How many clients were assigned to the treatment for each one in the control, such as 1; "
    "warns if the groups' sizes don't fit.",
)
@click.option(
    "--sequential",
    is_flag=True,
    help="Allow any number of looks while reports come in, and stopping at any time: intervals "
    "are wider and q-values larger, and they hold for all looks together.",
)
def compare(control: str, treatment: str, sample_ratio: float | None, **options: Any) -> None:
    """Compare two groups of reports: two periods, two releases, two arms.

    For every category, every mean, or every string detected in the two groups together, this shows
    both shares, their difference and ratio with 95% intervals, and whether the groups differ, at a
    controlled false discovery rate.

    \b
      hubbub-decoder compare homepage --metrics metrics.toml --candidates urls.txt \\
          --control 2026-11-01..2026-11-07 --treatment 2026-11-08..2026-11-14

    \b
      hubbub-decoder compare crash --metrics metrics.toml \\
          --control arm=control --treatment arm=new-cache

    This works best for groups of different clients, such as the arms of an experiment. You can also
    compare two periods of the same clients, but the intervals are then wider than they need to be.
    """
    with cli_errors():
        files, safe = options.pop("files"), options.pop("spreadsheet_safe")
        options["where"] = where_of(options["where"])
        chosen = DecodeOptions(**options, method="regression")
        check_options(chosen)
        _spare_imports()
        from hubbub.decoder import comparing
        from hubbub.decoder.pipeline import OnTerminal
        from hubbub.inference import one_thread
        from hubbub.reporting import writers

        writers.check_output_option(files)
        groups = comparing.CompareOptions(control, treatment, chosen, sample_ratio)
        with one_thread():  # as `decode`
            stated = writers.needs_provenance(files)
            found = comparing.compare(groups, OnTerminal(), provenance=stated)
            writers.write_results(found, files, spreadsheet_safe=safe)
