"""A decoding as people and programs want it: terminal table, CSV, JSON.

The same decoding gives the same bytes. Where the data can't tell (see `Summary.indistinguishable`)
CSV cells are empty and JSON values null. Files are made in chunks of rows, so that a million
candidates need neither a million objects nor one huge string.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.decoder.decoding import Decoding
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.cells import cell, csv_cell, csv_line, finite_fields, json_head
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.summary import summary_table
from hubbub.decoder.reports.scrutiny import Findings

NUMBERS = (
    "count",
    "std_error",
    "count_low",
    "count_high",
    "proportion",
    "prop_std_error",
    "prop_low",
    "prop_high",
    "refit",
    "p_value",
    "q_value",
)
COLUMNS = ("string", *NUMBERS, "detected")
CHUNK = 16_384
"""Rows that are in memory at once."""
_DIGITS = "%.10g"
_CSV_ROW = ",".join(["%s", *[_DIGITS] * len(NUMBERS), "%s"]) + "\n"
_JSON_ROW = (
    "  {\n" + ",\n".join(f'   "{column}": %s' for column in COLUMNS) + "\n  }"
)  # as json.dumps(indent=1) would


_encode = json.JSONEncoder(ensure_ascii=False).encode


class Chunk(NamedTuple):
    """Some candidates' results; counts and proportions are of the collected reports.

    Attributes
    ----------
    strings : list of str, length r
    numbers : float64 array, shape (11, r)
        A row a name in NUMBERS; nan where the data can't tell.
    detected : list of bool, length r
    """

    strings: list[str]
    numbers: FloatArray
    detected: list[bool]


def chunks(decoding: Decoding, *, detected_only: bool = False) -> Iterator[Chunk]:
    """Yield the candidates' results, in the candidates' order."""
    if not detected_only:
        for start in range(0, len(decoding.candidates), CHUNK):
            rows = slice(start, start + CHUNK)
            yield _chunk(decoding, list(decoding.candidates[rows]), rows)
        return
    chosen = np.flatnonzero(decoding.detected)
    for start in range(0, len(chosen), CHUNK):
        some = chosen[start : start + CHUNK]
        yield _chunk(decoding, [decoding.candidates[int(i)] for i in some], some)


def _chunk(decoding: Decoding, strings: list[str], rows: slice | IntArray) -> Chunk:
    shares = np.stack(
        [values[rows] for values in (decoding.share, decoding.std_error, decoding.low,
                                     decoding.high)]
    )  # fmt: skip
    tests = np.stack([decoding.refit[rows], decoding.p_value[rows], decoding.q_value[rows]])
    numbers = np.concatenate([shares * decoding.summary.reports, shares, tests])
    return Chunk(strings, numbers, decoding.detected[rows].tolist())


def csv_chunks(decoding: Decoding, *, detected_only: bool = False) -> Iterator[str]:
    """Yield CSV with a header and bare line feeds; quoted where RFC 4180 asks for it."""
    yield csv_line(COLUMNS)
    for chunk in chunks(decoding, detected_only=detected_only):
        strings = [csv_cell(string) for string in chunk.strings]
        flags = ["true" if found else "false" for found in chunk.detected]
        known: BoolArray = np.asarray(~np.isnan(chunk.numbers).any(axis=0))
        if known.all():
            lines: Iterable[str] = map(
                _CSV_ROW.__mod__, zip(strings, *chunk.numbers.tolist(), flags, strict=True)
            )
        else:
            lines = _csv_lines(strings, chunk.numbers, flags, known)
        yield "".join(lines)


def _csv_lines(
    strings: list[str], numbers: FloatArray, flags: list[str], known: BoolArray
) -> Iterator[str]:
    for index, row in enumerate(numbers.T.tolist()):
        if known[index]:
            yield _CSV_ROW % (strings[index], *row, flags[index])
        else:
            yield ",".join([strings[index], *map(cell, row), flags[index]]) + "\n"


def json_chunks(
    decoding: Decoding,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> Iterator[str]:
    """Yield an object with "summary", "scrutiny", "provenance" (null without) and "rows"."""
    yield json_head(
        {
            "summary": finite_fields(asdict(decoding.summary)),
            "scrutiny": findings and findings.as_json(),
            "provenance": provenance and provenance.as_json(),
        }
    )
    separator = "\n"
    for chunk in chunks(decoding, detected_only=detected_only):
        strings = map(_encode, chunk.strings)
        number = repr if np.isfinite(chunk.numbers).all() else _json_number
        columns = [map(number, row) for row in chunk.numbers.tolist()]
        flags = ["true" if found else "false" for found in chunk.detected]
        rows = map(_JSON_ROW.__mod__, zip(strings, *columns, flags, strict=True))
        yield separator + ",\n".join(rows)
        separator = ",\n"
    yield "]\n}\n" if separator == "\n" else "\n ]\n}\n"


def _json_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"


def to_csv(decoding: Decoding, *, detected_only: bool = False) -> str:
    """Return what `csv_chunks` yields as one string."""
    return "".join(csv_chunks(decoding, detected_only=detected_only))


def to_json(
    decoding: Decoding,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> str:
    """Return what `json_chunks` yields as one string."""
    return "".join(
        json_chunks(decoding, detected_only=detected_only, findings=findings, provenance=provenance)
    )


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
    order = largest_detected(decoding) if detected_only else strongest_first(decoding, limit)
    console.print(Group(_table(decoding, order[:limit]), Text()))
    n_rows = len(order) if detected_only else len(decoding.candidates)
    if n_rows > limit:
        console.print(f"… and {n_rows - limit:,} more; --output writes them all\n")
    console.print(summary_table(decoding, findings))


def visible(string: str) -> str:
    """Return a string as people may see it: control characters escaped, nothing invisible."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in string
    )
    return f'"{shown}"' if shown != shown.strip() or not shown else shown


def printable(string: str) -> Text:
    """Return a string as a terminal may show it: `visible`, and nothing obeyed as markup."""
    return Text(visible(string), overflow="fold")


def _table(decoding: Decoding, indices: IntArray) -> Table:
    table = Table(title="Candidates, strongest first", title_justify="left")
    table.add_column("string", overflow="fold")
    for heading in ("count", f"{CONFIDENCE:.0%} interval", "share", "p", "q"):
        table.add_column(heading, justify="right")
    table.add_column("detected", justify="center")
    n_reports = decoding.summary.reports
    for index in map(int, indices):
        low, high = decoding.low[index] * n_reports, decoding.high[index] * n_reports
        share, found = decoding.share[index], bool(decoding.detected[index])
        known = not np.isnan(share)
        table.add_row(
            printable(decoding.candidates[index]),
            f"{share * n_reports:,.0f}" if known else "",
            f"{low:,.0f} … {high:,.0f}" if known else "",
            f"{share:.3%}" if known else "",
            f"{decoding.p_value[index]:.1e}",
            f"{decoding.q_value[index]:.1e}",
            "yes" if found else "",
            style=None if found else "dim",
        )
    return table


def largest_detected(decoding: Decoding) -> IntArray:
    """Return the detected candidates, the largest share first."""
    found = np.flatnonzero(decoding.detected)
    return np.asarray(found[np.argsort(-decoding.share[found], kind="stable")])


def strongest_first(decoding: Decoding, most: int) -> IntArray:
    """Return the first `most` candidates by detection, then p-value, then estimate."""
    found = largest_detected(decoding)
    wanted, others = most - len(found), np.flatnonzero(~decoding.detected)
    if wanted <= 0 or not len(others):
        return found[:most]
    p_value = decoding.p_value[others]
    if wanted < len(others):
        likeliest = p_value <= np.partition(p_value, wanted - 1)[wanted - 1]
        others, p_value = others[likeliest], p_value[likeliest]
    share = np.nan_to_num(decoding.share[others], nan=-np.inf)
    return np.concatenate([found, others[np.lexsort((-share, p_value))][:wanted]])
