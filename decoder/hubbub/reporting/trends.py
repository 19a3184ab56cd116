"""Trends as estimates: one row per day and series, their courses, and the changes among them.

Days that weren't decoded have nan. A series is a detected string or the unknown mass, and column
`kind` names it, since any string may be a candidate; or a category; or a number's statistic,
which is no share and is shown in its own unit. Column `changed` is true on the first day of each
change; `change` names it on every day of a spike or stretch, and on a shift's first.

Estimates of each value of a dimension, put side by side: rows, findings, tables and pages.

Invariant: a row is what it is in its own estimates; nothing is tested or corrected again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hubbub.inference import (
    CONFIDENCE,
    LEAST_DAYS,
    Z_CONFIDENCE,
    AnomalyReport,
    Change,
    FloatArray,
    Trends,
)
from hubbub.reporting.charts import Labels, TimeSeries
from hubbub.reporting.estimates import (
    Block,
    Column,
    Estimates,
    Heading,
    Line,
    Page,
    Section,
    Table,
    Values,
    headings,
)
from hubbub.reporting.findings import Finding
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import (
    BOOLEAN,
    ERROR_RATES,
    Provenance,
    chance_text,
    decoded_estimates,
    metadata_of,
    percent,
    privacy_section,
    share_columns,
    title_of,
)


def side_by_side(
    dimension: str,
    parts: Mapping[str, Estimates],
    refused: Mapping[str, str],
    more: Sequence[Finding] = (),
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
    ) + tuple(more)
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
        charts=() if page is None else page.picture,
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
        lines = tuple(f"{each.label}: {each.text}" for each in left_out)
        sections.append(Section("Left out", lines))
    title = next(iter(pages.values())).title
    headline = " ".join(f"{value}: {page.headline}" for value, page in pages.items())
    warnings = [
        f"{dimension} {value}: {warning}"
        for value, page in pages.items()
        for warning in page.warnings
    ]
    about = next(iter(pages.values())).about
    return Page(f"{title} by {dimension}", headline, sections, warnings, about=about)


_PLURALS = {"string": "strings", "category": "categories", "statistic": "statistics"}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GAP = "·"
_NO_CHANGE = "No change beyond what chance makes."
_COURSES = (
    f"Bands are {CONFIDENCE:.0%} intervals, each day by itself; grey days have too few reports. "
    "A red line marks a change; the dashed line is what was found, changes and weekly patterns."
)
_DAYS_IN_COLUMNS = 7  # a week fits on a terminal; more days are summed up
_IN_HEADLINE = 60  # characters of a string: the headline stays on two lines
_NAMED = 3  # series that the headline names
CHARTS = 40
"""Most strings that are drawn."""


class _Quantity(NamedTuple):
    """The quantity of a series, and its words."""

    word: str  # a heading
    factor: float  # by which it is multiplied in charts
    unit: str  # written after numbers of charts
    form: str  # formats of a value, of a signed difference of two, and of its error
    difference: str
    error: str

    def shown(self, value: float) -> str:
        """Return a value as text, a share between 0 and 1; a dot where nothing is known."""
        shown = value if self is _NUMBER else min(max(value, 0.0), 1.0)
        return _GAP if np.isnan(value) else self.form.format(shown)

    def differing(self, value: float) -> str:
        """Return a signed difference as text; a dot where nothing is known."""
        return _GAP if np.isnan(value) else self.difference.format(value)


_SHARE = _Quantity("share", 100.0, "%", "{:.2%}", "{:+.2%}", "{:.2%}")
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
    looks: int = 1,
) -> Estimates:
    """Return strings, categories or statistics day by day, series by series; unknown mass last.

    `looks`: among how many such results chance may mark a change with a probability of at most
    half of alpha; if above 1, what is less sure is in the metadata alone.
    """
    every = series_order(trends)
    mirrored = trends.followed == BOOLEAN and not trends.has_unknown
    order = every[1:] if mirrored else every  # what people are shown
    summary = trends.pooled.summary
    bound = summary.alpha / (2 * max(len(every), 1) * looks) if looks > 1 else 1.0
    return decoded_estimates(
        _headline(trends, order, bound),
        (
            _changes(trends, order, bound),
            _courses(trends, order, bound),
            privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        ),
        provenance,
        columns=_columns(trends, every),
        keys=("day", "kind", trends.kind) if trends.has_unknown else ("day", trends.kind),
        findings=(
            *_day_findings(trends, order),
            *findings,
            *_change_findings(trends, order, bound),
            *_weekly_findings(trends, order),
        ),
        metadata=metadata_of(summary, anomalies) | _by_day(trends, every, bound),
        view=(_table(trends, order, limit),),
        title=f"{title_of(provenance)}, day by day",
    )


def _columns(trends: Trends[Any], order: list[int]) -> dict[str, Column]:
    """Return the rows, series by series."""
    found, n_days = trends.found, len(trends.days)
    series = np.array(order, dtype=np.int64)
    reports = np.tile(trends.reports, len(series))
    weekdays = [day.weekday() for day in trends.days]
    shares = [
        values[:, series].T.ravel()
        for values in (trends.share, trends.std_error, trends.low, trends.high)
    ]
    numbers = dict(zip(("estimate", "std_error", "low", "high"), shares, strict=True))
    if _quantity(trends) is _SHARE:
        numbers = share_columns(reports, shares)
    columns = {"day": Column(str, [f"{day}" for day in trends.days] * len(series))}
    if trends.has_unknown:
        columns["kind"] = Column(str, _each([_kind(trends, column) for column in order], n_days))
    names = _each([trends.name(column) or "" for column in order], n_days)
    forms = [_forms_on(day, found.changes[column]) for column in order for day in range(n_days)]
    changed = [{change.day for change in found.changes[column]} for column in order]
    return {
        **columns,
        trends.kind: Column(str, names),
        "reports": Column(int, reports.tolist()),
        **{name: Column(float, each) for name, each in numbers.items()},
        "changed": Column(bool, [day in days for days in changed for day in range(n_days)]),
        "p_value": Column(float, np.repeat(found.p_value[series], n_days)),
        "q_value": Column(float, np.repeat(found.q_value[series], n_days)),
        "change": Column(str, forms),
        "weekday_effect": Column(float, found.weekday_effect[weekdays][:, series].T.ravel()),
        "weekly_p_value": Column(float, np.repeat(found.weekly_p_value[series], n_days)),
        "weekly_q_value": Column(float, np.repeat(found.weekly_q_value[series], n_days)),
    }


def _forms_on(day: int, changes: Sequence[Change]) -> str:
    return ", ".join(
        change.form
        for change in changes
        if day == change.day or (change.last is not None and change.day < day <= change.last)
    )


def _each(texts: list[str], times: int) -> list[str]:
    return [text for text in texts for _ in range(times)]


def _by_day(trends: Trends[Any], order: list[int], bound: float) -> dict[str, object]:
    """Return the days and the series, for programs; a change is sure by its p-value, its own."""
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
                    {
                        "form": change.form,
                        **asdict(change),
                        **_dates(trends, change),
                        "sure": change.p_value <= bound,
                        "text": describe_change(trends, change),
                    }
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
    changed = sum(bool(trends.found.changes[column]) for column in order)
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


def _change_findings(trends: Trends[Any], order: list[int], bound: float) -> tuple[Finding, ...]:
    """Return one sentence for each series that surely changed; its value is the days."""
    return tuple(
        Finding(
            "change",
            "",
            ("" if len(order) == 1 else f"{_name(trends, column)}: ")
            + "; ".join(describe_change(trends, each) for each in sure),
            [f"{trends.days[change.day]}" for change in sure],
        )
        for column in order
        if (sure := _sure(trends, column, bound))
    )


def _sure(trends: Trends[Any], column: int, bound: float) -> list[Change]:
    return [each for each in trends.found.changes[column] if each.p_value <= bound]


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


def _courses(trends: Trends[Any], order: list[int], bound: float) -> Section:
    shown = _largest(trends, order, CHARTS)
    words = [_COURSES] if order else []
    if len(order) > len(shown):
        words.append(f"{len(order) - len(shown):,} more aren't drawn.")
    charts = tuple(_course(trends, column, index, bound) for index, column in enumerate(shown))
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
    rows = []
    for column in columns:
        shares = trends.share[:, column]
        if not by_day:
            known = shares[~np.isnan(shares)]
            shares = known[[0, -1]] if len(known) else np.full(2, np.nan)
        cells = [shown(float(share)) for share in shares]
        name = trends.name(column)
        rows.append(
            (
                "unknown" if name is None else visible(name),
                *cells,
                describe_changes(trends, column),
            )
        )
    days = [f"{day:%m-%d}" for day in trends.days] if by_day else ["first", "last"]
    heads = (
        Heading(trends.kind, "left"),
        *map(Heading, days),
        Heading("changed on", "left"),
    )
    return Table(
        f"{_quantity(trends).word.capitalize()}s day by day, {trends.days[0]} to {trends.days[-1]}",
        heads,
        tuple(rows),
        f"{left_out:,}" if left_out else "",
    )


def describe_change(trends: Trends[Any], change: Change) -> str:
    """Return a change in words: "2.4% → 7.6% since 21 November"."""
    share = _quantity(trends) is _SHARE
    before, after = (
        percent(each) if share else _NUMBER.shown(each) for each in (change.before, change.after)
    )
    first = _day(trends, change.day)
    if change.last is None:
        return f"{before} → {after} since {first}"
    if change.last == change.day:
        return f"{after} on {first}, {before} otherwise"
    return f"{after} from {first} to {_day(trends, change.last)}, {before} otherwise"


def _day(trends: Trends[Any], place: int) -> str:
    """Return a day in words, with its year if that isn't the last day's."""
    day = trends.days[place]
    return f"{day:%-d %B}" if day.year == trends.days[-1].year else f"{day:%-d %B %Y}"


def describe_changes(trends: Trends[Any], column: int) -> str:
    """Return all changes of a series in words."""
    return "; ".join(describe_change(trends, each) for each in trends.found.changes[column])


def day_counts(trends: Trends[Any]) -> str:
    """Return how many days were decoded, and why others weren't."""
    decoded = int(trends.decoded.sum())
    text = f"{decoded:,} of {len(trends.days):,} decoded"
    few = [day for day, known in zip(trends.days, trends.decoded, strict=True) if not known]
    if few:
        named = ", ".join(f"{day}" for day in few[:5]) + (", …" if len(few) > 5 else "")
        text += f"; the others have fewer than {trends.min_reports:,} reports each: {named}"
    return text


def _headline(trends: Trends[Any], order: list[int], bound: float) -> str:
    """Return what changed, in a sentence."""
    changed = [column for column in order if _sure(trends, column, bound)]
    if not order:
        return "No string was detected, so there is nothing to follow."
    one = len(trends.followed) == 1
    followed = f"{len(trends.followed):,} {'detected ' if trends.has_unknown else ''}"
    followed += f"{trends.kind} was followed" if one else f"{_PLURALS[trends.kind]} were followed"
    weekly = sum(_has_pattern(trends, column) for column in order)
    also = f" {weekly:,} of {len(order):,} series have a weekly pattern." if weekly else ""
    if not changed:
        unchanged = f"no {_quantity(trends).word} changed beyond what chance makes"
        if len(order) == 1:
            return f"{unchanged.capitalize()}.{also}"
        return f"{followed}; {unchanged}.{also}"
    named = []
    for column in changed[:_NAMED]:
        name = "" if len(order) == 1 else f"{shortened(_name(trends, column), _IN_HEADLINE)}: "
        changes = (describe_change(trends, each) for each in _sure(trends, column, bound))
        named.append(f"{name}{'; '.join(changes)}")
    counted = "" if len(order) == 1 else f"{len(changed):,} of {len(order):,} series changed. "
    return f"{counted}{'; '.join(named)}.{also}"


def _changes(trends: Trends[Any], order: list[int], bound: float) -> Section:
    """Return what surely changed, how sure that is, and weekly patterns."""
    quantity = _quantity(trends)
    rows = tuple(
        (
            _name(trends, column),
            describe_change(trends, change),
            f"{100 * (change.after - change.before):+.2f} ± {100 * _half(change):.2f} points"
            if quantity is _SHARE
            else f"{change.after - change.before:+.3g} ± {_half(change):.2g}",
            chance_text(change.p_value),
        )
        for column in order
        for change in _sure(trends, column, bound)
    )
    heads = (
        *(Heading(each, "left") for each in (trends.kind, "what changed")),
        *map(Heading, ("difference", "chance of it if nothing had changed")),
    )
    weekly = tuple(
        (_name(trends, column), *map(quantity.differing, trends.found.weekday_effect[:, column]))
        for column in order
        if _has_pattern(trends, column)
    )
    tables = [Table("Changes", heads, rows)] if rows else []
    if weekly:
        title = "Weekly patterns: differences from the mean over weekdays"
        tables.append(Table(title, headings(trends.kind, *_WEEKDAYS), weekly))
    return Section("What changed", () if rows else (_NO_CHANGE,), tables=tuple(tables))


def _half(change: Change) -> float:
    """Return half the width of the interval of a change."""
    return Z_CONFIDENCE * change.std_error


def _course(trends: Trends[Any], column: int, index: int, bound: float) -> TimeSeries:
    quantity = _quantity(trends)
    sure = _sure(trends, column, bound)
    ends = [values[:, column] for values in (trends.share, trends.low, trends.high)]
    drawn = [*ends, trends.found.expected[:, column]]
    if quantity is _SHARE:
        drawn = [np.clip(each, 0.0, 1.0) for each in drawn]
    share, low, high, expected = (quantity.factor * values for values in drawn)
    days = tuple(f"{day}" for day in trends.days)
    rows = tuple(
        (day, f"{reports:,}", *(quantity.shown(float(each)) for each in numbers))
        for day, reports, *numbers in zip(days, trends.reports, *ends, strict=True)
    )
    known = share[~np.isnan(share)] / quantity.factor
    described = "Not estimated on any day."
    if len(known):
        changed = "; ".join(describe_change(trends, each) for each in sure)
        described = f"{changed}." if changed else _NO_CHANGE
        described += f" Daily estimates from {quantity.shown(known.min())} to "
        described += f"{quantity.shown(known.max())}."
    labels = Labels(f"course-{index}", _name(trends, column), described, y=quantity.word)
    header = ("day", "reports", quantity.word, "from", "to")
    marks = _marked_days(sure)
    return TimeSeries(labels, days, share, low, high, expected, marks, header, rows, quantity.unit)


def _marked_days(changes: Iterable[Change]) -> tuple[int, ...]:
    """Return the first days of changes, and those on which stretches are over."""
    ends = {end for each in changes for end in (each.day, each.last and each.last + 1)}
    return tuple(sorted(end for end in ends if end is not None))


def _name(trends: Trends[Any], column: int) -> str:
    name = trends.name(column)
    return "unknown mass" if name is None else visible(name)
