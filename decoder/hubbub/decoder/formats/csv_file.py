"""Results as CSV: a header and a line a row, with bare line feeds.

Strings come back exactly as they were. Numbers have ten digits, more than the noise leaves and
fewer than differ between linear algebra kernels; nan leaves a cell empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from hubbub.decoder.results.result import Columns, Result, Types, Values

_QUOTED = re.compile(r'[",\r\n]')
_FORMS = {str: "%s", bool: "%s", int: "%d", float: "%.10g"}


def write_csv(result: Result, file: BinaryIO) -> None:
    """Write a result's rows."""
    file.write((",".join(result.types) + "\n").encode("utf-8"))
    file.writelines("".join(_lines(part, result.types)).encode("utf-8") for part in result.parts())


def csv_cell(string: str) -> str:
    """Return a string as it stands between other cells of a line; quoted where RFC 4180 asks."""
    return '"' + string.replace('"', '""') + '"' if _QUOTED.search(string) else string


def _lines(part: Columns, types: Types) -> Iterator[str]:
    rows = zip(*(_printable(part[name], kind) for name, kind in types.items()), strict=True)
    unknown = np.zeros(len(next(iter(part.values()))), dtype=np.bool_)
    for name, kind in types.items():
        if kind is float:
            unknown |= np.isnan(np.asarray(part[name], dtype=np.float64))
    line = ",".join(_FORMS[kind] for kind in types.values()) + "\n"
    if not unknown.any():  # most often; nothing is as fast as one format for the whole row
        return map(line.__mod__, rows)
    forms = [_FORMS[kind] for kind in types.values()]
    return (
        ",".join(map(_cell, forms, row)) + "\n" if blank else line % row
        for row, blank in zip(rows, unknown.tolist(), strict=True)
    )


def _printable(values: Values, kind: type) -> Sequence[Any]:
    if kind is str:
        return [csv_cell(value) for value in values]
    if kind is bool:
        return ["true" if value else "false" for value in values]
    return values.tolist() if isinstance(values, np.ndarray) else values


def _cell(form: str, value: Any) -> str:
    return "" if isinstance(value, float) and math.isnan(value) else form % value
