"""`hubbub-decoder decode`: the options, and what each of them means.

Only what --help needs is imported here; the work is in `hubbub.decoder.pipeline`.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from hubbub.decoder.cli import shared
from hubbub.decoder.options import (
    DecodeOptions,
    by_field,
    check_options,
    where_of,
)
from hubbub.reporting.command_line import cli_errors

if TYPE_CHECKING:
    from hubbub.reporting.estimates import Estimates

_DAY = click.DateTime(formats=["%Y-%m-%d"])


def _without_time(
    _context: click.Context, _option: click.Parameter, moment: dt.datetime | None
) -> dt.date | None:
    return moment and moment.date()


@click.command()
@click.argument("metric", required=False)
@shared.metrics
@shared.store
@click.option(
    "--reports",
    metavar="FILE",
    help="Instead of a store: a Parquet file with the columns cohort and bits.",
)
@click.option("--counts", metavar="FILE", help="Instead of a store: google/rappor's counts.csv.")
@click.option("--params", metavar="FILE", help="Instead of METRIC: google/rappor's params.csv.")
@click.option(
    "--candidates",
    multiple=True,
    metavar="FILE",
    help="Strings to look for, one per line, UTF-8, or a Parquet file's column; several files as a "
    "folder or a pattern, such as 'lists/*.gz'; also s3://BUCKET/PATH and so on; - reads standard "
    "input. Of a joint metric "
    "FIELD=FILE, for each field of strings.",
)
@click.option(
    "--map",
    multiple=True,
    metavar="FILE",
    help="Instead of --candidates: google/rappor's map.csv of strings and their bits. With "
    "--schema VARIABLE=FILE, for each variable of strings.",
)
@click.option(
    "--schema",
    metavar="FILE",
    help="Instead of --metrics: google/rappor's rappor-vars.csv of variables that --reports has "
    "side by side.",
)
@click.option(
    "--extend",
    default="",
    metavar="PREFIX",
    help="For open strings: look only for strings that begin with PREFIX, and more closely.",
)
@click.option(
    "--corpus",
    metavar="FILE",
    help="For open strings: public strings, one per line, like those of clients. The search learns "
    "letters from them; they aren't candidates.",
)
@click.option(
    "--blend",
    metavar="FILE",
    help="For strings: blend with an opted-in group's counts, the JSON of a hubbub-release "
    "histogram. Both groups must come from the same population.",
)
@click.option(
    "--candidate-cache",
    metavar="DIR",
    help="Keep hashed candidates here, for the next time with the same list.",
)
@click.option(
    "--since",
    type=_DAY,
    callback=_without_time,
    metavar="DAY",
    help="First UTC day, such as 2026-11-01.",
)
@click.option(
    "--until", type=_DAY, callback=_without_time, metavar="DAY", help="Last UTC day, included."
)
@click.option(
    "--by",
    metavar="day|DIMENSION",
    help="day: also estimate the detected strings, or all categories, day by day, and mark where "
    "shares changed. A dimension: estimate each of its values by itself.",
)
@shared.where
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "likelihood", "regression"]),
    help="regression: least squares on bit counts; likelihood: whole reports, which takes longer "
    "and finds more; auto: likelihood if it is worth the time.",
)
@shared.alpha
@shared.correction
@shared.engine
@shared.master
@click.option(
    "--detected-only",
    is_flag=True,
    help="Leave out what isn't detected. With --method regression, or --candidates in several "
    "files, the list is then screened: it needn't fit in memory.",
)
@shared.output
@shared.spreadsheet_safe
@shared.rows
@shared.min_reports("Refuse to decode fewer reports than this; with --by, on any day.")
@shared.reports_per_client
@click.option(
    "--estimand",
    default="population",
    show_default=True,
    type=click.Choice(["population", "reports"]),
    help="What errors and intervals are about: shares of the population that the reports were "
    "drawn from, or of these reports alone.",
)
def decode(**options: Any) -> None:
    """Decode reports against a list of candidate strings.

    Reports come in one of four ways:

    \b
      METRIC --metrics FILE [--store URL --since DAY --until DAY]
          what a collector stored
      --reports FILE, with METRIC --metrics FILE or with --params FILE
          a Parquet file; bit j is bit j%8 of byte j//8
      --counts FILE --params FILE
          google/rappor's sums: one row per cohort of its reports, then one column per bit
      [METRIC] --schema FILE --reports FILE --map VARIABLE=FILE
          google/rappor's reports of two or three variables, to see what goes together

    Candidates are a list, hashed as hubbub's clients do (--candidates), or google/rappor's map of
    strings and their bits, by whatever hash (--map); counts need a map. CSV files may be .csv.gz.

    Each candidate gets an unbiased count with a 95% confidence interval, a p-value against "this
    string is absent", and a q-value that accounts for the number of candidates. Reports whose
    string no candidate names are summed up as unknown mass.

    If some people opted in to a trusted curator, --blend makes one estimate of their counts and the
    others' reports, and tests whether both groups come from the same population.

    Metrics of type enum, boolean and ordinal take no candidates: the registry lists their values.
    "Detected" are those that somebody has. Those of type number take none either: their mean is
    estimated, and perhaps their variance. Metrics of type open-string need none: their strings are
    found prefix by prefix; --candidates adds strings that are tested in any case.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    shared.check_alpha(options["alpha"])
    with cli_errors():
        for option in ("candidates", "map"):
            options[option] = by_field(option, options[option])
        options["where"] = where_of(options["where"])
        files, safe = options.pop("files"), options.pop("spreadsheet_safe")
        chosen = DecodeOptions.of(options)
        check_options(chosen)

        def decoded(*, provenance: bool) -> Estimates:
            from hubbub.decoder.cli.progress import OnTerminal  # noqa: PLC0415 - see `cli.group`
            from hubbub.decoder.pipeline import decode as decode_options  # noqa: PLC0415

            return decode_options(chosen, OnTerminal(), provenance=provenance)

        shared.write_estimates(decoded, files, spreadsheet_safe=safe)
