"""Two groups of reports -> by how much they differ: what `compare` and notebooks call.

A group is a period, what reports state of the app, another store, or several of these:
"2026-11-01..2026-11-07", "arm=control", "platform=mac,release=1.2@2026-11-01..",
"parquet:exports/beta", "sqlite:///beta.db@2026-11-01..". Both hold reports of one metric, and so of
the same parameters.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike

from hubbub.decoder.engines import open_dask
from hubbub.decoder.options import LOCAL, STORE, DecodeOptions, described
from hubbub.decoder.pipeline import (
    check_dimensions,
    check_type,
    metric_of,
    note_warnings,
    provenance_of,
)
from hubbub.decoder.reports import CountedReports, StoredReports, count, slice_sizes
from hubbub.decoder.type_decoder import DecodeInput, Observer, decoder_of
from hubbub.inference import Method, one_thread
from hubbub.protocol import Metric, Option, OptionError, is_slice, parse_slice
from hubbub.reporting import (
    Estimates,
    Finding,
    Level,
    anomaly_findings,
    comparison_estimates,
    misfit_findings,
    ratio_finding,
)

_DAY = r"\d{4}-\d\d-\d\d"
_DAYS = re.compile(rf"(?P<since>{_DAY})?(?P<range>\.\.)?(?P<until>{_DAY})?")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The groups to compare, and how."""

    control: str  # the groups (see `group_source`)
    treatment: str
    # Options for decoding either group; its store is that of groups that name none.
    decode: DecodeOptions
    # Treatment's clients over the control's, as they were assigned.
    sample_ratio: float | None = None


def compare_metric(
    metric: str,
    control: str,
    treatment: str,
    *,
    metrics: str | PathLike[str],
    store: str | None = None,
    candidates: str | PathLike[str] | Iterable[str] | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
    alpha: float = 0.05,
    correction: str = "bh",
    rows: int = 40,
    min_reports: int | None = None,
    reports_per_client: float | None = None,
    sample_ratio: float | None = None,
    sequential: bool = False,
    engine: str = "local",
    master: str | None = None,
) -> Estimates:
    """Compare two groups: the estimates that `hubbub-decoder compare` writes, as an object.

    Parameters
    ----------
    metric : str
        The metric's name.
    control, treatment : str
        The groups: UTC days of the store, both included, such as "2026-11-01..2026-11-07"; what
        reports state of the app, such as "arm=control"; another store; or several of these, as
        "STORE@DIMENSION=VALUE@DAYS".
    metrics : path
        The registry's file.
    store : str, optional
        Where the reports are of groups that name no store.
    candidates : path, or iterable of str, optional
        Strings to look for, of a metric of strings.
    where : mapping of str to str or sequence of str
        By dimension of the app, the values that reports of both groups must have one of.
    alpha : float
        Error rate of differences, and of the strings that are compared, in (0, 1).
    correction : "bh" or "bonferroni"
    rows : int
        Most rows that are shown; tables and files hold them all.
    min_reports : int, optional
        Refuse to compare groups with fewer; by default as `decode_metric`.
    reports_per_client : float, optional
        How many of a group's reports the client of an average report has sent.
    sample_ratio : float, optional
        Treatment's clients over the control's as they were assigned, such as 1: groups of other
        sizes are a finding.
    sequential : bool
        Whether you look again as reports come in, and stop when you like: intervals, p- and
        q-values hold at all looks together, and are wider for it.
    engine, master
        As for `decode_metric`.

    Raises
    ------
    OptionError
        If arguments leave something open, contradict each other or don't suit the metric's type.
    HubbubError, OSError
        If something can't be read, or isn't what it should be.

    Examples
    --------
    >>> weeks = "2026-11-01..2026-11-07", "2026-11-10..2026-11-14"
    >>> found = compare_metric("theme", *weeks, metrics="metrics.toml", store="sqlite:///hubbub.db")
    >>> [theme for theme, differs in zip(found["category"], found["differs"]) if differs]
    ['light', 'dark']
    """
    options = DecodeOptions.of(
        {
            "metric": metric,
            "metrics": metrics,
            "store": store,
            "candidates": candidates,
            "where": where,
            "method": Method.REGRESSION.value,
            "alpha": alpha,
            "correction": correction,
            "rows": rows,
            "min_reports": min_reports,
            "reports_per_client": reports_per_client,
            "sequential": sequential,
            "engine": engine,
            "master": master,
        }
    )
    with one_thread():  # as `decode_metric`
        return compare(CompareOptions(control, treatment, options, sample_ratio))


def compare(
    options: CompareOptions, observer: Observer | None = None, *, provenance: bool = True
) -> Estimates:
    """Compare what options name, which were checked; otherwise as `pipeline.decode`."""
    observer, decode = observer or Observer(), options.decode
    assigned = options.sample_ratio
    if assigned is not None and not 0 < assigned < math.inf:
        raise OptionError(Option("sample_ratio", assigned), ": must be above 0.")
    sources = _sources(options)
    metric = metric_of(decode)
    decoder = decoder_of(metric)
    check_type(decoder, metric, decode)
    for side in sources:
        check_dimensions(metric, replace(decode, where=side.where))
    sources, unmatched = _matched(metric, *sources)
    from hubbub.inference import Groups, ReportGroup, sample_ratio  # noqa: PLC0415 - see `cli`

    with nullcontext() if decode.engine == LOCAL else open_dask(decode.master) as engine:
        lists = decoder.read_candidates(metric, decode)
        for note in lists.notes:
            observer.note(note)
        choice = decoder.choice(metric, lists, decode)
        least, sides = decode.min_reports, []
        for source in sources:
            with observer.counting() as update:
                reports = count(source, metric, engine, min_reports=least, progress=update)
            sides.append(DecodeInput(metric, reports, lists, decode, choice))
        groups = Groups(*(ReportGroup(each.reports.counts, each.repeats) for each in sides))
        both = replace(sides[0], reports=_together([each.reports for each in sides]))
        comparison = decoder.compare(both, groups, observer)
    labels = _label(sources[0], options), _label(sources[1], options)
    origin = provenance_of(decode, metric, lists, both.reports) if provenance else None
    sized: tuple[Finding, ...] = ()
    if assigned is not None:
        again = decode.sequential
        sized = (ratio_finding(sample_ratio(groups, assigned, sequential=again)),)
    estimates = comparison_estimates(
        comparison,
        labels,
        (*sized, *unmatched, *_odd(labels, sides)),
        origin and replace(origin, days=" and ".join(labels)).made_by("differences of bit counts"),
        decode.rows,
    )
    note_warnings(estimates, observer)
    return estimates


def group_source(option: str, text: str, store: str) -> StoredReports:
    """Return the reports that a group's text names: STORE@DIMENSION=VALUE,...@DAYS, or parts of it.

    Days are DAY, DAY..DAY, DAY.. or ..DAY; `store` is that of a group that names none. Raises
    `OptionError` for text of another form.
    """
    rest, _, last = text.rpartition("@")
    found = _DAYS.fullmatch(last)
    days = found.groupdict() if found else {}
    if not (days.get("since") or days.get("range")):
        rest, days = text, {}
    first, is_range, end = (days.get(name) for name in ("since", "range", "until"))
    url, _, values = rest.rpartition("@")
    if not (values and is_slice(values)):
        url, values = rest, ""
    if url and ":" not in url:
        expected = ": must be days FIRST..LAST (YYYY-MM-DD), DIMENSION=VALUE or a store's address."
        raise OptionError(Option(option, text), expected)
    where = {name: (value,) for name, value in parse_slice(values).items()} or None
    if end and not is_range:
        raise OptionError(Option(option, text), ": days must be FIRST..LAST.")
    try:
        since, until = (day and dt.date.fromisoformat(day) for day in (first, end))
    except ValueError:
        raise OptionError(
            Option(option, text), ": must have days of the calendar, as YYYY-MM-DD."
        ) from None
    if not is_range:
        until = since
    if since and until and since > until:
        raise OptionError(Option(option, text), ": ends before it begins.")
    return StoredReports(url or store, since or None, until or None, where)


def _sources(options: CompareOptions) -> tuple[StoredReports, StoredReports]:
    """Return both groups' reports (raises OptionError if they have any in common)."""
    if options.decode.metric is None:
        raise OptionError(Option("metric"), " is missing.")
    store = options.decode.store or STORE
    control, treatment = (
        _narrowed(group_source(option, text, store), options.decode.where, option)
        for option, text in (("control", options.control), ("treatment", options.treatment))
    )
    first, last = dt.date.min, dt.date.max
    overlap = (control.since or first) <= (treatment.until or last) and (
        treatment.since or first
    ) <= (control.until or last)
    if control.url == treatment.url and overlap and not _excluding(control, treatment):
        raise OptionError(
            Option("control", options.control), " and ", Option("treatment", options.treatment),
            " have reports in common: groups must be of different days, dimensions or stores.",
        )  # fmt: skip
    return control, treatment


def _narrowed(
    source: StoredReports, where: Mapping[str, tuple[str, ...]] | None, option: str
) -> StoredReports:
    if twice := set(source.where or {}) & set(where or {}):
        raise OptionError(
            Option(option), f": has {twice.pop()}, which ", Option("where"), " has, too."
        )
    return replace(source, where={**(where or {}), **(source.where or {})} or None)


def _matched(
    metric: Metric, control: StoredReports, treatment: StoredReports
) -> tuple[tuple[StoredReports, StoredReports], tuple[Finding, ...]]:
    """Return groups of one store as far as both have reports of the same other dimensions.

    Rare combinations are stored as "other" in one group alone: the groups would otherwise differ by
    who is in them. Over the same days it is done day by day.
    """
    from hubbub.storage import Where  # noqa: PLC0415 - as `decoder.reports`

    groups = control, treatment
    names = set(control.where or {})
    if control.url != treatment.url or not names or names != set(treatment.where or {}):
        return groups, ()
    by_day = (control.since, control.until) == (treatment.since, treatment.until)
    sizes = [slice_sizes(group, metric) for group in groups]
    wheres = [Where(metric, group.where or {}) for group in groups]
    both = [
        where.read_cells(size, by_day=by_day) for where, size in zip(wheres, sizes, strict=True)
    ]
    cells = frozenset(both[0] & both[1])
    left_out = sum(
        where.reports(size) - where._replace(cells=cells).reports(size)
        for where, size in zip(wheres, sizes, strict=True)
    )
    matched = replace(control, cells=cells), replace(treatment, cells=cells)
    if not left_out:
        return matched, ()
    text = (
        f"{left_out:,} reports are left out, because only one group has reports with the same "
        "other dimensions"
    )
    return matched, (Finding("unmatched", "unmatched", text, left_out),)


def _excluding(control: StoredReports, treatment: StoredReports) -> bool:
    theirs = treatment.where or {}
    return any(
        set(values).isdisjoint(theirs.get(name, values))
        for name, values in (control.where or {}).items()
    )


def _label(source: StoredReports, options: CompareOptions) -> str:
    """Return a group's name: its days, and its store if it isn't that of both, without secrets."""
    from hubbub.storage import mask_address  # noqa: PLC0415 - as `decoder.reports`

    days = ""
    if source.since or source.until:
        days = f"{source.since or 'the first'} to {source.until or 'the last'}"
    if source.since and source.since == source.until:
        days = f"{source.since}"
    both = options.decode.where or {}
    own = {name: some for name, some in (source.where or {}).items() if name not in both}
    days = ", ".join(filter(None, (described(own), days)))
    if source.url == (options.decode.store or STORE):
        return days or "all days"
    return f"{mask_address(source.url)}{f', {days}' if days else ''}"


def _together(both: list[CountedReports]) -> CountedReports:
    sizes: Counter[dt.date] = Counter()
    for each in both:
        sizes.update(each.day_sizes)
    return CountedReports(both[0].counts + both[1].counts, day_sizes=sizes)


def _odd(labels: tuple[str, str], both: list[DecodeInput]) -> tuple[Finding, ...]:
    return tuple(
        finding._replace(code=f"{side}_{finding.code}", label=f"{finding.label} of {label}")
        for side, label, each in zip(("control", "treatment"), labels, both, strict=True)
        for finding in (*anomaly_findings(each.reports.anomalies), *misfit_findings(each.misfit))
        if finding.level > Level.FACT
    )
