"""`hubbub-decoder watch`: the options, and how often its work is done."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import time
from pathlib import Path

import click

from hubbub.reporting import Day, cli_errors

_NEWS = 3
"""Exit code; 1 and 2 are errors."""
_FIRST = dt.date(2000, 1, 1)
"""Before which no report was sent."""
_RETRY = 900.0
"""Seconds: a store that is away for a restart is back by then."""


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--once", is_flag=True, help="Make what is due, then exit; for timers and CI.")
@click.option(
    "--until",
    type=Day(),
    metavar="DAY",
    help="With --once: the last UTC day that gets a result.  [default: yesterday, once it is due]",
)
def watch(file: str, once: bool, until: dt.date | None) -> None:
    """Keep a standing report up to date.

    FILE (decode.toml) says which metrics to report, and which webhooks to notify. Each report gets
    one result a day, kept as a web page and as Parquet with its provenance. Next to them is
    index.html, with a tile for each report. Existing results are never
    made again; missed days are made up for.

    New findings at the file's `level` or above are printed and posted to its webhooks.

    \b
    Exit codes of --once:
      0  all results exist, and neither the newest nor those just made have news
      3  all results exist, and some of those have news
      1  a result couldn't be made or a webhook didn't accept it; the next run tries again
    """
    if until is not None and not once:
        raise click.UsageError("--until needs --once.")
    from hubbub.protocol import HubbubError

    if once:
        with cli_errors():
            code, _ = _run(Path(file), until)
        sys.exit(code)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # results are whole at every moment
    with cli_errors():  # a file that can't work ends it at once; later faults pass, or are mended
        code, wait = _run(Path(file), until)
    while True:
        time.sleep(min(wait, _RETRY) if code == 1 else wait)
        try:
            code, wait = _run(Path(file), until)
        except (HubbubError, OSError) as error:
            click.echo(f"Error: {error}", err=True)
            code, wait = 1, _RETRY


def _run(file: Path, until: dt.date | None) -> tuple[int, float]:
    """Do what is due; return the exit code, and the seconds until more is."""
    from hubbub.decoder.watching import running
    from hubbub.decoder.watching.index import write_overview
    from hubbub.decoder.watching.news import post_news
    from hubbub.decoder.watching.options import load_watch
    from hubbub.decoder.watching.results import INDEX, Result, reports_in
    from hubbub.protocol import Option, OptionError, counted
    from hubbub.reporting import Level

    watch = load_watch(file)
    due = running.last_day(watch, dt.datetime.now(dt.UTC))
    until = until or due
    if not _FIRST <= until <= due:  # results of days that go on would be of a part of them
        raise OptionError(Option("until", until), f": must be from {_FIRST} to {due}.")
    levels: list[Level] = []
    days: list[dt.date] = []

    def made(result: Result) -> None:
        days.append(result.day)
        for each in result.news:
            if each.level >= watch.level:
                levels.append(each.level)
                click.echo(f"{result.title}, {result.day}: {each.labelled}")

    def note(text: str) -> None:
        click.echo(f"note: {text}", err=True)

    with running.exclusive_lock(watch.output):
        faults = running.make_due(watch, until, made, note)
        failed = [f"{each.report} {each.day}: {each.error}" for each in faults]
        for text in failed:
            click.echo(f"Error: {text}", err=True)
        if not failed and not reports_in(watch.output, [each.name for each in watch.reports]):
            due_at = running.next_time(watch, dt.datetime.now(dt.UTC))
            note(
                f"no results yet: no report is of a day up to {until}, the last that is due; the "
                f"next day is due at {due_at:%Y-%m-%d %H:%M} UTC"
            )
            for name in dict.fromkeys(each.metric for each in watch.reports):
                if expected := running.expected_reports(watch, watch.registry[name]):
                    note(expected)
        if days:
            text = f"{counted(len(days), 'result')} made, up to {max(days)}"
            click.echo(f"{text}; {len(levels) or 'no'} news; see {watch.output / INDEX}")
        later = write_overview(watch, until, faults) + post_news(watch, until)
        for text in later:
            click.echo(f"Error: {text}", err=True)
        news = max([running.worst_news(watch, until), *levels])
    code = 1 if failed or later else _NEWS if news >= watch.level else 0
    now = dt.datetime.now(dt.UTC)
    return code, (running.next_time(watch, now) - now).total_seconds()
