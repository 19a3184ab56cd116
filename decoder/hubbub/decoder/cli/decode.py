"""`hubbub-decoder decode`: the options, and what each of them means.

Only what --help needs is imported here; the work is in `hubbub.decoder.pipeline`.
"""

from __future__ import annotations

from typing import Any

import click

from hubbub.decoder.cli import shared
from hubbub.decoder.options import (
    ESTIMANDS,
    METHODS,
    DecodeOptions,
    by_field,
    check_options,
    where_of,
)
from hubbub.reporting.command_line import Day, cli_errors


@click.command(
    cls=shared.WithHeadings,
    headings={
        "Files instead of a store": "reports counts params map",
        "Open strings": "extend corpus alphabet",
        "Errors and tests": "correction estimand reports_per_client min_reports",
        "What is shown": "detected_only rows spreadsheet_safe",
        "Where work is done": "engine master",
    },
)
@click.argument("metric", required=False)
@shared.metrics
@shared.store
@click.option(
    "--candidates",
    multiple=True,
    metavar="FILE",
    help="Strings to look for: a UTF-8 file with one per line, or a Parquet file's column; for "
    "several files, a folder or a pattern such as 'lists/*.gz'; s3://BUCKET/PATH and so on; - for "
    "standard input. For a joint metric, FIELD=FILE for each field of strings.",
)
@click.option(
    "--since",
    type=Day(),
    metavar="DAY",
    help="First UTC day, such as 2026-11-01.",
)
@click.option("--until", type=Day(), metavar="DAY", help="Last UTC day, inclusive.")
@shared.where
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
    help="regression: least squares on bit counts; likelihood: whole reports, which takes longer "
    "and finds more; auto: likelihood if it is worth the time.",
)
@shared.alpha
@shared.output
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
@shared.correction
@click.option(
    "--estimand",
    default="population",
    show_default=True,
    type=click.Choice(ESTIMANDS),
    help="What errors and intervals refer to: shares in the population that the reports come "
    "from, or in these reports alone.",
)
@shared.reports_per_client
@shared.min_reports("Refuse to decode fewer reports than this; with --by, on any day.")
@click.option(
    "--detected-only",
    is_flag=True,
    help="Leave out what isn't detected.",
)
@shared.rows
@shared.spreadsheet_safe
@shared.engine
@shared.master
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
        from hubbub.decoder.pipeline import OnTerminal
        from hubbub.decoder.pipeline import decode as decode_options
        from hubbub.inference.parallel import one_thread
        from hubbub.reporting.formats import writers

        writers.check_output_option(files)
        # Last digits depend on how many threads linear algebra takes; results must not.
        with one_thread():
            stated = writers.needs_provenance(files)
            found = decode_options(chosen, OnTerminal(), provenance=stated)
            writers.write_results(found, files, spreadsheet_safe=safe)
