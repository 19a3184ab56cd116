"""Single cells and lines of CSV and JSON, shared by all kinds of results.

Strings come back exactly as they were; numbers that nobody knows are empty cells and nulls.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence

_QUOTED = re.compile(r'[",\r\n]')


def csv_line(cells: Sequence[str]) -> str:
    """Return a line of CSV."""
    # The writer quotes a CR or LF in a cell only if its own line end has it.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def csv_cell(string: str) -> str:
    """Return a string as it stands between other cells of a line (`csv_line`, for many)."""
    return '"' + string.replace('"', '""') + '"' if _QUOTED.search(string) else string


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


def finite_fields(fields: dict[str, object]) -> dict[str, object]:
    """Return a flat object as JSON can hold it."""
    return {key: finite(value) for key, value in fields.items()}


def json_head(document: dict[str, object]) -> str:
    """Return an object as JSON, up to and with the "[" of its last entry, "rows"."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    return text.removesuffix("\n}") + ',\n "rows": ['
