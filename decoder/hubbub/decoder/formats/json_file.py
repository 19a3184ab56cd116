"""Results as JSON: the document, with an object a row where the rows belong.

Laid out as `json.dumps(indent=1)` would, but written part by part. What JSON has no number for,
such as nan, is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np

from hubbub.decoder.results.result import ROWS, Result, Values

_encode = json.JSONEncoder(ensure_ascii=False).encode


def write_json(result: Result, file: BinaryIO) -> None:
    """Write a result's document with its rows."""
    file.writelines(chunk.encode("utf-8") for chunk in _chunks(result))


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON; numbers that aren't finite are null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _chunks(result: Result) -> Iterator[str]:
    separator = "{\n"
    for name, value in result.document().items():
        yield f"{separator} {_encode(name)}: "
        if value is ROWS:
            yield from _rows(result)
        else:
            yield json_text(value, indent=1).replace("\n", "\n ")
        separator = ",\n"
    yield "\n}\n"


def _rows(result: Result) -> Iterator[str]:
    types = result.types
    row = "  {\n" + ",\n".join(f"   {_encode(name)}: %s" for name in types) + "\n  }"
    separator = "[\n"
    for part in result.parts():
        columns = [_encoded(part[name], kind) for name, kind in types.items()]
        lines = [row % cells for cells in zip(*columns, strict=True)]
        if lines:
            yield separator + ",\n".join(lines)
            separator = ",\n"
    yield "[]" if separator == "[\n" else "\n ]"


def _encoded(values: Values, kind: type) -> Iterator[str]:
    if kind is str:
        return map(_encode, values)
    if kind is bool:
        return ("true" if value else "false" for value in values)
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return map(repr if np.isfinite(plain).all() else _number, plain)


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
