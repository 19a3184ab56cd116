"""Where reports and candidates are, how they are decoded, and which options belong together.

Reports come in three ways: METRIC in a store, a file of reports, or a file of counts. Every
combination that would leave something out, or silently ignore what was asked for, is an
`OptionError`.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from hubbub.protocol import Option, OptionError

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


def _min_reports() -> int:
    return int(os.environ.get(MIN_REPORTS_VARIABLE, MIN_REPORTS))


BY_DAY = "day"
"""The `by` for estimates of each day; no dimension is called so."""

CandidateInput = str | tuple[str, ...]
"""A file of strings, or the strings themselves."""
FilePath = str | PathLike[str]
StringsOrFile = FilePath | Iterable[str]


LOCAL = "local"
ENGINES = (LOCAL, "dask")
METHODS = ("auto", "likelihood", "regression")  # `hubbub.inference.likelihood.choice.Method`
CORRECTIONS = ("bh", "bonferroni")  # `hubbub.inference.testing.multiple_testing.Correction`
ESTIMANDS = ("population", "reports")  # `hubbub.inference.repeated_reports.Estimand`


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """All that one decoding is asked for; None where nothing is named."""

    metric: str | None = None  # the metric's name, and the registry's file
    metrics: str | None = None
    store: str | None = None  # where reports are, or their counts
    reports: str | None = None
    counts: str | None = None
    params: str | None = None  # a file of parameters, in place of a metric
    since: dt.date | None = None  # UTC days, both included
    until: dt.date | None = None
    # The values, one of which reports must have, by dimension of the app.
    where: Mapping[str, tuple[str, ...]] | None = None
    # Strings to look for: a file, or the strings themselves; or those of each field.
    candidates: CandidateInput | Mapping[str, CandidateInput] | None = None
    map: str | None = None  # a file of strings and their bits, in place of candidates
    corpus: str | None = None  # a file of public strings that open strings are expected to be like
    extend: str = ""  # of open strings, look only for those that begin so
    alphabet: str = ""  # of open strings, the characters of most of them, if they are known
    # "day" for estimates of each day, or a dimension for estimates of each of its values.
    by: str | None = None
    method: str = "auto"
    alpha: float = 0.05  # error rate of detections
    correction: str = "bh"
    estimand: str = "population"
    # How many of the reports the client of an average report has sent; None: as many as days allow.
    reports_per_client: float | None = None
    min_reports: int = field(default_factory=_min_reports)  # fewer reports aren't decoded
    sequential: bool = False  # whether a comparison may be looked at every day
    # Among how many results of days one by one chance may make a sure change (`trends_estimates`).
    looks: int = 1
    detected_only: bool = False  # whether rows of what isn't detected are left out
    rows: int = 40  # most rows that a terminal shows
    engine: str = LOCAL  # one of `ENGINES`
    master: str | None = None  # where the engine's scheduler is; None: on this machine

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> DecodeOptions:
        """Return checked options of Python's arguments: paths, days in words, any strings.

        Raises `OptionError` as `check_options`.
        """
        values = {name: value for name, value in arguments.items() if value is not None}
        for name in {"metrics", "reports", "counts", "params", "map", "corpus"} & values.keys():
            values[name] = os.fspath(values[name])
        for name in {"since", "until"} & values.keys():
            values[name] = _day(name, values[name])
        if "where" in values:
            values["where"] = {
                name: (some,) if isinstance(some, str) else tuple(some)
                for name, some in values["where"].items()
            } or None
        if isinstance(listed := values.get("candidates"), Mapping):
            values["candidates"] = {name: _strings_or_file(some) for name, some in listed.items()}
        elif listed is not None:
            values["candidates"] = _strings_or_file(listed)
        options = cls(**values)
        check_options(options)
        return options

    def given(self, *names: str) -> list[Option]:
        """Return those of some options that were given."""
        return [Option(name) for name in names if getattr(self, name) not in (None, "")]

    @property
    def by_day(self) -> bool:
        """Whether each day is estimated by itself as well."""
        return self.by == BY_DAY

    @property
    def dimension(self) -> str | None:
        """The dimension by whose values reports are estimated; None: by none."""
        return None if self.by_day else self.by


class MoreOptions(TypedDict, total=False):
    """Arguments of `decode_metric` that few people need."""

    reports: FilePath  # a Parquet file of reports, instead of a store
    correction: str  # what alpha bounds: "bh" or "bonferroni"
    # Errors and intervals are about the "population" that these "reports" are from, or about them.
    estimand: str
    # How many of these reports the client of an average report has sent, at least 1; by default the
    # most that the days' numbers of reports allow.
    reports_per_client: float | None
    # Fewer reports aren't decoded; by default HUBBUB_MIN_REPORTS of the environment, or 1,000.
    min_reports: int | None
    detected_only: bool  # whether rows of what isn't detected are left out
    rows: int  # most rows that are shown, by default 40; tables and files hold them all
    # For days one by one, a change is "sure" if among so many such results chance makes one with a
    # probability of at most alpha / 2; by default every change is that is found at all.
    looks: int
    extend: str  # of open strings, look only for those that begin so
    corpus: FilePath  # of open strings, a list of public strings to learn letters from
    alphabet: str  # of open strings, the characters of most of them, if they are known
    engine: str  # where files of reports are counted: "local" or "dask"
    master: str | None  # the address of a Dask scheduler; by default workers of this machine


def _strings_or_file(strings: StringsOrFile) -> CandidateInput:
    if isinstance(strings, str | PathLike):
        return os.fspath(strings)
    return tuple(dict.fromkeys(strings))


def _day(name: str, day: dt.date | str) -> dt.date:
    if isinstance(day, str):
        try:
            return dt.date.fromisoformat(day)
        except ValueError:
            raise OptionError(
                Option(name, day), ": must be a day of the calendar, as YYYY-MM-DD."
            ) from None
    return day.date() if isinstance(day, dt.datetime) else day


def where_of(texts: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """Return values by dimension, of DIMENSION=VALUE options that may be repeated."""
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
    """Return the last file of an option, or the files of several fields: FIELD=FILE, repeated."""
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
    _check_values(options)
    _check_source(options)
    if options.metric is None or options.given("candidates", "map"):
        check_candidates(options)
    if options.by is not None:
        for name in options.given("reports", "counts"):
            raise OptionError(
                Option("by", options.by),
                " needs a store, because only stores record days and dimensions; ",
                name,
                " has none.",
            )
    if options.method == "likelihood" and options.counts is not None:
        raise OptionError(
            Option("method", options.method), " needs whole reports; ", Option("counts"),
            " has only their sums.",
        )  # fmt: skip
    _check_engine(options)


def _check_values(options: DecodeOptions) -> None:
    if not 0 < options.alpha < 1:
        raise OptionError(Option("alpha", options.alpha), ": must be between 0 and 1")
    each = options.reports_per_client
    if each is not None and not 1 <= each < math.inf:
        raise OptionError(Option("reports_per_client", each), ": must be at least 1")
    for name, value, allowed in (
        ("method", options.method, METHODS),
        ("correction", options.correction, CORRECTIONS),
        ("estimand", options.estimand, ESTIMANDS),
        ("engine", options.engine, ENGINES),
    ):
        if value not in allowed:
            choices = ", ".join(repr(each) for each in allowed)
            raise OptionError(Option(name, repr(value)), f": must be one of {choices}")


def _check_engine(options: DecodeOptions) -> None:
    """Raise OptionError for what only this machine can decode."""
    if options.engine == LOCAL:
        if options.master is not None:
            raise OptionError(
                Option("master", options.master), " belongs to ", Option("engine", "dask"), "."
            )
        return
    engine, store = Option("engine", options.engine), options.store or STORE
    if options.counts is not None:
        raise OptionError(engine, " counts reports; ", Option("counts"), " has them counted.")
    if options.reports is None and not store.startswith("parquet:"):
        raise OptionError(
            engine, " reads files, and ", Option("store", f"{store.partition(':')[0]}:"),
            " is a database; export it first (hubbub-collector export --to DIR), then decode ",
            Option("store", "parquet:DIR"), ".",
        )  # fmt: skip


def _check_source(options: DecodeOptions) -> None:
    """Raise OptionError if options leave open what is decoded, or contradict each other."""
    _at_most_one(options, "metric", "params", why="each says how reports were made")
    _at_most_one(options, "store", "reports", "counts", why="each says where reports are")
    metric, counts, params = Option("metric"), Option("counts"), Option("params")
    if options.metric is not None and options.counts is not None:
        raise OptionError(
            metric, " and ", counts, " exclude each other: counts come with ", params, "."
        )
    if options.metric is None and options.params is None:
        if options.counts is None:
            raise OptionError(metric, " (or ", params, ") is missing.")
        raise OptionError(params, " is missing: ", counts, " needs it.")
    if options.metric is not None and options.metrics is None:
        raise OptionError(Option("metrics"), " is missing: the registry that has ", metric, ".")
    if options.params is not None:
        if options.reports is None and options.counts is None:
            raise OptionError(
                counts, " (or ", Option("reports"), ") is missing: ", params, " needs one."
            )
        if options.metrics is not None:
            raise OptionError(
                Option("metrics"), " belongs to ", metric, "; ", params, " takes its place."
            )
    if options.since and options.until and options.since > options.until:
        raise OptionError(
            Option("since", options.since), " is after ", Option("until", options.until), "."
        )
    for place in options.given("reports", "counts"):
        for name in options.given("since", "until", "where"):
            what = "reports" if name.name == "where" else "days"
            raise OptionError(name, f" chooses {what} in a store; ", place, " is decoded whole.")


def check_candidates(options: DecodeOptions) -> None:
    """Raise OptionError if options leave open which strings to look for."""
    _at_most_one(options, "candidates", "map", why="each says which strings to look for")
    if options.counts is not None and options.map is None:
        raise OptionError(
            Option("map"), " is missing: ", Option("counts"), " needs it, because its strings were "
            "hashed differently from ", Option("candidates"), ".",
        )  # fmt: skip
    if options.candidates is None and options.map is None:
        raise OptionError(Option("candidates"), " (or ", Option("map"), ") is missing.")


def _at_most_one(options: DecodeOptions, *names: str, why: str) -> None:
    given = options.given(*names)
    if len(given) > 1:
        first, *others = given
        parts = [part for each in others for part in (" and ", each)]
        raise OptionError(first, *parts, f" exclude each other: {why}.")
