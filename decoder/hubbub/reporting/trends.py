"""Trends as estimates: one row per day and series, their courses, and the changes among them.

Days that weren't decoded have nan. A series is a detected string or the unknown mass, and column
`kind` says which, since any string may be a candidate; or a category; or a number's statistic,
which is no share and is shown in its own unit. Column `changed` is true on the first day of each
change; `change` says on every day of a spike or stretch, and on a shift's first, what it is.

Estimates of each value of a dimension, put side by side: rows, findings, tables and pages.

Invariant: a row is what it is in its own estimates; nothing is tested or corrected again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hubbub.inference import CONFIDENCE, LEAST_DAYS, AnomalyReport, Change, FloatArray, Trends
from hubbub.reporting.charts import Labels, TimeSeries
from hubbub.reporting.estimates import (
    Block,
    Column,
    Estimates,
    Finding,
    Heading,
    Line,
    Page,
    Section,
    Table,
    Values,
    as_facts,
    headings,
    warnings_in,
)
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import (
    ERROR_RATES,
    SHARE_COLUMNS,
    Provenance,
    first_charts,
    metadata_of,
    privacy_section,
    provenance_section,
    title_of,
)


def side_by_side(
    dimension: str,
    parts: Mapping[str, Estimates],
    refused: Mapping[str, str],
    said: Sequence[Finding] = (),
) -> Estimates:
    """Return the estimates of several values as one, and why others have none."""
    first = next(iter(parts.values()))
    names = [value for value, part in parts.items() for _ in range(len(part))]
    columns = {dimension: Column(str, names)}
    for name, column in first.columns.items():
        columns[name] = Column(column.type, _joined([part[name] for part in parts.values()]))
    left_out = tuple(
        Finding(f"left_out:{value}", f"{dimension}={value} left out", why)
        for value, why in refused.items()
    ) + tuple(said)
    findings = [
        each._replace(code=f"{each.code}:{value}", label=f"{each.label} ({dimension}={value})")
        for value, part in parts.items()
        for each in part.findings
    ]
    page = _page(dimension, parts, left_out)
    return Estimates(
        columns=columns,
        keys=(dimension, *first.keys),
        findings=(*findings, *left_out),
        metadata={"by": dimension, "slices": {name: each.metadata for name, each in parts.items()}},
        view=tuple(_blocks(dimension, parts, left_out)),
        page=page,
        charts=() if page is None else first_charts(page),
    )


def _joined(values: Sequence[Values]) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    return list(chain.from_iterable(values))


def _blocks(
    dimension: str, parts: Mapping[str, Estimates], left_out: Sequence[Finding]
) -> list[Block]:
    blocks: list[Block] = []
    for value, part in parts.items():
        blocks += [Line(f"{dimension} = {value}"), *part.blocks(), Line("")]
    blocks += [Line(f"{each.label}: {each.text}") for each in left_out]
    return blocks if left_out else blocks[:-1]


def _page(
    dimension: str, parts: Mapping[str, Estimates], left_out: Sequence[Finding]
) -> Page | None:
    pages = {value: part.page for value, part in parts.items() if part.page is not None}
    if not pages:
        return None
    sections = [
        replace(section, title=f"{dimension} {value}: {section.title}")
        for value, page in pages.items()
        for section in page.sections
    ]
    if left_out:
        said = tuple(f"{each.label}: {each.text}" for each in left_out)
        sections.append(Section("Left out", said))
    title = next(iter(pages.values())).title
    headline = " ".join(f"{value}: {page.headline}" for value, page in pages.items())
    warnings = [
        f"{dimension} {value}: {warning}"
        for value, page in pages.items()
        for warning in page.warnings
    ]
    return Page(f"{title} by {dimension}", headline, sections, warnings)


_OF_CHANGES: dict[str, type] = {
    "changed": bool,
    "p_value": float,
    "q_value": float,
    "change": str,
    "weekday_effect": float,
    "weekly_p_value": float,
    "weekly_q_value": float,
}
_OF_EACH: dict[str, type] = {
    "reports": int,
    **dict.fromkeys(SHARE_COLUMNS, float),
    **_OF_CHANGES,
}
TYPES: dict[str, type] = {"day": str, "kind": str, "string": str, **_OF_EACH}
"""The columns of strings; categories have no unknown mass, and so no kind."""
CATEGORY_TYPES: dict[str, type] = {"day": str, "category": str, **_OF_EACH}
STATISTIC_TYPES: dict[str, type] = {
    "day": str,
    "statistic": str,
    "reports": int,
    **dict.fromkeys(("estimate", "std_error", "low", "high"), float),
    **_OF_CHANGES,
}
"""The columns of a number's statistics, which have no count."""
_PLURALS = {"string": "strings", "category": "categories", "statistic": "statistics"}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPARKS = "▁▂▃▄▅▆▇█"
_GAP = "·"
_NO_CHANGE = "No change that chance might not have made."
_COURSES = (
    f"Bands are {CONFIDENCE:.0%} intervals, each day by itself; grey days have too few reports. "
    "Upright lines mark where another {} begins; the dashed line is what was found, changes and "
    "weekly patterns."
)
_DAYS_IN_COLUMNS = 7  # a week fits on a terminal; more days are summed up
_IN_HEADLINE = 60  # characters of a string: the headline stays on two lines
CHARTS = 40
"""Most strings that are drawn."""


class _Quantity(NamedTuple):
    """What a series follows, and how people see it."""

    word: str  # a heading
    factor: float  # by which it is multiplied in charts
    unit: str  # written after numbers of charts
    form: str  # formats of a value, of a signed difference of two, and of its error
    difference: str
    error: str

    def shown(self, value: float) -> str:
        """Return a value as text; a dot where nothing is known."""
        return _GAP if np.isnan(value) else self.form.format(value)

    def differing(self, value: float) -> str:
        """Return a signed difference as text; a dot where nothing is known."""
        return _GAP if np.isnan(value) else self.difference.format(value)


_SHARE = _Quantity("share", 100.0, "%", "{:.2%}", "{:+.3%}", "{:.3%}")
_NUMBER = _Quantity("estimate", 1.0, "", "{:.4g}", "{:+.3g}", "{:.2g}")


def _quantity(trends: Trends[Any]) -> _Quantity:
    return _NUMBER if trends.kind == "statistic" else _SHARE


def trends_estimates(
    trends: Trends[Any],
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    *,
    findings: Sequence[Finding] = (),
    limit: int = 40,
) -> Estimates:
    """Return strings, categories or statistics day by day, series by series; unknown mass last."""
    order = series_order(trends)
    summary = trends.pooled.summary
    of_all = (*_day_findings(trends, order), *findings)
    changes = (*_change_findings(trends, order), *_weekly_findings(trends, order))
    page = Page(
        f"{title_of(provenance)} day by day",
        _headline(trends, order),
        (
            _changes(trends, order),
            _courses(trends, order),
            Section("Summary of all days", facts=as_facts(of_all)),
            privacy_section(summary.epsilon_report, summary.epsilon_permanent),
            provenance_section(provenance),
        ),
        warnings_in(of_all),
    )
    return Estimates(
        columns=_columns(trends, order),
        keys=("day", "kind", trends.kind) if trends.has_unknown else ("day", trends.kind),
        findings=(*of_all, *changes),
        metadata=metadata_of(summary, anomalies, provenance) | _by_day(trends, order),
        view=(_table(trends, order, limit), Line(""), as_facts(of_all)),
        page=page,
        charts=first_charts(page),
    )


def _columns(trends: Trends[Any], order: list[int]) -> dict[str, Column]:
    """Return the rows, series by series."""
    series, n_days = np.array(order, dtype=np.int64), len(trends.days)
    reports = np.tile(trends.reports, len(series))
    shares = [
        values[:, series].T.ravel()
        for values in (trends.share, trends.std_error, trends.low, trends.high)
    ]
    changed = [{change.day for change in trends.found.changes[column]} for column in order]
    is_share = _quantity(trends) is _SHARE
    weekdays = [day.weekday() for day in trends.days]
    values: list[Values] = [
        [f"{day}" for day in trends.days] * len(series),
        *(
            [_each([_kind(trends, column) for column in order], n_days)]
            if trends.has_unknown
            else []
        ),
        _each([trends.name(column) or "" for column in order], n_days),
        reports.tolist(),
        *(share * reports for share in shares if is_share),
        *shares,
        [day in days for days in changed for day in range(n_days)],
        np.repeat(trends.found.p_value[series], n_days),
        np.repeat(trends.found.q_value[series], n_days),
        [_forms_on(day, trends.found.changes[column]) for column in order for day in range(n_days)],
        trends.found.weekday_effect[weekdays][:, series].T.ravel(),
        np.repeat(trends.found.weekly_p_value[series], n_days),
        np.repeat(trends.found.weekly_q_value[series], n_days),
    ]
    types = TYPES if trends.has_unknown else CATEGORY_TYPES if is_share else STATISTIC_TYPES
    return {
        name: Column(of, column) for (name, of), column in zip(types.items(), values, strict=True)
    }


def _forms_on(day: int, changes: Sequence[Change]) -> str:
    return ", ".join(
        change.form
        for change in changes
        if day == change.day or (change.last is not None and change.day < day <= change.last)
    )


def _each(texts: list[str], times: int) -> list[str]:
    return [text for text in texts for _ in range(times)]


def _by_day(trends: Trends[Any], order: list[int]) -> dict[str, object]:
    """Return the days and the series, for programs."""
    days = zip(trends.days, trends.reports, trends.decoded, strict=True)
    return {
        "min_reports": trends.min_reports,
        "days": [
            {"day": f"{day}", "reports": int(reports), "decoded": bool(decoded)}
            for day, reports, decoded in days
        ],
        "series": [
            {
                "kind": _kind(trends, column),
                trends.kind: trends.name(column) or "",
                "p_value": float(trends.found.p_value[column]),
                "q_value": float(trends.found.q_value[column]),
                "changes": [
                    {"form": change.form, **asdict(change), **_dates(trends, change)}
                    for change in trends.found.changes[column]
                ],
                "weekly": {
                    "p_value": float(trends.found.weekly_p_value[column]),
                    "q_value": float(trends.found.weekly_q_value[column]),
                    "effect": _by_weekday(trends.found.weekday_effect[:, column]),
                    "std_error": _by_weekday(trends.found.weekday_error[:, column]),
                }
                if _weeks_are_compared(trends)
                else None,
            }
            for column in order
        ],
    }


def _dates(trends: Trends[Any], change: Change) -> dict[str, str | None]:
    last = None if change.last is None else f"{trends.days[change.last]}"
    return {"day": f"{trends.days[change.day]}", "last": last}


def _by_weekday(numbers: FloatArray) -> dict[str, float | None] | None:
    if np.isnan(numbers).all():
        return None
    known = [None if np.isnan(number) else float(number) for number in numbers]
    return dict(zip(_WEEKDAYS, known, strict=True))


def _weeks_are_compared(trends: Trends[Any]) -> bool:
    return int(trends.decoded.sum()) >= LEAST_DAYS


def _has_pattern(trends: Trends[Any], column: int) -> bool:
    return not np.isnan(trends.found.weekday_effect[:, column]).all()


def _day_findings(trends: Trends[Any], order: list[int]) -> tuple[Finding, ...]:
    """Return how many days were decoded, and how many series changed."""
    summary = trends.pooled.summary
    changed = sum(bool(each) for each in trends.found.changes)
    rate = ERROR_RATES[summary.correction].replace("detection", "change")
    text = f"{changed:,} of {len(order):,} series at a {rate} of at most {summary.alpha:g}"
    found = [
        Finding("days", "days", day_counts(trends), int(trends.decoded.sum())),
        Finding("changed", "changed", text, changed),
    ]
    if _weeks_are_compared(trends):
        weekly = sum(_has_pattern(trends, column) for column in order)
        rate = rate.replace("change", "pattern")
        text = f"{weekly:,} of {len(order):,} series at a {rate} of at most {summary.alpha:g}"
        found.append(Finding("weekly", "weekly pattern", text, weekly))
    return tuple(found)


def _change_findings(trends: Trends[Any], order: list[int]) -> tuple[Finding, ...]:
    """Return one sentence for each series that changed; its value is the days."""
    return tuple(
        Finding(
            "change",
            "",
            f"{_name(trends, column)}: {describe_changes(trends, column)}",
            [f"{trends.days[change.day]}" for change in trends.found.changes[column]],
        )
        for column in order
        if trends.found.changes[column]
    )


def _weekly_findings(trends: Trends[Any], order: list[int]) -> tuple[Finding, ...]:
    """Return one sentence for each series with a weekly pattern; its value is the weekdays'."""
    found = []
    for column in order:
        if _has_pattern(trends, column):
            effect = trends.found.weekday_effect[:, column]
            sizes = map(_quantity(trends).differing, effect)
            words = ", ".join(map(" ".join, zip(_WEEKDAYS, sizes, strict=True)))
            text = f"{_name(trends, column)}, compared with the mean over weekdays: {words}"
            found.append(Finding("weekly_pattern", "", text, _by_weekday(effect)))
    return tuple(found)


def _courses(trends: Trends[Any], order: list[int]) -> Section:
    shown = _largest(trends, order, CHARTS)
    words = [_COURSES.format(_quantity(trends).word)] if order else []
    if len(order) > len(shown):
        words.append(f"{len(order) - len(shown):,} more are in CSV, JSON and Parquet.")
    charts = tuple(_course(trends, column, index) for index, column in enumerate(shown))
    return Section("Day by day", tuple(words), charts=charts)


def series_order(trends: Trends[Any]) -> list[int]:
    """Return the columns in the tables' order: what is followed, then the unknown mass."""
    if not trends.followed:
        return []
    series = list(range(trends.share.shape[1]))
    return [*series[1:], 0] if trends.has_unknown else series


def _largest(trends: Trends[Any], order: list[int], most: int) -> list[int]:
    kept = order[: len(trends.followed)]
    if len(kept) > most:
        mean = np.nan_to_num(trends.share[trends.decoded]).mean(axis=0)
        kept = sorted(sorted(kept, key=lambda column: -mean[column])[:most], key=order.index)
    return [*kept, *order[len(trends.followed) :]]


def _kind(trends: Trends[Any], column: int) -> str:
    return "unknown" if trends.name(column) is None else trends.kind


def _table(trends: Trends[Any], order: list[int], limit: int) -> Table:
    """Return the largest series' shares over the days, and when they changed."""
    columns = _largest(trends, order, limit)
    left_out = len(order) - len(columns)
    by_day, shown = len(trends.days) <= _DAYS_IN_COLUMNS, _quantity(trends).shown
    weekly = any(_has_pattern(trends, column) for column in columns)
    rows = []
    for column in columns:
        shares = trends.share[:, column]
        if by_day:
            cells = [shown(float(share)) for share in shares]
        else:
            known = shares[~np.isnan(shares)]
            ends = [shown(float(known[i])) if len(known) else "" for i in (0, -1)]
            cells = [sparkline(shares), *ends]
        name = trends.name(column)
        rows.append(
            (
                "unknown" if name is None else visible(name),
                *cells,
                *([_week(trends, column)] if weekly else []),
                describe_changes(trends, column),
            )
        )
    course = () if by_day else (Heading("course", "left"),)
    days = [f"{day:%m-%d}" for day in trends.days] if by_day else ["first", "last"]
    heads = (
        Heading(trends.kind, "left"),
        *course,
        *map(Heading, days),
        *([Heading("Monday to Sunday", "left")] if weekly else []),
        Heading("changed on", "left"),
    )
    return Table(
        f"{_quantity(trends).word.capitalize()}s day by day, {trends.days[0]} to {trends.days[-1]}",
        heads,
        tuple(rows),
        f"{left_out:,}" if left_out else "",
        tuple("italic" if trends.name(column) is None else "" for column in columns),
    )


def describe_changes(trends: Trends[Any], column: int) -> str:
    """Return the days on which, or from which on, a series is another, and by how much."""
    shown = _quantity(trends).shown
    words = []
    for change in trends.found.changes[column]:
        day, last = _dates(trends, change).values()
        until = {"shift": "", "spike": " alone", "stretch": f" until {last}"}[change.form]
        sign = "▲" if change.after > change.before else "▼"
        words.append(f"{day}{until} {sign} {shown(change.before)} to {shown(change.after)}")
    return ", ".join(words)


def _week(trends: Trends[Any], column: int) -> str:
    effect = trends.found.weekday_effect[:, column]
    if np.isnan(effect).all():
        return ""
    most = int(np.nanargmax(np.abs(effect)))
    size = _quantity(trends).differing(float(effect[most]))
    return f"{sparkline(effect - np.nanmin(effect))} {_WEEKDAYS[most]} {size}"


def sparkline(shares: FloatArray) -> str:
    """Return one character per day, from 0 to the largest share; a dot where nothing is known.

    Examples
    --------
    >>> sparkline(np.array([0.1, 0.2, np.nan, 0.4]))
    '▃▅·█'
    """
    top = float(np.nanmax(shares, initial=0.0)) or 1.0
    heights = np.clip(np.nan_to_num(shares) / top, 0, 1) * (len(_SPARKS) - 1)
    return "".join(
        _GAP if np.isnan(share) else _SPARKS[round(float(height))]
        for share, height in zip(shares, heights, strict=True)
    )


def day_counts(trends: Trends[Any]) -> str:
    """Return how many days were decoded, and why others weren't."""
    decoded = int(trends.decoded.sum())
    text = f"{decoded:,} of {len(trends.days):,} decoded"
    few = [day for day, known in zip(trends.days, trends.decoded, strict=True) if not known]
    if few:
        named = ", ".join(f"{day}" for day in few[:5]) + (", …" if len(few) > 5 else "")
        text += f"; the others have fewer than {trends.min_reports:,} reports each: {named}"
    return text


def _headline(trends: Trends[Any], columns: list[int]) -> str:
    """Return what was found, in a sentence."""
    changed = [column for column in columns if trends.found.changes[column]]
    days = f"From {trends.days[0]} to {trends.days[-1]}"
    if not columns:
        return f"{days} no string was detected, so there is nothing to follow."
    detected = "detected " if trends.has_unknown else ""
    followed = f"{days} {len(trends.followed):,} {detected}{_PLURALS[trends.kind]} were followed"
    weekly = sum(_has_pattern(trends, column) for column in columns)
    if weekly:
        followed += f", {weekly:,} of {len(columns):,} series with a weekly pattern"
    if not changed:
        return f"{followed}; no {_quantity(trends).word} changed by more than chance might."
    first = changed[0]
    named = trends.name(first)
    name = "the unknown mass" if named is None else f"“{shortened(visible(named), _IN_HEADLINE)}”"
    most = "among them" if len(changed) > 1 else "it is"
    return (
        f"{followed}; {len(changed):,} of {len(columns):,} series changed, {most} {name}: "
        f"{describe_changes(trends, first)}."
    )


def _changes(trends: Trends[Any], order: list[int]) -> Section:
    quantity = _quantity(trends)
    rows = tuple(
        (
            _name(trends, column),
            change.form,
            *(day or "" for day in _dates(trends, change).values()),
            quantity.shown(change.before),
            quantity.shown(change.after),
            quantity.differing(change.after - change.before)
            + f" ± {quantity.error.format(change.std_error)}",
            f"{change.p_value:.1e}",
            f"{trends.found.q_value[column]:.1e}",
        )
        for column in order
        for change in trends.found.changes[column]
    )
    heads = headings(
        trends.kind,
        *("change", "from", "until", "before", "after", "difference and its error"),
        *("p", "series' q"),
    )
    weekly = tuple(
        (
            _name(trends, column),
            *map(quantity.differing, trends.found.weekday_effect[:, column]),
            f"{trends.found.weekly_q_value[column]:.1e}",
        )
        for column in order
        if _has_pattern(trends, column)
    )
    weekdays = headings(trends.kind, *_WEEKDAYS, "q")
    tables = [Table("Changes", heads, rows)] if rows else []
    if weekly:
        title = "Weekly patterns: differences from the mean over weekdays"
        tables.append(Table(title, weekdays, weekly))
    return Section("What changed", () if rows else (_NO_CHANGE,), tables=tuple(tables))


def _course(trends: Trends[Any], column: int, index: int) -> TimeSeries:
    quantity = _quantity(trends)
    ends = [values[:, column] for values in (trends.share, trends.low, trends.high)]
    expected = trends.found.expected[:, column]
    share, low, high, expected = (quantity.factor * values for values in (*ends, expected))
    days = tuple(f"{day}" for day in trends.days)
    rows = tuple(
        (day, f"{reports:,}", *(quantity.shown(float(each)) for each in numbers))
        for day, reports, *numbers in zip(days, trends.reports, *ends, strict=True)
    )
    starts = {change.day for change in trends.found.changes[column]}
    returns = {
        change.last + 1 for change in trends.found.changes[column] if change.last is not None
    }
    changes = tuple(sorted(starts | returns))
    known = trends.share[~np.isnan(trends.share[:, column]), column]
    described = "Not estimated on any day."
    if len(known):
        described = (
            f"From {quantity.shown(known[0])} on the first day to {quantity.shown(known[-1])} on "
            f"the last, between {quantity.shown(known.min())} and {quantity.shown(known.max())}. "
        )
        changed = describe_changes(trends, column)
        described += f"Changed on {changed}." if changed else _NO_CHANGE
        week = _week(trends, column)
        described += f" Monday to Sunday: {week}." if week else ""
    labels = Labels(f"course-{index}", _name(trends, column), described, y=quantity.word)
    header = ("day", "reports", quantity.word, "from", "to")
    return TimeSeries(
        labels, days, share, low, high, expected, changes, header, rows, quantity.unit
    )


def _name(trends: Trends[Any], column: int) -> str:
    name = trends.name(column)
    return "unknown mass" if name is None else visible(name)
