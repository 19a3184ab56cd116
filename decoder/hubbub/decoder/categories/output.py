"""A category decoding as people and programs want it: terminal table, CSV, JSON.

The same decoding gives the same bytes. Columns that strings have, too, have the same names and
meanings (`hubbub.decoder.output.strings`); where there is nothing to tell, CSV cells are empty and
JSON values null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.categories.decoding import CategoryDecoding
from hubbub.decoder.categories.summary import quantile_table, summary_table
from hubbub.decoder.inference.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.decoder.output.cells import cell, csv_line, finite
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import printable
from hubbub.decoder.reports.scrutiny import Findings

_Cell = str | float | bool
_Row = dict[str, _Cell]
_INTERVAL = f"{CONFIDENCE:.0%} interval"


def rows(decoding: CategoryDecoding, *, detected_only: bool = False) -> Iterator[_Row]:
    """Yield a row a category, in the registry's order; keys are the columns, nan is "nothing"."""
    behind, behind_error = _behind(decoding)
    for index in range(len(decoding.categories)):
        if detected_only and not decoding.detected[index]:
            continue
        row = _common(decoding, index)
        if decoding.summary.type == "enum":
            row |= {
                "behind": float(behind[index]),
                "behind_std_error": float(behind_error[index]),
            }
        if decoding.ordinal:
            row |= {
                "bucket_low": decoding.bounds[index][0],
                "bucket_high": decoding.bounds[index][1],
                "cumulative": float(decoding.ordinal.cumulative[index]),
                "cum_low": float(decoding.ordinal.interval.low[index]),
                "cum_high": float(decoding.ordinal.interval.high[index]),
            }
        yield row


def to_csv(decoding: CategoryDecoding, *, detected_only: bool = False) -> str:
    """Return CSV with a header and bare line feeds; quoted where RFC 4180 asks for it."""
    header = tuple(next(rows(decoding)))
    chosen = rows(decoding, detected_only=detected_only)
    return csv_line(header) + "".join(csv_line([_cell(x) for x in row.values()]) for row in chosen)


def besides_rows(
    decoding: CategoryDecoding, findings: Findings | None, provenance: Provenance | None
) -> dict[str, object]:
    """Return "summary", "scrutiny", "provenance" and "known_rates" as JSON can hold them.

    Ordinals have "quantiles" and "inner_mean" (or null) besides.
    """
    document: dict[str, object] = {
        "summary": _finite(asdict(decoding.summary)),
        "scrutiny": findings and findings.as_json(),
        "provenance": provenance and provenance.as_json(),
        "known_rates": _finite(decoding.known_rates._asdict()),
    }
    if decoding.ordinal:
        mean = decoding.ordinal.inner_mean
        document["quantiles"] = [_finite(asdict(x)) for x in decoding.ordinal.quantiles]
        document["inner_mean"] = mean and _finite(asdict(mean))
    return document


def to_json(
    decoding: CategoryDecoding,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> str:
    """Return an object with what `besides_rows` tells, and "rows"."""
    document = besides_rows(decoding, findings, provenance)
    document["rows"] = [_finite(row) for row in rows(decoding, detected_only=detected_only)]
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def print_table(
    decoding: CategoryDecoding,
    console: Console,
    *,
    detected_only: bool = False,
    limit: int = 40,
    findings: Findings | None = None,
) -> None:
    """Show the largest categories (an ordinal's in the order of its buckets) and the summary."""
    order = np.argsort(-decoding.estimates.share, kind="stable")
    if detected_only:
        order = order[decoding.detected[order]]
    shown = np.sort(order[:limit]) if decoding.ordinal else order[:limit]
    console.print(_table(decoding, shown))
    console.print()
    if len(order) > limit:
        console.print(f"… and {len(order) - limit:,} smaller ones; --output writes them all\n")
    if decoding.ordinal:
        console.print(quantile_table(decoding.ordinal))
        console.print()
    console.print(summary_table(decoding, findings))


def _common(decoding: CategoryDecoding, index: int) -> _Row:
    estimates, n_reports = decoding.estimates, decoding.summary.reports
    share, std_error = float(estimates.share[index]), float(estimates.std_error[index])
    low, high = float(decoding.interval.low[index]), float(decoding.interval.high[index])
    return {
        "category": decoding.categories[index],
        "count": share * n_reports,
        "std_error": std_error * n_reports,
        "count_low": low * n_reports,
        "count_high": high * n_reports,
        "proportion": share,
        "prop_std_error": std_error,
        "prop_low": low,
        "prop_high": high,
        "unbiased": float(estimates.unbiased[index]),
        "p_value": math.exp(estimates.log_p_value[index]),
        "q_value": float(decoding.q_value[index]),
        "detected": bool(decoding.detected[index]),
    }


def _behind(decoding: CategoryDecoding) -> tuple[FloatArray, FloatArray]:
    """Return by how much each category's share is below the largest one's; nan for that one."""
    n, first = len(decoding.categories), int(np.argmax(decoding.estimates.share))
    weights = -np.eye(n)
    weights[:, first] += 1.0
    difference, std_error = decoding.estimates.contrast(weights)
    difference[first] = std_error[first] = np.nan
    return difference, std_error


def _table(decoding: CategoryDecoding, indices: IntArray) -> Table:
    ordinal = decoding.ordinal
    title = "Buckets, in order" if ordinal else "Categories, largest first"
    table = Table(title=title, title_justify="left")
    table.add_column("bucket" if ordinal else "category", overflow="fold")
    headings = ["count", "share", _INTERVAL]
    if ordinal:
        headings += ["up to here", _INTERVAL]
    if decoding.summary.type == "enum":
        headings.append("points behind the largest")
    for heading in (*headings, "q"):
        table.add_column(heading, justify="right")
    table.add_column("detected", justify="center")
    every = list(rows(decoding))
    for index in indices:
        row = every[int(index)]
        found = bool(row["detected"])
        table.add_row(*_cells(row), style=None if found else "dim")
    return table


def _cells(row: _Row) -> list[str | Text]:
    cells: list[str | Text] = [
        printable(str(row["category"])),
        f"{row['count']:,.0f}",
        f"{row['proportion']:.3%}",
        f"{row['prop_low']:.2%} … {row['prop_high']:.2%}",
    ]
    if "cumulative" in row:
        cells.append(f"{row['cumulative']:.2%}")
        cells.append(f"{row['cum_low']:.2%} … {row['cum_high']:.2%}")
    if "behind" in row:
        behind, error = float(row["behind"]), float(row["behind_std_error"])
        told = f"{100 * behind:.2f} ± {100 * Z_CONFIDENCE * error:.2f}"
        cells.append("" if math.isnan(behind) else told)
    return [*cells, f"{row['q_value']:.1e}", "yes" if row["detected"] else ""]


def _cell(value: _Cell) -> str:
    return "" if isinstance(value, float) and math.isinf(value) else cell(value)


def _finite(row: dict[str, _Cell]) -> dict[str, object]:
    return {key: finite(value) for key, value in row.items()}
