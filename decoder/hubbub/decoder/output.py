"""A decoding as people and programs want it: terminal table, CSV, JSON.

The same decoding gives the same bytes. Where the data can't tell (see `Summary.indistinguishable`)
CSV cells are empty and JSON values null.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hubbub.decoder.arrays import IntArray
from hubbub.decoder.decoding import CONFIDENCE, Decoding
from hubbub.decoder.scrutiny import Findings
from hubbub.decoder.summary import summary_table


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate's result; counts and proportions are of the collected reports."""

    string: str
    count: float
    std_error: float
    count_low: float
    count_high: float
    proportion: float
    prop_std_error: float
    prop_low: float
    prop_high: float
    p_value: float
    q_value: float
    detected: bool


COLUMNS = tuple(field.name for field in fields(Row))


def rows(decoding: Decoding, *, detected_only: bool = False) -> Iterator[Row]:
    """Yield a row a candidate, in the candidates' order."""
    chosen = np.flatnonzero(decoding.detected) if detected_only else range(len(decoding.candidates))
    for index in chosen:
        yield _row(decoding, int(index))


def write(
    decoding: Decoding,
    path: str,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
) -> None:
    """Write a .csv or .json file, whole or not at all.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file can't be written.
    """
    write_rendered(
        path,
        {
            ".csv": lambda: to_csv(decoding, detected_only=detected_only),
            ".json": lambda: to_json(decoding, detected_only=detected_only, findings=findings),
        },
    )


def write_rendered(path: str, renderings: Mapping[str, Callable[[], str]]) -> None:
    """Write the rendering that a file's name asks for, whole or not at all (raises as `write`)."""
    render = renderings.get(Path(path).suffix)
    if render is None:
        raise ValueError(f"output {path!r}: must end in {' or '.join(renderings)}")
    write_text(path, render())


def write_text(path: str, text: str) -> None:
    """Write a UTF-8 file, whole or not at all.

    Raises
    ------
    OSError
        If it can't be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def to_csv(decoding: Decoding, *, detected_only: bool = False) -> str:
    """Return CSV with a header and bare line feeds; quoted where RFC 4180 asks for it."""
    chosen = rows(decoding, detected_only=detected_only)
    cells = ([cell(getattr(row, column)) for column in COLUMNS] for row in chosen)
    return csv_line(COLUMNS) + "".join(map(csv_line, cells))


def to_json(
    decoding: Decoding, *, detected_only: bool = False, findings: Findings | None = None
) -> str:
    """Return an object with "summary", "scrutiny" (null without findings) and "rows"."""
    document = {
        "summary": {key: finite(value) for key, value in asdict(decoding.summary).items()},
        "scrutiny": findings and findings.as_json(),
        "rows": [
            {column: finite(getattr(row, column)) for column in COLUMNS}
            for row in rows(decoding, detected_only=detected_only)
        ],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def stdout_console(width: int = 120) -> Console:
    """Return the terminal, or plain lines of a fixed width where output isn't one."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def print_table(
    decoding: Decoding,
    console: Console,
    *,
    detected_only: bool = False,
    limit: int = 40,
    findings: Findings | None = None,
) -> None:
    """Show the strongest candidates and the summary."""
    order = _strongest_first(decoding)
    if detected_only:
        order = order[decoding.detected[order]]
    console.print(Group(_table(decoding, order[:limit]), Text()))
    if len(order) > limit:
        console.print(f"… and {len(order) - limit:,} more; --output writes them all\n")
    console.print(summary_table(decoding, findings))


def printable(string: str) -> Text:
    """Return a string as a terminal may show it: control characters escaped, nothing invisible."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in string
    )
    if shown != shown.strip() or not shown:
        shown = f'"{shown}"'
    return Text(shown, overflow="fold")


def _table(decoding: Decoding, indices: IntArray) -> Table:
    table = Table(title="Candidates, strongest first", title_justify="left")
    table.add_column("string", overflow="fold")
    for heading in ("count", f"{CONFIDENCE:.0%} interval", "share", "p", "q"):
        table.add_column(heading, justify="right")
    table.add_column("detected", justify="center")
    for index in indices:
        row = _row(decoding, int(index))
        table.add_row(
            printable(row.string),
            f"{row.count:,.0f}",
            f"{row.count_low:,.0f} … {row.count_high:,.0f}",
            f"{row.proportion:.3%}",
            f"{row.p_value:.1e}",
            f"{row.q_value:.1e}",
            "yes" if row.detected else "",
            style=None if row.detected else "dim",
        )
    return table


def _strongest_first(decoding: Decoding) -> IntArray:
    """Order by detection, then p-value, then estimate."""
    share = np.nan_to_num(decoding.share, nan=-np.inf)
    within = np.where(decoding.detected, -share, decoding.p_value)
    return np.asarray(np.lexsort((-share, within, ~decoding.detected)))


def _row(decoding: Decoding, index: int) -> Row:
    n_reports = decoding.summary.reports
    share, std_error = float(decoding.share[index]), float(decoding.std_error[index])
    low, high = float(decoding.low[index]), float(decoding.high[index])
    return Row(
        string=decoding.candidates[index],
        count=share * n_reports,
        std_error=std_error * n_reports,
        count_low=low * n_reports,
        count_high=high * n_reports,
        proportion=share,
        prop_std_error=std_error,
        prop_low=low,
        prop_high=high,
        p_value=float(decoding.p_value[index]),
        q_value=float(decoding.q_value[index]),
        detected=bool(decoding.detected[index]),
    )


def csv_line(cells: Sequence[str]) -> str:
    """Return a line of CSV."""
    # The writer quotes a CR or LF in a cell only if its own line end has it.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def cell(value: str | float | bool) -> str:
    """Return a CSV cell, a number's with ten digits; nan leaves it empty.

    That is more than the noise leaves, and fewer than differ between linear algebra kernels.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if math.isnan(value) else f"{value:.10g}"


def finite(value: object) -> object:
    """Return None in place of a float that JSON can't hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
