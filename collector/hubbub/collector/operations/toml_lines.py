"""Where the keys of a TOML file are: its text -> the line of each key.

`tomllib` names lines of what isn't TOML only. So each statement is parsed by itself, by `tomllib`
again: a statement ends where what was read since the last one can be parsed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import count
from typing import Any

_CLOSERS = ("]", "}", '"""', "'''")
"""One of them is in the last line of every statement that has several."""


def key_lines(text: str) -> dict[str, int]:
    """Return the first line of each table and key, by names as messages have them.

    Parameters
    ----------
    text : str
        Must be TOML.

    Returns
    -------
    dict of str to int
        Such as ``{"metrics.tabs": 3, "metrics.tabs.edges": 8, "metrics.tabs.fields[1].name": 9}``.
    """
    lines: dict[str, int] = {}
    table, statement, start = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += line + "\n"
        if statement != line + "\n" and not any(closer in line for closer in _CLOSERS):
            continue
        try:
            parsed = tomllib.loads(statement)
        except ValueError:
            continue
        paths = list(_paths("", parsed))
        if statement.lstrip().startswith("["):
            table = paths[-1]
            if table.endswith("[0]"):  # [[...]]
                base = table[:-3]
                table = next(it for n in count() if (it := f"{base}[{n}]") not in lines)
            paths, inside = [table], ""
        else:
            inside = f"{table}." if table else ""
        for path in paths:
            lines.setdefault(inside + path, start)
        statement, start = "", number + 1
    return lines


def line_of(field: str, lines: dict[str, int]) -> int:
    """Return the line of a key, or of the innermost table around it that is there; 0 if none is."""
    while field and field not in lines:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    return lines.get(field, 0)


def _paths(path: str, value: Any) -> Iterator[str]:
    """Yield all keys inside a value, the outer ones first."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            if isinstance(inner, dict):
                yield from _paths(f"{path}[{i}]", inner)
