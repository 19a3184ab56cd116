"""Where reports and candidates are, and which of the ways to say so belong together.

Reports come in four ways: METRIC in a store, a file of reports, a file of counts, or a file of
reports of several variables, which a schema names. Every
combination that would leave something out, or silently ignore what was said, is an `OptionError`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubbub.decoder.engines import LOCAL
from hubbub.decoder.type_decoder import DecodeOptions
from hubbub.protocol.errors import OptionError

STORE = "sqlite:///hubbub.db"
"""Where reports are if nothing else is said."""
MIN_REPORTS = 1_000
"""Fewest reports that are decoded unless the operator says otherwise (docs/poisoning.md).

Each report is private by itself, whoever decodes it; this is a second safeguard: against results
about so few people that they are about somebody, and against taking noise for news.
"""
MIN_REPORTS_VARIABLE = "HUBBUB_MIN_REPORTS"
"""In the environment, how the operator says otherwise."""

CandidateInput = str | tuple[str, ...]
"""A file of strings, or the strings themselves."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The input that the command line, or a caller, names; None where they name none.

    Attributes
    ----------
    metric, metrics : str, optional
        The argument METRIC, and the registry's file.
    store, reports, counts : str, optional
        Where reports are, or their counts.
    params : str, optional
        A file of parameters, in place of METRIC.
    candidates : str or tuple of str or mapping, optional
        Which strings to look for: a file, or the strings themselves; or those of each field.
    map : str or mapping, optional
        A file of strings and their bits, in place of candidates; or those of each variable.
    since, until : datetime.date, optional
        UTC days, both included.
    blend : str, optional
        A release of an opted-in group's counts.
    schema : str, optional
        A file of the variables that the file of reports has, in place of the registry.
    """

    metric: str | None = None
    metrics: str | None = None
    store: str | None = None
    reports: str | None = None
    counts: str | None = None
    params: str | None = None
    candidates: CandidateInput | Mapping[str, CandidateInput] | None = None
    map: str | Mapping[str, str] | None = None
    since: dt.date | None = None
    until: dt.date | None = None
    schema: str | None = None
    blend: str | None = None

    def names(self, *fields: str) -> list[str]:
        """Return those of some fields that were given, as a person wrote them."""
        return [
            "METRIC" if field == "metric" else f"--{field}"
            for field in fields
            if getattr(self, field) is not None
        ]


def by_field(option: str, texts: Sequence[str]) -> str | dict[str, str] | None:
    """Return the file that an option names, or the files of several fields: FIELD=FILE, repeated.

    Of several files the last one counts, as of other options.

    Raises
    ------
    OptionError
        If only some are FIELD=FILE, or not for different fields.
    """
    if not texts:
        return None
    if not any(map(_is_pair, texts)):
        return texts[-1]
    pairs = [text.partition("=") for text in texts]
    for (field, equal, file), text in zip(pairs, texts, strict=True):
        if not (field and equal and file):
            raise OptionError(f"{option} {text}: must be FIELD=FILE, as the others are.")
    found = {field: file for field, _, file in pairs}
    if len(found) < len(texts):
        raise OptionError(f"{option}: must name a file for each field only once.")
    return found


def _is_pair(text: str) -> bool:
    """Say whether it is FIELD=FILE and no file or address with an equals sign in its name."""
    field, equal, _ = text.partition("=")
    return bool(equal) and "://" not in field and not Path(text).exists()


def check_outputs(inputs: InputOptions, outputs: DecodeOptions) -> None:
    """Raise OptionError for results that can't be made of the input."""
    if inputs.schema is not None:
        if outputs.method == "regression":
            why = "bits of several variables say nothing together once they are counted"
            raise OptionError(f"--method regression can't be had with --schema: {why}.")
        if outputs.extend:
            raise OptionError("--extend: must be left out; --schema says what reports hold.")
    if outputs.by is not None:
        if inputs.blend is not None:
            raise OptionError("--blend: must be left out with --by; a release is of one time.")
        for name in inputs.names("reports", "counts"):
            raise OptionError(f"--by {outputs.by} needs days, which a store has; {name} hasn't")
    if outputs.method == "likelihood" and inputs.counts is not None:
        raise OptionError("--method likelihood needs whole reports; --counts has only their sums.")
    if outputs.engine != LOCAL:
        _check_engine(inputs, outputs)
    elif outputs.master is not None:
        raise OptionError(f"--master {outputs.master} belongs to --engine dask or spark.")
    if outputs.candidate_cache is not None and not isinstance(inputs.candidates, str):
        raise OptionError("--candidate-cache belongs to --candidates FILE; nothing else is kept.")


def _check_engine(inputs: InputOptions, outputs: DecodeOptions) -> None:
    """Raise OptionError for what only this machine can decode."""
    engine = f"--engine {outputs.engine}"
    store = inputs.store or STORE
    if inputs.counts is not None:
        raise OptionError(f"{engine} counts reports; --counts has them counted.")
    if inputs.schema is not None:
        raise OptionError(f"{engine} can't be had with --schema, whose reports aren't Parquet.")
    if inputs.reports is None and not store.startswith("parquet:"):
        raise OptionError(
            f"{engine} reads files, and --store {store.partition(':')[0]}: is a database; export "
            "it first (hubbub-collector export --to DIR), then decode --store parquet:DIR."
        )


def check_reports(inputs: InputOptions) -> None:
    """Raise OptionError if options leave open what is decoded, or contradict each other."""
    if inputs.schema is not None:
        _check_schema(inputs)
        return
    if isinstance(inputs.map, Mapping):
        raise OptionError("--map VARIABLE=FILE belongs to --schema; otherwise it is --map FILE.")
    _at_most_one(inputs, "metric", "params", why="each says how reports were made")
    _at_most_one(inputs, "store", "reports", "counts", why="each says where reports are")
    _at_most_one(inputs, "metric", "counts", why="counts come with --params")
    if inputs.metric is None and inputs.params is None:
        if inputs.counts is None:
            raise OptionError("Missing argument 'METRIC' (or option '--params').")
        raise OptionError("Missing option '--params': --counts needs it.")
    if inputs.metric is not None and inputs.metrics is None:
        raise OptionError("Missing option '--metrics': the registry that METRIC stands in.")
    if inputs.params is not None:
        if inputs.reports is None and inputs.counts is None:
            raise OptionError("Missing option '--counts' or '--reports': --params needs one.")
        if inputs.metrics is not None:
            raise OptionError("--metrics belongs to METRIC; --params takes its place.")
    if inputs.since and inputs.until and inputs.since > inputs.until:
        raise OptionError(f"--since {inputs.since} is after --until {inputs.until}.")
    for where in inputs.names("reports", "counts"):
        for name in inputs.names("since", "until"):
            raise OptionError(f"{name} chooses days in a store; {where} is decoded whole.")


def _check_schema(inputs: InputOptions) -> None:
    """Raise OptionError if options don't go with a schema, or one that it needs is missing."""
    for name in inputs.names("metrics", "store", "counts", "candidates", "since", "until", "blend"):
        raise OptionError(
            f"{name}: must be left out; --schema comes with --reports, and --map VARIABLE=FILE."
        )
    if inputs.reports is None:
        raise OptionError("Missing option '--reports': --schema needs it.")
    if isinstance(inputs.map, str):
        raise OptionError(f"--map {inputs.map}: must be VARIABLE=FILE with --schema.")


def check_candidates(inputs: InputOptions) -> None:
    """Raise OptionError if options leave open which strings to look for."""
    if inputs.schema is not None:
        return  # which variables need a map depends on it
    _at_most_one(inputs, "candidates", "map", why="each says which strings to look for")
    if inputs.counts is not None and inputs.map is None:
        why = "--counts needs it; their strings were hashed in another way than --candidates are"
        raise OptionError(f"Missing option '--map': {why}.")
    if inputs.candidates is None and inputs.map is None:
        raise OptionError("Missing option '--candidates' (or '--map').")


def _at_most_one(inputs: InputOptions, *fields: str, why: str) -> None:
    names = inputs.names(*fields)
    if len(names) > 1:
        raise OptionError(f"{' and '.join(names)} exclude each other: {why}.")
