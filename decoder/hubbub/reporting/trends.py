"""Trends as estimates: one row per day and series, their courses, and the changes among them.

Days that weren't decoded have nan. A series is a detected string or the unknown mass, and column
`kind` names it, since any string may be a candidate; or a category; or a number's statistic,
which is no share and is shown in its own unit. Column `changed` is true on the first day of each
change; `change` names it on every day of a spike or stretch, and on a shift's first.

Estimates of each value of a dimension, put side by side: rows, findings, tables and pages.

Invariant: a row is what it is in its own estimates; nothing is tested or corrected again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
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
    percent,
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
        values: list[Any] = [part[name] for part in parts.values()]
        is_array = isinstance(values[0], np.ndarray)
        joined = np.concatenate(values) if is_array else list(chain.from_iterable(values))
        columns[name] = Column(column.type, joined)
    left_out = [
        Finding(f"left_out:{value}", f"{dimension}={value} left out", why)
        for value, why in refused.items()
    ]
    left_out += more
    lines = [f"{each.label}: {each.text}" for each in left_out]
    findings, view = list[Finding](), list[Block]()
    pages, sections, warnings = list[Page](), list[Section](), list[str]()
    for value, part in parts.items():
        findings += [
            each._replace(code=f"{each.code}:{value}", label=f"{each.label} ({dimension}={value})")
            for each in part.findings
        ]
        view += [Line(f"{dimension} = {value}"), *part.view, Line("")]
        if part.page is not None:
            pages.append(replace(part.page, headline=f"{value}: {part.page.headline}"))
            of_value = f"{dimension} {value}: "
            sections += [replace(each, title=of_value + each.title) for each in part.page.sections]
            warnings += [of_value + each for each in part.page.warnings]
    view = [*view, *map(Line, lines)] if lines else view[:-1]
    page = None
    if pages:
        if lines:
            sections.append(Section("Left out", tuple(lines)))
        headline = " ".join(each.headline for each in pages)
        title = f"{pages[0].title} by {dimension}"
        page = Page(title, headline, sections, warnings, about=pages[0].about)
    return Estimates(
        columns=columns,
        keys=(dimension, *first.keys),
        findings=(*findings, *left_out),
        metadata={"by": dimension, "slices": {name: each.metadata for name, each in parts.items()}},
        view=tuple(view),
        page=page,
        charts=page.picture if page else (),
    )


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
_CHARTS = 40
"""Most strings that are drawn."""


class _Quantity(NamedTuple):
    """The quantity of a series, and its words."""

    word: str  # a heading
    factor: float  # by which it is multiplied in charts
    unit: str  # written after numbers of charts
    form: str  # formats of a value, and of a signed difference of two
    difference: str

    def shown(self, value: float) -> str:
        """Return a value as text, a share between 0 and 1; a dot where nothing is known."""
        shown = value if self is _NUMBER else min(max(value, 0.0), 1.0)
        return _GAP if np.isnan(value) else self.form.format(shown)

    def differing(self, value: float) -> str:
        """Return a signed difference as text; a dot where nothing is known."""
        return _GAP if np.isnan(value) else self.difference.format(value)


_SHARE = _Quantity("share", 100.0, "%", "{:.2%}", "{:+.2%}")
_NUMBER = _Quantity("estimate", 1.0, "", "{:.4g}", "{:+.3g}")


def _quantity(trends: Trends[Any]) -> _Quantity:
    return _NUMBER if trends.kind == "statistic" else _SHARE


class _Series(NamedTuple):
    """A series, and what people are told of it."""

    column: int
    name: str
    changes: list[Change]  # those that are sure
    weekly: FloatArray | None  # the effect of each weekday, if there is a pattern


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
    every: list[int] = []
    if trends.followed:
        every = list(range(trends.share.shape[1]))
        every = [*every[1:], 0] if trends.has_unknown else every
    summary, found = trends.pooled.summary, trends.found
    bound = summary.alpha / (2 * max(len(every), 1) * looks) if looks > 1 else 1.0
    mirrored = trends.followed == BOOLEAN and not trends.has_unknown
    series = []
    for column in every[1:] if mirrored else every:  # what people are shown
        name, effect = trends.name(column), found.weekday_effect[:, column]
        sure = [change for change in found.changes[column] if change.p_value <= bound]
        weekly = None if np.isnan(effect).all() else effect
        series.append(
            _Series(column, "unknown mass" if name is None else visible(name), sure, weekly)
        )
    return decoded_estimates(
        _headline(trends, series),
        (_changes(trends, series), _courses(trends, series)),
        provenance,
        columns=_columns(trends, every),
        keys=("day", "kind", trends.kind) if trends.has_unknown else ("day", trends.kind),
        findings=tuple(_findings(trends, series, findings)),
        summary=summary,
        anomalies=anomalies,
        metadata=_by_day(trends, every, bound),
        view=(_table(trends, series, limit),),
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

    def texts(of: Callable[[int], str]) -> Column:
        return Column(str, [text for column in order for text in [of(column)] * n_days])

    forms = [_forms_on(day, found.changes[column]) for column in order for day in range(n_days)]
    changed = [{change.day for change in found.changes[column]} for column in order]
    return {
        "day": Column(str, [f"{day}" for day in trends.days] * len(series)),
        **({"kind": texts(partial(_kind, trends))} if trends.has_unknown else {}),
        trends.kind: texts(lambda column: trends.name(column) or ""),
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


def _kind(trends: Trends[Any], column: int) -> str:
    return "unknown" if trends.name(column) is None else trends.kind


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
                        "day": f"{trends.days[change.day]}",
                        "last": None if change.last is None else f"{trends.days[change.last]}",
                        "sure": change.p_value <= bound,
                        "text": _change_text(trends, change),
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


def _by_weekday(numbers: FloatArray) -> dict[str, float | None] | None:
    if np.isnan(numbers).all():
        return None
    known = [None if np.isnan(number) else float(number) for number in numbers]
    return dict(zip(_WEEKDAYS, known, strict=True))


def _weeks_are_compared(trends: Trends[Any]) -> bool:
    return int(trends.decoded.sum()) >= LEAST_DAYS


def _findings(
    trends: Trends[Any], series: Sequence[_Series], others: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield how many days were decoded and series changed, `others`, and a sentence for each."""
    decoded, summary = int(trends.decoded.sum()), trends.pooled.summary
    text = f"{decoded:,} of {len(trends.days):,} decoded"
    few = [f"{day}" for day, known in zip(trends.days, trends.decoded, strict=True) if not known]
    if few:
        named = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
        text += f"; the others have fewer than {trends.min_reports:,} reports each: {named}"
    yield Finding("days", "days", text, decoded)

    def counted(number: int, what: str) -> str:
        rate = ERROR_RATES[summary.correction].replace("detection", what)
        return f"{number:,} of {len(series):,} series at a {rate} of at most {summary.alpha:g}"

    changed = sum(bool(trends.found.changes[each.column]) for each in series)
    yield Finding("changed", "changed", counted(changed, "change"), changed)
    if _weeks_are_compared(trends):
        weekly = sum(each.weekly is not None for each in series)
        yield Finding("weekly", "weekly pattern", counted(weekly, "pattern"), weekly)
    yield from others
    for each in series:
        if each.changes:
            text = "; ".join(_change_text(trends, change) for change in each.changes)
            days = [f"{trends.days[change.day]}" for change in each.changes]
            text = text if len(series) == 1 else f"{each.name}: {text}"
            yield Finding("change", "", text, days)
    for each in series:
        if each.weekly is not None:
            sizes = map(_quantity(trends).differing, each.weekly)
            words = ", ".join(map(" ".join, zip(_WEEKDAYS, sizes, strict=True)))
            text = f"{each.name}, compared with the mean over weekdays: {words}"
            yield Finding("weekly_pattern", "", text, _by_weekday(each.weekly))


def _largest(trends: Trends[Any], series: Sequence[_Series], most: int) -> list[_Series]:
    """Return the series of the largest mean shares in their order, and the unknown mass."""
    kept, others = series[: len(trends.followed)], series[len(trends.followed) :]
    if len(kept) > most:
        mean = np.nan_to_num(trends.share[trends.decoded]).mean(axis=0)
        places = sorted(range(len(kept)), key=lambda place: -mean[kept[place].column])
        kept = [kept[place] for place in sorted(places[:most])]
    return [*kept, *others]


def _table(trends: Trends[Any], series: Sequence[_Series], limit: int) -> Table:
    """Return the largest series' shares over the days, and when they changed."""
    largest = _largest(trends, series, limit)
    by_day, quantity = len(trends.days) <= _DAYS_IN_COLUMNS, _quantity(trends)
    rows = []
    for each in largest:
        shares = trends.share[:, each.column]
        if not by_day:
            known = shares[~np.isnan(shares)]
            shares = known[[0, -1]] if len(known) else np.full(2, np.nan)
        name = "unknown" if trends.name(each.column) is None else each.name
        changes = trends.found.changes[each.column]
        texts = "; ".join(_change_text(trends, change) for change in changes)
        rows.append((name, *(quantity.shown(float(share)) for share in shares), texts))
    days = [f"{day:%m-%d}" for day in trends.days] if by_day else ["first", "last"]
    left_out = len(series) - len(largest)
    return Table(
        f"{quantity.word.capitalize()}s day by day, {trends.days[0]} to {trends.days[-1]}",
        (*headings(trends.kind, *days), Heading("changed on", "left")),
        tuple(rows),
        f"{left_out:,}" if left_out else "",
    )


def _change_text(trends: Trends[Any], change: Change) -> str:
    """Return a change in words: "2.4% → 7.6% since 21 November"."""

    def day_text(place: int) -> str:  # with its year if that isn't the last day's
        day = trends.days[place]
        return f"{day:%-d %B}" if day.year == trends.days[-1].year else f"{day:%-d %B %Y}"

    shown = percent if _quantity(trends) is _SHARE else _NUMBER.shown
    before, after, first = shown(change.before), shown(change.after), day_text(change.day)
    if change.last is None:
        return f"{before} → {after} since {first}"
    if change.last == change.day:
        return f"{after} on {first}, {before} otherwise"
    return f"{after} from {first} to {day_text(change.last)}, {before} otherwise"


def _headline(trends: Trends[Any], series: Sequence[_Series]) -> str:
    """Return what changed, in a sentence."""
    if not series:
        return "No string was detected, so there is nothing to follow."
    changed = [each for each in series if each.changes]
    one = len(trends.followed) == 1
    followed = f"{len(trends.followed):,} {'detected ' if trends.has_unknown else ''}"
    followed += f"{trends.kind} was followed" if one else f"{_PLURALS[trends.kind]} were followed"
    weekly = sum(each.weekly is not None for each in series)
    also = f" {weekly:,} of {len(series):,} series have a weekly pattern." if weekly else ""
    if not changed:
        unchanged = f"no {_quantity(trends).word} changed beyond what chance makes"
        if len(series) == 1:
            return f"{unchanged.capitalize()}.{also}"
        return f"{followed}; {unchanged}.{also}"
    named = []
    for each in changed[:_NAMED]:
        name = "" if len(series) == 1 else f"{shortened(each.name, _IN_HEADLINE)}: "
        named.append(name + "; ".join(_change_text(trends, change) for change in each.changes))
    counted = "" if len(series) == 1 else f"{len(changed):,} of {len(series):,} series changed. "
    return f"{counted}{'; '.join(named)}.{also}"


def _changes(trends: Trends[Any], series: Sequence[_Series]) -> Section:
    """Return what surely changed, how sure that is, and weekly patterns."""
    quantity, rows = _quantity(trends), []
    for each in series:
        for change in each.changes:
            size, error = change.after - change.before, Z_CONFIDENCE * change.std_error
            difference = f"{size:+.3g} ± {error:.2g}"
            if quantity is _SHARE:
                difference = f"{100 * size:+.2f} ± {100 * error:.2f} points"
            chance = chance_text(change.p_value)
            rows.append((each.name, _change_text(trends, change), difference, chance))
    heads = (
        *(Heading(each, "left") for each in (trends.kind, "what changed")),
        *map(Heading, ("difference", "chance of it if nothing had changed")),
    )
    weekly = tuple(
        (each.name, *map(quantity.differing, each.weekly))
        for each in series
        if each.weekly is not None
    )
    tables = [Table("Changes", heads, tuple(rows))] if rows else []
    if weekly:
        title = "Weekly patterns: differences from the mean over weekdays"
        tables.append(Table(title, headings(trends.kind, *_WEEKDAYS), weekly))
    return Section("What changed", () if rows else (_NO_CHANGE,), tables=tuple(tables))


def _courses(trends: Trends[Any], series: Sequence[_Series]) -> Section:
    """Return the largest series as charts."""
    shown = _largest(trends, series, _CHARTS)
    words = [_COURSES] if series else []
    if len(series) > len(shown):
        words.append(f"{len(series) - len(shown):,} more aren't drawn.")
    charts = tuple(_course(trends, each, index) for index, each in enumerate(shown))
    return Section("Day by day", tuple(words), charts=charts)


def _course(trends: Trends[Any], series: _Series, index: int) -> TimeSeries:
    quantity = _quantity(trends)
    ends = [values[:, series.column] for values in (trends.share, trends.low, trends.high)]
    drawn = [*ends, trends.found.expected[:, series.column]]
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
        changed = "; ".join(_change_text(trends, each) for each in series.changes)
        described = f"{changed}." if changed else _NO_CHANGE
        described += f" Daily estimates from {quantity.shown(known.min())} to "
        described += f"{quantity.shown(known.max())}."
    labels = Labels(f"course-{index}", series.name, described, y=quantity.word)
    header = ("day", "reports", quantity.word, "from", "to")
    # The first days of changes, and those on which stretches are over.
    marks = {each.day for each in series.changes}
    marks |= {each.last + 1 for each in series.changes if each.last is not None}
    marked = tuple(sorted(marks))
    return TimeSeries(labels, days, share, low, high, expected, marked, header, rows, quantity.unit)
