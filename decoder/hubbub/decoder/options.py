"""Where reports and candidates are, how they are decoded, and which options belong together.

Reports come in three ways: METRIC in a store, a file of reports, or a file of counts. Every
combination that would leave something out, or silently ignore what was asked for, is an
`OptionError`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.decoder.engines import LOCAL
from hubbub.protocol.errors import Missing, Option, OptionError

STORE = "sqlite:///hubbub.db"
"""Where reports are if no option names a place: what a collector makes by default."""
MIN_REPORTS = 1_000
"""Fewest reports that are decoded unless the operator decides otherwise
(docs/understand/attacks.md).

Each report is private by itself, whoever decodes it; this is a second safeguard: against results
about so few people that they are about somebody, and against taking noise for news.
"""
MIN_REPORTS_VARIABLE = "HUBBUB_MIN_REPORTS"
"""In the environment, how the operator decides otherwise."""

BY_DAY = "day"
"""What `by` is for estimates of each day; no dimension is called so."""

CandidateInput = str | tuple[str, ...]
"""A file of strings, or the strings themselves."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is decoded, and where its reports are; None where nothing is named."""

    metric: str | None = None  # the metric's name, and the registry's file
    metrics: str | None = None
    store: str | None = None  # where reports are, or their counts
    reports: str | None = None
    counts: str | None = None
    params: str | None = None  # a file of parameters, in place of a metric
    since: dt.date | None = None  # UTC days, both included
    until: dt.date | None = None
    # By dimension of the app, the values that reports must have one of.
    where: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class CandidateOptions:
    """Which strings to look for; None where nothing is named."""

    # A file, or the strings themselves; or those of each field.
    candidates: CandidateInput | Mapping[str, CandidateInput] | None = None
    map: str | None = None  # a file of strings and their bits, in place of candidates
    corpus: str | None = None  # a file of public strings that open strings are expected to be like


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """How estimates are made, and which rows they have."""

    alpha: float = 0.05  # error rate of detections
    correction: str = "bh"  # a value of `hubbub.inference.testing.multiple_testing.Correction`
    method: str = "auto"  # a value of `hubbub.inference.likelihood.choice.Method`
    # "day" for estimates of each day, or a dimension for estimates of each of its values.
    by: str | None = None
    extend: str = ""  # of open strings, look only for those that begin so
    alphabet: str = ""  # of open strings, the characters of most of them, if they are known
    detected_only: bool = False  # whether rows of what isn't detected are left out
    rows: int = 40  # most rows that a terminal shows
    min_reports: int = MIN_REPORTS  # fewer reports aren't decoded
    # How many of the reports the client of an average report has sent; None: as many as days allow.
    reports_per_client: float | None = None
    estimand: str = "population"  # a value of `hubbub.inference.repeated_reports.Estimand`
    sequential: bool = False  # whether a comparison may be looked at every day


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where work is done."""

    engine: str = LOCAL  # one of `hubbub.decoder.engines.ENGINES`
    master: str | None = None  # where the engine's scheduler is; None: on this machine


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """All that one decoding is asked for."""

    source: SourceOptions = field(default_factory=SourceOptions)
    candidates: CandidateOptions = field(default_factory=CandidateOptions)
    estimate: EstimateOptions = field(default_factory=EstimateOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DecodeOptions:
        """Return options that are mixed in one mapping, by their names.

        `options`: names that no group has are left out.
        """
        groups = (SourceOptions, CandidateOptions, EstimateOptions, EngineOptions)
        chosen = (
            {name: options[name] for name in group.__dataclass_fields__ if name in options}
            for group in groups
        )
        return cls(*(group(**own) for group, own in zip(groups, chosen, strict=True)))

    def given(self, *names: str) -> list[Option]:
        """Return those of some options of source and candidates that were given.

        `*names`: fields of `SourceOptions` or `CandidateOptions`.
        """
        places = {
            name: group for group in (self.source, self.candidates) for name in group.__slots__
        }
        return [Option(name) for name in names if getattr(places[name], name) is not None]

    @property
    def by_day(self) -> bool:
        """Whether each day is estimated by itself as well."""
        return self.estimate.by == BY_DAY

    @property
    def dimension(self) -> str | None:
        """The dimension by whose values reports are estimated; None: by none."""
        return None if self.by_day else self.estimate.by

    def of_open_strings(self) -> list[Option]:
        """Return those of the options for open strings alone that were given."""
        how = self.estimate
        values = {
            "extend": how.extend, "alphabet": how.alphabet, "corpus": self.candidates.corpus
        }  # fmt: skip
        return [Option(name) for name, value in values.items() if value]


def where_of(texts: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """Return the values of dimensions that options name: DIMENSION=VALUE, repeated.

    `texts`: what was given; of one dimension any of the values is meant. Raises `OptionError` if
    one of them has another form.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise OptionError(Option("where", text), ": must be DIMENSION=VALUE.")
        found[name] = (*found.get(name, ()), value)
    return found or None


def described(where: Mapping[str, tuple[str, ...]]) -> str:
    """Return values of dimensions as people read them: "platform=mac or linux, arm=control"."""
    return ", ".join(f"{name}={' or '.join(values)}" for name, values in where.items())


def by_field(option: str, texts: Sequence[str]) -> str | dict[str, str] | None:
    """Return the file that an option names, or the files of several fields: FIELD=FILE, repeated.

    Of several files the last one counts, as of other options.

    `option`: its name, for messages. `texts`: what was given. Raises `OptionError` if only some are
    FIELD=FILE, or not for different fields.
    """
    if not texts:
        return None
    if not any(map(_is_pair, texts)):
        return texts[-1]
    pairs = [text.partition("=") for text in texts]
    for (field_name, equal, file), text in zip(pairs, texts, strict=True):
        if not (field_name and equal and file):
            raise OptionError(Option(option, text), ": must be FIELD=FILE, as the others are.")
    found = {field_name: file for field_name, _, file in pairs}
    if len(found) < len(texts):
        raise OptionError(Option(option), ": must name a file for each field only once.")
    return found


def _is_pair(text: str) -> bool:
    field_name, equal, _ = text.partition("=")
    return bool(equal) and "://" not in field_name and not Path(text).exists()


def check_options(options: DecodeOptions) -> None:
    """Raise OptionError if options leave open what is decoded and how, or contradict each other.

    Which candidates a metric's type needs is left to the type (`check_candidates`).
    """
    check_source(options)
    if options.source.metric is None or options.given("candidates", "map"):
        check_candidates(options)
    check_estimate(options)


def check_estimate(options: DecodeOptions) -> None:
    """Raise OptionError for estimates that can't be made of the source."""
    source, how, engine = options.source, options.estimate, options.engine
    if how.by is not None:
        for name in options.given("reports", "counts"):
            raise OptionError(
                Option("by", how.by),
                " needs a store, because only stores record days and dimensions; ",
                name,
                " has none.",
            )
    if how.method == "likelihood" and source.counts is not None:
        raise OptionError(
            Option("method", how.method), " needs whole reports; ", Option("counts"),
            " has only their sums.",
        )  # fmt: skip
    if engine.engine != LOCAL:
        _check_engine(source, engine)
    elif engine.master is not None:
        raise OptionError(
            Option("master", engine.master), " belongs to ", Option("engine", "dask"), "."
        )


def _check_engine(source: SourceOptions, options: EngineOptions) -> None:
    """Raise OptionError for what only this machine can decode."""
    engine = Option("engine", options.engine)
    store = source.store or STORE
    if source.counts is not None:
        raise OptionError(engine, " counts reports; ", Option("counts"), " has them counted.")
    if source.reports is None and not store.startswith("parquet:"):
        raise OptionError(
            engine, " reads files, and ", Option("store", f"{store.partition(':')[0]}:"),
            " is a database; export it first (hubbub-collector export --to DIR), then decode ",
            Option("store", "parquet:DIR"), ".",
        )  # fmt: skip


def check_source(options: DecodeOptions) -> None:
    """Raise OptionError if options leave open what is decoded, or contradict each other."""
    source = options.source
    _at_most_one(options, "metric", "params", why="each says how reports were made")
    _at_most_one(options, "store", "reports", "counts", why="each says where reports are")
    metric, counts, params = Option("metric"), Option("counts"), Option("params")
    if source.metric is not None and source.counts is not None:
        raise OptionError(
            metric, " and ", counts, " exclude each other: counts come with ", params, "."
        )
    if source.metric is None and source.params is None:
        if source.counts is None:
            raise OptionError(Missing("metric", "params"), ".")
        raise OptionError(Missing("params"), ": ", counts, " needs it.")
    if source.metric is not None and source.metrics is None:
        raise OptionError(Missing("metrics"), ": the registry that has ", metric, ".")
    if source.params is not None:
        if source.reports is None and source.counts is None:
            raise OptionError(Missing("counts", "reports"), ": ", params, " needs one.")
        if source.metrics is not None:
            raise OptionError(
                Option("metrics"), " belongs to ", metric, "; ", params, " takes its place."
            )
    if source.since and source.until and source.since > source.until:
        raise OptionError(
            Option("since", source.since), " is after ", Option("until", source.until), "."
        )
    for place in options.given("reports", "counts"):
        for name in options.given("since", "until", "where"):
            what = "reports" if name.name == "where" else "days"
            raise OptionError(name, f" chooses {what} in a store; ", place, " is decoded whole.")


def check_candidates(options: DecodeOptions) -> None:
    """Raise OptionError if options leave open which strings to look for."""
    chosen = options.candidates
    _at_most_one(options, "candidates", "map", why="each says which strings to look for")
    if options.source.counts is not None and chosen.map is None:
        raise OptionError(
            Missing("map"), ": ", Option("counts"), " needs it, because its strings were "
            "hashed differently from ", Option("candidates"), ".",
        )  # fmt: skip
    if chosen.candidates is None and chosen.map is None:
        raise OptionError(Missing("candidates", "map"), ".")


def _at_most_one(options: DecodeOptions, *names: str, why: str) -> None:
    given = options.given(*names)
    if len(given) > 1:
        first, *others = given
        parts = [part for each in others for part in (" and ", each)]
        raise OptionError(first, *parts, f" exclude each other: {why}.")
