"""The command `check`: a registry's faults all at once, what ends, and what a change means."""

from __future__ import annotations

import datetime as dt
import sys
import tomllib
from pathlib import Path

import click

from hubbub.collector.cli.group import cli_errors
from hubbub.collector.operations.registry_findings import (
    FAULT,
    changes,
    faults,
    key_lines,
    line_of,
    repeats,
)
from hubbub.protocol.errors import MetricError
from hubbub.protocol.registry import Registry
from hubbub.reporting.findings import NOTHING_ASKED, Finding, Level, registry_ends

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("metrics", type=_FILE, metavar="METRICS")
@click.option("--against", type=_FILE, metavar="OLD", help="The registry that is in force now.")
def check(metrics: Path, against: Path | None) -> None:
    """List what is wrong with a metrics.toml, what expires soon, and what may reveal too much.

    \b
      hubbub-collector check metrics.toml
      git show main:metrics.toml > old.toml
      hubbub-collector check metrics.toml --against old.toml

    Prints one line per finding, with its line in the file. --against adds what the change means:
    whether a version must be raised, what clients spend again, and what happens to stored reports.
    The exit code is 1 if something is wrong or if clients would report nothing. Two things are
    listed but are not errors: metrics that expire within 30 days, and metrics with dimensions that
    may be reported many times a day.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    with cli_errors():
        found = _findings(metrics, against)
    for finding in found:
        level = "error" if _is_wrong(finding) else finding.level.name.lower()
        click.echo(f"{finding.label}: {level}: {finding.text}")
    wrong = sum(map(_is_wrong, found))
    click.echo(f"{metrics}: {f'{wrong} wrong' if wrong else 'in order'}", err=True)
    sys.exit(1 if wrong else 0)


def _findings(metrics: Path, against: Path | None) -> list[Finding]:
    """Return what is found, with the place in the file as labels."""
    try:
        registry = Registry.load(metrics)
    except MetricError as error:
        return faults(error, _toml_text(metrics), str(metrics))
    found = [*registry_ends(registry, dt.datetime.now(dt.UTC).date()), *repeats(registry)]
    if against:
        found += changes(Registry.load(against), registry)
    lines = key_lines(metrics.read_text(encoding="utf-8-sig"))
    placed = [(line_of(finding.label, lines), finding) for finding in found]
    return [_placed(finding, metrics, line) for line, finding in placed]


def _placed(finding: Finding, file: Path, line: int) -> Finding:
    text = finding.text
    if not text.startswith(finding.label):
        text = f"{finding.label}: {text}"
    return finding._replace(label=f"{file}:{line}" if line else str(file), text=text)


def _toml_text(file: Path) -> str | None:
    try:
        text = file.read_text(encoding="utf-8-sig")
        tomllib.loads(text)
    except (OSError, ValueError):
        return None
    return text


def _is_wrong(finding: Finding) -> bool:
    return finding.code in {FAULT, NOTHING_ASKED} and finding.level > Level.FACT
