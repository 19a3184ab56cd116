"""Options -> estimates: what `hubbub-decoder decode` and notebooks call.

Four steps: read the candidates, open the source and count it, let the metric's type estimate.
Candidates are read before reports, so that the mistakes that are quickly found come first.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.decoder.candidates import ODD_FORMS, CandidateLists, candidate_sources
from hubbub.decoder.engines import Engine, open_engine
from hubbub.decoder.options import (
    BY_DAY,
    MIN_REPORTS,
    MIN_REPORTS_VARIABLE,
    CandidateInput,
    CandidateOptions,
    DecodeOptions,
    EngineOptions,
    EstimateOptions,
    SourceOptions,
    check_options,
    described,
)
from hubbub.decoder.reports import (
    CountedReports,
    count,
    open_source,
    slice_sizes,
    stored_reports,
)
from hubbub.decoder.type_decoder import Evidence, Observer, TypeDecoder, decoder_of
from hubbub.inference.errors import InputError, UndecodableError
from hubbub.inference.likelihood.choice import Method
from hubbub.inference.parallel import one_thread
from hubbub.inference.repeated_reports import Estimand
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.dimensions import OTHER
from hubbub.protocol.errors import Option, OptionError, ParameterError
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry
from hubbub.protocol.responses import UNARY
from hubbub.rappor.files import read_params
from hubbub.reporting.estimates import Estimates, Finding, Level
from hubbub.reporting.provenance import (
    Provenance,
    canonical,
    counts_source,
    digest,
    file_source,
)
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.trends import side_by_side
from hubbub.reporting.wording import misfit_findings

if TYPE_CHECKING:
    from hubbub.storage.slices import SliceSizes

_EXAMPLE = 60  # characters of a candidate in a warning
StringsOrFile = str | PathLike[str] | Iterable[str]


def decode_metric(
    metric: str | None = None,
    *,
    metrics: str | PathLike[str] | None = None,
    store: str | None = None,
    reports: str | PathLike[str] | None = None,
    counts: str | PathLike[str] | None = None,
    params: str | PathLike[str] | None = None,
    candidates: StringsOrFile | Mapping[str, StringsOrFile] | None = None,
    map: str | PathLike[str] | None = None,  # noqa: A002
    since: dt.date | str | None = None,
    until: dt.date | str | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
    by: str | None = None,
    method: str = "auto",
    alpha: float = 0.05,
    correction: str = "bh",
    detected_only: bool = False,
    rows: int = 40,
    min_reports: int | None = None,
    reports_per_client: float | None = None,
    estimand: str = "population",
    extend: str = "",
    corpus: str | PathLike[str] | None = None,
    alphabet: str = "",
    engine: str = "local",
    master: str | None = None,
) -> Estimates:
    """Decode reports: the estimates that `hubbub-decoder decode` writes, as an object.

    Arguments are the command's options (`hubbub-decoder decode --help`).

    Parameters
    ----------
    metric, metrics : str, path
        The metric's name, and the registry's file.
    store : str
        The collector's database, or "parquet:DIR" for an export.
    reports, counts, params : path
        A Parquet file of reports; google/rappor's counts.csv and params.csv.
    candidates : path, or iterable of str, or mapping
        Strings to look for; a lone string is a file's name, a folder's or a pattern of names. Of a
        joint metric those of each field of strings, by its name.
    map : path
        Instead of candidates, google/rappor's map.csv.
    since, until : datetime.date or str
        UTC days, both included, such as "2026-11-01".
    where : mapping of str to str or sequence of str
        By dimension of the app, the values that reports must have one of.
    by : "day", or a dimension, optional
        Estimate each day, or each value of the dimension, by itself.
    method : "auto", "likelihood" or "regression"
    alpha : float
        Error rate of detections, in (0, 1).
    correction : "bh" or "bonferroni"
    detected_only : bool
        Whether rows of what isn't detected are left out. With method "regression", or candidates
        in several files, the list then needn't fit in memory.
    rows : int
        Most rows that are shown; tables and files hold them all.
    min_reports : int, optional
        Refuse to decode fewer reports than this; with `by`, on any day. By default
        HUBBUB_MIN_REPORTS of the environment, or 1,000.
    reports_per_client : float, optional
        How many of these reports the client of an average report has sent, at least 1: what errors
        are widened by. By default the most that the days' numbers of reports allow.
    estimand : "population" or "reports"
        Whether errors and intervals are about the shares of the population that the reports were
        drawn from, or of these reports alone.
    extend : str
        Of a metric of type open-string, look only for strings that begin so.
    corpus : path
        Of a metric of type open-string, a list of public strings to learn letters from.
    alphabet : str
        Of a metric of type open-string, the characters of most strings, if they are known.
    engine : "local" or "dask"
        Where files of reports are counted, and kept if they are needed whole and many.
    master : str, optional
        The address of a Dask scheduler; by default workers of this machine.

    Returns
    -------
    Estimates
        A table for pandas, polars and Arrow (the Arrow PyCapsule interface); Jupyter shows it, and
        `plot()` draws it.

    Raises
    ------
    OptionError
        If arguments leave something open, contradict each other or don't suit the metric's type.
    HubbubError, OSError
        If something can't be read, or isn't what it should be.
    ValueError
        If an argument has none of the values that it may have.

    Examples
    --------
    >>> found = decode_metric("theme", metrics="metrics.toml", store="sqlite:///hubbub.db")
    >>> for theme, share in zip(found["category"], found["proportion"], strict=True):
    ...     print(theme, f"{share:.2f}")
    light 0.46
    dark 0.34
    system 0.20
    """
    if not 0 < alpha < 1:
        raise OptionError(Option("alpha", alpha), ": must be between 0 and 1")
    if reports_per_client is not None and not 1 <= reports_per_client < math.inf:
        raise OptionError(Option("reports_per_client", reports_per_client), ": must be at least 1")
    for name, value, allowed in (
        ("method", method, tuple(each.value for each in Method)),
        ("correction", correction, tuple(each.value for each in Correction)),
        ("estimand", estimand, tuple(each.value for each in Estimand)),
    ):
        if value not in allowed:
            choices = ", ".join(repr(each) for each in allowed)
            raise OptionError(Option(name, repr(value)), f": must be one of {choices}")
    listed: CandidateInput | dict[str, CandidateInput] | None
    if isinstance(candidates, Mapping):
        listed = {field: strings_or_file(strings) for field, strings in candidates.items()}
    else:
        listed = None if candidates is None else strings_or_file(candidates)
    options = DecodeOptions(
        SourceOptions(
            metric=metric,
            metrics=_path(metrics),
            store=store,
            reports=_path(reports),
            counts=_path(counts),
            params=_path(params),
            since=_day("since", since),
            until=_day("until", until),
            where=where_values(where),
        ),
        CandidateOptions(
            candidates=listed,
            map=_path(map),
            corpus=_path(corpus),
        ),
        EstimateOptions(
            alpha,
            correction,
            method,
            by,
            extend,
            alphabet,
            detected_only,
            rows,
            min_reports_or_default(min_reports),
            reports_per_client,
            estimand,
        ),
        EngineOptions(engine, master),
    )
    check_options(options)
    # Last digits depend on how many threads linear algebra takes; estimates must not.
    with one_thread():
        return decode(options)


def min_reports_or_default(min_reports: int | None) -> int:
    """Return the fewest reports that are decoded: the operator's choice, if there is no other."""
    if min_reports is None:
        return int(os.environ.get(MIN_REPORTS_VARIABLE, MIN_REPORTS))
    return min_reports


def strings_or_file(strings: StringsOrFile) -> CandidateInput:
    """Return candidates as options have them: a file's name, or distinct strings."""
    if isinstance(strings, str | PathLike):
        return os.fspath(strings)
    return tuple(dict.fromkeys(strings))


def where_values(
    where: Mapping[str, str | Sequence[str]] | None,
) -> dict[str, tuple[str, ...]] | None:
    """Return values of dimensions as options have them; None if there are none."""
    given = (where or {}).items()
    return {
        name: (values,) if isinstance(values, str) else tuple(values) for name, values in given
    } or None


def _path(path: str | PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _day(name: str, day: dt.date | str | None) -> dt.date | None:
    if isinstance(day, str):
        try:
            return dt.date.fromisoformat(day)
        except ValueError:
            raise OptionError(
                Option(name, day), ": must be a day of the calendar, as YYYY-MM-DD."
            ) from None
    return day.date() if isinstance(day, dt.datetime) else day


def decode(
    options: DecodeOptions, observer: Observer | None = None, *, provenance: bool = True
) -> Estimates:
    """Decode what options name, which were checked; otherwise as `decode_metric`.

    Parameters
    ----------
    options : DecodeOptions
        What is asked for.
    observer : Observer, optional
        Sees notes, and how far the work is.
    provenance : bool
        Whether the estimates say where they come from, for which files are read once more.
    """
    observer = observer or Observer()
    metric = metric_of(options.source)
    decoder = decoder_of(metric)
    check_type(decoder, metric, options)
    check_dimensions(metric, options)
    with open_engine(options.engine.engine, options.engine.master) as engine:
        lists = decoder.read_candidates(metric, options)
        for note in lists.notes:
            observer.note(note)

        def decoded(one: DecodeOptions) -> Estimates:
            return _estimated(one, metric, lists, engine, observer, provenance=provenance)

        if options.dimension is not None:
            estimates = _by_dimension(options, metric, decoded)
        else:
            estimates = decoded(options)
            if options.source.where:
                sizes = slice_sizes(stored_reports(options.source), metric)
                untold = _untold(metric, sizes, tuple(options.source.where))
                estimates = replace(estimates, findings=(*estimates.findings, *untold))
    note_warnings(estimates, observer)
    return estimates


def _estimated(
    options: DecodeOptions,
    metric: Metric,
    lists: CandidateLists,
    engine: Engine,
    observer: Observer,
    *,
    provenance: bool,
) -> Estimates:
    """Count what options name, and estimate."""
    decoder = decoder_of(metric)
    choice = decoder.choice(metric, lists, options.estimate)
    with observer.counting() as update:
        reports = count(
            open_source(options.source),
            metric,
            engine,
            by_day=options.by_day,
            min_reports=options.estimate.min_reports,
            spool_for=choice.spool_for if choice else lambda _total, _counted: None,
            progress=update,
        )
    origin = provenance_of(options, metric, lists, reports) if provenance else None
    evidence = Evidence(metric, reports, lists, options.estimate, choice, origin)
    estimates = decoder.estimate(evidence, observer)
    return estimates.warned((*misfit_findings(evidence.misfit), *_odd_lists(lists, estimates)))


def _odd_lists(lists: CandidateLists, estimates: Estimates) -> Iterator[Finding]:
    """Yield a warning of each list in a form that values hardly have, if none of them was found."""
    limits = [each.value for each in estimates.findings if each.code == "detection_limit"]
    if any(not isinstance(limit, float) or not limit < 1 for limit in limits):
        return  # so few reports show nothing, however strings are spelled
    for column, strings in lists.first_strings().items():
        for form, has in ODD_FORMS.items():
            odd = [string for string in strings if has(string)]
            if not odd or 2 * len(odd) < len(strings) or column not in estimates.columns:
                continue
            rows = zip(estimates[column], _detected(estimates), strict=True)
            if any(detected and has(str(string)) for string, detected in rows):
                continue
            shown = shortened(visible(odd[0]), _EXAMPLE)
            if not shown.startswith('"'):
                shown = f'"{shown}"'
            text = (
                f"{len(odd):,} of the first {len(strings):,} {form}, such as "
                f"{shown}, and none of these was detected; list each string by itself, spelled as "
                "clients report it, without quotes, other columns or blanks around it"
            )
            value = {"form": form, "strings": len(odd), "example": odd[0]}
            yield Finding("candidates_form", "candidates", text, value, Level.WARNING)
            break


def _detected(estimates: Estimates) -> Iterable[Any]:
    return (
        estimates["detected"] if "detected" in estimates.columns else repeat(True, len(estimates))
    )


def _by_dimension(
    options: DecodeOptions, metric: Metric, decoded: Callable[[DecodeOptions], Estimates]
) -> Estimates:
    """Decode each value of a dimension by itself; those with too few reports are left out."""
    from hubbub.storage.slices import values_of  # noqa: PLC0415 - as `decoder.reports`

    dimension, chosen = options.dimension or "", options.source.where or {}
    sizes = slice_sizes(stored_reports(options.source), metric)
    parts, refused = {}, {}
    for value in values_of(metric, dimension, sizes):
        if value not in chosen.get(dimension, (value,)):
            continue
        own = replace(
            options,
            source=replace(options.source, where={**chosen, dimension: (value,)}),
            estimate=replace(options.estimate, by=None),
        )
        try:
            parts[value] = decoded(own)
        except UndecodableError as error:
            refused[value] = str(error)
    if not parts:
        found = "; ".join(refused.values()) or f"no reports of {metric.name}"
        raise UndecodableError(f"{dimension}: no value has enough reports: {found}")
    said = _untold(metric, sizes, tuple(dict.fromkeys((*chosen, dimension))))
    return side_by_side(dimension, parts, refused, said)


def _untold(metric: Metric, sizes: SliceSizes, names: Sequence[str]) -> tuple[Finding, ...]:
    """Return how many of the days' reports are in none of a dimension's values."""
    from hubbub.storage.slices import Where  # noqa: PLC0415 - as `decoder.reports`

    total = sum(sum(reports.values()) for reports in sizes.values())
    told = Where(metric, {}).reports_that_tell(sizes, names)
    if told == total:
        return ()
    share = 1 - told / total
    text = (
        f"{share:.2g} of these days' reports say other of {' or '.join(names)}, as rare "
        "combinations of dimensions do, too; so a value's reports may not be like all that have it"
    )
    return (Finding("untold", "say other", text, share),)


def check_dimensions(metric: Metric, options: DecodeOptions) -> None:
    """Raise OptionError for dimensions, or values of them, that the metric doesn't have."""
    known = {dimension.name: dimension for dimension in metric.dimensions}
    listed = ", ".join(known) or "it has none"
    for name, values in (options.source.where or {}).items():
        if name not in known:
            expected = f": must be one of the dimensions of metrics.{metric.name}: {listed}."
            raise OptionError(Option("where", "...", key=name), expected)
        for value in values:
            if value != OTHER and not known[name].has(value):
                told = (
                    ", ".join((*known[name].values, OTHER))
                    if known[name].values
                    else (f"{OTHER}, or match {known[name].pattern}")
                )
                raise OptionError(Option("where", value, key=name), f": must be one of {told}.")
    if options.dimension is not None and options.dimension not in known:
        expected = (
            f": must be {BY_DAY}, or one of the dimensions of metrics.{metric.name}: {listed}."
        )
        raise OptionError(Option("by", options.dimension), expected)


def note_warnings(estimates: Estimates, observer: Observer) -> None:
    """Pass on what must not be overlooked, whichever form the estimates are written in."""
    for finding in estimates.findings:
        if finding.level is Level.WARNING:
            observer.note(finding.labelled)


def check_type(decoder: TypeDecoder[MetricType], metric: Metric, options: DecodeOptions) -> None:
    """Raise OptionError for options that make no sense for the metric's type."""
    decoder.check(metric, options)
    if options.estimate.reports_per_client is not None and metric.one_time:
        raise OptionError(
            Option("reports_per_client"),
            f": must be left out; metrics.{metric.name}.mode = 'one-time', so clients report once.",
        )
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    for own in () if decoder.finds_strings else options.of_open_strings():
        raise OptionError(
            own,
            f": must be left out; {what} isn't searched prefix by prefix, as an open-string is.",
        )


def metric_of(source: SourceOptions) -> Metric:
    """Return what is decoded; a params.csv stands for a metric of strings in no registry."""
    if source.metric is not None:
        return Registry.load(source.metrics or "")[source.metric]
    path = source.params or ""
    params: RapporParams = read_params(path)
    if source.counts is None:
        try:
            params = RapporParams(*params)
        except ParameterError as error:
            raise InputError(f"{path}: {error}; only --counts may have other parameters") from error
    return Metric(
        application="",
        name=path,
        version=1,
        type=StringType(),
        params=params,
        description="",
        owner="",
        expires=dt.date.max,
    )


def provenance_of(
    options: DecodeOptions, metric: Metric, lists: CandidateLists, reports: CountedReports
) -> Provenance:
    """Return where estimates come from, except for the method that will make them."""
    source, chosen, how = options.source, options.candidates, options.estimate
    files = (
        ("params", source.params),
        ("map", chosen.map),
        ("counts file", source.counts),
        ("reports", source.reports),
    )
    sources = candidate_sources(options, lists)
    sources += [file_source(role, path) for role, path in files if path is not None]
    days = "not known"
    if source.metric is not None and source.reports is None:
        days = f"{source.since or 'the first'} to {source.until or 'the last'}"
        days += f", {described(source.where)}" if source.where else ""
    parameters = _parameters(metric)
    return Provenance(
        metric=Path(metric.name).name,
        metric_version=metric.version if source.metric else None,
        parameters=parameters,
        parameters_sha256=digest(canonical(parameters)),
        settings={
            "alpha": f"{how.alpha:g}",
            "correction": how.correction,
            "method": "",
            "min_reports": f"{how.min_reports}",
            "estimand": how.estimand,
        }
        | (
            {}
            if how.reports_per_client is None
            else {"reports_per_client": f"{how.reports_per_client:g}"}
        ),
        days=days,
        sources=(*sources, counts_source("counts", reports.counts)),
    )


def _parameters(metric: Metric) -> dict[str, float]:
    """Return the numbers that reports depend on; those of the noise say nothing of sets' sizes."""
    drawn: dict[str, object] = {}
    if metric.response != UNARY:
        drawn = metric.type.definition() | metric.response.definition()
    numbers = {
        name: value
        for name, value in drawn.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return metric.params._asdict() | numbers
