"""The command `hubbub-decoder`."""

from __future__ import annotations

import datetime as dt
import math
import sys
from pathlib import Path

import click

from hubbub.client.errors import HubbubError
from hubbub.client.kinds import StringKind
from hubbub.client.metrics import Metric, Registry
from hubbub.collector.errors import StoreError
from hubbub.decoder import output as results
from hubbub.decoder.categories_command import Wanted, refuse_candidates, show_categories
from hubbub.decoder.decoding import decode as decode_counts
from hubbub.decoder.errors import DecoderError
from hubbub.decoder.inputs import (
    Input,
    Listed,
    counted_reports,
    list_candidates,
    metric_of,
    reports_file,
    stored_reports,
)
from hubbub.decoder.multiple_testing import Correction
from hubbub.decoder.progress import progress_bar
from hubbub.decoder.rappor_csv import read_params
from hubbub.decoder.release import MIN_REPORTS
from hubbub.decoder.usage import Given, check_candidates, check_reports

_STORE = "sqlite:///hubbub.db"
_DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Find what noisy reports speak of, and how often."""


def _check_output(
    _context: click.Context, _option: click.Parameter, path: str | None
) -> str | None:
    """Refuse a bad file name before the work, not after it."""
    if path is None or path == "-" or Path(path).suffix in {".csv", ".json"}:
        return path
    raise click.BadParameter(f"{path!r} must end in .csv or .json, or be - for CSV on stdout")


def _check_alpha(_context: click.Context, _option: click.Parameter, alpha: float) -> float:
    """Refuse nan, which every comparison of the range lets pass."""
    if math.isnan(alpha):
        raise click.BadParameter("nan is not in the range 0<x<1.")
    return alpha


def _read(given: Given, entry: Metric | None, min_reports: int) -> tuple[Input, Listed]:
    """Read candidates, then reports: the mistakes that are quickly told come first."""
    params = entry.params if entry else read_params(Path(given.params or ""))
    listed = list_candidates(given.candidates, given.map, params)
    for note in listed.notes:
        click.echo(f"note: {note}", err=True)
    if not entry:
        return counted_reports(given.counts or "", params, min_reports=min_reports), listed
    return _reports(given, entry, min_reports), listed


def _reports(given: Given, entry: Metric, min_reports: int) -> Input:
    with progress_bar("counting reports") as bar:
        if given.reports is not None:
            return reports_file(given.reports, entry, min_reports=min_reports, progress=bar)
        days = (_date(given.since), _date(given.until))
        store = given.store or _STORE
        return stored_reports(store, entry, *days, min_reports=min_reports, progress=bar)


def _metric(given: Given) -> Metric | None:
    """Return the metric whose reports are decoded; None if there are only counts."""
    if given.metric is not None:
        return Registry.load(given.metrics or "")[given.metric]
    return metric_of(given.params or "") if given.reports is not None else None


def _date(moment: dt.datetime | None) -> dt.date | None:
    return moment.date() if moment else None


@main.command()
@click.argument("metric", required=False)
@click.option("--metrics", metavar="FILE", help="The registry, metrics.toml; METRIC needs it.")
@click.option(
    "--store",
    metavar="URL",
    help=f"The collector's database, or parquet:DIR for an export.  [default: {_STORE}]",
)
@click.option(
    "--reports", metavar="FILE", help="Parquet with the columns cohort and bits, not a store."
)
@click.option("--counts", metavar="FILE", help="google/rappor's counts.csv, not a store.")
@click.option("--params", metavar="FILE", help="google/rappor's params.csv, not METRIC.")
@click.option(
    "--candidates",
    metavar="FILE",
    help="Strings to look for, one a line, UTF-8; - reads standard input.",
)
@click.option(
    "--map",
    "map_",
    metavar="FILE",
    help="google/rappor's map.csv, not --candidates: strings and their bits.",
)
@click.option("--since", type=_DAY, metavar="DAY", help="First UTC day, such as 2026-11-01.")
@click.option("--until", type=_DAY, metavar="DAY", help="Last UTC day, included.")
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    callback=_check_alpha,
    help="Error rate of what is called detected.",
)
@click.option(
    "--correction",
    default=Correction.BH.value,
    show_default=True,
    type=click.Choice([c.value for c in Correction]),
    help="bh: share of false names among the detected; bonferroni: chance of even one.",
)
@click.option("--detected-only", is_flag=True, help="Leave out what isn't detected.")
@click.option(
    "--output",
    callback=_check_output,
    metavar="FILE",
    help="Also write a row a candidate to FILE.csv or FILE.json; - writes CSV to stdout instead "
    "of the table.",
)
@click.option(
    "--rows",
    default=40,
    show_default=True,
    type=click.IntRange(1),
    help="Most rows to show in the terminal's table.",
)
@click.option(
    "--min-reports",
    default=MIN_REPORTS,
    show_default=True,
    envvar="HUBBUB_MIN_REPORTS",
    show_envvar=True,
    type=click.IntRange(1),
    help="Refuse to decode fewer reports than this.",
)
def decode(
    metric: str | None,
    metrics: str | None,
    store: str | None,
    reports: str | None,
    counts: str | None,
    params: str | None,
    candidates: str | None,
    map_: str | None,
    since: dt.datetime | None,
    until: dt.datetime | None,
    alpha: float,
    correction: str,
    detected_only: bool,
    output: str | None,
    rows: int,
    min_reports: int,
) -> None:
    """Decode reports against a list of candidate strings.

    Reports come in one of three ways:

    \b
      METRIC --metrics FILE [--store URL] [--since DAY] [--until DAY]
          what a collector stored
      --reports FILE, with METRIC --metrics FILE or with --params FILE
          a Parquet file; bit j is bit j%8 of byte j//8
      --counts FILE --params FILE
          google/rappor's sums: a row a cohort of its reports, then a column a bit

    Candidates are a list, hashed as hubbub's clients do (--candidates), or google/rappor's map of
    strings and their bits, by whatever hash (--map); counts need a map. CSV files may be .csv.gz.

    Each candidate gets an unbiased count with a 95% confidence interval, a p-value against "this
    string is absent", and a q-value that accounts for the number of candidates. Reports whose
    string no candidate names are summed up as unknown mass.

    Metrics of type enum, boolean and ordinal take no candidates: the registry lists their values.
    "Detected" are those that somebody has.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    given = Given(metric, metrics, store, reports, counts, params, candidates, map_, since, until)
    check_reports(given)
    if given.metric is None or given.names("candidates", "map"):
        check_candidates(given)
    try:
        entry = _metric(given)
        if entry and not isinstance(entry.kind, StringKind):
            refuse_candidates(entry, given)
            wanted = Wanted(alpha, Correction(correction), detected_only, output, rows)
            show_categories(entry, _reports(given, entry, min_reports), wanted)
            return
        check_candidates(given)
        taken, listed = _read(given, entry, min_reports)
        decoding = decode_counts(
            taken.counts,
            taken.params,
            listed.candidates,
            alpha=alpha,
            correction=Correction(correction),
        )
        if output == "-":
            sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
            sys.stdout.write(results.to_csv(decoding, detected_only=detected_only))
            if taken.findings and taken.findings.suspicious:
                click.echo(
                    "warning: some reports don't look honest; run without --output - for more",
                    err=True,
                )
            return
        if output:
            results.write(decoding, output, detected_only=detected_only, findings=taken.findings)
    except (HubbubError, StoreError, DecoderError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or "standard output"
        raise click.ClickException(f"{where}: {error.strerror}") from error
    console = results.stdout_console()
    results.print_table(
        decoding, console, detected_only=detected_only, limit=rows, findings=taken.findings
    )
