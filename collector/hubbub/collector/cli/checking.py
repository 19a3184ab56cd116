"""The command `check`: a registry's faults all at once, what ends, and what a change means."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hubbub.collector.cli import cli_errors
from hubbub.protocol import Metric, MetricError, Registry, check_compatible
from hubbub.reporting import NOTHING_ASKED, Finding, Level, metric_warning, registry_ends

_FAULT = "fault"
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

    Prints one line per finding. --against adds what the change means: whether a version must be
    raised, what clients spend again, and what happens to stored reports. The exit code is 1 if
    something is wrong or if clients would report nothing. Two things are listed but are not errors:
    metrics that expire within 30 days, and metrics with dimensions that may be reported many times
    a day.
    """
    with cli_errors():
        try:
            registry = Registry.load(metrics)
        except MetricError as error:
            found = [_fault(fault.field, str(fault)) for fault in error.faults]
        else:
            today = dt.datetime.now(dt.UTC).date()
            found = [*registry_ends(registry, today), *_repeats(registry)]
            if against:
                found += changes(Registry.load(against), registry)
    wrong = 0
    for finding in found:
        level = finding.level.name.lower()
        if finding.code in {_FAULT, NOTHING_ASKED} and finding.level > Level.FACT:
            level, wrong = "error", wrong + 1
        text = finding.text.removeprefix(f"{metrics}: ")
        if finding.code != _FAULT:  # which names its field
            text = f"{finding.label}: {text}"
        click.echo(f"{metrics}: {level}: {text}")
    click.echo(f"{metrics}: {f'{wrong} wrong' if wrong else 'in order'}", err=True)
    sys.exit(1 if wrong else 0)


def _fault(field: str, text: str) -> Finding:
    return Finding(_FAULT, field, text, None, Level.WARNING)


def _fact(code: str, metric: Metric, text: str, value: object = None) -> Finding:
    return Finding(code, f"metrics.{metric.name}", text, value)


def _repeats(registry: Registry) -> Iterator[Finding]:
    """Yield metrics with dimensions that a client may report many times a day."""
    for metric in registry.values():
        if metric.dimensions and not (metric.reports_once or metric.reports_per_day):
            text = (
                "has dimensions, and a client may report it many times a day: the "
                f"{metric.min_reports} reports (min_reports) with which a rare combination is "
                "decoded by itself may then be of one client, and such clients count several "
                'times; set reports_per_day = 1, or mode = "once" with a new version'
            )
            yield metric_warning("dimensions_repeated", metric, text, metric.min_reports)


def changes(old: Registry, new: Registry) -> Iterator[Finding]:
    """Yield what a new registry means for clients' accounts and for what is stored.

    `old`: what was in force. `new`: what is to be; faults of the change are findings, too.
    """
    try:
        check_compatible(old, new)
    except MetricError as error:
        yield from (_fault(fault.field, str(fault)) for fault in error.faults)
    for metric in new.values():
        if (before := old.get(metric.name)) is None:
            text = f"is new: a client spends up to {metric.reserve:.6g} on it"
            if metric.memory != "period" and metric.max_answers != 1:
                text += (
                    f", and {metric.price:.6g} for each further value while lifetime_epsilon "
                    "allows it"
                )
            yield _fact("metric_added", metric, text, metric.reserve)
        elif metric.version > before.version:
            yield _new_version(before, metric)
        elif metric.definition != before.definition or metric.version < before.version:
            continue  # a fault
        elif metric != before:
            keys = [key for key in metric._fields if getattr(metric, key) != getattr(before, key)]
            more = metric.reserve - before.reserve
            text = (
                f"{', '.join(keys)} changed: version {metric.version} may stay, what clients spent "
                f"counts, {f'they may spend {more:.6g} more, ' if more > 0 else ''}and stored "
                "reports go on counting"
            )
            if "dimensions" in keys:
                text += "; values that are no longer listed become other, in stored reports, too"
            yield _fact("metric_kept", metric, text, max(more, 0.0))
    for metric in old.values():
        if metric.name not in new:
            text = (
                f"is gone: what clients spent on it stays in their accounts; stored reports of "
                f"version {metric.version} stay until `hubbub-collector delete`, and what old "
                "clients still send is refused, and dropped by them after 13 days"
            )
            yield _fact("metric_removed", metric, text)
    if old.lifetime_epsilon != new.lifetime_epsilon:
        text = f"changed from {old.lifetime_epsilon or 'none'} to {new.lifetime_epsilon or 'none'}"
        yield Finding("lifetime_epsilon", "lifetime_epsilon", text, new.lifetime_epsilon)


def _new_version(before: Metric, metric: Metric) -> Finding:
    """Return what a new version costs, and whether it was needed."""
    if before.memory == metric.memory == "period":
        spent = (
            "clients answer it from their next period on, as long as the periods of all versions "
            f"are at most {metric.max_periods:,} (max_periods), for {metric.price:.6g} each"
        )
    else:
        spent = (
            f"clients answer again, and spend up to {metric.reserve:.6g} again beyond what version "
            f"{before.version} cost them"
        )
    spent += (
        f"; stored reports of version {before.version} stay, and are decoded by themselves with a "
        "registry that has it"
    )
    if metric.definition == before.definition:
        text = f"version {metric.version} asks what version {before.version} did: {spent}"
        return metric_warning("version_unneeded", metric, text, metric.reserve)
    text = f"version {metric.version} was needed: {spent}"
    return _fact("version_raised", metric, text, metric.reserve)
