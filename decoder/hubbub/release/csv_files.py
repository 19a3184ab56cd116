"""CSV files as RFC 4180 has them -> tables of text.

A reader that forgives lets one person's cell hide other people's rows: an open quote swallows all
lines up to the next one, and a carriage return begins a line that nobody wrote. `csv` in strict
mode refuses both, by file and line; a line break within a cell is refused as well unless it was
asked for. Invariant: no message quotes a cell.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa

from hubbub.release.errors import DataError

_ROWS = 65_536  # that are Python's strings at a time
_FAULTS = {
    "unexpected end of data": "a quote that none closes",
    "',' expected after '\"'": "text after a closing quote; expected a comma or the line's end, "
    "or two quotes for one within the cell",
    "new-line character seen": "a carriage return without a line feed; expected lines that end in "
    "LF or CRLF",
    "field larger than": "a cell of more than 131,072 characters",
}
"""What `csv` says, and what people can mend."""


def read_names(path: Path, *, newlines_in_cells: bool) -> list[str]:
    """Return what the cells of a file's first record say; DataError if there is none."""
    with _opened(path) as file:
        for record in _records(path, file, newlines_in_cells):
            return record
    raise DataError(f"{path}: can't be read: it is empty")


def read(path: Path, columns: Sequence[str], *, newlines_in_cells: bool) -> Any:
    """Return an Arrow table of those of some columns that the file has; all cells are text.

    Types aren't guessed, which would let one row change what others mean. Raises `DataError` for
    what isn't as RFC 4180 says.
    """
    with _opened(path) as file:
        records = _records(path, file, newlines_in_cells)
        names = next(records, [])
        places = [names.index(name) for name in columns if name in names]
        schema = pa.schema([(names[place], pa.string()) for place in places])
        tables = [schema.empty_table()]
        while rows := list(islice(records, _ROWS)):
            cells = [pa.array([row[place] for row in rows], pa.string()) for place in places]
            tables.append(pa.table(cells, schema=schema))
    return pa.concat_tables(tables)


def _opened(path: Path) -> TextIO:
    # Lines end in a line feed alone, so that `csv` sees, and refuses, a stray carriage return.
    opener = gzip.open if path.suffix == ".gz" else open
    return cast("TextIO", opener(path, "rt", encoding="utf-8-sig", newline="\n"))


def _records(path: Path, file: TextIO, newlines_in_cells: bool) -> Iterator[list[str]]:
    """Yield the cells of each record, all of which have as many as the first."""
    lines = csv.reader(file, strict=True)
    expected, first = 0, 1
    try:
        for record in lines:
            cells = record or [""]  # an empty line
            if not newlines_in_cells and (lines.line_num > first or "\r" in "".join(cells)):
                raise DataError(
                    f"{path}: line {first}: a line break in a cell; if cells are to hold these, "
                    "--newlines-in-cells (newlines_in_cells=True); if not, a quote that none closes"
                )
            expected = expected or len(cells)
            if len(cells) != expected:
                raise DataError(
                    f"{path}: line {first}: cells = {len(cells)}: must be {expected}, as in the "
                    "first line"
                )
            yield cells
            first = lines.line_num + 1
    except csv.Error as error:
        fault = next((ours for its, ours in _FAULTS.items() if str(error).startswith(its)), "")
        raise DataError(f"{path}: line {first}: {fault or error} (RFC 4180)") from error
