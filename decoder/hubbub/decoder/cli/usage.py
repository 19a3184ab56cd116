"""What the options of `decode` say, and which of them belong together.

Reports come in three ways: METRIC in a store, a file of reports, or a file of counts. Every
combination that would leave something out, or silently ignore what was said, is a usage error.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import click

from hubbub.decoder.output.files import refuse_unwritable


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of the input; None where it says nothing.

    Attributes
    ----------
    metric, metrics : str, optional
        The argument METRIC, and the registry's file.
    store, reports, counts : str, optional
        Where reports are, or their counts.
    params : str, optional
        A file of parameters, in place of METRIC.
    candidates, map : str, optional
        Which strings to look for.
    since, until : datetime.datetime, optional
    """

    metric: str | None = None
    metrics: str | None = None
    store: str | None = None
    reports: str | None = None
    counts: str | None = None
    params: str | None = None
    candidates: str | None = None
    map: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def names(self, *fields: str) -> list[str]:
        """Return those of some fields that were given, as a person wrote them."""
        return [
            "METRIC" if field == "metric" else f"--{field}"
            for field in fields
            if getattr(self, field) is not None
        ]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says is to be done with the input; see its --help.

    Attributes
    ----------
    alpha : float
    correction : str
        A value of `hubbub.decoder.inference.multiple_testing.Correction`.
    detected_only : bool
    outputs : tuple of str
        Files, and "-" for CSV on standard output.
    rows, min_reports : int
    by : str, optional
        "day" for a result a day.
    candidate_cache : str, optional
        A folder of hashed candidates.
    method : str
        A value of `hubbub.decoder.cli.method.Method`.
    """

    alpha: float
    correction: str
    detected_only: bool
    outputs: tuple[str, ...]
    rows: int
    min_reports: int
    by: str | None = None
    candidate_cache: str | None = None
    method: str = "auto"


def check_wanted(given: Given, wanted: Wanted) -> None:
    """Refuse results that can't be made of the input, and files that can't be written.

    Raises
    ------
    click.UsageError
    OSError
        If a file could not be made where it is wanted.
    """
    if wanted.by is not None:
        for name in given.names("reports", "counts"):
            raise click.UsageError(f"--by {wanted.by} needs days, which a store has; {name} hasn't")
    if wanted.method == "likelihood" and (given.counts is not None or wanted.by is not None):
        what = "--counts has only their sums" if given.counts is not None else "--by takes counts"
        raise click.UsageError(f"--method likelihood needs whole reports; {what}.")
    if wanted.candidate_cache is not None and given.candidates is None:
        raise click.UsageError("--candidate-cache belongs to --candidates; nothing else is hashed.")
    try:
        refuse_unwritable(wanted.outputs)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--output'") from error


def check_reports(given: Given) -> None:
    """Refuse options that don't say, or contradict each other about, what is decoded.

    Raises
    ------
    click.UsageError
    """
    _at_most_one(given, "metric", "params", why="each says how reports were made")
    _at_most_one(given, "store", "reports", "counts", why="each says where reports are")
    _at_most_one(given, "metric", "counts", why="counts come with --params")
    if given.metric is None and given.params is None:
        if given.counts is None:
            raise click.UsageError("Missing argument 'METRIC' (or option '--params').")
        raise click.UsageError("Missing option '--params': --counts needs it.")
    if given.metric is not None and given.metrics is None:
        raise click.UsageError("Missing option '--metrics': the registry that METRIC stands in.")
    if given.params is not None:
        if given.reports is None and given.counts is None:
            raise click.UsageError("Missing option '--counts' or '--reports': --params needs one.")
        _only_with_metric(given, "metrics")
    if given.since and given.until and given.since > given.until:
        raise click.UsageError(
            f"--since {given.since:%Y-%m-%d} is after --until {given.until:%Y-%m-%d}."
        )
    if given.reports is not None or given.counts is not None:
        _only_with_store(given, "since", "until")


def check_candidates(given: Given) -> None:
    """Refuse options that don't say which strings to look for.

    Raises
    ------
    click.UsageError
    """
    _at_most_one(given, "candidates", "map", why="each says which strings to look for")
    if given.counts is not None and given.map is None:
        why = "--counts needs it; their strings were hashed in another way than --candidates are"
        raise click.UsageError(f"Missing option '--map': {why}.")
    if given.candidates is None and given.map is None:
        raise click.UsageError("Missing option '--candidates' (or '--map').")


def _at_most_one(given: Given, *fields: str, why: str) -> None:
    names = given.names(*fields)
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other: {why}.")


def _only_with_metric(given: Given, *fields: str) -> None:
    for name in given.names(*fields):
        raise click.UsageError(f"{name} belongs to METRIC; --params takes its place.")


def _only_with_store(given: Given, *fields: str) -> None:
    where = " or ".join(given.names("reports", "counts"))
    for name in given.names(*fields):
        raise click.UsageError(f"{name} chooses days in a store; {where} is decoded whole.")
