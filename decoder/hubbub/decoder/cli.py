"""The command `hubbub-decoder`."""

from __future__ import annotations

import asyncio
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
from hubbub.decoder.candidates import read_candidates
from hubbub.decoder.decoding import decode as decode_counts
from hubbub.decoder.errors import DecoderError, UndecodableError
from hubbub.decoder.loading import load_counts
from hubbub.decoder.multiple_testing import Correction
from hubbub.decoder.progress import progress_bar

_DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Find which strings noisy reports speak of, and how often."""


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


def _string_metric(entry: Metric) -> Metric:
    """Refuse other types: their bits aren't hashes, so candidates would be looked for in vain."""
    if not isinstance(entry.kind, StringKind):
        raise UndecodableError(
            f"metrics.{entry.name}.type = {entry.kind.name!r}: must be 'string' to be decoded; "
            "reports of the other types are collected, but not decoded yet"
        )
    return entry


@main.command()
@click.argument("metric")
@click.option("--metrics", required=True, metavar="FILE", help="The registry, metrics.toml.")
@click.option(
    "--store",
    default="sqlite:///hubbub.db",
    show_default=True,
    metavar="URL",
    help="The collector's database.",
)
@click.option(
    "--candidates",
    required=True,
    metavar="FILE",
    help="Strings to look for, one a line, UTF-8; - reads standard input.",
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
def decode(
    metric: str,
    metrics: str,
    store: str,
    candidates: str,
    since: dt.datetime | None,
    until: dt.datetime | None,
    alpha: float,
    correction: str,
    detected_only: bool,
    output: str | None,
    rows: int,
) -> None:
    """Decode the stored reports of METRIC against a list of candidate strings.

    Each candidate gets an unbiased count with a 95% confidence interval, a p-value against "this
    string is absent", and a q-value that accounts for the number of candidates. Reports whose
    string no candidate names are summed up as unknown mass.
    """
    try:
        entry = _string_metric(Registry.load(metrics)[metric])
        listed = read_candidates(candidates)
        if listed.repeats:
            click.echo(f"note: {listed.repeats:,} repeated candidates left out", err=True)
        days = (since.date() if since else None, until.date() if until else None)
        with progress_bar("counting reports") as bar:
            counts = asyncio.run(load_counts(store, entry, *days, progress=bar))
        decoding = decode_counts(
            counts,
            entry.params,
            listed.strings,
            alpha=alpha,
            correction=Correction(correction),
        )
        if output == "-":
            sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
            sys.stdout.write(results.to_csv(decoding, detected_only=detected_only))
            return
        if output:
            results.write(decoding, output, detected_only=detected_only)
    except (HubbubError, StoreError, DecoderError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or "standard output"
        raise click.ClickException(f"{where}: {error.strerror}") from error
    console = results.stdout_console()
    results.print_table(decoding, console, detected_only=detected_only, limit=rows)
