"""Trends as people and programs want them: terminal table, CSV, JSON, Parquet.

Files are in long form, a row a day and series; days that weren't decoded have empty cells or
nulls. A series is a detected string or the unknown mass, and column `kind` says which, since any
string may be a candidate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.output.cells import cell, csv_line, finite, finite_fields
from hubbub.decoder.output.parquet import Columns, write_table
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import printable
from hubbub.decoder.output.summary import ERROR_RATES, lines_table, summary_lines
from hubbub.decoder.reports.scrutiny import Findings
from hubbub.decoder.trends.decoding import Trends

TYPES: dict[str, type] = {
    "day": str,
    "kind": str,
    "string": str,
    "reports": int,
    "count": float,
    "std_error": float,
    "count_low": float,
    "count_high": float,
    "proportion": float,
    "prop_std_error": float,
    "prop_low": float,
    "prop_high": float,
    "changed": bool,
    "p_value": float,
    "q_value": float,
}
_SPARKS = "▁▂▃▄▅▆▇█"
_GAP = "·"
_DAYS_IN_COLUMNS = 7


def rows(trends: Trends) -> Iterator[dict[str, Any]]:
    """Yield a row a day, series by series, the unknown mass last; nan where nothing is known."""
    for column in series_order(trends):
        changed = {change.day for change in trends.changes[column]}
        for index, day in enumerate(trends.days):
            reports = int(trends.reports[index])
            shares = [
                float(values[index, column])
                for values in (trends.share, trends.std_error, trends.low, trends.high)
            ]
            values = [
                f"{day}",
                "string" if column else "unknown",
                trends.strings[column - 1] if column else "",
                reports,
                *(share * reports for share in shares),
                *shares,
                index in changed,
                float(trends.p_value[column]),
                float(trends.q_value[column]),
            ]
            yield dict(zip(TYPES, values, strict=True))


def series_order(trends: Trends) -> list[int]:
    """Return the columns as readers want them: strings, largest first, then the unknown mass."""
    return [*range(1, 1 + len(trends.strings)), 0] if trends.strings else []


def csv_chunks(trends: Trends) -> Iterator[str]:
    """Yield CSV with a header and bare line feeds."""
    yield csv_line(tuple(TYPES))
    for row in rows(trends):
        yield csv_line([_cell(value) for value in row.values()])


def besides_rows(
    trends: Trends, findings: Findings | None, provenance: Provenance | None
) -> dict[str, object]:
    """Return what there is to tell besides the rows, as JSON can hold it."""
    return {
        "summary": finite_fields(asdict(trends.pooled.summary)),
        "scrutiny": findings and findings.as_json(),
        "provenance": provenance and provenance.as_json(),
        "min_reports": trends.min_reports,
        "days": [
            {"day": f"{day}", "reports": int(reports), "decoded": bool(decoded)}
            for day, reports, decoded in zip(
                trends.days, trends.reports, trends.decoded, strict=True
            )
        ],
        "series": [_series(trends, column) for column in series_order(trends)],
    }


def _series(trends: Trends, column: int) -> dict[str, object]:
    return {
        "kind": "string" if column else "unknown",
        "string": trends.strings[column - 1] if column else "",
        "p_value": float(trends.p_value[column]),
        "q_value": float(trends.q_value[column]),
        "changes": [
            {**asdict(change), "day": f"{trends.days[change.day]}"}
            for change in trends.changes[column]
        ],
    }


def to_json(
    trends: Trends, *, findings: Findings | None = None, provenance: Provenance | None = None
) -> str:
    """Return an object with what `besides_rows` tells, and "rows"."""
    document = besides_rows(trends, findings, provenance)
    document["rows"] = [{key: finite(value) for key, value in row.items()} for row in rows(trends)]
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def write_parquet(
    file: BinaryIO,
    trends: Trends,
    *,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write the rows with types (days as text, as in CSV)."""
    every = list(rows(trends))
    columns: Columns = {name: [row[name] for row in every] for name in TYPES}
    write_table(file, TYPES, [columns], besides_rows(trends, findings, provenance))


def print_table(
    trends: Trends, console: Console, *, limit: int = 40, findings: Findings | None = None
) -> None:
    """Show the largest strings' shares over the days, what changed, and the pooled summary."""
    order = series_order(trends)
    shown = [*order[:-1][:limit], *order[-1:]]
    console.print(_table(trends, shown))
    console.print()
    if len(order) > len(shown):
        console.print(f"… and {len(order) - len(shown):,} more; --output writes them all\n")
    console.print(lines_table(_day_lines(trends) | summary_lines(trends.pooled, findings)))


def _table(trends: Trends, columns: list[int]) -> Table:
    title = f"Shares day by day, {trends.days[0]} to {trends.days[-1]}"
    table = Table(title=title, title_justify="left")
    table.add_column("string", overflow="fold")
    by_day = len(trends.days) <= _DAYS_IN_COLUMNS
    headings = [f"{day:%m-%d}" for day in trends.days] if by_day else ["first", "last"]
    if not by_day:
        table.add_column("course", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("changed on")
    for column in columns:
        shares = trends.share[:, column]
        if by_day:
            cells = [percent(float(share)) for share in shares]
        else:
            known = shares[~np.isnan(shares)]
            ends = [percent(float(known[i])) if len(known) else "" for i in (0, -1)]
            cells = [sparkline(shares), *ends]
        name = printable(trends.strings[column - 1]) if column else Text("unknown", style="italic")
        table.add_row(name, *cells, changes_told(trends, column))
    return table


def changes_told(trends: Trends, column: int) -> str:
    """Return the days from which on a series is another, and by how much."""
    return ", ".join(
        f"{trends.days[change.day]} {'▲' if change.after > change.before else '▼'} "
        f"{percent(change.before)} to {percent(change.after)}"
        for change in trends.changes[column]
    )


def percent(share: float) -> str:
    """Return a share in percent; a dot where nothing is known."""
    return _GAP if np.isnan(share) else f"{share:.2%}"


def sparkline(shares: FloatArray) -> str:
    """Return a character a day, from 0 to the largest share; a dot where nothing is known."""
    top = float(np.nanmax(shares, initial=0.0)) or 1.0
    heights = np.clip(np.nan_to_num(shares) / top, 0, 1) * (len(_SPARKS) - 1)
    return "".join(
        _GAP if np.isnan(share) else _SPARKS[round(float(height))]
        for share, height in zip(shares, heights, strict=True)
    )


def day_counts(trends: Trends) -> str:
    """Return how many days were decoded, and why others weren't."""
    decoded = int(trends.decoded.sum())
    text = f"{decoded:,} of {len(trends.days):,} decoded"
    few = [day for day, known in zip(trends.days, trends.decoded, strict=True) if not known]
    if few:
        named = ", ".join(f"{day}" for day in few[:5]) + (", …" if len(few) > 5 else "")
        text += f"; the others have fewer than {trends.min_reports:,} reports each: {named}"
    return text


def _day_lines(trends: Trends) -> dict[str, str]:
    summary = trends.pooled.summary
    changed = sum(bool(each) for each in trends.changes)
    rate = ERROR_RATES[summary.correction].replace("detection", "change")
    return {
        "days": day_counts(trends),
        "changed": f"{changed:,} of {len(series_order(trends)):,} series at a {rate} of at most "
        f"{summary.alpha:g}",
    }


def _cell(value: str | float | bool) -> str:
    return f"{value}" if type(value) is int else cell(value)
