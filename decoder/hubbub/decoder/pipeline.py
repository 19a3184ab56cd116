"""Options -> estimates: what `hubbub-decoder decode` and notebooks call.

Four steps: read the candidates, open the source and count it, let the metric's type estimate.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from hubbub.decoder.candidates import ODD_FORMS, CandidateLists, candidate_sources
from hubbub.decoder.engines import open_dask
from hubbub.decoder.options import (
    BY_DAY,
    LOCAL,
    DecodeOptions,
    FilePath,
    MoreOptions,
    StringsOrFile,
    described,
)
from hubbub.decoder.reports import CountedReports, count, open_source, slice_sizes, stored_reports
from hubbub.decoder.type_decoder import DecodeInput, Observer, TypeDecoder, decoder_of
from hubbub.inference import InputError, UndecodableError, one_thread
from hubbub.protocol import (
    OTHER,
    UNARY,
    Metric,
    Option,
    OptionError,
    ParameterError,
    RapporParams,
    Registry,
    StringType,
)
from hubbub.reporting import (
    Estimates,
    Finding,
    Level,
    Provenance,
    counts_source,
    days_text,
    file_source,
    misfit_findings,
    parameters_digest,
    pass_counter,
    progress_bar,
    shortened,
    visible,
)

if TYPE_CHECKING:
    from hubbub.storage import SliceSizes

_EXAMPLE = 60  # characters of a candidate in a warning


class OnTerminal(Observer):
    """Shows bars, and one line per note, on standard error: bars only if that is a terminal."""

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)

    def counting(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar."""
        return progress_bar("counting reports")

    def searching(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar."""
        return progress_bar("looking for strings, step by step")

    def likelihood_progress(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show passes and the gap."""
        return pass_counter("maximising the likelihood")


def decode_metric(
    metric: str,
    *,
    metrics: FilePath | None = None,
    store: str | None = None,
    candidates: StringsOrFile | Mapping[str, StringsOrFile] | None = None,
    since: dt.date | str | None = None,
    until: dt.date | str | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
    by: str | None = None,
    method: str = "auto",
    alpha: float = 0.05,
    **more: Unpack[MoreOptions],
) -> Estimates:
    """Decode reports: the estimates that `hubbub-decoder decode` writes, as an object.

    Parameters
    ----------
    metric, metrics : str, path
        The metric's name, and the registry's file.
    store : str
        The collector's database, or "parquet:DIR" for an export.
    candidates : path, or iterable of str, or mapping
        Strings to look for; a lone string is a file's name, a folder's or a pattern of names. Of a
        joint metric those of each field of strings, by its name.
    since, until : datetime.date or str
        UTC days, both included, such as "2026-11-01".
    where : mapping of str to str or sequence of str
        By dimension of the app, the values that reports must have one of.
    by : "day", or a dimension, optional
        Estimate each day, or each value of the dimension, by itself.
    method : "auto", "likelihood" or "regression"
    alpha : float
        Error rate of detections, in (0, 1).
    **more
        What few people need: see `MoreOptions`, or `hubbub-decoder decode --help`.

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
    named = {"metric": metric, "metrics": metrics, "store": store, "candidates": candidates}
    chosen = {"since": since, "until": until, "where": where, "by": by}
    return _decode_alone({**named, **chosen, "method": method, "alpha": alpha, **more})


def decode_rappor(
    params: FilePath,
    *,
    counts: FilePath | None = None,
    map: FilePath | None = None,  # noqa: A002 - the option's name
    candidates: StringsOrFile | None = None,
    method: str = "auto",
    alpha: float = 0.05,
    **more: Unpack[MoreOptions],
) -> Estimates:
    """Decode the files of github.com/google/rappor, which need no registry and no store.

    Parameters
    ----------
    params : path
        params.csv: how the reports were made.
    counts : path
        counts.csv: one row per cohort; or `reports`, a Parquet file, instead.
    map : path
        map.csv: strings and their bits; or `candidates`, which are hashed as in hubbub's clients.
    candidates, method, alpha, **more
        As for `decode_metric`.

    Returns
    -------
    Estimates
        As `decode_metric`.

    Raises
    ------
    OptionError, HubbubError, OSError
        As `decode_metric`.
    """
    files = {"params": params, "counts": counts, "map": map, "candidates": candidates}
    return _decode_alone({**files, "method": method, "alpha": alpha, **more})


def _decode_alone(arguments: Mapping[str, Any]) -> Estimates:
    options = DecodeOptions.of(arguments)
    # Last digits depend on how many threads linear algebra takes; estimates must not.
    with one_thread():
        return decode(options)


def decode(
    options: DecodeOptions, observer: Observer | None = None, *, provenance: bool = True
) -> Estimates:
    """Decode what options name, which were checked; otherwise as `decode_metric`.

    `observer` sees notes, and how far the work is. Without `provenance` the estimates don't say
    where they come from, for which files are read once more.
    """
    observer = observer or Observer()
    metric = metric_of(options)
    decoder = decoder_of(metric)
    check_type(decoder, metric, options)
    check_dimensions(metric, options)
    with nullcontext() if options.engine == LOCAL else open_dask(options.master) as engine:
        # Mistakes in lists are found sooner than those in reports.
        lists = decoder.read_candidates(metric, options)
        for note in lists.notes:
            observer.note(note)
        choice = decoder.choice(metric, lists, options)

        def estimated(one: DecodeOptions) -> Estimates:
            with observer.counting() as update:
                reports = count(
                    open_source(one),
                    metric,
                    engine,
                    by_day=one.by_day,
                    min_reports=one.min_reports,
                    keeps_whole=choice.keeps_whole if choice else lambda _total, _counted: False,
                    progress=update,
                )
            origin = provenance_of(one, metric, lists, reports) if provenance else None
            data = DecodeInput(metric, reports, lists, one, choice, origin)
            found = decoder.estimate(data, observer)
            return found.warned((*misfit_findings(data.misfit), *_odd_lists(lists, found)))

        if options.dimension is not None:
            estimates = _by_dimension(options, metric, estimated)
        else:
            estimates = estimated(options)
            if options.where:
                sizes = slice_sizes(stored_reports(options), metric)
                others = _other_share(metric, sizes, tuple(options.where))
                estimates = replace(estimates, findings=(*estimates.findings, *others))
    note_warnings(estimates, observer)
    return estimates


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
    options: DecodeOptions, metric: Metric, estimated: Callable[[DecodeOptions], Estimates]
) -> Estimates:
    """Decode each value of a dimension by itself; those with too few reports are left out."""
    from hubbub.reporting import side_by_side  # noqa: PLC0415 - seldom
    from hubbub.storage import values_of  # noqa: PLC0415 - as `decoder.reports`

    dimension, chosen = options.dimension or "", options.where or {}
    sizes = slice_sizes(stored_reports(options), metric)
    parts, refused = {}, {}
    for value in values_of(metric, dimension, sizes):
        if value not in chosen.get(dimension, (value,)):
            continue
        try:
            parts[value] = estimated(
                replace(options, where={**chosen, dimension: (value,)}, by=None)
            )
        except UndecodableError as error:
            refused[value] = str(error)
    if not parts:
        found = "; ".join(refused.values()) or f"no reports of {metric.name}"
        raise UndecodableError(f"{dimension}: no value has enough reports: {found}")
    others = _other_share(metric, sizes, tuple(dict.fromkeys((*chosen, dimension))))
    return side_by_side(dimension, parts, refused, others)


def _other_share(metric: Metric, sizes: SliceSizes, names: Sequence[str]) -> tuple[Finding, ...]:
    """Say which share of the days' reports has no value of the dimensions."""
    from hubbub.storage import Where  # noqa: PLC0415 - as `decoder.reports`

    total = sum(sum(reports.values()) for reports in sizes.values())
    named = Where(metric, {}).reports_that_tell(sizes, names)
    if named == total:
        return ()
    share = 1 - named / total
    text = (
        f"{share:.2g} of these days' reports have no {' or '.join(names)}: rare values and "
        f"combinations are grouped as {OTHER}, so these groups may be biased"
    )
    return (Finding("other_share", "grouped as other", text, share),)


def check_dimensions(metric: Metric, options: DecodeOptions) -> None:
    """Raise OptionError for dimensions, or values of them, that the metric doesn't have."""
    known = {dimension.name: dimension for dimension in metric.dimensions}
    listed = ", ".join(known) or "it has none"
    for name, values in (options.where or {}).items():
        if name not in known:
            expected = f": must be one of the dimensions of metrics.{metric.name}: {listed}."
            raise OptionError(Option("where", "...", key=name), expected)
        for value in values:
            if value != OTHER and not known[name].has(value):
                allowed = (
                    ", ".join((*known[name].values, OTHER))
                    if known[name].values
                    else (f"{OTHER}, or match {known[name].pattern}")
                )
                raise OptionError(Option("where", value, key=name), f": must be one of {allowed}.")
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


def check_type(decoder: TypeDecoder, metric: Metric, options: DecodeOptions) -> None:
    """Raise OptionError for options that make no sense for the metric's type."""
    decoder.check(metric, options)
    if options.reports_per_client is not None and metric.one_time:
        raise OptionError(
            Option("reports_per_client"),
            f": must be left out; metrics.{metric.name}.mode = 'one-time', so clients report once.",
        )
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    for own in () if decoder.finds_strings else options.given("extend", "alphabet", "corpus"):
        raise OptionError(
            own,
            f": must be left out; {what} isn't searched prefix by prefix, as an open-string is.",
        )


def metric_of(options: DecodeOptions) -> Metric:
    """Return what is decoded; a params.csv stands for a metric of strings in no registry."""
    if options.metric is not None:
        return Registry.load(options.metrics or "")[options.metric]
    from hubbub.rappor import read_params  # noqa: PLC0415 - seldom

    path = options.params or ""
    params: RapporParams = read_params(path)
    if options.counts is None:
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
    files = (
        ("params", options.params),
        ("map", options.map),
        ("counts file", options.counts),
        ("reports", options.reports),
    )
    sources = candidate_sources(options, lists)
    sources += [file_source(role, path) for role, path in files if path is not None]
    days, title, about = "not known", metric.name, []
    if metric.description:
        about.append(metric.description.rstrip(".") + ".")
    if options.metric is not None and options.reports is None:
        first = options.since or min(reports.day_sizes, default=None)
        last = options.until or max(reports.day_sizes, default=None)
        days = f"{first or 'the first'} to {last or 'the last'}"
        days += f", {described(options.where)}" if options.where else ""
        for name, values in (options.where or {}).items():
            title += f", {name} {' or '.join(values)}"
        if first and last:
            about.append(f"{days_text(first, last)}.")
    parameters = _parameters(metric)
    return Provenance(
        metric=Path(metric.name).name,
        metric_version=metric.version if options.metric else None,
        parameters=parameters,
        parameters_sha256=parameters_digest(parameters),
        settings={
            "alpha": f"{options.alpha:g}",
            "correction": options.correction,
            "method": "",
            "min_reports": f"{options.min_reports}",
            "estimand": options.estimand,
        }
        | (
            {}
            if options.reports_per_client is None
            else {"reports_per_client": f"{options.reports_per_client:g}"}
        ),
        days=days,
        sources=(*sources, counts_source("counts", reports.counts)),
        title=title if options.metric else Path(metric.name).name,
        about=visible(" ".join(about)) if about else "",
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
