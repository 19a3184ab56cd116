"""What the options of commands mean, which of them belong together, and how errors are shown.

Reports come in three ways: METRIC in a store, a file of reports, or a file of counts. Every
combination that would leave something out, or silently ignore what was said, is a usage error.
Other errors that a command expects are one line on standard error, and exit code 1.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from hubbub.collector.errors import StoreError
from hubbub.decoder.errors import DecoderError
from hubbub.decoder.formats.files import refuse_places
from hubbub.decoder.type_decoder import OutputOptions
from hubbub.protocol.errors import HubbubError

STORE = "sqlite:///hubbub.db"
"""Where reports are if nothing else is said."""
MIN_REPORTS = 1_000
"""Fewest reports that are decoded unless the operator says otherwise (docs/poisoning.md).

Each report is private by itself, whoever decodes it; this is a second safeguard: against results
about so few people that they are about somebody, and against taking noise for news.
"""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The input that the command line names; None where it names none.

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


def check_outputs(inputs: InputOptions, outputs: OutputOptions) -> None:
    """Raise UsageError for results that can't be made of the input; OSError for files."""
    if outputs.by is not None:
        for name in inputs.names("reports", "counts"):
            raise click.UsageError(
                f"--by {outputs.by} needs days, which a store has; {name} hasn't"
            )
    if outputs.method == "likelihood" and (inputs.counts is not None or outputs.by is not None):
        what = "--counts has only their sums" if inputs.counts is not None else "--by takes counts"
        raise click.UsageError(f"--method likelihood needs whole reports; {what}.")
    if outputs.candidate_cache is not None and inputs.candidates is None:
        raise click.UsageError("--candidate-cache belongs to --candidates; nothing else is hashed.")
    from hubbub.decoder.formats.writers import refuse_unwritable  # noqa: PLC0415 - see `group`

    try:
        refuse_unwritable(outputs.files)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--output'") from error


def check_reports(inputs: InputOptions) -> None:
    """Raise UsageError if options leave open what is decoded, or contradict each other."""
    _at_most_one(inputs, "metric", "params", why="each says how reports were made")
    _at_most_one(inputs, "store", "reports", "counts", why="each says where reports are")
    _at_most_one(inputs, "metric", "counts", why="counts come with --params")
    if inputs.metric is None and inputs.params is None:
        if inputs.counts is None:
            raise click.UsageError("Missing argument 'METRIC' (or option '--params').")
        raise click.UsageError("Missing option '--params': --counts needs it.")
    if inputs.metric is not None and inputs.metrics is None:
        raise click.UsageError("Missing option '--metrics': the registry that METRIC stands in.")
    if inputs.params is not None:
        if inputs.reports is None and inputs.counts is None:
            raise click.UsageError("Missing option '--counts' or '--reports': --params needs one.")
        if inputs.metrics is not None:
            raise click.UsageError("--metrics belongs to METRIC; --params takes its place.")
    if inputs.since and inputs.until and inputs.since > inputs.until:
        raise click.UsageError(
            f"--since {inputs.since:%Y-%m-%d} is after --until {inputs.until:%Y-%m-%d}."
        )
    for where in inputs.names("reports", "counts"):
        for name in inputs.names("since", "until"):
            raise click.UsageError(f"{name} chooses days in a store; {where} is decoded whole.")


def check_candidates(inputs: InputOptions) -> None:
    """Raise UsageError if options leave open which strings to look for."""
    _at_most_one(inputs, "candidates", "map", why="each says which strings to look for")
    if inputs.counts is not None and inputs.map is None:
        why = "--counts needs it; their strings were hashed in another way than --candidates are"
        raise click.UsageError(f"Missing option '--map': {why}.")
    if inputs.candidates is None and inputs.map is None:
        raise click.UsageError("Missing option '--candidates' (or '--map').")


def _at_most_one(inputs: InputOptions, *fields: str, why: str) -> None:
    names = inputs.names(*fields)
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other: {why}.")


def only_files(*suffixes: str) -> Callable[..., tuple[str, ...]]:
    """Return a click callback for files that end in one of the suffixes and can be made."""
    *some, last = suffixes

    def check(
        _context: click.Context, _option: click.Parameter, paths: tuple[str, ...]
    ) -> tuple[str, ...]:
        for path in paths:
            if Path(path).suffix not in suffixes:
                raise click.BadParameter(f"{path!r} must end in {', '.join(some)} or {last}")
        try:
            refuse_places(paths)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        except OSError as error:
            raise click.BadParameter(f"{error.filename}: {error.strerror}") from error
        return paths

    return check


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn what can go wrong on purpose, and failing files, into a message without a traceback."""
    try:
        yield
    except (HubbubError, StoreError, DecoderError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or "standard output"
        raise click.ClickException(f"{where}: {error.strerror}") from error
